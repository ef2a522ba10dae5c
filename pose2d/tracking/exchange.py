"""Whether two people who met were exchanged by the tracker.

A tracker decides frame by frame, and sees least where people overlap. Here all ways to give the
boxes of two tracks to two people are compared, as a beam of hypotheses. Each hypothesis has a
Kalman filter for either person and adds up the log likelihood of the boxes under it and of their
appearance. At the end, the appearance after the encounter is compared with that before it. The same
comparison decides whether a track that begins continues one that has ended."""

from dataclasses import dataclass, fields

import numpy as np

from pose2d.tracking.appearance import log_likelihood_ratio_of_pairs, overall
from pose2d.tracking.track_path import TrackPath
from pose2d.types import Appearance


@dataclass(frozen=True)
class SecondLookOptions:
    """Thresholds and noise of the second look, chosen on the tuning seeds of bench/identity.py.
    Lengths are in body sizes (box diagonals), times in seconds.
    """

    gap_s: float = 0.3  # a longer gap ends a track, until it is joined again
    meet: float = 0.2  # two people meet while their boxes share this much of the smaller one
    apart_s: float = 1.0  # encounters that follow each other sooner are one
    longest_s: float = 5.0  # a person who is absent for longer is not expected back
    # Change of a box's log height beyond which the person may have fallen or got up.
    fallen: float = 0.5
    fastest: float = 3.0  # body sizes per second that a hidden person may move
    least_gain: float = 0.5  # of log likelihood, from which tracks are changed
    # An exchange that is less likely by no more than this is reported.
    switch_candidate: float = 2.0
    rounds: int = 2  # of deciding encounters and joining tracks
    # Boxes this long before an encounter say where and how fast each person moves; boxes this long
    # after it say who is who.
    before_s: float = 1.0
    after_s: float = 1.0
    appearance_s: float = 4.0  # appearance before and after is averaged over this time
    beam: int = 16  # hypotheses that are kept
    place_noise: float = 0.03  # std of a box's centre and upper edge
    size_noise: float = 0.08  # std of its log height
    size_drift: float = 0.15  # change of the log height over one second
    first_speed: float = 0.5  # std of a new person's speed
    acceleration: float = 0.6  # change of velocity over one second
    velocity_memory_s: float = 3.0  # without a box, velocity falls to 1/e in this time
    # Share of outlier boxes (half-hidden people, people who turn) and their additional noise.
    wild: float = 0.1
    wild_noise: float = 0.3
    new_person: float = 2.5  # -log probability that a new person appears
    inside: float = 2.0  # is added to it away from the edges of the image
    size_spread: float = 0.4  # std of people's log heights
    # -log probability that the tracker exchanged the two people from one frame to the next.
    exchange_cost: float = 1.5
    appearance_range: tuple[float, float] = (-8.0, 6.0)  # limits of the log-likelihood ratio
    # Weight of the appearance of a single detection within an encounter, where people overlap.
    appearance_now: float = 0.2


@dataclass(frozen=True)
class Decision:
    """The most likely way to give the boxes of two tracks to two people."""

    frames: np.ndarray  # [T] rising
    crossed: np.ndarray  # [T] bool: the two exchange their boxes of that frame
    after: bool  # they exchange the boxes of all later frames
    gain: float  # of log likelihood over leaving everything as it is
    margin: float  # of log likelihood over the best hypothesis that ends the other way


@dataclass
class _Beam:
    """H hypotheses about two people, each with a Kalman filter per person."""

    place_px: np.ndarray  # [H, 2, 2] x, y of each person
    velocity_px: np.ndarray  # [H, 2, 2] per second
    # [H, 2, 2, 2] covariance of (position, velocity), alike on both axes, in body sizes and seconds
    cov: np.ndarray
    log_height: np.ndarray  # [H, 2]
    height_var: np.ndarray  # [H, 2]
    is_started: np.ndarray  # [H, 2] bool: the person has had a box
    score: np.ndarray  # [H] log likelihood so far
    crossed: np.ndarray  # [H] bool: the people have each other's track at the current frame
    history: np.ndarray  # [H, T] `crossed` at all frames so far

    def rows(self, index: np.ndarray) -> "_Beam":
        """Return these hypotheses only."""
        return _Beam(*(getattr(self, column.name)[index] for column in fields(self)))


@dataclass(frozen=True)
class _Encounter:
    """The boxes of two tracks around an encounter, on T frames."""

    frames: np.ndarray  # [T] rising
    time_s: np.ndarray  # [T]
    row: np.ndarray  # [track, T] of the track's path; -1: no box
    place: np.ndarray  # [track, T, 3] as `TrackPath.place`
    inside: np.ndarray  # [track, T] bool
    body_px: float  # size of the two bodies


def decide_exchange(
    a: TrackPath,
    b: TrackPath,
    start_s: float,
    end_s: float,
    image_wh: tuple[int, int],
    o: SecondLookOptions,
) -> Decision | None:
    """Return how the boxes of two tracks are best given to two people who may have been exchanged
    from `start_s` until the first frame after `end_s`; None if either has no box around then.
    """
    paths = (a, b)
    encounter = _cut_out_encounter(paths, start_s - o.before_s, end_s + o.after_s)
    if encounter is None:
        return None
    times = encounter.time_s
    before = [_mean_appearance(p, start_s - o.appearance_s, start_s) for p in paths]
    after = [_mean_appearance(p, end_s, end_s + o.appearance_s) for p in paths]
    appearance_gain = _appearance_gain(paths, encounter.row, before, o)
    has_box = encounter.row >= 0
    # A new person's box may be anywhere in the image and of any height. No position variance is
    # larger than that of a person who may be anywhere.
    most_variance = max(float(np.prod(image_wh)) / encounter.body_px**2, 2.0) / (2 * np.pi)
    log_prior = -np.log(most_variance * o.size_spread)
    as_new = log_prior - o.new_person - o.inside * encounter.inside  # [track, T]
    beam = _first_hypothesis(len(times))
    for t, time_s in enumerate(times):
        if t:
            _predict(beam, float(time_s - times[t - 1]), o)
        if time_s >= start_s and (time_s <= end_s or times[max(t - 1, 0)] <= end_s):
            beam = _branch(beam, o)
        # [H, 2] the track that each person has at this frame
        track = np.array([[0, 1], [1, 0]])[beam.crossed.astype(np.intp)]
        if start_s <= time_s <= end_s:
            gain_a = appearance_gain[0, track[:, 0], t]
            gain_b = appearance_gain[1, track[:, 1], t]
            beam.score = beam.score + gain_a + gain_b
        _update(
            beam,
            encounter.place[:, t][track],
            has_box[:, t][track],
            as_new[:, t][track],
            encounter.body_px,
            most_variance,
            o,
        )
        beam.history[:, t] = beam.crossed
        if len(beam.score) > o.beam:
            beam = beam.rows(_best_hypotheses(beam, o.beam))
    # [person, track] whether the person before looks like the track after
    same = np.array([[_ratio(person, track, o)[0] for track in after] for person in before])
    straight = same[0, 0] + same[1, 1]
    exchanged = same[0, 1] + same[1, 0]
    total = beam.score + np.where(beam.crossed, exchanged, straight)
    best = int(total.argmax())
    unchanged = total[~beam.history.any(1)].max()
    other_way = total[beam.crossed != beam.crossed[best]].max(initial=-np.inf)
    return Decision(
        frames=encounter.frames,
        crossed=beam.history[best],
        after=bool(beam.crossed[best]),
        gain=float(total[best] - unchanged),
        margin=float(total[best] - other_way),
    )


def _cut_out_encounter(
    paths: tuple[TrackPath, TrackPath], start_s: float, end_s: float
) -> _Encounter | None:
    """Return the boxes of two tracks within a time on a common frame axis; None if either has
    none.
    """
    rows = [np.flatnonzero((p.time_s >= start_s) & (p.time_s <= end_s)) for p in paths]
    if not all(map(len, rows)):
        return None
    with_rows = list(zip(paths, rows, strict=True))
    frames = np.union1d(*(path.frame[row] for path, row in with_rows))
    times = np.zeros(len(frames))
    row_at = np.full((2, len(frames)), -1)
    for track, (path, row) in enumerate(with_rows):
        place = np.searchsorted(frames, path.frame[row])
        row_at[track, place] = row
        times[place] = path.time_s[row]
    body_sizes = [np.median(path.body_px[row]) for path, row in with_rows]
    return _Encounter(
        frames=frames,
        time_s=times,
        row=row_at,
        place=np.stack([path.place[row] for path, row in zip(paths, row_at, strict=True)]),
        inside=np.stack([path.inside[row] for path, row in zip(paths, row_at, strict=True)]),
        body_px=float(np.sqrt(np.prod(body_sizes))),
    )


def _mean_appearance(path: TrackPath, start_s: float, end_s: float) -> Appearance:
    """Return the mean appearance [1] of the detections within a time: of those that no other box
    overlaps, or of all if there are none.
    """
    rows = np.flatnonzero((path.time_s >= start_s) & (path.time_s <= end_s))
    alone = rows[path.alone[rows]]
    return overall(path.appearance.rows(alone if len(alone) else rows))


def _ratio(person: Appearance, detections: Appearance, o: SecondLookOptions) -> np.ndarray:
    """Return the log-likelihood ratio [M] that M detections are of the person who looks like
    `person` [1].
    """
    repeated = person.rows(np.zeros(len(detections), np.int64))
    return np.clip(log_likelihood_ratio_of_pairs(repeated, detections), *o.appearance_range)


def _appearance_gain(
    paths: tuple[TrackPath, TrackPath],
    row_at: np.ndarray,
    before: list[Appearance],
    o: SecondLookOptions,
) -> np.ndarray:
    """Return the log likelihood [person, track, T] that a person gains by the appearance of a
    track's detection. row_at [track, T]: rows of the paths; -1: no box.
    """
    gain = np.zeros((2, *row_at.shape))
    for track, path in enumerate(paths):
        with_box = np.flatnonzero(row_at[track] >= 0)
        appearance = path.appearance.rows(row_at[track, with_box])
        for person in range(2):
            ratio = _ratio(before[person], appearance, o)
            gain[person, track, with_box] = o.appearance_now * ratio
    return gain


def _first_hypothesis(frames: int) -> _Beam:
    """Return the beam before the first frame: one hypothesis without any box."""
    return _Beam(
        place_px=np.zeros((1, 2, 2)),
        velocity_px=np.zeros((1, 2, 2)),
        cov=np.zeros((1, 2, 2, 2)),
        log_height=np.zeros((1, 2)),
        height_var=np.ones((1, 2)),
        is_started=np.zeros((1, 2), bool),
        score=np.zeros(1),
        crossed=np.zeros(1, bool),
        history=np.zeros((1, frames), bool),
    )


def _branch(beam: _Beam, o: SecondLookOptions) -> _Beam:
    """Return every hypothesis twice: as it is, and with the two people exchanged."""
    count = len(beam.score)
    flip = np.tile([False, True], count)
    beam = beam.rows(np.arange(count).repeat(2))
    beam.crossed = beam.crossed ^ flip
    beam.score = beam.score - np.where(flip, o.exchange_cost, 0.0)
    return beam


def _best_hypotheses(beam: _Beam, count: int) -> np.ndarray:
    """Return the rows of the best hypotheses of either kind, straight and crossed, and of the one
    in which nothing was ever exchanged.
    """
    best = []
    for is_crossed in (False, True):
        rows = np.flatnonzero(beam.crossed == is_crossed)
        best.append(rows[np.argsort(-beam.score[rows], kind="stable")[: count // 2]])
    unchanged = np.flatnonzero(~beam.history.any(1))
    return np.unique(np.concatenate([*best, unchanged]))


def _predict(beam: _Beam, dt_s: float, o: SecondLookOptions) -> None:
    """Move all filters `dt_s` forwards, as `predict` in pose2d/tracking/tracker.py."""
    decay = np.exp(-dt_s / o.velocity_memory_s)
    reach_s = o.velocity_memory_s * (1 - decay)
    step = np.array([[1.0, reach_s], [0.0, decay]])
    spread = o.acceleration**2 * np.array([[dt_s**3 / 3, dt_s**2 / 2], [dt_s**2 / 2, dt_s]])
    beam.place_px = beam.place_px + reach_s * beam.velocity_px
    beam.velocity_px = decay * beam.velocity_px
    beam.cov = step @ beam.cov @ step.T + spread
    beam.height_var = beam.height_var + o.size_drift**2 * dt_s


def _update(
    beam: _Beam,
    place: np.ndarray,
    has_box: np.ndarray,
    as_new: np.ndarray,
    body_px: float,
    most_variance: float,
    o: SecondLookOptions,
) -> None:
    """Add a frame's boxes to all hypotheses: to their scores and filters. place [H, 2, 3]: the box
    that each hypothesis gives to each person, where `has_box` [H, 2]; as_new [H, 2]: log likelihood
    of each box as a new person's; most_variance: the largest variance of a position.
    """
    offset = (place[..., :2] - beam.place_px) / body_px
    growth = place[..., 2] - beam.log_height
    place_var = beam.cov[..., 0, 0] + o.place_noise**2
    bounded_var = np.minimum(place_var, most_variance)
    growth_var = beam.height_var + o.size_noise**2

    def log_density(share: float, more_var: float) -> np.ndarray:
        """Return the log density of position and log height, without (2 pi)^-1.5."""
        var = bounded_var + more_var
        distance2 = (offset**2).sum(-1) / var + growth**2 / (growth_var + more_var)
        return np.log(share) - distance2 / 2 - np.log(var) - np.log(growth_var + more_var) / 2

    inlier = log_density(1 - o.wild, 0.0)
    outlier = log_density(o.wild, o.wild_noise**2)
    either = np.logaddexp(inlier, outlier)
    likelihood = np.where(beam.is_started, np.maximum(either, as_new), as_new)
    beam.score = beam.score + (has_box * likelihood).sum(1)
    inlier_share = has_box * np.exp(inlier - either)  # an outlier hardly moves the filter
    gain = (inlier_share / place_var)[..., None] * beam.cov[..., 0]  # [H, 2, (position, velocity)]
    height_gain = inlier_share * beam.height_var / growth_var
    step_px = offset * body_px
    beam.place_px = beam.place_px + gain[..., :1] * step_px
    beam.velocity_px = beam.velocity_px + gain[..., 1:] * step_px
    beam.cov = beam.cov - gain[..., None] * beam.cov[..., None, 0, :]
    beam.log_height = beam.log_height + height_gain * growth
    beam.height_var = (1 - height_gain) * beam.height_var
    is_first_box = has_box & ~beam.is_started
    if is_first_box.any():
        beam.place_px[is_first_box] = place[is_first_box][:, :2]
        beam.velocity_px[is_first_box] = 0.0
        beam.cov[is_first_box] = np.diag([o.place_noise**2, o.first_speed**2])
        beam.log_height[is_first_box] = place[is_first_box][:, 2]
        beam.height_var[is_first_box] = o.size_noise**2
        beam.is_started = beam.is_started | has_box
