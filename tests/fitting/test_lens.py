"""The focal length with its uncertainty."""

import math

import numpy as np
import pytest
import torch

from fitting.body import BodyParams
from fitting.body.load import load_body
from fitting.camera.focal import (
    FocalEstimate,
    combine_focal_estimates,
    focal_from_user,
    focal_prior,
    refocus_params,
)
from pose2d.base.errors import UserError

SIZE = (1920, 1080)


def _interval(estimate: FocalEstimate, sigmas: float) -> tuple[float, float]:
    spread = math.exp(sigmas * estimate.log_sigma)
    return estimate.focal_px / spread, estimate.focal_px * spread


def test_the_prior_covers_the_cameras_that_were_measured() -> None:
    for share in (1435 / 2400, 1680 / 2203, 26 / 43.27, 0.55, 1.0):
        low, high = _interval(focal_prior(SIZE), 1.2)
        assert low < share * math.hypot(*SIZE) < high
    low, high = _interval(focal_prior(SIZE), 2.1)
    assert low < 0.45 * math.hypot(*SIZE)
    assert high > 1.3 * math.hypot(*SIZE)


def test_two_gaussians_in_log_f_give_their_product() -> None:
    got = combine_focal_estimates([FocalEstimate(1000, 0.2, "a"), FocalEstimate(1100, 0.1, "b")])
    expected = (math.log(1000) / 0.04 + math.log(1100) / 0.01) / (1 / 0.04 + 1 / 0.01)
    assert math.log(got.focal_px) == pytest.approx(expected)
    assert got.log_sigma == pytest.approx((1 / 0.04 + 1 / 0.01) ** -0.5)
    assert got.source == "b + a"


def test_contradicting_estimates_widen_the_answer() -> None:
    got = combine_focal_estimates([FocalEstimate(1000, 0.05, "a"), FocalEstimate(2000, 0.05, "b")])
    assert got.log_sigma > math.log(2) / 3


def test_estimates_that_are_not_numbers_are_left_out() -> None:
    bad = [
        FocalEstimate(math.nan, 0.1, "x"),
        FocalEstimate(900, math.inf, "y"),
        FocalEstimate(0, 0.1, "z"),
    ]
    assert combine_focal_estimates([*bad, FocalEstimate(1200, 0.1, "a")]) == FocalEstimate(
        pytest.approx(1200), 0.1, "a"
    )
    with pytest.raises(ValueError, match="no finite"):
        combine_focal_estimates(bad)


@pytest.mark.parametrize("focal_px", [0, -5, math.nan, math.inf, 3, 1e7])
def test_a_focal_length_that_cannot_be_is_refused_with_a_word(focal_px: float) -> None:
    with pytest.raises(UserError, match="leave it out"):
        focal_from_user(focal_px, SIZE)
    assert focal_from_user(1500, SIZE).focal_px == 1500


def test_refocusing_keeps_the_image_and_the_body() -> None:
    body = load_body()
    generator = torch.Generator().manual_seed(0)
    pose = 0.3 * torch.randn(2, 24, 3, generator=generator)
    params = BodyParams(pose, torch.zeros(10), torch.tensor([[0.6, -0.3, 5.0], [-1.0, 0.2, 8.0]]))
    pelvis = body.rest_joints[0]
    moved = refocus_params(params, pelvis, 1.3)
    before, after = (body.at(one).joints.double().numpy() for one in (params, moved))
    np.testing.assert_allclose(after[:, 0], before[:, 0] * [1, 1, 1.3], atol=1e-5)
    sizes, same = (
        np.linalg.norm(points[:, :, None] - points[:, None], axis=-1) for points in (before, after)
    )
    np.testing.assert_allclose(sizes, same, atol=1e-5)  # a rigid move
    image = before[..., :2] / before[..., 2:]
    longer = 1.3 * after[..., :2] / after[..., 2:]
    assert (
        np.abs(image - longer).max() < 0.1 * np.ptp(image, axis=1).max()
    )  # perspective inside the body differs
    back = body.at(refocus_params(moved, pelvis, 1 / 1.3)).joints
    np.testing.assert_allclose(back.double().numpy(), before, atol=1e-5)
