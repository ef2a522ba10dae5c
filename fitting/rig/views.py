"""One person in several cameras on one grid of frames: keypoints at the same times, and where the
fit starts.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from scipy.ndimage import binary_closing, label
from scipy.spatial.transform import Rotation
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.camera import Camera
from fitting.camera.world import params_to_world
from fitting.fits import InitialGuess, OtherView
from fitting.grid import Grid
from fitting.keypoints.usable import TooFewKeypoints, check_body_keypoints
from fitting.rig.sides import exchange_sides
from fitting.rig.sights import Sight, find_neighbours
from fitting.rig.triangulation import triangulate
from fitting.track import Track, prepare_track
from pose2d.types import Keypoints

FEWEST_POINTS = 6  # triangulated keypoints from which a body is placed
FARTHEST_STD_M = 0.15  # of such a keypoint
_LEAST_STD_M = 0.02  # added to it, so that no keypoint dominates
GAP_FRAMES = 2  # between segments that two cameras see one after the other: no absence


def resample_keypoints(keypoints: Keypoints, time_s: np.ndarray, want_s: np.ndarray) -> Keypoints:
    """Return one person's keypoints at other times.

    They are interpolated between two frames that both show the person, and as uncertain as the less
    confident of the two; elsewhere they are NaN with presence 0.
    """
    before, after, share = find_neighbours(time_s, want_s)
    inside = torch.from_numpy(share >= 0)
    weight = torch.from_numpy(share.clip(0)).float()
    confidence = (keypoints.confidence * keypoints.presence).mean(1).numpy()
    less_confident = np.where(confidence[before] <= confidence[after], before, after)
    resampled = keypoints.rows(less_confident)
    xy_px = torch.lerp(
        keypoints.xy_px[before].float(), keypoints.xy_px[after].float(), weight[:, None, None]
    )
    return replace(
        resampled,
        xy_px=xy_px.masked_fill(~inside[:, None, None], torch.nan),
        confidence=resampled.confidence * inside[:, None],
        presence=resampled.presence * inside[:, None],
    )


def prepare_views(
    keypoints: Keypoints,
    frame: np.ndarray,
    camera: Camera,
    others: Sequence[OtherView],
    body: Body,
    init: str,
    *,
    fps: float,
    every: int,
) -> Track:
    """Return one person's rows of all cameras at the same frames [T], ready to be fitted.

    Sides are repaired in each camera, the person is absent where no camera shows it, and all
    cameras have one initial guess. Raises TooFewKeypoints where no camera shows enough.
    """
    first = OtherView(keypoints, camera, torch.eye(3), torch.zeros(3))
    views = exchange_sides([first, *others], fps)
    usable_views = []
    tracks = []
    for view in views:
        with suppress(TooFewKeypoints):
            track = prepare_track(
                view.keypoints, frame, view.camera, body, init, fps=fps, every=every
            )
            tracks.append(track)
            usable_views.append(replace(view, keypoints=track.keypoints))
    if not tracks:
        raise TooFewKeypoints("no camera shows enough confident keypoints of this person at once.")
    guess = _join_guesses(usable_views, tracks, body)
    is_visible = np.max([track.grid.segment >= 0 for track in tracks], axis=0)
    if usable_views[0].rotation is views[0].rotation:
        base = tracks[0]
        other_views = usable_views[1:]
    else:  # the first camera does not show the person
        absent = replace(keypoints, presence=torch.zeros_like(keypoints.presence))
        unused = np.zeros((len(frame), 26), np.bool_)
        grid = Grid.over(frame, fps, every)
        base = Track(grid, unused[:, 0], check_body_keypoints(absent), unused, guess)
        other_views = usable_views
    grid = replace(base.grid, segment=_number_segments(is_visible))
    return replace(base, grid=grid, guess=guess, other_views=tuple(other_views))


def _number_segments(is_visible: np.ndarray) -> np.ndarray:
    """Return the number [T] of the run of visible frames, or -1; small gaps do not divide runs."""
    padded = np.pad(is_visible, GAP_FRAMES)
    closed = binary_closing(padded, np.ones(GAP_FRAMES + 1))
    return label(closed)[0][GAP_FRAMES:-GAP_FRAMES] - 1


def _join_guesses(views: Sequence[OtherView], tracks: Sequence[Track], body: Body) -> InitialGuess:
    """Return in every frame the guess of the most confident camera, moved to where rays meet."""
    confidence = torch.stack(
        [(v.keypoints.confidence * v.keypoints.presence).mean(1).square() for v in views]
    )  # [V, T]
    guesses = []
    for view, track in zip(views, tracks, strict=True):
        first_from_camera = np.eye(4)
        first_from_camera[:3, :3] = view.rotation.double().numpy().T
        first_from_camera[:3, 3] = -first_from_camera[:3, :3] @ view.offset_m.double().numpy()
        params = move_params(track.guess.params, first_from_camera, body)
        guesses.append(replace(track.guess, params=params))
    frames = confidence.shape[1]
    best_rows = confidence.argmax(0).numpy() * frames + np.arange(frames)
    guess = InitialGuess.concat(guesses).rows(best_rows)
    return replace(guess, params=_place_on_points(guess.params, views, body))


def move_params(params: BodyParams, matrix: np.ndarray, body: Body) -> BodyParams:
    """Return bodies in another frame, by its transformation [4, 4]."""
    pelvis = _rest_pelvis(params.shape, body)
    return params_to_world(params, pelvis, np.tile(matrix, (len(params), 1, 1)))


def _rest_pelvis(shape: Tensor, body: Body) -> Tensor:
    """Return the pelvis [3] or [T, 3] of the body at rest."""
    directions = body.rest_joint_shapedirs[0, :, : shape.shape[-1]]
    return body.rest_joints[0] + shape.to(body.dtype) @ directions.mT


def triangulate_views(views: Sequence[OtherView]) -> tuple[np.ndarray, np.ndarray]:
    """Return the points [T, 26, 3] where the cameras' rays meet, and their deviations [T, 26].

    Points are in the first camera's frame; NaN: fewer than two cameras see the keypoint.
    """
    frames = np.arange(len(views[0].keypoints), dtype=float)
    sights = [Sight.of(view.keypoints, frames, view.camera) for view in views]
    return triangulate(
        np.stack([sight.rays for sight in sights]),
        np.stack([sight.sigma for sight in sights]),
        np.stack([view.rotation.double().numpy() for view in views]),
        np.stack([view.offset_m.double().numpy() for view in views]),
    )


def _place_on_points(params: BodyParams, views: Sequence[OtherView], body: Body) -> BodyParams:
    """Return bodies turned and moved onto the triangulated points (Kabsch), frame by frame.

    Frames with too few points stay as they are.
    """
    if len(views) < 2:
        return params
    points, std = triangulate_views(views)
    pelvis = _rest_pelvis(params.shape, body).double().numpy()
    at_origin = replace(params, translation=torch.zeros_like(params.translation))
    model_points = body.at(at_origin).keypoints.double().numpy() - pelvis[:, None]
    pose = params.pose.clone()
    translation = params.translation.clone()
    usable = np.isfinite(std) & (std < FARTHEST_STD_M)
    for row in np.flatnonzero(usable.sum(1) >= FEWEST_POINTS):
        source = model_points[row, usable[row]]
        target = points[row, usable[row]]
        weight = 1 / np.square(std[row, usable[row]] + _LEAST_STD_M)
        weight /= weight.sum()
        source_mean = weight @ source
        target_mean = weight @ target
        turn, _ = Rotation.align_vectors(target - target_mean, source - source_mean, weights=weight)
        root = turn * Rotation.from_rotvec(params.pose[row, 0].double().numpy())
        pose[row, 0] = torch.from_numpy(root.as_rotvec())
        moved = target_mean - turn.apply(source_mean) - pelvis[row]
        translation[row] = torch.from_numpy(moved)
    return replace(params, pose=pose, translation=translation)
