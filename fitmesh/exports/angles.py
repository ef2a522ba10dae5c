"""Joint angles as movement scientists name them, in degrees.

All are zero in the T-pose's limbs, except `elevation`, which is zero for an arm that hangs along the trunk. The body
at rest: x to its left, y up, z to the front. Angles between two bones come from joint positions; angles of three
axes come from the rotation R of one segment relative to another as R = Rx Rz Ry: first flexion about the axis from
side to side, then bending or abduction, then twist about the segment's own length (Grood and Suntay's order).
"""

import numpy as np

from fitmesh.exports.rotations import matrices, world
from fitting.body.kinematics import JOINT_NAMES

ANGLE_NAMES = (
    "left_hip_flexion", "left_hip_abduction", "left_hip_internal_rotation",
    "right_hip_flexion", "right_hip_abduction", "right_hip_internal_rotation",
    "left_knee_flexion", "right_knee_flexion", "left_ankle_dorsiflexion", "right_ankle_dorsiflexion",
    "left_shoulder_elevation", "right_shoulder_elevation", "left_elbow_flexion", "right_elbow_flexion",
    "trunk_flexion", "trunk_bending_right", "trunk_rotation_left",
    "neck_flexion", "neck_bending_right", "neck_rotation_left",
)  # fmt: skip
_JOINT = {name: number for number, name in enumerate(JOINT_NAMES)}


def joint_angles_deg(pose_rad: np.ndarray, joints_m: np.ndarray) -> dict[str, np.ndarray]:
    """ANGLE_NAMES -> [T] degrees, of axis-angles [T, 24, 3] and posed joints [T, 24, 3]."""
    local = matrices(pose_rad)
    turned = world(local)
    angles: dict[str, np.ndarray] = {}
    for side, outward in (("left", 1.0), ("right", -1.0)):
        flexion, abduction, rotation = _xzy_deg(local[:, _JOINT[f"{side}_hip"]])
        angles[f"{side}_hip_flexion"] = -flexion  # a leg hangs: turning it about +x swings it back
        angles[f"{side}_hip_abduction"] = outward * abduction
        angles[f"{side}_hip_internal_rotation"] = -outward * rotation
        angles[f"{side}_ankle_dorsiflexion"] = -_xzy_deg(local[:, _JOINT[f"{side}_ankle"]])[0]
        for joint, chain in (("knee", ("hip", "knee", "ankle")), ("elbow", ("shoulder", "elbow", "wrist"))):
            above, at, below = (joints_m[:, _JOINT[f"{side}_{name}"]] for name in chain)
            angles[f"{side}_{joint}_flexion"] = _between_deg(at - above, below - at)
        arm = joints_m[:, _JOINT[f"{side}_elbow"]] - joints_m[:, _JOINT[f"{side}_shoulder"]]
        angles[f"{side}_shoulder_elevation"] = _between_deg(arm, -turned[:, _JOINT["spine3"], :, 1])
    for name, lower, upper in (("trunk", "pelvis", "spine3"), ("neck", "spine3", "head")):
        relative = np.swapaxes(turned[:, _JOINT[lower]], -1, -2) @ turned[:, _JOINT[upper]]
        parts = zip(("flexion", "bending_right", "rotation_left"), _xzy_deg(relative), strict=True)
        angles |= {f"{name}_{part}": value for part, value in parts}
    return {name: angles[name] for name in ANGLE_NAMES}


def _xzy_deg(rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[T, 3, 3] -> angles about x, z, y with R = Rx Rz Ry."""
    x = np.arctan2(rotation[:, 2, 1], rotation[:, 1, 1])
    z = np.arcsin(np.clip(-rotation[:, 0, 1], -1, 1))
    y = np.arctan2(rotation[:, 0, 2], rotation[:, 0, 0])
    return np.degrees(x), np.degrees(z), np.degrees(y)


def _between_deg(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Angle between directions [T, 3]; exact also near 0 and 180, where the cosine alone is not."""
    return np.degrees(np.arctan2(np.linalg.norm(np.cross(a, b), axis=-1), (a * b).sum(-1)))
