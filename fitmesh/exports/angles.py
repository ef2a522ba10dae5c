"""Joint angles by the names of biomechanics, in degrees, with the same sign on both sides.

Legs, trunk and neck are zero in the T-pose, arms where they hang along the trunk with the elbow's
crease to the front. The body at rest: x to its left, y up, z to the front. Angles between two bones
come from joint positions; angles of three axes from the rotation R of one segment relative to
another, in the sequences that the International Society of Biomechanics recommends:

hip, ankle, trunk, neck   R = Rx Rz Ry: flexion about the axis from side to side, then bending or
                          abduction, then twist about the segment's length (Grood and Suntay)
pelvis                    R = Ry Rz Rx relative to the world: turn about the vertical first, so that
                          tilt does not depend on where the person faces (Baker)
shoulder                  R = Ry Rx Ry relative to the upper trunk: plane of elevation, elevation,
                          turn about the upper arm"""

import warnings

import numpy as np
from scipy.spatial.transform import Rotation

from fitmesh.person import Person
from fitting.body.kinematics import JOINT_NAMES, PARENTS
from fitting.stated import angle_std_deg

ANGLE_NAMES = (
    "pelvis_tilt_forward",
    "pelvis_bending_right",
    "pelvis_rotation_left",
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
    "left_shoulder_plane",
    "left_shoulder_internal_rotation",
    "right_shoulder_elevation",
    "right_shoulder_plane",
    "right_shoulder_internal_rotation",
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
# From the body's axes to ISB's: x to the front, y up, z to the right.
ISB_FROM_BODY = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
_MIRROR = np.diag([-1.0, 1.0, 1.0])
# Joints whose rotations make an angle, where it is not the joint of the angle's name.
_JOINTS_OF_PART = {
    "pelvis": ("pelvis",),
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


def person_angles_deg(person: Person) -> dict[str, np.ndarray]:
    """Return a person's angles [T] in degrees by ANGLE_NAMES; NaN: the pelvis without a world."""
    return joint_angles_deg(person.pose_rad, person.joints_m, person.world_from_camera)


def person_angle_std_deg(person: Person) -> dict[str, np.ndarray]:
    """Return the standard deviations [T] of a person's angles in degrees by ANGLE_NAMES.

    Plane of elevation and turn of an arm that hangs or points up are only known in sum: the
    deviation of each grows as 1 / sin(elevation).
    """
    deviations = angle_std_deg(person.pose_std_deg, ANGLE_JOINTS)
    angles = person_angles_deg(person)
    for side in ("left", "right"):
        sine = np.abs(np.sin(np.radians(angles[f"{side}_shoulder_elevation"])))
        for name in (f"{side}_shoulder_plane", f"{side}_shoulder_internal_rotation"):
            deviations[name] = np.minimum(deviations[name] / np.maximum(sine, 1e-3), 180.0)
    return deviations


def joint_angles_deg(
    pose_rad: np.ndarray, joints_m: np.ndarray, world_from_camera: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Return the angles [T] in degrees by ANGLE_NAMES, of axis-angles [T, 24, 3] and posed joints
    [T, 24, 3].

    world_from_camera: [T, 4, 4] to a world with y up; without it, angles of the pelvis are NaN.
    """
    local = [Rotation.from_rotvec(pose_rad[:, joint]) for joint in range(len(JOINT_NAMES))]
    from_rest: list[Rotation] = []
    for turn, parent in zip(local, PARENTS, strict=True):
        from_rest.append(turn if parent < 0 else from_rest[parent] * turn)
    angles = _pelvis_deg(local[0], world_from_camera)
    trunk = from_rest[_JOINT["spine3"]]
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
        trunk_down = -trunk.as_matrix()[:, :, 1]
        angles[f"{side}_shoulder_elevation"] = _between_deg(arm, trunk_down)
        upper_arm = trunk.inv() * from_rest[_JOINT[f"{side}_shoulder"]]
        # Of the two equal sequences this is the one whose elevation is negative, as in ISB's.
        plane, _, twist = euler_deg(humerus_from_trunk(upper_arm, side), "YXY").T
        angles[f"{side}_shoulder_plane"] = _half_turn(plane)
        angles[f"{side}_shoulder_internal_rotation"] = _half_turn(twist)
    for part, lower, upper in (("trunk", "pelvis", "spine3"), ("neck", "spine3", "head")):
        relative = from_rest[_JOINT[lower]].inv() * from_rest[_JOINT[upper]]
        flexion, bending, rotation = euler_deg(relative, "XZY").T
        angles[f"{part}_flexion"] = flexion
        angles[f"{part}_bending_right"] = bending
        angles[f"{part}_rotation_left"] = rotation
    return {name: angles[name] for name in ANGLE_NAMES}


def _pelvis_deg(pelvis: Rotation, world_from_camera: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the angles of the pelvis relative to the world."""
    names = ("pelvis_rotation_left", "pelvis_bending_right", "pelvis_tilt_forward")
    if world_from_camera is None:
        return {name: np.full(len(pelvis), np.nan) for name in names}
    turned = Rotation.from_matrix(world_from_camera[:, :3, :3]) * pelvis
    return dict(zip(names, euler_deg(turned, "YZX").T, strict=True))


def humerus_from_trunk(upper_arm: Rotation, side: str) -> Rotation:
    """Return rotations of the upper arm relative to the trunk in ISB's axes (x to the front, y up,
    z to the right), zero where the arm hangs; a left arm is mirrored, so that signs are equal.

    upper_arm: relative to the trunk in the body's axes, zero in the T-pose.
    """
    matrix = upper_arm.as_matrix()
    if side == "left":
        matrix = _MIRROR @ matrix @ _MIRROR
    in_isb_axes = Rotation.from_matrix(ISB_FROM_BODY @ matrix @ ISB_FROM_BODY.T)
    return in_isb_axes * Rotation.from_euler("x", -90, degrees=True)  # from hanging to the T-pose


def _half_turn(angle_deg: np.ndarray) -> np.ndarray:
    """Return angles turned by 180 degrees, from -180 to 180."""
    return (angle_deg + 360) % 360 - 180


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
