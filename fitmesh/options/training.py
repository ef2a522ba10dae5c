"""The options of `train-ccnet`, `eval-coco` and `paper`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fitmesh.options import ranges
from fitmesh.options.ranges import DEFAULT_MODEL, PLUGIN_HELP
from fitmesh.options.record import Option

Data = Annotated[Path, Option("Data set folder in COCO's layout (or MPII's, COCO-WholeBody's).")]
Model = Annotated[str, Option("Pose model, one of `fitmesh models`.")]
Checkpoint = Annotated[Path | None, Option("The pose model's weights, if not embedded.")]
Plugin = Annotated[Path | None, Option(PLUGIN_HELP)]
Device = Annotated[str | None, Option("cpu, cuda, cuda:1, ..", default="cuda if present, else cpu")]
Threads = Annotated[int | None, Option("Processor cores to use.", default="all"), ranges.THREADS]
OcclusionTest = Annotated[bool, Option("Hide wrists behind growing patches, too (with --out).")]
FlipTest = Annotated[
    bool, Option("Average over each crop and its mirror image.", flags=("--flip-test/--no-flip-test",))
]
TRAIN_SPLIT, TEST_SPLIT = "train2017, or MPII's train", "val2017, or MPII's valid"


@dataclass(frozen=True)
class EvalCocoOptions:
    """What to evaluate, and how."""

    data: Data
    model: Model = DEFAULT_MODEL
    checkpoint: Checkpoint = None
    plugin: Plugin = None
    split: Annotated[str | None, Option("Split to evaluate.", default=TEST_SPLIT)] = None
    head: Annotated[str | None, Option("Calibration head file.", default="the embedded one, if there is one")] = None
    boxes: Annotated[str, Option("gt (annotated), yolox-tiny, multipose, or a COCO detection file (.json).")] = "gt"
    confidence: Annotated[
        tuple[str, ...],
        Option(
            "ones, raw, raw-heatmap (IPR), closed-form (mean area), closed-form-predicted, closed-form-annotated "
            "(area), ccnet or oracle; repeat for more.",
            default="all but closed-form-predicted and -annotated",
        ),
    ] = ()
    area_split: Annotated[
        str | None, Option("Training people from whom closed-form-predicted learns areas.", default=TRAIN_SPLIT)
    ] = None
    evaluator: Annotated[
        str, Option("Of AP and AR: ours, or pycocotools (the reference: slower, the same numbers).")
    ] = "ours"
    hands: Annotated[
        bool, Option("Measure the embedded hand network on COCO-WholeBody instead, at the arms that the model finds.")
    ] = False
    flip_test: FlipTest = False
    out: Annotated[Path | None, Option("Folder for metrics.json and the images.")] = None
    occlusion_test: OcclusionTest = True
    device: Device = None
    threads: Threads = None


@dataclass(frozen=True)
class TrainCcnetOptions:
    """On what to train which head, and how; None where the recipe decides."""

    data: Data
    model: Model
    out: Annotated[Path, Option("Folder for ccnet.safetensors, metrics.json and the images.")]
    checkpoint: Checkpoint = None
    plugin: Plugin = None
    train: Annotated[tuple[str, ...], Option("Split to train on; repeat for more.", default=TRAIN_SPLIT)] = ()
    validation: Annotated[str | None, Option("Split to compare settings on.")] = None
    test: Annotated[str | None, Option("Split to report on, once.", default=f"{TEST_SPLIT}, if there")] = None
    recipe: Annotated[
        str,
        Option("Defaults of the options below: fitmesh's own, or paper's (one layer, 2 epochs, no augmentation)."),
    ] = "fitmesh"
    head: Annotated[
        str | None,
        Option("simcc, movenet, peaks, conv, gap-fc, fc, query, or paper (one layer).", default="what fits the model"),
    ] = None
    head_width: Annotated[
        int | None, Option("Width of a hidden layer in conv, gap-fc or fc.", default="none"), ranges.WIDTH
    ] = None
    features: Annotated[
        str | None,
        Option(
            "What the head reads: penultimate, shallow, output, or copy (the crop, by a copied trunk). `run` takes "
            "heads on penultimate features only.",
            default="penultimate",
        ),
    ] = None
    loss: Annotated[
        str | None,
        Option(
            "likelihood, mse, cross-entropy, aleatoric, ensemble or soap.",
            default="likelihood for simcc, mse for other heads",
        ),
    ] = None
    target: Annotated[
        str, Option("What the confidence means: oks (expected OKS), or for MPII pck (probability of PCKh@0.5).")
    ] = "oks"
    epochs: Annotated[int | None, Option(default="8; paper: 2"), ranges.COUNT] = None
    learning_rate: Annotated[
        float | None, Option("Learning rate before it decays.", default="0.001", name="lr"), ranges.LEARNING_RATE
    ] = None
    batch: Annotated[int | None, Option(default="128; paper: 32"), ranges.COUNT] = None
    weight_decay: Annotated[float | None, Option(default="0.001; paper: 0"), ranges.WEIGHT_DECAY] = None
    person_weight: Annotated[
        float | None,
        Option("Weight of the person's confidence beside the keypoints'.", default="3; paper: 0"),
        ranges.LOSS_WEIGHT,
    ] = None
    augmented_passes: Annotated[
        int | None,
        Option(
            "Passes over randomly augmented crops, beside one over the crops as they are.",
            default="1; paper: 0",
            name="augment",
        ),
        ranges.PASSES,
    ] = None
    plain: Annotated[bool, Option("Train on the crops as they are, too.")] = True
    seed: Annotated[int, Option(), ranges.SEED] = 0
    cache_gb: Annotated[
        float, Option("Disk for features; if they take more, the network runs in every epoch."), ranges.CACHE_GB
    ] = 20.0
    cache: Annotated[Path | None, Option("Folder for features, to share between runs.", default="OUT/cache")] = None
    occlusion_test: OcclusionTest = True
    device: Device = None
    threads: Threads = None
    jobs: Annotated[
        int | None,
        Option(
            "Processes that run the pose network on shards of the people; they share --threads.",
            default="none but this one",
        ),
        ranges.JOBS,
    ] = None
    ray: Annotated[
        str | None, Option("Or the Ray cluster at this address; auto finds it, or starts Ray here (docs/scale.md).")
    ] = None
    report: bool = True  # print the tables and draw their plots

    @property
    def cache_folder(self) -> Path:
        return self.cache or self.out / "cache"


@dataclass(frozen=True)
class PaperOptions:
    """Which table, of which networks on which data."""

    table: Annotated[
        str, Option("coco, area, losses, ablations, mpii, wholebody, 3dpw, figures; or list.", is_argument=True)
    ]
    data: Annotated[Path | None, Option("The data set that the table is on: COCO, MPII, COCO-WholeBody or 3DPW.")] = (
        None
    )
    checkpoint: Annotated[
        tuple[str, ...],
        Option("NAME=FILE: a pose model and its weights (3dpw: also spin=FILE, cliff=FILE). Repeat."),
    ] = ()
    model: Annotated[tuple[str, ...], Option("A pose model whose weights are embedded. Repeat for more.")] = ()
    head: Annotated[
        tuple[str, ...],
        Option("NAME=FILE: a model's calibration head. Repeat.", default="embedded, or trained here"),
    ] = ()
    train: Annotated[tuple[str, ...], Option("Split to train heads on; repeat for more.", default=TRAIN_SPLIT)] = ()
    test: Annotated[str | None, Option("Split to report on.", default=TEST_SPLIT)] = None
    recipe: Annotated[str, Option("How heads are trained: paper or fitmesh.")] = "paper"
    flip_test: FlipTest = True
    body_model: Annotated[Path | None, Option("3dpw: folder with SMPL's files.")] = None
    regressor: Annotated[Path | None, Option("3dpw: J_regressor_h36m.npy.")] = None
    every: Annotated[int, Option("3dpw: use every n-th frame only."), ranges.EVERY] = 1
    out: Annotated[Path, Option("Folder for tables, plots, heads and finished cells.")] = Path("paper")
    device: Device = None
    threads: Threads = None
