"""COCO-WholeBody: body, feet, face and hands, each scored by itself with its own confidence, and all 133 together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ccnet.coco_ap.evaluator import KeypointAP, evaluate
from ccnet.data.people import Detections, GroundTruth, detections_from_coco, extent_area, ground_truth_from_coco
from pose2d.base.errors import UserError
from pose2d.skeletons import WHOLEBODY133

WHOLE = "wholebody"
PARTS = {name: slice(first, end) for name, first, end in WHOLEBODY133.parts} | {WHOLE: slice(0, WHOLEBODY133.size)}
KEYPOINT_FIELDS = ("keypoints", "foot_kpts", "face_kpts", "lefthand_kpts", "righthand_kpts")
# A part's score in a result; a result without it is ranked by `score`.
SCORE_FIELDS = {name: "score" if name == "body" else f"{name}_score" for name in PARTS}


@dataclass(frozen=True)
class WholeBodyAP:
    """Every part's numbers."""

    body: KeypointAP
    foot: KeypointAP
    face: KeypointAP
    lefthand: KeypointAP
    righthand: KeypointAP
    wholebody: KeypointAP

    @property
    def hand_ap(self) -> float:
        """Mean of left and right, as published tables have it."""
        return (self.lefthand.ap + self.righthand.ap) / 2

    @property
    def hand_ar(self) -> float:
        return (self.lefthand.ar + self.righthand.ar) / 2


def evaluate_wholebody(
    truth: GroundTruth,
    detections: Detections,
    part_score: Mapping[str, np.ndarray] | None = None,  # {part: [D]}; parts left out are ranked by detections.score
    shown: np.ndarray | None = None,  # [D, 133] bool: keypoints the system claims; without any of a part it has none
) -> WholeBodyAP:
    """All parts of 133 keypoints.

    OKS uses the whole person's area in every part, and the size of a detection is that of its body keypoints.
    """
    scores = part_score or {}
    unknown = set(scores) - set(PARTS)
    if unknown:
        raise UserError(f"{sorted(unknown)[0]!r} is not a part of the whole body; parts are {', '.join(PARTS)}.")
    sigmas = np.asarray(WHOLEBODY133.oks_sigma)
    results = {}
    for name, part in PARTS.items():
        claimed = np.ones(len(detections.score), bool) if shown is None else shown[:, part].any(1)
        found = Detections(
            image=detections.image[claimed],
            xy_px=detections.xy_px[claimed, part],
            score=np.asarray(scores.get(name, detections.score), float)[claimed],
            area_px2=detections.area_px2[claimed],
        )
        results[name] = evaluate(part_of(truth, name), found, sigmas[part])
    return WholeBodyAP(**results)


def part_of(truth: GroundTruth, name: str) -> GroundTruth:
    """One part of people with 133 keypoints; who has none of it labelled is ignored."""
    part = PARTS[name]
    visibility = truth.visibility[:, part]
    return replace(
        truth,
        xy_px=truth.xy_px[:, part],
        visibility=visibility,
        ignore=truth.crowd | ~(visibility > 0).any(1),
    )


def evaluate_wholebody_coco(dataset: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> WholeBodyAP:
    """The same from COCO-WholeBody's annotations and results (five keypoint lists each), as parsed JSON."""
    people = [{**a, "keypoints": _joined(a), "num_keypoints": 1} for a in dataset["annotations"]]
    truth = ground_truth_from_coco({**dataset, "annotations": people}, WHOLEBODY133.size)
    whole = [{**r, "keypoints": _joined(r)} for r in results]
    found = detections_from_coco(whole, truth)
    if not (results and len(results[0].get("bbox", ())) > 0):
        found = replace(found, area_px2=extent_area(found.xy_px[:, PARTS["body"]]))
    part_score = {
        name: np.array([r.get(field, r["score"]) for r in results], float) for name, field in SCORE_FIELDS.items()
    }
    third = np.array([r["keypoints"][2::3] for r in whole], float).reshape(-1, WHOLEBODY133.size)
    return evaluate_wholebody(truth, found, part_score, third > 0)


def _joined(row: Mapping[str, Any]) -> list[float]:
    """The five keypoint lists as one of 133."""
    return [value for field in KEYPOINT_FIELDS for value in row[field]]
