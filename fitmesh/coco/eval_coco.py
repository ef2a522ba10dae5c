"""`fitmesh eval-coco`: images and boxes -> keypoints -> one table of all confidence sources."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

import ccnet
import pose2d
from ccnet.comparison import compare_sources, draw_occlusion, draw_plots
from ccnet.data.datasets import read_split
from ccnet.heads.head import CalibrationHead
from ccnet.predictions import SOURCES, Boxes, annotated_boxes, boxes_from_json, detected_boxes, predict_split
from fitmesh.progress_bar import bar
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.folder_lock import folder_lock
from pose2d.base.threads import use_threads
from pose2d.detect.detector import DETECTORS, detector_class, load_detector
from pose2d.models.base import PoseModel

BUSY_PATIENCE_S = 600.0  # another evaluation that writes its images into the same folder is done by then
LEAST_BOX_SCORE = 0.05  # AP asks for every box that might be somebody; a video has its tracker to choose


@dataclass(frozen=True)
class EvalCocoRequest:
    """What to evaluate, and how."""

    data: Path
    model: str
    checkpoint: Path | None = None
    split: str | None = None
    head: str | None = None
    boxes: str = "gt"
    confidence: tuple[str, ...] = ()
    flip_test: bool = False
    out: Path | None = None
    threads: int | None = None


def run(request: EvalCocoRequest) -> None:
    """Print the table; leave metrics.json and images if asked for."""
    wanted = request.confidence or SOURCES
    unknown = sorted(set(wanted) - set(SOURCES))
    if unknown:
        raise UserError(f"unknown confidence {unknown[0]!r}: choose among {', '.join(SOURCES)}.")
    use_threads(request.threads)
    model = pose2d.load(request.model, request.checkpoint)
    head = _head(request, model)
    if head is None and "ccnet" in request.confidence:
        raise UserError(f"no calibration head for {request.model}: train one with `fitmesh train-ccnet`, pass --head.")
    usual = "valid" if model.skeleton == pose2d.MPII16 else "val2017"
    split = read_split(request.data, request.split or usual, model.skeleton)
    console = Console(stderr=True)
    with bar(console, split.name, len(split.people)) as step:
        predictions = predict_split(model, head, split, _boxes(request.boxes), request.flip_test, step)
    kept = {name: value for name, value in predictions.confidence.items() if name in (*wanted, "raw", "oracle")}
    table = compare_sources(split, replace(predictions, confidence=kept))
    details = f"{len(split.people)} people, boxes: {request.boxes}" + (", flip test" if request.flip_test else "")
    Console().print(table.as_rich(f"{request.model} on {split.name} ({details})"))
    if request.out is not None:
        with folder_lock(request.out, BUSY_PATIENCE_S):
            draw_plots(request.out, split, predictions)
            record = {
                "model": request.model, "split": split.name, "boxes": request.boxes, "flip_test": request.flip_test,
                "occlusion": draw_occlusion(request.out, split, model, head),
            }  # fmt: skip
            with atomic_file(request.out / "metrics.json") as path:
                path.write_text(json.dumps({**record, **table.as_dict()}, indent=1) + "\n")


def _head(request: EvalCocoRequest, model: PoseModel) -> CalibrationHead | None:
    """The head asked for, or the embedded one if it was made for these very weights."""
    if request.head is not None:
        head = ccnet.load(request.head)
        ccnet.check_fits(head, model, request.model)
        return head
    if request.model not in ccnet.embedded():
        return None
    head = ccnet.load(request.model)
    if request.checkpoint is not None:
        ccnet.check_fits(head, model, request.model)
    return head


def _boxes(source: str) -> Boxes:
    if source == "gt":
        return annotated_boxes
    if source.endswith(".json"):
        return boxes_from_json(source)
    if source == "detector":
        source = next(iter(DETECTORS))
    if source in DETECTORS:
        options = replace(detector_class(source).defaults, score_threshold=LEAST_BOX_SCORE)
        return detected_boxes(load_detector(source, options))
    names = " or ".join(DETECTORS)
    raise UserError(f"unknown boxes {source!r}: gt, detector, {names}, or a COCO detection file (.json).")
