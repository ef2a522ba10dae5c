"""The options of `train-ccnet`, `eval-coco` and `paper`."""

from dataclasses import dataclass, replace
from pathlib import Path

from fitmesh.options import ranges
from fitmesh.options.ranges import DEFAULT_MODEL
from fitmesh.options.record import Option, option

DATA = Option("Data set folder in COCO's layout (or MPII's, COCO-WholeBody's).")
MODEL = Option("Pose model, one of `fitmesh models`.")
CHECKPOINT = Option("The pose model's weights, if not embedded.")
PLUGIN = replace(ranges.PLUGIN, panel=None)
DEVICE = Option("cpu, cuda, cuda:1, ..", shown="cuda if present, else cpu")
THREADS = Option("Processor cores to use.", limits=ranges.THREADS, shown="all")
OCCLUSION_TEST = Option("Hide wrists behind growing patches, too (with --out).")
FLIP_TEST = Option("Average over each crop and its mirror image.", flags=("--flip-test/--no-flip-test",))
TRAIN_SPLIT, TEST_SPLIT = "train2017, or MPII's train", "val2017, or MPII's valid"


@dataclass(frozen=True)
class EvalCocoOptions:
    """What to evaluate, and how."""

    data: Path = option(..., DATA)
    model: str = option(DEFAULT_MODEL, MODEL)
    checkpoint: Path | None = option(None, CHECKPOINT)
    plugin: Path | None = option(None, PLUGIN)
    split: str | None = option(None, "Split to evaluate.", shown=TEST_SPLIT)
    head: str | None = option(None, "Calibration head file.", shown="the embedded one, if there is one")
    boxes: str = option("gt", "gt (annotated), yolox-tiny, multipose, or a COCO detection file (.json).")
    confidence: tuple[str, ...] = option(
        (), "ones, raw, raw-heatmap (IPR), closed-form (mean area), closed-form-predicted, closed-form-annotated "
        "(area), ccnet or oracle; repeat for more.", shown="all but closed-form-predicted and -annotated",
    )  # fmt: skip
    area_split: str | None = option(
        None, "Training people from whom closed-form-predicted learns areas.", shown=TRAIN_SPLIT
    )
    evaluator: str = option("ours", "Of AP and AR: ours, or pycocotools (the reference: slower, the same numbers).")
    hands: bool = option(
        False, "Measure the embedded hand network on COCO-WholeBody instead, at the arms that the model finds."
    )
    flip_test: bool = option(False, FLIP_TEST)
    out: Path | None = option(None, "Folder for metrics.json and the images.")
    occlusion_test: bool = option(True, OCCLUSION_TEST)
    device: str | None = option(None, DEVICE)
    threads: int | None = option(None, THREADS)


@dataclass(frozen=True)
class TrainCcnetOptions:
    """On what to train which head, and how; None where the recipe decides."""

    data: Path = option(..., DATA)
    model: str = option(..., MODEL)
    out: Path = option(..., "Folder for ccnet.safetensors, metrics.json and the images.")
    checkpoint: Path | None = option(None, CHECKPOINT)
    plugin: Path | None = option(None, PLUGIN)
    train: tuple[str, ...] = option((), "Split to train on; repeat for more.", shown=TRAIN_SPLIT)
    validation: str | None = option(None, "Split to compare settings on.")
    test: str | None = option(None, "Split to report on, once.", shown=f"{TEST_SPLIT}, if there")
    recipe: str = option(
        "fitmesh", "Defaults of the options below: fitmesh's own, or paper's (one layer, 2 epochs, no augmentation)."
    )
    head: str | None = option(
        None, "simcc, movenet, peaks, conv, gap-fc, fc, query, or paper (one layer).", shown="what fits the model"
    )
    head_width: int | None = option(
        None, "Width of a hidden layer in conv, gap-fc or fc.", limits=ranges.WIDTH, shown="none"
    )
    features: str | None = option(
        None, "What the head reads: penultimate, shallow, output, or copy (the crop, by a copied trunk). `run` takes "
        "heads on penultimate features only.", shown="penultimate",
    )  # fmt: skip
    loss: str | None = option(
        None, "likelihood, mse, cross-entropy, aleatoric, ensemble or soap.",
        shown="likelihood for simcc, mse for other heads",
    )  # fmt: skip
    target: str = option(
        "oks", "What the confidence means: oks (expected OKS), or for MPII pck (probability of PCKh@0.5)."
    )
    epochs: int | None = option(None, limits=ranges.COUNT, shown="8; paper: 2")
    learning_rate: float | None = option(
        None, "Learning rate before it decays.", limits=ranges.LEARNING_RATE, shown="0.001", name="lr"
    )
    batch: int | None = option(None, limits=ranges.COUNT, shown="128; paper: 32")
    weight_decay: float | None = option(None, limits=ranges.WEIGHT_DECAY, shown="0.001; paper: 0")
    person_weight: float | None = option(
        None, "Weight of the person's confidence beside the keypoints'.", limits=ranges.LOSS_WEIGHT, shown="3; paper: 0"
    )
    augmented_passes: int | None = option(
        None, "Passes over randomly augmented crops, beside one over the crops as they are.", limits=ranges.PASSES,
        shown="1; paper: 0", name="augment",
    )  # fmt: skip
    plain: bool = option(True, "Train on the crops as they are, too.")
    seed: int = option(0, limits=ranges.SEED)
    cache_gb: float = option(
        20.0, "Disk for features; if they take more, the network runs in every epoch.", limits=ranges.CACHE_GB
    )
    cache: Path | None = option(None, "Folder for features, to share between runs.", shown="OUT/cache")
    occlusion_test: bool = option(True, OCCLUSION_TEST)
    device: str | None = option(None, DEVICE)
    threads: int | None = option(None, THREADS)
    report: bool = True  # print the tables and draw their plots

    @property
    def cache_folder(self) -> Path:
        return self.cache or self.out / "cache"


@dataclass(frozen=True)
class PaperOptions:
    """Which table, of which networks on which data."""

    table: str = option(
        ..., "coco, area, losses, ablations, mpii, wholebody, 3dpw, figures; or list.", is_argument=True
    )
    data: Path | None = option(None, "The data set that the table is on: COCO, MPII, COCO-WholeBody or 3DPW.")
    checkpoint: tuple[str, ...] = option(
        (), "NAME=FILE: a pose model and its weights (3dpw: also spin=FILE, cliff=FILE). Repeat."
    )
    model: tuple[str, ...] = option((), "A pose model whose weights are embedded. Repeat for more.")
    head: tuple[str, ...] = option(
        (), "NAME=FILE: a model's calibration head. Repeat.", shown="embedded, or trained here"
    )
    train: tuple[str, ...] = option((), "Split to train heads on; repeat for more.", shown=TRAIN_SPLIT)
    test: str | None = option(None, "Split to report on.", shown=TEST_SPLIT)
    recipe: str = option("paper", "How heads are trained: paper or fitmesh.")
    flip_test: bool = option(True, FLIP_TEST)
    body_model: Path | None = option(None, "3dpw: folder with SMPL's files.")
    regressor: Path | None = option(None, "3dpw: J_regressor_h36m.npy.")
    every: int = option(1, "3dpw: use every n-th frame only.", limits=ranges.EVERY)
    out: Path = option(Path("paper"), "Folder for tables, plots, heads and finished cells.")
    device: str | None = option(None, DEVICE)
    threads: int | None = option(None, THREADS)
