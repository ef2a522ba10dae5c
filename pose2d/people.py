"""Frames -> people: boxes with identities and the keypoints in them, in one pass over a video.

The detector does not look at every frame. Frames come in intervals of about LONG_S, and it looks at the last frame of
each. Where every track goes on undisturbed, the boxes in between are interpolated; where somebody moves much, comes,
goes, or is close to somebody else, the same is tried in steps of SHORT_S, and at last it looks at every frame.
`bench/people.py` measures what this costs.

Networks run in `workers` threads side by side, each on one core: threads that share one network wait for each other,
and on a machine that is busy with something else they wait longer than they work. What comes out does not depend on
the number of workers.

Shots are found on the way (pose2d/video/shots.py): the detector looks at the first frame of each, and nothing goes over
a cut. What the tracker made is looked at once more when the whole video was seen (pose2d/tracking/identity.py).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pose2d.base.prefetch import prefetch
from pose2d.base.threads import torch_threads
from pose2d.detect.detector import Detections, iou
from pose2d.events import Event
from pose2d.skeletons import Skeleton
from pose2d.tracking.appearance import PARTS, SIZE, Appearances, stack
from pose2d.tracking.association import Cues
from pose2d.tracking.identity import IdentityOptions, Sightings, settle
from pose2d.tracking.tracker import Tracker
from pose2d.types import Track
from pose2d.video.clip import Frame
from pose2d.video.shots import ShotMarker

# Between two looks of the detector where nothing happens, and where people move. LONG_IOU was chosen among 0.35, 0.5
# and 0.75 on worker_back and bedroom_children (bench/people.py): the last at which no person-frame more is missed
LONG_S, SHORT_S = 1 / 2, 1 / 6
LONG_IOU, SHORT_IOU = 0.5, 0.4  # boxes of one person at both ends of an interval overlap at least this much
HELD_BYTES = 64e6  # images of one long interval
TASK = 8  # crops that a worker takes at a time: few, so that both are busy to the end, and images are soon let go
ALONE_IOU = 0.1  # people whose boxes overlap by more are looked at in every frame

Detect = Callable[[Frame], Detections]
# images [N] and boxes [N, 4] -> boxes as they were used, and arrays [N, ...] by name (keypoints, confidence, ..)
Estimate = Callable[[Sequence[np.ndarray], np.ndarray], tuple[np.ndarray, Mapping[str, np.ndarray]]]
# image, boxes [N, 4] and what `estimate` said of them -> what tells people apart
Describe = Callable[[np.ndarray, np.ndarray, Mapping[str, np.ndarray]], Cues]


class FrameWatch(Protocol):
    """Somebody who wants to see frames beside the people in them, such as how the background moves."""

    def cut(self, frame: int) -> None:
        """A shot begins with the frame of this number."""

    def add(self, frame: Frame, boxes_px: np.ndarray) -> None:
        """Frames in order of time with boxes [N, 4] around everyone; some are left out."""


@dataclass(frozen=True)
class Rows:
    """N people, each in one frame."""

    frame: np.ndarray  # [N] frame numbers
    track: np.ndarray  # [N] the tracker's number; -1: nobody's
    boxes_px: np.ndarray  # [N, 4]
    scores: np.ndarray  # [N] of the detector, interpolated where it did not look
    values: Mapping[str, np.ndarray]  # [N, ...] what `estimate` said
    looks: Appearances  # [N]; unseen where the detector did not look


@dataclass(frozen=True)
class People:
    """Everyone in a video."""

    tracks: list[Track]
    values: dict[str, np.ndarray]  # [sum of track lengths, ...] in the order of the tracks' rows
    frames: np.ndarray  # [F] numbers of the frames that were read
    time_s: np.ndarray  # [F]
    detected: np.ndarray  # [F] bool: the detector looked at it
    shot_first_frame: np.ndarray  # [S] number of the first frame of each shot
    owner_presence: np.ndarray  # [sum of track lengths, K] factor on presence of keypoints that two people claim
    same_as: Mapping[int, int]  # identity -> the earliest identity of the same person; itself unless asked to relink
    events: list[Event]  # what a person should look at, in order of time


@dataclass(frozen=True)
class _Seen:
    """One frame that the detector looked at."""

    frame: Frame
    detections: Detections
    values: Mapping[str, np.ndarray]  # of every detection
    cues: Cues | None


@dataclass(frozen=True)
class _Interval:
    """Frames of one shot, the last of which the detector looks at."""

    frames: list[Frame]
    starts_shot: bool


class PeopleFinder:
    """Everything that finds people, loaded once."""

    def __init__(
        self,
        detect: Detect,
        estimate: Estimate,
        every_frame: bool = False,
        describe: Describe | None = None,
        watch: FrameWatch | None = None,
    ) -> None:
        """every_frame: boxes are given in every frame, or the frames are few: nothing is interpolated.

        describe: without it people are told apart by their boxes alone. With it, `estimate` says at least xy_px,
        confidence and presence. watch: sees the frames too.
        """
        self._detect, self._estimate, self._every_frame = detect, estimate, every_frame
        self._describe, self._watch = describe, watch

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
        state, shots = _Progress(tracker, self._watch), ShotMarker()
        with ThreadPoolExecutor(workers) as pool, torch_threads(1):
            for interval, last in self._ahead(pool, _intervals(prefetch(shots.mark(frames)), step, long)):
                state.begin(interval)
                seen = last.result()
                if len(interval.frames) == 1:
                    state.take(seen)
                elif state.undisturbed(seen, LONG_IOU if len(interval.frames) > step else SHORT_IOU):
                    self._interpolate(state, pool, seen, interval.frames[:-1])
                else:
                    self._step_by_step(state, pool, interval.frames, seen, step)
                while len(state.waiting) > workers:  # frames that wait to be cropped stay in memory
                    state.rows.append(state.waiting.popleft().result())
                progress(len(interval.frames))
            state.rows += [part.result() for part in state.waiting]
        return state.people(identity or IdentityOptions(), [cut.frame for cut in shots.late])

    def _step_by_step(
        self, state: "_Progress", pool: ThreadPoolExecutor, interval: list[Frame], last: _Seen, step: int
    ) -> None:
        """An interval in steps of `step` frames, and where that is too coarse, of one."""
        parts = [interval[first : first + step] for first in range(0, len(interval), step)]
        looks = [pool.submit(self._look, part[-1]) for part in parts[:-1]]
        for part, look in zip(parts, [*looks, None], strict=True):
            seen = last if look is None else look.result()
            if len(parts) > 1 and state.undisturbed(seen, SHORT_IOU):
                self._interpolate(state, pool, seen, part[:-1])
                continue
            for one in [pool.submit(self._look, frame) for frame in part[:-1]]:
                state.take(one.result())
            state.take(seen)

    def _interpolate(self, state: "_Progress", pool: ThreadPoolExecutor, seen: _Seen, frames: list[Frame]) -> None:
        """Take `seen`, and estimate keypoints in boxes between it and what was seen before."""
        before, before_ids = state.last, state.last_ids
        state.pass_by(frames, seen)
        state.take(seen)
        if before is not None and (between := _between(before, before_ids, seen, state.last_ids, frames)):
            rows, track, boxes_px, scores = between
            for part in (slice(first, first + TASK) for first in range(0, len(rows), TASK)):
                task = pool.submit(self._estimate_rows, rows[part], track[part], boxes_px[part], scores[part])
                state.waiting.append(task)

    def _ahead(
        self, pool: ThreadPoolExecutor, intervals: Iterable[_Interval]
    ) -> Iterator[tuple[_Interval, "Future[_Seen]"]]:
        """Every interval with a look at its last frame; the next look is under way while one is used."""
        queue: deque[tuple[_Interval, Future[_Seen]]] = deque()
        for interval in intervals:
            queue.append((interval, pool.submit(self._look, interval.frames[-1])))
            if len(queue) > 1:
                yield queue.popleft()
        yield from queue

    def _look(self, frame: Frame) -> _Seen:
        detections = self._detect(frame)
        boxes_px, values = self._estimate([frame.rgb] * len(detections), detections.boxes_px)
        cues = None if self._describe is None else self._describe(frame.rgb, boxes_px, values)
        return _Seen(frame, Detections(boxes_px, detections.scores), values, cues)

    def _estimate_rows(self, frames: list[Frame], track: np.ndarray, boxes_px: np.ndarray, scores: np.ndarray) -> Rows:
        boxes_px, values = self._estimate([frame.rgb for frame in frames], boxes_px)
        numbers = np.array([frame.index for frame in frames], np.int64)
        return Rows(numbers, track, boxes_px, scores, values, _unseen(len(frames)))


class _Progress:
    """What has been found so far."""

    def __init__(self, tracker: Tracker, watch: FrameWatch | None) -> None:
        self.tracker, self.watch = tracker, watch
        self.frames: list[tuple[int, float]] = []  # number and time of every frame that was read
        self.shots: list[int] = []  # first frames
        self.skeleton: Skeleton | None = None
        self.rows: list[Rows] = []
        self.looked: set[int] = set()
        self.waiting: deque[Future[Rows]] = deque()  # rows under way
        self.last: _Seen | None = None
        self.last_ids = np.zeros(0, np.int64)

    def begin(self, interval: _Interval) -> None:
        """At a cut every track ends, and nothing is interpolated."""
        if interval.starts_shot:
            if self.shots:
                self.tracker.cut()
            self.last, self.last_ids = None, np.zeros(0, np.int64)
            self.shots.append(interval.frames[0].index)
            if self.watch is not None:
                self.watch.cut(interval.frames[0].index)
        self.frames += [(frame.index, float(frame.time_s)) for frame in interval.frames]

    def take(self, seen: _Seen) -> None:
        """The next frame, in order of time, that the detector looked at."""
        frame = seen.frame
        self.last, self.last_ids = (
            seen,
            self.tracker.update(frame.index, float(frame.time_s), seen.detections, seen.cues),
        )
        if seen.cues is not None:
            self.skeleton = seen.cues.skeleton
        self.rows.append(_rows(seen, self.last_ids))
        self.looked.add(frame.index)
        if self.watch is not None:
            self.watch.add(frame, seen.detections.boxes_px)

    def pass_by(self, frames: list[Frame], now: _Seen) -> None:
        """Frames between the last look and this one: people are somewhere between their boxes at both ends."""
        if self.watch is not None and self.last is not None:
            boxes_px = np.concatenate((self.last.detections.boxes_px, now.detections.boxes_px))
            for frame in frames:
                self.watch.add(frame, boxes_px)

    def undisturbed(self, now: _Seen, same_iou: float) -> bool:
        start_score = self.tracker.options.start_score
        return self.last is not None and _undisturbed(self.last, self.last_ids, now, start_score, same_iou)

    def people(self, options: IdentityOptions, late_cuts: list[int]) -> People:
        numbers, times = (np.array([frame[n] for frame in self.frames]) for n in (0, 1))
        return people_of(
            self.rows, self.tracker, numbers.astype(np.int64), times.astype(np.float64), self.looked,
            np.unique([*self.shots, *late_cuts]).astype(np.int64), self.skeleton, options,
        )  # fmt: skip


def _intervals(frames: Iterable[tuple[Frame, bool]], step: int, long: int) -> Iterator[_Interval]:
    """From frames and whether a shot begins with each: the first frame of a shot alone, then `long` at a time, or as
    many steps as may be held. The detector looks at the last."""
    held: list[Frame] = []
    size = 1
    for frame, starts_shot in frames:
        if starts_shot:
            if held:
                yield _Interval(held, starts_shot=False)
            yield _Interval([frame], starts_shot=True)
            held = []
            size = max(step, min(long, int(HELD_BYTES / frame.rgb.nbytes) // step * step))
            continue
        held.append(frame)
        if len(held) == size:
            yield _Interval(held, starts_shot=False)
            held = []
    if held:
        yield _Interval(held, starts_shot=False)


def _undisturbed(before: _Seen, before_ids: np.ndarray, now: _Seen, start_score: float, same_iou: float) -> bool:
    """The same people, one to one, each apart from the others, at both ends."""
    old = before.detections.boxes_px[before_ids >= 0]
    likely = now.detections.scores >= start_score
    new = now.detections.boxes_px[likely]
    if len(old) != len(new):
        return False
    if not len(old):
        return True
    overlap = iou(old, new) >= same_iou
    one_to_one = bool((overlap.sum(0) == 1).all() and (overlap.sum(1) == 1).all())
    apart = all((iou(boxes, boxes) - np.eye(len(boxes)) <= ALONE_IOU).all() for boxes in (old, new))
    return one_to_one and apart


def _between(
    before: _Seen, before_ids: np.ndarray, now: _Seen, ids: np.ndarray, frames: list[Frame]
) -> tuple[list[Frame], np.ndarray, np.ndarray, np.ndarray] | None:
    """Rows between two looks, all people of the interval together: frames, tracks, boxes and scores, if any."""
    both = [(a, b) for a, one in enumerate(before_ids) for b, other in enumerate(ids) if one == other >= 0]
    if not both or not frames:
        return None
    start, end = float(before.frame.time_s), float(now.frame.time_s)
    rows: list[tuple[Frame, int, np.ndarray, float]] = []
    for frame in frames:
        share = (float(frame.time_s) - start) / max(end - start, 1e-9)
        for a, b in both:
            box = (1 - share) * before.detections.boxes_px[a] + share * now.detections.boxes_px[b]
            score = min(float(before.detections.scores[a]), float(now.detections.scores[b]))
            rows.append((frame, int(before_ids[a]), box, score))
    return (
        [row[0] for row in rows],
        np.array([row[1] for row in rows], np.int64),
        np.stack([row[2] for row in rows]),
        np.array([row[3] for row in rows]),
    )


def _rows(seen: _Seen, ids: np.ndarray) -> Rows:
    keep = ids >= 0
    return Rows(
        frame=np.full(int(keep.sum()), seen.frame.index, np.int64),
        track=ids[keep],
        boxes_px=seen.detections.boxes_px[keep],
        scores=seen.detections.scores[keep],
        values={name: value[keep] for name, value in seen.values.items()},
        looks=_unseen(int(keep.sum())) if seen.cues is None else _single(seen.cues.looks[keep]),
    )


def _unseen(count: int) -> Appearances:
    return Appearances(np.zeros((count, len(PARTS), SIZE), np.float32), np.zeros((count, len(PARTS)), np.float32))


def _single(looks: Appearances) -> Appearances:
    """One for every row of a video is kept: in single precision."""
    return Appearances(looks.colours.astype(np.float32), looks.weight.astype(np.float32))


def tracks_of(
    identities: Mapping[int, int],  # the tracker's number of a track -> its identity
    track: np.ndarray,  # [N] number of the track that each row belongs to
    frame: np.ndarray,  # [N]
    boxes_px: np.ndarray,  # [N, 4]
    scores: np.ndarray,  # [N]
) -> tuple[list[Track], np.ndarray]:
    """Tracks in order of time, and the rows [M] that they hold one after the other."""
    order = []
    for number in identities:
        rows = np.flatnonzero(track == number)
        order.append(rows[np.argsort(frame[rows], kind="stable")])
    tracks = [
        Track(identity, frame[rows], boxes_px[rows], scores[rows])
        for identity, rows in zip(identities.values(), order, strict=True)
    ]
    return tracks, np.concatenate([np.zeros(0, np.int64), *order])


def people_of(
    rows: Sequence[Rows],
    tracker: Tracker,
    frames: np.ndarray,
    times: np.ndarray,
    looked: set[int],
    shot_first_frame: np.ndarray,
    skeleton: Skeleton | None,
    options: IdentityOptions,
) -> People:
    """Rows of confirmed tracks, person by person, in order of time.

    frames, times [F]: of all frames that were read; shot_first_frame [S]; skeleton: None where rows have no keypoints.
    """
    frame, track = (np.concatenate([np.zeros(0, np.int64), *(getattr(r, n) for r in rows)]) for n in ("frame", "track"))
    boxes_px = np.concatenate([np.zeros((0, 4)), *(r.boxes_px for r in rows)])
    scores = np.concatenate([np.zeros(0), *(r.scores for r in rows)])
    names = rows[0].values if rows else {}
    values = {name: np.concatenate([r.values[name] for r in rows]) for name in names}
    nothing = np.zeros((len(frame), 0, 2))
    seen = Sightings(
        track=np.where(np.isin(track, list(tracker.confirmed())), track, -1),
        frame=frame,
        time_s=times[np.searchsorted(frames, frame)],
        boxes_px=boxes_px,
        xy_px=nothing if skeleton is None else values["xy_px"],
        sure=nothing[..., 0] if skeleton is None else values["confidence"] * values["presence"],
        looks=stack([_unseen(0), *(r.looks for r in rows)]),
    )
    ends = np.searchsorted(frames, [*shot_first_frame[1:], np.inf][: len(shot_first_frame)]) - 1
    settled = settle(seen, shot_first_frame, times[ends], tracker.image_wh, skeleton, options)
    identities = {int(i): int(i) for i in np.unique(settled.identity[settled.identity >= 0])}
    tracks, index = tracks_of(identities, settled.identity, frame, boxes_px, scores)
    return People(
        tracks=tracks,
        values={name: value[index] for name, value in values.items()},
        frames=frames,
        time_s=times,
        detected=np.isin(frames, list(looked)),
        shot_first_frame=shot_first_frame,
        owner_presence=settled.owner_presence[index],
        same_as=settled.same_as,
        events=settled.events,
    )
