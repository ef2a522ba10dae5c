"""One person in several cameras, on one grid of frames: keypoints at the same times, and where
their fit starts.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import torch
from scipy.ndimage import binary_closing, label
from scipy.spatial.transform import Rotation
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.camera import Camera, params_to_world
from fitting.fits import Grid, InitialGuess
from fitting.keypoints.observed import TooFewKeypoints, body_keypoints, reordered
from fitting.optimise import OtherView
from fitting.rig.meeting import (
    FAR,
    FEWEST,
    INDEPENDENT_PER_SECOND,
    Sight,
    neighbours,
    squared_misfit,
    triangulate,
)
from fitting.rig.rig import Rig
from fitting.scene.ground import GivenGround
from fitting.track import PreparedTrack, prepare_track
from pose2d.skeletons import HALPE26
from pose2d.types import Keypoints

FEWEST_POINTS = 6  # keypoints in two cameras from which a body is placed
FARTHEST_STD_M = 0.15  # of such a keypoint
LIMBS = (
    (11, 12, 13, 14, 15, 16, 20, 21, 22, 23, 24, 25),
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
)  # of Halpe's keypoints
# Sides are exchanged where squared misfits become less by so much for each keypoint, frame and
# camera. Less: somebody seen from the side, whose sides lie close to each other, is exchanged for
# nothing.
SIDES_GAIN = 0.75
MOTION = 0.4  # of keypoints in a second, as tangents: 1.6 m/s at 4 m
MOST_SIDES = 8  # cameras of which all ways are tried
GAP_FRAMES = 2  # between segments that two cameras see, one after the other: no absence
NECK = 18
PELVIS = 19
ANKLES = (15, 16)
FEET = (20, 21, 22, 23, 24, 25)
# who stands; a world axis that is up
STRAIGHT_COS = np.cos(np.radians(20))
GRAVITY_COS = np.cos(np.radians(8))
ON_FLOOR_M = 0.12  # feet on a floor at 0


def resampled(keypoints: Keypoints, time_s: np.ndarray, want_s: np.ndarray) -> Keypoints:
    """One person's keypoints at other times: between two frames that both show it, NaN and presence
    0 elsewhere.

    In between they are as uncertain as in the frame that is less sure.
    """
    before, after, share = neighbours(time_s, want_s)
    inside = torch.from_numpy(share >= 0)
    part = torch.from_numpy(share.clip(0)).float()
    sure = (keypoints.confidence * keypoints.presence).mean(1).numpy()
    unsure = keypoints.rows(np.where(sure[before] <= sure[after], before, after))
    xy_px = torch.lerp(
        keypoints.xy_px[before].float(), keypoints.xy_px[after].float(), part[:, None, None]
    )
    return replace(
        unsure,
        xy_px=xy_px.masked_fill(~inside[:, None, None], torch.nan),
        confidence=unsure.confidence * inside[:, None],
        presence=unsure.presence * inside[:, None],
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
) -> PreparedTrack:
    """Rows of all cameras at the same frames [T], without gaps: sides repaired in each camera,
    absences where no camera sees the person, and one guess. Raises TooFewKeypoints where none shows
    enough."""
    views = with_sides([OtherView(keypoints, camera, torch.eye(3), torch.zeros(3)), *others], fps)
    shown = []
    tracks = []
    for view in views:
        with suppress(TooFewKeypoints):
            track = prepare_track(
                view.keypoints, frame, view.camera, body, init, fps=fps, every=every
            )
            tracks.append(track)
            shown.append(replace(view, keypoints=track.keypoints))
    if not tracks:
        raise TooFewKeypoints("no camera shows enough confident keypoints of this person at once.")
    guess = _joined_guess(shown, tracks, body)
    there = np.max([track.grid.segment >= 0 for track in tracks], axis=0)
    if shown[0].rotation is views[0].rotation:
        base, *shown = tracks[0], *shown[1:]
    else:  # this camera does not show the person
        empty = body_keypoints(replace(keypoints, presence=torch.zeros_like(keypoints.presence)))
        nobody = np.zeros((len(frame), 26), np.bool_)
        base = PreparedTrack(Grid.over(frame, fps, every), nobody[:, 0], empty, nobody, guess)
    grid = replace(base.grid, segment=_segments(there))
    return replace(base, grid=grid, guess=guess, others=tuple(shown))


def with_sides(views: Sequence[OtherView], fps: float) -> list[OtherView]:
    """With left and right of limbs exchanged where rays meet better so: seen from the back, a
    network may take somebody for seen from the front, as surely as ever.

    For each limb, of all ways to exchange it in some of the cameras the one with the least squared
    misfits, over all frames (Viterbi): an exchange costs as much more as the camera that it calls
    wrong is confident, and in each camera keypoints go on from where they were in the frame before.
    """
    views = list(views)
    count = len(views)
    if not 2 <= count <= MOST_SIDES or any(view.keypoints.skeleton.size != 26 for view in views):
        return views
    frames = np.arange(len(views[0].keypoints), dtype=float)
    sights = [Sight.of(view.keypoints, frames, view.camera) for view in views]
    flip = np.asarray(HALPE26.flip_order)
    alike = max(1.0, fps / INDEPENDENT_PER_SECOND)
    ways = np.array(list(product((False, True), repeat=count)))  # [W, V]
    order = np.tile(np.arange(26), (count, len(frames), 1))
    # Of the whole person and time: of two cameras the same one is wrong about arms and legs.
    sure = np.array(
        [float((view.keypoints.confidence * view.keypoints.presence).mean()) for view in views]
    )
    for limb in map(list, LIMBS):
        cost = np.repeat(
            SIDES_GAIN * len(limb) * (count - 1) * (ways @ sure)[:, None], len(frames), 1
        )  # [W, T]
        jump = np.zeros((count, len(frames) - 1))  # of an exchange between two frames
        for exchanged, rows in ((False, np.array(limb)), (True, flip[limb])):
            for a, b in combinations(range(count), 2):
                rotation = (views[b].rotation @ views[a].rotation.mT).double().numpy()
                offset = (
                    views[b].offset_m.double().numpy()
                    - rotation @ views[a].offset_m.double().numpy()
                )
                base = sights[a].rays[:, limb], sights[a].sigma[:, limb]
                there = sights[b].rays[:, rows], sights[b].sigma[:, rows]
                missed = np.nan_to_num(squared_misfit(base, there, rotation, offset)).sum(1)
                cost += np.outer((ways[:, a] != ways[:, b]) == exchanged, missed)
            for number, sight in enumerate(sights):
                moved = np.square(sight.rays[1:, rows] - sight.rays[:-1, limb]).sum(-1)
                squared = moved / (2 * np.square(sight.sigma[:-1, limb]) + np.square(MOTION / fps))
                jump[number] += (1 if exchanged else -1) * np.nan_to_num(
                    np.minimum(squared, FAR)
                ).sum(1)
        best = ways[_cheapest(cost / alike, (ways[:, None] != ways) @ jump)].T  # [V, T]
        for number in range(count):
            order[number][np.ix_(best[number], limb)] = flip[limb]
    return [
        replace(v, keypoints=reordered(v.keypoints, rows))
        for v, rows in zip(views, order, strict=True)
    ]


def _cheapest(cost: np.ndarray, jump: np.ndarray) -> np.ndarray:
    """[T] of W states that cost so much [W, T], and as much as [W, W, T - 1] between frames, the
    cheapest path.
    """
    total = cost[:, 0]
    came = []
    for now, between in zip(cost.T[1:], np.moveaxis(jump, -1, 0), strict=True):
        through = total[:, None] + between
        came.append(through.argmin(0))
        total = through.min(0) + now
    path = [int(total.argmin())]
    for before in reversed(came):
        path.append(int(before[path[-1]]))
    return np.array(path[::-1])


def _segments(there: np.ndarray) -> np.ndarray:
    """[T] number of the run of frames in which somebody is seen, or -1; runs a frame or two apart
    are one.
    """
    padded = np.pad(there, GAP_FRAMES)
    return label(binary_closing(padded, np.ones(GAP_FRAMES + 1)))[0][GAP_FRAMES:-GAP_FRAMES] - 1


def _joined_guess(
    views: Sequence[OtherView], tracks: Sequence[PreparedTrack], body: Body
) -> InitialGuess:
    """In every frame that of the camera that shows most, placed and turned so that keypoints lie
    where rays meet.
    """
    shows = torch.stack(
        [(v.keypoints.confidence * v.keypoints.presence).mean(1).square() for v in views]
    )  # [V, T]
    guesses = []
    for view, track in zip(views, tracks, strict=True):
        back = np.eye(4)
        back[:3, :3] = view.rotation.double().numpy().T
        back[:3, 3] = -back[:3, :3] @ view.offset_m.double().numpy()
        guesses.append(replace(track.guess, params=moved(track.guess.params, back, body)))
    best = shows.argmax(0).numpy() * shows.shape[1] + np.arange(shows.shape[1])
    guess = InitialGuess.concat(guesses).rows(best)
    return replace(guess, params=_placed(guess.params, views, body))


def moved(params: BodyParams, matrix: np.ndarray, body: Body) -> BodyParams:
    """Bodies in another camera's frame, by [4, 4]."""
    return params_to_world(
        params, _rest_pelvis(params.shape, body), np.tile(matrix, (len(params), 1, 1))
    )


def _rest_pelvis(shape: Tensor, body: Body) -> Tensor:
    """[3] or [T, 3] where the pelvis is at rest."""
    return (
        body.rest_joints[0]
        + shape.to(body.dtype) @ body.rest_joint_shapedirs[0, :, : shape.shape[-1]].mT
    )


def points_of(views: Sequence[OtherView]) -> tuple[np.ndarray, np.ndarray]:
    """[T, 26, 3] where the cameras' rays meet, in the first camera's frame, and their deviations
    [T, 26]; NaN: none.
    """
    frames = np.arange(len(views[0].keypoints), dtype=float)
    sights = [Sight.of(view.keypoints, frames, view.camera) for view in views]
    return triangulate(
        np.stack([sight.rays for sight in sights]),
        np.stack([sight.sigma for sight in sights]),
        np.stack([view.rotation.double().numpy() for view in views]),
        np.stack([view.offset_m.double().numpy() for view in views]),
    )


def _placed(params: BodyParams, views: Sequence[OtherView], body: Body) -> BodyParams:
    """Turned and moved onto the points where rays meet (Kabsch), frame by frame where there are
    enough of them.
    """
    if len(views) < 2:
        return params
    points, std = points_of(views)
    pelvis = _rest_pelvis(params.shape, body).double().numpy()
    still = replace(params, translation=torch.zeros_like(params.translation))
    arms = body.at(still).keypoints.double().numpy() - pelvis[:, None]
    pose = params.pose.clone()
    translation = params.translation.clone()
    good = np.isfinite(std) & (std < FARTHEST_STD_M)
    for row in np.flatnonzero(good.sum(1) >= FEWEST_POINTS):
        own = arms[row, good[row]]
        at = points[row, good[row]]
        weight = 1 / np.square(std[row, good[row]] + 0.02)
        weight /= weight.sum()
        middle_own = weight @ own
        middle_at = weight @ at
        turn, _ = Rotation.align_vectors(at - middle_at, own - middle_own, weights=weight)
        root = turn * Rotation.from_rotvec(params.pose[row, 0].double().numpy())
        pose[row, 0] = torch.from_numpy(root.as_rotvec())
        translation[row] = torch.from_numpy(middle_at - turn.apply(middle_own) - pelvis[row])
    return replace(params, pose=pose, translation=translation)


def stated_ground(rig: Rig, people: Sequence[Sequence[OtherView]]) -> GivenGround:
    """Gravity and floor of a calibration whose world has an axis along which people stand, and its
    floor at 0; what it does not state stays open. people: what the cameras show of each, in the
    first camera's frame."""
    base = rig.cameras[0]
    shown = [points_of(views)[0] for views in people if len(views) > 1]
    if not shown or rig.source == "people":
        return GivenGround()
    points = (np.concatenate(shown) - base.translation_m) @ base.rotation  # in the world
    trunk = points[:, NECK] - points[:, PELVIS]
    legs = points[:, PELVIS] - points[:, ANKLES].mean(1)
    with np.errstate(invalid="ignore"):
        upright = (trunk * legs).sum(-1) > STRAIGHT_COS * np.linalg.norm(
            trunk, axis=-1
        ) * np.linalg.norm(legs, axis=-1)
    if upright.sum() < FEWEST / 3:
        return GivenGround()
    axis = np.nanmedian((trunk + legs)[upright], axis=0)
    along = int(np.abs(axis).argmax())
    if abs(axis[along]) < GRAVITY_COS * np.linalg.norm(axis):
        return GivenGround()
    up = np.sign(axis[along]) * np.eye(3)[along]
    x, y, z = (base.rotation @ up).tolist()
    feet = points[:, FEET] @ up
    lowest = np.nanquantile(feet, 0.05) if np.isfinite(feet).any() else np.inf
    height = float(base.position_m @ up)
    return GivenGround((x, y, z), height if abs(lowest) < ON_FLOOR_M and height > 0 else None)
