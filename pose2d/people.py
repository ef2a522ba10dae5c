"""Frames -> people: boxes with identities and the keypoints in them, in one pass over a video.

The detector does not look at every frame. Frames come in intervals of about LONG_S, and it looks at
the last frame of each. Where every track goes on undisturbed, the boxes in between are
interpolated; where somebody moves much, comes, goes, or is close to somebody else, the same is
tried in steps of SHORT_S, and at last it looks at every frame. `bench/people.py` measures what this
costs.

Networks run in `workers` threads side by side, each on one core: threads that share one network
wait for each other, and on a machine that is busy with something else they wait longer than they
work. What comes out does not depend on the number of workers.

Shots are found on the way (pose2d/video/shots.py): the detector looks at the first frame of each,
and nothing goes over a cut. What the tracker made is looked at once more when the whole video was
seen (pose2d/tracking/identity.py)."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

import numpy as np

from pose2d.base.table import BLOCK, store_on_disk
from pose2d.base.threads import prefetch, torch_threads
from pose2d.detect.boxes import Boxes, iou
from pose2d.tracking.appearance import describe, no_appearance
from pose2d.tracking.identity import IdentityOptions, People, collect_people, tracked_rows
from pose2d.tracking.tracker import Tracker
from pose2d.types import NOBODY, Detections, Keypoints
from pose2d.video.frames import Frame
from pose2d.video.shots import ShotMarker

# Between two looks of the detector where nothing happens, and where people move. LONG_IOU was
# chosen among 0.35, 0.5 and 0.75 on worker_back and bedroom_children (bench/people.py): the last at
# which no person-frame more is missed
LONG_S = 1 / 2
SHORT_S = 1 / 6
LONG_IOU, SHORT_IOU = (
    0.5,
    0.4,
)  # boxes of one person at both ends of an interval overlap at least this much
HELD_BYTES = 64e6  # images of one long interval
# crops that a worker takes at a time: few, so that both are busy to the end, and images are soon
# let go
TASK = 8
ALONE_IOU = 0.1  # people whose boxes overlap by more are looked at in every frame

Detect = Callable[[Frame], Boxes]
# images [N] and boxes [N, 4] -> boxes as they were used, and the keypoints in them
Estimate = Callable[[Sequence[np.ndarray], np.ndarray], tuple[np.ndarray, Keypoints]]


class FrameWatch(Protocol):
    """Somebody who wants to see frames beside the people in them, such as how the background moves."""

    def cut(self, frame: int) -> None:
        """A shot begins with the frame of this number."""

    def add(self, frame: Frame, boxes_px: np.ndarray) -> None:
        """Frames in order of time with boxes [N, 4] around everyone; some are left out."""


class PeopleFinder:
    """Everything that finds people, loaded once."""

    def __init__(
        self,
        detect: Detect,
        estimate: Estimate,
        every_frame: bool = False,
        by_boxes: bool = False,
        watch: FrameWatch | None = None,
    ) -> None:
        """every_frame: boxes are given in every frame, or the frames are few: nothing is
        interpolated. by_boxes: people are told apart by their boxes alone, not by pose and
        appearance. watch: sees the frames too."""
        self._detect = detect
        self._estimate = estimate
        self._every_frame = every_frame
        self._by_boxes, self._watch = by_boxes, watch

    def find(
        self,
        frames: Iterable[Frame],
        fps: float,
        tracker: Tracker,
        workers: int = 1,
        progress: Callable[[int], None] = lambda frames: None,
        identity: IdentityOptions | None = None,
    ) -> People:
        """fps: frames per second of `frames`, which sets how many make an interval."""
        step = 1 if self._every_frame else max(1, round(SHORT_S * fps))
        long = 1 if self._every_frame else max(step, round(LONG_S * fps) // step * step)
        state = _Progress(tracker, self._watch)
        shots = ShotMarker()
        with ThreadPoolExecutor(workers) as pool, torch_threads(1):
            looks = (
                (interval, starts_shot, pool.submit(self._look, interval[-1]))
                for interval, starts_shot in _intervals(shots.mark(frames), step, long)
            )
            for interval, starts_shot, last in prefetch(looks, depth=1):
                state.begin(interval, starts_shot)
                now = last.result()
                same_iou = LONG_IOU if len(interval) > step else SHORT_IOU
                if len(interval) > 1 and state.undisturbed(now, same_iou):
                    self._interpolate(state, pool, interval, now)
                else:
                    self._step_by_step(state, pool, interval, now, step)
                while len(state.waiting) > workers:  # frames that wait to be cropped stay in memory
                    state.add(state.waiting.popleft().result())
                progress(len(interval))
            while state.waiting:
                state.add(state.waiting.popleft().result())
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
        """An interval in steps of `step` frames, and where that is too coarse, of one. last: seen
        in its last frame.
        """
        parts = [interval[first : first + step] for first in range(0, len(interval), step)]
        under_way = [pool.submit(self._look, part[-1]) for part in parts[:-1]]
        for part, future in zip(parts, [*under_way, None], strict=True):
            now = last if future is None else future.result()
            if len(parts) > 1 and state.undisturbed(now, SHORT_IOU):
                self._interpolate(state, pool, part, now)
                continue
            for frame, look in [(frame, pool.submit(self._look, frame)) for frame in part[:-1]]:
                state.take(frame, look.result())
            state.take(part[-1], now)

    def _interpolate(
        self, state: "_Progress", pool: ThreadPoolExecutor, frames: list[Frame], now: Detections
    ) -> None:
        """Take what was seen in the last of the frames, and estimate keypoints in boxes between the
        look before and it. People are somewhere between their boxes at both ends."""
        before = state.last
        between = frames[:-1]
        if self._watch is not None and before is not None:
            boxes_px = np.concatenate((before[1].box_px, now.box_px))
            for frame in between:
                self._watch.add(frame, boxes_px)
        state.take(frames[-1], now)
        if before is None or state.last is None:
            return
        images, rows = _between(*before, *state.last, between)
        for part in (slice(first, first + TASK) for first in range(0, len(rows), TASK)):
            state.waiting.append(pool.submit(self._with_keypoints, images[part], rows.rows(part)))

    def _look(self, frame: Frame) -> Detections:
        boxes = self._detect(frame)
        seen = Detections.in_frame(frame.index, float(frame.time_s), boxes.boxes_px, boxes.scores)
        seen = self._with_keypoints([frame.rgb] * len(seen), seen)
        if seen.keypoints is not None and not self._by_boxes:
            seen = replace(
                seen, appearance=describe(frame.rgb, seen.xy_px, seen.sure, seen.keypoints.skeleton)
            )
        return seen

    def _with_keypoints(self, images: list[np.ndarray], rows: Detections) -> Detections:
        boxes_px, keypoints = self._estimate(images, rows.box_px)
        appearance = None if self._by_boxes else no_appearance(len(rows), np.float32)
        return replace(rows, box_px=boxes_px, keypoints=keypoints, appearance=appearance)


class _Progress:
    """What has been found so far."""

    def __init__(self, tracker: Tracker, watch: FrameWatch | None) -> None:
        self.tracker, self.watch = tracker, watch
        self.frames: list[tuple[int, float]] = []  # number and time of every frame that was read
        self.shots: list[int] = []  # first frames
        self.rows: list[Detections] = []  # in parts of BLOCK rows, but for the last ones
        self._recent: list[Detections] = []
        self.looked: set[int] = set()
        self.waiting: deque[Future[Detections]] = deque()  # rows under way
        self.last: tuple[Frame, Detections] | None = (
            None  # that the detector looked at; with identities
        )

    def begin(self, frames: list[Frame], starts_shot: bool) -> None:
        """At a cut every track ends, and nothing is interpolated."""
        if starts_shot:
            if self.shots:
                self.tracker.cut()
            self.last = None
            self.shots.append(frames[0].index)
            if self.watch is not None:
                self.watch.cut(frames[0].index)
        self.frames += [(frame.index, float(frame.time_s)) for frame in frames]

    def take(self, frame: Frame, seen: Detections) -> None:
        """The next frame, in order of time, that the detector looked at."""
        seen = replace(seen, identity=self.tracker.update(float(frame.time_s), seen))
        self.last = frame, seen
        self.add(tracked_rows(seen))
        self.looked.add(frame.index)
        if self.watch is not None:
            self.watch.add(frame, seen.box_px)

    def add(self, rows: Detections) -> None:
        """Tables of some rows each would take several times the memory of one table."""
        self._recent.append(rows)
        if sum(map(len, self._recent)) > BLOCK:
            self.rows.append(store_on_disk(Detections.concat(self._recent)))
            self._recent = []

    def undisturbed(self, now: Detections, same_iou: float) -> bool:
        """The same people as at the last look, one to one, each apart from the others."""
        if self.last is None:
            return False
        seen = self.last[1]
        old = seen.box_px[seen.identity != NOBODY]
        new = now.box_px[now.score >= self.tracker.options.start_score]
        if len(old) != len(new):
            return False
        overlap = iou(old, new) >= same_iou
        one_to_one = bool((overlap.sum(0) == 1).all() and (overlap.sum(1) == 1).all())
        apart = all(
            (iou(boxes, boxes) - np.eye(len(boxes)) <= ALONE_IOU).all() for boxes in (old, new)
        )
        return one_to_one and apart

    def people(self, options: IdentityOptions, late_cuts: list[int]) -> People:
        numbers, times = (np.array([frame[n] for frame in self.frames]) for n in (0, 1))
        shots = np.unique([*self.shots, *late_cuts]).astype(np.int64)
        rows = [*self.rows, *self._recent]
        everyone = collect_people(
            rows, self.tracker, numbers.astype(np.int64), times.astype(np.float64), shots, options
        )
        return replace(everyone, detected=np.isin(numbers, list(self.looked)))


def _intervals(
    frames: Iterable[tuple[Frame, bool]], step: int, long: int
) -> Iterator[tuple[list[Frame], bool]]:
    """From frames and whether a shot begins with each: the first frame of a shot alone, then `long`
    at a time, or as many steps as may be held, and whether a shot begins. The detector looks at the
    last frame of each interval."""
    held: list[Frame] = []
    size = 1
    for frame, starts_shot in frames:
        if starts_shot and held:
            yield held, False
            held = []
        held.append(frame)
        if starts_shot or len(held) == size:
            yield held, starts_shot
            held = []
        if starts_shot:
            size = max(step, min(long, int(HELD_BYTES / frame.rgb.nbytes) // step * step))
    if held:
        yield held, False


def _between(
    first: Frame, old: Detections, last: Frame, new: Detections, frames: list[Frame]
) -> tuple[list[np.ndarray], Detections]:
    """Rows between two looks for everybody who is in both, frame by frame: images, and boxes
    without keypoints.
    """
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
