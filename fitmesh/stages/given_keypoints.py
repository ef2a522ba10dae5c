"""Keypoints that another program found (`--keypoints`), as a stage instead of detection.

`keypoint_files` reads them. The stage writes the same two files as `people`.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fitmesh.stages import people
from fitmesh.stages.keypoint_files import files_of, read_given
from fitmesh.stages.settings import Job
from pose2d.base.caching import CacheKey, code_digest, content_digest
from pose2d.base.errors import UserError
from pose2d.base.threads import prefetch
from pose2d.skeletons import HALPE26
from pose2d.tracking.appearance import describe
from pose2d.tracking.identity import People, collect_people, tracked_rows
from pose2d.tracking.tracker import Tracker
from pose2d.types import Detections
from pose2d.video.shots import ShotMarker


def cache_key(job: Job) -> CacheKey:
    """Return the key of imported keypoints."""
    file = _file(job)
    settings, inputs = people.key_parts(job)
    return CacheKey(
        stage="people",
        settings={
            **settings,
            "boxes": "given keypoints",
            "name": file.name,
            "layout": job.settings.keypoint_layout,
        },
        inputs={**inputs, "keypoints": content_digest(files_of(file))},
        code=code_digest(
            "pose2d.people", "pose2d.hand_tracks", "pose2d.masks", "fitmesh.stages.given_keypoints"
        ),
    )


def make(job: Job, key: CacheKey) -> None:
    """Write people and keypoints of a file, tracked where it has no identities."""
    info = job.clip.info
    imported = read_given(_file(job), job.settings.keypoint_layout, (info.width_px, info.height_px))
    tracker = Tracker((info.width_px, info.height_px), job.settings.tracker)
    shots = ShotMarker()
    first_frames = []
    all_rows = imported.rows
    parts: list[Detections] = []
    frames: list[int] = []
    times: list[float] = []
    with job.reporter.stage("people", job.settings.span.expected_frames(info)) as tick:
        for frame, starts_shot in shots.mark(prefetch(job.clip.frames(job.settings.span))):
            if starts_shot:
                tracker.cut()
                first_frames.append(frame.index)
            rows = all_rows.rows(all_rows.frame == frame.index)
            rows = replace(rows, time_s=np.full(len(rows), float(frame.time_s)))
            if not imported.named:
                appearance = describe(frame.rgb, rows.xy_px, rows.sure, HALPE26)
                rows = replace(rows, appearance=appearance)
                rows = tracked_rows(
                    replace(rows, identity=tracker.update(float(frame.time_s), rows))
                )
            parts.append(rows)
            frames.append(frame.index)
            times.append(float(frame.time_s))
            tick(1)
    if len(all_rows) and not np.isin(all_rows.frame, frames).any():
        raise UserError(
            f"{_file(job)} has frames {all_rows.frame.min()} to {all_rows.frame.max()}, none of "
            f"which is read from {job.clip.path} (frames {frames[0]} to {frames[-1]}). Frame "
            "numbers count from 0."
        )
    cuts = np.unique([*first_frames, *shots.late]).astype(np.int64)
    numbers = np.array(frames, np.int64)
    seconds = np.array(times)
    if imported.named:
        found_people = _keep_identities(Detections.concat(parts), numbers, seconds, cuts)
    else:
        found_people = collect_people(parts, tracker, numbers, seconds, cuts, job.settings.identity)
    people.write(
        job,
        key,
        found_people,
        pose_model=imported.pose_model,
        skeleton=HALPE26.name,
        source=imported.rows.points.source,
    )


def _keep_identities(
    rows: Detections, frames: np.ndarray, times: np.ndarray, shot_first_frame: np.ndarray
) -> People:
    """Return people under the identities of the file.

    A track lies within one shot, so a person in several shots gets a new number in every later one,
    and `same_as` holds the file's number.
    """
    file_identity = rows.identity
    shot = np.searchsorted(shot_first_frame, rows.frame, side="right")
    next_free = int(file_identity.max(initial=0)) + 1
    identity = file_identity.copy()
    same_as = dict[int, int]()
    pairs = {(int(s), int(i)) for s, i in zip(shot, file_identity, strict=True)}
    for shot_number, person in sorted(pairs):
        number = person
        if person in same_as:
            number = next_free
            next_free += 1
            identity[(file_identity == person) & (shot == shot_number)] = number
        same_as[number] = person
    return People(
        detections=replace(rows, identity=identity).by_person(),
        frames=frames,
        time_s=times,
        detected=np.zeros(len(frames), np.bool_),
        shot_first_frame=shot_first_frame,
        same_as=same_as,
        events=[],
    )


def _file(job: Job) -> Path:
    assert job.settings.keypoints is not None
    return job.settings.keypoints
