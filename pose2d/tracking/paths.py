"""One track in order of time, and where it jumps in place, size or appearance: there it is taken for two people."""

from dataclasses import dataclass

import numpy as np

from pose2d.base.table import Table, column, nested
from pose2d.tracking.appearance import log_likelihood_ratio_of_pairs, mean_appearance, unseen, window_sums
from pose2d.types import Appearance, Detections

TORSO_SURE = 0.3  # confidence times presence from which a keypoint of the torso says where it is
EDGE = 0.03  # a box ending this near an edge, in image sides, is cut by it, as in kalman.MotionOptions


@dataclass(frozen=True)
class JumpOptions:
    """Chosen on the tuning seeds of bench/identity.py; none of the shared clips' single people is split."""

    split_cost: float = 12.0  # a step of a track that costs more than this (see `step_cost`) splits it
    appearance_range: tuple[float, float] = (-8.0, 4.0)  # limits of what appearance says about a step
    window_s: float = 0.5  # velocity and appearance come from so far on either side: one bad frame is no evidence


@dataclass(frozen=True)
class TrackPath(Table):
    """One track: T detections of what is taken for one person, in order of time."""

    row: np.ndarray = column((), "i", "number of the detection among all")
    frame: np.ndarray = column((), "i", "frame number")
    time_s: np.ndarray = column((), "d", "strictly increasing", unit="s")
    centre_px: np.ndarray = column((2,), "d", "of the torso, or of the box where that was not seen", unit="px")
    from_torso: np.ndarray = column((), "b", "which of the two `centre_px` is")
    place: np.ndarray = column((3,), "d", "of the box: centre x and upper edge (legs are hidden first), log height")
    body_px: np.ndarray = column((), "d", "the body's size: a box's diagonal", unit="px")
    inside: np.ndarray = column((), "b", "the box ends at no edge of the image")
    alone: np.ndarray = column((), "b", "nobody else overlaps it, so that its appearance is surely its own")
    appearance: Appearance = nested(Appearance, "weight 0 where nobody looked")


def track_path(
    seen: Detections, row: np.ndarray, image_wh: tuple[int, int], alone: np.ndarray | None = None
) -> TrackPath:
    """From the numbers `row` [T] of a track's detections, in order of time, among all N; alone [N].

    A box shrinks and moves when something hides the legs; the torso does not: its centre is used in every frame in
    which all its keypoints reach TORSO_SURE.
    """
    part = seen.picked(row)
    boxes = part.box_px
    centre, from_torso = (boxes[:, :2] + boxes[:, 2:]) / 2, np.zeros(len(row), bool)
    if part.keypoints is not None:
        names, xy_px = part.keypoints.skeleton.keypoints, part.xy_px
        torso = [names.index(f"{side}_{joint}") for joint in ("shoulder", "hip") for side in ("left", "right")]
        from_torso = (part.sure[:, torso] >= TORSO_SURE).all(1) & np.isfinite(xy_px[:, torso]).all((1, 2))
        centre = np.where(from_torso[:, None], np.nan_to_num(xy_px[:, torso]).mean(1), centre)
    height = np.maximum(boxes[:, 3] - boxes[:, 1], 1.0)
    return TrackPath(
        row=row,
        frame=part.frame,
        time_s=part.time_s,
        centre_px=centre,
        from_torso=from_torso,
        place=np.stack([(boxes[:, 0] + boxes[:, 2]) / 2, boxes[:, 1], np.log(height)], 1),
        body_px=body_sizes(part.time_s, boxes),
        inside=inside_image(boxes, image_wh),
        alone=np.zeros(len(row), bool) if alone is None else alone[row],
        appearance=unseen(len(row)) if part.appearance is None else part.appearance,
    )


def rows_of_tracks(seen: Detections) -> dict[int, np.ndarray]:
    """Of every track its rows in order of time."""
    order = np.lexsort((seen.frame, seen.identity))
    parts = np.split(order, np.flatnonzero(np.diff(seen.identity[order])) + 1)
    return {int(seen.identity[rows[0]]): rows for rows in parts if len(rows) and seen.identity[rows[0]] >= 0}


def rows_of_frames(seen: Detections) -> list[np.ndarray]:
    """The rows of each frame that belong to a track, in order of time and track."""
    kept = np.flatnonzero(seen.identity >= 0)
    order = kept[np.lexsort((seen.identity[kept], seen.frame[kept]))]
    return [rows for rows in np.split(order, np.flatnonzero(np.diff(seen.frame[order])) + 1) if len(rows)]


def inside_image(boxes_px: np.ndarray, image_wh: tuple[int, int]) -> np.ndarray:
    """Which boxes [N, 4] end at no edge of the image, [N]: nobody comes or goes there but behind something."""
    margin = EDGE * np.array(image_wh)
    return np.all((boxes_px[:, :2] >= margin) & (boxes_px[:, 2:] <= np.array(image_wh) - margin), axis=1)


def body_sizes(time_s: np.ndarray, boxes_px: np.ndarray, near_s: float = 0.5) -> np.ndarray:
    """The body's size at each of T detections: the largest diagonal of a box within half a second either way, since
    half a person's box is not a smaller person. [T] pixels."""
    return np.maximum(largest_near(np.linalg.norm(boxes_px[:, 2:] - boxes_px[:, :2], axis=-1), time_s, near_s), 1.0)


def largest_near(values: np.ndarray, time_s: np.ndarray, near_s: float) -> np.ndarray:
    """The largest of values [T] within `near_s` either way of each time [T], in order: [T]."""
    first = np.searchsorted(time_s, time_s - near_s)
    end = np.searchsorted(time_s, time_s + near_s, side="right")
    return np.array([values[a:b].max() for a, b in zip(first, end, strict=True)])


def step_cost(path: TrackPath, options: JumpOptions) -> np.ndarray:
    """How implausible each step from a detection to the next is, [T - 1], as minus a log-likelihood ratio: place and
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
    std = 0.05 + np.where(torso, 0.0, 0.15) + (0.3 + 0.5 * unsteady) * dt  # body sizes
    moved = np.diff(path.centre_px, axis=0) / body - expected
    # One misplaced frame is no jump: the whole windows before and after must be apart too.
    middle = (t[:-1] + t[1:]) / 2
    apart = (_extrapolated(path, *after, middle) - _extrapolated(path, *before, middle)) / body
    place2 = np.minimum((moved**2).sum(-1), (apart**2).sum(-1)) / std**2
    size2 = np.diff(np.log(path.body_px)) ** 2 / (0.12**2 + 0.4**2 * dt)
    alike = log_likelihood_ratio_of_pairs(*(mean_appearance(path.appearance, *window) for window in (before, after)))
    return (place2 + size2) / 2 - np.clip(alike, *options.appearance_range)


def splits(path: TrackPath, options: JumpOptions) -> list[int]:
    """The detections at which somebody else begins."""
    cost = step_cost(path, options)
    starts: list[int] = []
    for step in np.flatnonzero(cost > options.split_cost):
        # Windows blur a change over its neighbours: the dearest step nearby is the place.
        near = np.abs(path.time_s[1:] - path.time_s[step + 1]) <= options.window_s
        if cost[step] == cost[near].max() and (not starts or step + 1 - starts[-1] > 1):
            starts.append(int(step) + 1)
    return starts


def _velocities(path: TrackPath, first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Pixels a second over each of M windows of rows, by least squares: [M, 2]; NaN of fewer than three rows."""
    t = (path.time_s - path.time_s[0])[:, None]
    count = (end - first)[:, None]
    s, ss, x, sx = (window_sums(v, first, end) for v in (t, t * t, path.centre_px, t * path.centre_px))
    n = np.maximum(count, 1)
    slope = (sx - s * x / n) / np.maximum(ss - s * s / n, 1e-9)
    return np.where(count >= 3, slope, np.nan)


def _extrapolated(path: TrackPath, first: np.ndarray, end: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """Where the straight line through each of M windows of rows is at a time [M]: [M, 2] pixels."""
    velocity = np.nan_to_num(_velocities(path, first, end))
    count = np.maximum(end - first, 1)[:, None]
    mean_px = window_sums(path.centre_px, first, end) / count
    mean_s = path.time_s[0] + window_sums((path.time_s - path.time_s[0])[:, None], first, end) / count
    return mean_px + velocity * (time_s[:, None] - mean_s)
