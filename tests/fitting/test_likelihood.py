"""The stated error distribution as the loss: what it must do to a fit."""

import math
from dataclasses import replace

import pytest
import torch

import fitting
from fitting.keypoints.usable import check_body_keypoints
from fitting.keypoints.weights import (
    ANNOTATOR_STD,
    HEDGE,
    LEAST_SHARE,
    WIDER,
    Weighting,
    joint_variance,
    keypoint_weights,
)
from fitting.solver.terms.reprojection import mixture_loss
from pose2d.types import ErrorDistribution, Keypoints
from tests.walkers import walker

SIZE = (640, 480)


def test_the_loss_is_the_mixtures_log_likelihood_and_the_slopes_its_derivatives() -> None:
    weight = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    precision = torch.tensor([[4.0, 9.0], [1.0, 0.5], [0.01, 0.01]], dtype=torch.float64)
    squared = 50 * torch.rand(
        40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    rho, slope = mixture_loss(
        squared.requires_grad_(), weight.expand(40, 3), precision.expand(40, 3, 2)
    )

    def log_density(r2: torch.Tensor) -> torch.Tensor:
        each = (
            torch.exp(-(r2[:, None] * precision).sum(-1) / 2)
            * precision.prod(-1).sqrt()
            / (2 * math.pi)
        )
        return (weight * each).sum(-1).log()

    zero = torch.zeros(1, 2, dtype=torch.float64)
    torch.testing.assert_close(rho, -2 * (log_density(squared) - log_density(zero)))
    (derivative,) = torch.autograd.grad(rho.sum(), squared)
    torch.testing.assert_close(slope, derivative)


def test_one_gaussian_is_weighted_by_its_distance_to_the_joint_and_hedged_by_a_wider_one() -> None:
    keypoints = seen(5)
    annotated = 0.5
    to_joint = (
        annotated**2 - ANNOTATOR_STD**2
    )  # l^2: annotators' scatter and the network's error are independent
    one = replace(
        keypoints, error=ErrorDistribution(torch.ones(5, 17, 1), torch.full((5, 17, 1), annotated))
    )
    confidence = 1 / (1 + annotated**2)  # the expected OKS of that Gaussian
    one = check_body_keypoints(replace(one, confidence=torch.full((5, 17), confidence)))
    weights = keypoint_weights(one, "likelihood")
    assert weights.mixture_weight is not None
    assert weights.mixture_precision is not None
    everywhere = torch.ones(5, 17)
    sharper = torch.full(
        (5, 17, 2), annotated**2 / to_joint
    )  # beside `precision`, which is the annotation's
    torch.testing.assert_close(weights.mixture_precision[:, :17, 0], sharper)
    torch.testing.assert_close(weights.mixture_precision[:, :17, 1], sharper / WIDER**2)
    torch.testing.assert_close(
        weights.mixture_weight[:, :17, 0], (1 - HEDGE) * everywhere, atol=1e-5, rtol=0
    )
    torch.testing.assert_close(
        weights.mixture_weight[:, :17, 1], HEDGE * everywhere, atol=1e-5, rtol=0
    )


def test_a_stated_ratio_widens_one_axis_of_the_annotations_error_as_much_as_it_sharpens_the_other() -> (
    None
):
    """And of each axis the annotators' scatter is taken out, down to a share of what is stated."""
    plain = check_body_keypoints(seen(5))
    assert plain.error is not None
    stated = replace(plain, error=replace(plain.error, log_ratio=torch.full((5, 26), 1.4)))
    ratio = keypoint_weights(stated, "likelihood").mixture_precision
    same = keypoint_weights(plain, "likelihood").mixture_precision
    assert ratio is not None
    assert same is not None
    isotropic = plain.error.sigma[:, :17, :, None].square()
    turned = isotropic * torch.tensor([math.exp(1.4), math.exp(-1.4)])
    expected = joint_variance(isotropic) / joint_variance(turned)
    torch.testing.assert_close(ratio[:, :17, :3] / same[:, :17, :3], expected)


def test_annotators_scatter_comes_off_wide_errors_and_sharp_ones_keep_a_share() -> None:
    stated = torch.tensor(
        [0.01, 0.1, 0.1225 / (1 - LEAST_SHARE**2), 0.25, 4.0], dtype=torch.float64
    )
    floor = LEAST_SHARE**2 * stated
    expected = torch.cat((floor[:3], stated[3:] - ANNOTATOR_STD**2))
    torch.testing.assert_close(joint_variance(stated), expected)


def test_where_x_is_stated_to_be_far_off_the_fit_follows_y() -> None:
    """The wrist is found 7 px too far right and too low, and one of both axes is stated to be
    twelve times as sharp.
    """
    wrist, shift_px = 9, 7.0

    def followed_px(log_ratio: float) -> torch.Tensor:
        keypoints = seen(8)
        xy_px = keypoints.xy_px.clone()
        confidence = keypoints.confidence.clone()
        ratio = torch.zeros(8, 17)
        assert keypoints.error is not None
        weight = keypoints.error.weight.clone()
        sigma = keypoints.error.sigma.clone()
        xy_px[:, wrist] += shift_px
        weight[:, wrist] = torch.tensor([1.0, 0, 0])
        sigma[:, wrist] = 0.87
        ratio[:, wrist] = log_ratio
        error = ErrorDistribution(weight, sigma, ratio)
        confidence[:, wrist] = error.expected_oks()[:, wrist]
        stated = replace(keypoints, xy_px=xy_px, confidence=confidence, error=error)
        camera = fitting.Camera.default(SIZE)
        found = fitting.fit(stated, camera, weighting="likelihood", fps=25)
        at = camera.project(fitting.load_body().at(found.params).keypoints)[:, wrist]
        return (at - keypoints.xy_px[:, wrist]).mean(0)

    wide_x = followed_px(2.5)
    wide_y = followed_px(-2.5)
    assert float(wide_x[1]) == pytest.approx(shift_px, abs=2)
    assert wide_x[1] > wide_y[1] + 3
    assert wide_y[0] > wide_x[0] + 3


def test_without_a_stated_distribution_it_is_precision() -> None:
    keypoints = check_body_keypoints(replace(seen(3), error=None))
    plain = keypoint_weights(keypoints, "precision")
    same = keypoint_weights(keypoints, "likelihood")
    torch.testing.assert_close(plain.weight, same.weight)
    assert same.mixture_weight is None


@pytest.mark.parametrize("weighting", ["likelihood", "precision"])
def test_a_wild_keypoint_with_a_heavy_tail_does_not_bend_the_body(weighting: Weighting) -> None:
    truth = walker(8, SIZE)
    keypoints = seen(8)
    xy_px = keypoints.xy_px.clone()
    xy_px[4, 9] += torch.tensor([80.0, -60.0])
    keypoints = replace(keypoints, xy_px=xy_px)
    found = fitting.fit(keypoints, fitting.Camera.default(SIZE), weighting=weighting, fps=25)
    body = fitting.load_body()
    error = (body.at(found.params).joints - body.at(truth.params).joints)[4]
    error = error - error[:1]
    seen_joints = [
        joint for joint in range(24) if joint not in (10, 11)
    ]  # no keypoint of these 17 tells of toes
    assert float(error[seen_joints, :2].norm(dim=-1).max()) < 0.08
    assert found.joint_std_mm is not None


def seen(frames: int) -> Keypoints:
    """A narrow core and a heavy tail, as stated."""
    xy_px = torch.from_numpy(walker(frames, SIZE).keypoints_px)
    everywhere = torch.ones(frames, 17)
    return Keypoints(
        xy_px,
        0.9 * everywhere,
        everywhere,
        "ccnet",
        torch.full((frames,), 2e4),
        error=ErrorDistribution(
            *(torch.tensor(v).expand(frames, 17, 3) for v in ([0.8, 0.15, 0.05], [0.2, 0.7, 5.0]))
        ),
    )
