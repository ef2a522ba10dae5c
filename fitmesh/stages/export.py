"""Stages 3 and 4: `overlay.mp4`, the video with everyone's mesh drawn over them, and the formats of `fitmesh.exports`.

Each is a stage with a cache key of its own.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import numpy as np

import fitmesh.result
from fitmesh.exports import EXPORTERS
from fitmesh.result import CACHE_FOLDER, OVERLAY_FILE
from fitmesh.stages.settings import Job
from fitmesh.tracks import edited_keypoints
from pose2d.base.caching import CacheKey, code_digest
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file, open_regular, read_json, remove_temporary
from pose2d.base.threads import background_writer, prefetch, single_thread
from pose2d.video.frames import Frame

if TYPE_CHECKING:  # what draws and writes is imported when a video is drawn, long after cache keys were compared
    from fitmesh.exports.draw import DrawnPerson
    from pose2d.video.writer import VideoWriter


def cache_key(job: Job, name: str, fit_key: CacheKey, overlay_key: CacheKey) -> CacheKey:
    exporter, motion = EXPORTERS[name], job.settings.motion
    chosen: dict[str, Any] = {"bone_names": job.settings.bone_names} if exporter.names_bones else {}
    if exporter.is_emptied:
        chosen |= {"keep_reliable": motion.keep_reliable, "reliable_mm": motion.reliable_mm}
    if exporter.is_motion:
        chosen |= asdict(motion)
    return CacheKey(
        stage=name,
        settings=chosen,
        inputs={"fit": fit_key.digest, "overlay": overlay_key.digest},
        code=code_digest(exporter.module, "fitmesh.exports.motion"),
    )


def is_current(out: Path, key: CacheKey) -> bool:
    """The cache key is the same, and every file is there in the size it was written in."""
    try:
        noted = read_json(_note(out, key.stage)).object()
        sizes = {name: (out / name).stat().st_size for name in noted["bytes"]}
    except (UserError, OSError, ValueError, KeyError, TypeError):
        return False
    return noted.get("cache_key") == key.text and sizes == noted["bytes"]


def noted_files(out: Path, name: str) -> list[str]:
    """What an export left in `out`, as its note says; nothing without one."""
    try:
        return [file for file in read_json(_note(out, name)).item("bytes").object() if ".." not in Path(file).parts]
    except UserError:
        return []


def make(job: Job, key: CacheKey) -> None:
    exporter, result, note = EXPORTERS[key.stage], fitmesh.result.load(job.out), _note(job.out, key.stage)
    note.unlink(missing_ok=True)  # while files change, no note vouches for them
    names = exporter.files(result, job.settings.motion)
    for name in names:
        remove_temporary(job.out / name)
    exporter.write(result, job.out, job.reporter, job.settings.bone_names, job.settings.motion)
    sizes = {name: (job.out / name).stat().st_size for name in names}
    with atomic_file(note) as temporary:
        temporary.write_text(json.dumps({"cache_key": key.text, "bytes": sizes}, indent=1) + "\n")


def _note(out: Path, name: str) -> Path:
    """These files have no room for a cache key of their own."""
    return out / CACHE_FOLDER / f"{name}.json"


_Painted = tuple[av.VideoFrame, Fraction]  # a frame ready to be encoded, and its time


class _Painter:
    """Draws whoever is in a frame of the folder `out` into it."""

    def __init__(self, out: Path) -> None:
        from fitmesh.exports.scene import MeshSequence

        self.result, self.keypoints = fitmesh.result.load(out), edited_keypoints(out)
        people, seen = self.result.people, self.keypoints
        self.meshes = {person.identity: MeshSequence(self.result, person) for person in people}
        # Identity -> frame number -> row, of people with a body and of those that could not be fitted.
        self.row_of = {person.identity: _rows(person.frame) for person in people}
        self.unfitted_row_of = {i: _rows(frames) for i, frames in seen.frames.items() if i not in self.row_of}
        if self.result.views:  # of several cameras: a person may be several tracks, and has a number of its own
            taken = {(f, *box) for p in people for f, box in zip(p.frame.tolist(), p.box_px.tolist(), strict=True)}
            boxes = {i: box.astype(np.float32).tolist() for i, box in seen.boxes_px.items()}
            self.unfitted_row_of = {
                i: {f: row for f, row in _rows(frames).items() if (f, *boxes[i][row]) not in taken}
                for i, frames in seen.frames.items()
            }

    def figures(self, frame: int) -> "list[DrawnPerson]":
        """Whoever has a mesh there. In order of time, and in one thread: meshes are skinned some frames at a time."""
        from fitmesh.exports.draw import DrawnPerson

        drawn = []
        for person in self.result.people:
            if (row := self.row_of[person.identity].get(frame)) is not None:
                mesh, confidence = self.meshes[person.identity], person.confidence[row] * person.presence[row]
                vertices_m, observed = mesh.vertices_m(row), mesh.observed(row)
                drawn.append(DrawnPerson(person.identity, vertices_m, observed, person.keypoints_px[row], confidence))
        return drawn

    def paint(self, rgb: np.ndarray, frame: int, figures: "list[DrawnPerson]") -> None:
        """Into the image [H, W, 3] itself."""
        from fitmesh.exports.draw import draw_boxes, draw_hands, draw_legend, draw_meshes, draw_skeleton

        result = self.result
        draw_meshes(rgb, figures, result.camera_at(frame), result.body.faces)
        rest = {i: row for i, rows in self.unfitted_row_of.items() if (row := rows.get(frame)) is not None}
        draw_boxes(rgb, {identity: self.keypoints.boxes_px[identity][row] for identity, row in rest.items()})
        for identity, row in rest.items():
            person, (_, top, _, bottom) = self.keypoints.people[identity], self.keypoints.boxes_px[identity][row]
            confidence = (person.confidence[row] * person.presence[row]).numpy()
            draw_skeleton(rgb, person.xy_px[row].numpy(), confidence, person.skeleton, identity, bottom - top)
        for identity, hands in self.keypoints.hands.items():
            frames = self.keypoints.frames[identity]
            if (row := int(np.searchsorted(frames, frame))) < len(frames) and frames[row] == frame:
                draw_hands(rgb, hands, row)
        draw_legend(rgb, result.source)


def overlay_key(job: Job, fit_key: CacheKey) -> CacheKey:
    return CacheKey(
        stage="overlay",
        settings={},
        inputs={"clip": job.clip_digest, "fit": fit_key.digest},
        code=code_digest("fitmesh.exports.draw", "fitmesh.exports.scene", "pose2d.video.writer"),
    )


def overlay_is_current(path: Path, key: CacheKey) -> bool:
    try:
        with open_regular(path), av.open(str(path), options={"protocol_whitelist": "file"}) as container:
            return container.metadata.get("comment") == _tag(key)
    except (av.error.FFmpegError, OSError, ValueError):
        return False


def make_overlay(job: Job, key: CacheKey) -> None:
    """Draw everyone into every frame of the span; times and sound stay as they were."""
    from pose2d.video.writer import video_writer

    painter, clip, span = _Painter(job.out), job.clip, job.settings.span
    sound = clip.path if clip.info.has_audio else None
    rate = clip.info.rate / span.every
    with (
        job.reporter.stage("overlay", span.expected_frames(clip.info)) as tick,
        single_thread(),  # skinning; decoding and encoding have threads of their own
        video_writer(job.out / OVERLAY_FILE, rate, clip.info.tick_s, sound, {"comment": _tag(key)}) as video,
        background_writer(partial(_add, video)) as write,
    ):
        for frame in _painted(painter, video, prefetch(clip.frames(span)), job.settings.workers):
            write(frame)
            tick(1)


def _painted(painter: _Painter, video: "VideoWriter", frames: Iterable[Frame], workers: int) -> Iterator[_Painted]:
    """Every frame in order, `workers` of them painted side by side."""

    def paint(frame: Frame, figures: "list[DrawnPerson]") -> _Painted:
        painter.paint(frame.rgb, frame.index, figures)
        return video.prepared(frame.rgb), frame.time_s  # not where frames are encoded: that takes as long again

    waiting: deque[Future[_Painted]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for frame in frames:
            waiting.append(pool.submit(paint, frame, painter.figures(frame.index)))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        for painting in waiting:
            yield painting.result()


def _add(video: "VideoWriter", painted: _Painted) -> None:
    video.add(*painted)


def _rows(frames: np.ndarray) -> dict[int, int]:
    return {number: row for row, number in enumerate(frames.tolist())}


def _tag(key: CacheKey) -> str:
    return f"fitmesh cache key {key.digest}"
