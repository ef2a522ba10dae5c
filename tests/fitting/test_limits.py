"""Joints turn as far as joints do."""

import torch

import fitting
from fitting.body.kinematics import JOINT_NAMES
from fitting.solver.terms.joint_limits import JointLimits, joint_ranges
from fitting.solver.unknowns import BODY_JOINTS


def cost(joint: str, axis: int, angle: float) -> float:
    theta = torch.zeros(1, 24, 3)
    theta[0, JOINT_NAMES.index(joint), axis] = angle
    return float(
        JointLimits(*joint_ranges()).beyond(theta[:, BODY_JOINTS].flatten(1)).square().sum()
    )


def test_the_rest_pose_is_free() -> None:
    low, high = joint_ranges()
    assert (low < 0).all()
    assert (high > 0).all()


def test_knees_bend_backwards_only() -> None:
    body = fitting.load_body()
    for side in ("left", "right"):
        assert cost(f"{side}_knee", 0, 2.0) == 0
        assert cost(f"{side}_knee", 0, -0.6) > 50
        pose = torch.zeros(1, 24, 3)
        pose[0, JOINT_NAMES.index(f"{side}_knee"), 0] = 1.5
        ankle = body(pose).joints[0, JOINT_NAMES.index(f"{side}_ankle")]
        assert ankle[2] < -0.2, (
            "the free direction must be the one that takes the ankle behind the body"
        )


def test_elbows_bend_forwards_only() -> None:
    body = fitting.load_body()
    for side, sign in (("left", -1), ("right", 1)):
        assert cost(f"{side}_elbow", 1, sign * 2.0) == 0
        assert cost(f"{side}_elbow", 1, -sign * 0.6) > 50
        pose = torch.zeros(1, 24, 3)
        pose[0, JOINT_NAMES.index(f"{side}_elbow"), 1] = sign * 1.5
        wrist = body(pose).joints[0, JOINT_NAMES.index(f"{side}_wrist")]
        assert wrist[2] > 0.15, (
            "the free direction must be the one that takes the wrist before the body"
        )


def test_left_and_right_are_mirror_images() -> None:
    low, high = (side.unflatten(0, (-1, 3)) for side in joint_ranges())
    for joint, name in zip(BODY_JOINTS, (JOINT_NAMES[j] for j in BODY_JOINTS), strict=True):
        if name.startswith("left"):
            a = BODY_JOINTS.index(joint)
            b = BODY_JOINTS.index(JOINT_NAMES.index(name.replace("left", "right")))
            torch.testing.assert_close(low[a, 0], low[b, 0])
            torch.testing.assert_close(low[a, 1:], -high[b, 1:])
            torch.testing.assert_close(high[a, 1:], -low[b, 1:])


def test_hips_ankles_and_neck_stay_within_reach() -> None:
    assert cost("left_hip", 0, -2.0) == 0
    assert cost("left_hip", 0, 1.5) > 50
    assert cost("right_ankle", 0, 1.8) > 50
    assert cost("neck", 1, 1.9) > 50
