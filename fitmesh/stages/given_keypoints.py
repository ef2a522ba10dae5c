"""Stages 1 and 2 for keypoints that are there already: `--keypoints`. The same two files come out."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from fitmesh.progress import Reporter
from fitmesh.stages import keypoint_files, tracks
from fitmesh.stages.keypoint_files import GivenKeypoints, read_given
from fitmesh.stages.keypoints import by_person
from fitmesh.stages.tracks import TrackSettings
from pose2d.base.caching import CacheKey, write_npz
from pose2d.base.errors import UserError
from pose2d.base.prefetch import prefetch
from pose2d.detect.detector import Detections
from pose2d.detect.tracker import Tracker
from pose2d.io.clip import Clip
from pose2d.skeletons import COCO17
from pose2d.types import Track


def tracks_key(clip: Clip, clip_digest: str, file: Path, settings: TrackSettings) -> CacheKey:
    return CacheKey(
        stage="tracks",
        settings={
            "span": asdict(settings.span),
            "rate": str(clip.info.rate),
            "boxes": "given keypoints",
            "tracker": asdict(settings.tracker),
            "max_people": settings.max_people,
        },
        inputs={"clip": clip_digest, "keypoints": keypoint_files.digest(file)},
    )


def keypoints_key(file: Path, key: CacheKey) -> CacheKey:
    return CacheKey(
        stage="keypoints",
        settings={"name": file.name},
        inputs={"tracks": key.digest, "keypoints": keypoint_files.digest(file)},
    )


def make_tracks(clip: Clip, file: Path, path: Path, key: CacheKey, settings: TrackSettings, reporter: Reporter) -> None:
    """Who is where, as the file says, or found by following the boxes around the keypoints."""
    given = read_given(file)
    rows_of = _rows_by_frame(given)
    tracker = Tracker((clip.info.width_px, clip.info.height_px), settings.tracker)
    frames: list[int] = []
    times: list[float] = []
    with reporter.stage("tracks", settings.span.expected_frames(clip.info)) as tick:
        for frame in prefetch(clip.frames(settings.span)):
            boxes = given.box_px[rows_of.get(frame.index, [])]
            tracker.update(frame.index, float(frame.time_s), Detections(boxes, np.ones(len(boxes))))
            frames.append(frame.index)
            times.append(float(frame.time_s))
            tick(1)
    if len(given.frame) and not np.isin(given.frame, frames).any():
        raise UserError(
            f"{file} speaks of frames {given.frame.min()} to {given.frame.max()}, none of which is looked at in "
            f"{clip.path} (frames {frames[0]} to {frames[-1]}). Frame numbers count from 0."
        )
    found = tracker.tracks() if given.identity is None else _as_named(given, np.array(frames))
    tracks.write(path, key, clip, frames, times, tracks.most_seen(found, settings.max_people))


def make_keypoints(file: Path, tracks_file: Path, path: Path, key: CacheKey, reporter: Reporter) -> None:
    """The given keypoints in the order of the tracks."""
    given, known = read_given(file), tracks.read(tracks_file)
    row_of = {_key(frame, box): row for row, (frame, box) in enumerate(zip(given.frame, given.box_px, strict=True))}
    if given.identity is not None:
        pairs = zip(given.frame.tolist(), given.identity.tolist(), strict=True)
        by_name = {pair: row for row, pair in enumerate(pairs)}
        rows = [by_name[int(frame), track.identity] for track in known.tracks for frame in track.frames]
    else:  # a track holds the very boxes it was given
        rows = [
            row_of[_key(frame, box)]
            for track in known.tracks
            for frame, box in zip(track.frames, track.boxes_px, strict=True)
        ]
    with reporter.stage("keypoints", len(rows), "people") as tick:
        write_npz(
            path,
            key,
            {
                "pose_model": given.pose_model,
                "skeleton": COCO17.name,
                "source": given.source,
                **by_person(known.tracks),
                "row_area_px2": given.area_px2[rows],
                "row_xy_px": given.xy_px[rows],
                "row_raw": given.raw[rows],
                "row_confidence": given.confidence[rows],
                "row_presence": given.presence[rows],
                "row_sigma_px": np.full_like(given.xy_px[rows], np.nan),
            },
        )
        tick(len(rows))


def _rows_by_frame(given: GivenKeypoints) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = {}
    for row, frame in enumerate(given.frame.tolist()):
        rows.setdefault(frame, []).append(row)
    return rows


def _as_named(given: GivenKeypoints, looked_at: np.ndarray) -> list[Track]:
    assert given.identity is not None
    found = []
    for identity in np.unique(given.identity):
        rows = np.flatnonzero((given.identity == identity) & np.isin(given.frame, looked_at))
        rows = rows[np.argsort(given.frame[rows])]
        if len(rows):
            found.append(Track(int(identity), given.frame[rows], given.box_px[rows], np.ones(len(rows))))
    return found


def _key(frame: int, box_px: np.ndarray) -> tuple[float, ...]:
    return (int(frame), *map(float, box_px))
