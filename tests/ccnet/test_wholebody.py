"""Each part must score as pycocotools scores a data set that holds this part alone."""

import json
from typing import Any

import numpy as np
import pytest

from ccnet.coco_ap.average_precision import PARTS, KeypointAP, evaluate_wholebody
from ccnet.coco_ap.matching import (
    Detections,
    GroundTruth,
    detections_from_coco,
    ground_truth_from_coco,
)
from ccnet.data.coco_files import WHOLEBODY_FIELDS
from pose2d.skeletons import WHOLEBODY133
from tests.ccnet.pycocotools_ap import pycocotools_ap_of_coco

# A part's score in a result; a result without it is ranked by `score`.
SCORE_FIELDS = {name: "score" if name == "body" else f"{name}_score" for name in PARTS}
FIELD_OF_PART = dict(
    zip(("body", "foot", "face", "lefthand", "righthand"), WHOLEBODY_FIELDS, strict=True)
)


def _split(points: np.ndarray) -> dict[str, list[float]]:
    """[133, 3] -> the five lists of COCO-WholeBody."""
    return {field: points[PARTS[part]].ravel().tolist() for part, field in FIELD_OF_PART.items()}


def _case(seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    rng = np.random.default_rng(seed)
    people = []
    results = []
    for image in range(10):
        for _ in range(rng.integers(0, 4)):
            size = rng.choice([40.0, 90.0, 250.0])
            xy = rng.uniform(0, 1, (133, 2)) * size + rng.uniform(0, 300, 2)
            visibility = rng.choice([0, 1, 2], 133)
            for part in PARTS.values():
                if rng.random() < 0.25:
                    visibility[part] = 0
            people.append(
                {
                    "id": len(people) + 1,
                    "image_id": image,
                    "category_id": 1,
                    "iscrowd": int(rng.random() < 0.1),
                    "area": 0.6 * size**2,
                    "bbox": [*xy.min(0), *np.ptp(xy, axis=0)],
                    "num_keypoints": int((visibility[:17] > 0).sum()),
                    **_split(np.column_stack([xy * (visibility > 0)[:, None], visibility])),
                }
            )
            for _ in range(rng.integers(0, 4)):
                spread = rng.choice([0.003, 0.01, 0.05]) * size
                points = np.column_stack([xy + rng.normal(0, spread, xy.shape), np.ones(133)])
                result = {
                    "image_id": image,
                    "category_id": 1,
                    "score": float(rng.random()),
                    **_split(points),
                }
                for field in SCORE_FIELDS.values():
                    if rng.random() < 0.8:
                        result[field] = round(rng.random(), 1)
                results.append(result)
    return {
        "images": [{"id": i} for i in range(10)],
        "annotations": people,
        "categories": [{"id": 1}],
    }, results


def _part_alone(dataset: dict[str, Any], results: list[dict[str, Any]], part: str) -> np.ndarray:
    """pycocotools on a data set in which only this part exists."""

    def points(row: dict[str, Any]) -> list[float]:
        return (
            [v for field in WHOLEBODY_FIELDS for v in row[field]]
            if part == "wholebody"
            else row[FIELD_OF_PART[part]]
        )

    people = [
        {**a, "keypoints": points(a), "num_keypoints": sum(v > 0 for v in points(a)[2::3])}
        for a in dataset["annotations"]
    ]
    found = []
    for result in results:
        body = np.asarray(result["keypoints"]).reshape(-1, 3)[:, :2]
        box = [*body.min(0), *np.ptp(body, axis=0)]
        score = result.get(SCORE_FIELDS[part], result["score"])
        found.append(
            {
                "image_id": result["image_id"],
                "category_id": 1,
                "keypoints": points(result),
                "score": score,
                "bbox": box,
            }
        )
    return pycocotools_ap_of_coco(
        {**dataset, "annotations": people}, found, np.asarray(WHOLEBODY133.oks_sigma)[PARTS[part]]
    )


def _joined(
    dataset: dict[str, Any], results: list[dict[str, Any]]
) -> tuple[GroundTruth, Detections]:
    """The five keypoint lists of every row as one of 133."""
    people, found = (
        [{**row, "keypoints": [v for f in WHOLEBODY_FIELDS for v in row[f]]} for row in rows]
        for rows in (dataset["annotations"], results)
    )
    truth = ground_truth_from_coco({**dataset, "annotations": people}, 133)
    return truth, detections_from_coco(found, truth)


def _evaluate(dataset: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, KeypointAP]:
    scores = {
        part: np.array([r.get(field, r["score"]) for r in results])
        for part, field in SCORE_FIELDS.items()
    }
    return evaluate_wholebody(*_joined(dataset, results), scores)


@pytest.mark.parametrize("seed", range(6))
def test_every_part_scores_as_if_it_were_alone(seed: int) -> None:
    dataset, results = _case(seed)
    before = json.dumps([dataset, results], default=float)
    ours = _evaluate(dataset, results)
    for part in PARTS:
        np.testing.assert_allclose(
            ours[part].stats, _part_alone(dataset, results, part), rtol=0, atol=1e-12, err_msg=part
        )
    assert json.dumps([dataset, results], default=float) == before


def test_a_part_has_its_own_order_of_confidence() -> None:
    dataset, results = _case(1)
    truth, found = _joined(dataset, results)
    plain = evaluate_wholebody(truth, found)
    ranked = evaluate_wholebody(truth, found, {"face": -found.score})
    assert ranked["face"].ap != plain["face"].ap
    assert ranked["foot"].ap == plain["foot"].ap


def test_parts_cover_every_keypoint_once() -> None:
    covered = np.concatenate(
        [np.arange(133)[part] for name, part in PARTS.items() if name != "wholebody"]
    )
    np.testing.assert_array_equal(covered, np.arange(133))
