"""Find people in frames: boxes with identities and keypoints, in one pass over a video.

The detector does not run on every frame. Frames come in intervals of about LONG_S, and the detector
runs on the last frame of each. Where every track continues undisturbed, the boxes in between are
interpolated. Where a person moves much, appears, disappears or is close to another person, the same
is tried in steps of SHORT_S, and then the detector runs on every frame. `bench/people.py` measures
what this costs.

Networks run in `workers` threads side by side, each on one core. Threads that share one network
wait for each other, and on a busy machine they wait longer than they work. The result does not
depend on the number of workers.

Shots are found on the way (pose2d/video/shots.py): the detector runs on the first frame of each
shot, and no track continues over a cut. The tracker's identities are revised at the end of the
video (pose2d/tracking/identity.py)."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

import numpy as np

from pose2d.base.table import BLOCK, store_on_disk
from pose2d.base.threads import prefetch, torch_threads
from pose2d.detect.boxes import Boxes, iou
from pose2d.lost_people import LOST_S, expected_rows, with_people_read
from pose2d.tracking.appearance import describe, no_appearance
from pose2d.tracking.identity import IdentityOptions, People, collect_people, tracked_rows
from pose2d.tracking.tracker import Tracker
from pose2d.types import NOBODY, Detections, HandKeypoints, Keypoints
from pose2d.video.frames import Frame
from pose2d.video.shots import ShotMarker

# Seconds between two runs of the detector: where nothing happens, and where people move.
LONG_S = 1 / 2
SHORT_S = 1 / 6
# Least overlap of a person's boxes at both ends of an interval. LONG_IOU was chosen among 0.35, 0.5
# and 0.75 on worker_back and bedroom_children (bench/people.py): the last at which no more
# person-frames are missed.
LONG_IOU = 0.5
SHORT_IOU = 0.4
HELD_BYTES = 64e6  # images of one long interval
# Crops that a worker takes at a time: few, so that all workers are busy to the end and images are
# freed soon.
TASK = 8
MOST_WAITING = 1  # intervals that wait for keypoints and hands while the next one is begun
ALONE_IOU = 0.1  # the detector runs on every frame if boxes of two people overlap by more

Detect = Callable[[Frame], Boxes]
# images [N] and boxes [N, 4] -> the boxes that were used, and the keypoints in them
Estimate = Callable[[Sequence[np.ndarray], np.ndarray], tuple[np.ndarray, Keypoints]]
# the next frames and the people in them, in order of time -> both hands of each row
FindHands = Callable[[Sequence[Frame], Detections], HandKeypoints]


class FrameWatch(Protocol):
    """An observer of the frames and of the people in them, such as an estimate of camera motion."""

    def cut(self, frame: int) -> None:
        """Note that a shot begins with the frame of this number."""

    def add(self, frame: Frame, boxes_px: np.ndarray) -> None:
        """Take the next frame with boxes [N, 4] around all people; some frames are left out."""


class PeopleFinder:
    """Finds people in videos with a detector and a pose network that are loaded once."""

    def __init__(
        self,
        detect: Detect,
        estimate: Estimate,
        every_frame: bool = False,
        by_boxes: bool = False,
        watch: FrameWatch | None = None,
        find_hands: FindHands | None = None,
    ) -> None:
        """Make a finder.

        every_frame: run the detector on every frame and interpolate nothing. by_boxes: distinguish
        people by their boxes alone, not by pose and appearance. watch: an observer of the frames.
        find_hands: finds hands of tracked people, a few frames at a time.
        """
        self._detect = detect
        self._estimate = estimate
        self._every_frame = every_frame
        self._by_boxes = by_boxes
        self._watch = watch
        self._find_hands = find_hands
        self.expected_crops = 0  # made where tracks expect people whom the detector lost

    def find(
        self,
        frames: Iterable[Frame],
        fps: float,
        tracker: Tracker,
        workers: int = 1,
        progress: Callable[[int], None] = lambda frames: None,
        identity: IdentityOptions | None = None,
    ) -> People:
        """Return the people in frames, which come in order of time.

        fps: frames per second of `frames`, from which the length of intervals follows."""
        step = 1 if self._every_frame else max(1, round(SHORT_S * fps))
        longest = 1 if self._every_frame else max(step, round(LONG_S * fps) // step * step)
        shots = ShotMarker()
        with (
            ThreadPoolExecutor(workers) as pool,
            ThreadPoolExecutor(1) as hand_worker,
            torch_threads(1),
        ):
            state = _Progress(tracker, self._watch, hand_worker, self._find_hands)
            looks = (
                (interval, starts_shot, pool.submit(self._look, interval[-1]))
                for interval, starts_shot in _intervals(shots.mark(frames), step, longest)
            )
            for interval, starts_shot, last_look in prefetch(looks, depth=0):  # frames take memory
                state.begin(interval, starts_shot)
                seen = last_look.result()
                same_iou = LONG_IOU if len(interval) > step else SHORT_IOU
                if not self._interpolate_undisturbed(state, pool, interval, seen, same_iou):
                    self._step_by_step(state, pool, interval, seen, step)
                # Frames that wait for keypoints or hands stay in memory.
                state.collect(MOST_WAITING)
                progress(len(interval))
            state.collect(0)
        state.last = None
        return state.people(identity or IdentityOptions(), shots.late)

    def _step_by_step(
        self,
        state: "_Progress",
        pool: ThreadPoolExecutor,
        interval: list[Frame],
        last: Detections,
        step: int,
    ) -> None:
        """Process an interval in steps of `step` frames, and of one frame where that is too coarse.

        last: the detections in its last frame."""
        parts = [interval[first : first + step] for first in range(0, len(interval), step)]
        under_way = [pool.submit(self._look, part[-1]) for part in parts[:-1]]
        for part, future in zip(parts, [*under_way, None], strict=True):
            seen = last if future is None else future.result()
            if len(parts) > 1 and self._interpolate_undisturbed(state, pool, part, seen, SHORT_IOU):
                continue
            looks = [pool.submit(self._look, frame) for frame in part[:-1]]
            rows = [
                state.track(frame, self._add_lost(state, frame, look.result()))
                for frame, look in zip(part[:-1], looks, strict=True)
            ]
            now = self._add_lost(state, part[-1], seen)
            state.add(part, [*rows, state.track(part[-1], now)])

    def _interpolate_undisturbed(
        self,
        state: "_Progress",
        pool: ThreadPoolExecutor,
        frames: list[Frame],
        seen: Detections,
        same_iou: float,
    ) -> bool:
        """Process frames by interpolation and return True, if nothing happened in them.

        seen: what the detector found in the last of several frames."""
        if len(frames) == 1:
            return False
        now = self._add_lost(state, frames[-1], seen)
        if not state.is_undisturbed(now, same_iou):
            return False
        self._interpolate(state, pool, frames, now)
        return True

    def _interpolate(
        self, state: "_Progress", pool: ThreadPoolExecutor, frames: list[Frame], now: Detections
    ) -> None:
        """Add the detections of the last frame, and estimate keypoints in interpolated boxes.

        The boxes lie between those of the previous detections and of these."""
        before = state.last
        between = frames[:-1]
        if self._watch is not None and before is not None:
            boxes_px = np.concatenate((before[1].box_px, now.box_px))
            for frame in between:
                self._watch.add(frame, boxes_px)
        last_rows = state.track(frames[-1], now)
        if before is None or state.last is None:
            state.add(frames, [last_rows])
            return
        images, rows = _between(*before, *state.last, between)
        tasks = [
            pool.submit(self._add_keypoints, images[part], rows.rows(part))
            for part in (slice(first, first + TASK) for first in range(0, len(rows), TASK))
        ]
        state.add(frames, [*tasks, last_rows])

    def _look(self, frame: Frame) -> Detections:
        """Detect the people in a frame, with keypoints and appearance."""
        boxes = self._detect(frame)
        people = Detections.in_frame(frame.index, float(frame.time_s), boxes.boxes_px, boxes.scores)
        people = self._add_keypoints([frame.rgb] * len(people), people)
        if people.keypoints is None or self._by_boxes:
            return people
        skeleton = people.keypoints.skeleton
        appearance = describe(frame.rgb, people.xy_px, people.sure, skeleton)
        return replace(people, appearance=appearance)

    def _add_lost(self, state: "_Progress", frame: Frame, seen: Detections) -> Detections:
        """Return the detections of a frame, and the people whom the detector lost.

        They are read where their tracks expect them, and kept where the calibrated confidence says
        that there is a person whose pose is not that of another detection."""
        is_calibrated = seen.keypoints is not None and seen.keypoints.source == "ccnet"
        if self._by_boxes or state.last is None or not is_calibrated:
            return seen
        track, expected_px = state.tracker.unmatched(float(frame.time_s), seen, LOST_S)
        expected = expected_rows(frame, track, expected_px)
        if not len(expected):
            return seen
        self.expected_crops += len(expected)
        rows = self._add_keypoints([frame.rgb] * len(expected), expected)
        return with_people_read(frame, seen, rows)

    def _add_keypoints(self, images: list[np.ndarray], rows: Detections) -> Detections:
        """Return rows with the keypoints in their boxes, one image a row."""
        boxes_px, keypoints = self._estimate(images, rows.box_px)
        appearance = None if self._by_boxes else no_appearance(len(rows), np.float32)
        return replace(rows, box_px=boxes_px, keypoints=keypoints, appearance=appearance)


class _Progress:
    """The people found so far in one video."""

    def __init__(
        self,
        tracker: Tracker,
        watch: FrameWatch | None,
        hand_worker: ThreadPoolExecutor,
        find_hands: FindHands | None,
    ) -> None:
        """hand_worker: a thread of its own, because hands are followed in order of time."""
        self._hand_worker = hand_worker
        self._find_hands = find_hands
        self.tracker = tracker
        self.watch = watch
        self.frames: list[tuple[int, float]] = []  # number and time of every frame that was read
        self.shots: list[int] = []  # the first frame of each shot
        self.rows: list[Detections] = []  # in parts of more than BLOCK rows
        self._recent: list[Detections] = []  # rows that do not fill a part yet
        self.looked: set[int] = set()  # frames that the detector ran on
        self._waiting: deque[Future[Detections]] = deque()  # rows that workers compute
        # The last frame that the detector ran on, with its detections and identities
        self.last: tuple[Frame, Detections] | None = None

    def begin(self, frames: list[Frame], starts_shot: bool) -> None:
        """Begin an interval of frames; at a cut every track ends and nothing is interpolated."""
        if starts_shot:
            if self.shots:
                self.tracker.cut()
            self.last = None
            self.shots.append(frames[0].index)
            if self.watch is not None:
                self.watch.cut(frames[0].index)
        self.frames += [(frame.index, float(frame.time_s)) for frame in frames]

    def track(self, frame: Frame, people: Detections) -> Detections:
        """Track the detections of the next frame, in order of time, that the detector ran on, and
        return those of tracked people.
        """
        people = replace(people, identity=self.tracker.update(float(frame.time_s), people))
        self.last = frame, people
        self.looked.add(frame.index)
        if self.watch is not None:
            self.watch.add(frame, people.box_px)
        return tracked_rows(people)

    def add(self, frames: list[Frame], parts: Sequence[Detections | Future[Detections]]) -> None:
        """Take the people of the next frames, in order of time; workers may still compute them."""
        self._waiting.append(self._hand_worker.submit(self._finish, frames, parts))

    def _finish(
        self, frames: list[Frame], parts: Sequence[Detections | Future[Detections]]
    ) -> Detections:
        """Return the rows of frames, with hands."""
        tables = [part.result() if isinstance(part, Future) else part for part in parts]
        rows = Detections.concat(tables)
        if self._find_hands is None:
            return rows
        return replace(rows, hands=self._find_hands(frames, rows))

    def collect(self, most_waiting: int) -> None:
        """Keep rows that are complete, and wait while more than `most_waiting` parts are not.

        Small tables are joined, since many of them take far more memory than one.
        """
        while len(self._waiting) > most_waiting:
            self._recent.append(self._waiting.popleft().result())
            if sum(map(len, self._recent)) > BLOCK:
                self.rows.append(store_on_disk(Detections.concat(self._recent)))
                self._recent = []

    def is_undisturbed(self, now: Detections, same_iou: float) -> bool:
        """Tell whether the same people as at the last look are there, each apart from the others."""
        if self.last is None:
            return False
        before = self.last[1]
        old = before.box_px[before.identity != NOBODY]
        is_sure = (now.score >= self.tracker.options.start_score) | (now.identity != NOBODY)
        new = now.box_px[is_sure]
        if len(old) != len(new):
            return False
        overlap = iou(old, new) >= same_iou
        is_one_to_one = bool((overlap.sum(0) == 1).all() and (overlap.sum(1) == 1).all())
        return is_one_to_one and _are_apart(old) and _are_apart(new)

    def people(self, options: IdentityOptions, late_cuts: list[int]) -> People:
        """Return the people of the video with revised identities.

        late_cuts: first frames of shots that were found after the frames had been processed."""
        numbers = np.array([number for number, _ in self.frames], np.int64)
        times = np.array([time_s for _, time_s in self.frames], np.float64)
        shots = np.unique([*self.shots, *late_cuts]).astype(np.int64)
        rows = [*self.rows, *self._recent]
        everyone = collect_people(rows, self.tracker, numbers, times, shots, options)
        return replace(everyone, detected=np.isin(numbers, list(self.looked)))


def _are_apart(boxes_px: np.ndarray) -> bool:
    """Tell whether no two of the boxes [N, 4] overlap by more than ALONE_IOU."""
    return bool((iou(boxes_px, boxes_px) - np.eye(len(boxes_px)) <= ALONE_IOU).all())


def _intervals(
    frames: Iterable[tuple[Frame, bool]], step: int, longest: int
) -> Iterator[tuple[list[Frame], bool]]:
    """Group frames into intervals, each with whether a shot begins with it.

    Frames come with whether a shot begins with them. The first frame of a shot is an interval of
    its own; others have `longest` frames, or as many steps as HELD_BYTES allow."""
    interval: list[Frame] = []
    size = 1
    for frame, starts_shot in frames:
        if starts_shot and interval:
            yield interval, False
            interval = []
        interval.append(frame)
        if starts_shot or len(interval) == size:
            yield interval, starts_shot
            interval = []
        if starts_shot:
            size = max(step, min(longest, int(HELD_BYTES / frame.rgb.nbytes) // step * step))
    if interval:
        yield interval, False


def _between(
    first: Frame, old: Detections, last: Frame, new: Detections, frames: list[Frame]
) -> tuple[list[np.ndarray], Detections]:
    """Interpolate the boxes of people who are in both of two detections, frame by frame.

    Returns the image of each row, and rows without keypoints."""
    a, b = np.nonzero((old.identity[:, None] == new.identity) & (old.identity != NOBODY)[:, None])
    start = float(first.time_s)
    end = float(last.time_s)
    times = np.array([float(frame.time_s) for frame in frames])
    share = ((times - start) / max(end - start, 1e-9))[:, None, None]
    boxes = (1 - share) * old.box_px[a] + share * new.box_px[b]  # [frames, people, 4]
    rows = Detections(
        frame=np.repeat(np.array([frame.index for frame in frames], np.int64), len(a)),
        identity=np.tile(old.identity[a], len(frames)),
        box_px=boxes.reshape(-1, 4),
        score=np.tile(np.minimum(old.score[a], new.score[b]), len(frames)),
        time_s=np.repeat(times, len(a)),
    )
    return [frame.rgb for frame in frames for _ in a], rows
