"""The trackers that bench/identity.py compares, all on the same boxes: ours, parts of it, and
published ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from bench.lib.identity_metrics import FrameBoxes
from bench.lib.identity_scenes import SeenFrame
from pose2d.tracking.identity import IdentityOptions, Settled, settle
from pose2d.tracking.tracker import Tracker, TrackerOptions
from pose2d.types import NOBODY, Appearance, Detections, Keypoints

Follow = Callable[[Sequence[SeenFrame], tuple[int, int]], list[FrameBoxes]]
SIZE_WH = (1000, 600)


def detections(frames: Sequence[SeenFrame]) -> Detections:
    """All frames one after the other, with keypoints and appearance."""
    count = [len(frame.boxes_px) for frame in frames]
    sure = np.concatenate([frame.sure for frame in frames])
    return Detections(
        frame=np.repeat(np.arange(len(frames)), count),
        identity=np.full(sum(count), NOBODY),
        box_px=np.concatenate([frame.boxes_px for frame in frames]),
        score=np.concatenate([frame.scores for frame in frames]),
        keypoints=Keypoints(
            xy_px=np.concatenate([frame.xy_px for frame in frames]),  # type: ignore[arg-type]
            confidence=sure,  # type: ignore[arg-type]
            presence=np.ones_like(sure),  # type: ignore[arg-type]
            source="ccnet",
            skeleton=frames[0].skeleton,
        ),
        time_s=np.repeat([frame.time_s for frame in frames], count),
        appearance=Appearance.concat([frame.appearance for frame in frames]),
    )


def follow_online(
    frames: Sequence[SeenFrame], wh: tuple[int, int], cues: bool, cuts: bool
) -> tuple[Tracker, list]:
    """The tracker of `fitmesh run`, and whose each box of each frame is."""
    tracker = Tracker(wh)
    owners = []
    for frame in frames:
        if frame.is_cut and cuts:
            tracker.cut()
        observed = detections([frame])
        observed = observed if cues else replace(observed, keypoints=None, appearance=None)
        owners.append(tracker.update(frame.time_s, observed))
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
    frames: Sequence[SeenFrame],
    wh: tuple[int, int] = SIZE_WH,
    options: IdentityOptions | None = None,
) -> Settled:
    tracker, owners = follow_online(frames, wh, cues=True, cuts=True)
    track = np.concatenate([np.zeros(0, np.int64), *owners])
    confirmed = np.isin(track, list(tracker.confirmed()))
    observed = replace(detections(frames), identity=np.where(confirmed, track, NOBODY))
    starts = np.array([0, *(n for n, frame in enumerate(frames) if frame.is_cut and n)])
    last_s = np.array([frames[end - 1].time_s for end in [*starts[1:], len(frames)]])
    return settle(observed, starts, last_s, wh, options or IdentityOptions())


def settled_boxes(frames: Sequence[SeenFrame], result: Settled) -> list[FrameBoxes]:
    ends = np.cumsum([0, *(len(frame.boxes_px) for frame in frames)])
    parts = [result.identity[a:b] for a, b in pairwise(ends)]
    return [
        FrameBoxes(part[part >= 0], f.boxes_px[part >= 0])
        for part, f in zip(parts, frames, strict=True)
    ]


def _boxes(
    frames: Sequence[SeenFrame], tracker: Tracker, owners: list[np.ndarray]
) -> list[FrameBoxes]:
    names = tracker.confirmed()
    results = []
    for frame, owner in zip(frames, owners, strict=True):
        keep = np.isin(owner, list(names))
        results.append(
            FrameBoxes(np.array([names[int(n)] for n in owner[keep]], int), frame.boxes_px[keep])
        )
    return results


def from_package(name: str) -> Follow:
    """ByteTrackTracker or OCSORTTracker of the package `trackers` (Apache-2.0), which keeps them up
    to date.
    """
    import supervision  # type: ignore[import-not-found]
    import trackers  # type: ignore[import-not-found]

    def run(frames: Sequence[SeenFrame], wh: tuple[int, int] = SIZE_WH) -> list[FrameBoxes]:
        rate = (len(frames) - 1) / (frames[-1].time_s - frames[0].time_s)
        gap = round(TrackerOptions().gap_s * rate)
        tracker = getattr(trackers, name)(
            frame_rate=rate, lost_track_buffer=gap, high_conf_det_threshold=0.3
        )
        results = []
        for frame in frames:
            inputs = supervision.Detections(
                xyxy=frame.boxes_px.reshape(-1, 4),
                confidence=frame.scores,
                class_id=np.zeros(len(frame.scores), int),
            )
            result = tracker.update(inputs)
            keep = np.asarray(result.tracker_id) >= 0
            results.append(
                FrameBoxes(np.asarray(result.tracker_id)[keep], np.asarray(result.xyxy)[keep])
            )
        return results

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
