"""Whether the rays of two cameras' keypoints meet within their stated errors.

Of two rays x_a and x_b (x / z, y / z) of one point the epipolar residual, whitened by the stated
errors to first order (Sampson's), is

    d^2 = (x_b . E x_a)^2 / (sigma_b^2 |E x_a|_xy^2 + sigma_a^2 |E^T x_b|_xy^2),       E = [t]_x R,

about 1 where two tracks are of one person at one time. A keypoint gains MEETS - min(d^2, FAR),
half the logarithm of the odds that the rays belong together. Sums of gains find time offsets
(`offsets`), match people (`association`) and judge a calibration (`check`).
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from scipy.optimize import linear_sum_assignment

from fitting.rig.rig import Rig
from fitting.rig.sights import Sight, sample_times

MEETS, FAR = 4.0, 9.0
FEWEST_KEYPOINTS = 30  # that two cameras must see together before their rays are compared

Rays = tuple[np.ndarray, np.ndarray]  # directions [..., 2] and standard deviations [...]
Pose = tuple[np.ndarray, np.ndarray]  # rotation [3, 3] and translation [3] between two cameras


def epipolar_residual(a: Rays, b: Rays, pose: Pose) -> tuple[np.ndarray, np.ndarray]:
    """Return the signed residual d [...] and whether rays meet behind a camera [...].

    d is NaN where one of the rays is not visible. pose: from the first camera to the second.
    """
    rays_a, sigma_a = a
    rays_b, sigma_b = b
    rotation, translation = pose
    direction_a = np.concatenate((rays_a, np.ones_like(rays_a[..., :1])), -1)
    direction_b = np.concatenate((rays_b, np.ones_like(rays_b[..., :1])), -1)
    turned_a = direction_a @ rotation.T
    line_b = np.cross(translation, turned_a)
    line_a = -np.cross(translation, direction_b) @ rotation  # E^T x_b
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.square(sigma_b) * np.square(line_b[..., :2]).sum(-1)
        variance = variance + np.square(sigma_a) * np.square(line_a[..., :2]).sum(-1)
        residual = (direction_b * line_b).sum(-1) / np.sqrt(variance)
    cross = np.cross(direction_b, turned_a)
    # The depth in a camera is minus this product over |cross|^2.
    behind = (cross * np.cross(direction_b, translation)).sum(-1) > 0
    behind |= (cross * np.cross(turned_a, translation)).sum(-1) > 0
    visible = np.isfinite(sigma_a) & np.isfinite(sigma_b)
    return np.where(visible, residual, np.nan), behind


def squared_residual(a: Rays, b: Rays, pose: Pose) -> np.ndarray:
    """Return d^2 [...] limited to FAR, which also holds where rays meet behind a camera."""
    residual, behind = epipolar_residual(a, b, pose)
    limited = np.minimum(np.square(residual), FAR)
    return np.where(behind & np.isfinite(residual), FAR, limited)


def score_track_pairs(
    first: Sequence[Sight],
    second: Sequence[Sight],
    pose: Pose,
    lag_s: float,
    times_s: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return for every two tracks of two cameras the sum of gains and the number of keypoints.

    Both are [A, B]. lag_s: offset of the second camera's clock to the first's, on which times_s
    are.
    """
    gain = np.zeros((len(first), len(second)))
    count = np.zeros((len(first), len(second)))
    for i, one in enumerate(first):
        within = times_s[(times_s >= one.time_s[0]) & (times_s <= one.time_s[-1])]
        rays = one.at(within)
        for j, two in enumerate(second):
            squared = squared_residual(rays, two.at(within - lag_s), pose)
            count[i, j] = np.isfinite(squared).sum()
            gain[i, j] = MEETS * count[i, j] - np.nansum(squared)
    return gain, count


def match_tracks(gain: np.ndarray) -> list[tuple[int, int]]:
    """Return the pairs with the largest sum of gains when every track has at most one partner."""
    rows, columns = linear_sum_assignment(-np.maximum(gain, 0))
    return [(int(i), int(j)) for i, j in zip(rows, columns, strict=True) if gain[i, j] > 0]


def score_camera_pairs(
    rig: Rig, tracks: Sequence[Sequence[Sight]], offsets_s: Sequence[float]
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """Yield for every two cameras their numbers and what `score_track_pairs` says of their tracks."""
    for a, b in combinations(range(len(rig)), 2):
        lag_s = offsets_s[b] - offsets_s[a]
        times_s = sample_times(tracks[a])
        gain, count = score_track_pairs(tracks[a], tracks[b], rig.relative(b, a), lag_s, times_s)
        yield a, b, gain, count


def ray_agreement(rig: Rig, tracks: Sequence[Sequence[Sight]], offsets_s: Sequence[float]) -> float:
    """Return how well the rays of all matched people meet, 0 (not at all) .. 1 (exactly).

    NaN where no person is visible in two cameras.
    """
    total = 0.0
    keypoints = 0.0
    for _, _, gain, count in score_camera_pairs(rig, tracks, offsets_s):
        gain = np.where(count >= FEWEST_KEYPOINTS, gain, -np.inf)
        if not np.isfinite(gain).any():
            continue
        best_pair = divmod(int(np.argmax(gain)), gain.shape[1])
        for i, j in match_tracks(gain) or [best_pair]:
            total += gain[i, j]
            keypoints += count[i, j]
    return 1 - (MEETS - total / keypoints) / FAR if keypoints else float("nan")
