"""Legs that no frame shows are seated behind furniture and straight below the image's border."""

import math

import numpy as np
import pytest
import torch

from fitting.body import BodyParams
from fitting.fits import with_default_errors
from fitting.grid import Grid
from fitting.shot.hidden_legs import HIP_JOINTS, LEG_STD_RAD, settle_hidden_legs
from fitting.track import Track
from pose2d.skeletons import HALPE26
from pose2d.types import Keypoints

FRAMES = 20
IMAGE_HEIGHT_PX = 480
SHOULDERS_Y, HIPS_Y = 150.0, 250.0
LEGS = [13, 14, 15, 16, 20, 21, 22, 23, 24, 25]
HALF_BENT_DEG = 40.0


def person(down_px: float = 0.0, drift_px: float = 0.0, legs_visible: bool = False) -> Track:
    """Return the track of a person whose guess squats, `down_px` lower in the image."""
    xy = torch.zeros(FRAMES, 26, 2)
    xy[..., 0] = 320 + torch.linspace(0, drift_px, FRAMES)[:, None]
    xy[..., 1] = HIPS_Y + down_px
    xy[:, :5, 1] = SHOULDERS_Y - 40 + down_px
    xy[:, 5:11, 1] = SHOULDERS_Y + down_px
    xy[:, LEGS, 1] = HIPS_Y + 80 + down_px
    presence = torch.ones(FRAMES, 26)
    presence[:, LEGS] = float(legs_visible)
    keypoints = Keypoints(xy, presence, presence, "ones", torch.ones(FRAMES), HALPE26)
    pose = torch.zeros(FRAMES, 24, 3)
    pose[:, HIP_JOINTS, 0] = -np.radians(HALF_BENT_DEG)
    guess = with_default_errors(BodyParams(pose, torch.zeros(10), torch.zeros(FRAMES, 3)))
    return Track(
        grid=Grid.over(np.arange(FRAMES), 30.0, 1),
        detected=np.ones(FRAMES, bool),
        keypoints=keypoints,
        swapped=np.zeros((FRAMES, 26), bool),
        guess=guess,
    )


def hip_bend_deg(track: Track) -> float:
    return math.degrees(float(track.guess.params.pose[:, HIP_JOINTS].norm(dim=-1).median()))


def settled(*tracks: Track, is_static: bool = True) -> Track:
    return settle_hidden_legs(dict(enumerate(tracks)), IMAGE_HEIGHT_PX, is_static)[0]


def test_legs_behind_a_desk_are_seated_and_uncertain() -> None:
    track = settled(person())
    assert hip_bend_deg(track) == pytest.approx(80, abs=2)
    assert (track.guess.rotation_std_rad[:, HIP_JOINTS] >= LEG_STD_RAD).all()


def test_legs_below_the_image_are_straight() -> None:
    assert hip_bend_deg(settled(person(down_px=200))) == 0


@pytest.mark.parametrize(
    ("track", "is_static"),
    [(person(legs_visible=True), True), (person(drift_px=200), True), (person(), False)],
)
def test_visible_legs_and_people_who_may_walk_keep_their_guess(
    track: Track, is_static: bool
) -> None:
    assert hip_bend_deg(settled(track, is_static=is_static)) == pytest.approx(HALF_BENT_DEG)


def test_people_in_front_are_no_furniture() -> None:
    behind = person()
    in_front = person(down_px=40, legs_visible=True)
    xy = in_front.keypoints.xy_px
    xy[:, 0::2, 0] -= 60
    xy[:, 1::2, 0] += 60
    assert hip_bend_deg(settled(behind, in_front)) == pytest.approx(HALF_BENT_DEG)
