"""Confidence becomes weight as stated."""

import warnings
from dataclasses import replace

import pytest
import torch

import fitting
from fitting.keypoints.weights import REFERENCE_SIGMA, keypoint_weights, warn_of_uncalibrated_scores
from pose2d.base.errors import UserError
from pose2d.skeletons import COCO17
from pose2d.types import Keypoints, expected_oks, l_squared

AREA = torch.tensor([10_000.0, 40_000.0])


def keypoints(
    confidence: torch.Tensor, presence: torch.Tensor | None = None, area: torch.Tensor | None = AREA
) -> Keypoints:
    presence = torch.ones_like(confidence) if presence is None else presence
    xy = torch.rand(*confidence.shape, 2, generator=torch.Generator().manual_seed(0)) * 100
    return Keypoints(xy, confidence, presence, "ccnet", area)


def test_precision_is_one_over_the_variance_that_the_confidence_states() -> None:
    sigma = torch.rand(2, 17, generator=torch.Generator().manual_seed(1)) * 8 + 2
    stated = expected_oks(sigma**2, l_squared(AREA, COCO17))
    weights = keypoint_weights(keypoints(stated), "precision")
    torch.testing.assert_close(weights.weight, sigma**-2, rtol=1e-3, atol=0)
    torch.testing.assert_close(weights.sigma_px, sigma, rtol=1e-3, atol=0)


def test_presence_scales_precision_and_absence_ends_it() -> None:
    s = torch.full((2, 17), 0.8)
    whole = keypoint_weights(keypoints(s), "precision").weight
    half = keypoint_weights(keypoints(s, torch.full_like(s, 0.5)), "precision").weight
    none = keypoint_weights(keypoints(s, torch.zeros_like(s)), "precision").weight
    torch.testing.assert_close(half, whole / 2)
    assert not none.any()


@pytest.mark.parametrize("name", ["ones", "confidence", "squared", "precision", "gate"])
def test_a_keypoint_outside_the_image_does_not_pull(name) -> None:
    s = torch.full((2, 17), 0.8)
    presence = torch.ones_like(s)
    presence[:, 13:] = 0.01
    weight = keypoint_weights(keypoints(s, presence), name).weight
    assert (weight[:, :13] > 0).all()
    assert not weight[:, 13:].any()


@pytest.mark.parametrize(("name", "power"), [("ones", 0), ("confidence", 1), ("squared", 2)])
def test_powers_of_confidence_share_one_reference_variance(name, power) -> None:
    s = torch.rand(2, 17, generator=torch.Generator().manual_seed(2)) * 0.9 + 0.05
    weight = keypoint_weights(keypoints(s), name).weight
    torch.testing.assert_close(weight, s**power / (REFERENCE_SIGMA**2 * AREA[:, None]))


def test_the_gate_lets_through_what_reaches_it_and_nothing_else() -> None:
    s = torch.tensor([[0.29, 0.31] * 8 + [0.3]]).repeat(2, 1)
    weight = keypoint_weights(keypoints(s), "gate", gate=0.3).weight
    assert ((weight > 0) == (s >= 0.3)).all()


def test_without_confidence_nothing_pulls_and_nothing_is_infinite() -> None:
    for name in ("confidence", "squared", "precision", "gate"):
        weights = keypoint_weights(keypoints(torch.zeros(2, 17), area=None), name)
        assert not weights.weight.any()
        assert torch.isfinite(weights.sigma_px).all()


def test_full_confidence_has_a_finite_weight() -> None:
    assert torch.isfinite(keypoint_weights(keypoints(torch.ones(2, 17)), "precision").weight).all()


def test_without_an_area_the_extent_of_used_keypoints_speaks() -> None:
    near = keypoints(torch.full((2, 17), 0.9), area=None)
    far = Keypoints(near.xy_px * 2, near.confidence, near.presence, "ccnet")
    a, b = (keypoint_weights(k, "precision").sigma_px for k in (near, far))
    torch.testing.assert_close(2 * a, b)


def test_an_unknown_weighting_is_refused_with_the_choices() -> None:
    with pytest.raises(UserError, match="precision"):
        keypoint_weights(keypoints(torch.ones(2, 17)), "cubed")  # type: ignore[arg-type]


def test_a_score_that_is_no_expected_oks_is_warned_of() -> None:
    ones = torch.ones(1, 17)
    raw = Keypoints(xy_px=torch.zeros(1, 17, 2), confidence=ones, presence=ones, source="raw")
    with pytest.warns(UserWarning, match="weighting='confidence' is the usual choice"):
        warn_of_uncalibrated_scores(raw, "likelihood")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_uncalibrated_scores(raw, "confidence")
        warn_of_uncalibrated_scores(replace(raw, source="ccnet"), "likelihood")
    with pytest.warns(UserWarning, match="expected OKS"):
        fitting.fit(raw, fitting.Camera.default((640, 480)))
