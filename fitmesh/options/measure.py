"""The options of the commands that train and measure: `train-ccnet`, `eval-coco`, `eval-3dpw` and
`paper`.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from fitmesh.options import ranges
from fitmesh.options.ranges import DEFAULT_MODEL, KEYPOINTS, POSE_MODEL
from fitmesh.options.record import Option, option

DATA = Option("Data set folder in COCO's layout (or MPII's, COCO-WholeBody's).")
MODEL = Option("Pose model, one of `fitmesh models`.")
CHECKPOINT = Option("The pose model's weights, if not embedded.")
PLUGIN = replace(ranges.PLUGIN, panel=None)
DEVICE = Option("cpu, cuda, cuda:1, ..", shown="cuda if present, else cpu")
RAW_THRESHOLD = Option(
    "A person's raw confidence is the mean over keypoints whose score is above this (Eq. 5 of the "
    "paper); raw-mean counts all.",
    limits=ranges.SHARE,
)
THREADS = Option("Processor cores to use.", limits=ranges.THREADS, shown="all")
OCCLUSION_TEST = Option("Hide wrists behind growing patches, too (with --out).")
FLIP_TEST = Option(
    "Average over each crop and its mirror image.", flags=("--flip-test/--no-flip-test",)
)
TRAIN_SPLIT = "train2017, or MPII's train"
TEST_SPLIT = "val2017, or MPII's valid"


@dataclass(frozen=True)
class EvalCocoOptions:
    """The options of `eval-coco`."""

    data: Path = option(..., DATA)
    model: str = option(DEFAULT_MODEL, MODEL)
    checkpoint: Path | None = option(None, CHECKPOINT)
    plugin: Path | None = option(None, PLUGIN)
    split: str | None = option(None, "Split to evaluate.", shown=TEST_SPLIT)
    head: str | None = option(
        None, "Calibration head file.", shown="the embedded one, if there is one"
    )
    boxes: str = option(
        "gt", "gt (annotated), yolox-tiny, multipose, or a COCO detection file (.json)."
    )
    confidence: tuple[str, ...] = option(
        (),
        "ones, raw, raw-mean, raw-heatmap (IPR), closed-form (mean area), closed-form-predicted, "
        "closed-form-annotated (area), ccnet or oracle; repeat for more.",
        shown="all but closed-form-predicted and -annotated",
    )
    area_split: str | None = option(
        None,
        "Split of training people that the areas of closed-form-predicted are fitted to.",
        shown=TRAIN_SPLIT,
    )
    evaluator: str = option(
        "ours", "What computes AP and AR: ours, or pycocotools (slower, the same numbers)."
    )
    hands: bool = option(
        False,
        "Measure the embedded hand network on COCO-WholeBody instead, at the model's arms.",
    )
    flip_test: bool = option(False, FLIP_TEST)
    raw_threshold: float = option(0.2, RAW_THRESHOLD)
    plain_boxes: bool = option(
        False,
        "Take annotated boxes as they are. By default they are cut to the image as SimpleBaseline "
        "does it, which removes 1 px.",
    )
    results: Path | None = option(
        None,
        "Write people in COCO's result format (.json), scored by CCNet, or by the one --confidence "
        "that is named.",
    )
    out: Path | None = option(None, "Folder for metrics.json and the images.")
    occlusion_test: bool = option(True, OCCLUSION_TEST)
    device: str | None = option(None, DEVICE)
    threads: int | None = option(None, THREADS)


@dataclass(frozen=True)
class TrainCcnetOptions:
    """The options of `train-ccnet`; None where the recipe decides."""

    data: Path = option(..., DATA)
    model: str = option(..., MODEL)
    out: Path = option(..., "Folder for ccnet.safetensors, metrics.json and the images.")
    checkpoint: Path | None = option(None, CHECKPOINT)
    plugin: Path | None = option(None, PLUGIN)
    train: tuple[str, ...] = option((), "Split to train on; repeat for more.", shown=TRAIN_SPLIT)
    validation: str | None = option(None, "Split to compare settings on.")
    test: str | None = option(None, "Split to report on, once.", shown=f"{TEST_SPLIT}, if there")
    recipe: str = option(
        "fitmesh",
        "Defaults of the options below: fitmesh, or paper (one layer, 2 epochs, no augmentation).",
    )
    head: str | None = option(
        None,
        "simcc, movenet, peaks, conv, gap-fc, fc, query, or paper (one layer).",
        shown="what fits the model",
    )
    head_width: int | None = option(
        None, "Width of a hidden layer in conv, gap-fc or fc.", limits=ranges.WIDTH, shown="none"
    )
    features: str | None = option(
        None,
        "What the head reads: penultimate, shallow, output, copy (the crop, by a copied trunk), "
        "penultimate+shallow or penultimate+output. `run` takes penultimate only.",
        shown="penultimate",
    )
    loss: str | None = option(
        None,
        "likelihood, mse, cross-entropy, aleatoric, ensemble or soap.",
        shown="likelihood for simcc, mse for other heads",
    )
    target: str = option(
        "oks",
        "What the confidence means: oks (expected OKS), or for MPII pck (probability of PCKh@0.5).",
    )
    epochs: int | None = option(None, limits=ranges.COUNT, shown="8; paper: 2")
    learning_rate: float | None = option(
        None,
        "Learning rate before it decays.",
        limits=ranges.LEARNING_RATE,
        shown="0.001",
        name="lr",
    )
    batch: int | None = option(None, limits=ranges.COUNT, shown="128; paper: 32")
    weight_decay: float | None = option(None, limits=ranges.WEIGHT_DECAY, shown="0.001; paper: 0")
    person_weight: float | None = option(
        None,
        "Weight of the person's confidence beside the keypoints'.",
        limits=ranges.LOSS_WEIGHT,
        shown="3; paper: 0",
    )
    presence_weight: float | None = option(
        None,
        "Weight of the loss of presence beside that of confidence (the paper's lambda); "
        "likelihood uses 1.",
        limits=ranges.LOSS_WEIGHT,
        shown="0.02",
    )
    augmented_passes: int | None = option(
        None,
        "Passes over randomly augmented crops, beside one over the crops as they are.",
        limits=ranges.PASSES,
        shown="1; paper: 0",
        name="augment",
    )
    plain: bool = option(True, "Train on the crops as they are, too.")
    seed: int = option(0, limits=ranges.SEED)
    cache_gb: float = option(
        20.0,
        "Disk for features; if they take more, the network runs in every epoch.",
        limits=ranges.CACHE_GB,
    )
    cache: Path | None = option(
        None, "Folder for features, to share between runs.", shown="OUT/cache"
    )
    occlusion_test: bool = option(True, OCCLUSION_TEST)
    device: str | None = option(None, DEVICE)
    threads: int | None = option(None, THREADS)
    report: bool = True  # print the tables and draw their plots

    @property
    def cache_folder(self) -> Path:
        return self.cache or self.out / "cache"


@dataclass(frozen=True)
class PaperOptions:
    """The options of `paper`."""

    table: str = option(
        ...,
        "coco, area, losses, ablations, mpii, wholebody, 3dpw, figures, cost, theory; or list.",
        is_argument=True,
    )
    data: Path | None = option(
        None, "The data set that the table is on: COCO, MPII, COCO-WholeBody or 3DPW."
    )
    checkpoint: tuple[str, ...] = option(
        (), "NAME=FILE: a pose model and its weights (3dpw: also spin=FILE, cliff=FILE). Repeat."
    )
    model: tuple[str, ...] = option((), "A pose model whose weights are embedded. Repeat for more.")
    head: tuple[str, ...] = option(
        (), "NAME=FILE: a model's calibration head. Repeat.", shown="embedded, or trained here"
    )
    train: tuple[str, ...] = option(
        (), "Split to train heads on; repeat for more.", shown=TRAIN_SPLIT
    )
    test: str | None = option(None, "Split to report on.", shown=TEST_SPLIT)
    recipe: str = option("paper", "How heads are trained: paper or fitmesh.")
    flip_test: bool = option(True, FLIP_TEST)
    raw_threshold: float = option(0.2, RAW_THRESHOLD)
    plugin: Path | None = option(None, PLUGIN)
    body_model: Path | None = option(None, "3dpw: folder with SMPL's files.")
    regressor: Path | None = option(None, "3dpw: J_regressor_h36m.npy.")
    every: int = option(1, "3dpw: use every n-th frame only.", limits=ranges.EVERY)
    out: Path = option(Path("paper"), "Folder for tables, plots, heads and finished cells.")
    device: str | None = option(None, DEVICE)
    threads: int | None = option(None, THREADS)


# panels of the help of eval-3dpw
SET = "Data"
FITTING = "Fitting"
SCORING = "Scoring"
OUTPUT = "Output"


@dataclass(frozen=True)
class Eval3dpwOptions:
    """The settings of `eval-3dpw`."""

    data: Path = option(
        ..., "3DPW's folder (with sequenceFiles and imageFiles), or SPIN's 3dpw_test.npz.", SET
    )
    body_model: Path | None = option(
        None,
        "Folder with SMPL_NEUTRAL.pkl, SMPL_MALE.pkl and SMPL_FEMALE.pkl.",
        SET,
        shown="the open body, for sets made by `fitmesh synth`",
    )
    regressor: Path | None = option(
        None, "J_regressor_h36m.npy; needed with --body-model, not shipped.", SET
    )
    split: str = option("test", "train, validation or test.", SET)
    sequences: tuple[str, ...] = option(
        (), "Names of sequences to use, comma-separated.", SET, shown="all", commas=True
    )
    every: int = option(1, "Use every n-th frame only.", SET, ranges.EVERY)
    keypoints_from: str = option(
        "network",
        "network (--pose-model), or poses2d: the keypoints in 3DPW's own files, no images needed.",
        KEYPOINTS,
    )
    pose_model: str = option(DEFAULT_MODEL, POSE_MODEL)
    pose_checkpoint: Path | None = option(
        None, "Weights for a keypoint network that ships none.", KEYPOINTS
    )
    plugin: Path | None = option(None, ranges.PLUGIN)
    confidence: tuple[str, ...] = option(
        ("raw", "ccnet"),
        "Sources of confidence, comma-separated: ccnet, closed-form, raw, raw-heatmap, ones; oracle "
        "is the true OKS, as a bound.",
        KEYPOINTS,
        commas=True,
    )
    ccnet: Path | None = option(None, "A calibration head other than the built-in one.", KEYPOINTS)
    init: str = option(
        "lifter", "Where fits start: lifter, spin, cliff (cliff-res50, cliff-hr48).", FITTING
    )
    checkpoint: Path | None = option(None, "Weights of the network that --init names.", FITTING)
    weighting: tuple[str, ...] = option(
        ("confidence", "likelihood"),
        "From confidence to weight, comma-separated: confidence, squared, precision, likelihood, "
        "gate, ones. Precision is for calibrated confidence only.",
        FITTING,
        commas=True,
    )
    single_frames: bool = option(False, "Fit every frame for itself, as SMPLify does.", FITTING)
    protocol: str = option("spin", "spin, vibe, wham or challenge; see docs/eval-3dpw.md.", SCORING)
    predictions: Path | None = option(
        None, "Score the bodies in this .npz and do nothing else.", SCORING
    )


@dataclass(frozen=True)
class Eval3dpwCommand(Eval3dpwOptions):
    """The settings, and where the command writes and runs."""

    out: Path = option(
        Path("eval-3dpw"), "Folder for results and for what is kept between runs.", OUTPUT
    )
    device: str | None = option(
        None,
        "Where the networks run: cpu, cuda, cuda:1, ..",
        OUTPUT,
        shown="cuda if present, else cpu",
    )
    threads: int | None = option(
        None, "Processor cores to use.", OUTPUT, ranges.THREADS, shown="all"
    )
    quiet: bool = option(False, "Show the table only.", OUTPUT)
