"""Boxes of one frame after another become tracks with identities.

Every frame, boxes are assigned to tracks at the least total cost (Hungarian). The cost of a pair is
-2 log likelihood of that box under that track's Kalman filter, less twice the log-likelihood ratio
of their appearance. The most a pair may cost depends on both sides: a high-scoring box may be far
from where a confirmed track predicts it; a low-scoring box, or any box for a track not yet
confirmed, has to be near. Low-scoring boxes continue tracks and start none (the idea of ByteTrack).
At a cut every track ends. Nothing is smoothed or interpolated: a track holds the detected boxes,
and its gaps are gaps.

Appearance contributes a log-likelihood ratio (this track's person against any other person in the
same place), so it adds up with the likelihood of the box's motion. A half-hidden person gets the
keypoints, and with them the colours, of the person in front. So appearance counts only as far as a
detection's pose differs from the poses of the other detections.

The filter is on a person's box, in units of the person's own size. Position moves with a velocity
that changes by random accelerations and decays; the logarithm of width and height drifts. Both axes
are alike and independent, so each is a 2x2 filter (position, velocity) and a scalar one (size), in
closed form."""

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment

from pose2d.detect.boxes import iou
from pose2d.tracking.appearance import blend, log_likelihood_ratio_of_pairs
from pose2d.tracking.pose_duplicates import best_of_each_pose, pose_similarity
from pose2d.types import NOBODY, Appearance, Detections


@dataclass(frozen=True)
class State:
    """A person's box at one time, as a Gaussian. Axis 0 is x and width, axis 1 is y and height."""

    centre_px: np.ndarray  # [2]
    velocity_px: np.ndarray  # [2] per second
    log_size: np.ndarray  # [2] log of width and height in pixels
    # [2, 2, 2] for each axis the covariance of (position, velocity), in body sizes and seconds
    motion_cov: np.ndarray
    size_var: np.ndarray  # [2]
    # The body's size: the largest recent diagonal of the box, which a half-hidden person keeps.
    body_px: float

    @property
    def box_px(self) -> np.ndarray:
        half = np.exp(self.log_size) / 2
        return np.concatenate([self.centre_px - half, self.centre_px + half])


@dataclass(frozen=True)
class TrackerOptions:
    """Scores, gaps and costs of the tracker.

    bench/identity.py compares it with published trackers on scenes with exact truth. The values
    were chosen by hand on those scenes; none was tuned on its own."""

    # A track is confirmed by boxes of this score in `least_frames` frames (or in all frames of a
    # shorter shot). Other tracks are dropped.
    sure_score: float = 0.55
    least_frames: int = 3
    start_score: float = 0.3  # a box of at least this score may start a track
    doubtful_score: float = 0.2  # a box of at least this score may continue one
    # A track without a box for longer ends; the person comes back under a new identity.
    gap_s: float = 2.0
    # Largest squared Mahalanobis distance of a pair: 99 % of chi-squared with 4 degrees of freedom.
    farthest: float = 13.3
    # Largest cost (see `mahalanobis`) of a sure box on a confirmed track, and of other pairs.
    sure_cost: float = 9.0
    doubtful_cost: float = 0.0
    # A box that overlaps the box of an open track by more than this IoU starts no new track.
    same_person_iou: float = 0.6
    # Of two boxes whose poses have at least this OKS only the better one is used.
    same_pose: float = 0.6
    # Limits of the log-likelihood ratio of appearance, so that it does not decide alone.
    appearance_range: tuple[float, float] = (-8.0, 4.0)
    # How people move and how boxes jitter, in body sizes (box diagonals) and seconds, estimated by
    # hand from walking and running people and from detected boxes:
    acceleration: float = 2.0  # std; free fall is about 5, and rare
    velocity_memory_s: float = 1.0  # without a box, velocity falls to 1/e in this time
    first_speed: float = 1.0  # std at the first box; a brisk walk is about 1, a sprint 4
    position_noise: float = 0.03  # of a detected box's centre
    size_noise: float = 0.1  # of a detected box's log width and height
    sudden_size_noise: float = 0.3  # share of a sudden change of log size that counts as noise
    size_drift: float = 0.4  # of the log size over one second: people crouch and stretch
    body_memory_s: float = 5.0  # the largest recent size falls to 1/e in this time


def initial_state(box_px: np.ndarray, options: TrackerOptions) -> State:
    """Return the state of a person after the first box [4]."""
    centre, log_size = _centre_and_log_size(box_px)
    cov = np.diag([options.position_noise**2, options.first_speed**2])
    return State(
        centre,
        np.zeros(2),
        log_size,
        np.stack([cov, cov]),
        np.full(2, options.size_noise**2),
        float(np.hypot(*np.exp(log_size))),
    )


def predict(state: State, dt_s: float, options: TrackerOptions) -> State:
    """Return the state `dt_s` later, without a new box."""
    decay = np.exp(-dt_s / options.velocity_memory_s)
    reach_s = options.velocity_memory_s * (1 - decay)  # integral of the decaying velocity
    step = np.array([[1.0, reach_s], [0.0, decay]])
    # White noise on the acceleration, so that uncertainty does not depend on the frame rate:
    # Q = q [[dt^3/3, dt^2/2], [dt^2/2, dt]] with q = acceleration^2 x 1 s.
    spread = options.acceleration**2 * np.array([[dt_s**3 / 3, dt_s**2 / 2], [dt_s**2 / 2, dt_s]])
    return State(
        state.centre_px + reach_s * state.velocity_px,
        decay * state.velocity_px,
        state.log_size,
        np.einsum("ij,ajk,lk->ail", step, state.motion_cov, step) + spread,
        state.size_var + options.size_drift**2 * dt_s,
        state.body_px * float(np.exp(-dt_s / options.body_memory_s)),
    )


def update(state: State, box_px: np.ndarray, options: TrackerOptions) -> State:
    """Return the state after a new box [4]."""
    centre, log_size = _centre_and_log_size(box_px)
    position_noise2, size_noise2 = _noise_variances(state, log_size, options)
    cov = state.motion_cov
    gain = cov[:, :, 0] / (cov[:, 0, 0] + position_noise2)[:, None]  # [axis, (position, velocity)]
    size_gain = state.size_var / (state.size_var + size_noise2)
    innovation_px = centre - state.centre_px
    log_size = state.log_size + size_gain * (log_size - state.log_size)
    return State(
        state.centre_px + gain[:, 0] * innovation_px,
        state.velocity_px + gain[:, 1] * innovation_px,
        log_size,
        cov - np.einsum("ai,aj->aij", gain, cov[:, 0]),
        (1 - size_gain) * state.size_var,
        max(state.body_px, float(np.hypot(*np.exp(log_size)))),
    )


def mahalanobis(
    states: list[State], boxes_px: np.ndarray, options: TrackerOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Return the squared Mahalanobis distance of each box under each state, and -2 log likelihood
    without its constant; both [states, boxes].

    The distance gates (99 % of right pairs stay below 13.3). The likelihood ranks: its log det term
    prefers a state that is certain to one that has long had no box. Positions are in body sizes, so
    both mean the same for near and far people."""
    shape = (len(states), len(boxes_px))
    distance2 = np.zeros(shape)
    likelihood = np.zeros(shape)
    centre, log_size = _centre_and_log_size(boxes_px)
    for row, state in enumerate(states):
        position_noise2, size_noise2 = _noise_variances(state, log_size, options)
        position_var = state.motion_cov[:, 0, 0] + position_noise2  # [boxes, axis]
        size_var = state.size_var + size_noise2
        offset = (centre - state.centre_px) / state.body_px
        growth = log_size - state.log_size
        distance2[row] = (offset**2 / position_var + growth**2 / size_var).sum(-1)
        likelihood[row] = distance2[row] + np.log(position_var * size_var).sum(-1)
    return distance2, likelihood


def _noise_variances(
    state: State, log_size: np.ndarray, options: TrackerOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Return the variances of a box's centre (body sizes^2) and log size, for boxes of log sizes
    [..., 2]; both [..., 2].

    A box that suddenly ends at the hips (half the person is hidden) moves its centre by half of
    what it lost, without any motion of the person. So half the change in size counts as noise of
    the centre."""
    change = (np.exp(log_size) - np.exp(state.log_size)) / state.body_px
    change_of_log = log_size - state.log_size
    return (
        options.position_noise**2 + (change / 2) ** 2,
        options.size_noise**2 + (options.sudden_size_noise * change_of_log) ** 2,
    )


def _centre_and_log_size(boxes_px: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return centre and log size of boxes [..., 4], [..., 2] each."""
    first = boxes_px[..., :2]
    last = boxes_px[..., 2:]
    return (first + last) / 2, np.log(np.maximum(last - first, 1.0))


@dataclass
class _OpenTrack:
    identity: int
    state: State
    state_s: float  # the time of `state`
    last_box_s: float  # the time of the last box
    shot: int  # number of its shot
    appearance: Appearance | None = None  # [1]; None: not given
    last_box_px: np.ndarray = field(default_factory=lambda: np.zeros(4))
    sure_frames: int = 0  # in how many frames the score was at least `sure_score`


class Tracker:
    """Gives the boxes of each frame to tracks: call `update` with each frame in order and `cut`
    where a shot ends; `confirmed` says which tracks are people.
    """

    def __init__(self, image_wh: tuple[int, int], options: TrackerOptions | None = None) -> None:
        self.options = options or TrackerOptions()
        self.image_wh = image_wh
        self._open: list[_OpenTrack] = []
        self._ended: list[_OpenTrack] = []
        self._shot_frames = [0]  # frames of each shot so far

    def cut(self) -> None:
        """Begin another shot: all tracks end."""
        self._ended += self._open
        self._open = []
        self._shot_frames.append(0)

    def update(self, time_s: float, detections: Detections) -> np.ndarray:
        """Take in the N detections of one frame and return the number of each one's track [N], or
        NOBODY where it has none. Times must increase. Keypoints and appearance must be there in all
        frames or in none. Detections with an identity were made where that track was expected:
        they continue tracks and start none.
        """
        self._shot_frames[-1] += 1
        for track in self._open:
            track.state = predict(track.state, time_s - track.state_s, self.options)
            track.state_s = time_s
        self._end_tracks(time_s)
        tracks = list(self._open)
        states = [track.state for track in tracks]
        boxes, pairs = self._match(tracks, states, detections)
        owner = np.full(len(detections), NOBODY, np.int64)
        for row, column in pairs:
            track = tracks[row]
            box = int(boxes[column])
            owner[box] = track.identity
            track.state = update(track.state, detections.box_px[box], self.options)
            self._note_box(track, box, detections, time_s)
            if track.appearance is not None and detections.appearance is not None:
                track.appearance = blend(track.appearance, detections.appearance.rows([box]))
        assigned_columns = [column for _, column in pairs]
        for box in np.delete(boxes, assigned_columns).tolist():
            if detections.identity[box] == NOBODY:
                owner[box] = self._start_track(box, detections, time_s)
        return owner

    def unmatched(
        self, time_s: float, detections: Detections, longest_s: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the tracks of people that the detections of the next frame would leave without a
        box, and where they are expected: numbers [M] and boxes [M, 4]. Nothing is changed.

        longest_s: only tracks with a box within this time count."""
        tracks = list(self._open)
        states = [predict(t.state, time_s - t.state_s, self.options) for t in tracks]
        _, pairs = self._match(tracks, states, detections)
        matched = {row for row, _ in pairs}
        lost = [
            row
            for row, track in enumerate(tracks)
            if row not in matched
            and self._is_confirmed(track)
            and time_s - track.last_box_s <= longest_s
        ]
        boxes_px = np.reshape([states[row].box_px for row in lost], (-1, 4))
        return np.array([tracks[row].identity for row in lost], np.int64), boxes_px

    def _match(
        self, tracks: list[_OpenTrack], states: list[State], detections: Detections
    ) -> tuple[np.ndarray, list[tuple[int, int]]]:
        """Return the usable rows of detections, and pairs of a track and a place among them, for
        tracks with these states at the time of the detections.
        """
        boxes, distinct = self._usable_boxes(detections)
        cost = self._costs(tracks, states, detections.rows(boxes), distinct)
        return boxes, assign(cost, self._cost_limit(tracks, detections.score[boxes]))

    def _usable_boxes(self, detections: Detections) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows [M] of detections with enough score, the best one of each pose, and how
        far the pose of each differs from the others [M]: 1 - the OKS with the most similar one.
        """
        boxes = np.flatnonzero(detections.score >= self.options.doubtful_score)
        if detections.keypoints is None or detections.appearance is None:
            return boxes, np.ones(len(boxes))
        box_px = detections.box_px[boxes]
        xy_px = detections.xy_px[boxes].astype(np.float64)
        similarity = pose_similarity(xy_px, box_px, detections.keypoints.skeleton)
        best = best_of_each_pose(
            detections.score[boxes], box_px, xy_px, similarity, self.options.same_pose
        )
        distinct = 1 - similarity[np.ix_(best, best)].max(1, initial=0.0)
        return boxes[best], distinct

    def confirmed(self) -> dict[int, int]:
        """Return the identities of confirmed tracks by track number, counted from 1 in the order
        they appeared.
        """
        confirmed = sorted(t.identity for t in self._ended + self._open if self._is_confirmed(t))
        return {number: identity for identity, number in enumerate(confirmed, start=1)}

    def _costs(
        self,
        tracks: list[_OpenTrack],
        states: list[State],
        detections: Detections,
        distinct: np.ndarray,
    ) -> np.ndarray:
        """Return -2 log likelihood of each pair [tracks, boxes]; infinite where the box is too far
        away. distinct [boxes]: weight of each box's appearance (`_usable_boxes`).
        """
        distance2, cost = mahalanobis(states, detections.box_px, self.options)
        near = distance2 < self.options.farthest
        appearances = [t.appearance for t in tracks if t.appearance is not None]
        have_appearance = appearances and len(appearances) == len(tracks)
        if detections.appearance is not None and have_appearance:
            row, column = np.nonzero(near)
            ratio = log_likelihood_ratio_of_pairs(
                Appearance.concat(appearances).rows(row), detections.appearance.rows(column)
            )
            clipped = np.clip(ratio, *self.options.appearance_range)
            cost[row, column] -= 2 * distinct[column] ** 2 * clipped
        return np.where(near, cost, np.inf)

    def _end_tracks(self, time_s: float) -> None:
        """End tracks without a box for long, and those whose predicted box has left the image."""

        def ends(track: _OpenTrack) -> bool:
            box = track.state.box_px
            outside = (box[2:] < 0).any() or (box[:2] > self.image_wh).any()
            return time_s - track.last_box_s > self.options.gap_s or bool(outside)

        self._ended += [track for track in self._open if ends(track)]
        self._open = [track for track in self._open if not ends(track)]

    def _is_confirmed(self, track: _OpenTrack) -> bool:
        return track.sure_frames >= min(self.options.least_frames, self._shot_frames[track.shot])

    def _cost_limit(self, tracks: list[_OpenTrack], scores: np.ndarray) -> np.ndarray:
        """Return the largest cost that each pair may have, [tracks, boxes]."""
        confirmed = np.array([self._is_confirmed(track) for track in tracks], bool)
        both_sure = confirmed[:, None] & (scores >= self.options.sure_score)
        return np.where(both_sure, self.options.sure_cost, self.options.doubtful_cost)

    def _start_track(self, box: int, detections: Detections, time_s: float) -> int:
        """Start a track with a box that was assigned to none and return its number; NOBODY if the
        score is too low or if it is a second box on a tracked person.
        """
        if detections.score[box] < self.options.start_score:
            return NOBODY
        current_boxes = [track.last_box_px for track in self._open if track.last_box_s == time_s]
        overlap = iou(detections.box_px[box][None], np.reshape(current_boxes, (-1, 4)))
        if (overlap > self.options.same_person_iou).any():
            return NOBODY
        track = _OpenTrack(
            identity=len(self._ended) + len(self._open),
            state=initial_state(detections.box_px[box], self.options),
            state_s=time_s,
            last_box_s=time_s,
            shot=len(self._shot_frames) - 1,
        )
        if detections.appearance is not None:
            track.appearance = detections.appearance.rows([box])
        self._note_box(track, box, detections, time_s)
        self._open.append(track)
        return track.identity

    def _note_box(self, track: _OpenTrack, box: int, detections: Detections, time_s: float) -> None:
        """Record a track's newest box."""
        track.last_box_s = time_s
        track.last_box_px = detections.box_px[box]
        track.sure_frames += int(detections.score[box] >= self.options.sure_score)


def assign(cost: np.ndarray, limit: np.ndarray | float) -> list[tuple[int, int]]:
    """Return the pairs (row, column) of the assignment with the least total cost. Leaving a pair
    out costs its `limit` (a number, or [rows, columns]), so a pair that costs more is never made.
    """
    rows, columns = cost.shape
    gain = np.minimum(cost - limit, 0)  # of making the pair over not making it
    pairs = zip(*linear_sum_assignment(gain), strict=True) if rows and columns else ()
    return [(int(row), int(column)) for row, column in pairs if gain[row, column] < 0]
