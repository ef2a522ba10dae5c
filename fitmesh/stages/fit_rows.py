"""The rows of `fit.npz`: fitted tracks as people, and the file itself."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fitmesh.person import Person
from fitmesh.result import FIT_FILE
from fitmesh.schema import SCHEMA_VERSION
from fitmesh.stages.people import SeenPeople
from fitmesh.stages.settings import Job
from fitting.body import Body
from fitting.body.load import load_body
from fitting.body.reading import READINGS
from fitting.camera import Camera
from fitting.fits import TrackFit
from fitting.shot import ShotFit
from pose2d.base.caching import CacheKey, write_npz
from pose2d.base.table import blocks, join_rows
from pose2d.events import Event
from pose2d.skeletons import HALPE26
from pose2d.types import Detections

HALPE_FEET = tuple(
    HALPE26.keypoints.index(f"{side}_{point}")
    for side in ("left", "right")
    for point in ("heel", "big_toe")
)
_HANDS = slice(22, None)  # of the 24 joints


def write_fit(
    job: Job, key: CacheKey, clip_tracks: SeenPeople, camera: Camera, arrays: Mapping[str, Any]
) -> None:
    """Write `fit.npz`: what was fitted, and what it was made from."""
    settings = job.settings
    is_open_body = settings.body_model is None
    body_name = load_body(settings.body_file).name if is_open_body else settings.body_file.name
    write_npz(
        job.out / FIT_FILE,
        key,
        {
            "schema_version": SCHEMA_VERSION,
            "body": body_name,
            "body_path": "" if is_open_body else str(settings.body_file.resolve()),
            "body_digest": key.inputs["body"],
            "weighting": settings.weighting,
            "init": settings.init,
            "source": clip_tracks.rows.points.source,
            "pose_model": clip_tracks.pose_model,
            "width_px": clip_tracks.width_px,
            "height_px": clip_tracks.height_px,
            "rate": [clip_tracks.rate.numerator, clip_tracks.rate.denominator],
            "frame": clip_tracks.frames,
            "time_s": clip_tracks.time_s,
            "focal_px": np.array(camera.focal_px),
            "center_px": np.array(camera.center_px),
            "distortion": np.array(camera.distortion, np.float64),
            **Event.stack(clip_tracks.events).to_arrays(),
            **arrays,
        },
    )


def find_lowest_foot(shot_fit: ShotFit, body: Body) -> float:
    """Return up . x of the lowest foot of a shot in the first camera's axes.

    0 where gravity is not known.
    """
    if shot_fit.ground is None:
        return 0.0
    lowest = 0.0
    motion = shot_fit.motion
    for track in shot_fit.people.values():
        feet = body.at(track.fit.params).keypoints[:, HALPE_FEET].double().numpy()
        if motion is not None:
            rows = np.searchsorted(motion.frames, track.frame).clip(0, len(motion.frames) - 1)
            feet = np.einsum("tij,tnj->tni", motion.first_from_camera[rows], feet)
        heights = (feet @ shot_fit.ground.up_cam)[track.fit.observed.numpy()]
        lowest = min(lowest, float(heights.min(initial=0.0)))
    return lowest


def person_rows(
    identity: int,
    shot: int,
    clip_tracks: SeenPeople,
    detections: Detections,
    track_fit: TrackFit,
    body: Body,
) -> Person:
    """Return one person's rows of `fit.npz`; frames in which the person is absent have none."""

    def rows_of(block: slice) -> Person:
        part = _rows_of_block(identity, shot, clip_tracks, detections, track_fit, block, body)
        return part.rows(track_fit.present[block])

    person = join_rows(map(rows_of, blocks(len(track_fit))), int(track_fit.present.sum()))
    covariance = track_fit.fit.shape_covariance
    if covariance is None:
        return person
    size = float(track_fit.fit.params.size)
    return replace(
        person,
        height_std_m=body.height_std_m(covariance) * size,
        shape_covariance=covariance.numpy(),
    )


def _rows_of_block(
    identity: int,
    shot: int,
    clip_tracks: SeenPeople,
    detections: Detections,
    track_fit: TrackFit,
    block: slice,
    body: Body,
) -> Person:
    """Return the rows of some frames of a track, which keeps memory small on long tracks."""
    track = track_fit.rows(block)
    fit = track.fit
    points = track.keypoints
    assert points.raw is not None
    hands = track.hands
    joint_observed = track.joint_observed
    if hands is not None:
        joint_observed = joint_observed.copy()
        joint_observed[:, _HANDS] |= hands.seen
    detected_rows = track_fit.index(detections.frame)
    within = slice(*np.searchsorted(detected_rows, (block.start, block.stop)).tolist())
    box_px = np.full((len(track), 4), np.nan, np.float32)
    box_px[detected_rows[within] - block.start] = detections.box_px[within]
    keypoints_px = np.where(track.detected[:, None, None], points.xy_px.numpy(), np.nan)
    frame_rows = np.searchsorted(clip_tracks.frames, track.frame).clip(
        0, len(clip_tracks.frames) - 1
    )
    no_contact = np.zeros((len(track), 4), np.float32)
    size = float(fit.params.size)
    return Person(
        identity=identity,
        frame=track.frame,
        time_s=clip_tracks.time_s[frame_rows],
        observed=fit.observed.numpy(),
        pose_rad=fit.params.pose.numpy(),
        translation_m=fit.params.translation.numpy(),
        shape=fit.params.shape.numpy(),
        reading=_or_nan(fit.params.reading, (READINGS,)),
        joints_m=body.at(fit.params).joints.numpy(),
        joint_std_mm=_lengths(fit.joint_std_mm, len(track)),
        joint_std_relative_mm=_lengths(fit.joint_std_relative_mm, len(track)),
        joint_observed=joint_observed,
        keypoint_observed=track.keypoint_observed,
        keypoints_px=keypoints_px.astype(np.float32),
        swapped=track.swapped,
        confidence=points.confidence.numpy(),
        presence=points.presence.numpy(),
        raw=points.raw.numpy(),
        used=fit.used.numpy(),
        reprojection_px=fit.reprojection_px.numpy(),
        box_px=box_px,
        converged=fit.converged.numpy(),
        stopped=fit.stopped,
        shot=shot,
        same_as=clip_tracks.same_as[identity],
        size=size,
        height_m=body.height_m(fit.params.shape) * size,
        contact=no_contact if track.contact is None else track.contact,
        joint_std_axes_mm=_or_nan(fit.joint_std_relative_mm, (len(track), 24, 3)),
        pose_std_deg=_or_nan(fit.rotation_std_deg, (len(track), 24)),
        worst_error_mm=_or_nan(track.worst_error_mm, (len(track),)),
        hand_pose_rad=None if hands is None else hands.pose_rad,
        hand_std_deg=None if hands is None else hands.std_deg,
        hand_seen=None if hands is None else hands.seen,
    )


def _lengths(std: torch.Tensor | None, count: int) -> np.ndarray:
    """Return the lengths [T, 24] of deviations [T, 24, 3]: the length of the error to expect."""
    return _or_nan(None if std is None else std.norm(dim=-1), (count, 24))


def _or_nan(values: torch.Tensor | np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    if values is None:
        return np.full(shape, np.nan, np.float32)
    return np.asarray(values, np.float32)
