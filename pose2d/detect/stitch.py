"""Who comes out of an encounter as whom, decided once both sides of it were seen.

A tracker decides frame by frame, and where people overlap it sees least. Afterwards there is more to go by: every track
is cut into the pieces in which its person was alone, and the ends of pieces are linked to the starts of later ones, one
to one, at the greatest total log-likelihood ratio (the same person against anybody): how far and how fast the person
would have moved, the change in size, appearance over the whole of both pieces, and whether the tracker saw them as one.
The same links join a person who was hidden for long to the one who comes out again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pose2d.detect.appearance import Appearances, log_likelihood_ratio_of_pairs, stack
from pose2d.detect.jumps import TrackPath, mean_looks

_TURN_RANGE, _SIZE_RANGE = (-3.0, 1.5), (-4.0, 2.0)  # limits of what turning and growing say


@dataclass(frozen=True)
class StitchOptions:
    """Chosen on the tuning seeds of bench/identity.py, in body sizes (box diagonals) and seconds."""

    meet: float = 0.3  # people meet while one's box is covered by another's to at least this share
    gap_s: float = 0.3  # a longer gap also ends a piece
    least_s: float = 0.3  # a shorter piece tells nothing and is none
    longest_s: float = 5.0  # nobody is expected back after a longer absence
    least_score: float = 2.0  # of a link: log-likelihood ratio
    least_kept: float = -4.0  # the same for pieces that the tracker saw as one, where nobody else claims either
    place_noise: float = 0.1  # standard deviation of where somebody is, without having moved
    acceleration: float = 1.2  # as in kalman.MotionOptions, for people who walk
    turn: float = 1.0  # change of velocity over one second, standard deviation
    size_noise: float = 0.15  # of the log size
    appearance_range: tuple[float, float] = (-8.0, 6.0)
    inside: float = 1.5  # what it says that one was lost inside the image, and that one appears there
    tracker_evidence: float = 4.0  # at most, where the tracker saw two pieces as one; less, the more they overlapped
    doubt: float = 2.0  # an exchange this little less likely is reported as a likely swap
    looks_s: float = 4.0  # appearance comes from so much of a piece


@dataclass(frozen=True)
class Pieces:
    """P stretches in which somebody was alone."""

    track: np.ndarray  # [P] the tracker's number
    first: np.ndarray  # [P] place of the first sighting in the track
    last: np.ndarray  # [P] of the last
    start_s: np.ndarray  # [P] of the first piece of a track: when the track begins
    end_s: np.ndarray  # [P] of the last piece: when it ends
    start_px: np.ndarray  # [P, 2] centre at these times
    end_px: np.ndarray  # [P, 2]
    start_velocity_px: np.ndarray  # [P, 2] a second; 0 where too short to tell
    end_velocity_px: np.ndarray  # [P, 2]
    start_body_px: np.ndarray  # [P] size
    end_body_px: np.ndarray  # [P]
    start_looks: Appearances  # [P]
    end_looks: Appearances  # [P]
    start_inside: np.ndarray  # [P] bool: not at an edge of the image
    end_inside: np.ndarray  # [P] bool
    covered_after: np.ndarray  # [P] the largest share of the person that was covered until the track's next piece

    def __len__(self) -> int:
        return len(self.track)


@dataclass(frozen=True)
class Doubt:
    """Two people who may have been exchanged."""

    time_s: float
    pieces: tuple[int, int]  # those they came in as


def pieces_of(paths: Mapping[int, TrackPath], covered: Mapping[int, np.ndarray], options: StitchOptions) -> Pieces:
    """paths: each track in order of time; covered: for each of its sightings the share of the smaller box that this
    person's and another's box have in common. A person who is never alone is one piece."""
    rows: list[tuple[int, int, int]] = []
    for number, path in paths.items():
        alone = covered[number] < options.meet
        run = np.cumsum(np.concatenate([[0], (np.diff(path.time_s) > options.gap_s) | np.diff(alone)]))
        found = [np.flatnonzero((run == r) & alone) for r in np.unique(run[alone])]
        long = [piece for piece in found if path.time_s[piece[-1]] - path.time_s[piece[0]] >= options.least_s]
        rows += [(number, int(piece[0]), int(piece[-1])) for piece in long] or [(number, 0, len(path) - 1)]
    between = [slice(last + 1, first) for (_, _, last), (_, first, _) in pairwise([*rows, (-1, 0, 0)])]
    # Where the track itself begins or ends, not alone any more, it is still seen: nobody else goes on from there.
    begins = [0 if n == 0 or rows[n - 1][0] != row[0] else row[1] for n, row in enumerate(rows)]
    ends_at = [
        len(paths[row[0]]) - 1 if n + 1 == len(rows) or rows[n + 1][0] != row[0] else row[2]
        for n, row in enumerate(rows)
    ]
    starts = [(paths[row[0]], at) for row, at in zip(rows, begins, strict=True)]
    stops = [(paths[row[0]], at) for row, at in zip(rows, ends_at, strict=True)]
    ends = [_ends(paths[track], first, last, options) for track, first, last in rows]
    column = lambda name: np.array([getattr(e, name) for e in ends])  # noqa: E731
    return Pieces(
        track=np.array([r[0] for r in rows], np.int64),
        first=np.array([r[1] for r in rows], np.int64),
        last=np.array([r[2] for r in rows], np.int64),
        start_s=np.array([path.time_s[at] for path, at in starts]),
        end_s=np.array([path.time_s[at] for path, at in stops]),
        start_px=np.array([path.centre_px[at] for path, at in starts]).reshape(-1, 2),
        end_px=np.array([path.centre_px[at] for path, at in stops]).reshape(-1, 2),
        start_velocity_px=column("start_velocity_px").reshape(-1, 2),
        end_velocity_px=column("end_velocity_px").reshape(-1, 2),
        start_body_px=column("start_body_px"),
        end_body_px=column("end_body_px"),
        start_looks=stack([e.start_looks for e in ends]),
        end_looks=stack([e.end_looks for e in ends]),
        start_inside=np.array([path.inside[at] for path, at in starts], bool),
        end_inside=np.array([path.inside[at] for path, at in stops], bool),
        covered_after=np.array([covered[row[0]][part].max(initial=0) for row, part in zip(rows, between, strict=True)]),
    )


@dataclass(frozen=True)
class _Ends:
    start_velocity_px: np.ndarray
    end_velocity_px: np.ndarray
    start_body_px: float
    end_body_px: float
    start_looks: Appearances
    end_looks: Appearances


def _ends(path: TrackPath, first: int, last: int, options: StitchOptions) -> _Ends:
    t = path.time_s
    begin = slice(first, min(last + 1, max(int(np.searchsorted(t, t[first] + 0.4, side="right")), first + 1)))
    end = slice(max(first, min(int(np.searchsorted(t, t[last] - 0.4)), last)), last + 1)
    looks_end = min(last + 1, int(np.searchsorted(t, t[first] + options.looks_s, side="right")))
    looks_begin = max(first, int(np.searchsorted(t, t[last] - options.looks_s)))
    velocity = [_velocity(t[part], path.centre_px[part]) for part in (begin, end)]
    return _Ends(
        velocity[0], velocity[1],
        float(np.median(path.body_px[begin])), float(np.median(path.body_px[end])),
        mean_looks(path.looks, np.array([first]), np.array([looks_end])),
        mean_looks(path.looks, np.array([looks_begin]), np.array([last + 1])),
    )  # fmt: skip


def _velocity(time_s: np.ndarray, centre_px: np.ndarray) -> np.ndarray:
    """Pixels a second by least squares; shrunk towards 0 where the stretch is short."""
    if len(time_s) < 3:
        return np.zeros(2)
    t = time_s - time_s.mean()
    spread = float((t**2).sum())
    return (t[:, None] * centre_px).sum(0) / (spread + len(t) * 0.03**2)


def link_scores(
    pieces: Pieces, pairs: tuple[np.ndarray, np.ndarray], image_wh: tuple[int, int], o: StitchOptions
) -> np.ndarray:
    """The log-likelihood ratio [M] that the first piece of each pair goes on as the second, against anybody's."""
    i, j = pairs
    dt = pieces.start_s[j] - pieces.end_s[i]
    body = np.sqrt(pieces.end_body_px[i] * pieces.start_body_px[j])[:, None]
    before, after = pieces.end_velocity_px[i] / body, pieces.start_velocity_px[j] / body
    place = place_scores(pieces, pairs, image_wh, o)
    turn_var, turn2 = 0.3**2 + o.turn**2 * dt, ((after - before) ** 2).sum(-1)
    turn = np.log((turn_var + 1) / turn_var) - turn2 / turn_var / 2 + turn2 / (turn_var + 1) / 2
    size_var, grown2 = o.size_noise**2 + 0.1**2 * dt, np.log(pieces.start_body_px[j] / pieces.end_body_px[i]) ** 2
    size = np.log((size_var + 0.16) / size_var) / 2 - grown2 / size_var / 2 + grown2 / (size_var + 0.16) / 2
    looks = log_likelihood_ratio_of_pairs(pieces.end_looks[i], pieces.start_looks[j])
    others = np.clip(turn, *_TURN_RANGE) + np.clip(size, *_SIZE_RANGE) + np.clip(looks, *o.appearance_range)
    inside = o.inside * (pieces.end_inside[i].astype(float) + pieces.start_inside[j])
    kept = np.clip(o.tracker_evidence * (1.2 - pieces.covered_after[i]), 0.5, o.tracker_evidence)
    return place + others + inside + np.where(_kept(pieces, pairs), kept, 0.0) - 0.3 * dt


def place_scores(
    pieces: Pieces, pairs: tuple[np.ndarray, np.ndarray], image_wh: tuple[int, int], o: StitchOptions
) -> np.ndarray:
    """The part of `link_scores` that says how far one would have moved, against being anywhere in the image."""
    i, j = pairs
    dt = pieces.start_s[j] - pieces.end_s[i]
    body = np.sqrt(pieces.end_body_px[i] * pieces.start_body_px[j])
    reach = 1 - np.exp(-dt)  # velocity is forgotten within a second, as in kalman.MotionOptions
    expected = reach[:, None] * (pieces.end_velocity_px[i] + pieces.start_velocity_px[j]) / 2
    moved2 = ((pieces.start_px[j] - pieces.end_px[i] - expected) ** 2).sum(-1) / body**2
    variance = o.place_noise**2 + o.acceleration**2 * np.minimum(dt, 3.0) ** 3 / 12 + 0.1**2 * dt
    room = np.maximum(np.prod(np.array(image_wh, float)) / body**2, 2.0)
    variance = np.minimum(variance, room / (2 * np.pi))  # who is in the image is nowhere else
    return np.log(room / (2 * np.pi * variance)) - np.minimum(moved2 / variance, 50) / 2


def _kept(pieces: Pieces, pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Whether the tracker saw the pieces of each pair as one person, one after the other, [M]."""
    i, j = pairs
    return (pieces.track[i] == pieces.track[j]) & (j == i + 1)


def link(pieces: Pieces, image_wh: tuple[int, int], options: StitchOptions) -> tuple[np.ndarray, list[Doubt]]:
    """For every piece the one that goes on from it, [P], -1 for none; and exchanges that are nearly as likely."""
    count = len(pieces)
    i, j = _candidates(pieces, image_wh, options)
    score = link_scores(pieces, (i, j), image_wh, options)
    after = np.full(count, -1, np.int64)
    good = score > options.least_score
    for rows, columns, gain in _components(i[good], j[good], score[good], count):
        for r, c in zip(*linear_sum_assignment(-gain), strict=True):
            if gain[r, c] > 0:
                after[rows[r]] = columns[c]
    # What the tracker saw as one and nobody else claims stays one, unless it is most unlikely.
    free = (after[i] < 0) & ~np.isin(j, after) & _kept(pieces, (i, j)) & (score > options.least_kept)
    after[i[free]] = j[free]
    _fill_in(pieces, after)
    table = {(int(a), int(b)): float(s) for a, b, s in zip(i[good], j[good], score[good], strict=True)}
    return after, _doubts(pieces, after, table, options)


def _fill_in(pieces: Pieces, after: np.ndarray) -> None:
    """A piece that nothing is linked to belongs between the two of its track that are linked past it."""
    for piece in np.flatnonzero(after >= 0):
        following = int(after[piece])
        between = range(int(piece) + 1, following)
        if pieces.track[piece] != pieces.track[following] or not len(between):
            continue
        if (after[list(between)] < 0).all() and not np.isin(list(between), after).any():
            after[piece:following] = np.arange(piece + 1, following + 1)


def _candidates(
    pieces: Pieces, image_wh: tuple[int, int], options: StitchOptions, block: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of pieces near enough in time and place to be linked, some rows at a time: of hundreds of people nearly all
    pairs are not."""
    most = _TURN_RANGE[1] + _SIZE_RANGE[1] + options.appearance_range[1] + 2 * options.inside
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for first in range(0, len(pieces), block):
        rows = np.arange(first, min(first + block, len(pieces)))
        wait = pieces.start_s[None] - pieces.end_s[rows, None]
        i, j = np.nonzero((wait > 0) & (wait <= options.longest_s))
        pairs = rows[i], j
        near = place_scores(pieces, pairs, image_wh, options) + most > options.least_score
        near |= _kept(pieces, pairs)
        found.append((pairs[0][near], pairs[1][near]))
    return np.concatenate([pair[0] for pair in found]), np.concatenate([pair[1] for pair in found])


def _components(
    i: np.ndarray, j: np.ndarray, score: np.ndarray, count: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Groups of pairs with pieces in common: pieces that end [R], that start [C], and scores [R, C], 0 for none."""
    if not len(i):
        return
    graph = coo_array((np.ones(len(i)), (i, j + count)), shape=(2 * count, 2 * count))
    label = connected_components(graph, directed=False)[1][i]
    for mine in np.split(np.argsort(label, kind="stable"), np.flatnonzero(np.diff(np.sort(label))) + 1):
        rows, row = np.unique(i[mine], return_inverse=True)
        columns, column = np.unique(j[mine], return_inverse=True)
        gain = np.zeros((len(rows), len(columns)))
        gain[row, column] = score[mine]
        yield rows, columns, gain


def _doubts(
    pieces: Pieces, after: np.ndarray, score: Mapping[tuple[int, int], float], options: StitchOptions
) -> list[Doubt]:
    """Pairs of people who would be linked the other way round nearly as likely."""
    before = {int(b): a for a, b in enumerate(after.tolist()) if b >= 0}
    out: list[Doubt] = []
    for (a, other), crossed in score.items():
        b, mine = before.get(other, -1), int(after[a])
        if not 0 <= b < a or mine < 0 or (b, mine) not in score or (a, mine) not in score or (b, other) not in score:
            continue
        if score[a, mine] + score[b, other] - crossed - score[b, mine] < options.doubt:
            out.append(Doubt(float(max(pieces.end_s[a], pieces.end_s[b])), (b, a)))
    return out


def chains(after: np.ndarray) -> np.ndarray:
    """The number of the chain of links that each piece belongs to, [P]: that of its first piece."""
    chain = list(range(len(after)))
    for piece in np.flatnonzero(after >= 0).tolist():
        chain[int(after[piece])] = piece
    for piece, root in enumerate(chain):  # pieces are ordered by track, not by time: follow each to its first
        while chain[root] != root:
            root = chain[root]
        chain[piece] = root
    return np.array(chain, np.int64)


def stitched(
    paths: Mapping[int, TrackPath], pieces: Pieces, after: np.ndarray, options: StitchOptions
) -> dict[int, np.ndarray]:
    """For each track the number of the chain that each of its sightings belongs to, [T].

    Sightings between two pieces of a track, where people met, go to the piece before until the two tracks that were
    exchanged were nearest to each other, and to the piece after from then on.
    """
    chain = chains(after)
    before = np.full(len(after), -1, np.int64)
    before[after[after >= 0]] = np.flatnonzero(after >= 0)
    out = {number: np.full(len(path), -1, np.int64) for number, path in paths.items()}
    order = np.lexsort((pieces.first, pieces.track))
    for n, piece in enumerate(order):
        track = int(pieces.track[piece])
        mine = out[track]
        mine[pieces.first[piece] : pieces.last[piece] + 1] = chain[piece]
        if n == 0 or pieces.track[order[n - 1]] != track:
            mine[: pieces.first[piece]] = chain[piece]
        if n + 1 == len(order) or pieces.track[order[n + 1]] != track:
            mine[pieces.last[piece] + 1 :] = chain[piece]
            continue
        following = order[n + 1]
        middle = slice(int(pieces.last[piece]) + 1, int(pieces.first[following]))
        times = paths[track].time_s[middle]
        if after[piece] == following:
            mine[middle] = chain[piece]
            continue
        leaves = _exchange_s(paths, pieces, int(piece), int(after[piece]))
        comes = _exchange_s(paths, pieces, int(before[following]), int(following))
        leaves, comes = (leaves if leaves is not None else comes), (comes if comes is not None else leaves)
        if leaves is None or comes is None:
            leaves = comes = float(times.mean()) if len(times) else 0.0
        mine[middle] = np.where(times <= leaves, chain[piece], np.where(times > comes, chain[following], -1))
    return out


def _exchange_s(paths: Mapping[int, TrackPath], pieces: Pieces, one: int, other: int) -> float | None:
    """When the person of piece `one` went on in the track of piece `other`: where an exchange explains the steps of
    both tracks best, and they are nearest to each other; None where either is nobody."""
    if one < 0 or other < 0:
        return None
    a, b = paths[int(pieces.track[one])], paths[int(pieces.track[other])]
    start, end = float(pieces.end_s[one]), float(pieces.start_s[other])
    common, in_a, in_b = np.intersect1d(a.time_s, b.time_s, return_indices=True)
    between = (common >= start) & (common <= end)
    if not between.any():
        later = b.time_s[(b.time_s > start)]
        return float(later[0]) - 1e-6 if len(later) else start
    x, y = (
        np.column_stack([path.centre_px[rows[between]], path.body_px[rows[between]]])
        for path, rows in ((a, in_a), (b, in_b))
    )
    away = ((x - y) ** 2).sum(-1)
    straight = ((x[1:] - x[:-1]) ** 2).sum(-1) + ((y[1:] - y[:-1]) ** 2).sum(-1)
    crossed = ((y[1:] - x[:-1]) ** 2).sum(-1) + ((x[1:] - y[:-1]) ** 2).sum(-1)
    cost = np.append(crossed - straight, away[-1]) + 0.1 * away  # of an exchange after each of the common frames
    return float(common[between][int(cost.argmin())])
