"""The options of `eval-3dpw`."""

from dataclasses import dataclass
from pathlib import Path

from fitmesh.options import ranges
from fitmesh.options.ranges import DEFAULT_MODEL, KEYPOINTS, PLUGIN, POSE_MODEL
from fitmesh.options.record import option

DATA, FITTING, SCORING, OUTPUT = "Data", "Fitting", "Scoring", "Output"


@dataclass(frozen=True)
class Eval3dpwOptions:
    """What to measure, and how."""

    data: Path = option(..., "3DPW's folder (with sequenceFiles and imageFiles), or SPIN's 3dpw_test.npz.", DATA)
    body_model: Path | None = option(
        None, "Folder with SMPL_NEUTRAL.pkl, SMPL_MALE.pkl and SMPL_FEMALE.pkl.", DATA,
        shown="the open body, for sets made by `fitmesh synth`",
    )  # fmt: skip
    regressor: Path | None = option(None, "J_regressor_h36m.npy; needed with --body-model, not shipped.", DATA)
    split: str = option("test", "train, validation or test.", DATA)
    sequences: tuple[str, ...] = option(
        (), "Only these sequences, by name, with commas.", DATA, shown="all", commas=True
    )
    every: int = option(1, "Use every n-th frame only.", DATA, ranges.EVERY)
    keypoints_from: str = option(
        "network", "network (--pose-model), or poses2d: the keypoints in 3DPW's own files, no images needed.", KEYPOINTS
    )
    pose_model: str = option(DEFAULT_MODEL, POSE_MODEL)
    pose_checkpoint: Path | None = option(None, "Weights for a keypoint network that ships none.", KEYPOINTS)
    plugin: Path | None = option(None, PLUGIN)
    confidence: tuple[str, ...] = option(
        ("raw", "ccnet"),
        "Where confidence comes from, with commas: ccnet, closed-form, raw, raw-heatmap, ones; oracle is the true "
        "OKS, as a bound.", KEYPOINTS, commas=True,
    )  # fmt: skip
    ccnet: Path | None = option(None, "A calibration head other than the built-in one.", KEYPOINTS)
    init: str = option("lifter", "Where fits start: lifter, spin, cliff (cliff-res50, cliff-hr48).", FITTING)
    checkpoint: Path | None = option(None, "Weights of the network that --init names.", FITTING)
    weighting: tuple[str, ...] = option(
        ("confidence", "likelihood"),
        "From confidence to weight, with commas: confidence, squared, precision, likelihood, gate, ones. Precision "
        "is for calibrated confidence only.", FITTING, commas=True,
    )  # fmt: skip
    single_frames: bool = option(False, "Fit every frame for itself, as SMPLify does.", FITTING)
    protocol: str = option("spin", "spin, vibe, wham or challenge; see docs/eval-3dpw.md.", SCORING)
    predictions: Path | None = option(None, "Score the bodies in this .npz and do nothing else.", SCORING)


@dataclass(frozen=True)
class Eval3dpwCommand(Eval3dpwOptions):
    """With what the command alone is told."""

    out: Path = option(Path("eval-3dpw"), "Folder for results and for what is kept between runs.", OUTPUT)
    device: str | None = option(
        None, "Where the networks run: cpu, cuda, cuda:1, ..", OUTPUT, shown="cuda if present, else cpu"
    )
    threads: int | None = option(None, "Processor cores to use.", OUTPUT, ranges.THREADS, shown="all")
    quiet: bool = option(False, "Show the table only.", OUTPUT)
