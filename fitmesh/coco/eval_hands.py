"""`fitmesh eval-coco --hands`: the embedded hand network in annotated boxes of COCO-WholeBody."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

import pose2d
from ccnet.coco_ap.average_precision import PARTS, Evaluate, evaluate_wholebody, evaluator
from ccnet.coco_ap.matching import detections
from ccnet.comparison import rich_table
from ccnet.confidence import ConfidenceFunction, confidence_function, default_source
from ccnet.data.datasets import (
    AnnotatedPerson,
    Split,
    by_image,
    load_image,
    read_split,
    usual_split,
)
from fitmesh.coco.eval_coco import write_metrics
from fitmesh.options.measure import EvalCocoOptions
from fitmesh.ui.events import Reporter, on_stderr, print_tables
from pose2d.base.errors import OptionError, UserError
from pose2d.base.files import check_writable
from pose2d.crops import estimate_people
from pose2d.hands import SEEN, arms_of, hands_in_image
from pose2d.models.base import PoseModel
from pose2d.models.registry import use_plugin
from pose2d.skeletons import COCO17, WHOLEBODY133
from pose2d.types import Detections

HANDS = ("lefthand", "righthand")  # parts of COCO-WholeBody


@dataclass(frozen=True)
class HandEstimates:
    """The hands of N people."""

    xy_px: np.ndarray  # [N, 2, 21, 2] left and right hand; at the wrist where no hand was found
    std_px: np.ndarray  # [N, 2, 21] NaN where no hand was found
    presence: np.ndarray  # [N, 2]
    body_px: np.ndarray  # [N, 17, 2]

    @staticmethod
    def concat(parts: Sequence["HandEstimates"]) -> "HandEstimates":
        """Join the people of several images."""
        names = ("xy_px", "std_px", "presence", "body_px")
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return HandEstimates(**columns)


def run_hands(request: EvalCocoOptions) -> dict[str, dict[str, float | None]]:
    """Measure the embedded hand network at the arms that the model finds; print the table, and
    write it if `out` is set.
    """
    if request.boxes != "gt":
        raise OptionError("--hands are measured in annotated boxes: leave --boxes out.")
    use_plugin(request.plugin)
    model = pose2d.load(request.model, request.checkpoint)
    if model.skeleton.keypoints[: COCO17.size] != COCO17.keypoints:
        raise UserError(
            f"{request.model} has {model.skeleton.name}: --hands need a model with COCO's arms."
        )
    split_name = request.split or usual_split("test", WHOLEBODY133)
    split = read_split(request.data, split_name, WHOLEBODY133)
    source = default_source(request.model, request.checkpoint, None)
    confidence = confidence_function(source, request.model, model, None)
    parts = []
    with Reporter(on_stderr()).stage(split.name, len(split.people), "people") as step:
        for people in by_image(split.people):
            parts.append(_estimate_image(model, confidence, people))
            step(len(people))
    hands = HandEstimates.concat(parts)
    measured = _measure(split, hands, evaluator(request.evaluator))
    lines = [[name, *map(_as_text, row.values())] for name, row in measured.items()]
    title = f"hands of {split.name}, arms of {request.model}"
    print_tables([rich_table(title, ["", *measured["lefthand"]], lines)])
    if request.out is not None:
        check_writable(request.out)
        write_metrics(request.out, {"split": split.name, "model": request.model, "hands": measured})
    return measured


def _as_text(value: float | None) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _estimate_image(
    model: PoseModel, confidence: ConfidenceFunction, people: Sequence[AnnotatedPerson]
) -> HandEstimates:
    """Return the hands of the people in one image, in their annotated boxes."""
    rgb = load_image(people[0])
    boxes = np.array([person.box_px for person in people], np.float64)
    with torch.inference_mode():
        boxes, pose = estimate_people(model, [rgb] * len(boxes), boxes)
        rows = Detections.in_frame(0, 0.0, boxes, np.ones(len(boxes)))
        rows = replace(rows, keypoints=confidence(pose))
    arms = arms_of(rows)
    usable = np.flatnonzero(arms.seen & arms.large)
    no_guess = np.full((len(usable), 21, 2), np.nan)
    hands = hands_in_image(rgb, arms.rows(usable), no_guess)
    certain = hands.presence >= SEEN
    # AP needs a place for every person's hand: a missing hand lies at the wrist, ranked last.
    xy_px = np.repeat(arms.wrist_px[:, None], 21, 1)
    std_px = np.full((len(arms), 21), np.nan)
    presence = np.zeros(len(arms))
    xy_px[usable[certain]] = hands.xy_px[certain]
    std_px[usable[certain]] = hands.std_px[certain]
    presence[usable] = hands.presence
    return HandEstimates(
        xy_px.reshape(-1, 2, 21, 2),
        std_px.reshape(-1, 2, 21),
        presence.reshape(-1, 2),
        rows.xy_px[:, : COCO17.size],
    )


def _measure(
    split: Split, hands: HandEstimates, evaluate: Evaluate
) -> dict[str, dict[str, float | None]]:
    """Return by hand: how many are labelled and found, AP, AR, and coverage of the stated error."""
    keypoints_px = np.zeros((len(hands.body_px), WHOLEBODY133.size, 2))
    keypoints_px[:, : COCO17.size] = hands.body_px
    for side, name in enumerate(HANDS):
        keypoints_px[:, PARTS[name]] = hands.xy_px[:, side]
    image_id = np.array([person.image_id for person in split.people])
    precision = evaluate_wholebody(
        split.truth,
        detections(image_id, keypoints_px, hands.presence.mean(1)),
        {name: hands.presence[:, side] for side, name in enumerate(HANDS)},
        evaluate,
    )
    truth = np.stack([person.keypoints for person in split.people])
    measured: dict[str, dict[str, float | None]] = {}
    for side, name in enumerate(HANDS):
        truth_px = truth[:, PARTS[name], :2]
        labelled = truth[:, PARTS[name], 2] > 0
        std_px = hands.std_px[:, side]
        compared = labelled & np.isfinite(std_px)
        off = (hands.xy_px[:, side] - truth_px)[compared] / std_px[compared][:, None]
        within = [float((np.abs(off) < stds).mean()) if off.size else None for stds in (1, 1.96)]
        has_hand = labelled.any(1)
        measured[name] = {
            "hands": int(has_hand.sum()),
            "found": int(np.isfinite(std_px[has_hand, 0]).sum()),
            "ap": precision[name].ap,
            "ar": precision[name].ar,
            "within_1_std": within[0],
            "within_2_std": within[1],
        }
    return measured
