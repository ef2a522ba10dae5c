"""Stage 1: frames -> boxes with identities, in `tracks.npz`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fitmesh.stages.settings import WHOLE_IMAGE, Job
from pose2d.base.caching import CacheKey, code_digest, content_digest, npz_is_current, read_npz, write_npz
from pose2d.base.prefetch import Background, prefetch
from pose2d.detect.detector import Detections, Detector, DetectorInput, detector_inputs, read_detections, whole_image
from pose2d.detect.tracker import Tracker
from pose2d.io.clip import Frame
from pose2d.types import Track

FILE = "tracks.npz"
is_current = npz_is_current


@dataclass(frozen=True)
class TracksFile:
    """What `tracks.npz` holds."""

    width_px: int
    height_px: int
    rate: Fraction  # frames per second of the source
    frames: np.ndarray  # [F] numbers of the frames that were read
    time_s: np.ndarray  # [F] when each is shown
    tracks: list[Track]
    warnings: list[str]  # about the video

    @property
    def every(self) -> int:
        """Steps between the frames that were read."""
        return int(np.diff(self.frames).min()) if len(self.frames) > 1 else 1

    @property
    def fps(self) -> float:
        """Frames per second that were read, which `--every` makes fewer."""
        return float(self.rate / Fraction(self.every))


def cache_key(job: Job) -> CacheKey:
    settings, inputs = job.settings.tracks, {"clip": job.clip_digest}
    boxes = "detector"
    if settings.detections == WHOLE_IMAGE:
        boxes = "whole"
    elif settings.detections is not None:
        boxes, inputs["detections"] = "given", content_digest([settings.detections])
    return CacheKey(
        stage="tracks",
        settings={
            "span": asdict(job.settings.span),
            "rate": str(job.clip.info.rate),
            "boxes": boxes,
            "detector": asdict(settings.detector) if boxes == "detector" else None,
            "tracker": asdict(settings.tracker),
            "max_people": settings.max_people,
        },
        inputs=inputs,
        code=code_digest("pose2d.detect.detector", "pose2d.detect.tracker"),
    )


def make(job: Job, key: CacheKey) -> None:
    """Detect people in every frame of the span and write who is where."""
    if job.settings.given_keypoints is None:
        job.networks.start()  # the next stage needs them
    with torch.inference_mode():
        track_boxes(job, key, ((frame, detect()) for frame, detect in prefetch(_detections(job))))


def track_boxes(
    job: Job,
    key: CacheKey,
    boxes: Iterator[tuple[Frame, Detections]],
    named: Callable[[np.ndarray], list[Track]] | None = None,
) -> None:
    """Follow the boxes of each frame and write the tracks. `named`: frames -> tracks, where identities are given."""
    info, settings = job.clip.info, job.settings.tracks
    tracker = Tracker((info.width_px, info.height_px), settings.tracker)
    frames: list[int] = []
    times: list[float] = []
    with job.reporter.stage("tracks", job.settings.span.expected_frames(info)) as tick:
        for frame, detections in boxes:
            tracker.update(frame.index, float(frame.time_s), detections)
            frames.append(frame.index)
            times.append(float(frame.time_s))
            tick(1)
    found = tracker.tracks() if named is None else named(np.array(frames))
    tracks = most_seen(found, settings.max_people)
    write_npz(
        job.out / FILE,
        key,
        {
            "width_px": info.width_px,
            "height_px": info.height_px,
            "rate": [info.rate.numerator, info.rate.denominator],
            "frame": np.array(frames, np.int64),
            "time_s": np.array(times),
            **track_rows(tracks),
            "row_score": np.concatenate([np.zeros(0), *(track.scores for track in tracks)]),
            "warnings": np.array(job.clip.warnings, dtype=np.str_),
        },
    )


def track_rows(tracks: list[Track]) -> dict[str, np.ndarray]:
    """Whose the rows are, and the frame and box of each."""
    return {
        "identity": np.array([track.identity for track in tracks], np.int64),
        "first_row": np.cumsum([0, *(len(track.frames) for track in tracks)]),
        "row_frame": np.concatenate([np.zeros(0, np.int64), *(track.frames for track in tracks)]),
        "row_box_px": np.concatenate([np.zeros((0, 4)), *(track.boxes_px for track in tracks)]),
    }


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


def most_seen(tracks: list[Track], limit: int | None) -> list[Track]:
    chosen = sorted(tracks, key=lambda track: -len(track.frames))[:limit]
    return sorted(chosen, key=lambda track: track.identity)


def _detections(job: Job) -> Iterator[tuple[Frame, Callable[[], Detections]]]:
    """Every frame, and who is there: all that is left to call is the network."""
    settings, span = job.settings.tracks, job.settings.span
    if settings.detections == WHOLE_IMAGE:
        yield from ((frame, partial(whole_image, frame.rgb)) for frame in job.clip.frames(span))
    elif settings.detections is not None:
        given = read_detections(settings.detections)
        yield from ((frame, partial(_given_in, frame.index, given)) for frame in job.clip.frames(span))
    else:
        yield from _detector_results(job)


def _given_in(frame: int, given: Mapping[int, Detections]) -> Detections:
    return given.get(frame, Detections(np.zeros((0, 4)), np.zeros(0)))


def _detector_results(job: Job) -> Iterator[tuple[Frame, Callable[[], Detections]]]:
    settings, info = job.settings.tracks, job.clip.info
    # The tracker has a use for boxes too doubtful to start a person.
    threshold = min(settings.detector.score_threshold, settings.tracker.doubtful_score)
    options = replace(settings.detector, score_threshold=threshold)
    detector = Background(lambda: Detector(options).to(job.settings.device))
    detector.start()  # while the first frames are decoded
    # FFmpeg makes a frame small while it turns it to RGB, for a tenth of what it would cost to do so afterwards.
    full = np.array((info.width_px, info.height_px))
    zoom = min(1.0, max(options.long_sides) / full.max())
    width, height = np.maximum(np.round(full * zoom), 1).astype(int).tolist()
    grow = np.tile(full / (width, height), 2)

    def find(inputs: list[DetectorInput]) -> Detections:
        found = detector.get().find(inputs)
        return Detections(found.boxes_px * grow, found.scores)

    for frame in job.clip.frames(job.settings.span, (width, height)):
        yield frame, partial(find, detector_inputs(frame.rgb, options))
