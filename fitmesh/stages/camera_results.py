"""`fit.npz` of each of several cameras: the same bodies in its own frame and at its own frames."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fitmesh.person import Person, View
from fitmesh.stages.camera_tracks import SyncedTracks
from fitmesh.stages.fit_rows import find_lowest_foot, person_rows, write_fit
from fitmesh.stages.scene import scene_arrays
from fitting.body import Body
from fitting.camera.focal import focal_from_user
from fitting.fits import TrackFit
from fitting.grid import blend_params
from fitting.keypoints.usable import check_body_keypoints
from fitting.keypoints.weights import PRESENT
from fitting.rig.rig_ground import LaboratoryFrame
from fitting.rig.views import move_params
from fitting.shot import ShotFit
from pose2d.base.caching import CacheKey


def write_camera_result(
    number: int,
    synced: SyncedTracks,
    shot_fit: ShotFit,
    laboratory: LaboratoryFrame | None,
    body: Body,
    key: CacheKey,
) -> None:
    """Write `fit.npz` of one camera, in the calibration's world where it is known."""
    camera_tracks = synced.cameras[number]
    camera = synced.rig.cameras[number].camera
    to_camera = synced.to_camera(number)
    fitted = []
    for identity, first in shot_fit.people.items():
        track = _track_in_camera(first, number, identity, synced, body) if number else first
        if track is not None:
            rows = camera_tracks.people[identity]
            rows = rows.rows(np.isin(rows.frame, track.frame))
            fitted.append(person_rows(identity, 0, camera_tracks.tracks, rows, track, body))
    lowest_m = find_lowest_foot(shot_fit, body)
    first_scene = replace(shot_fit, people={})
    ground = shot_fit.ground
    if ground is not None and number:
        up = to_camera[:3, :3] @ ground.up_cam
        height_m = ground.camera_height_m - float(up @ to_camera[:3, 3])
        ground = replace(ground, up_cam=up, camera_height_m=height_m)
    focal = focal_from_user(camera.mean_focal_px, camera.size)
    own_scene = replace(first_scene, camera=camera, ground=ground, focal=focal)
    tracks = replace(camera_tracks.tracks, events=[] if number else camera_tracks.tracks.events)
    frames = tracks.frames
    scene = dict(scene_arrays([own_scene], frames[:1], frames, [lowest_m]))
    first_arrays = scene_arrays([first_scene], frames[:1], frames, [lowest_m])
    # All cameras share the calibration's world, or the first camera's.
    if laboratory is not None:
        world = np.tile(laboratory.from_camera(synced.rig.cameras[number]), (len(frames), 1, 1))
    else:
        world = first_arrays["world_from_camera"] @ np.linalg.inv(to_camera)
    scene |= {"world_from_camera": world.astype(np.float32), "shot_camera": ["static"]}
    groups = Person.to_groups(fitted, {"directions": 10, "fitted": 10})
    arrays = {**scene, **groups, **_views_table(synced, number)}
    write_fit(camera_tracks.job, key, tracks, camera, arrays)


def _views_table(synced: SyncedTracks, number: int) -> Mapping[str, Any]:
    """Return the arrays of all cameras as seen from one of them, that one first."""
    views = []
    for other in (number, *(n for n in range(len(synced.rig)) if n != number)):
        placed = synced.rig.cameras[other]
        offset = synced.offsets[other]
        views.append(
            View(
                placed.name,
                synced.to_camera(other, number),
                np.array(placed.camera.focal_px),
                np.array(placed.camera.center_px),
                np.array(placed.camera.size),
                offset.seconds,
                offset.std_s if np.isfinite(offset.std_s) else np.nan,
            )
        )
    return View.stack(views).to_arrays()


def _track_in_camera(
    track: TrackFit, number: int, identity: int, synced: SyncedTracks, body: Body
) -> TrackFit | None:
    """Return the bodies at another camera's frames and in its frame, with its own keypoints.

    None where the camera did not record while the person was there.
    """
    own = synced.cameras[number].tracks
    camera = synced.rig.cameras[number].camera
    track_s = synced.cameras[0].tracks.times(track.frame) - synced.offsets[number].seconds
    inside = (own.time_s >= track_s[0]) & (own.time_s <= track_s[-1])
    frame = own.frames[inside]
    if not len(frame):
        return None
    place = np.interp(own.time_s[inside], track_s, np.arange(len(track_s)))
    before = place.astype(int)
    after = np.minimum(before + 1, len(track_s) - 1)
    share = torch.from_numpy(place - before).float()
    params = blend_params(track.fit.params.rows(before), track.fit.params.rows(after), share)
    params = move_params(params, synced.to_camera(number), body)
    person = synced.cameras[number].people[identity]
    rows = person.rows(np.isin(person.frame, frame))
    detected = np.isin(frame, person.frame)
    scattered = rows.points.scatter(np.searchsorted(frame, rows.frame), len(frame))
    keypoints = check_body_keypoints(scattered)
    used = torch.from_numpy(detected)[:, None] & (keypoints.presence >= PRESENT)
    error_px = (camera.project(body.at(params).keypoints) - keypoints.xy_px).norm(dim=-1)
    nearest = track.rows(place.round().astype(int))
    fit = replace(
        nearest.fit,
        params=params,
        used=used,
        reprojection_px=torch.where(used, error_px, torch.nan),
    )
    return replace(
        nearest,
        frame=frame,
        detected=detected,
        keypoints=keypoints,
        swapped=np.zeros((len(frame), 26), np.bool_),
        fit=fit,
    )
