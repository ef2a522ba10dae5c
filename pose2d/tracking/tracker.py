"""Boxes of one frame after another become tracks with identities.

Every frame, boxes are assigned to tracks at the least total cost (Hungarian). The cost of a pair is -2 log likelihood
of that box under that track's Kalman filter (pose2d/tracking/kalman.py), less what pose and appearance say for the pair
(pose2d/tracking/association.py). The most a pair may cost depends on both sides: a high-scoring box may be far from
where a confirmed track predicts it; a low-scoring box, or any box for a track not yet confirmed, has to be near.
Low-scoring boxes continue tracks and start none (the idea of ByteTrack). At a cut every track ends.
Nothing is smoothed or interpolated: a track holds the detected boxes, and its gaps are gaps.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment

from pose2d.detect.detector import Detections, iou
from pose2d.tracking.appearance import Appearances, blend, stack
from pose2d.tracking.association import AssociationOptions, Cues, best_of_each_pose, cue_log_likelihood, pose_similarity
from pose2d.tracking.kalman import MotionOptions, State, initial_state, mahalanobis, predict, update
from pose2d.tracking.pose_motion import PoseState, first_pose, predict_pose, update_pose
from pose2d.types import Track


@dataclass(frozen=True)
class TrackerOptions:
    """Scores, gaps and costs. bench/tracker.py compares the whole with published trackers on scenes with exact truth;
    the values were chosen by hand on those scenes, none was tuned on its own."""

    sure_score: float = 0.55  # a track is confirmed by boxes of this score in `least_frames` frames; others are dropped
    start_score: float = 0.3  # a box of at least this score may start a track
    doubtful_score: float = 0.2  # a box of at least this score may continue one
    gap_s: float = 2.0  # a track without a box for longer ends; the person comes back under a new identity
    farthest: float = 13.3  # largest squared Mahalanobis distance of a pair: 99 % of chi-squared with 4 degrees
    sure_cost: float = 9.0  # largest cost (see `mahalanobis`) of a sure box on a confirmed track
    doubtful_cost: float = 0.0  # the same for a box that is not sure, or a track not yet confirmed
    least_frames: int = 3  # a shot of fewer frames asks for as many as it has
    same_person_iou: float = 0.6  # a box overlapping a track's box by more than this starts no new track
    same_pose: float = 0.6  # of two boxes whose poses have at least this OKS only the better one is used
    alone_iou: float = 0.2  # what people whose boxes overlap by more look like is not remembered: it may be the other's
    motion: MotionOptions = field(default_factory=MotionOptions)
    cues: AssociationOptions = field(default_factory=AssociationOptions)


@dataclass
class _OpenTrack:
    identity: int
    state: State
    state_s: float  # the time of `state`
    last_box_s: float  # the time of the last box
    shot: int  # number of its shot
    pose: PoseState | None = None  # None: keypoints are not given
    look: Appearances | None = None  # [1]
    frames: list[int] = field(default_factory=list)
    boxes_px: list[np.ndarray] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    sure_frames: int = 0  # in how many of them the score was at least `sure_score`

    def append(self, frame: int, box_px: np.ndarray, score: float, sure: bool) -> None:
        self.frames.append(frame)
        self.boxes_px.append(box_px)
        self.scores.append(score)
        self.sure_frames += sure


class Tracker:
    """Call `update` with each frame in order, and `cut` where a shot ends; `tracks` gives the confirmed tracks."""

    def __init__(self, image_wh: tuple[int, int], options: TrackerOptions | None = None) -> None:
        self.options = options or TrackerOptions()
        self.image_wh = image_wh
        self._image_wh = np.array(image_wh)
        self._open: list[_OpenTrack] = []
        self._ended: list[_OpenTrack] = []
        self._shot_frames = [0]  # frames of each shot so far

    def cut(self) -> None:
        """What comes is another shot: everybody is somebody new."""
        self._ended += self._open
        self._open = []
        self._shot_frames.append(0)

    def update(self, frame: int, time_s: float, detections: Detections, cues: Cues | None = None) -> np.ndarray:
        """Take in the boxes of one frame, and what they say beside (of all frames or of none): whose each is, [N]
        numbers of tracks, -1 for nobody's.

        Frame numbers and times must increase.
        """
        options = self.options
        self._shot_frames[-1] += 1
        for track in self._open:
            self._predict(track, time_s)
        self._end_tracks(time_s)
        boxes = np.flatnonzero(detections.scores >= options.doubtful_score)
        distinct = np.ones(len(detections))
        if cues is not None:
            here = detections.boxes_px[boxes], cues.xy_px[boxes]
            alike = pose_similarity(here[1], here[0], cues.skeleton)
            kept = best_of_each_pose(detections.scores[boxes], *here, alike, options.same_pose)
            distinct[boxes[kept]] = 1 - alike[np.ix_(kept, kept)].max(1, initial=0.0)
            boxes = boxes[kept]
        tracks = list(self._open)
        cost = self._costs(tracks, detections.boxes_px[boxes], _of(cues, boxes), distinct[boxes])
        pairs = assign(cost, self._cost_limit(tracks, detections.scores[boxes]))
        owner = np.full(len(detections), -1, np.int64)
        for row, column in pairs:
            track, box = tracks[row], int(boxes[column])
            owner[box] = track.identity
            track.state = update(track.state, detections.boxes_px[box], self._image_wh, options.motion)
            track.last_box_s = time_s
            self._append(track, box, detections, frame)
        if cues is not None:
            alone = _alone(detections.boxes_px, boxes, options.alone_iou)
            for row, column in pairs:
                box = int(boxes[column])
                _remember(tracks[row], cues, box, float(distinct[box]), bool(alone[box]))
        taken = {column for _, column in pairs}
        for box in (int(b) for i, b in enumerate(boxes) if i not in taken):
            owner[box] = self._start_track(box, detections, frame, time_s, cues)
        return owner

    def confirmed(self) -> dict[int, int]:
        """Numbers of confirmed tracks -> their identities, counted from 1 in the order they appeared."""
        confirmed = sorted(t.identity for t in self._ended + self._open if self._is_confirmed(t))
        return {number: identity for identity, number in enumerate(confirmed, start=1)}

    def tracks(self) -> list[Track]:
        """Confirmed tracks in the order they appeared, numbered from 1."""
        confirmed = sorted(filter(self._is_confirmed, self._ended + self._open), key=lambda track: track.identity)
        return [
            Track(
                identity=number,
                frames=np.array(track.frames, np.int64),
                boxes_px=np.stack(track.boxes_px),
                scores=np.array(track.scores),
            )
            for number, track in enumerate(confirmed, start=1)
        ]

    def _predict(self, track: _OpenTrack, time_s: float) -> None:
        step_s = time_s - track.state_s
        if track.pose is not None:
            track.pose = predict_pose(track.pose, step_s, track.state.body_px, self.options.cues.motion)
        track.state = predict(track.state, step_s, self.options.motion)
        track.state_s = time_s

    def _costs(
        self, tracks: list[_OpenTrack], boxes_px: np.ndarray, cues: Cues | None, distinct: np.ndarray
    ) -> np.ndarray:
        """-2 log likelihood of each pair [tracks, boxes]; infinite where the box is too far away."""
        distance2, cost = mahalanobis([t.state for t in tracks], boxes_px, self.options.motion)
        near = distance2 < self.options.farthest
        poses = [t.pose for t in tracks if t.pose is not None]
        if cues is not None and len(poses) == len(tracks):
            looks = stack([t.look for t in tracks if t.look is not None])
            row, column = np.nonzero(near)
            pairs = row, column
            cost[pairs] -= 2 * cue_log_likelihood(pairs, poses, looks, boxes_px, cues, distinct, self.options.cues)
        return np.where(near, cost, np.inf)

    def _end_tracks(self, time_s: float) -> None:
        """End tracks without a box for long, and those whose predicted box has left the image."""

        def ends(track: _OpenTrack) -> bool:
            box = track.state.box_px
            outside = (box[2:] < 0).any() or (box[:2] > self._image_wh).any()
            return time_s - track.last_box_s > self.options.gap_s or bool(outside)

        self._ended += [track for track in self._open if ends(track)]
        self._open = [track for track in self._open if not ends(track)]

    def _is_confirmed(self, track: _OpenTrack) -> bool:
        return track.sure_frames >= min(self.options.least_frames, self._shot_frames[track.shot])

    def _cost_limit(self, tracks: list[_OpenTrack], scores: np.ndarray) -> np.ndarray:
        """The most that a pair of this track and a box of this score may cost, [tracks, boxes]."""
        confirmed = np.array([self._is_confirmed(track) for track in tracks], bool)
        both_sure = confirmed[:, None] & (scores >= self.options.sure_score)
        return np.where(both_sure, self.options.sure_cost, self.options.doubtful_cost)

    def _start_track(self, box: int, detections: Detections, frame: int, time_s: float, cues: Cues | None) -> int:
        """The number of a new track for a box that no track took; -1 if it is a second box on a tracked person."""
        if detections.scores[box] < self.options.start_score:
            return -1
        here = [track.boxes_px[-1] for track in self._open if track.frames[-1] == frame]
        overlap = iou(detections.boxes_px[box][None], np.reshape(here, (-1, 4)))
        if (overlap > self.options.same_person_iou).any():
            return -1
        state = initial_state(detections.boxes_px[box], self._image_wh, self.options.motion)
        track = _OpenTrack(len(self._ended) + len(self._open), state, time_s, time_s, len(self._shot_frames) - 1)
        if cues is not None:
            track.pose = first_pose(cues.xy_px[box], cues.sigma_px[box], state.body_px)
            track.look = cues.looks[[box]]
        self._append(track, box, detections, frame)
        self._open.append(track)
        return track.identity

    def _append(self, track: _OpenTrack, box: int, detections: Detections, frame: int) -> None:
        score = float(detections.scores[box])
        track.append(frame, detections.boxes_px[box], score, score >= self.options.sure_score)


def _remember(track: _OpenTrack, cues: Cues, box: int, distinct: float, alone: bool) -> None:
    """A track's pose and appearance after a sighting, as far as it shows this person and nobody else."""
    if track.pose is None or track.look is None:
        return
    track.pose = update_pose(track.pose, cues.xy_px[box], cues.sigma_px[box] / max(distinct, 1e-3))
    if alone:
        track.look = blend(track.look, cues.looks[[box]])


def _of(cues: Cues | None, rows: np.ndarray) -> Cues | None:
    return None if cues is None else Cues(cues.xy_px[rows], cues.sigma_px[rows], cues.looks[rows], cues.skeleton)


def _alone(boxes_px: np.ndarray, likely: np.ndarray, most_iou: float) -> np.ndarray:
    """Which boxes [N] overlap no other of the likely ones by more than `most_iou`."""
    overlap = iou(boxes_px, boxes_px[likely])
    overlap[likely, np.arange(len(likely))] = 0
    return np.all(overlap <= most_iou, axis=1)


def assign(cost: np.ndarray, limit: np.ndarray | float) -> list[tuple[int, int]]:
    """The pairs (row, column) of the assignment with the least total cost, where leaving a pair unmade costs its
    `limit` (one, or [rows, columns]): a pair that costs more than that is never made."""
    rows, columns = cost.shape
    gain = np.minimum(cost - limit, 0)  # of making the pair over not making it
    pairs = zip(*linear_sum_assignment(gain), strict=True) if rows and columns else ()
    return [(int(row), int(column)) for row, column in pairs if gain[row, column] < 0]
