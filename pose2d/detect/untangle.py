"""Whose a box is while people overlap, once it is known who they were before and after.

Between two stretches in which a person was alone, the person's place is known within little: interpolated, by the
centre of the box, its upper edge (legs are hidden first) and its height. Boxes of people who overlap are given once
more to the people who must be there, frame by frame, at the least total cost. It undoes the moments in which a tracker
gives the box of one person to the track of another and takes it back.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment


@dataclass(frozen=True)
class UntangleOptions:
    """Chosen on the tuning seeds of bench/identity.py."""

    longest_s: float = 3.0  # nothing is interpolated over more
    place: float = 0.06  # standard deviation of an interpolated place at its ends, in box heights
    drift: float = 0.15  # and by how much it grows in a second from the nearer end
    height: float = 0.15  # of the log height: boxes shrink where something hides a part
    keep: float = 2.0  # by how much (-2 log likelihood) another person must explain a box better than its track's


def untangled(
    track: np.ndarray,
    frame: np.ndarray,
    time_s: np.ndarray,
    boxes_px: np.ndarray,
    alone: np.ndarray,
    o: UntangleOptions,
) -> np.ndarray:
    """Track numbers [N] of sightings with boxes [N, 4], those that are not `alone` [N] given once more; -1 stays."""
    out = track.copy()
    tangled = np.flatnonzero(~alone & (track >= 0))
    if not len(tangled):
        return out
    values = _values(boxes_px)
    frames, first = np.unique(frame[tangled], return_index=True)
    times = time_s[tangled][first]
    expected: dict[int, list[tuple[int, np.ndarray, np.ndarray]]] = {}  # by frame: track, values, deviations
    for number, before, after in _gaps(track, time_s, alone, o):
        here = slice(np.searchsorted(times, time_s[before], "right"), np.searchsorted(times, time_s[after], "left"))
        for n, now in zip(frames[here].tolist(), times[here].tolist(), strict=True):
            share = (now - time_s[before]) / (time_s[after] - time_s[before])
            sigma = o.place + o.drift * min(now - time_s[before], time_s[after] - now)
            value = (1 - share) * values[before] + share * values[after]
            scale = np.array([sigma * np.exp(value[2])] * 2 + [o.height])
            expected.setdefault(n, []).append((number, value, scale))
    order = tangled[np.argsort(frame[tangled], kind="stable")]
    for rows in np.split(order, np.flatnonzero(np.diff(frame[order])) + 1):
        people = expected.get(int(frame[rows[0]]), [])
        if people:
            out[rows] = _assigned(track[rows], values[rows], people, o)
    return out


def _assigned(
    track: np.ndarray, values: np.ndarray, people: list[tuple[int, np.ndarray, np.ndarray]], o: UntangleOptions
) -> np.ndarray:
    """For boxes of one frame with `values` [M, 3] the track of each, [M]; boxes of tracks not expected there stay."""
    known = {number for number, _, _ in people}
    rows = np.array([n for n, number in enumerate(track.tolist()) if number in known], int)
    out = track.copy()
    if not len(rows):
        return out
    cost = np.array([np.minimum(((values[rows] - value) / scale) ** 2, 50).sum(-1) for _, value, scale in people]).T
    cost -= o.keep * (track[rows][:, None] == np.array([number for number, _, _ in people]))
    for r, c in zip(*linear_sum_assignment(cost), strict=True):
        out[rows[r]] = people[c][0]
    return out


def _gaps(track: np.ndarray, time_s: np.ndarray, alone: np.ndarray, o: UntangleOptions) -> list[tuple[int, int, int]]:
    """Where a person was not alone or not seen: track, and the rows before and after."""
    rows = np.flatnonzero(alone & (track >= 0))
    rows = rows[np.lexsort((time_s[rows], track[rows]))]
    wait = np.diff(time_s[rows])
    usual = np.median(wait[wait > 0]) if (wait > 0).any() else 0.0
    gap = (np.diff(track[rows]) == 0) & (wait > 1.5 * usual) & (wait <= o.longest_s)
    return [(int(track[rows[n]]), int(rows[n]), int(rows[n + 1])) for n in np.flatnonzero(gap)]


def _values(boxes_px: np.ndarray) -> np.ndarray:
    """Centre x, upper edge and log height of boxes [N, 4]: [N, 3]."""
    height = np.maximum(boxes_px[:, 3] - boxes_px[:, 1], 1.0)
    return np.stack([(boxes_px[:, 0] + boxes_px[:, 2]) / 2, boxes_px[:, 1], np.log(height)], 1)
