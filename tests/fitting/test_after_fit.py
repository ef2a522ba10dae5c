"""A keypoint far from the fitted body is less to be relied on, one on it more, and nothing else
changes.
"""

from dataclasses import replace

import torch

from fitting.keypoints.after_fit import update_confidence
from pose2d.skeletons import HALPE26
from pose2d.types import ErrorDistribution, Keypoints, l_squared

AREA = 10_000.0


def stated(offset_l: float) -> tuple[Keypoints, torch.Tensor]:
    """Two frames of keypoints that say: nine times in ten sharp, else plainly wrong; and a body
    `offset_l` away.
    """
    weight = torch.tensor([0.9, 0.1]).expand(2, 26, 2).clone()
    sigma = torch.tensor([0.3, 5.0]).expand(2, 26, 2).clone()
    xy = torch.full((2, 26, 2), 100.0)
    confidence = (weight / (1 + sigma.square())).sum(-1)
    area = torch.full((2,), AREA)
    keypoints = Keypoints(
        xy, confidence, torch.ones(2, 26), "ccnet", area, HALPE26, ErrorDistribution(weight, sigma)
    )
    away = torch.stack([l_squared(area, HALPE26).sqrt() * offset_l, torch.zeros(2, 26)], -1)
    return keypoints, xy + away


def test_far_from_the_body_confidence_falls_and_on_it_it_rises() -> None:
    before, at = stated(0.0)
    _, far = stated(4.0)
    assert (update_confidence(before, at).confidence > before.confidence).all()
    assert (update_confidence(before, far).confidence < 0.2).all()


def test_confidence_is_the_expected_oks_of_the_new_mixture() -> None:
    before, body = stated(1.0)
    after = update_confidence(before, body)
    assert after.error is not None
    torch.testing.assert_close(after.error.weight.sum(-1), torch.ones(2, 26))
    torch.testing.assert_close(
        after.confidence, (after.error.weight / (1 + after.error.sigma.square())).sum(-1)
    )
    torch.testing.assert_close(after.xy_px, before.xy_px)
    torch.testing.assert_close(after.presence, before.presence)


def test_off_along_the_axis_that_is_stated_wide_counts_less_than_along_the_other() -> None:
    before, body = stated(1.0)  # off along x
    stated_error = before.error
    assert stated_error is not None
    wide, sharp = (
        replace(before, error=replace(stated_error, log_ratio=torch.full((2, 26), ratio)))
        for ratio in (1.5, -1.5)
    )
    along_wide, along_sharp = (update_confidence(k, body) for k in (wide, sharp))
    assert (along_wide.confidence > along_sharp.confidence).all()
    assert along_wide.error is not None
    torch.testing.assert_close(along_wide.confidence, along_wide.error.expected_oks())


def test_what_no_body_or_no_distribution_speaks_of_stays() -> None:
    before, body = stated(4.0)
    body[0] = torch.nan
    after = update_confidence(before, body)
    torch.testing.assert_close(after.confidence[0], before.confidence[0])
    plain = Keypoints(
        before.xy_px, before.confidence, before.presence, "raw", before.area_px2, HALPE26
    )
    assert update_confidence(plain, body) is plain
