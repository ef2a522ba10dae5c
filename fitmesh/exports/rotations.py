"""Rotations as the file formats write them. numpy, float64; matrices are [..., 3, 3]."""

import numpy as np

from fitting.body.kinematics import PARENTS

HALF_TURN_X = np.array([1.0, 0.0, 0.0, 0.0])  # x, y, z, w: camera axes -> scene axes


def matrices(axis_angle_rad: np.ndarray) -> np.ndarray:
    """Rodrigues' formula, [..., 3] -> [..., 3, 3]."""
    x, y, z, w = np.moveaxis(quaternions(axis_angle_rad), -1, 0)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)),
    )
    return np.stack([np.stack(row, -1) for row in rows], -2)


def quaternions(axis_angle_rad: np.ndarray) -> np.ndarray:
    """[..., 3] -> unit x, y, z, w [..., 4]."""
    vector = np.asarray(axis_angle_rad, np.float64)
    half = np.linalg.norm(vector, axis=-1, keepdims=True) / 2
    return np.concatenate([vector / 2 * np.sinc(half / np.pi), np.cos(half)], -1)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quaternion of the rotation b followed by a, [..., 4]."""
    ax, ay, az, aw = np.moveaxis(a, -1, 0)
    bx, by, bz, bw = np.moveaxis(b, -1, 0)
    return np.stack(
        (
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
            aw * bw - ax * bx - ay * by - az * bz,
        ),
        -1,
    )


def one_hemisphere(xyzw: np.ndarray) -> np.ndarray:
    """Choose the sign of each quaternion [T, ..., 4] next to the one before: players interpolate the numbers."""
    if len(xyzw) < 2:
        return xyzw
    turned = (xyzw[1:] * xyzw[:-1]).sum(-1) < 0
    sign = np.cumprod(np.where(turned, -1.0, 1.0), 0)
    return np.concatenate([xyzw[:1], xyzw[1:] * sign[..., None]])


def slerp(a: np.ndarray, b: np.ndarray, share: np.ndarray) -> np.ndarray:
    """From a [..., 4] (share 0) to b (share 1) the short way round; share broadcasts against [...]."""
    share = np.asarray(share, np.float64)[..., None]
    cosine = (a * b).sum(-1, keepdims=True)
    b = np.where(cosine < 0, -b, b)
    angle = np.arccos(np.clip(np.abs(cosine), 0, 1))
    small = angle < 1e-6
    sine = np.where(small, 1, np.sin(angle))
    wa = np.where(small, 1 - share, np.sin((1 - share) * angle) / sine)
    wb = np.where(small, share, np.sin(share * angle) / sine)
    return wa * a + wb * b


def matrices_from_quaternions(xyzw: np.ndarray) -> np.ndarray:
    """Unit quaternions [..., 4] -> [..., 3, 3]."""
    vector, w = xyzw[..., :3], xyzw[..., 3:]
    norm = np.linalg.norm(vector, axis=-1, keepdims=True)
    angle = 2 * np.arctan2(norm, w)
    return matrices(vector / np.where(norm > 0, norm, 1) * angle)


def world(local: np.ndarray) -> np.ndarray:
    """Local rotations [T, 24, 3, 3] -> rotations from the rest pose, [T, 24, 3, 3]."""
    turned = np.empty_like(local)
    for joint, parent in enumerate(PARENTS):
        turned[:, joint] = local[:, joint] if parent < 0 else turned[:, parent] @ local[:, joint]
    return turned


def euler_zxy_deg(rotation: np.ndarray) -> np.ndarray:
    """[..., 3, 3] -> z, x, y [..., 3] in degrees with R = Rz Rx Ry; x within a quarter turn."""
    x = np.arcsin(np.clip(rotation[..., 2, 1], -1, 1))
    z = np.arctan2(-rotation[..., 0, 1], rotation[..., 1, 1])
    y = np.arctan2(-rotation[..., 2, 0], rotation[..., 2, 2])
    # At a quarter turn of x only z and y together are known: give it all to z.
    locked = np.abs(rotation[..., 2, 1]) > 1 - 1e-9
    z = np.where(locked, np.arctan2(rotation[..., 1, 0], rotation[..., 0, 0]), z)
    y = np.where(locked, 0.0, y)
    return np.degrees(np.stack((z, x, y), -1))


def continuous_zxy_deg(euler_deg: np.ndarray) -> np.ndarray:
    """The same rotations [T, J, 3] with each frame's angles next to those before: curves an animator can edit.

    (z, x, y) and (z + 180, 180 - x, y + 180) are one rotation, and so is any angle plus full turns.
    """
    result = euler_deg.copy()
    for t in range(1, len(result)):
        before = result[t - 1]
        other = np.stack((result[t, :, 0] + 180, 180 - result[t, :, 1], result[t, :, 2] + 180), -1)
        choices = np.stack((result[t], other))
        choices -= 360 * np.round((choices - before) / 360)
        nearer = np.abs(choices - before).sum(-1).argmin(0)
        result[t] = np.take_along_axis(choices, nearer[None, :, None], 0)[0]
    return result
