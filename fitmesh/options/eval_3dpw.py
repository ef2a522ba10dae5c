"""The options of `eval-3dpw`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fitmesh.options import ranges
from fitmesh.options.ranges import DEFAULT_MODEL, KEYPOINTS, PLUGIN, POSE_MODEL
from fitmesh.options.record import Option

DATA, FITTING, SCORING, OUTPUT = "Data", "Fitting", "Scoring", "Output"


@dataclass(frozen=True)
class Eval3dpwOptions:
    """What to measure, and how."""

    data: Annotated[Path, Option("3DPW's folder (with sequenceFiles and imageFiles), or SPIN's 3dpw_test.npz.", DATA)]
    body_model: Annotated[
        Path | None,
        Option(
            "Folder with SMPL_NEUTRAL.pkl, SMPL_MALE.pkl and SMPL_FEMALE.pkl.",
            DATA,
            "the open body, for sets made by `fitmesh synth`",
        ),
    ] = None
    regressor: Annotated[Path | None, Option("J_regressor_h36m.npy; needed with --body-model, not shipped.", DATA)] = (
        None
    )
    split: Annotated[str, Option("train, validation or test.", DATA)] = "test"
    sequences: Annotated[
        tuple[str, ...], Option("Only these sequences, by name, with commas.", DATA, "all", commas=True)
    ] = ()
    every: Annotated[int, Option("Use every n-th frame only.", DATA), ranges.EVERY] = 1
    keypoints_from: Annotated[
        str,
        Option("network (--pose-model), or poses2d: the keypoints in 3DPW's own files, no images needed.", KEYPOINTS),
    ] = "network"
    pose_model: Annotated[str, POSE_MODEL] = DEFAULT_MODEL
    pose_checkpoint: Annotated[Path | None, Option("Weights for a keypoint network that ships none.", KEYPOINTS)] = None
    plugin: Annotated[Path | None, PLUGIN] = None
    confidence: Annotated[
        tuple[str, ...],
        Option(
            "Where confidence comes from, with commas: ccnet, closed-form, raw, raw-heatmap, ones; oracle is the true "
            "OKS, as a bound.",
            KEYPOINTS,
            commas=True,
        ),
    ] = ("raw", "ccnet")
    ccnet: Annotated[Path | None, Option("A calibration head other than the built-in one.", KEYPOINTS)] = None
    init: Annotated[str, Option("Where fits start: none, lifter, spin, cliff (cliff-res50, cliff-hr48).", FITTING)] = (
        "lifter"
    )
    checkpoint: Annotated[Path | None, Option("Weights of the network that --init names.", FITTING)] = None
    weighting: Annotated[
        tuple[str, ...],
        Option(
            "From confidence to weight, with commas: confidence, squared, precision, likelihood, gate, ones. Precision "
            "is for calibrated confidence only.",
            FITTING,
            commas=True,
        ),
    ] = ("confidence", "likelihood")
    single_frames: Annotated[bool, Option("Fit every frame for itself, as SMPLify does.", FITTING)] = False
    protocol: Annotated[str, Option("spin, vibe, wham or challenge; see docs/eval-3dpw.md.", SCORING)] = "spin"
    predictions: Annotated[Path | None, Option("Score the bodies in this .npz and do nothing else.", SCORING)] = None


@dataclass(frozen=True)
class Eval3dpwCommand(Eval3dpwOptions):
    """With what the command alone is told."""

    out: Annotated[Path, Option("Folder for results and for what is kept between runs.", OUTPUT)] = Path("eval-3dpw")
    device: Annotated[
        str | None, Option("Where the networks run: cpu, cuda, cuda:1, ..", OUTPUT, "cuda if present, else cpu")
    ] = None
    threads: Annotated[int | None, Option("Processor cores to use.", OUTPUT, "all"), ranges.THREADS] = None
    quiet: Annotated[bool, Option("Show the table only.", OUTPUT)] = False
