"""Who is who within a shot, looked at again once all of it was seen.

Tracks are cut where somebody was not seen for a while; people who met are told apart again
(`decide`); and tracks that end are joined to those that begin, one to one, at the greatest total
log likelihood.

A tracker decides frame by frame, and where people overlap it sees least. Here all ways to give the
boxes of two tracks to two people are compared, as a beam of hypotheses. Each has a Kalman filter
for either person and adds up the log likelihood of the boxes under it and of their appearance; at
the end the appearance after the encounter is compared with that before it. The same comparison says
whether a track that begins is the continuation of one that has ended."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from pose2d.detect.detector import intersection
from pose2d.tracking.appearance import (
    TrackPath,
    log_likelihood_ratio_of_pairs,
    overall,
    rows_of_frames,
    rows_of_tracks,
    track_path,
)
from pose2d.types import Appearance, Detections


@dataclass(frozen=True)
class SecondLookOptions:
    """Chosen on the tuning seeds of bench/identity.py. Lengths are in body sizes (box diagonals),
    times in seconds.
    """

    gap_s: float = 0.3  # a longer gap ends a track, until it is joined again
    meet: float = 0.2  # two people meet while their boxes share this much of the smaller one
    apart_s: float = 1.0  # encounters that follow each other sooner are one
    longest_s: float = 5.0  # nobody is expected back after a longer absence
    fallen: float = (
        0.5  # change of a box's log height beyond which somebody may have fallen, or got up
    )
    fastest: float = 3.0  # body sizes a second that somebody unseen may move
    least_gain: float = 0.5  # log likelihood from which tracks are changed
    switch_candidate: float = 2.0  # an exchange this little less likely is reported
    rounds: int = 2  # of telling people apart and joining
    before_s: float = (
        1.0  # boxes of so long before an encounter tell where and how fast each person moves
    )
    after_s: float = 1.0  # and so long after it which of them went on as which
    appearance_s: float = 4.0  # appearance before and after comes from so long
    beam: int = 16  # hypotheses kept
    place_noise: float = 0.03  # standard deviation of a box's centre and upper edge
    size_noise: float = 0.08  # of its log height
    size_drift: float = 0.15  # change of the log height over one second
    first_speed: float = 0.5  # of a new person
    acceleration: float = 0.6  # change of velocity over one second
    velocity_memory_s: float = 3.0  # without a box, velocity falls to 1/e in this time
    wild: float = (
        0.1  # share of boxes that are off by more: half hidden people, and people who turn
    )
    wild_noise: float = 0.3  # by this much more
    new_person: float = 2.5  # -log probability that somebody new appears
    inside: float = 2.0  # more of it, where that is not at an edge of the image
    size_spread: float = 0.4  # of people's log heights
    exchange_cost: float = (
        1.5  # -log probability that the tracker exchanged the two from one frame to the next
    )
    appearance_range: tuple[float, float] = (-8.0, 6.0)  # limits of the log-likelihood ratio
    appearance_now: float = (
        0.2  # what that of a single detection within an encounter counts for: others cover it
    )


@dataclass(frozen=True)
class Decision:
    """How the boxes of two tracks are best given to two people."""

    frames: np.ndarray  # [T] in order
    crossed: np.ndarray  # [T] bool: each of the two gets the other's box of that frame
    after: bool  # the same of all later frames
    gain: float  # log likelihood over that of leaving everything as it is
    margin: float  # and over the best that ends the other way


@dataclass
class _Beam:
    """H hypotheses about two people."""

    place_px: np.ndarray  # [H, 2, 2] x, y of each person
    velocity_px: np.ndarray  # [H, 2, 2] per second
    cov: (
        np.ndarray
    )  # [H, 2, 2, 2] of (position, velocity) on either axis, in body sizes and seconds
    size: np.ndarray  # [H, 2] log height
    size_var: np.ndarray  # [H, 2]
    known: np.ndarray  # [H, 2] bool: seen before
    score: np.ndarray  # [H] log likelihood so far
    crossed: np.ndarray  # [H] bool: now
    history: np.ndarray  # [H, T] bool

    def rows(self, index: np.ndarray) -> "_Beam":
        return _Beam(*(getattr(self, column.name)[index] for column in fields(self)))


def decide(
    one: TrackPath,
    other: TrackPath,
    start_s: float,
    end_s: float,
    image_wh: tuple[int, int],
    o: SecondLookOptions,
) -> Decision | None:
    """The two may be exchanged from `start_s` until the first frame after `end_s`; None if either
    was not near.
    """
    paths = (one, other)
    parts = [
        np.flatnonzero((p.time_s >= start_s - o.before_s) & (p.time_s <= end_s + o.after_s))
        for p in paths
    ]
    if not all(map(len, parts)):
        return None
    frames = np.union1d(*(p.frame[part] for p, part in zip(paths, parts, strict=True)))
    times = np.zeros(len(frames))
    at = np.full((2, len(frames)), -1)
    for track, (p, part) in enumerate(zip(paths, parts, strict=True)):
        where = np.searchsorted(frames, p.frame[part])
        at[track, where] = part
        times[where] = p.time_s[part]
    body = float(
        np.sqrt(np.prod([np.median(p.body_px[part]) for p, part in zip(paths, parts, strict=True)]))
    )
    # A box of somebody new: anywhere in the image, and of any height. Nobody's place is less
    # certain than that.
    room = max(float(np.prod(image_wh)) / body**2, 2.0) / (2 * np.pi)
    inside = np.stack([p.inside[rows] for p, rows in zip(paths, at, strict=True)])  # [track, T]
    anywhere = -np.log(room * o.size_spread) - o.new_person - o.inside * inside
    before = [_mean_appearance(p, start_s - o.appearance_s, start_s) for p in paths]
    after = [_mean_appearance(p, end_s, end_s + o.appearance_s) for p in paths]
    now = _appearance_now(paths, at, before, o)
    value = np.stack([p.place[rows] for p, rows in zip(paths, at, strict=True)])  # [track, T, 3]
    beam = _first(len(frames))
    for t, time_s in enumerate(times):
        if t:
            _predict(beam, float(time_s - times[t - 1]), o)
        if time_s >= start_s and (time_s <= end_s or times[max(t - 1, 0)] <= end_s):
            beam = _branched(beam, o)
        whose = np.array([[0, 1], [1, 0]])[
            beam.crossed.astype(np.intp)
        ]  # [H, 2] each person's track
        if start_s <= time_s <= end_s:
            beam.score = beam.score + now[0, whose[:, 0], t] + now[1, whose[:, 1], t]
        _see(beam, value[:, t][whose], (at[:, t] >= 0)[whose], anywhere[:, t][whose], body, room, o)
        beam.history[:, t] = beam.crossed
        if len(beam.score) > o.beam:
            beam = beam.rows(_best(beam, o.beam))
    same = np.array(
        [[_ratio(before[who], after[track], o)[0] for track in range(2)] for who in range(2)]
    )
    total = beam.score + np.where(beam.crossed, same[0, 1] + same[1, 0], same[0, 0] + same[1, 1])
    best = int(total.argmax())
    as_it_is = total[~beam.history.any(1)].max()
    otherwise = total[beam.crossed != beam.crossed[best]].max(initial=-np.inf)
    gain = float(total[best] - as_it_is)
    margin = float(total[best] - otherwise)
    return Decision(frames, beam.history[best], bool(beam.crossed[best]), gain, margin)


def _mean_appearance(path: TrackPath, start_s: float, end_s: float) -> Appearance:
    """Of the detections of a time, those alone if there are any: [1]."""
    rows = np.flatnonzero((path.time_s >= start_s) & (path.time_s <= end_s))
    clear = rows[path.alone[rows]]
    return overall(path.appearance.rows(clear if len(clear) else rows))


def _ratio(person: Appearance, seen: Appearance, o: SecondLookOptions) -> np.ndarray:
    """Log-likelihood ratio [M] that M detections are of the person who looks like `person` [1]."""
    same = log_likelihood_ratio_of_pairs(person.rows(np.zeros(len(seen), np.int64)), seen)
    return np.clip(same, *o.appearance_range)


def _appearance_now(
    paths: tuple[TrackPath, TrackPath],
    at: np.ndarray,
    before: list[Appearance],
    o: SecondLookOptions,
) -> np.ndarray:
    """What the appearance of single detections counts for, [person, track, T]."""
    out = np.zeros((2, *at.shape))
    for track, path in enumerate(paths):
        seen = np.flatnonzero(at[track] >= 0)
        for who in range(2):
            out[who, track, seen] = o.appearance_now * _ratio(
                before[who], path.appearance.rows(at[track, seen]), o
            )
    return out


def _first(frames: int) -> _Beam:
    """One hypothesis: nobody was seen yet."""
    return _Beam(
        np.zeros((1, 2, 2)),
        np.zeros((1, 2, 2)),
        np.zeros((1, 2, 2, 2)),
        np.zeros((1, 2)),
        np.ones((1, 2)),
        np.zeros((1, 2), bool),
        np.zeros(1),
        np.zeros(1, bool),
        np.zeros((1, frames), bool),
    )


def _branched(beam: _Beam, o: SecondLookOptions) -> _Beam:
    """Every hypothesis goes on as it is, or with the two exchanged."""
    count = len(beam.score)
    flip = np.tile([False, True], count)
    beam = beam.rows(np.arange(count).repeat(2))
    beam.crossed = beam.crossed ^ flip
    beam.score = beam.score - np.where(flip, o.exchange_cost, 0.0)
    return beam


def _best(beam: _Beam, keep: int) -> np.ndarray:
    """The best hypotheses of either kind, straight and crossed, and the one in which nothing ever
    changed.
    """
    kinds = [np.flatnonzero(beam.crossed == kind) for kind in (False, True)]
    best = [rows[np.argsort(-beam.score[rows], kind="stable")[: keep // 2]] for rows in kinds]
    return np.unique(np.concatenate([*best, np.flatnonzero(~beam.history.any(1))]))


def _predict(beam: _Beam, dt_s: float, o: SecondLookOptions) -> None:
    """All states `dt_s` later, as in pose2d/tracking/tracker.py."""
    kept = np.exp(-dt_s / o.velocity_memory_s)
    reach_s = o.velocity_memory_s * (1 - kept)
    step = np.array([[1.0, reach_s], [0.0, kept]])
    spread = o.acceleration**2 * np.array([[dt_s**3 / 3, dt_s**2 / 2], [dt_s**2 / 2, dt_s]])
    beam.place_px = beam.place_px + reach_s * beam.velocity_px
    beam.velocity_px = kept * beam.velocity_px
    beam.cov = step @ beam.cov @ step.T + spread
    beam.size_var = beam.size_var + o.size_drift**2 * dt_s


def _see(
    beam: _Beam,
    value: np.ndarray,
    seen: np.ndarray,
    anywhere: np.ndarray,
    body_px: float,
    room: float,
    o: SecondLookOptions,
) -> None:
    """Each hypothesis gives its two people boxes, `value` [H, 2, 3], or none where not `seen` [H,
    2]. anywhere [H, 2]: log likelihood of each box as somebody new's; room: the largest variance of
    a place."""
    off = (value[..., :2] - beam.place_px) / body_px
    grown = value[..., 2] - beam.size
    place_var = beam.cov[..., 0, 0] + o.place_noise**2
    var = np.minimum(place_var, room)
    grown_var = beam.size_var + o.size_noise**2
    # Log densities of the place and the log height, without (2 pi)^-1.5
    usual, wild = (
        np.log(share)
        - ((off**2).sum(-1) / (var + more) + grown**2 / (grown_var + more)) / 2
        - np.log(var + more)
        - np.log(grown_var + more) / 2
        for share, more in ((1 - o.wild, 0.0), (o.wild, o.wild_noise**2))
    )
    both = np.logaddexp(usual, wild)
    beam.score = beam.score + (
        seen * np.where(beam.known, np.maximum(both, anywhere), anywhere)
    ).sum(1)
    believed = seen * np.exp(usual - both)  # a wild box hardly moves the filter
    gain = (believed / place_var)[..., None] * beam.cov[..., 0]  # [H, 2, (position, velocity)]
    size_gain = believed * beam.size_var / grown_var
    step = off * body_px
    beam.place_px = beam.place_px + gain[..., :1] * step
    beam.velocity_px = beam.velocity_px + gain[..., 1:] * step
    beam.cov = beam.cov - gain[..., None] * beam.cov[..., None, 0, :]
    beam.size = beam.size + size_gain * grown
    beam.size_var = (1 - size_gain) * beam.size_var
    new = seen & ~beam.known
    if new.any():
        beam.place_px[new] = value[new][:, :2]
        beam.velocity_px[new] = 0.0
        beam.cov[new] = np.diag([o.place_noise**2, o.first_speed**2])
        beam.size[new] = value[new][:, 2]
        beam.size_var[new] = o.size_noise**2
        beam.known = beam.known | seen


Switch = tuple[float, int, int]  # when, in seconds, which two tracks may have been exchanged


def look_again(
    seen: Detections, image_wh: tuple[int, int], o: SecondLookOptions
) -> tuple[np.ndarray, list[Switch]]:
    """Track numbers [N] after a second look, and exchanges that are nearly as likely."""
    met = _meetings(seen, o)
    alone = np.ones(len(seen), bool)
    alone[met] = False
    seen = replace(seen, identity=_cut_at_gaps(seen, o.gap_s))
    candidates: list[Switch] = []
    settled: dict[_Pair, float] = {}
    for _ in range(o.rounds):
        track, candidates = _told_apart(seen, met, alone, image_wh, o, settled)
        seen = replace(seen, identity=track)
        track = _joined(seen, alone, image_wh, o)
        renamed = dict(zip(seen.identity.tolist(), track.tolist(), strict=True))
        candidates = [(when, renamed[one], renamed[other]) for when, one, other in candidates]
        seen = replace(seen, identity=track)
    return seen.identity, [switch for switch in candidates if switch[1] != switch[2]]


def shared(boxes_px: np.ndarray) -> np.ndarray:
    """The share of the smaller of two boxes that they have in common, [N, N] for boxes [N, 4]; 0
    with itself.
    """
    area = (boxes_px[:, 2:] - boxes_px[:, :2]).prod(1)
    share = intersection(boxes_px, boxes_px) / np.maximum(np.minimum(area[:, None], area), 1e-9)
    np.fill_diagonal(share, 0.0)
    return share


def _meetings(seen: Detections, o: SecondLookOptions) -> np.ndarray:
    """Rows [M, 2] of one frame whose boxes overlap, in order of time."""
    pairs = [
        rows[np.argwhere(np.triu(shared(seen.box_px[rows]) >= o.meet))]
        for rows in rows_of_frames(seen)
    ]
    return np.concatenate([np.zeros((0, 2), np.int64), *pairs])


def _cut_at_gaps(seen: Detections, gap_s: float) -> np.ndarray:
    """Track numbers [N] such that no track has a longer gap."""
    order = np.lexsort((seen.frame, seen.identity))
    new = (np.diff(seen.identity[order]) != 0) | (np.diff(seen.time_s[order]) > gap_s)
    number = np.empty(len(order), np.int64)
    number[order] = np.concatenate([np.zeros(min(len(order), 1), np.int64), np.cumsum(new)])
    return np.where(seen.identity < 0, -1, number)


def _encounters(
    seen: Detections, met: np.ndarray, o: SecondLookOptions
) -> list[tuple[float, tuple[int, int], float]]:
    """When two tracks met, in order of time: start in seconds, both, and end. It lasts until both
    are seen again, and begins when both last were."""
    met_s: dict[tuple[int, int], list[float]] = {}
    for (one, other), time_s in zip(
        np.sort(seen.identity[met], 1).tolist(), seen.time_s[met[:, 0]], strict=True
    ):
        met_s.setdefault((one, other), []).append(float(time_s))
    seen_s = {number: seen.time_s[rows] for number, rows in rows_of_tracks(seen).items()}
    out = []
    for pair, times in met_s.items():
        for run in np.split(np.array(times), np.flatnonzero(np.diff(times) > o.apart_s) + 1):
            start = float(run[0])
            end = float(run[-1])
            around = [_around(seen_s[number], start, end) for number in pair]
            start = min([start, *(a for a, _ in around if start - a <= o.longest_s)])
            end = max([end, *(b for _, b in around if b - end <= o.longest_s)])
            out.append((start, pair, end))
    return sorted(out)


def _around(times_s: np.ndarray, start_s: float, end_s: float) -> tuple[float, float]:
    """The last of some times before `start_s` and the first after `end_s`; far away where there is
    none.
    """
    before = times_s[times_s < start_s]
    after = times_s[times_s > end_s]
    return float(before[-1]) if len(before) else -np.inf, float(after[0]) if len(after) else np.inf


_Pair = tuple[bytes, bytes, float]  # the detections of two tracks, and when an encounter begins


def _told_apart(
    seen: Detections,
    met: np.ndarray,
    alone: np.ndarray,
    image_wh: tuple[int, int],
    o: SecondLookOptions,
    settled: dict[_Pair, float],
) -> tuple[np.ndarray, list[Switch]]:
    """Track numbers [N] after every encounter was decided. settled: encounters in which nothing was
    to be changed, and by what margin; not decided again."""
    track = seen.identity.copy()
    candidates: list[Switch] = []
    for start_s, tracks, end_s in _encounters(seen, met, o):
        one, other = (_rows(seen, track, number) for number in tracks)
        pair = one.tobytes(), other.tobytes(), start_s
        if pair not in settled and len(one) and len(other):
            paths = [track_path(seen, rows, image_wh, alone) for rows in (one, other)]
            decision = decide(paths[0], paths[1], start_s, end_s, image_wh, o)
            if decision is None:
                continue
            if decision.gain > o.least_gain:
                mine, theirs = (path.row[_to_exchange(path, decision)] for path in paths)
                track[mine] = tracks[1]
                track[theirs] = tracks[0]
                continue
            settled[pair] = decision.margin
        if settled.get(pair, np.inf) < o.switch_candidate:
            candidates.append((end_s, *tracks))
    return track, candidates


def _rows(seen: Detections, track: np.ndarray, number: int) -> np.ndarray:
    rows = np.flatnonzero(track == number)
    return rows[np.argsort(seen.frame[rows], kind="stable")]


def _to_exchange(path: TrackPath, decision: Decision) -> np.ndarray:
    """Which of a path's boxes [T] are the other person's."""
    where = np.searchsorted(decision.frames, path.frame).clip(max=len(decision.frames) - 1)
    within = decision.frames[where] == path.frame
    return np.where(
        within, decision.crossed[where], (path.frame > decision.frames[-1]) & decision.after
    )


def _joined(
    seen: Detections, alone: np.ndarray, image_wh: tuple[int, int], o: SecondLookOptions
) -> np.ndarray:
    """Track numbers [N] after tracks that end were joined to those that begin."""
    paths = [track_path(seen, rows, image_wh, alone) for rows in rows_of_tracks(seen).values()]
    count = len(paths)
    pairs = []
    for i, j in _candidates(paths, o):
        a = paths[i]
        b = paths[j]
        if abs(float(np.median(a.place[-5:, 2]) - np.median(b.place[:5, 2]))) > o.fallen:
            a, b = (_lying_or_not(path) for path in (a, b))
        decision = decide(a, b, float(a.time_s[-1]), float(b.time_s[0]), image_wh, o)
        if decision is not None and decision.after and decision.gain > 0:
            pairs.append((i, j, decision.gain))
    # Whoever ends is joined to somebody who begins, or at no gain to nobody, who has a column for
    # each.
    row, column, gain = (
        np.array(pairs + [(n, count + n, 1e-9) for n in range(count)]).reshape(-1, 3).T
    )
    gains = coo_array(
        (gain, (row.astype(int), column.astype(int))), shape=(count, 2 * count)
    ).tocsr()
    number = np.arange(count)
    first, second = min_weight_full_bipartite_matching(gains, maximize=True)
    number[second[second < count]] = first[second < count]
    track = np.full(len(seen.identity), -1, np.int64)
    for n, path in enumerate(paths):
        while number[n] != n:
            n = int(number[n])
        track[path.row] = n
    return track


def _lying_or_not(path: TrackPath) -> TrackPath:
    """Placed by the torso and the body's size: whoever falls keeps both, while the box's height and
    upper edge go.
    """
    top = path.centre_px[:, 1] - path.body_px / 2
    return replace(path, place=np.stack([path.centre_px[:, 0], top, np.log(path.body_px)], 1))


def _candidates(paths: list[TrackPath], o: SecondLookOptions) -> Iterator[tuple[int, int]]:
    """Pairs of paths of which the second begins soon after and near where the first ends."""
    ends, starts = (
        np.reshape([[p.time_s[at], *p.place[at, :2], p.body_px[at]] for p in paths], (-1, 4))
        for at in (-1, 0)
    )
    for i, end in enumerate(ends):
        wait = starts[:, 0] - end[0]
        away = np.linalg.norm(starts[:, 1:3] - end[1:3], axis=-1) / np.sqrt(end[3] * starts[:, 3])
        near = (wait > 0) & (wait <= o.longest_s) & (away <= 0.5 + o.fastest * wait)
        yield from ((i, int(j)) for j in np.flatnonzero(near))
