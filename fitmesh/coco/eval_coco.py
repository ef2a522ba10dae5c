"""`fitmesh eval-coco`: images and boxes -> keypoints -> one table of all confidence sources."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ccnet
import pose2d
from ccnet.coco_ap.average_precision import PARTS, evaluate_wholebody, evaluator
from ccnet.coco_ap.matching import detections
from ccnet.comparison import Evaluation, check_plots, compare_sources, draw_plots, rich_table
from ccnet.confidence import about_of, check_heatmap_score, confidence_function, default_source
from ccnet.data.datasets import (
    Split,
    by_image,
    evenly,
    load_image,
    read_split,
    split_names,
    usual_split,
)
from ccnet.heads.head import CalibrationHead
from ccnet.occlusion import OCCLUDED_KEYPOINT, SIZES, occlude_wrists, people_to_occlude
from ccnet.predicted_people import SOURCES, USUAL_SOURCES, FindBoxes, fit_areas, predict_split
from fitmesh.options.measure import EvalCocoOptions
from fitmesh.ui.events import Reporter, on_stderr, print_tables, to_log
from fitmesh.ui.trouble import count
from fitmesh.version import __version__
from pose2d.base.caching import weights_digest
from pose2d.base.distributed import process_group
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file, check_writable
from pose2d.base.folder_lock import folder_lock
from pose2d.base.json_files import plain_value
from pose2d.base.threads import use_threads
from pose2d.crops import estimate_people
from pose2d.detect.boxes import read_detections
from pose2d.detect.detector import DETECTORS, detector_class, load_detector
from pose2d.hands import SEEN, arms_of, hands_in_image
from pose2d.models.base import PoseModel
from pose2d.models.registry import use_plugin
from pose2d.skeletons import COCO17, WHOLEBODY133
from pose2d.types import Detections

METRICS_FILE = "metrics.json"


def describe(
    name: str, checkpoint: Path | None, model: PoseModel, head: CalibrationHead | None
) -> dict[str, Any]:
    """What a figure rests on. Digests are of the weights as loaded, whatever file they came from."""
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
    """The evaluation with the occlusion test, which runs the network for every patch size again."""
    chosen = people_to_occlude(model, split.people)
    if not chosen:
        return evaluation
    with reporter.stage("occlusion test", len(chosen) * len(SIZES), "crops") as step:
        curves = occlude_wrists(model, head, chosen, step)
    check_plots().occlusion_curve_plot(folder / "occlusion.png", curves, OCCLUDED_KEYPOINT)
    hidden = {
        "keypoint": OCCLUDED_KEYPOINT,
        "people": curves.people,
        "patch_side_per_person_size": curves.size.tolist(),
        "oks": curves.oks.tolist(),
        "confidence": {name: of.tolist() for name, of in curves.confidence.items()},
    }
    return replace(evaluation, occlusion=hidden)


def write_metrics(folder: Path, content: Mapping[str, Any]) -> None:
    with atomic_file(folder / METRICS_FILE) as path:
        path.write_text(json.dumps(plain_value(content), indent=1) + "\n")


BUSY_PATIENCE_S = (
    600.0  # another evaluation that writes its images into the same folder is done by then
)
PREDICTED = "closed-form-predicted"
AREA_PEOPLE = 1500  # training people, spread evenly, of whom it learns areas
HANDS = ("lefthand", "righthand")  # parts of COCO-WholeBody
LEAST_BOX_SCORE = (
    0.05  # AP asks for every box that might be somebody; a video has its tracker to choose
)


def run(request: EvalCocoOptions) -> Evaluation:
    """Evaluate; leave metrics.json and images if asked for. Under torchrun every process returns
    the same figures.
    """
    wanted = request.confidence or USUAL_SOURCES
    evaluate = evaluator(request.evaluator)
    if unknown := sorted(set(request.confidence) - set(SOURCES)):
        raise UserError(f"unknown confidence {unknown[0]!r}: choose among {', '.join(SOURCES)}.")
    if "closed-form-annotated" in request.confidence and request.boxes != "gt":
        raise UserError(
            "closed-form-annotated needs to know whose a box is: use it with --boxes gt."
        )
    if request.area_split is not None and PREDICTED not in request.confidence:
        raise UserError(
            f"--area-split has no effect without --confidence {PREDICTED}: leave it out, or ask for both."
        )
    use_plugin(request.plugin)
    if request.out is not None:
        check_plots()
    use_threads(request.threads)
    with process_group(request.device) as group:
        reporter = Reporter(on_stderr() if group.is_main else to_log)
        model = pose2d.load(request.model, request.checkpoint)
        head = _head(request, model)
        if head is None and "ccnet" in request.confidence:
            how = "train one with `fitmesh train-ccnet`, pass --head"
            raise UserError(f"no calibration head for {request.model}: {how}.")
        if "raw-heatmap" in request.confidence:
            check_heatmap_score(request.model, model)
        split = read_split(
            request.data, request.split or usual_split("test", model.skeleton), model.skeleton
        )
        boxes = _boxes(request.boxes, split)
        taught = split.people[
            :0
        ]  # training people on whom the areas of `closed-form-predicted` are fitted
        if PREDICTED in request.confidence:
            usual = usual_split("train", model.skeleton)
            if request.area_split is None and usual not in split_names(
                request.data, model.skeleton
            ):
                raise UserError(
                    f"{PREDICTED} needs training people, and {request.data} has no {usual}: pass --area-split."
                )
            everyone = read_split(request.data, request.area_split or usual, model.skeleton).people
            taught = tuple(evenly(everyone, AREA_PEOPLE))
        if request.out is not None and group.is_main:
            check_writable(request.out)
        model.to(group.device)
        head = head and head.to(group.device)
        areas = None
        if taught:
            with reporter.stage("areas", len(taught), "people") as step:
                areas = fit_areas(model, taught, step)
        with reporter.stage(split.name, len(group.share(split.people)), "people") as step:
            predictions = predict_split(
                model, head, split, boxes, request.flip_test, step, group, areas
            ).only(wanted)
        about = describe(request.model, request.checkpoint, model, head)
        about |= {
            "boxes": request.boxes,
            "flip_test": request.flip_test,
            "evaluator": request.evaluator,
        }
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


def show(request: EvalCocoOptions, evaluation: Evaluation) -> None:
    details = f"{count(evaluation.people, 'people')}, boxes: {request.boxes}" + (
        ", flip test" if request.flip_test else ""
    )
    print_tables(evaluation.as_rich(f"{request.model} on {evaluation.split} ({details})"))


def run_hands(request: EvalCocoOptions) -> dict[str, dict[str, float | None]]:
    """The embedded hand network in annotated boxes of COCO-WholeBody, at the arms that the model
    finds; prints a table, and writes it if asked to."""
    if request.boxes != "gt":
        raise UserError("--hands are measured in annotated boxes: leave --boxes out.")
    use_plugin(request.plugin)
    model = pose2d.load(request.model, request.checkpoint)
    if model.skeleton.keypoints[: COCO17.size] != COCO17.keypoints:
        raise UserError(
            f"{request.model} has {model.skeleton.name}: --hands need a model with COCO's arms."
        )
    split = read_split(
        request.data, request.split or usual_split("test", WHOLEBODY133), WHOLEBODY133
    )
    source = default_source(request.model, request.checkpoint, None)
    confidence = confidence_function(source, request.model, model, None)
    looked: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
    with Reporter(on_stderr()).stage(split.name, len(split.people), "people") as step:
        for people in by_image(split.people):
            rgb = load_image(people[0])
            boxes = np.array([person.box_px for person in people], np.float64)
            with torch.inference_mode():
                boxes, seen = estimate_people(model, [rgb] * len(boxes), boxes)
                rows = Detections.in_frame(0, 0.0, boxes, np.ones(len(boxes)))
                rows = replace(rows, keypoints=confidence(seen))
            arms = arms_of(rows)
            there = np.flatnonzero(arms.seen & arms.large)
            found = hands_in_image(rgb, arms.rows(there), np.full((len(there), 21, 2), np.nan))
            sure = found.presence >= SEEN
            # Who has no hand is thought to have it at the wrist, and last of all.
            xy = np.repeat(arms.wrist_px[:, None], 21, 1)
            std = np.full((len(arms), 21), np.nan)
            probable = np.zeros(len(arms))
            xy[there[sure]] = found.xy_px[sure]
            std[there[sure]] = found.std_px[sure]
            probable[there] = found.presence
            body = rows.xy_px[:, : COCO17.size]
            looked.append(
                (xy.reshape(-1, 2, 21, 2), std.reshape(-1, 2, 21), probable.reshape(-1, 2), body)
            )
            step(len(people))
    labelled = np.stack([person.keypoints for person in split.people])
    xy, std, probable, body = (np.concatenate(part) for part in zip(*looked, strict=True))
    everything = np.zeros((len(body), WHOLEBODY133.size, 2))
    everything[:, : COCO17.size] = body
    for side, name in enumerate(HANDS):
        everything[:, PARTS[name]] = xy[:, side]
    image_id = np.array([person.image_id for person in split.people])
    precision = evaluate_wholebody(
        split.truth,
        detections(image_id, everything, probable.mean(1)),
        {name: probable[:, side] for side, name in enumerate(HANDS)},
        evaluator(request.evaluator),
    )
    measured: dict[str, dict[str, float | None]] = {}
    for side, name in enumerate(HANDS):
        part = PARTS[name]
        ap = precision[name]
        known = (labelled[:, part, 2] > 0) & np.isfinite(std[:, side])
        off = (xy[:, side] - labelled[:, part, :2])[known] / std[:, side][known][:, None]
        within = [float((np.abs(off) < stds).mean()) if off.size else None for stds in (1, 1.96)]
        hands = (labelled[:, part, 2] > 0).any(1)
        measured[name] = {
            "hands": int(hands.sum()),
            "found": int(np.isfinite(std[hands, side, 0]).sum()),
            "ap": ap.ap,
            "ar": ap.ar,
            "within_1_std": within[0],
            "within_2_std": within[1],
        }
    lines = [
        [
            name,
            *(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()),
        ]
        for name, row in measured.items()
    ]
    title = f"hands of {split.name}, arms of {request.model}"
    print_tables([rich_table(title, ["", *measured["lefthand"]], lines)])
    if request.out is not None:
        check_writable(request.out)
        write_metrics(request.out, {"split": split.name, "model": request.model, "hands": measured})
    return measured


def _head(request: EvalCocoOptions, model: PoseModel) -> CalibrationHead | None:
    """The head asked for, or the embedded one if it was made for these very weights."""
    if request.head is None and request.model not in ccnet.embedded():
        return None
    head = ccnet.load(request.head or request.model)
    if request.head is not None or request.checkpoint is not None:
        ccnet.check_fits(head, model, request.model)
    return head


def _boxes(source: str, split: Split) -> FindBoxes | None:
    """Of a detector or a COCO detection result file; None: the annotated ones."""
    if source == "gt":
        return None
    if source.endswith(".json"):
        by_image = read_detections(source)
        images = {person.image_id for person in split.people}
        if not images & by_image.keys():
            raise UserError(
                f"{source} has no box in any of the {len(images)} images: it belongs to another split."
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
