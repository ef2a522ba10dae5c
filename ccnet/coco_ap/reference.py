"""The same numbers by pycocotools, the reference: for `eval-coco --evaluator`, and what ours is tested against."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from ccnet.coco_ap.average_precision import TEN_NUMBERS, KeypointAP
from ccnet.coco_ap.evaluated_people import Detections, GroundTruth
from pose2d.skeletons import COCO17


def evaluate_by_pycocotools(
    truth: GroundTruth, detections: Detections, sigmas: Sequence[float] | np.ndarray = COCO17.oks_sigma
) -> KeypointAP:
    """`average_precision.evaluate` by COCOeval(iouType="keypoints"); `exact_ap`, which it does not know, is NaN."""
    dataset = to_coco(truth)
    found = [
        {**result, "id": number, "area": area}
        for number, (result, area) in enumerate(
            zip(to_coco_results(detections), detections.area_px2.tolist(), strict=True), start=1
        )
    ]
    return run_pycocotools(lambda: (coco_index(dataset), coco_index({**dataset, "annotations": found})), sigmas)


def run_pycocotools(index: Any, sigmas: Sequence[float] | np.ndarray) -> KeypointAP:
    """Of the COCO objects of truth and results that `index()` makes. Quiet: pycocotools prints as it goes."""
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = COCOeval(*index(), iouType="keypoints")
        evaluation.params.kpt_oks_sigmas = np.asarray(sigmas, float)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    numbers = dict(zip(TEN_NUMBERS, evaluation.stats.tolist(), strict=True))
    precision, recall = evaluation.eval["precision"][:, :, 0, :, 0], evaluation.eval["recall"][:, 0, :, 0]
    return KeypointAP(**numbers, exact_ap=float("nan"), precision=precision, recall=recall)


def coco_index(dataset: Mapping[str, Any]) -> COCO:
    """The COCO object of a data set (parsed JSON)."""
    index = COCO()
    index.dataset = dict(dataset)
    index.createIndex()
    return index


def to_coco(truth: GroundTruth) -> dict[str, Any]:
    """The people as a COCO data set (parsed JSON)."""
    points = np.concatenate([truth.xy_px, truth.visibility[..., None]], -1)
    annotations = [
        {
            "id": int(truth.id[i]),
            "image_id": truth.image[i].item(),
            "category_id": 1,
            "keypoints": points[i].ravel().tolist(),
            # pycocotools ignores a person by this count
            "num_keypoints": 0 if truth.ignore[i] else max(1, int(np.count_nonzero(truth.visibility[i] > 0))),
            "area": float(truth.area_px2[i]),
            "bbox": truth.box_px[i].tolist(),
            "iscrowd": int(truth.crowd[i]),
        }
        for i in range(len(truth.image))
    ]
    categories = [{"id": 1, "name": "person", "supercategory": "person"}]
    images = [{"id": image} for image in truth.images.tolist()]
    return {"images": images, "annotations": annotations, "categories": categories}


def to_coco_results(detections: Detections, keypoint_score: np.ndarray | None = None) -> list[dict[str, Any]]:
    """Found people as a list of COCO results; `keypoint_score` [D, K] goes where annotations have visibility."""
    third = np.ones(detections.xy_px.shape[:2]) if keypoint_score is None else keypoint_score
    points = np.concatenate([detections.xy_px, third[..., None]], -1)
    return [
        {"image_id": image, "category_id": 1, "keypoints": keypoints.ravel().tolist(), "score": score}
        for image, keypoints, score in zip(detections.image.tolist(), points, detections.score.tolist(), strict=True)
    ]
