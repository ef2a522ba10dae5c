"""Short gaps are filled where both sides agree; otherwise the person is absent."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fitting.keypoints.segments import ABSENT, split_into_segments
from pose2d.types import Keypoints
from tests.walkers import walker

SIZE = (1280, 960)
FPS = 30.0


def walking(frames: int, speed_m: float = 0.03) -> Keypoints:
    xy_px = torch.from_numpy(walker(frames, SIZE, -0.5, speed_m).keypoints_px)
    sure = torch.ones(frames, 17)
    return Keypoints(xy_px, 0.9 * sure, sure, "ccnet")


def gap(frames: int, first: int, last: int) -> torch.Tensor:
    shown = torch.ones(frames, dtype=torch.bool)
    shown[first : last + 1] = False
    return shown


def test_half_a_second_is_filled_and_more_is_an_absence() -> None:
    short = split_into_segments(walking(60), gap(60, 20, 34), FPS)
    assert short.tolist() == [0] * 60
    long = split_into_segments(walking(60), gap(60, 20, 35), FPS)
    assert long.tolist() == [0] * 20 + [ABSENT] * 16 + [1] * 24
    slow = split_into_segments(walking(60), gap(60, 20, 35), 40.0)  # the same frames are less time
    assert slow.max() == 0


def test_before_the_first_and_after_the_last_frame_shown_the_person_is_absent() -> None:
    shown = gap(20, 0, 3) & gap(20, 15, 19)
    assert (
        split_into_segments(walking(20), shown, FPS).tolist()
        == [ABSENT] * 4 + [0] * 11 + [ABSENT] * 5
    )
    assert (split_into_segments(walking(5), torch.zeros(5, dtype=torch.bool), FPS) == ABSENT).all()


def test_somebody_who_runs_on_behind_a_post_is_the_same() -> None:
    running = walking(40, speed_m=0.2)  # 6 m/s
    assert split_into_segments(running, gap(40, 15, 25), FPS).max() == 0


@pytest.mark.parametrize("change", ["place", "size", "pose"])
def test_ends_that_disagree_are_not_joined(change: str) -> None:
    seen = walking(40)
    xy_px = seen.xy_px.clone()
    middle = xy_px[25:].mean((0, 1))
    if change == "place":
        xy_px[25:, :, 0] += 400
    elif change == "size":
        xy_px[25:] = middle + 0.5 * (xy_px[25:] - middle)
    else:  # lying
        xy_px[25:] = middle + (xy_px[25:] - middle).flip(-1)
    assert split_into_segments(seen, gap(40, 20, 24), FPS).max() == 0
    assert (
        split_into_segments(replace(seen, xy_px=xy_px), gap(40, 20, 24), FPS).tolist()
        == [0] * 20 + [ABSENT] * 5 + [1] * 15
    )


def test_sides_called_by_the_other_name_after_a_gap_are_no_disagreement() -> None:
    seen = walking(40)
    xy_px = seen.xy_px.clone()
    xy_px[25:] = xy_px[25:][:, seen.skeleton.flip_order]
    assert split_into_segments(replace(seen, xy_px=xy_px), gap(40, 20, 24), FPS).max() == 0


def test_ends_that_show_different_parts_of_a_body_are_not_joined() -> None:
    seen = walking(40)
    presence = seen.presence.clone()
    presence[:20, 8:], presence[25:, :8] = 0, 0
    assert split_into_segments(replace(seen, presence=presence), gap(40, 20, 24), FPS).max() == 1


def test_the_number_of_segments_does_not_depend_on_how_many_frames_lie_between() -> None:
    everywhere = walking(200)
    shown = torch.zeros(200, dtype=torch.bool)
    shown[[0, 1, 2, 60, 61, 150, 199]] = True
    numbers = split_into_segments(everywhere, shown, FPS)
    np.testing.assert_array_equal(np.unique(numbers), [ABSENT, 0, 1, 2, 3])
    np.testing.assert_array_equal(np.flatnonzero(numbers != ABSENT), np.flatnonzero(shown))
