"""Pose the new body: its weights, forward kinematics, skinning, and how far each joint turns."""

import numpy as np

from tools.open_body.skeleton import JOINT_NAMES, NUMBER, PARENTS
from tools.open_body.surface import Surface

# Degrees about x, y and z that a left or middle joint reaches; on the right y and z turn the other
# way.
_REACH_DEGREES = {
    "hip": ((-110, 40), (-50, 50), (-25, 60)),
    "knee": ((0, 140), (-10, 10), (-8, 8)),
    "ankle": ((-35, 35), (-20, 20), (-20, 20)),
    "foot": ((-40, 40), (-8, 8), (-8, 8)),
    "spine1": ((-20, 45), (-25, 25), (-25, 25)),
    "spine2": ((-15, 35), (-25, 25), (-20, 20)),
    "spine3": ((-15, 30), (-20, 20), (-20, 20)),
    "neck": ((-35, 35), (-45, 45), (-30, 30)),
    "head": ((-30, 30), (-40, 40), (-25, 25)),
    "collar": ((-15, 15), (-25, 25), (-20, 30)),
    "shoulder": ((-70, 70), (-110, 50), (-95, 60)),
    "elbow": ((-60, 60), (-145, 5), (-10, 10)),
    "wrist": ((-75, 75), (-35, 35), (-70, 70)),
    "hand": ((-20, 20), (-20, 20), (-80, 40)),
}


def reach(joint: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest rotation vector [3], radians, of a joint as if it were a
    left one.
    """
    limits = np.array(_REACH_DEGREES[JOINT_NAMES[joint].split("_")[-1]]) * (np.pi / 180)
    return limits[:, 0], limits[:, 1]


def smoothed_weights(weights: np.ndarray, surface: Surface, eyes: np.ndarray) -> np.ndarray:
    """Return skinning weights [v, 24], softened over the surface and freed of traces; eyeballs
    follow the head alone.
    """
    weights = weights / weights.sum(1, keepdims=True)
    for _ in range(4):
        weights = 0.5 * weights + 0.5 * (surface.neighbour_mean @ weights)
    weights[eyes] = 0
    weights[eyes, NUMBER["head"]] = 1
    weights[weights < 0.004] = 0
    return weights / weights.sum(1, keepdims=True)


def rotation(vector: np.ndarray) -> np.ndarray:
    """Return the rotation matrix [3, 3] of a rotation vector [3]."""
    angle = np.linalg.norm(vector)
    if angle < 1e-9:
        return np.eye(3)
    x, y, z = vector / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def bone_transforms(rotations: np.ndarray, joints: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Local rotations [24, 3, 3] and rest joints [24, 3] -> [24, 3, 4] rest to posed, and posed
    joints [24, 3].
    """
    world = np.zeros((24, 3, 3))
    placed = np.zeros((24, 3))
    world[0] = rotations[0]
    placed[0] = joints[0]
    for joint in range(1, 24):
        parent = PARENTS[joint]
        world[joint] = world[parent] @ rotations[joint]
        placed[joint] = placed[parent] + world[parent] @ (joints[joint] - joints[parent])
    shift = placed - np.einsum("jab,jb->ja", world, joints)
    return np.concatenate([world, shift[:, :, None]], 2), placed


def blend(weights: np.ndarray, transforms: np.ndarray) -> np.ndarray:
    """Return every vertex's own transform, [v, 3, 4]."""
    return np.einsum("vj,jab->vab", weights, transforms)


def apply(blended: np.ndarray, vertices: np.ndarray) -> np.ndarray:
    """Skin: [v, 3]."""
    return np.einsum("vab,vb->va", blended[:, :, :3], vertices) + blended[:, :, 3]
