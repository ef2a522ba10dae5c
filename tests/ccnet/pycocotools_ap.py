"""The ten keypoint numbers by pycocotools itself: the independent reference of ccnet's evaluator."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from ccnet.coco_ap.people import Detections, GroundTruth
from pose2d.skeletons import COCO17


def pycocotools_ap(
    truth: GroundTruth, detections: Detections, sigmas: Sequence[float] | np.ndarray = COCO17.oks_sigma
) -> np.ndarray:
    """The ten numbers by pycocotools itself, quietly, [10]: what every table quotes."""
    dataset = to_coco(truth)
    areas = detections.area_px2.tolist()
    found = [
        {**result, "id": number, "area": area}
        for number, (result, area) in enumerate(zip(to_coco_results(detections), areas, strict=True), start=1)
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        return _run_pycocotools(_coco(dataset), _coco({**dataset, "annotations": found}), sigmas)


def pycocotools_ap_of_coco(
    dataset: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    sigmas: Sequence[float] | np.ndarray = COCO17.oks_sigma,
) -> np.ndarray:
    """The same from parsed JSON, which is copied first, since pycocotools writes into what it is given."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth = _coco({**dataset, "annotations": [dict(a) for a in dataset["annotations"]]})
        # loadRes looks at the first result, so it cannot load none
        found = truth.loadRes([dict(r) for r in results]) if results else _coco({**dataset, "annotations": []})
        return _run_pycocotools(truth, found, sigmas)


def _coco(dataset: Mapping[str, Any]) -> Any:
    index = COCO()
    index.dataset = dict(dataset)
    index.createIndex()
    return index


def _run_pycocotools(truth: Any, found: Any, sigmas: Sequence[float] | np.ndarray) -> np.ndarray:
    evaluation = COCOeval(truth, found, iouType="keypoints")
    evaluation.params.kpt_oks_sigmas = np.asarray(sigmas, float)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return np.asarray(evaluation.stats)


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
