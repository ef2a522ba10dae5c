"""`fitmesh eval-coco`: compare all confidence sources on the keypoints of a data set."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ccnet
import pose2d
from ccnet.areas import fit_areas
from ccnet.coco_ap.average_precision import evaluator, to_coco_results
from ccnet.coco_ap.matching import detections
from ccnet.comparison import Evaluation, check_plots, compare_sources, draw_plots
from ccnet.confidence import check_heatmap_score
from ccnet.data.datasets import (
    AnnotatedPerson,
    Split,
    evenly,
    read_split,
    split_names,
    usual_split,
)
from ccnet.heads.files import about_of
from ccnet.heads.head import CalibrationHead
from ccnet.occlusion import OCCLUDED_KEYPOINT, SIZES, occlude_wrists, people_to_occlude
from ccnet.predicted_people import SOURCES, USUAL_SOURCES, FindBoxes, Predictions, predict_split
from fitmesh.options.measure import EvalCocoOptions
from fitmesh.ui.events import Reporter, on_stderr, print_tables, to_log
from fitmesh.ui.trouble import count
from fitmesh.version import __version__
from pose2d.base.caching import weights_digest
from pose2d.base.distributed import process_group
from pose2d.base.errors import OptionError, UserError
from pose2d.base.files import atomic_file, check_writable
from pose2d.base.folder_lock import folder_lock
from pose2d.base.json_files import plain_value
from pose2d.base.threads import use_threads
from pose2d.detect.boxes import read_detections
from pose2d.detect.detector import DETECTORS, detector_class, load_detector
from pose2d.models.base import PoseModel
from pose2d.models.registry import use_plugin

METRICS_FILE = "metrics.json"


def describe(
    name: str, checkpoint: Path | None, model: PoseModel, head: CalibrationHead | None
) -> dict[str, Any]:
    """Return what a figure depends on. Digests are of the weights as loaded."""
    about = about_of(head) if head is not None else None
    training = about.training if about else {}
    return {
        "model": name,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "checkpoint_digest": weights_digest(model.state_dict()),
        "head": about and about.kind,
        "head_digest": head and weights_digest(head.state_dict()),
        "loss": training.get("loss"),
        "seed": training.get("seed"),
        "target": training.get("target", "oks") if about else None,
        "versions": {"fitmesh": __version__, "torch": torch.__version__, "numpy": np.__version__},
    }


def with_occlusion_test(
    evaluation: Evaluation,
    split: Split,
    model: PoseModel,
    head: CalibrationHead | None,
    folder: Path,  # for the plot
    reporter: Reporter,
) -> Evaluation:
    """Return the evaluation with the occlusion test, which runs the network for every patch."""
    chosen = people_to_occlude(model, split.people)
    if not chosen:
        return evaluation
    with reporter.stage("occlusion test", len(chosen) * len(SIZES), "crops") as step:
        curves = occlude_wrists(model, head, chosen, step)
    check_plots().occlusion_curve_plot(folder / "occlusion.png", curves, OCCLUDED_KEYPOINT)
    occlusion = {
        "keypoint": OCCLUDED_KEYPOINT,
        "people": curves.people,
        "patch_side_per_person_size": curves.size.tolist(),
        "oks": curves.oks.tolist(),
        "confidence": {name: curve.tolist() for name, curve in curves.confidence.items()},
    }
    return replace(evaluation, occlusion=occlusion)


def write_metrics(folder: Path, content: Mapping[str, Any]) -> None:
    """Write metrics.json into the folder."""
    with atomic_file(folder / METRICS_FILE) as path:
        path.write_text(json.dumps(plain_value(content), indent=1) + "\n")


BUSY_PATIENCE_S = 600.0  # how long to wait for another evaluation that writes into the folder
PREDICTED = "closed-form-predicted"
AREA_PEOPLE = 1500  # training people, spread evenly, that its areas are fitted to
LEAST_BOX_SCORE = 0.05  # low, since AP counts every box; in a video the tracker chooses


def run(request: EvalCocoOptions) -> Evaluation:
    """Evaluate, and write metrics.json and images if `out` is set. Under torchrun every process
    returns the same figures.
    """
    evaluate = evaluator(request.evaluator)
    _check_request(request)
    use_plugin(request.plugin)
    if request.out is not None:
        check_plots()
    use_threads(request.threads)
    with process_group(request.device) as group:
        reporter = Reporter(on_stderr() if group.is_main else to_log)
        model = pose2d.load(request.model, request.checkpoint)
        head = _load_head(request, model)
        if head is None and "ccnet" in request.confidence:
            raise UserError(
                f"no calibration head for {request.model}: train one with `fitmesh train-ccnet`, "
                "then pass --head."
            )
        if "raw-heatmap" in request.confidence:
            check_heatmap_score(request.model, model)
        split_name = request.split or usual_split("test", model.skeleton)
        split = read_split(request.data, split_name, model.skeleton, request.plain_boxes)
        find_boxes = _box_finder(request.boxes, split)
        area_people = _read_area_people(request, model)
        if request.out is not None and group.is_main:
            check_writable(request.out)
        model.to(group.device)
        head = head and head.to(group.device)
        areas = None
        if area_people:
            with reporter.stage("areas", len(area_people), "people") as step:
                areas = fit_areas(model, area_people, step)
        with reporter.stage(split.name, len(group.share(split.people)), "people") as step:
            predictions = predict_split(
                model,
                head,
                split,
                find_boxes,
                request.flip_test,
                step,
                group,
                areas,
                request.raw_threshold,
            )
        predictions = predictions.only(request.confidence or USUAL_SOURCES)
        about = {
            **describe(request.model, request.checkpoint, model, head),
            "boxes": request.boxes,
            "flip_test": request.flip_test,
            "evaluator": request.evaluator,
            "raw_threshold": request.raw_threshold,
            "plain_boxes": request.plain_boxes,
        }
        if request.results is not None and group.is_main:
            write_results(request.results, predictions, request.confidence)
        evaluation = replace(compare_sources(split, predictions, evaluate=evaluate), about=about)
        if request.out is not None and group.is_main:
            with folder_lock(request.out, BUSY_PATIENCE_S):
                draw_plots(request.out, predictions, evaluation)
                write_metrics(request.out, evaluation.as_dict())
                if request.occlusion_test:
                    evaluation = with_occlusion_test(
                        evaluation, split, model, head, request.out, reporter
                    )
                    write_metrics(request.out, evaluation.as_dict())
        group.barrier()
        return evaluation


def write_results(path: Path, predictions: Predictions, confidence: Sequence[str]) -> None:
    """Write the predicted people in COCO's result format, keypoint confidence as the third number.

    The score is that of CCNet (raw without a head), or of the one source in `confidence`.
    """
    source = "ccnet" if "ccnet" in predictions.confidence else "raw"
    if len(confidence) == 1:
        source = confidence[0]
    by_source = {str(name): value for name, value in predictions.confidence.items()}
    person = by_source[source].person(predictions.box_score)
    if source == "oracle":
        person = predictions.oks
    people = to_coco_results(detections(predictions.image, predictions.xy_px, person))
    for result, keypoint in zip(people, by_source[source].keypoint, strict=True):
        result["keypoints"][2::3] = keypoint.tolist()
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(people) + "\n")


def _check_request(request: EvalCocoOptions) -> None:
    """Raise UserError for options that do not fit each other, before any work is done."""
    if unknown := sorted(set(request.confidence) - set(SOURCES)):
        raise UserError(f"unknown confidence {unknown[0]!r}: choose among {', '.join(SOURCES)}.")
    if "closed-form-annotated" in request.confidence and request.boxes != "gt":
        raise UserError(
            "closed-form-annotated needs the person that a box belongs to: use it with --boxes gt."
        )
    if request.area_split is not None and PREDICTED not in request.confidence:
        raise OptionError(
            f"--area-split has no effect without --confidence {PREDICTED}: leave it out, or pass "
            "both."
        )


def _read_area_people(request: EvalCocoOptions, model: PoseModel) -> tuple[AnnotatedPerson, ...]:
    """Return the training people that the areas of `closed-form-predicted` are fitted to; empty if
    these are not needed.
    """
    if PREDICTED not in request.confidence:
        return ()
    train_split = usual_split("train", model.skeleton)
    if request.area_split is None and train_split not in split_names(request.data, model.skeleton):
        raise UserError(
            f"{PREDICTED} needs training people, and {request.data} has no {train_split}: pass "
            "--area-split."
        )
    split = read_split(request.data, request.area_split or train_split, model.skeleton)
    return tuple(evenly(split.people, AREA_PEOPLE))


def show(request: EvalCocoOptions, evaluation: Evaluation) -> None:
    """Print the table of all sources."""
    details = f"{count(evaluation.people, 'people')}, boxes: {request.boxes}"
    if request.flip_test:
        details += ", flip test"
    print_tables(evaluation.as_rich(f"{request.model} on {evaluation.split} ({details})"))


def _load_head(request: EvalCocoOptions, model: PoseModel) -> CalibrationHead | None:
    """Return the head in the request, or the embedded one if it fits the weights; None without."""
    if request.head is None and request.model not in ccnet.embedded():
        return None
    head = ccnet.load(request.head or request.model)
    if request.head is not None or request.checkpoint is not None:
        ccnet.check_fits(head, model, request.model)
    return head


def _box_finder(source: str, split: Split) -> FindBoxes | None:
    """Return a function that gives the boxes of an image, by a detector or from a COCO detection
    file; None for annotated boxes.
    """
    if source == "gt":
        return None
    if source.endswith(".json"):
        by_image = read_detections(source)
        images = {person.image_id for person in split.people}
        if not images & by_image.keys():
            raise UserError(
                f"{source} has no box in any of the {len(images)} images: it belongs to another "
                "split."
            )
        return lambda image_id, image: by_image.get(image_id)
    if source == "detector":
        source = next(iter(DETECTORS))
    if source in DETECTORS:
        options = replace(detector_class(source).defaults, score_threshold=LEAST_BOX_SCORE)
        detector = load_detector(source, options)
        return lambda image_id, image: detector.detect(image)
    names = " or ".join(DETECTORS)
    raise UserError(
        f"unknown boxes {source!r}: gt, detector, {names}, or a COCO detection file (.json)."
    )
