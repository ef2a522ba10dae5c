"""Stage 1: frames -> boxes with identities, in `tracks.npz`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fitmesh.progress import Reporter
from pose2d.base.caching import CacheKey, content_digest, npz_is_current, read_npz, write_npz
from pose2d.base.errors import UserError
from pose2d.base.prefetch import Background, prefetch
from pose2d.detect.detector import Detections, DetectorInput, DetectorOptions, read_detections, whole_image
from pose2d.detect.multipose import MultiPose
from pose2d.detect.tracker import Tracker, TrackerOptions
from pose2d.io.clip import Clip, Frame, Span
from pose2d.types import Track

FILE = "tracks.npz"
WHOLE_IMAGE = Path("whole")  # instead of a file of detections: one box around everything


@dataclass(frozen=True)
class TrackSettings:
    """Who to look for, and where."""

    span: Span = field(default_factory=Span)
    detections: Path | None = None  # COCO-detections json, or WHOLE_IMAGE; None: the embedded detector
    detector: DetectorOptions = field(default_factory=DetectorOptions)
    tracker: TrackerOptions = field(default_factory=TrackerOptions)
    max_people: int | None = None  # only those seen in the most frames
    device: str = "cpu"  # where the detector runs; the same boxes come out

    def __post_init__(self) -> None:
        if self.max_people is not None and self.max_people < 1:
            raise UserError(f"--max-people must be 1 or more, got {self.max_people}.")


@dataclass(frozen=True)
class TracksFile:
    """What `tracks.npz` holds."""

    width_px: int
    height_px: int
    rate: Fraction  # frames per second of the source
    frames: np.ndarray  # [F] numbers of the frames looked at
    time_s: np.ndarray  # [F] when each is shown
    tracks: list[Track]
    warnings: list[str]  # of the reading


def cache_key(clip: Clip, clip_digest: str, settings: TrackSettings) -> CacheKey:
    detections = settings.detections
    inputs = {"clip": clip_digest}
    if detections is not None and detections != WHOLE_IMAGE:
        inputs["detections"] = content_digest([detections])
    return CacheKey(
        stage="tracks",
        settings={
            "span": asdict(settings.span),
            "rate": str(clip.info.rate),
            "boxes": "detector" if detections is None else "whole" if detections == WHOLE_IMAGE else "given",
            "detector": asdict(settings.detector) if detections is None else None,
            "tracker": asdict(settings.tracker),
            "max_people": settings.max_people,
        },
        inputs=inputs,
    )


def make(clip: Clip, path: Path, key: CacheKey, settings: TrackSettings, reporter: Reporter) -> None:
    """Look at every frame of the span and write who is where."""
    tracker = Tracker((clip.info.width_px, clip.info.height_px), settings.tracker)
    frames: list[int] = []
    times: list[float] = []
    with reporter.stage("tracks", settings.span.expected_frames(clip.info)) as tick, torch.inference_mode():
        for frame, detect in prefetch(_frames_and_detections(clip, settings)):
            tracker.update(frame.index, float(frame.time_s), detect())
            frames.append(frame.index)
            times.append(float(frame.time_s))
            tick(1)
    write(path, key, clip, frames, times, most_seen(tracker.tracks(), settings.max_people))


def write(path: Path, key: CacheKey, clip: Clip, frames: list[int], times: list[float], tracks: list[Track]) -> None:
    """frames, times: of every frame looked at."""
    rows = [len(track.frames) for track in tracks]
    write_npz(
        path,
        key,
        {
            "width_px": clip.info.width_px,
            "height_px": clip.info.height_px,
            "rate": [clip.info.rate.numerator, clip.info.rate.denominator],
            "frame": np.array(frames, np.int64),
            "time_s": np.array(times),
            "identity": np.array([track.identity for track in tracks], np.int64),
            "first_row": np.cumsum([0, *rows]),
            "row_frame": np.concatenate([np.zeros(0, np.int64), *(track.frames for track in tracks)]),
            "row_box_px": np.concatenate([np.zeros((0, 4)), *(track.boxes_px for track in tracks)]),
            "row_score": np.concatenate([np.zeros(0), *(track.scores for track in tracks)]),
            "warnings": np.array(clip.warnings, dtype=np.str_),
        },
    )


def read(path: Path) -> TracksFile:
    arrays = read_npz(path)
    first = arrays["first_row"]
    tracks = [
        Track(int(identity), arrays["row_frame"][a:b], arrays["row_box_px"][a:b], arrays["row_score"][a:b])
        for identity, a, b in zip(arrays["identity"], first[:-1], first[1:], strict=True)
    ]
    return TracksFile(
        width_px=int(arrays["width_px"]),
        height_px=int(arrays["height_px"]),
        rate=Fraction(*map(int, arrays["rate"])),
        frames=arrays["frame"],
        time_s=arrays["time_s"],
        tracks=tracks,
        warnings=[str(text) for text in arrays["warnings"]],
    )


matches = npz_is_current


def _frames_and_detections(clip: Clip, settings: TrackSettings) -> Iterator[tuple[Frame, Callable[[], Detections]]]:
    """Every frame, and a call that gives its people: the network runs in the caller's thread."""
    if settings.detections == WHOLE_IMAGE:
        yield from ((frame, partial(whole_image, frame.rgb)) for frame in clip.frames(settings.span))
    elif settings.detections is not None:
        given = read_detections(settings.detections)
        yield from ((frame, partial(_given_in, frame.index, given)) for frame in clip.frames(settings.span))
    else:
        yield from _detector_frames(clip, settings)


def _given_in(frame: int, given: Mapping[int, Detections]) -> Detections:
    return given.get(frame, Detections(np.zeros((0, 4)), np.zeros(0)))


def _detector_frames(clip: Clip, settings: TrackSettings) -> Iterator[tuple[Frame, Callable[[], Detections]]]:
    # The tracker has a use for boxes too doubtful to start a person.
    threshold = min(settings.detector.score_threshold, settings.tracker.doubtful_score)
    options = replace(settings.detector, score_threshold=threshold)
    detector = Background(lambda: MultiPose(options).to(settings.device))
    detector.start()  # while the first frames are decoded
    # FFmpeg makes a frame small while it turns it to RGB, for a tenth of what it would cost to do so afterwards.
    whole = np.array((clip.info.width_px, clip.info.height_px))
    zoom = min(1.0, max(options.long_sides) / whole.max())
    width, height = np.maximum(np.round(whole * zoom), 1).astype(int).tolist()
    grow = np.tile(whole / (width, height), 2)

    def find(inputs: list[DetectorInput]) -> Detections:
        found = detector.get().find(inputs)
        return Detections(found.boxes_px * grow, found.scores)

    for frame in clip.frames(settings.span, (width, height)):
        yield frame, partial(find, MultiPose.prepare(frame.rgb, options))


def most_seen(tracks: list[Track], limit: int | None) -> list[Track]:
    chosen = sorted(tracks, key=lambda track: -len(track.frames))[:limit]
    return sorted(chosen, key=lambda track: track.identity)
