"""Who comes out of an encounter as whom, decided once both sides of it were seen.

A tracker decides frame by frame, and where people overlap it sees least. Afterwards there is more to go by: every track
is cut into the pieces in which its person was alone, and the ends of pieces are linked to the starts of later ones, one
to one, at the greatest total log-likelihood ratio (the same person against anybody): how far and how fast the person
would have moved, the change in size, appearance over the whole of both pieces, and whether the tracker saw them as one.
The same links join a person who was hidden for long to the one who comes out again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pose2d.detect.appearance import Appearances, log_likelihood_ratio_of_pairs, stack
from pose2d.detect.jumps import Path, mean_looks


@dataclass(frozen=True)
class StitchOptions:
    """Chosen on the tuning seeds of bench/identity.py, in body sizes (box diagonals) and seconds."""

    meet: float = 0.3  # people meet while one's box is covered by another's to at least this share
    gap_s: float = 0.3  # a longer gap also ends a piece
    longest_s: float = 5.0  # nobody is expected back after a longer absence
    least_score: float = 2.0  # of a link: log-likelihood ratio
    place_noise: float = 0.1  # standard deviation of where somebody is, without having moved
    acceleration: float = 1.2  # as in kalman.MotionOptions, for people who walk
    turn: float = 1.0  # change of velocity over one second, standard deviation
    size_noise: float = 0.15  # of the log size
    appearance_range: tuple[float, float] = (-8.0, 6.0)
    trusted: float = 4.0  # what it says at most that the tracker saw two pieces as one; less, the more they overlapped
    doubt: float = 2.0  # an exchange this little less likely is reported as a likely swap
    looks_s: float = 4.0  # appearance comes from so much of a piece


@dataclass(frozen=True)
class Pieces:
    """P stretches in which somebody was alone."""

    track: np.ndarray  # [P] the tracker's number
    first: np.ndarray  # [P] place of the first sighting in the track
    last: np.ndarray  # [P] of the last
    start_s: np.ndarray  # [P]
    end_s: np.ndarray  # [P]
    start_px: np.ndarray  # [P, 2] centre
    end_px: np.ndarray  # [P, 2]
    start_velocity_px: np.ndarray  # [P, 2] a second; 0 where too short to tell
    end_velocity_px: np.ndarray  # [P, 2]
    start_body_px: np.ndarray  # [P] size
    end_body_px: np.ndarray  # [P]
    start_looks: Appearances  # [P]
    end_looks: Appearances  # [P]
    covered_after: np.ndarray  # [P] the largest share of the person that was covered until the track's next piece

    def __len__(self) -> int:
        return len(self.track)


@dataclass(frozen=True)
class Doubt:
    """Two people who may have been exchanged."""

    time_s: float
    pieces: tuple[int, int]  # those they came in as


def pieces_of(paths: Mapping[int, Path], covered: Mapping[int, np.ndarray], options: StitchOptions) -> Pieces:
    """paths: each track in order of time; covered: for each of its sightings the share of the smaller box that this
    person's and another's box have in common. A person who is never alone is one piece."""
    rows: list[tuple[int, int, int]] = []
    for number, path in paths.items():
        alone = covered[number] < options.meet
        run = np.cumsum(np.concatenate([[0], (np.diff(path.time_s) > options.gap_s) | np.diff(alone)]))
        found = [np.flatnonzero((run == r) & alone) for r in np.unique(run[alone])]
        rows += [(number, int(piece[0]), int(piece[-1])) for piece in found] or [(number, 0, len(path) - 1)]
    between = [slice(last + 1, first) for (_, _, last), (_, first, _) in pairwise([*rows, (-1, 0, 0)])]
    ends = [_ends(paths[track], first, last, options) for track, first, last in rows]
    column = lambda name: np.array([getattr(e, name) for e in ends])  # noqa: E731
    return Pieces(
        track=np.array([r[0] for r in rows], np.int64),
        first=np.array([r[1] for r in rows], np.int64),
        last=np.array([r[2] for r in rows], np.int64),
        start_s=np.array([paths[t].time_s[a] for t, a, _ in rows]),
        end_s=np.array([paths[t].time_s[b] for t, _, b in rows]),
        start_px=column("start_px").reshape(-1, 2),
        end_px=column("end_px").reshape(-1, 2),
        start_velocity_px=column("start_velocity_px").reshape(-1, 2),
        end_velocity_px=column("end_velocity_px").reshape(-1, 2),
        start_body_px=column("start_body_px"),
        end_body_px=column("end_body_px"),
        start_looks=stack([e.start_looks for e in ends]),
        end_looks=stack([e.end_looks for e in ends]),
        covered_after=np.array([covered[row[0]][part].max(initial=0) for row, part in zip(rows, between, strict=True)]),
    )


@dataclass(frozen=True)
class _Ends:
    start_px: np.ndarray
    end_px: np.ndarray
    start_velocity_px: np.ndarray
    end_velocity_px: np.ndarray
    start_body_px: float
    end_body_px: float
    start_looks: Appearances
    end_looks: Appearances


def _ends(path: Path, first: int, last: int, options: StitchOptions) -> _Ends:
    t = path.time_s
    begin = slice(first, min(last + 1, max(int(np.searchsorted(t, t[first] + 0.4, side="right")), first + 1)))
    end = slice(max(first, min(int(np.searchsorted(t, t[last] - 0.4)), last)), last + 1)
    looks_end = min(last + 1, int(np.searchsorted(t, t[first] + options.looks_s, side="right")))
    looks_begin = max(first, int(np.searchsorted(t, t[last] - options.looks_s)))
    velocity = [_velocity(t[part], path.centre_px[part]) for part in (begin, end)]
    return _Ends(
        path.centre_px[first], path.centre_px[last], velocity[0], velocity[1],
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
    pieces: Pieces, pairs: tuple[np.ndarray, np.ndarray], kept: np.ndarray, image_wh: tuple[int, int], o: StitchOptions
) -> np.ndarray:
    """The log-likelihood ratio [M] that the first piece of each pair goes on as the second; kept [M]: what it says that
    the tracker saw them as one."""
    i, j = pairs
    dt = pieces.start_s[j] - pieces.end_s[i]
    body = np.sqrt(pieces.end_body_px[i] * pieces.start_body_px[j])
    before, after = (
        v / body[:, None] for v in (pieces.end_velocity_px[i], pieces.start_velocity_px[j])
    )  # body sizes a second
    reach = 1 - np.exp(-dt)  # velocity is forgotten within a second, as in kalman.MotionOptions
    moved = (pieces.start_px[j] - pieces.end_px[i]) / body[:, None] - reach[:, None] * (before + after) / 2
    place_var = o.place_noise**2 + o.acceleration**2 * np.minimum(dt, 3.0) ** 3 / 12 + 0.1**2 * dt
    room = np.maximum(np.prod(np.array(image_wh, float)) / body**2, 2.0)
    place = np.log(room / (2 * np.pi * place_var)) - np.minimum((moved**2).sum(-1) / place_var, 50) / 2
    turn_var = 0.3**2 + o.turn**2 * dt
    turn2 = ((after - before) ** 2).sum(-1)
    turn = np.clip(np.log((turn_var + 1) / turn_var) - turn2 / turn_var / 2 + turn2 / (turn_var + 1) / 2, -3, 1.5)
    grown2 = np.log(pieces.start_body_px[j] / pieces.end_body_px[i]) ** 2
    size_var = o.size_noise**2 + 0.1**2 * dt
    size = np.log((size_var + 0.16) / size_var) / 2 - grown2 / size_var / 2 + grown2 / (size_var + 0.16) / 2
    looks = log_likelihood_ratio_of_pairs(pieces.end_looks[i], pieces.start_looks[j])
    return place + turn + np.clip(size, -4, 2) + np.clip(looks, *o.appearance_range) + kept - 0.3 * dt


def link(pieces: Pieces, image_wh: tuple[int, int], options: StitchOptions) -> tuple[np.ndarray, list[Doubt]]:
    """For every piece the one that goes on from it, [P], -1 for none; and exchanges that are nearly as likely."""
    count = len(pieces)
    after = np.full(count, -1, np.int64)
    wait = pieces.start_s[None] - pieces.end_s[:, None]
    i, j = np.nonzero((wait > 0) & (wait <= options.longest_s))
    same = (pieces.track[i] == pieces.track[j]) & (j == i + 1)
    kept = np.where(same, np.clip(options.trusted * (1.2 - pieces.covered_after[i]), 0.5, options.trusted), 0.0)
    score = link_scores(pieces, (i, j), kept, image_wh, options)
    good = score > options.least_score
    i, j, score = i[good], j[good], score[good]
    table = {(int(a), int(b)): float(s) for a, b, s in zip(i, j, score, strict=True)}
    graph = coo_array((np.ones(len(i)), (i, j + count)), shape=(2 * count, 2 * count))
    label = connected_components(graph, directed=False)[1] if len(i) else np.zeros(0, int)
    for group in np.unique(label[i]) if len(i) else ():
        mine = label[i] == group
        rows, row = np.unique(i[mine], return_inverse=True)
        columns, column = np.unique(j[mine], return_inverse=True)
        gain = np.zeros((len(rows), len(columns)))
        gain[row, column] = score[mine]
        for r, c in zip(*linear_sum_assignment(-gain), strict=True):
            if gain[r, c] > 0:
                after[rows[r]] = columns[c]
    return after, _doubts(pieces, after, table, options)


def _doubts(
    pieces: Pieces, after: np.ndarray, score: Mapping[tuple[int, int], float], options: StitchOptions
) -> list[Doubt]:
    """Pairs of people who met, and would be linked the other way round nearly as likely."""
    out: list[Doubt] = []
    linked = np.flatnonzero(after >= 0)
    for n, a in enumerate(linked.tolist()):
        for b in linked[n + 1 :].tolist():
            crossed = score.get((a, int(after[b]))), score.get((b, int(after[a])))
            if crossed[0] is None or crossed[1] is None:
                continue
            less = score[a, int(after[a])] + score[b, int(after[b])] - crossed[0] - crossed[1]
            if less < options.doubt:
                out.append(Doubt(float(max(pieces.end_s[a], pieces.end_s[b])), (a, b)))
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
    paths: Mapping[int, Path], pieces: Pieces, after: np.ndarray, options: StitchOptions
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


def _exchange_s(paths: Mapping[int, Path], pieces: Pieces, one: int, other: int) -> float | None:
    """When the person of piece `one` went on in the track of piece `other`: where both tracks were nearest to each
    other in between; None where either is nobody."""
    if one < 0 or other < 0:
        return None
    a, b = paths[int(pieces.track[one])], paths[int(pieces.track[other])]
    start, end = float(pieces.end_s[one]), float(pieces.start_s[other])
    common, in_a, in_b = np.intersect1d(a.time_s, b.time_s, return_indices=True)
    between = (common >= start) & (common <= end)
    if not between.any():
        later = b.time_s[(b.time_s > start)]
        return float(later[0]) - 1e-6 if len(later) else start
    away = np.linalg.norm(a.centre_px[in_a[between]] - b.centre_px[in_b[between]], axis=-1)
    return float(common[between][int(away.argmin())])
