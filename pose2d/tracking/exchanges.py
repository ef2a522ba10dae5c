"""Which of two people each box of an encounter shows, decided once what came before and after was seen.

A tracker decides frame by frame, and where people overlap it sees least. Here all ways to give the boxes of two tracks
to two people are compared, as a beam of hypotheses. Each has a Kalman filter for either person and adds up the log
likelihood of the boxes under it and of their appearance; at the end the appearance after the encounter is compared with
that before it. The same comparison says whether a track that begins is the continuation of one that has ended.
"""

from dataclasses import dataclass, fields

import numpy as np

from pose2d.tracking.appearance import log_likelihood_ratio_of_pairs, overall
from pose2d.tracking.paths import TrackPath
from pose2d.types import Appearance


@dataclass(frozen=True)
class ExchangeOptions:
    """Chosen on the tuning seeds of bench/identity.py. Lengths are in body sizes (box diagonals), times in seconds."""

    before_s: float = 1.0  # boxes of so long before an encounter tell where and how fast each person moves
    after_s: float = 1.0  # and so long after it which of them went on as which
    appearance_s: float = 4.0  # appearance before and after comes from so long
    beam: int = 16  # hypotheses kept
    place_noise: float = 0.03  # standard deviation of a box's centre and upper edge
    size_noise: float = 0.08  # of its log height
    size_drift: float = 0.15  # change of the log height over one second
    first_speed: float = 0.5  # of a new person
    acceleration: float = 0.6  # change of velocity over one second
    velocity_memory_s: float = 3.0  # without a box, velocity falls to 1/e in this time
    wild: float = 0.1  # share of boxes that are off by more: half hidden people, and people who turn
    wild_noise: float = 0.3  # by this much more
    new_person: float = 2.5  # -log probability that somebody new appears
    inside: float = 2.0  # more of it, where that is not at an edge of the image
    size_spread: float = 0.4  # of people's log heights
    exchange_cost: float = 1.5  # -log probability that the tracker exchanged the two from one frame to the next
    appearance_range: tuple[float, float] = (-8.0, 6.0)  # limits of the log-likelihood ratio
    appearance_now: float = 0.2  # what that of a single detection within an encounter counts for: others cover it


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
    cov: np.ndarray  # [H, 2, 2, 2] of (position, velocity) on either axis, in body sizes and seconds
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
    o: ExchangeOptions,
) -> Decision | None:
    """The two may be exchanged from `start_s` until the first frame after `end_s`; None if either was not near."""
    paths = (one, other)
    parts = [np.flatnonzero((p.time_s >= start_s - o.before_s) & (p.time_s <= end_s + o.after_s)) for p in paths]
    if not all(map(len, parts)):
        return None
    frames = np.union1d(*(p.frame[part] for p, part in zip(paths, parts, strict=True)))
    times, at = np.zeros(len(frames)), np.full((2, len(frames)), -1)
    for track, (p, part) in enumerate(zip(paths, parts, strict=True)):
        where = np.searchsorted(frames, p.frame[part])
        at[track, where], times[where] = part, p.time_s[part]
    body = float(np.sqrt(np.prod([np.median(p.body_px[part]) for p, part in zip(paths, parts, strict=True)])))
    # A box of somebody new: anywhere in the image, and of any height. Nobody's place is less certain than that.
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
        whose = np.array([[0, 1], [1, 0]])[beam.crossed.astype(np.intp)]  # [H, 2] each person's track
        if start_s <= time_s <= end_s:
            beam.score = beam.score + now[0, whose[:, 0], t] + now[1, whose[:, 1], t]
        _see(beam, value[:, t][whose], (at[:, t] >= 0)[whose], anywhere[:, t][whose], body, room, o)
        beam.history[:, t] = beam.crossed
        if len(beam.score) > o.beam:
            beam = beam.rows(_best(beam, o.beam))
    same = np.array([[_ratio(before[who], after[track], o)[0] for track in range(2)] for who in range(2)])
    total = beam.score + np.where(beam.crossed, same[0, 1] + same[1, 0], same[0, 0] + same[1, 1])
    best = int(total.argmax())
    as_it_is = total[~beam.history.any(1)].max()
    otherwise = total[beam.crossed != beam.crossed[best]].max(initial=-np.inf)
    gain, margin = float(total[best] - as_it_is), float(total[best] - otherwise)
    return Decision(frames, beam.history[best], bool(beam.crossed[best]), gain, margin)


def _mean_appearance(path: TrackPath, start_s: float, end_s: float) -> Appearance:
    """Of the detections of a time, those alone if there are any: [1]."""
    rows = np.flatnonzero((path.time_s >= start_s) & (path.time_s <= end_s))
    clear = rows[path.alone[rows]]
    return overall(path.appearance.rows(clear if len(clear) else rows))


def _ratio(person: Appearance, seen: Appearance, o: ExchangeOptions) -> np.ndarray:
    """Log-likelihood ratio [M] that M detections are of the person who looks like `person` [1]."""
    same = log_likelihood_ratio_of_pairs(person.rows(np.zeros(len(seen), np.int64)), seen)
    return np.clip(same, *o.appearance_range)


def _appearance_now(
    paths: tuple[TrackPath, TrackPath], at: np.ndarray, before: list[Appearance], o: ExchangeOptions
) -> np.ndarray:
    """What the appearance of single detections counts for, [person, track, T]."""
    out = np.zeros((2, *at.shape))
    for track, path in enumerate(paths):
        seen = np.flatnonzero(at[track] >= 0)
        for who in range(2):
            out[who, track, seen] = o.appearance_now * _ratio(before[who], path.appearance.rows(at[track, seen]), o)
    return out


def _first(frames: int) -> _Beam:
    """One hypothesis: nobody was seen yet."""
    return _Beam(
        np.zeros((1, 2, 2)), np.zeros((1, 2, 2)), np.zeros((1, 2, 2, 2)), np.zeros((1, 2)), np.ones((1, 2)),
        np.zeros((1, 2), bool), np.zeros(1), np.zeros(1, bool), np.zeros((1, frames), bool),
    )  # fmt: skip


def _branched(beam: _Beam, o: ExchangeOptions) -> _Beam:
    """Every hypothesis goes on as it is, or with the two exchanged."""
    count = len(beam.score)
    flip = np.tile([False, True], count)
    beam = beam.rows(np.arange(count).repeat(2))
    beam.crossed = beam.crossed ^ flip
    beam.score = beam.score - np.where(flip, o.exchange_cost, 0.0)
    return beam


def _best(beam: _Beam, keep: int) -> np.ndarray:
    """The best hypotheses of either kind, straight and crossed, and the one in which nothing ever changed."""
    kinds = [np.flatnonzero(beam.crossed == kind) for kind in (False, True)]
    best = [rows[np.argsort(-beam.score[rows], kind="stable")[: keep // 2]] for rows in kinds]
    return np.unique(np.concatenate([*best, np.flatnonzero(~beam.history.any(1))]))


def _predict(beam: _Beam, dt_s: float, o: ExchangeOptions) -> None:
    """All states `dt_s` later, as in pose2d/tracking/kalman.py."""
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
    o: ExchangeOptions,
) -> None:
    """Each hypothesis gives its two people boxes, `value` [H, 2, 3], or none where not `seen` [H, 2].

    anywhere [H, 2]: log likelihood of each box as somebody new's; room: the largest variance of a place.
    """
    off = (value[..., :2] - beam.place_px) / body_px
    grown = value[..., 2] - beam.size
    place_var = beam.cov[..., 0, 0] + o.place_noise**2
    var = np.minimum(place_var, room)
    grown_var = beam.size_var + o.size_noise**2
    usual = np.log1p(-o.wild) + _log_normal(off, grown, var, grown_var)
    wild = np.log(o.wild) + _log_normal(off, grown, var + o.wild_noise**2, grown_var + o.wild_noise**2)
    both = np.logaddexp(usual, wild)
    likelihood = np.where(beam.known, np.maximum(both, anywhere), anywhere)
    beam.score = beam.score + (seen * likelihood).sum(1)
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
        beam.place_px[new], beam.velocity_px[new] = value[new][:, :2], 0.0
        beam.cov[new] = np.diag([o.place_noise**2, o.first_speed**2])
        beam.size[new], beam.size_var[new] = value[new][:, 2], o.size_noise**2
        beam.known = beam.known | seen


def _log_normal(off: np.ndarray, grown: np.ndarray, var: np.ndarray, grown_var: np.ndarray) -> np.ndarray:
    """Log density of a place `off` [..., 2] and a log height `grown` [...], without (2 pi)^-1.5."""
    return -((off**2).sum(-1) / var + grown**2 / grown_var) / 2 - np.log(var) - np.log(grown_var) / 2
