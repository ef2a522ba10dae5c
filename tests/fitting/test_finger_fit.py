"""Fingers: the body's layer of them, palms in the body's fit, and hands that were posed, projected
and found again.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fitting
from bench.lib.hand_points import shown_points
from fitting.body import BodyParams
from fitting.body.fingers import JOINT_NAMES_52, PARENTS_52, WRISTS
from fitting.body.kinematics import JOINT_NAMES
from fitting.body.rotations import matrix_to_axis_angle, rotation_matrices
from fitting.fits import FitInput, FitOptions, with_default_errors
from fitting.hands import fit_hands
from fitting.hands.prior import LIMITS_DEG, PRIOR_STD_DEG, RELAXED_DEG
from fitting.keypoints.hands import HandObservations, observe_hands
from fitting.optimise import fit_jointly
from pose2d.skeletons import HALPE26
from pose2d.types import HandKeypoints, Keypoints

CAMERA = fitting.Camera((1500.0, 1500.0), (960.0, 540.0), (1920, 1080))
FPS = 30.0
STD_PX = 1.5


def waving(frames: int, seed: int = 0) -> BodyParams:
    """Somebody facing the camera with both forearms raised, whose fingers all move, each at a time
    of its own.
    """
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 2 * np.pi, (1, 2, 5, 5))
    angles = RELAXED_DEG + PRIOR_STD_DEG * np.sin(
        np.pi * np.arange(frames)[:, None, None, None] / FPS + phase
    )
    angles = np.radians(np.clip(angles, LIMITS_DEG[..., 0], LIMITS_DEG[..., 1]))
    pose = torch.zeros(frames, 24, 3)
    pose[:, 0, 0] = torch.pi
    for side, sign in (("left", 1.0), ("right", -1.0)):
        pose[:, JOINT_NAMES.index(f"{side}_shoulder"), 2] = -0.9 * sign
        pose[:, JOINT_NAMES.index(f"{side}_elbow"), 1] = -1.2 * sign
        pose[:, JOINT_NAMES.index(f"{side}_wrist"), 0] = 0.4 * sign
    body = fitting.load_body()
    hands = body.with_fingers().to(dtype=torch.float64).pose(torch.from_numpy(angles)).float()
    return BodyParams(
        pose,
        torch.zeros(10),
        torch.tensor([[0.0, 0.0, 2.5]]).expand(frames, 3),
        torch.ones(()),
        hands,
    )


def keypoints_of(params: BodyParams) -> torch.Tensor:
    """[T, 2, 21, 3] where the hand network shows the hands."""
    body = fitting.load_body()
    assert params.hands is not None
    shape = torch.zeros(body.shape_size)
    whole = body.with_fingers().placement(
        body.placement(rotation_matrices(params.pose), shape), params.hands, shape
    )
    return shown_points(body.with_fingers(), whole, shape) + params.translation[:, None, None]


def seen_from(params: BodyParams, seed: int = 1, depth_m: float = 0.012) -> HandKeypoints:
    """Keypoints and landmarks of hands, with noise."""
    rng = np.random.default_rng(seed)
    points = keypoints_of(params)
    frames = len(points)
    xy = CAMERA.project(points.flatten(1, 2)).unflatten(1, (2, 21)).numpy()
    landmarks = (points - points[:, :, :1]).numpy() + rng.normal(0, depth_m, points.shape)
    ones = np.ones((frames, 2), np.float32)
    return HandKeypoints(
        (xy + rng.normal(0, STD_PX, xy.shape)).astype(np.float32),
        np.full((frames, 2, 21), STD_PX, np.float32),
        ones,
        ones,
        landmarks.astype(np.float32),
        100 * ones,
    )


def turned_deg(a: torch.Tensor, b: torch.Tensor) -> np.ndarray:
    """Angles between axis-angle rotations, degrees."""
    return torch.rad2deg(
        matrix_to_axis_angle(rotation_matrices(a).mT @ rotation_matrices(b)).norm(dim=-1)
    ).numpy()


def from_wrist(params: BodyParams) -> np.ndarray:
    """[T, 2, 21, 3] millimetres."""
    points = fitting.load_body().at(params).hands
    assert points is not None
    return 1000 * (points - points[:, :, :1]).numpy()


def test_hands_that_were_posed_and_projected_are_found_again_with_their_stated_deviations() -> None:
    truth = waving(45)
    body = fitting.load_body()
    given = replace(truth, pose=truth.pose.clone(), hands=None)
    given.pose[:, list(WRISTS)] += torch.tensor(
        [0.3, 0.1, -0.2]
    )  # the body's fit knows little of wrists
    found = fit_hands(observe_hands(seen_from(truth), CAMERA, body), given, CAMERA, body, FPS)
    again = replace(truth, pose=truth.pose.clone(), hands=torch.from_numpy(found.pose_rad))
    again.pose[:, list(WRISTS)] = torch.from_numpy(found.wrist_rad)
    away_mm = np.linalg.norm(from_wrist(again) - from_wrist(truth), axis=-1)
    assert np.median(away_mm[:, :, 4::4]) < 6
    assert truth.hands is not None
    off = turned_deg(truth.hands, torch.from_numpy(found.pose_rad)) / found.std_deg
    assert 0.4 < np.sqrt(np.mean(off**2)) < 1.6
    assert np.median(turned_deg(truth.pose[:, list(WRISTS)], again.pose[:, list(WRISTS)])) < 5
    assert found.seen.all()


def test_a_hand_that_nobody_sees_is_relaxed_and_says_how_little_is_known() -> None:
    truth = waving(40)
    body = fitting.load_body()
    hands = seen_from(truth)
    hands.presence[:, 1] = 0
    hands.presence[25:, 0] = 0
    found = fit_hands(
        observe_hands(hands, CAMERA, body), replace(truth, hands=None), CAMERA, body, FPS
    )
    np.testing.assert_array_equal(found.seen, np.stack([np.arange(40) < 25, np.zeros(40, bool)], 1))
    angles = torch.from_numpy(np.radians(RELAXED_DEG)).expand(1, 2, 5, 5)
    rest = body.with_fingers().to(dtype=torch.float64).pose(angles)[0].float()
    assert turned_deg(torch.from_numpy(found.pose_rad[:, 15:]), rest[15:]).max() < 0.5
    assert (found.std_deg[:, 15:].mean(1) > 1.5 * found.std_deg[:20, :15].mean()).all()
    assert (
        turned_deg(torch.from_numpy(found.pose_rad[-1:, :15]), rest[:15]).mean() < 3
    )  # half a second later
    np.testing.assert_allclose(found.wrist_rad[:, 1], truth.pose[:, 21], atol=1e-6)


def test_a_fist_an_open_hand_and_a_pointing_finger_are_told_apart() -> None:
    body = fitting.load_body()
    fingers = fitting.load_body().with_fingers().to(dtype=torch.float64)
    fist = np.radians([[0, 80, 0, 95, 57]] * 4 + [[-20, 25, 0, 30, 40]])
    point = fist.copy()
    open_hand = np.zeros((5, 5))
    point[0] = 0
    for angles in (fist, point, open_hand):
        truth = waving(6)
        truth = replace(
            truth, hands=fingers.pose(torch.from_numpy(angles).expand(6, 2, 5, 5)).float()
        )
        found = fit_hands(
            observe_hands(seen_from(truth), CAMERA, body),
            replace(truth, hands=None),
            CAMERA,
            body,
            FPS,
        )
        assert truth.hands is not None
        bend = torch.from_numpy(found.pose_rad).norm(dim=-1).reshape(6, 2, 5, 3).sum(-1)[:, :, :4]
        wanted = truth.hands.norm(dim=-1).reshape(6, 2, 5, 3).sum(-1)[:, :, :4]
        assert (
            np.degrees((bend - wanted).abs().numpy()).max() < 80
        )  # 232 between a bent finger and a straight one


def test_fingers_bend_towards_the_palm_and_the_flat_hand_is_flat() -> None:
    body = fitting.load_body()
    fingers = body.with_fingers()
    flat = body(torch.zeros(1, 24, 3), hands=torch.zeros(1, 30, 3)).hands
    assert flat is not None
    for side, out in ((0, 1.0), (1, -1.0)):
        for first in (5, 9, 13, 17):  # straight, level, pointing outwards
            bones = np.diff(flat[0, side, first : first + 4].numpy(), axis=0)
            bones /= np.linalg.norm(bones, axis=1, keepdims=True)
            assert (np.abs(bones[:, 1]) < 0.03).all()
            assert (out * bones[:, 0] > 0.85).all()
            assert (bones[1:] @ bones[0] > 0.999).all()
    angles = torch.zeros(1, 2, 5, 5)
    angles[..., :4, 1] = 1.0
    bent = body(torch.zeros(1, 24, 3), hands=fingers.pose(angles)).hands
    assert bent is not None
    assert (bent[0, :, 8::4, 1] < flat[0, :, 8::4, 1] - 0.05).all()  # palms look down in the T-pose
    np.testing.assert_allclose(
        bent[0, 0] * torch.tensor([-1, 1, 1]), bent[0, 1], atol=1e-4
    )  # mirror images


def test_skinning_weights_add_up_and_leave_the_rest_of_the_body_alone() -> None:
    body = fitting.load_body()
    fingers = body.with_fingers()
    torch.testing.assert_close(
        fingers.weights.sum(1), torch.ones(len(fingers.weights)), atol=1e-5, rtol=0
    )
    assert PARENTS_52[JOINT_NAMES_52.index("right_pinky1")] == WRISTS[1]
    plain = body(torch.zeros(1, 24, 3), vertices=True).vertices
    flat = body(torch.zeros(1, 24, 3), vertices=True, hands=torch.zeros(1, 30, 3)).vertices
    assert plain is not None
    assert flat is not None
    moved = (plain - flat).norm(dim=-1)[0] > 1e-6
    assert not moved[body.weights[:, [20, 21, 22, 23]].sum(1) == 0].any()


def test_the_palm_tells_the_fit_how_wrist_and_forearm_turn() -> None:
    truth = waving(8)
    body = fitting.load_body()
    truth = replace(truth, pose=truth.pose.clone())
    truth.pose[:, 20] = torch.tensor([0.9, 0.0, 0.5])
    truth.pose[:, 21] = torch.tensor([-0.9, 0.0, 0.5])
    keypoints = Keypoints(
        CAMERA.project(body.at(truth).keypoints).float(),
        torch.full((8, 26), 0.95),
        torch.ones(8, 26),
        source="ccnet",
        area_px2=torch.full((8,), 4e5),
        skeleton=HALPE26,
    )
    start = replace(truth, pose=truth.pose.clone(), hands=None)
    start.pose[:, list(WRISTS)] = 0
    guess = with_default_errors(start)
    hands = observe_hands(seen_from(truth), CAMERA, body)

    def palms_off(seen: HandObservations | None) -> np.ndarray:
        found = fit_jointly(
            FitInput(keypoints, guess, hands=seen), CAMERA, body, FPS, FitOptions()
        ).params
        turns = [
            body.placement(rotation_matrices(p.pose), torch.zeros(body.shape_size)).rotation[
                :, list(WRISTS)
            ]
            for p in (truth, found)
        ]
        return np.degrees(matrix_to_axis_angle(turns[0].mT @ turns[1]).norm(dim=-1).numpy())

    assert np.median(palms_off(hands)) < 15 < 30 < np.median(palms_off(None))


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_a_track_may_be_as_short_as_one_frame(frames: int) -> None:
    truth = waving(frames)
    body = fitting.load_body()
    found = fit_hands(
        observe_hands(seen_from(truth), CAMERA, body), replace(truth, hands=None), CAMERA, body, FPS
    )
    assert np.isfinite(found.pose_rad).all()
    assert np.isfinite(found.std_deg).all()
