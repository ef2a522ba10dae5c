"""A track that jumps in place, size or appearance is taken for two people and split."""

from dataclasses import dataclass

import numpy as np

from pose2d.skeletons import Skeleton
from pose2d.tracking.appearance import Appearances, log_likelihood_ratio_of_pairs

TORSO_SURE = 0.3  # confidence times presence from which a keypoint of the torso says where it is
EDGE = 0.03  # a box ending this near an edge, in image sides, is cut by it, as in kalman.MotionOptions


@dataclass(frozen=True)
class JumpOptions:
    """Chosen on the tuning seeds of bench/identity.py; none of the shared clips' single people is split."""

    split_cost: float = 12.0  # a step of a track that costs more than this (see `step_cost`) splits it
    appearance_range: tuple[float, float] = (-8.0, 4.0)  # limits of what appearance says about a step
    window_s: float = 0.5  # velocity and appearance come from so far on either side: one bad frame is no evidence


@dataclass(frozen=True)
class TrackPath:
    """One track: T sightings of what is taken for one person."""

    time_s: np.ndarray  # [T] strictly increasing
    centre_px: np.ndarray  # [T, 2] of the torso, or of the box where that was not seen
    body_px: np.ndarray  # [T] the body's size: a box's diagonal
    from_torso: np.ndarray  # [T] bool: which of the two `centre_px` is
    looks: Appearances  # [T]; unseen where nobody looked
    inside: np.ndarray  # [T] bool: the box ends at no edge of the image

    def __len__(self) -> int:
        return len(self.time_s)


def path_of(
    time_s: np.ndarray,
    boxes_px: np.ndarray,
    xy_px: np.ndarray,
    sure: np.ndarray,
    looks: Appearances,
    skeleton: Skeleton,
    image_wh: tuple[int, int],
) -> TrackPath:
    """From the boxes [T, 4] and keypoints [T, K, 2] of a track, `sure` [T, K] being confidence times presence. A box
    shrinks and moves when something hides the legs; the torso does not: its centre is used in every frame in which all
    its keypoints reach TORSO_SURE."""
    torso = [skeleton.keypoints.index(f"{side}_{joint}") for joint in ("shoulder", "hip") for side in ("left", "right")]
    seen = (sure[:, torso] >= TORSO_SURE).all(1) & np.isfinite(xy_px[:, torso]).all((1, 2))
    middle = np.where(seen[:, None], np.nan_to_num(xy_px[:, torso]).mean(1), (boxes_px[:, :2] + boxes_px[:, 2:]) / 2)
    return TrackPath(time_s, middle, body_sizes(time_s, boxes_px), seen, looks, inside_image(boxes_px, image_wh))


def inside_image(boxes_px: np.ndarray, image_wh: tuple[int, int]) -> np.ndarray:
    """Which boxes [N, 4] end at no edge of the image, [N]: nobody comes or goes there but behind something."""
    margin = EDGE * np.array(image_wh)
    return np.all((boxes_px[:, :2] >= margin) & (boxes_px[:, 2:] <= np.array(image_wh) - margin), axis=1)


def body_sizes(time_s: np.ndarray, boxes_px: np.ndarray, near_s: float = 0.5) -> np.ndarray:
    """The body's size at each of T sightings: the largest diagonal of a box within half a second either way, since half
    a person's box is not a smaller person. [T] pixels."""
    return np.maximum(largest_near(np.linalg.norm(boxes_px[:, 2:] - boxes_px[:, :2], axis=-1), time_s, near_s), 1.0)


def largest_near(values: np.ndarray, time_s: np.ndarray, near_s: float) -> np.ndarray:
    """The largest of values [T] within `near_s` either way of each time [T], in order: [T]."""
    first = np.searchsorted(time_s, time_s - near_s)
    end = np.searchsorted(time_s, time_s + near_s, side="right")
    return np.array([values[a:b].max() for a, b in zip(first, end, strict=True)])


def step_cost(path: TrackPath, options: JumpOptions) -> np.ndarray:
    """How implausible each step from a sighting to the next is, [T - 1], as minus a log-likelihood ratio: place and
    size against constant velocity, appearance before against appearance after. 0 is as usual, 12 is another person."""
    if len(path) < 2:
        return np.zeros(0)
    t, dt = path.time_s, np.diff(path.time_s)
    count = np.arange(len(path))
    before = np.searchsorted(t, t[:-1] - options.window_s, side="right"), count[1:]
    after = count[1:], np.searchsorted(t, t[1:] + options.window_s, side="right")
    body = np.sqrt(path.body_px[:-1] * path.body_px[1:])[:, None]
    velocity = [_velocities(path, *window) / body for window in (before, after)]  # body sizes a second, NaN: unknown
    known = [np.isfinite(v).all(-1) for v in velocity]
    total = sum(np.where(k[:, None], np.nan_to_num(v), 0) for v, k in zip(velocity, known, strict=True))
    expected = total / np.maximum(known[0].astype(float) + known[1], 1)[:, None] * dt[:, None]
    change = np.linalg.norm(np.nan_to_num(velocity[0]) - np.nan_to_num(velocity[1]), axis=-1)
    unsteady = np.where(known[0] & known[1], np.minimum(change, 2.0), 1.0)
    torso = path.from_torso[:-1] & path.from_torso[1:]
    sigma = 0.05 + np.where(torso, 0.0, 0.15) + (0.3 + 0.5 * unsteady) * dt  # body sizes
    moved = np.diff(path.centre_px, axis=0) / body - expected
    # One misplaced frame is no jump: the whole stretches before and after must be apart too.
    middle = (t[:-1] + t[1:]) / 2
    apart = (_extrapolated(path, *after, middle) - _extrapolated(path, *before, middle)) / body
    place2 = np.minimum((moved**2).sum(-1), (apart**2).sum(-1)) / sigma**2
    size2 = np.diff(np.log(path.body_px)) ** 2 / (0.12**2 + 0.4**2 * dt)
    looks = log_likelihood_ratio_of_pairs(*(mean_looks(path.looks, *window) for window in (before, after)))
    return (place2 + size2) / 2 - np.clip(looks, *options.appearance_range)


def splits(path: TrackPath, options: JumpOptions) -> list[int]:
    """The sightings at which somebody else begins."""
    cost = step_cost(path, options)
    found: list[int] = []
    for step in np.flatnonzero(cost > options.split_cost):
        # Windows blur a change over its neighbours: the dearest step nearby is the place.
        near = np.abs(path.time_s[1:] - path.time_s[step + 1]) <= options.window_s
        if cost[step] == cost[near].max() and (not found or step + 1 - found[-1] > 1):
            found.append(int(step) + 1)
    return found


def mean_looks(looks: Appearances, first: np.ndarray, end: np.ndarray) -> Appearances:
    """For each of M windows of rows, `first` up to `end` [M], one appearance: the weighted mean over it."""
    weight = _window_sums(looks.weight, first, end)
    colours = _window_sums(looks.weight[..., None] * looks.colours, first, end)
    seen = _window_sums((looks.weight > 0).any(1).astype(float)[:, None], first, end)
    return Appearances(colours / np.maximum(weight, 1e-9)[..., None], weight / np.maximum(seen, 1))


def _velocities(path: TrackPath, first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Pixels a second over each of M windows of rows, by least squares: [M, 2]; NaN of fewer than three rows."""
    t = (path.time_s - path.time_s[0])[:, None]
    count = (end - first)[:, None]
    s, ss, x, sx = (_window_sums(v, first, end) for v in (t, t * t, path.centre_px, t * path.centre_px))
    n = np.maximum(count, 1)
    slope = (sx - s * x / n) / np.maximum(ss - s * s / n, 1e-9)
    return np.where(count >= 3, slope, np.nan)


def _extrapolated(path: TrackPath, first: np.ndarray, end: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """Where the straight line through each of M windows of rows is at a time [M]: [M, 2] pixels."""
    velocity = np.nan_to_num(_velocities(path, first, end))
    count = np.maximum(end - first, 1)[:, None]
    mean_px = _window_sums(path.centre_px, first, end) / count
    mean_s = path.time_s[0] + _window_sums((path.time_s - path.time_s[0])[:, None], first, end) / count
    return mean_px + velocity * (time_s[:, None] - mean_s)


def _window_sums(values: np.ndarray, first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Sums of rows `first` up to `end` [M] of values [T, ...]: [M, ...]."""
    sums = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, 0, dtype=np.float64)])
    return sums[end] - sums[first]
