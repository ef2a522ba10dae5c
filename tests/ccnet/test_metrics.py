"""Calibration metrics on data whose answer is known by hand."""

import numpy as np
import pytest

from ccnet.coco_ap.average_precision import bootstrap_ap, evaluate
from ccnet.coco_ap.matching import detections, detections_from_coco, ground_truth_from_coco, match
from ccnet.metrics import (
    calibration,
    keypoint_curves,
    keypoint_map,
    labelled_samples,
    pearson,
    reliability,
    sparsification,
)
from pose2d.base.resampling import interval
from pose2d.skeletons import COCO17
from tests.ccnet.coco_cases import ground_truth, random_case


def _samples(n: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Confidence c and an OKS whose mean, given c, is c."""
    rng = np.random.default_rng(0)
    confidence = rng.random(n)
    return confidence, rng.beta(10 * confidence, 10 * (1 - confidence))


def test_pearson_is_numpys() -> None:
    confidence, oks = _samples()
    assert pearson(confidence, oks) == pytest.approx(np.corrcoef(confidence, oks)[0, 1], abs=1e-12)
    assert np.isnan(pearson(np.ones(5), np.arange(5.0)))


def test_a_calibrated_confidence_has_no_calibration_error_and_a_shifted_one_has_the_shift() -> None:
    confidence, oks = _samples(200_000)
    assert reliability(confidence, oks).expected_error < 0.004
    low = 0.5 * confidence
    assert reliability(low + 0.2, 0 * oks + low).expected_error == pytest.approx(0.2, abs=1e-12)


def test_calibration_error_by_hand() -> None:
    confidence = np.array([0.1, 0.3, 0.6, 0.8])
    oks = np.array([0.0, 0.0, 1.0, 0.5])
    # two bins: means 0.2 against 0.0, and 0.7 against 0.75
    assert reliability(confidence, oks, bins=2).expected_error == pytest.approx((0.2 + 0.05) / 2)


def test_scores_beyond_one_fall_into_the_last_bin_with_their_own_value() -> None:
    bins = reliability(np.array([1.0, 1.4, -0.2]), np.array([1.0, 1.0, 0.0]), bins=4)
    np.testing.assert_array_equal(bins.count, [1, 0, 0, 2])
    assert bins.confidence[3] == pytest.approx(1.2)
    assert bins.expected_error == pytest.approx((2 * 0.2 + 0.2) / 3)


def test_ause_by_hand() -> None:
    oks = np.array([0.0, 0.5, 1.0])  # errors 1, 0.5, 0
    # Backwards: remove the best first. Rest: 0.5, 0.75, 1; the best order leaves 0.5, 0.25, 0.
    backwards = sparsification(np.array([0.9, 0.5, 0.1]), oks)
    assert backwards.ause == pytest.approx(100 * (0 + 0.5 + 1.0) / 3)
    assert backwards.random == pytest.approx(0.5)
    assert sparsification(oks, oks).ause == 0
    assert sparsification(oks**2, oks).ause == 0, "only the order matters"


def test_a_constant_confidence_sparsifies_like_a_random_order() -> None:
    _, oks = _samples(1000)
    flat = sparsification(np.ones(1000), oks)
    np.testing.assert_allclose(flat.error, flat.random, atol=1e-12)
    rng = np.random.default_rng(1)
    shuffled = np.mean([sparsification(rng.random(1000), oks).ause for _ in range(200)])
    assert flat.ause == pytest.approx(shuffled, rel=0.02)


def test_keypoint_map_of_the_true_oks_is_recall_on_the_grid() -> None:
    _, oks = _samples(2000)
    oracle = keypoint_curves(oks, oks)
    np.testing.assert_allclose(oracle.exact_ap, oracle.recall, atol=1e-12)
    assert keypoint_map(oks, oks) == pytest.approx(oracle.recall.mean(), abs=0.01)
    assert keypoint_map(-oks, oks) < keypoint_map(oks, oks) - 0.1


def test_unlabelled_keypoints_do_not_count() -> None:
    confidence, oks = (values.reshape(-1, 10) for values in _samples(1000))
    hidden = np.random.default_rng(2).random(oks.shape) < 0.3
    partly = np.where(hidden, np.nan, oks)
    assert calibration(confidence, partly) == calibration(confidence[~hidden], oks[~hidden])
    assert keypoint_map(confidence, partly) == keypoint_map(confidence[~hidden], oks[~hidden])
    assert len(labelled_samples(confidence, partly)[0]) == (~hidden).sum()


def test_bootstrap_starts_with_the_data_themselves_and_spreads_around_them() -> None:
    dataset, results = random_case(5, images=40)
    truth = ground_truth_from_coco(dataset)
    found = detections_from_coco(results, truth)
    matches = match(truth, found, COCO17.oks_sigma)
    ap = bootstrap_ap({"raw": matches}, resamples=200)["raw"]
    assert ap[0] == pytest.approx(evaluate(truth, found).ap, abs=1e-12)
    assert ap.shape == (201,)
    around = interval(ap)
    assert around.low < around.value < around.high
    np.testing.assert_array_equal(ap, bootstrap_ap({"raw": matches}, resamples=200)["raw"])


def test_a_paired_difference_is_surer_than_two_separate_intervals() -> None:
    rng = np.random.default_rng(0)
    people = 300
    size = rng.choice([40.0, 150.0], people)
    xy = (
        rng.uniform(0, 1, (people, 17, 2)) * size[:, None, None]
        + 1e4 * np.arange(people)[:, None, None]
    )
    truth = ground_truth(
        np.arange(people) // 2,
        xy,
        np.full((people, 17), 2),
        size**2,
        np.column_stack([xy.min(1), np.ptp(xy, axis=1)]),
    )
    noise = np.exp(rng.uniform(np.log(0.02), np.log(0.4), people)) * size
    predicted = xy + rng.normal(0, 1, xy.shape) * noise[:, None, None]
    scores = {"good": -noise / size, "bad": -noise / size + rng.normal(0, 0.15, people)}
    matches = {
        name: match(truth, detections(truth.image, predicted, score), COCO17.oks_sigma)
        for name, score in scores.items()
    }
    ap = bootstrap_ap(matches, resamples=300)
    gain = interval(ap["good"] - ap["bad"])
    assert gain.low > 0 or gain.high < 0
    separate = sum(i.high - i.low for i in map(interval, ap.values()))
    assert gain.high - gain.low < 0.5 * separate
    none = interval(ap["good"] - ap["good"])
    assert (none.value, none.low, none.high) == (0, 0, 0)
    assert none.low <= 0 <= none.high
