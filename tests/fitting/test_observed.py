"""What counts as observed: the probability that a keypoint is in the image and close to the truth."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fitting.keypoints.observed import (
    BELIEVED,
    OBSERVED_PROBABILITY,
    OBSERVED_SCORE,
    mostly_believed,
    observed_bones,
    observed_joints,
    probability_observed,
)
from pose2d.skeletons import HALPE26
from pose2d.types import ErrorDistribution, Keypoints

SIZE = (100, 100)
KNEES = [13, 14]
ANKLES_AND_FEET = [15, 16, 20, 21, 22, 23, 24, 25]


def stated(weight: list[float], sigma: list[float], presence: float = 1.0) -> Keypoints:
    """One frame whose keypoints all have the same error distribution."""
    ones = torch.ones(1, 26)
    mixture = ErrorDistribution(
        *(torch.tensor(values).repeat(1, 26, 1) for values in (weight, sigma))
    )
    return Keypoints(
        50 * torch.ones(1, 26, 2),
        0.5 * ones,
        presence * ones,
        "ccnet",
        torch.tensor([1e3]),
        HALPE26,
        mixture,
    )


def test_the_probability_is_the_share_of_draws_that_fall_close() -> None:
    """A knee's l is 2 * 0.087 sqrt(area); the nose's is smaller, so of the same error in l more
    lies close.
    """
    knee = HALPE26.keypoints.index("left_knee")
    nose = 0
    near = 1.3 * 2 * 0.087
    points = stated([0.6, 0.4], [0.3, 3.0], presence=0.8)
    generator = np.random.default_rng(0)
    sigma = generator.choice([0.3, 3.0], p=[0.6, 0.4], size=200_000)
    error = np.linalg.norm(sigma[:, None] * generator.normal(size=(200_000, 2)), axis=1)
    there = generator.random(200_000) < 0.8
    found = probability_observed(points, near)[0]
    np.testing.assert_allclose(found[knee], ((error <= 1.3) & there).mean(), atol=0.004)
    np.testing.assert_allclose(
        found[nose], ((error <= near / (2 * 0.026)) & there).mean(), atol=0.004
    )


def test_a_guess_of_high_presence_and_wide_error_is_not_observed() -> None:
    """What a threshold on confidence times presence let through: expected OKS above 0.25, surely in
    the image.
    """
    guessed = stated([0.28, 0.72], [0.2, 12.0])
    assert guessed.error is not None
    confidence = (guessed.error.weight / (1 + guessed.error.sigma.square())).sum(-1)
    assert float(confidence.min()) > 0.25
    assert float(probability_observed(guessed).max()) < OBSERVED_PROBABILITY
    assert not observed_joints(guessed, SIZE).any()
    assert observed_joints(stated([0.9, 0.1], [0.2, 12.0]), SIZE).all()
    assert not observed_joints(stated([0.9, 0.1], [0.2, 12.0], presence=0.3), SIZE).any()


@pytest.mark.parametrize("confidence", [0.2, 0.5, 0.8])
def test_an_expected_oks_alone_is_taken_for_a_gaussian(confidence: float) -> None:
    plain = replace(stated([1.0], [1.0]), confidence=torch.full((1, 26), confidence), error=None)
    sigma = ((1 - confidence) / confidence) ** 0.5
    torch.testing.assert_close(
        probability_observed(plain), probability_observed(stated([1.0], [sigma]))
    )


def test_a_networks_own_score_counts_by_a_threshold() -> None:
    raw = replace(stated([1.0], [1.0]), source="raw", error=None)
    for score in (0.9 * OBSERVED_SCORE, 1.1 * OBSERVED_SCORE):
        found = probability_observed(replace(raw, confidence=torch.full((1, 26), score)))
        assert bool((found >= OBSERVED_PROBABILITY).all()) == (score > OBSERVED_SCORE)
    assert float(probability_observed(replace(raw, confidence=torch.ones(1, 26))).max()) <= 1


def test_whatever_is_not_in_the_image_is_not_observed() -> None:
    sure = stated([1.0], [0.2])
    outside = replace(sure, xy_px=torch.full((1, 26, 2), 150.0))
    assert not observed_joints(outside, SIZE).any()


def test_a_thigh_is_seen_where_the_knee_is() -> None:
    sure = stated([1.0], [0.2])
    presence = sure.presence.clone()
    presence[:, KNEES + ANKLES_AND_FEET] = 0
    joints = observed_joints(replace(sure, presence=presence), SIZE)[0]
    bones = observed_bones(joints)
    assert joints[[0, 1, 2]].all()
    assert not joints[[4, 5, 7, 8, 10, 11]].any()
    assert not bones[[1, 2, 4, 5, 7, 8, 10, 11]].any()  # the hips are seen, the thighs are not
    assert bones[[0, 3, 6, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]].all()


def test_a_frame_whose_keypoints_are_mostly_doubtful_is_not_believed() -> None:
    """17 keypoints of the body, of which ever more have an error as large as the body."""
    fewest = int(np.ceil(BELIEVED * 17))
    for right in (0, fewest - 1, fewest, 17):
        points = stated([1.0], [0.1])
        assert points.error is not None
        points.error.sigma[:, right:] = 50.0
        assert mostly_believed(points).tolist() == [right >= fewest]


def test_keypoints_outside_the_image_do_not_make_a_close_up_doubtful() -> None:
    points = stated([1.0], [0.1])
    points.presence[:, 5:] = 0.1
    assert mostly_believed(points).tolist() == [True]


def test_scores_without_calibration_leave_all_frames_believed() -> None:
    points = replace(stated([1.0], [50.0]), source="raw")
    assert mostly_believed(points).tolist() == [True]
