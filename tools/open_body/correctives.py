"""Pose correctives: what linear skinning gets wrong, as a linear function of each joint's rotation
matrix.

The target for one joint's rotation is the skinned mesh with twist spread along the limb and its
surface repaired by delta mush. The shipped body leaves correctives out; the keypoint regressors are
fitted on meshes that have them, since those bend more as bodies do.
"""

import numpy as np

from tools.open_body.posing import apply, blend, bone_transforms, reach, rotation
from tools.open_body.skeleton import FLIP, JOINT_MIRROR, JOINT_NAMES, NUMBER
from tools.open_body.surface import DeltaMush

_SAMPLES = 60
_LONGEST_M = 0.06  # of one vertex's correction
_LEAST = 4e-4  # vertices that move less are left alone
_MATRIX_MIRROR = np.array(
    [1.0, -1, -1, -1, 1, 1, -1, 1, 1]
)  # R - I of the mirrored rotation, row by row


def find(
    rng: np.random.Generator,
    template: np.ndarray,  # [v, 3]
    joints: np.ndarray,  # [24, 3] at rest
    weights: np.ndarray,  # [v, 24]
    mirror: np.ndarray,  # [v]
    mush: DeltaMush,
) -> np.ndarray:
    """Return the pose directions [v, 3, 207]: metres per unit of R - I of joints 1 to 23."""
    correctives = np.zeros((len(template), 3, 23, 9))
    twists = _Twists(template, joints, weights)
    for joint in range(1, 24):
        second = JOINT_MIRROR[joint]
        if JOINT_NAMES[joint].startswith("right"):
            continue
        basis = _fit(rng, joint, template, joints, weights, twists, mush)  # [9, v, 3]
        if second == joint:
            basis = 0.5 * (basis + _mirrored(basis, mirror))
        basis[:, np.abs(basis).max((0, 2)) < _LEAST] = 0
        correctives[:, :, joint - 1] = basis.transpose(1, 2, 0)
        if second != joint:
            correctives[:, :, second - 1] = _mirrored(basis, mirror).transpose(1, 2, 0)
    return correctives.reshape(len(template), 3, 207)


def _mirrored(basis: np.ndarray, mirror: np.ndarray) -> np.ndarray:
    return (basis[:, mirror] * FLIP) * _MATRIX_MIRROR[:, None, None]


def _fit(
    rng: np.random.Generator,
    joint: int,
    template: np.ndarray,
    joints: np.ndarray,
    weights: np.ndarray,
    twists: "_Twists",
    mush: DeltaMush,
) -> np.ndarray:
    """Ridge regression of corrections on R - I over random rotations within the joint's reach."""
    least, most = reach(joint)
    features = []
    corrections = []
    for sample in range(_SAMPLES):
        vector = rng.uniform(least, most) * (1.0 if sample % 3 else rng.uniform(0.3, 1))
        rotations = np.repeat(np.eye(3)[None], 24, 0)
        rotations[joint] = rotation(vector)
        blended = blend(weights, bone_transforms(rotations, joints)[0])
        requested = mush(apply(blended, twists.spread(joint, rotations[joint])))
        # The corrected rest vertex that skinning would bring to where it should be.
        at_rest = np.linalg.solve(blended[:, :, :3], (requested - blended[:, :, 3])[:, :, None])[
            :, :, 0
        ]
        correction = at_rest - template
        length = np.linalg.norm(correction, axis=1)
        correction *= np.minimum(1, _LONGEST_M / (length + 1e-9))[:, None]
        features.append((rotations[joint] - np.eye(3)).ravel())
        corrections.append(correction.ravel())
    x = np.array(features)
    y = np.array(corrections)
    ridge = 1e-3 * _SAMPLES * np.eye(9)
    return np.linalg.solve(x.T @ x + ridge, x.T @ y).reshape(9, len(template), 3)


class _Twists:
    """Twist about a limb, spread along it: the forearm takes the wrist's bit by bit, the upper arm
    and the thigh turn least at their roots."""

    def __init__(self, template: np.ndarray, joints: np.ndarray, weights: np.ndarray) -> None:
        self._template = template
        self._joints = joints
        self._weights = weights
        self._limbs: dict[
            int, tuple[int, int]
        ] = {}  # the joint that twists: where its limb starts and ends
        for side in ("left", "right"):
            for joint, start, end in (
                ("wrist", "elbow", "wrist"),
                ("shoulder", "shoulder", "elbow"),
                ("hip", "hip", "knee"),
            ):
                self._limbs[NUMBER[f"{side}_{joint}"]] = (
                    NUMBER[f"{side}_{start}"],
                    NUMBER[f"{side}_{end}"],
                )

    def spread(self, joint: int, turned: np.ndarray) -> np.ndarray:
        """Return the rest mesh [v, 3], twisted ahead of the joint's own rotation."""
        if joint not in self._limbs:
            return self._template
        start, end = self._limbs[joint]
        axis = self._joints[end] - self._joints[start]
        along = np.clip(((self._template - self._joints[start]) @ axis) / (axis @ axis), 0, 1)
        axis /= np.linalg.norm(axis)
        twist = _twist_angle(turned, axis)
        if end == joint:  # a part of the wrist's twist reaches into the forearm
            share = along * np.clip(self._weights[:, start], 0, 1) * (along < 1)
            return _turned_about(self._template, self._joints[end], axis, twist * share)
        share = (
            -(1 - along) * 0.8 * np.clip(self._weights[:, joint], 0, 1)
        )  # the root of the limb is held back
        return _turned_about(self._template, self._joints[start], axis, twist * share)


def _twist_angle(matrix: np.ndarray, axis: np.ndarray) -> float:
    """Return the part of a rotation that is about the axis, from its quaternion."""
    real = np.sqrt(max(0, 1 + np.trace(matrix))) / 2
    if real < 1e-6:
        return 0.0
    skew = np.array(
        [matrix[2, 1] - matrix[1, 2], matrix[0, 2] - matrix[2, 0], matrix[1, 0] - matrix[0, 1]]
    )
    return float(2 * np.arctan2(skew / (4 * real) @ axis, real))


def _turned_about(
    vertices: np.ndarray, centre: np.ndarray, axis: np.ndarray, angle: np.ndarray
) -> np.ndarray:
    """Turn every vertex by its own angle [v] about an axis through the centre."""
    offset = vertices - centre
    cosine = np.cos(angle)[:, None]
    sine = np.sin(angle)[:, None]
    return (
        centre
        + offset * cosine
        + np.cross(axis, offset) * sine
        + axis * (offset @ axis)[:, None] * (1 - cosine)
    )
