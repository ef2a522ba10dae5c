"""Identities within a shot, decided again once all of the shot is known.

Tracks are cut where a person was not detected for a while. The boxes of people who met are given to
them again (exchange.py). Tracks that end are then joined to tracks that begin, one to one, at the
greatest total log likelihood."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from pose2d.detect.boxes import intersection
from pose2d.tracking.exchange import Decision, SecondLookOptions, decide_exchange
from pose2d.tracking.track_path import TrackPath, rows_of_frames, rows_of_tracks, track_path
from pose2d.types import Detections

# Two tracks that may have been exchanged: when in seconds, and the numbers of the two.
Switch = tuple[float, int, int]
# The detections of two tracks (as bytes) and when their encounter begins.
_PairKey = tuple[bytes, bytes, float]


@dataclass(frozen=True)
class _Meeting:
    """A time during which the boxes of two tracks overlap."""

    start_s: float
    tracks: tuple[int, int]
    end_s: float


def look_again(
    detections: Detections, image_wh: tuple[int, int], o: SecondLookOptions
) -> tuple[np.ndarray, list[Switch]]:
    """Return the track numbers [N] of a shot's detections after a second look, and exchanges that
    are nearly as likely.
    """
    overlaps = _overlapping_rows(detections, o)
    alone = np.ones(len(detections), bool)
    alone[overlaps] = False
    detections = replace(detections, identity=_cut_at_gaps(detections, o.gap_s))
    switches: list[Switch] = []
    unchanged_margins: dict[_PairKey, float] = {}
    for _ in range(o.rounds):
        track, switches = _decide_meetings(
            detections, overlaps, alone, image_wh, o, unchanged_margins
        )
        detections = replace(detections, identity=track)
        joined = _join_tracks(detections, alone, image_wh, o)
        new_number = dict(zip(track.tolist(), joined.tolist(), strict=True))
        switches = [(time_s, new_number[a], new_number[b]) for time_s, a, b in switches]
        detections = replace(detections, identity=joined)
    return detections.identity, [switch for switch in switches if switch[1] != switch[2]]


def shared_area(boxes_px: np.ndarray) -> np.ndarray:
    """Return the share of the smaller of two boxes that they have in common, [N, N] for boxes [N,
    4]; 0 with itself.
    """
    area = (boxes_px[:, 2:] - boxes_px[:, :2]).prod(1)
    share = intersection(boxes_px, boxes_px) / np.maximum(np.minimum(area[:, None], area), 1e-9)
    np.fill_diagonal(share, 0.0)
    return share


def _overlapping_rows(detections: Detections, o: SecondLookOptions) -> np.ndarray:
    """Return pairs of rows [M, 2] of one frame whose boxes overlap, in order of time."""
    pairs = []
    for rows in rows_of_frames(detections):
        is_meeting = shared_area(detections.box_px[rows]) >= o.meet
        pairs.append(rows[np.argwhere(np.triu(is_meeting))])
    return np.concatenate([np.zeros((0, 2), np.int64), *pairs])


def _cut_at_gaps(detections: Detections, gap_s: float) -> np.ndarray:
    """Return track numbers [N] such that no track has a longer gap."""
    order = np.lexsort((detections.frame, detections.identity))
    is_other_track = np.diff(detections.identity[order]) != 0
    is_gap = np.diff(detections.time_s[order]) > gap_s
    first = np.zeros(min(len(order), 1), np.int64)
    number = np.empty(len(order), np.int64)
    number[order] = np.concatenate([first, np.cumsum(is_other_track | is_gap)])
    return np.where(detections.identity < 0, -1, number)


def _find_meetings(
    detections: Detections, overlaps: np.ndarray, o: SecondLookOptions
) -> list[_Meeting]:
    """Return the meetings of two tracks in order of time. A meeting begins when both were last
    detected before their boxes overlap, and ends when both are detected after it.
    """
    times_by_pair: dict[tuple[int, int], list[float]] = {}
    track_pairs = np.sort(detections.identity[overlaps], 1).tolist()
    times = detections.time_s[overlaps[:, 0]].tolist()
    for (a, b), time_s in zip(track_pairs, times, strict=True):
        times_by_pair.setdefault((a, b), []).append(time_s)
    times_by_track = {
        number: detections.time_s[rows] for number, rows in rows_of_tracks(detections).items()
    }
    meetings = []
    for pair, pair_times in times_by_pair.items():
        pauses = np.flatnonzero(np.diff(pair_times) > o.apart_s) + 1
        for run in np.split(np.array(pair_times), pauses):
            first = float(run[0])
            last = float(run[-1])
            around = [_times_around(times_by_track[track], first, last) for track in pair]
            starts = [before for before, _ in around if first - before <= o.longest_s]
            ends = [after for _, after in around if after - last <= o.longest_s]
            meetings.append(_Meeting(min([first, *starts]), pair, max([last, *ends])))
    return sorted(meetings, key=lambda meeting: (meeting.start_s, meeting.tracks, meeting.end_s))


def _times_around(times_s: np.ndarray, start_s: float, end_s: float) -> tuple[float, float]:
    """Return the last time before `start_s` and the first after `end_s`; infinite if there is
    none.
    """
    before = times_s[times_s < start_s]
    after = times_s[times_s > end_s]
    last_before = float(before[-1]) if len(before) else -np.inf
    first_after = float(after[0]) if len(after) else np.inf
    return last_before, first_after


def _decide_meetings(
    detections: Detections,
    overlaps: np.ndarray,
    alone: np.ndarray,
    image_wh: tuple[int, int],
    o: SecondLookOptions,
    unchanged_margins: dict[_PairKey, float],
) -> tuple[np.ndarray, list[Switch]]:
    """Return the track numbers [N] after every meeting was decided, and exchanges that are nearly
    as likely. unchanged_margins: the margins of meetings in which nothing was changed; they are
    added here and are not decided again.
    """
    track = detections.identity.copy()
    switches: list[Switch] = []
    for meeting in _find_meetings(detections, overlaps, o):
        a, b = meeting.tracks
        rows_a = _rows_of(detections, track, a)
        rows_b = _rows_of(detections, track, b)
        key = rows_a.tobytes(), rows_b.tobytes(), meeting.start_s
        if key not in unchanged_margins and len(rows_a) and len(rows_b):
            path_a = track_path(detections, rows_a, image_wh, alone)
            path_b = track_path(detections, rows_b, image_wh, alone)
            decision = decide_exchange(path_a, path_b, meeting.start_s, meeting.end_s, image_wh, o)
            if decision is None:
                continue
            if decision.gain > o.least_gain:
                track[path_a.row[_is_exchanged(path_a, decision)]] = b
                track[path_b.row[_is_exchanged(path_b, decision)]] = a
                continue
            unchanged_margins[key] = decision.margin
        if unchanged_margins.get(key, np.inf) < o.switch_candidate:
            switches.append((meeting.end_s, a, b))
    return track, switches


def _rows_of(detections: Detections, track: np.ndarray, number: int) -> np.ndarray:
    """Return the rows of one track in order of time."""
    rows = np.flatnonzero(track == number)
    return rows[np.argsort(detections.frame[rows], kind="stable")]


def _is_exchanged(path: TrackPath, decision: Decision) -> np.ndarray:
    """Return which boxes [T] of a path belong to the other person."""
    place = np.searchsorted(decision.frames, path.frame).clip(max=len(decision.frames) - 1)
    is_decided = decision.frames[place] == path.frame
    is_later = path.frame > decision.frames[-1]
    return np.where(is_decided, decision.crossed[place], is_later & decision.after)


def _join_tracks(
    detections: Detections, alone: np.ndarray, image_wh: tuple[int, int], o: SecondLookOptions
) -> np.ndarray:
    """Return the track numbers [N] after tracks that end were joined to those that begin."""
    tracks = rows_of_tracks(detections).values()
    paths = [track_path(detections, rows, image_wh, alone) for rows in tracks]
    count = len(paths)
    gains = []  # of joining: the path that ends, the path that begins, log likelihood
    for i, j in _joinable_paths(paths, o):
        ending = paths[i]
        beginning = paths[j]
        last_height = np.median(ending.place[-5:, 2])
        first_height = np.median(beginning.place[:5, 2])
        if abs(float(last_height - first_height)) > o.fallen:
            ending = _place_by_torso(ending)
            beginning = _place_by_torso(beginning)
        gap_start_s = float(ending.time_s[-1])
        gap_end_s = float(beginning.time_s[0])
        decision = decide_exchange(ending, beginning, gap_start_s, gap_end_s, image_wh, o)
        if decision is not None and decision.after and decision.gain > 0:
            gains.append((i, j, decision.gain))
    # The matching must give every path that ends a partner. Each has a column of its own, at almost
    # no gain, which means that it is not continued.
    not_continued = [(n, count + n, 1e-9) for n in range(count)]
    row, column, gain = np.array(gains + not_continued).reshape(-1, 3).T
    indices = (row.astype(int), column.astype(int))
    matrix = coo_array((gain, indices), shape=(count, 2 * count)).tocsr()
    earlier, later = min_weight_full_bipartite_matching(matrix, maximize=True)
    is_joined = later < count
    previous = np.arange(count)  # the path that each path continues, or itself
    previous[later[is_joined]] = earlier[is_joined]
    track = np.full(len(detections.identity), -1, np.int64)
    for n, path in enumerate(paths):
        first = n
        while previous[first] != first:
            first = int(previous[first])
        track[path.row] = first
    return track


def _place_by_torso(path: TrackPath) -> TrackPath:
    """Return the path with places from the torso and the body's size, which a person who falls
    keeps, while height and upper edge of the box change.
    """
    top = path.centre_px[:, 1] - path.body_px / 2
    return replace(path, place=np.stack([path.centre_px[:, 0], top, np.log(path.body_px)], 1))


def _joinable_paths(paths: list[TrackPath], o: SecondLookOptions) -> Iterator[tuple[int, int]]:
    """Yield pairs of paths of which the second begins soon after and near where the first ends."""

    def times_places_sizes(row: int) -> np.ndarray:
        """Return time, x, y and body size [paths, 4] of a row of every path."""
        columns = [[p.time_s[row], *p.place[row, :2], p.body_px[row]] for p in paths]
        return np.reshape(columns, (-1, 4))

    starts = times_places_sizes(0)
    for i, end in enumerate(times_places_sizes(-1)):
        wait_s = starts[:, 0] - end[0]
        body_px = np.sqrt(end[3] * starts[:, 3])
        distance = np.linalg.norm(starts[:, 1:3] - end[1:3], axis=-1) / body_px
        is_soon = (wait_s > 0) & (wait_s <= o.longest_s)
        is_near = distance <= 0.5 + o.fastest * wait_s
        for j in np.flatnonzero(is_soon & is_near):
            yield i, int(j)
