"""Who is who: boxes of one frame after another become identities.

Every frame, boxes are given to the people known so far by the best assignment overall (Hungarian), each pair priced
by how surprising that box would be for that person (pose2d/motion.py). How much surprise is allowed depends on both:
a sure box may be far from where a person surely seen was expected; a doubtful box, or any box for somebody who may yet
turn out to be a chair, has to be near. Doubtful boxes continue people and start nobody (the idea of ByteTrack).
Nothing is smoothed and nothing is made up: a track holds the detected boxes, and its gaps are gaps.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment

from pose2d.detect.detector import Detections, iou
from pose2d.detect.kalman import Belief, MotionOptions, first_belief, predict, surprise, update
from pose2d.types import Track


@dataclass(frozen=True)
class TrackerOptions:
    """Every choice the tracker leaves open."""

    sure_score: float = 0.55  # a person must be seen this surely in `least_frames` frames; others are dropped
    start_score: float = 0.3  # a box at least this sure may start a person, who has then to prove it
    doubtful_score: float = 0.2  # a box at least this sure may continue one
    gap_s: float = 2.0  # a person unseen for longer is gone, and comes back as somebody new
    farthest: float = 13.3  # a box at this squared distance from what was expected (99 %) or more is somebody else
    newcomer: float = 9.0  # a sure box more surprising than this (see motion.surprise) is somebody else
    doubtful_newcomer: float = 0.0  # the same for a box that is not sure, or for somebody not yet surely seen
    least_frames: int = 3  # a video of fewer frames asks for as many as it has
    same_person_iou: float = 0.6  # a box overlapping a known person's more than this starts nobody new
    motion: MotionOptions = field(default_factory=MotionOptions)


@dataclass
class _Person:
    identity: int
    belief: Belief
    belief_s: float  # the time the belief speaks of
    seen_s: float  # the last time a box was seen
    frames: list[int] = field(default_factory=list)
    boxes_px: list[np.ndarray] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    sure_frames: int = 0  # in how many of them the score was sure


class Tracker:
    """Feed it frames in order with `see`; `tracks` says who was seen so far."""

    def __init__(self, image_wh: tuple[int, int], options: TrackerOptions | None = None) -> None:
        self.options = options or TrackerOptions()
        self._image_wh = np.array(image_wh)
        self._present: list[_Person] = []
        self._gone: list[_Person] = []
        self._frames_seen = 0

    def see(self, frame: int, time_s: float, detections: Detections) -> None:
        """Take in the boxes of one frame. Frame numbers and times must increase."""
        self._frames_seen += 1
        for person in self._present:
            person.belief = predict(person.belief, time_s - person.belief_s, self.options.motion)
            person.belief_s = time_s
        self._forget(time_s)
        boxes = np.flatnonzero(detections.scores >= self.options.doubtful_score)
        people = list(self._present)
        distance2, cost = surprise([p.belief for p in people], detections.boxes_px[boxes], self.options.motion)
        cost = np.where(distance2 < self.options.farthest, cost, np.inf)
        pairs = assign(cost, self._allowed(people, detections.scores[boxes]))
        for row, column in pairs:
            self._take(people[row], boxes[column], detections, frame, time_s)
        taken = {column for _, column in pairs}
        self._greet([int(b) for i, b in enumerate(boxes) if i not in taken], detections, frame, time_s)

    def tracks(self) -> list[Track]:
        """Everyone seen surely in enough frames, in the order they appeared, numbered from 1."""
        people = sorted(filter(self._is_sure, self._gone + self._present), key=lambda person: person.identity)
        return [
            Track(
                identity=number,
                frames=np.array(person.frames, np.int64),
                boxes_px=np.stack(person.boxes_px),
                scores=np.array(person.scores),
            )
            for number, person in enumerate(people, start=1)
        ]

    def _forget(self, time_s: float) -> None:
        """Let go of those unseen for long, and of those who walked out of the image."""

        def gone(person: _Person) -> bool:
            box = person.belief.box_px
            outside = (box[2:] < 0).any() or (box[:2] > self._image_wh).any()
            return time_s - person.seen_s > self.options.gap_s or bool(outside)

        self._gone += [person for person in self._present if gone(person)]
        self._present = [person for person in self._present if not gone(person)]

    def _is_sure(self, person: _Person) -> bool:
        """Seen surely in enough frames."""
        return person.sure_frames >= min(self.options.least_frames, self._frames_seen)

    def _allowed(self, people: list[_Person], scores: np.ndarray) -> np.ndarray:
        """The most surprise at which a box of that score still is that person, [people, boxes]."""
        options = self.options
        known = np.array([self._is_sure(person) for person in people], bool)
        both_sure = known[:, None] & (scores >= options.sure_score)
        return np.where(both_sure, options.newcomer, options.doubtful_newcomer)

    def _greet(self, boxes: list[int], detections: Detections, frame: int, time_s: float) -> None:
        """Each good one of `boxes`, which nobody took, is somebody new, unless it is one more box on somebody known."""
        for box in boxes:
            if detections.scores[box] < self.options.start_score:
                continue
            here = [p.boxes_px[-1] for p in self._present if p.frames[-1] == frame]
            overlap = iou(detections.boxes_px[box][None], np.reshape(here, (-1, 4)))
            if (overlap > self.options.same_person_iou).any():
                continue
            belief = first_belief(detections.boxes_px[box], self._image_wh, self.options.motion)
            person = _Person(len(self._gone) + len(self._present), belief, time_s, time_s)
            self._note(person, box, detections, frame)
            self._present.append(person)

    def _take(self, person: _Person, box: int, detections: Detections, frame: int, time_s: float) -> None:
        person.belief = update(person.belief, detections.boxes_px[box], self._image_wh, self.options.motion)
        person.seen_s = time_s
        self._note(person, box, detections, frame)

    def _note(self, person: _Person, box: int, detections: Detections, frame: int) -> None:
        person.frames.append(frame)
        person.boxes_px.append(detections.boxes_px[box])
        person.scores.append(float(detections.scores[box]))
        person.sure_frames += bool(detections.scores[box] >= self.options.sure_score)


def assign(cost: np.ndarray, limit: np.ndarray | float) -> list[tuple[int, int]]:
    """The pairs (row, column) of the assignment with the least total cost, where leaving a pair unmade costs its
    `limit` (one, or [rows, columns]): a pair dearer than that is never made."""
    rows, columns = cost.shape
    gain = np.minimum(cost - limit, 0)  # the worth of pairing over not pairing
    pairs = zip(*linear_sum_assignment(gain), strict=True) if rows and columns else ()
    return [(int(row), int(column)) for row, column in pairs if gain[row, column] < 0]
