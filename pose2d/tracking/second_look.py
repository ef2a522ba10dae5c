"""Who is who within a shot, looked at again once all of it was seen.

Tracks are cut where somebody was not seen for a while; people who met are told apart again (exchanges.py); tracks that
end are joined to those that begin, one to one, at the greatest total log likelihood; and a box far from its track's
path goes to the person it fits, or to nobody.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pose2d.tracking.exchanges import Decision, ExchangeOptions, decide
from pose2d.tracking.paths import TrackPath, rows_of_frames, rows_of_tracks, track_path
from pose2d.types import Detections


@dataclass(frozen=True)
class SecondLookOptions:
    """Chosen on the tuning seeds of bench/identity.py. Lengths are in body sizes (box diagonals), times in seconds."""

    gap_s: float = 0.3  # a longer gap ends a track, until it is joined again
    meet: float = 0.2  # two people meet while their boxes share this much of the smaller one
    apart_s: float = 1.0  # encounters that follow each other sooner are one
    longest_s: float = 5.0  # nobody is expected back after a longer absence
    fastest: float = 3.0  # body sizes a second that somebody unseen may move
    least_gain: float = 0.5  # log likelihood from which tracks are changed
    kept: float = 3.0  # what it says for joining two tracks that the tracker had as one
    switch_candidate: float = 2.0  # an exchange this little less likely is reported
    rounds: int = 2  # of telling people apart and joining
    passes: int = 3  # over all encounters in a round
    near_s: float = 0.5  # a path at one moment comes from so long before and after it
    stray: float = 0.1  # a box farther from it, or of another log height than `stray_size`, is not the person's
    stray_size: float = 0.35
    exchange: ExchangeOptions = field(default_factory=ExchangeOptions)


@dataclass(frozen=True)
class SwitchCandidate:
    """Two tracks that may have been exchanged."""

    time_s: float
    tracks: tuple[int, int]


def look_again(
    seen: Detections, image_wh: tuple[int, int], o: SecondLookOptions
) -> tuple[np.ndarray, list[SwitchCandidate]]:
    """Track numbers [N] after a second look, and exchanges that are nearly as likely."""
    alone, tracker = ~_met(seen, o), seen.identity
    seen = replace(seen, identity=_cut_at_gaps(seen, o.gap_s))
    candidates: list[SwitchCandidate] = []
    settled: dict[_Pair, float] = {}
    for _ in range(o.rounds):
        track, candidates = _told_apart(seen, alone, image_wh, o, settled)
        seen = replace(seen, identity=track)
        track = _joined(seen, tracker, alone, image_wh, o)
        renamed = dict(zip(seen.identity.tolist(), track.tolist(), strict=True))
        candidates = [replace(d, tracks=(renamed[d.tracks[0]], renamed[d.tracks[1]])) for d in candidates]
        seen = replace(seen, identity=track)
    return _without_strays(seen, image_wh, o), [d for d in candidates if d.tracks[0] != d.tracks[1]]


def shared(boxes_px: np.ndarray) -> np.ndarray:
    """The share of the smaller of two boxes that they have in common, [N, N] for boxes [N, 4]; 0 with itself."""
    both = np.minimum(boxes_px[:, None, 2:], boxes_px[:, 2:]) - np.maximum(boxes_px[:, None, :2], boxes_px[:, :2])
    area = (boxes_px[:, 2:] - boxes_px[:, :2]).prod(1)
    share = both.clip(0).prod(-1) / np.maximum(np.minimum(area[:, None], area), 1e-9)
    np.fill_diagonal(share, 0.0)
    return share


def _met(seen: Detections, o: SecondLookOptions) -> np.ndarray:
    """Which detections [N] another person's box overlaps."""
    out = np.zeros(len(seen.identity), bool)
    for rows in rows_of_frames(seen):
        out[rows] = shared(seen.box_px[rows]).max(1) >= o.meet
    return out


def _cut_at_gaps(seen: Detections, gap_s: float) -> np.ndarray:
    """Track numbers [N] such that no track has a longer gap."""
    order = np.lexsort((seen.frame, seen.identity))
    new = (np.diff(seen.identity[order]) != 0) | (np.diff(seen.time_s[order]) > gap_s)
    number = np.empty(len(order), np.int64)
    number[order] = np.concatenate([np.zeros(min(len(order), 1), np.int64), np.cumsum(new)])
    return np.where(seen.identity < 0, -1, number)


@dataclass(frozen=True)
class _Encounter:
    start_s: float
    end_s: float
    tracks: tuple[int, int]


def _encounters(seen: Detections, o: SecondLookOptions) -> list[_Encounter]:
    """When two tracks met, in order of time. It lasts until both are seen again, and begins when both last were."""
    met_s: dict[tuple[int, int], list[float]] = {}
    for rows in rows_of_frames(seen):
        for i, j in np.argwhere(np.triu(shared(seen.box_px[rows]) >= o.meet)):
            pair = int(seen.identity[rows[i]]), int(seen.identity[rows[j]])
            met_s.setdefault(pair, []).append(float(seen.time_s[rows[i]]))
    seen_s = {number: seen.time_s[rows] for number, rows in rows_of_tracks(seen).items()}
    out = []
    for pair, times in met_s.items():
        for run in np.split(np.array(times), np.flatnonzero(np.diff(times) > o.apart_s) + 1):
            start, end = float(run[0]), float(run[-1])
            around = [_around(seen_s[number], start, end) for number in pair]
            start = min([start, *(a for a, _ in around if start - a <= o.longest_s)])
            end = max([end, *(b for _, b in around if b - end <= o.longest_s)])
            out.append(_Encounter(start, end, pair))
    return sorted(out, key=lambda e: (e.start_s, e.tracks))


def _around(times_s: np.ndarray, start_s: float, end_s: float) -> tuple[float, float]:
    """The last of some times before `start_s` and the first after `end_s`; far away where there is none."""
    before, after = times_s[times_s < start_s], times_s[times_s > end_s]
    return float(before[-1]) if len(before) else -np.inf, float(after[0]) if len(after) else np.inf


_Pair = tuple[bytes, bytes, float]  # the detections of two tracks, and when an encounter begins


def _told_apart(
    seen: Detections, alone: np.ndarray, image_wh: tuple[int, int], o: SecondLookOptions, settled: dict[_Pair, float]
) -> tuple[np.ndarray, list[SwitchCandidate]]:
    """Track numbers [N] after every encounter was decided, until nothing changes any more.

    settled: encounters in which nothing was to be changed, and by what margin; not decided again.
    """
    track = seen.identity.copy()
    candidates: list[SwitchCandidate] = []
    for _ in range(o.passes):
        changed, candidates = False, []
        for met in _encounters(replace(seen, identity=track), o):
            one, other = (_rows(seen, track, number) for number in met.tracks)
            pair = one.tobytes(), other.tobytes(), met.start_s
            if pair not in settled and len(one) and len(other):
                paths = [track_path(seen, rows, image_wh, alone) for rows in (one, other)]
                decision = decide(paths[0], paths[1], met.start_s, met.end_s, image_wh, o.exchange)
                if decision is None:
                    continue
                if decision.gain > o.least_gain:
                    mine, theirs = (path.row[_to_exchange(path, decision)] for path in paths)
                    track[mine], track[theirs] = met.tracks[1], met.tracks[0]
                    changed = True
                    continue
                settled[pair] = decision.margin
            if settled.get(pair, np.inf) < o.switch_candidate:
                candidates.append(SwitchCandidate(met.end_s, met.tracks))
        if not changed:
            break
    return track, candidates


def _rows(seen: Detections, track: np.ndarray, number: int) -> np.ndarray:
    rows = np.flatnonzero(track == number)
    return rows[np.argsort(seen.frame[rows], kind="stable")]


def _to_exchange(path: TrackPath, decision: Decision) -> np.ndarray:
    """Which of a path's boxes [T] are the other person's."""
    where = np.searchsorted(decision.frames, path.frame).clip(max=len(decision.frames) - 1)
    within = decision.frames[where] == path.frame
    return np.where(within, decision.crossed[where], (path.frame > decision.frames[-1]) & decision.after)


def _joined(
    seen: Detections, tracker: np.ndarray, alone: np.ndarray, image_wh: tuple[int, int], o: SecondLookOptions
) -> np.ndarray:
    """Track numbers [N] after tracks that end were joined to those that begin; tracker [N]: what the tracker said."""
    paths = [track_path(seen, rows, image_wh, alone) for rows in rows_of_tracks(seen).values()]
    first, second = _candidates(paths, o)
    gain = np.zeros(len(first))
    for n, (i, j) in enumerate(zip(first, second, strict=True)):
        a, b = paths[i], paths[j]
        decision = decide(a, b, float(a.time_s[-1]), float(b.time_s[0]), image_wh, o.exchange)
        if decision is not None:
            joined = decision.gain if decision.after else -decision.margin
            gain[n] = joined + o.kept * (tracker[a.row[-1]] == tracker[b.row[0]])
    good = gain > 0
    number = np.arange(len(paths))
    for rows, columns, gains in components(first[good], second[good], gain[good], len(paths)):
        for r, c in zip(*linear_sum_assignment(-gains), strict=True):
            if gains[r, c] > 0:
                number[columns[c]] = rows[r]
    track = np.full(len(seen.identity), -1, np.int64)
    for n, path in enumerate(paths):
        while number[n] != n:
            n = int(number[n])
        track[path.row] = n
    return track


def _candidates(paths: list[TrackPath], o: SecondLookOptions, block: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of paths of which the second begins soon after and near where the first ends; some at a time, since of
    hundreds of people nearly all pairs are not."""
    empty = np.zeros(0, np.int64)
    if not paths:
        return empty, empty
    ends, starts = (np.array([[p.time_s[at], *p.place[at, :2], p.body_px[at]] for p in paths]) for at in (-1, 0))
    pairs = [(empty, empty)]
    for begin in range(0, len(paths), block):
        end = ends[begin : begin + block, None]
        wait = starts[None, :, 0] - end[..., 0]
        away = np.linalg.norm(starts[None, :, 1:3] - end[..., 1:3], axis=-1) / np.sqrt(end[..., 3] * starts[:, 3])
        i, j = np.nonzero((wait > 0) & (wait <= o.longest_s) & (away <= 0.5 + o.fastest * wait))
        pairs.append((begin + i, j))
    return np.concatenate([i for i, _ in pairs]), np.concatenate([j for _, j in pairs])


def components(
    i: np.ndarray, j: np.ndarray, gain: np.ndarray, count: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Groups of pairs with a member in common: first members [R], second members [C], and gains [R, C], 0 for none."""
    if not len(i):
        return
    graph = coo_array((np.ones(len(i)), (i, j + count)), shape=(2 * count, 2 * count))
    label = connected_components(graph, directed=False)[1][i]
    for mine in np.split(np.argsort(label, kind="stable"), np.flatnonzero(np.diff(np.sort(label))) + 1):
        rows, row = np.unique(i[mine], return_inverse=True)
        columns, column = np.unique(j[mine], return_inverse=True)
        gains = np.zeros((len(rows), len(columns)))
        gains[row, column] = gain[mine]
        yield rows, columns, gains


def _without_strays(seen: Detections, image_wh: tuple[int, int], o: SecondLookOptions) -> np.ndarray:
    """Track numbers [N] after single boxes that do not fit the path of their track went to the one they fit."""
    track = seen.identity.copy()
    paths = {number: track_path(seen, rows, image_wh) for number, rows in rows_of_tracks(seen).items()}
    for path in paths.values():
        track[path.row[(_misfit(path, path, o) > 1) & (_from_neighbours(path, o) > 1)]] = -1
    for row in np.flatnonzero((track < 0) & (seen.identity >= 0)):
        stray = track_path(seen, np.array([row]), image_wh)
        track[row] = _best_fit(stray, paths, track, o)
    return track


def _from_neighbours(path: TrackPath, o: SecondLookOptions) -> np.ndarray:
    """How far each box [T] of a path is from the nearer of the second one before and the second one after it, in units
    of what is allowed: where somebody jumps, one of them is near; of one or two boxes of somebody else neither is."""
    steps = np.abs(path.place[2:] - path.place[:-2])
    step = np.maximum(steps[:, :2].max(1) / (o.stray * path.body_px[2:]), steps[:, 2] / o.stray_size)
    far = np.full(2, np.inf)
    return np.minimum(np.append(far, step), np.append(step, far))[: len(path)]


def _best_fit(stray: TrackPath, paths: Mapping[int, TrackPath], track: np.ndarray, o: SecondLookOptions) -> int:
    """The track that one box fits and that has no other in its frame; -1: none."""
    best, least = -1, 1.0
    for number, path in paths.items():
        here = path.row[path.frame == stray.frame[0]]
        if not path.time_s[0] < stray.time_s[0] < path.time_s[-1] or (track[here] == number).any():
            continue
        misfit = float(_misfit(path, stray, o)[0])
        if 0 < misfit < least:
            best, least = number, misfit
    return best


def _misfit(path: TrackPath, boxes: TrackPath, o: SecondLookOptions) -> np.ndarray:
    """How far boxes [M] are from the straight line through the other boxes of a path around them, in units of what is
    allowed; 0 where the path has none on either side."""
    out = np.zeros(len(boxes))
    for n, time_s in enumerate(boxes.time_s):
        around = slice(*np.searchsorted(path.time_s, [time_s - o.near_s, time_s + o.near_s]))
        dt = path.time_s[around] - time_s
        weight = np.where(dt == 0, 0.0, 1 - np.abs(dt) / o.near_s).clip(0)
        if not ((weight * (dt > 0)).any() and (weight * (dt < 0)).any() and (weight > 0).sum() >= 3):
            continue
        s0, s1, s2 = weight.sum(), weight @ dt, weight @ dt**2
        line = (s2 * weight - s1 * weight * dt) @ path.place[around] / max(s0 * s2 - s1**2, 1e-12)
        off = np.abs(boxes.place[n] - line)
        out[n] = max(off[:2].max() / (o.stray * boxes.body_px[n]), off[2] / o.stray_size, 1e-9)
    return out
