"""Boxes of one frame after another become tracks with identities.

Every frame, boxes are assigned to tracks at the least total cost (Hungarian), the cost of a pair being the negative log
likelihood of that box under that track's Kalman filter (pose2d/detect/kalman.py). The most a pair may cost depends on
both sides: a high-scoring box may be far from where a confirmed track predicts it; a low-scoring box, or any box for a
track not yet confirmed, has to be near. Low-scoring boxes continue tracks and start none (the idea of ByteTrack).
Nothing is smoothed or interpolated: a track holds the detected boxes, and its gaps are gaps.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment

from pose2d.detect.detector import Detections, iou
from pose2d.detect.kalman import MotionOptions, State, initial_state, mahalanobis, predict, update
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
    least_frames: int = 3  # a video of fewer frames asks for as many as it has
    same_person_iou: float = 0.6  # a box overlapping a track's box by more than this starts no new track
    motion: MotionOptions = field(default_factory=MotionOptions)


@dataclass
class _OpenTrack:
    identity: int
    state: State
    state_s: float  # the time of `state`
    last_box_s: float  # the time of the last box
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
    """Call `update` with each frame in order; `tracks` gives the confirmed tracks so far."""

    def __init__(self, image_wh: tuple[int, int], options: TrackerOptions | None = None) -> None:
        self.options = options or TrackerOptions()
        self._image_wh = np.array(image_wh)
        self._open: list[_OpenTrack] = []
        self._ended: list[_OpenTrack] = []
        self._frames = 0

    def update(self, frame: int, time_s: float, detections: Detections) -> None:
        """Take in the boxes of one frame. Frame numbers and times must increase."""
        options = self.options
        self._frames += 1
        for track in self._open:
            track.state = predict(track.state, time_s - track.state_s, options.motion)
            track.state_s = time_s
        self._end_tracks(time_s)
        boxes = np.flatnonzero(detections.scores >= options.doubtful_score)
        tracks = list(self._open)
        distance2, cost = mahalanobis([t.state for t in tracks], detections.boxes_px[boxes], options.motion)
        cost = np.where(distance2 < options.farthest, cost, np.inf)
        pairs = assign(cost, self._cost_limit(tracks, detections.scores[boxes]))
        for row, column in pairs:
            track, box = tracks[row], boxes[column]
            track.state = update(track.state, detections.boxes_px[box], self._image_wh, options.motion)
            track.last_box_s = time_s
            self._append(track, box, detections, frame)
        taken = {column for _, column in pairs}
        self._start_tracks([int(b) for i, b in enumerate(boxes) if i not in taken], detections, frame, time_s)

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

    def _end_tracks(self, time_s: float) -> None:
        """End tracks without a box for long, and those whose predicted box has left the image."""

        def ends(track: _OpenTrack) -> bool:
            box = track.state.box_px
            outside = (box[2:] < 0).any() or (box[:2] > self._image_wh).any()
            return time_s - track.last_box_s > self.options.gap_s or bool(outside)

        self._ended += [track for track in self._open if ends(track)]
        self._open = [track for track in self._open if not ends(track)]

    def _is_confirmed(self, track: _OpenTrack) -> bool:
        return track.sure_frames >= min(self.options.least_frames, self._frames)

    def _cost_limit(self, tracks: list[_OpenTrack], scores: np.ndarray) -> np.ndarray:
        """The most that a pair of this track and a box of this score may cost, [tracks, boxes]."""
        confirmed = np.array([self._is_confirmed(track) for track in tracks], bool)
        both_sure = confirmed[:, None] & (scores >= self.options.sure_score)
        return np.where(both_sure, self.options.sure_cost, self.options.doubtful_cost)

    def _start_tracks(self, boxes: list[int], detections: Detections, frame: int, time_s: float) -> None:
        """A track for each of `boxes`, which no track took, unless it is a second box on a tracked person."""
        for box in boxes:
            if detections.scores[box] < self.options.start_score:
                continue
            here = [track.boxes_px[-1] for track in self._open if track.frames[-1] == frame]
            overlap = iou(detections.boxes_px[box][None], np.reshape(here, (-1, 4)))
            if (overlap > self.options.same_person_iou).any():
                continue
            state = initial_state(detections.boxes_px[box], self._image_wh, self.options.motion)
            track = _OpenTrack(len(self._ended) + len(self._open), state, time_s, time_s)
            self._append(track, box, detections, frame)
            self._open.append(track)

    def _append(self, track: _OpenTrack, box: int, detections: Detections, frame: int) -> None:
        score = float(detections.scores[box])
        track.append(frame, detections.boxes_px[box], score, score >= self.options.sure_score)


def assign(cost: np.ndarray, limit: np.ndarray | float) -> list[tuple[int, int]]:
    """The pairs (row, column) of the assignment with the least total cost, where leaving a pair unmade costs its
    `limit` (one, or [rows, columns]): a pair that costs more than that is never made."""
    rows, columns = cost.shape
    gain = np.minimum(cost - limit, 0)  # of making the pair over not making it
    pairs = zip(*linear_sum_assignment(gain), strict=True) if rows and columns else ()
    return [(int(row), int(column)) for row, column in pairs if gain[row, column] < 0]
