"""Our angles as coordinates of Pose2Sim's OpenSim model.

The model's segments have x to the front, y up and z to the right, and its coordinates turn about z,
then x, then y. That is the sequence of our angles in other axes, so that most coordinates are our
angles with OpenSim's signs. Neutral poses differ: OpenSim's segments are zero where its model
stands upright, ours in the T-pose of the fitted body.
"""

from collections.abc import Mapping

import numpy as np
from scipy.spatial.transform import Rotation

from fitmesh.exports.angles import (
    ISB_FROM_BODY,
    euler_deg,
    humerus_from_trunk,
    person_angle_std_deg,
    person_angles_deg,
)
from fitmesh.exports.scene import SceneFrame
from fitmesh.person import Person
from fitting.body.kinematics import JOINT_NAMES, PARENTS

# By the model's name: our angle and its sign. {} is a side; the model has _r and _l at the end.
_OF_SIDE = {
    "hip_flexion": ("{}_hip_flexion", 1),
    "hip_adduction": ("{}_hip_abduction", -1),
    "hip_rotation": ("{}_hip_internal_rotation", 1),
    "knee_angle": ("{}_knee_flexion", 1),
    "ankle_angle": ("{}_ankle_dorsiflexion", 1),
    "elbow_flex": ("{}_elbow_flexion", 1),
}
_OF_TRUNK = {
    "L5_S1_Flex_Ext": ("trunk_flexion", -1),
    "L5_S1_Lat_Bending": ("trunk_bending_right", 1),
    "L5_S1_axial_rotation": ("trunk_rotation_left", 1),
    "neck_flexion": ("neck_flexion", -1),
    "neck_bending": ("neck_bending_right", 1),
    "neck_rotation": ("neck_rotation_left", 1),
}
_SIDES = {"r": "right", "l": "left"}
_ARM = ("arm_flex", "arm_add", "arm_rot")
_PELVIS = ("pelvis_tilt", "pelvis_list", "pelvis_rotation")
POSITIONS = ("pelvis_tx", "pelvis_ty", "pelvis_tz")  # metres; all other coordinates are degrees
# Middle of the hip joints in the model's pelvis, metres, for a model of this height.
_HIPS_IN_PELVIS_M = np.array([-0.0707, -0.0661, 0.0])
_MODEL_HEIGHT_M = 1.70


def our_angle(coordinate: str) -> tuple[str, int] | None:
    """Return our angle and its sign for a coordinate of the model; None: it has a formula."""
    if coordinate in _OF_TRUNK:
        return _OF_TRUNK[coordinate]
    name, _, side = coordinate.rpartition("_")
    if name in _OF_SIDE and side in _SIDES:
        angle, sign = _OF_SIDE[name]
        return angle.format(_SIDES[side]), sign
    return None


def model_coordinates(person: Person, scene: SceneFrame) -> dict[str, np.ndarray]:
    """Return the model's coordinates [T] by name: degrees, and metres of the pelvis' position."""
    angles = person_angles_deg(person)
    turned = _pelvis_in_scene(person, scene)
    columns = dict(zip(_PELVIS, _continuous(euler_deg(turned, "ZXY")).T, strict=True))
    columns |= dict(zip(POSITIONS, _pelvis_position_m(person, scene, turned).T, strict=True))
    for side_letter, side in _SIDES.items():
        for name in _OF_SIDE:
            angle, sign = _OF_SIDE[name]
            columns[f"{name}_{side_letter}"] = sign * angles[angle.format(side)]
        arm = euler_deg(humerus_from_trunk(_upper_arm(person, side), side), "ZXY")
        names = [f"{name}_{side_letter}" for name in _ARM]
        columns |= dict(zip(names, arm.T, strict=True))
    for name, (angle, sign) in _OF_TRUNK.items():
        columns[name] = sign * angles[angle]
    return columns


def coordinate_std_deg(person: Person) -> dict[str, np.ndarray]:
    """Return the standard deviations [T] of the coordinates that are one of our angles."""
    deviations = person_angle_std_deg(person)
    names = [f"{name}_{side}" for side in _SIDES for name in _OF_SIDE]
    found: Mapping[str, tuple[str, int] | None] = {
        name: our_angle(name) for name in [*names, *_OF_TRUNK]
    }
    return {name: deviations[pair[0]] for name, pair in found.items() if pair is not None}


def _pelvis_in_scene(person: Person, scene: SceneFrame) -> Rotation:
    """Return the pelvis' rotations in the scene, in the model's axes."""
    turned = Rotation.from_matrix(scene.at(person.frame)[:, :3, :3]) * Rotation.from_rotvec(
        person.pose_rad[:, 0]
    )
    return Rotation.from_matrix(turned.as_matrix() @ ISB_FROM_BODY.T)


def _pelvis_position_m(person: Person, scene: SceneFrame, turned: Rotation) -> np.ndarray:
    """Return where the model's pelvis [T, 3] is for its hips to be where ours are."""
    hips = [JOINT_NAMES.index(f"{side}_hip") for side in ("left", "right")]
    hips_m = scene.points(person.joints_m[:, hips].astype(np.float64), person.frame).mean(1)
    return hips_m - turned.apply(person.height_m / _MODEL_HEIGHT_M * _HIPS_IN_PELVIS_M)


def _upper_arm(person: Person, side: str) -> Rotation:
    """Return the upper arm's rotations relative to the upper trunk."""
    collar, shoulder = (JOINT_NAMES.index(f"{side}_{name}") for name in ("collar", "shoulder"))
    assert PARENTS[collar] == JOINT_NAMES.index("spine3")
    return Rotation.from_rotvec(person.pose_rad[:, collar]) * Rotation.from_rotvec(
        person.pose_rad[:, shoulder]
    )


def _continuous(angles_deg: np.ndarray) -> np.ndarray:
    """Return angles [T, 3] without jumps of full turns."""
    return np.degrees(np.unwrap(np.radians(angles_deg), axis=0))
