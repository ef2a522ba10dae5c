"""Left and right that flicker are put back; motion that is real is left alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fitting.keypoints.side_swap import find_side_order, reorder_keypoints
from pose2d.skeletons import COCO17
from pose2d.types import ErrorDistribution, Keypoints

FRAMES = 90
LEFT, RIGHT = (
    [COCO17.keypoints.index(f"{side}_{name}") for name in ("knee", "ankle")]
    for side in ("left", "right")
)


@pytest.fixture
def side_walk() -> Keypoints:
    """A person walking, seen from the side at 30 frames/s: legs pass each other twice a second."""
    t = np.arange(FRAMES)
    xy_px = np.zeros((FRAMES, 17, 2))
    xy_px[..., 0] = 100 + 5 * t[:, None]
    xy_px[..., 1] = 10 * np.arange(17)
    swing = np.sin(2 * np.pi * t / 30)[:, None] * (25, 45)
    xy_px[:, LEFT, 0] += swing
    xy_px[:, RIGHT, 0] -= swing
    xy_px += np.random.default_rng(0).normal(0, 1.5, xy_px.shape)
    sure = torch.full((FRAMES, 17), 0.9)
    return Keypoints(
        torch.from_numpy(xy_px).float(), sure, sure, "ccnet", torch.full((FRAMES,), 3e4)
    )


def repair_side_swaps(keypoints: Keypoints, fps: float) -> tuple[Keypoints, np.ndarray]:
    """With sides put back, and which keypoints changed places."""
    order = find_side_order(keypoints, fps)
    return reorder_keypoints(keypoints, order), order != np.arange(order.shape[1])


def exchanged(known: Keypoints, frames: list[int]) -> Keypoints:
    xy_px = known.xy_px.clone()
    confidence = known.confidence.clone()
    for a, b in ((LEFT, RIGHT), (RIGHT, LEFT)):
        xy_px[np.ix_(frames, a)] = known.xy_px[np.ix_(frames, b)]
        confidence[np.ix_(frames, a)] = known.confidence[np.ix_(frames, b)]
    return replace(known, xy_px=xy_px, confidence=confidence)


def test_legs_that_pass_each_other_stay_as_labelled(side_walk: Keypoints) -> None:
    same, swapped = repair_side_swaps(side_walk, 30)
    assert not swapped.any()
    torch.testing.assert_close(same.xy_px, side_walk.xy_px, rtol=0, atol=0)


def test_flickering_labels_are_put_back_with_their_confidence(side_walk: Keypoints) -> None:
    side_walk.confidence[:, LEFT] = 0.8
    apart = np.abs(np.sin(2 * np.pi * np.arange(FRAMES) / 30)) > 0.5
    flicker = [t for t in range(5, FRAMES - 5) if apart[t] and t % 4 in (0, 1)]
    back, swapped = repair_side_swaps(exchanged(side_walk, flicker), 30)
    np.testing.assert_array_equal(np.flatnonzero(swapped[:, LEFT[0]] & apart), flicker)
    torch.testing.assert_close(back.xy_px[apart], side_walk.xy_px[apart])
    torch.testing.assert_close(back.confidence[apart], side_walk.confidence[apart])
    others = [k for k in range(17) if k not in (*LEFT, *RIGHT)]
    assert not swapped[:, others].any()


def test_the_stated_error_goes_with_its_keypoint(side_walk: Keypoints) -> None:
    ones = torch.ones(FRAMES, 17, 1)
    ratio = torch.linspace(-1, 1, 17).expand(FRAMES, 17)
    side_walk = replace(side_walk, error=ErrorDistribution(ones, ones, ratio))
    back, swapped = repair_side_swaps(exchanged(side_walk, [20, 21]), 30)
    assert swapped[20, LEFT[0]]
    assert back.error is not None
    assert back.error.log_ratio is not None
    torch.testing.assert_close(back.error.log_ratio[20, LEFT], ratio[20, RIGHT])
    torch.testing.assert_close(back.error.log_ratio[40], ratio[40])


def test_a_keypoint_that_is_plainly_wrong_exchanges_nothing(side_walk: Keypoints) -> None:
    side_walk.xy_px[40, LEFT[1]] += 300
    assert not repair_side_swaps(side_walk, 30)[1].any()


def test_labels_decide_where_frames_are_far_apart(side_walk: Keypoints) -> None:
    assert not repair_side_swaps(exchanged(side_walk, [40]), 3)[1].any()


def test_gaps_and_short_tracks_are_no_trouble(side_walk: Keypoints) -> None:
    side_walk.presence[30:45] = 0
    side_walk.xy_px[30:45] = 0
    assert not repair_side_swaps(side_walk, 30)[1].any()
    for count in (1, 2, 3):
        some = {
            name: getattr(side_walk, name)[:count]
            for name in ("xy_px", "confidence", "presence", "area_px2")
        }
        assert repair_side_swaps(replace(side_walk, **some), 30)[1].shape == (count, 17)
