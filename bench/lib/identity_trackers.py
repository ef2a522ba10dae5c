"""The trackers that bench/identity.py compares, all on the same boxes: ours, parts of it, and published ones."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from bench.lib.identity_metrics import FrameBoxes
from bench.lib.identity_scenes import SeenFrame
from pose2d.detect.detector import Detections
from pose2d.tracking.appearance import stack
from pose2d.tracking.association import Cues, keypoint_sigma
from pose2d.tracking.identity import IdentityOptions, Settled, Sightings, settle
from pose2d.tracking.tracker import Tracker, TrackerOptions

Follow = Callable[[Sequence[SeenFrame], tuple[int, int]], list[FrameBoxes]]
SIZE_WH = (1000, 600)


def cues_of_frame(frame: SeenFrame) -> Cues:
    sigma = keypoint_sigma(frame.boxes_px, frame.xy_px, frame.sure, frame.skeleton)
    return Cues(frame.xy_px, sigma, frame.looks, frame.skeleton)


def follow_online(frames: Sequence[SeenFrame], wh: tuple[int, int], cues: bool, cuts: bool) -> tuple[Tracker, list]:
    """The tracker of `fitmesh run`, and whose each box of each frame is."""
    tracker, owners = Tracker(wh), []
    for number, frame in enumerate(frames):
        if frame.is_cut and cuts:
            tracker.cut()
        found = Detections(frame.boxes_px, frame.scores)
        owners.append(tracker.update(number, frame.time_s, found, cues_of_frame(frame) if cues else None))
    return tracker, owners


def motion_only(frames: Sequence[SeenFrame], wh: tuple[int, int] = SIZE_WH) -> list[FrameBoxes]:
    """Motion of the boxes and nothing else; no cuts."""
    return _boxes(frames, *follow_online(frames, wh, cues=False, cuts=False))


def motion_and_cuts(frames: Sequence[SeenFrame], wh: tuple[int, int] = SIZE_WH) -> list[FrameBoxes]:
    return _boxes(frames, *follow_online(frames, wh, cues=False, cuts=True))


def online(frames: Sequence[SeenFrame], wh: tuple[int, int] = SIZE_WH) -> list[FrameBoxes]:
    """Motion, pose and appearance, without a second look at the whole video."""
    return _boxes(frames, *follow_online(frames, wh, cues=True, cuts=True))


def follow(frames: Sequence[SeenFrame], wh: tuple[int, int] = SIZE_WH) -> list[FrameBoxes]:
    """What `fitmesh run` does."""
    return settled_boxes(frames, settled(frames, wh))


def settled(
    frames: Sequence[SeenFrame], wh: tuple[int, int] = SIZE_WH, options: IdentityOptions | None = None
) -> Settled:
    tracker, owners = follow_online(frames, wh, cues=True, cuts=True)
    track = np.concatenate([np.zeros(0, np.int64), *owners])
    count = [len(frame.boxes_px) for frame in frames]
    seen = Sightings(
        track=np.where(np.isin(track, list(tracker.confirmed())), track, -1),
        frame=np.repeat(np.arange(len(frames)), count),
        time_s=np.repeat([frame.time_s for frame in frames], count),
        boxes_px=np.concatenate([frame.boxes_px for frame in frames]),
        xy_px=np.concatenate([frame.xy_px for frame in frames]),
        sure=np.concatenate([frame.sure for frame in frames]),
        looks=stack([frame.looks for frame in frames]),
    )
    starts = np.array([0, *(n for n, frame in enumerate(frames) if frame.is_cut and n)])
    last_s = np.array([frames[end - 1].time_s for end in [*starts[1:], len(frames)]])
    return settle(seen, starts, last_s, wh, frames[0].skeleton, options or IdentityOptions())


def settled_boxes(frames: Sequence[SeenFrame], result: Settled) -> list[FrameBoxes]:
    ends = np.cumsum([0, *(len(frame.boxes_px) for frame in frames)])
    parts = [result.identity[a:b] for a, b in pairwise(ends)]
    return [FrameBoxes(part[part >= 0], f.boxes_px[part >= 0]) for part, f in zip(parts, frames, strict=True)]


def _boxes(frames: Sequence[SeenFrame], tracker: Tracker, owners: list[np.ndarray]) -> list[FrameBoxes]:
    names = tracker.confirmed()
    found = []
    for frame, owner in zip(frames, owners, strict=True):
        keep = np.isin(owner, list(names))
        found.append(FrameBoxes(np.array([names[int(n)] for n in owner[keep]], int), frame.boxes_px[keep]))
    return found


def from_package(name: str) -> Follow:
    """ByteTrackTracker or OCSORTTracker of the package `trackers` (Apache-2.0), which keeps them up to date."""
    import supervision  # type: ignore[import-not-found]
    import trackers  # type: ignore[import-not-found]

    def run(frames: Sequence[SeenFrame], wh: tuple[int, int] = SIZE_WH) -> list[FrameBoxes]:
        rate = (len(frames) - 1) / (frames[-1].time_s - frames[0].time_s)
        gap = round(TrackerOptions().gap_s * rate)
        tracker = getattr(trackers, name)(frame_rate=rate, lost_track_buffer=gap, high_conf_det_threshold=0.3)
        found = []
        for frame in frames:
            given = supervision.Detections(
                xyxy=frame.boxes_px.reshape(-1, 4), confidence=frame.scores, class_id=np.zeros(len(frame.scores), int)
            )
            result = tracker.update(given)
            keep = np.asarray(result.tracker_id) >= 0
            found.append(FrameBoxes(np.asarray(result.tracker_id)[keep], np.asarray(result.xyxy)[keep]))
        return found

    return run


def contestants() -> dict[str, Follow]:
    ours: dict[str, Follow] = {
        "motion only": motion_only,
        "motion + cuts": motion_and_cuts,
        "online": online,
        "ours": follow,
    }
    try:
        return ours | {name: from_package(name) for name in ("ByteTrackTracker", "OCSORTTracker")}
    except ImportError:
        return ours
