"""Where keypoints of dressed people are read is found with the body, and moves neither joints nor mesh."""

from dataclasses import replace

import pytest
import torch

import fitting
from fitting.body import BodyParams
from fitting.body.reading import HABITS, READINGS
from fitting.camera import Camera
from fitting.fits import FitOptions
from fitting.keypoints.reading import undo_reading
from fitting.windows import with_shape
from pose2d.skeletons import HALPE26
from pose2d.types import Keypoints

CAMERA = Camera.from_focal(1000.0, (1000, 1000))
LEFT_HIP, LEFT_KNEE, PELVIS = (
    HALPE26.keypoints.index(name) for name in ("left_hip", "left_knee", "pelvis")
)


@pytest.fixture(scope="module")
def body() -> fitting.Body:
    return fitting.load_body()


def standing(frames: int, reading: torch.Tensor | None) -> BodyParams:
    """Return people who stand facing the camera, arms down."""
    pose = torch.zeros(frames, 24, 3)
    pose[:, 0, 0] = torch.pi
    pose[:, 16, 2] = -1.2
    pose[:, 17, 2] = 1.2
    place = torch.tensor([0.0, 0.0, 4.0]).expand(frames, 3)
    return BodyParams(pose, torch.zeros(10), place, reading=reading)


def as_read(params: BodyParams, body: fitting.Body) -> Keypoints:
    xy_px = CAMERA.project(body.at(params).keypoints)
    certain = torch.full(xy_px.shape[:2], 0.95)
    return Keypoints(xy_px, certain, torch.ones_like(certain), "ccnet", skeleton=HALPE26)


def test_a_reading_moves_keypoints_along_their_bones_and_nothing_else(body) -> None:
    own = body.at(standing(1, None), vertices=True)
    read = body.at(standing(1, torch.tensor([1.0, 1.0])), vertices=True)
    torch.testing.assert_close(read.joints, own.joints)
    torch.testing.assert_close(read.vertices, own.vertices)
    shift = read.keypoints[0] - own.keypoints[0]
    thigh = own.joints[0, 4] - own.joints[0, 1]
    expected = (HABITS[0].mean + HABITS[0].std) * thigh
    torch.testing.assert_close(shift[LEFT_HIP], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(shift[PELVIS, 1], expected[1], atol=1e-4, rtol=0)
    moved = shift.norm(dim=-1) > 1e-6
    names = {HALPE26.keypoints[number] for number in moved.nonzero().flatten().tolist()}
    assert names == {"left_hip", "right_hip", "left_knee", "right_knee", "pelvis"}


def test_keypoints_are_moved_back_to_the_body_in_the_image(body) -> None:
    reading = torch.tensor([0.5, -0.5])
    own = as_read(standing(2, None), body)
    moved_back = undo_reading(as_read(standing(2, reading), body), reading)
    torch.testing.assert_close(moved_back.xy_px, own.xy_px, atol=2.0, rtol=0)


def test_hips_stay_where_the_knees_are_not_known(body) -> None:
    read = as_read(standing(1, torch.zeros(READINGS)), body)
    presence = read.presence.clone()
    presence[:, LEFT_KNEE] = 0
    read = replace(read, presence=presence)
    moved_back = undo_reading(read, torch.zeros(READINGS))
    torch.testing.assert_close(moved_back.xy_px[:, LEFT_HIP], read.xy_px[:, LEFT_HIP])


def test_a_fixed_reading_gives_the_same_keypoints(body) -> None:
    params = standing(2, torch.tensor([0.7, -1.1]))
    fixed = with_shape(body, params.shape, params.reading)
    terms = fixed.reading_terms
    placement = fixed.placement(
        fitting.body.rotations.rotation_matrices(params.pose), fixed.v_template.new_zeros(0)
    )
    shift = terms.place(placement, terms.moments(fixed.v_template.new_zeros(0), None))
    own = body.at(replace(params, reading=None)).keypoints
    torch.testing.assert_close(own + shift, body.at(params).keypoints, atol=1e-5, rtol=0)


def test_people_whose_hips_are_read_low_stand_upright(body) -> None:
    """Legs look short; without readings, they can only be explained by a tilt."""
    keypoints = as_read(standing(1, torch.zeros(READINGS)), body)

    def tilt_deg(reads: bool) -> float:
        fit = fitting.fit_frames(keypoints, CAMERA, body, options=FitOptions(reads=reads))
        joints = body.at(fit.params).joints[0]
        leg = joints[(7, 8), :].mean(0) - joints[(1, 2), :].mean(0)
        return abs(float(torch.atan2(leg[2], leg[1]).rad2deg()))

    assert tilt_deg(reads=True) < tilt_deg(reads=False)
    assert tilt_deg(reads=True) < 6
