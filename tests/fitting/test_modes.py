"""Where two bodies explain what is seen about as well, both are told."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import fitting
from fitting import stated
from fitting.body import BodyParams
from fitting.body.kinematics import about_axis, matrix_to_axis_angle
from fitting.camera import Camera
from fitting.fits import TrackFit
from fitting.modes import APART_M, ARMS, mirrored_limbs, mirrored_starts
from fitting.stated import StatedErrors, calibrated
from fitting.track import fit_track
from pose2d.skeletons import HALPE26
from pose2d.types import Keypoints
from tools.stated_errors import NEUTRAL

FRAMES = 12
TURN = math.radians(40)
CAMERA = Camera((2000.0, 2000.0), (640.0, 480.0), (1280, 960))
_HEAD_AND_FEET = ("nose", "eye", "ear", "toe", "heel", "head", "neck", "hip_center")
SHOWS_FACING = [
    n for n, name in enumerate(HALPE26.keypoints) if any(part in name for part in _HEAD_AND_FEET)
]


def standing(turn_rad: float) -> BodyParams:
    """Somebody with the arms down, turned about the vertical, ten metres away."""
    pose = torch.zeros(FRAMES, 24, 3)
    facing = (
        torch.diag(torch.tensor([1.0, -1.0, -1.0])) @ about_axis(1, torch.tensor([turn_rad]))[0]
    )
    pose[:, 0] = matrix_to_axis_angle(facing[None])[0]
    pose[:, 16, 2] = -1.3
    pose[:, 17, 2] = 1.3
    return BodyParams(pose, torch.zeros(10), torch.tensor([0.0, 0.0, 10.0]).expand(FRAMES, 3))


def fitted(turn_rad: float, hidden: list[int]) -> TrackFit:
    xy_px = CAMERA.project(fitting.load_body().at(standing(turn_rad)).keypoints)
    seen = torch.ones(FRAMES, HALPE26.size)
    seen[:, hidden] = 0
    keypoints = Keypoints(xy_px, 0.95 * seen, seen, "ccnet", torch.full((FRAMES,), 4e4), HALPE26)
    return fit_track(keypoints, np.arange(FRAMES), CAMERA, init=standing(turn_rad), fps=30.0)


@pytest.fixture(scope="module")
def ambiguous() -> TrackFit:
    """Neither face nor feet tell to which side the person is turned."""
    return fitted(TURN, SHOWS_FACING)


def test_a_person_whom_two_facings_explain_has_a_second_mode_that_faces_the_other_way(
    ambiguous: TrackFit,
) -> None:
    assert ambiguous.second is not None
    assert (ambiguous.second.probability > 0).all()
    body = fitting.load_body()
    truth = standing(TURN)
    second = replace(truth, pose=torch.from_numpy(ambiguous.second.pose_rad))
    left, right = 16, 17  # shoulders: one is nearer to the camera, in the second mode the other
    nearer = [
        float((at[:, left, 2] - at[:, right, 2]).mean())
        for at in (body.at(truth).joints, body.at(second).joints)
    ]
    assert nearer[0] * nearer[1] < 0
    assert min(map(abs, nearer)) > APART_M


def test_a_person_whose_face_and_feet_are_seen_has_one_mode() -> None:
    clear = fitted(TURN, [])
    assert clear.second is not None
    assert not clear.second.probability.any()


def test_stated_errors_cover_both_modes(ambiguous: TrackFit) -> None:
    """The moment of the mixture: the variance grows by p d^2."""
    body = fitting.load_body()
    equal = replace(NEUTRAL, mode=np.array([0.0, 0.0]))

    def std(table: StatedErrors) -> np.ndarray:
        found = calibrated(ambiguous, None, body, False, 30.0, table).fit.joint_std_relative_mm
        assert found is not None
        return found.numpy().astype(np.float64)

    apart = stated.modes_apart(ambiguous, body).mm[0]
    np.testing.assert_allclose(std(equal) ** 2, std(NEUTRAL) ** 2 + apart**2 / 2, rtol=1e-3)
    assert np.linalg.norm(apart, axis=-1).max() > 1000 * APART_M


def test_a_frame_with_a_second_mode_is_less_reliable(ambiguous: TrackFit) -> None:
    alone = replace(stated.stated_errors(), mode=NEUTRAL.mode)
    both, one = (
        calibrated(ambiguous, None, fitting.load_body(), False, 30.0, table)
        for table in (None, alone)
    )
    assert both.worst_error_mm is not None
    assert one.worst_error_mm is not None
    assert (both.worst_error_mm > one.worst_error_mm).all()


def test_a_mode_that_costs_more_is_less_probable_and_one_that_costs_far_more_does_not_count(
    ambiguous: TrackFit,
) -> None:
    assert ambiguous.second is not None
    table = stated.stated_errors()
    costs = np.array([0.0, 2.0, 200.0, np.nan], np.float32)
    first, dearer, far, none = table.mode_probability(
        replace(ambiguous.second.rows(slice(4)), extra_cost=costs)
    )
    assert first > dearer >= stated.LEAST_PROBABILITY
    assert far == none == 0


def test_mirrored_starts_keep_the_image_and_change_depths() -> None:
    body = fitting.load_body()
    params = standing(TURN)
    reached = params.pose.clone()
    reached[:, 16, 1] = 0.8  # an arm towards the camera
    params = replace(params, pose=reached)
    before, after = (body.at(one).joints[0] for one in (params, mirrored_limbs(params, body, ARMS)))
    elbow, shoulder = 18, 16
    torch.testing.assert_close(after[elbow, :2], before[elbow, :2], atol=0.02, rtol=0)
    depth = [float(at[elbow, 2] - at[shoulder, 2]) for at in (before, after)]
    assert depth[1] == pytest.approx(-depth[0], abs=0.03)
    torch.testing.assert_close(after[20] - after[18], before[20] - before[18], atol=1e-4, rtol=0)
    turned = body.at(mirrored_starts(params, body)[0]).joints[0]
    torch.testing.assert_close(turned[[1, 2], :2], before[[1, 2], :2], atol=0.02, rtol=0)
    assert float(turned[1, 2] - turned[2, 2]) == pytest.approx(
        float(before[2, 2] - before[1, 2]), abs=0.02
    )
