"""A few frames of the overlay, as images inside the page."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import av
import cv2
import numpy as np

from fitmesh.exports.report.plots import row_statistic
from fitmesh.result import Person, Result
from pose2d.video.frames import AVERAGE

EVENLY = 6  # frames spread over the time that people are in view
LONG_SIDE_PX, QUALITY = 720, 82
SEEK_BEYOND_S = 8.0  # videos have a key frame every few seconds; for less, decoding on is cheaper than seeking


@dataclass(frozen=True)
class KeyFrame:
    """One image and why it was chosen."""

    frame: int
    time_s: float  # since the first processed frame
    why: str  # empty for those that are just spread evenly
    jpg: str  # as a data URL


def key_frames(result: Result) -> list[KeyFrame]:
    """In order of time; none when there is no overlay to take them from."""
    chosen = _chosen(result)
    times = dict(zip(result.frames.tolist(), (result.time_s - result.time_s[0]).tolist(), strict=True))
    try:
        images = images_at(result.overlay_path, [times[frame] for frame in chosen], LONG_SIDE_PX)
    except (av.error.FFmpegError, OSError):
        return []
    return [
        KeyFrame(frame, times[frame], why, "data:image/jpeg;base64," + base64.b64encode(image).decode())
        for (frame, why), image in zip(chosen.items(), images, strict=False)
    ]


def _chosen(result: Result) -> dict[int, str]:
    """Frame number -> why."""
    in_view = [person.frame for person in result.people] or [result.frames]
    in_view = np.unique(np.concatenate(in_view)).tolist()
    confidence = _extreme(result, lambda person: -np.where(person.observed, person.confidence.mean(1), np.nan))
    error = _extreme(result, lambda person: row_statistic(person.reprojection_px, np.nanmedian))
    special = {confidence: "lowest confidence", error: "largest reprojection error"}
    chosen = {frame: why for frame, why in special.items() if frame is not None}
    spacing = (in_view[-1] - in_view[0]) / EVENLY
    for i in np.linspace(0, len(in_view) - 1, EVENLY):
        frame = in_view[round(i)]
        if all(abs(frame - other) > spacing / 3 for other in special if other is not None):
            chosen[frame] = ""
    return dict(sorted(chosen.items()))


def _extreme(result: Result, measure: Callable[[Person], np.ndarray]) -> int | None:
    """The frame where `measure` [T] is largest over all people."""
    best, where = -np.inf, None
    for person in result.people:
        values = measure(person)
        if np.isfinite(values).any() and np.nanmax(values) > best:
            best, where = float(np.nanmax(values)), int(person.frame[np.nanargmax(values)])
    return where


def images_at(path: Path, times_s: list[float], long_side_px: int) -> list[bytes]:
    """Frames of a video at rising times as JPEG; seeks over long gaps, so that a long one is not decoded completely."""
    found: list[bytes] = []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        assert stream.time_base is not None
        half_s = 0.5 / float(stream.average_rate or 30)
        frames, now_s = container.decode(stream), 0.0
        for time_s in times_s:
            if time_s - now_s > SEEK_BEYOND_S:
                container.seek(round(time_s / stream.time_base), stream=stream)
                frames = container.decode(stream)
            for frame in frames:
                now_s = frame.time or 0.0
                if now_s >= time_s - half_s:
                    found.append(_jpg(frame, long_side_px))
                    break
    return found


def _jpg(frame: av.VideoFrame, long_side_px: int) -> bytes:
    zoom = min(1.0, long_side_px / max(frame.width, frame.height))
    width, height = max(1, round(frame.width * zoom)), max(1, round(frame.height * zoom))
    bgr = frame.to_ndarray(width=width, height=height, format="bgr24", interpolation=AVERAGE)
    _, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return bytes(data.tobytes())
