"""pycocotools is the truth; with true OKS as confidence AP must be AR."""

import json
from pathlib import Path

import numpy as np
import pytest

from ccnet.coco_ap.average_precision import (
    RECALL_POINTS,
    evaluate,
    evaluate_by_pycocotools,
    evaluate_coco,
    summarize,
    to_coco,
    to_coco_results,
)
from ccnet.coco_ap.matching import (
    DETECTIONS_PER_IMAGE,
    detections,
    detections_from_coco,
    ground_truth_from_coco,
    match,
    matched_oks,
)
from pose2d.base.errors import UserError
from pose2d.skeletons import COCO17, MPII16, WHOLEBODY133
from tests.ccnet.coco_cases import ground_truth, random_case
from tests.ccnet.pycocotools_ap import pycocotools_ap_of_coco


@pytest.mark.parametrize("seed", range(60))
def test_all_ten_numbers_are_those_of_pycocotools(seed: int) -> None:
    dataset, results = random_case(seed)
    before = json.dumps([dataset, results])
    np.testing.assert_allclose(
        evaluate_coco(dataset, results).stats,
        pycocotools_ap_of_coco(dataset, results),
        rtol=0,
        atol=1e-12,
    )
    assert json.dumps([dataset, results]) == before, "the inputs were changed"


def test_random_cases_hold_everything_that_can_go_wrong() -> None:
    seen: set[str] = set()
    for seed in range(60):
        dataset, results = random_case(seed)
        truth = ground_truth_from_coco(dataset)
        found = detections_from_coco(results, truth)
        per_image = np.unique(found.image, return_counts=True)[1]
        unlabelled = ~(truth.visibility > 0).any(1)
        seen |= {"crowd"} if truth.crowd.any() else set()
        seen |= {"unlabelled"} if unlabelled.any() else set()
        seen |= (
            {"ignored though labelled"}
            if (truth.ignore & ~truth.crowd & ~unlabelled).any()
            else set()
        )
        seen |= {"tied scores"} if len(np.unique(found.score)) < len(found.score) else set()
        seen |= {"over 20 detections"} if (per_image > DETECTIONS_PER_IMAGE).any() else set()
        seen |= {"image without people"} if len(np.setdiff1d(truth.images, truth.image)) else set()
        seen |= (
            {"image without detections"} if len(np.setdiff1d(truth.images, found.image)) else set()
        )
        seen |= {"id 0"} if (truth.id == 0).any() else set()
    assert len(seen) == 8, f"only {seen}"


@pytest.mark.parametrize("skeleton", [MPII16, WHOLEBODY133], ids=lambda s: s.name)
def test_any_number_of_keypoints_and_sigmas_will_do(skeleton) -> None:
    for seed in range(5):
        dataset, results = random_case(seed, images=6, keypoints=skeleton.size)
        ours = evaluate_coco(dataset, results, skeleton.oks_sigma).stats
        np.testing.assert_allclose(
            ours, pycocotools_ap_of_coco(dataset, results, skeleton.oks_sigma), rtol=0, atol=1e-12
        )


def test_boxes_of_the_results_say_how_large_a_detection_is() -> None:
    dataset, results = random_case(3)
    rng = np.random.default_rng(0)
    without = evaluate_coco(dataset, results).stats
    for result in results:
        result["bbox"] = [0.0, 0.0, *rng.uniform(5, 300, 2).tolist()]
    ours = evaluate_coco(dataset, results).stats
    np.testing.assert_allclose(ours, pycocotools_ap_of_coco(dataset, results), rtol=0, atol=1e-12)
    assert ours[3] != without[3]


def test_results_of_another_category_do_not_count() -> None:
    dataset, results = random_case(4)
    dataset["categories"].append({"id": 2, "name": "dog"})
    for result in results[::3]:
        result["category_id"] = 2
    np.testing.assert_allclose(
        evaluate_coco(dataset, results).stats,
        pycocotools_ap_of_coco(dataset, results),
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize("missing", ["detections", "people", "images"])
def test_with_one_side_empty_the_numbers_are_still_those_of_pycocotools(missing: str) -> None:
    dataset, results = random_case(1)
    if missing == "detections":
        results = []
    if missing in ("people", "images"):
        dataset["annotations"] = []
    if missing == "images":
        dataset["images"] = []
        results = []
    ours = evaluate_coco(dataset, results).stats
    np.testing.assert_array_equal(ours, np.zeros(10) if missing == "detections" else -np.ones(10))
    if missing != "images":  # pycocotools cannot evaluate nothing at all
        np.testing.assert_array_equal(ours, pycocotools_ap_of_coco(dataset, results))


def test_pycocotools_says_the_same_of_arrays_as_of_json() -> None:
    dataset, results = random_case(7)
    truth = ground_truth_from_coco(dataset)
    found = detections_from_coco(results, truth)
    expected = pycocotools_ap_of_coco(dataset, results)
    reference = evaluate_by_pycocotools(truth, found)
    ours = evaluate(truth, found)
    np.testing.assert_array_equal(reference.stats, expected)
    np.testing.assert_array_equal(ours.stats, expected)
    np.testing.assert_array_equal(ours.precision, reference.precision)
    np.testing.assert_array_equal(ours.recall, reference.recall)
    again = evaluate_coco(to_coco(truth), to_coco_results(found))
    np.testing.assert_array_equal(again.stats, expected)


def test_real_annotations_with_noisy_detections_agree(shared: Path) -> None:
    dataset = json.loads(
        (shared / "data/coco/annotations/person_keypoints_val2017.json").read_text()
    )
    rng = np.random.default_rng(0)
    truth = ground_truth_from_coco(dataset)
    noise = rng.normal(0, 1, truth.xy_px.shape) * (0.08 * np.sqrt(truth.area_px2))[:, None, None]
    found = detections(truth.image, truth.xy_px + noise, rng.random(len(truth.image)))
    ours = evaluate(truth, found).stats
    np.testing.assert_allclose(
        ours, evaluate_by_pycocotools(truth, found).stats, rtol=0, atol=1e-12
    )
    assert 0.2 < ours[0] < 0.8


def _one_prediction_each(seed: int):
    """People far apart, each predicted once, with errors of all sizes."""
    rng = np.random.default_rng(seed)
    people = 400
    image = np.sort(rng.integers(0, 150, people))
    size = rng.choice([40.0, 150.0], people)
    xy = (
        rng.uniform(0, 1, (people, 17, 2)) * size[:, None, None]
        + 1e4 * np.arange(people)[:, None, None]
    )
    visibility = np.where(rng.random((people, 17)) < 0.7, 2, 0)
    box = np.column_stack([xy.min(1), np.ptp(xy, axis=1)])
    truth = ground_truth(image, xy, visibility, size**2 * 0.5, box)
    spread = np.exp(rng.uniform(np.log(0.01), np.log(0.5), people)) * size
    predicted = xy + rng.normal(0, 1, xy.shape) * spread[:, None, None]
    oks, _ = matched_oks(predicted, xy, visibility > 0, truth.area_px2, COCO17.oks_sigma)
    return truth, predicted, oks


def test_with_oks_as_confidence_average_precision_is_average_recall() -> None:
    for seed in range(5):
        truth, predicted, oks = _one_prediction_each(seed)
        oracle = evaluate(truth, detections(truth.image, predicted, oks))
        assert oracle.exact_ap == pytest.approx(oracle.ar, abs=1e-15)
        # COCO's AP is the same recall read off a grid of 101 points
        reached = (oracle.recall[:, :1] >= RECALL_POINTS).mean(1)
        assert oracle.ap == pytest.approx(reached.mean(), abs=1e-15)
        assert oracle.ap == pytest.approx(oracle.ar, abs=0.01)
        # no other confidence does better, and one that knows nothing does worse
        guess = np.random.default_rng(seed).random(len(oks))
        assert evaluate(truth, detections(truth.image, predicted, guess)).ap < oracle.ap - 0.05


def test_matched_oks_is_what_the_evaluator_measures() -> None:
    truth, predicted, oks = _one_prediction_each(0)
    matches = match(truth, detections(truth.image, predicted, oks), COCO17.oks_sigma)
    found = (matches.outcome[0] == 1).sum(1)
    np.testing.assert_array_equal(found, [(oks >= t).sum() for t in np.linspace(0.5, 0.95, 10)])


def test_matched_oks_of_nothing_labelled_is_nan() -> None:
    person, keypoint = matched_oks(
        np.zeros((1, 17, 2)),
        np.zeros((1, 17, 2)),
        np.zeros((1, 17), bool),
        np.ones(1),
        COCO17.oks_sigma,
    )
    assert np.isnan(person).all()
    assert np.isnan(keypoint).all()


def test_counting_an_image_twice_is_having_it_twice() -> None:
    dataset, results = random_case(11, images=8)
    for number, annotation in enumerate(dataset["annotations"], start=1):
        annotation["id"] = number
    for number, result in enumerate(results):  # ties with copies might be broken otherwise
        result["score"] += number * 1e-6
    truth = ground_truth_from_coco(dataset)
    copies = dict(zip(truth.images.tolist(), (0, 3, 1, 2, 0, 1, 1, 0), strict=True))

    def copied(rows: list[dict]) -> list[dict]:
        return [
            {**row, "image_id": row["image_id"] * 10 + c}
            for row in rows
            for c in range(copies[row["image_id"]])
        ]

    people = [
        {**row, "id": number} for number, row in enumerate(copied(dataset["annotations"]), start=1)
    ]
    images = [{"id": image * 10 + c} for image, times in copies.items() for c in range(times)]
    twice = evaluate_coco({**dataset, "images": images, "annotations": people}, copied(results))

    matches = match(truth, detections_from_coco(results, truth), COCO17.oks_sigma)
    weighted = summarize(matches, np.array(list(copies.values())))
    np.testing.assert_allclose(weighted.stats, twice.stats, rtol=0, atol=1e-12)
    assert weighted.exact_ap == pytest.approx(twice.exact_ap, abs=1e-12)


def test_a_detection_in_an_unknown_image_is_refused() -> None:
    dataset, results = random_case(0)
    results[0]["image_id"] = 123_456
    with pytest.raises(UserError, match="123456"):
        evaluate_coco(dataset, results)


def test_a_wrong_number_of_keypoints_is_refused() -> None:
    dataset, results = random_case(0)
    with pytest.raises(UserError, match="51 keypoint values, expected 48"):
        evaluate_coco(dataset, results, MPII16.oks_sigma)


def test_a_detection_that_is_not_a_number_is_refused() -> None:
    dataset, results = random_case(0)
    results[5]["keypoints"][3] = float("nan")
    with pytest.raises(UserError, match="numbered 5"):
        evaluate_coco(dataset, results)


def test_annotations_that_share_an_id_are_refused() -> None:
    dataset, results = random_case(0)
    dataset["annotations"][1]["id"] = dataset["annotations"][0]["id"]
    with pytest.raises(UserError, match="share an id"):
        evaluate_coco(dataset, results)
