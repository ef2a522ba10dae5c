"""Joint angles by the names of biomechanics, in degrees.

All are zero in the T-pose's limbs, except `elevation`, which is zero for an arm that hangs along
the trunk. The body at rest: x to its left, y up, z to the front. Angles between two bones come from
joint positions; angles of three axes come from the rotation R of one segment relative to another as
R = Rx Rz Ry: first flexion about the axis from side to side, then bending or abduction, then twist
about the segment's own length (Grood and Suntay's order)."""

import warnings

import numpy as np
from scipy.spatial.transform import Rotation

from fitting.body.kinematics import JOINT_NAMES, PARENTS

ANGLE_NAMES = (
    "left_hip_flexion",
    "left_hip_abduction",
    "left_hip_internal_rotation",
    "right_hip_flexion",
    "right_hip_abduction",
    "right_hip_internal_rotation",
    "left_knee_flexion",
    "right_knee_flexion",
    "left_ankle_dorsiflexion",
    "right_ankle_dorsiflexion",
    "left_shoulder_elevation",
    "right_shoulder_elevation",
    "left_elbow_flexion",
    "right_elbow_flexion",
    "trunk_flexion",
    "trunk_bending_right",
    "trunk_rotation_left",
    "neck_flexion",
    "neck_bending_right",
    "neck_rotation_left",
)
_JOINT = {name: number for number, name in enumerate(JOINT_NAMES)}
# Joints whose rotations make an angle, where it is not the joint of the angle's name.
_JOINTS_OF_PART = {
    "shoulder": ("collar", "shoulder"),
    "trunk": ("spine1", "spine2", "spine3"),
    "neck": ("neck", "head"),
}


def _joints_of(angle: str) -> tuple[int, ...]:
    """Return the joints whose rotations make an angle."""
    first, second = angle.split("_")[:2]
    if first not in ("left", "right"):
        return tuple(_JOINT[name] for name in _JOINTS_OF_PART[first])
    return tuple(_JOINT[f"{first}_{name}"] for name in _JOINTS_OF_PART.get(second, (second,)))


ANGLE_JOINTS = {name: _joints_of(name) for name in ANGLE_NAMES}


def joint_angles_deg(pose_rad: np.ndarray, joints_m: np.ndarray) -> dict[str, np.ndarray]:
    """Return the angles [T] in degrees by ANGLE_NAMES, of axis-angles [T, 24, 3] and posed joints
    [T, 24, 3].
    """
    local = [Rotation.from_rotvec(pose_rad[:, joint]) for joint in range(len(JOINT_NAMES))]
    from_rest: list[Rotation] = []
    for turn, parent in zip(local, PARENTS, strict=True):
        from_rest.append(turn if parent < 0 else from_rest[parent] * turn)
    angles: dict[str, np.ndarray] = {}
    for side, outward in (("left", 1.0), ("right", -1.0)):
        flexion, abduction, rotation = euler_deg(local[_JOINT[f"{side}_hip"]], "XZY").T
        angles[f"{side}_hip_flexion"] = -flexion  # a rotation about +x swings the leg back
        angles[f"{side}_hip_abduction"] = outward * abduction
        angles[f"{side}_hip_internal_rotation"] = -outward * rotation
        ankle = euler_deg(local[_JOINT[f"{side}_ankle"]], "XZY")
        angles[f"{side}_ankle_dorsiflexion"] = -ankle[:, 0]
        for chain in (("hip", "knee", "ankle"), ("shoulder", "elbow", "wrist")):
            upper_m, middle_m, lower_m = (joints_m[:, _JOINT[f"{side}_{name}"]] for name in chain)
            bend = _between_deg(middle_m - upper_m, lower_m - middle_m)
            angles[f"{side}_{chain[1]}_flexion"] = bend
        arm = joints_m[:, _JOINT[f"{side}_elbow"]] - joints_m[:, _JOINT[f"{side}_shoulder"]]
        trunk_down = -from_rest[_JOINT["spine3"]].as_matrix()[:, :, 1]
        angles[f"{side}_shoulder_elevation"] = _between_deg(arm, trunk_down)
    for part, lower, upper in (("trunk", "pelvis", "spine3"), ("neck", "spine3", "head")):
        relative = from_rest[_JOINT[lower]].inv() * from_rest[_JOINT[upper]]
        flexion, bending, rotation = euler_deg(relative, "XZY").T
        angles[f"{part}_flexion"] = flexion
        angles[f"{part}_bending_right"] = bending
        angles[f"{part}_rotation_left"] = rotation
    return {name: angles[name] for name in ANGLE_NAMES}


def euler_deg(rotation: Rotation, axes: str) -> np.ndarray:
    """Return intrinsic angles [T, 3], for instance of R = Rx Rz Ry for "XZY"; the last one is 0 in
    gimbal lock.
    """
    # scipy warns of gimbal lock, where only the sum of two angles is determined.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return rotation.as_euler(axes, degrees=True)


def _between_deg(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the angle [T] between directions [T, 3]; exact also near 0 and 180, where the cosine
    is not.
    """
    return np.degrees(np.arctan2(np.linalg.norm(np.cross(a, b), axis=-1), (a * b).sum(-1)))
