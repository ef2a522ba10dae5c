"""Stages 3 and 4: `overlay.mp4`, the video with everyone's mesh drawn over them, and the formats of
`fitmesh.exports`.

Each is a stage with a cache key of its own.
"""

import json
from collections import defaultdict, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np

import fitmesh.loading
from fitmesh.exports import EXPORTERS
from fitmesh.manifest import CACHE_FOLDER
from fitmesh.person import Person
from fitmesh.result import OVERLAY_FILE
from fitmesh.stages.settings import Job, RunSettings
from fitmesh.tracks import edited_keypoints
from fitmesh.ui.events import Reporter
from fitting.camera.pinhole import resize_px
from pose2d.base.caching import CacheKey, code_digest
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file, remove_temporary
from pose2d.base.json_files import read_json
from pose2d.base.threads import prefetch, single_thread
from pose2d.video.frames import Frame


def cache_key(settings: RunSettings, name: str, fit_digest: str, overlay_digest: str) -> CacheKey:
    """Return the key of an export: settings, fit, overlay and code on which it depends."""
    exporter = EXPORTERS[name]
    chosen: dict[str, Any] = {"rig": settings.rig} if exporter.has_skeleton else {}
    if exporter.turns_axes:
        chosen["axes"] = settings.trc_axes
    if exporter.motion:
        only_selects = (
            exporter.motion == "blank_unreliable_rows"
        )  # the numbers of the fit, some left out
        chosen |= {
            name: value
            for name, value in asdict(settings.motion).items()
            if not only_selects or "reliable" in name
        }
        chosen["plant_feet"] = exporter.plants_feet and settings.plant_feet
    if exporter.has_skeleton or exporter.each:
        chosen["names"] = settings.names
    if exporter.people_folder:
        chosen["per_person"] = settings.per_person
    return CacheKey(
        stage=name,
        settings=chosen,
        inputs={"fit": fit_digest, "overlay": overlay_digest},
        code=code_digest(exporter.module, "fitmesh.exports.motion"),
    )


def is_current(out: Path, key: CacheKey) -> bool:
    """Say whether the cache key is the same and every file has the size it was written with."""
    text, sizes = _noted(out, key.stage)
    found_sizes = {name: (out / name).stat().st_size for name in sizes if (out / name).is_file()}
    return text == key.text and sizes == found_sizes


def noted_files(out: Path, name: str) -> list[str]:
    """Return the files that an export left in `out`, as its note says; none without a note."""
    return list(_noted(out, name)[1])


def noted_key(out: Path, name: str) -> str:
    """Return the text of the key that an export was made with; empty without a note."""
    return _noted(out, name)[0]


def _noted(out: Path, name: str) -> tuple[str, dict[str, Any]]:
    """Return the cache key of an export, and the sizes of its files by name."""
    try:
        note = read_json(_note(out, name))
        sizes = note.item("bytes").object()
        return note.item("cache_key").text(), {
            file: n for file, n in sizes.items() if ".." not in Path(file).parts
        }
    except UserError:
        return "", {}


def make(job: Job, key: CacheKey) -> None:
    """Write the overlay or an export, and a note with its key and sizes."""
    if key.stage in EXPORTERS:
        write_export(job.out, job.settings, key, job.reporter)
        return
    _note(job.out, key.stage).unlink(
        missing_ok=True
    )  # while files change, no note vouches for them
    _write_note(job.out, key, _write_overlay(job))


def write_export(out: Path, settings: RunSettings, key: CacheKey, reporter: Reporter) -> None:
    """Write an export of the result in `out`, and a note with its key and sizes."""
    exporter = EXPORTERS[key.stage]
    _note(out, key.stage).unlink(missing_ok=True)  # while files change, no note vouches for them
    for entry in exporter.entries:
        remove_temporary(out / entry)
    result = fitmesh.loading.load(out)
    result = replace(result, settings={**result.settings, "names": settings.names})
    names = exporter.write(
        result,
        out,
        reporter,
        settings.rig,
        settings.motion,
        settings.trc_axes,
        settings.per_person,
    )
    _write_note(out, key, names)


def _write_note(out: Path, key: CacheKey, names: list[str]) -> None:
    """Write the note of an export."""
    sizes = {name: (out / name).stat().st_size for name in names}
    with atomic_file(_note(out, key.stage)) as temporary:
        temporary.write_text(json.dumps({"cache_key": key.text, "bytes": sizes}, indent=1) + "\n")


def _note(out: Path, name: str) -> Path:
    """Return the file with the cache key of an export, which has no room for one."""
    return out / CACHE_FOLDER / f"{name}.json"


class _Painter:
    """Draws everyone of the folder `out` into frames, whose longer side gets at most `most_px`.

    What draws is imported when it does, long after cache keys were compared.
    """

    def __init__(self, out: Path, most_px: int) -> None:
        self.result = fitmesh.loading.load(out)
        self.people = edited_keypoints(out).people
        recorded_wh = self.result.size
        self._ratio = min(1.0, most_px / max(recorded_wh))
        self._size_wh = recorded_wh
        if self._ratio < 1:
            # Even sides, because colours are stored for squares of 2 x 2 pixels.
            width, height = (max(2, 2 * round(self._ratio * side / 2)) for side in recorded_wh)
            self._size_wh = (width, height)
        # Frame number -> who is there, in which row: of people with a body, and of all tracks.
        self.bodies: dict[int, list[tuple[Person, int]]] = defaultdict(list)
        self.tracks: dict[int, dict[int, int]] = defaultdict(dict)
        for person in self.result.people:
            for row, frame in enumerate(person.frame.tolist()):
                self.bodies[frame].append((person, row))
        for identity, rows in self.people.items():
            for row, frame in enumerate(rows.frame.tolist()):
                self.tracks[frame][identity] = row

    def paint(self, rgb: np.ndarray, frame: int) -> np.ndarray:
        """Return the image [H, W, 3] of a frame with everyone drawn into it."""
        from fitmesh.exports.draw import (
            draw_boxes,
            draw_hands,
            draw_legend,
            draw_meshes,
            draw_skeleton,
        )

        bodies = self.bodies.get(frame, [])
        tracks = self.tracks.get(frame, {})
        people = self.people
        if self._ratio < 1:
            # The mean over pixels takes 10 ms a frame, and shows only where images shrink a lot.
            how = cv2.INTER_AREA if self._ratio < 0.5 else cv2.INTER_LINEAR
            rgb = cv2.resize(rgb, self._size_wh, interpolation=how)
        camera = self.result.camera_at(frame).resized(self._size_wh)
        draw_meshes(rgb, self.result, camera, bodies)
        boxes = {identity: people[identity].box_px[row] for identity, row in tracks.items()}
        fitted = {person.identity for person in self.result.people}
        if self.result.views:
            # With several cameras a person may be several tracks and has another number.
            fitted_boxes = [person.box_px[row] for person, row in bodies]
            fitted = {
                identity
                for identity, box in boxes.items()
                if any((box.astype(np.float32) == other).all() for other in fitted_boxes)
            }
        ratio = self._ratio
        unfitted = {i: resize_px(box, ratio) for i, box in boxes.items() if i not in fitted}
        draw_boxes(rgb, unfitted)
        for identity, row in tracks.items():
            if identity not in fitted:
                points = people[identity].points
                _, top, _, bottom = unfitted[identity]
                confidence = (points.confidence[row] * points.presence[row]).numpy()
                draw_skeleton(
                    rgb,
                    resize_px(points.xy_px[row].numpy(), ratio),
                    confidence,
                    points.skeleton,
                    identity,
                    bottom - top,
                )
            if (hands := people[identity].hands) is not None:
                draw_hands(rgb, hands, row, ratio)
        draw_legend(rgb, self.result.source)
        return rgb


def overlay_key(job: Job, fit_key: CacheKey) -> CacheKey:
    """Return the key of the overlay."""
    return CacheKey(
        stage="overlay",
        settings={"overlay_px": job.settings.overlay_px},
        inputs={"clip": job.clip_digest, "fit": fit_key.digest},
        code=code_digest("fitmesh.exports.draw", "fitmesh.exports.scene", "pose2d.video.writer"),
    )


def _write_overlay(job: Job) -> list[str]:
    """Draw everyone into every frame of the span; times and sound stay as they were."""
    from pose2d.video.writer import video_writer

    painter = _Painter(job.out, job.settings.overlay_px)
    clip = job.clip
    span = job.settings.span
    sound = clip.path if clip.info.has_audio else None
    rate = clip.info.rate / span.every
    # Frames that are being painted, and their times.
    waiting: deque[tuple[Future[av.VideoFrame], Fraction]] = deque()
    with (
        job.reporter.stage("overlay", span.expected_frames(clip.info)) as tick,
        single_thread(),  # skinning; decoding and encoding have threads of their own
        video_writer(job.out / OVERLAY_FILE, rate, clip.info.tick_s, sound) as video,
        ThreadPoolExecutor(job.settings.workers) as pool,
    ):

        def paint(frame: Frame) -> av.VideoFrame:
            # Prepared here and not where frames are encoded: that takes as long again.
            return video.prepare(painter.paint(frame.rgb, frame.index))

        def add_first() -> None:
            painting, time_s = waiting.popleft()
            video.add(painting.result(), time_s)
            tick(1)

        for frame in prefetch(clip.frames(span)):
            waiting.append((pool.submit(paint, frame), frame.time_s))
            if len(waiting) > 2 * job.settings.workers:
                add_first()
        while waiting:
            add_first()
    return [OVERLAY_FILE]
