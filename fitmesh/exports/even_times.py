"""Motion at even times, for formats with one frame rate."""

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

_SAME_TIME = 0.05  # of a frame: containers round time stamps, to a millisecond in mkv


def evenly(
    time_s: np.ndarray, rotations: list[Rotation], position_m: np.ndarray, step_s: float
) -> tuple[list[Rotation], np.ndarray]:
    """Rotations of T frames and positions [T, ...] at times [T] -> the same every `step_s` from the first time on.

    Frames that are at even times already stay as they are.
    """
    at = (time_s - time_s[0]) / step_s  # in frames
    if np.abs(at - np.arange(len(at))).max() < _SAME_TIME:
        return rotations, position_m
    wanted = np.minimum(np.arange(int(np.floor(at[-1] + _SAME_TIME)) + 1), at[-1])
    flat = position_m.reshape(len(position_m), -1)
    position_m = np.stack([np.interp(wanted, at, axis) for axis in flat.T], -1).reshape(-1, *position_m.shape[1:])
    return [Slerp(at, rotation)(wanted) for rotation in rotations], position_m
