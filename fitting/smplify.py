"""SMPLify as SPIN runs it, the baseline that fits are measured against: Adam on the translation and
global rotation first, then on the pose.

Stage 1 turns and moves the body until its hips and shoulders project onto the keypoints; stage 2
bends it at a fixed translation. Weights are in pixels of SPIN's 224-pixel crop, so in the full
frame every error is scaled by 224 / b, with b the side of the square around the person. Each frame
is fitted by itself and has a shape of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.kinematics import JOINT_COUNT, PARENTS
from fitting.body.rotations import rotation_matrices
from fitting.camera import Camera
from fitting.camera.pinhole import NEAREST_KEYPOINT_M
from fitting.keypoints.usable import check_body_keypoints, undistort_keypoints
from fitting.solver.terms.pose_prior import (
    GAUSSIAN,
    Mixture,
    PosePrior,
    prior_from_mixture,
    read_mixture,
)
from fitting.solver.terms.reprojection import project
from fitting.solver.terms.term import geman_mcclure
from pose2d.base.errors import UserError
from pose2d.types import Keypoints

Through = Literal["mesh", "bones", "smplx"]
# pose [N, 72] axis-angle, shape [N, S] -> points [N, K, 3], metres
PlacePoints = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class FitPoints:
    """K points as weighted sums of posed joints and vertices, and how each of them is used."""

    joint_part: Tensor  # [K, 24]
    vertex_part: Tensor  # [K, V]
    # Sets of hips and shoulders for the first stage, which takes the first set that is fully seen.
    torsos: tuple[tuple[int, ...], ...]
    ignored: tuple[int, ...]  # left out of the second stage


def coco17(body: Body) -> FitPoints:
    """Return the body's own COCO keypoints, used as SPIN uses them."""
    return FitPoints(
        body.keypoint_joints[:17], body.keypoint_vertices[:17], ((12, 11, 6, 5),), (11, 12)
    )


def make_placer(body: Body, points: FitPoints, through: Through) -> PlacePoints:
    """Return a function that poses the body and returns the points.

    "mesh" skins every vertex, as SMPLify does; "bones" only what the points need; "smplx" skins
    every vertex by the smplx package, which is what published SMPLify code calls.
    """
    attached = body.points(points.joint_part, points.vertex_part)
    size = 3 * len(body.v_template)
    # smplx always adds pose correctives, which SMPL's file has and other bodies may lack.
    correctives = body.v_template.new_zeros(9 * (JOINT_COUNT - 1), size)
    if body.posedirs is not None:
        correctives = body.posedirs.reshape(size, -1).T.contiguous()

    def place(pose: Tensor, shape: Tensor) -> Tensor:
        if through == "smplx":
            from smplx.lbs import lbs  # slow to import

            vertices, joints = lbs(
                shape,
                pose,
                body.v_template[None],
                body.shapedirs,
                correctives,
                body.J_regressor,
                torch.tensor(PARENTS),
                body.weights,
            )
        else:
            rotation = rotation_matrices(pose.unflatten(1, (-1, 3)))
            placement = body.placement(rotation, shape)
            feature = body.pose_feature(rotation)
            if through == "bones":
                return attached.place(placement, attached.moments(shape, feature))
            vertices = body.mesh(placement, shape, feature)
            joints = placement.joints
        return points.joint_part @ joints + points.vertex_part @ vertices

    return place


# Which of the 69 body pose parameters bend elbows and knees, and the sign that bends them
# backwards.
_HINGES = (52, 55, 9, 12)
_BACKWARDS = (1.0, -1.0, -1.0, -1.0)


@dataclass(frozen=True)
class SmplifySettings:
    """The settings of SMPLify, by default SPIN's. Weights are squared before use, as there."""

    iterations: int = 100  # of each of the two stages
    step: float = 1e-2  # Adam's learning rate
    # An error counts confidence ** conf_power: 2 as in SPIN, 1 by the confidence itself.
    conf_power: float = 2.0
    # Error at which a keypoint counts half of its square, in pixels of a 224-pixel crop.
    robust_px: float = 100.0
    pose_weight: float = 4.78
    bend_weight: float = 15.2
    shape_weight: float = 5.0
    depth_weight: float = 100.0  # first stage: holds the distance, per metre
    batch: int = 64  # frames that are fitted together; they do not influence each other

    def __post_init__(self) -> None:
        if self.iterations < 0 or self.batch < 1 or not self.step > 0 or not self.conf_power >= 0:
            raise UserError(
                "SMPLify needs iterations >= 0, batch >= 1, step > 0 and conf_power >= 0, got "
                f"{self.iterations}, {self.batch}, {self.step}, {self.conf_power}."
            )


def torso_reprojection(
    projected_px: Tensor,
    xy_px: Tensor,
    confidence: Tensor,
    pixel_scale: Tensor,
    torsos: tuple[tuple[int, ...], ...],
) -> Tensor:
    """Return the squared reprojection error [N] of hips and shoulders in crop pixels, unweighted.

    It is that of the first torso that is fully seen, else of the last, without the points that have
    confidence 0 and therefore no position.
    """
    squared = ((projected_px - xy_px) * pixel_scale[:, None, None]).square().sum(-1)
    *preferred, last = (list(torso) for torso in torsos)
    loss = (squared[:, last] * (confidence[:, last] > 0)).sum(1)
    for torso in reversed(preferred):
        is_visible = (confidence[:, torso] > 0).all(1)
        loss = torch.where(is_visible, squared[:, torso].sum(1), loss)
    return loss


def backward_bend(body_pose: Tensor) -> Tensor:
    """Return exp(angle)^2 of elbows and knees bent backwards, [N, 69] -> [N, 4]."""
    return (body_pose[:, list(_HINGES)] * body_pose.new_tensor(_BACKWARDS)).exp().square()


def max_mixture(mixture: Mixture) -> PosePrior:
    """Return SMPLify's pose prior over joints 1 to 23: of M Gaussians, the nearest counts.

    Its constant is c_m = -log(w_m / ((2 pi)^(69/2) sqrt(det_m) / min sqrt(det))), as in SMPLify.
    """
    prior = prior_from_mixture(
        replace(mixture, freedom=GAUSSIAN), np.ones(24), np.ones(69), range(1, JOINT_COUNT)
    )
    least = float(np.linalg.slogdet(mixture.covariances.astype(np.float64))[1].min()) / 2
    return replace(prior, constant=prior.constant - least)


@lru_cache(maxsize=4)
def load_max_mixture(path: str | Path | None = None) -> PosePrior:
    """Return SMPLify's own mixture (gmm_08.pkl), or the embedded one in the same form."""
    return max_mixture(read_mixture(path))


CROP_PX = 224
SHAPE_SIZE = 10  # shape directions that are fitted
BOX_MARGIN = 1.2  # SPIN's square is larger than the keypoints' extent by this
BOX_CONFIDENCE = 0.2  # keypoints that span it


@dataclass(frozen=True)
class Observations:
    """2D keypoints of N people, and their cameras."""

    xy_px: Tensor  # [N, K, 2]
    confidence: Tensor  # [N, K] 0: not seen
    focal_px: Tensor  # [N, 2]
    center_px: Tensor  # [N, 2]
    pixel_scale: Tensor  # [N] crop pixels per pixel: 1 in the crop, 224 / b in the full frame

    def frames(self, part: slice) -> "Observations":
        """Return some of the frames."""
        return Observations(*(value[part] for value in vars(self).values()))


@dataclass(frozen=True)
class SmplifyFit:
    """The bodies and losses of N frames after the last step."""

    params: BodyParams  # shape [N, S], one per frame
    loss: Tensor  # [N] the second stage's loss
    reprojection: Tensor  # [N, K] each keypoint's part of it


def smplify(
    keypoints: Keypoints,
    camera: Camera,
    body: Body,
    start: BodyParams,
    settings: SmplifySettings | None = None,
    *,
    prior: PosePrior | None = None,
    through: Through = "mesh",
) -> SmplifyFit:
    """Fit T frames in the full frame, from `start`.

    prior: `load_max_mixture(...)`; the embedded one if None. through: how keypoints are placed
    (`make_placer`), which does not change the result.
    """
    keypoints = undistort_keypoints(check_body_keypoints(keypoints), [camera])
    xy_px = keypoints.xy_px[:, :17]
    confidence = (keypoints.confidence * keypoints.presence)[:, :17]
    observations = Observations(
        xy_px,
        confidence,
        focal_px=xy_px.new_tensor(camera.focal_px).expand(len(xy_px), 2),
        center_px=xy_px.new_tensor(camera.center_px).expand(len(xy_px), 2),
        pixel_scale=CROP_PX / square_side(xy_px, confidence),
    )
    body = body.to(dtype=torch.float32)
    prior = prior or load_max_mixture()
    return fit_points(observations, body, coco17(body), start, prior, settings, through)


def fit_points(
    observations: Observations,
    body: Body,
    points: FitPoints,
    start: BodyParams,
    prior: PosePrior,
    settings: SmplifySettings | None = None,
    through: Through = "mesh",
) -> SmplifyFit:
    """Fit any set of points, such as SPIN's 49, in both stages, `settings.batch` at a time."""
    settings = settings or SmplifySettings()
    frames = len(observations.xy_px)
    _check_start(start, frames)
    size = min(SHAPE_SIZE, body.shape_size)
    shape = start.shape.detach().float()[..., :size]
    shape = torch.nn.functional.pad(shape, (0, size - shape.shape[-1])).expand(frames, size)
    pose = start.pose.detach().float().reshape(frames, -1)
    translation = start.translation.detach().float()
    place_full = make_placer(body, points, through)
    missing = body.shape_size - size

    def place(pose: Tensor, shape: Tensor) -> Tensor:
        """Place points with zeros for the shape directions beyond those that are fitted."""
        return place_full(pose, torch.nn.functional.pad(shape, (0, missing)))

    fits = []
    for first in range(0, frames, settings.batch):
        batch = slice(first, first + settings.batch)
        batch_start = BodyParams(pose[batch], shape[batch], translation[batch])
        batch_fit = _fit_batch(
            observations.frames(batch), place, points, batch_start, prior, settings
        )
        fits.append(batch_fit)
    return SmplifyFit(
        BodyParams.concat([fit.params for fit in fits]),
        torch.cat([fit.loss for fit in fits]),
        torch.cat([fit.reprojection for fit in fits]),
    )


def camera_loss(
    placed: Tensor,
    translation: Tensor,
    depth: Tensor,
    observations: Observations,
    points: FitPoints,
    settings: SmplifySettings,
) -> Tensor:
    """Return the loss [N] of stage 1: the torso's error, and how far the distance is from `depth`
    [N].
    """
    projected = project(
        placed + translation[:, None], observations.focal_px, observations.center_px
    )
    torso = torso_reprojection(
        projected,
        observations.xy_px,
        observations.confidence,
        observations.pixel_scale,
        points.torsos,
    )
    return torso + settings.depth_weight**2 * (translation[:, 2] - depth).square()


def body_loss(
    placed: Tensor,
    body_pose: Tensor,
    shape: Tensor,
    translation: Tensor,
    observations: Observations,
    points: FitPoints,
    prior: PosePrior,
    settings: SmplifySettings,
) -> tuple[Tensor, Tensor]:
    """Return the loss [N] of stage 2, and each keypoint's part of it [N, K]."""
    weight = observations.confidence**settings.conf_power * (observations.confidence > 0)
    weight[:, list(points.ignored)] = 0
    projected = project(
        placed + translation[:, None], observations.focal_px, observations.center_px
    )
    squared = (
        (projected - observations.xy_px) * observations.pixel_scale[:, None, None]
    ).square()  # crop pixels
    errors = weight * geman_mcclure(squared, settings.robust_px**2)[0].sum(-1)
    loss = errors.sum(1) + settings.pose_weight**2 * prior.energy(body_pose)[0]
    loss = (
        loss
        + settings.bend_weight**2 * backward_bend(body_pose).sum(1)
        + settings.shape_weight**2 * shape.square().sum(1)
    )
    return loss, errors


def square_side(xy_px: Tensor, confidence: Tensor) -> Tensor:
    """Return the side [T] of the square around each person's keypoints; 224 without keypoints."""
    confident = confidence > BOX_CONFIDENCE
    has_enough = (confident.sum(1) >= 2)[:, None]
    used = torch.where(has_enough, confident, confidence > 0)[..., None]
    low = torch.where(used, xy_px, torch.inf).amin(1)
    high = torch.where(used, xy_px, -torch.inf).amax(1)
    side = (BOX_MARGIN * (high - low).amax(1)).clamp(min=1)
    return torch.where(used.sum((1, 2)) >= 2, side, torch.full_like(side, float(CROP_PX)))


def _fit_batch(
    observations: Observations,
    place: PlacePoints,
    points: FitPoints,
    start: BodyParams,
    prior: PosePrior,
    settings: SmplifySettings,
) -> SmplifyFit:
    """Run both stages from poses [N, 72]."""
    root = start.pose[:, :3].clone()
    body_pose = start.pose[:, 3:].clone()
    shape = start.shape.clone()
    translation = start.translation.clone()
    depth = translation[:, 2].clone()

    def first_stage() -> Tensor:
        placed = place(torch.cat((root, body_pose), 1), shape)
        return camera_loss(placed, translation, depth, observations, points, settings)

    def second_stage() -> tuple[Tensor, Tensor]:
        placed = place(torch.cat((root, body_pose), 1), shape)
        return body_loss(
            placed, body_pose, shape, translation, observations, points, prior, settings
        )

    _descend([root, translation], first_stage, settings)
    _descend([body_pose, shape, root], lambda: second_stage()[0], settings)
    with torch.no_grad():
        loss, errors = second_stage()
    pose = torch.cat((root, body_pose), 1).unflatten(1, (-1, 3))
    return SmplifyFit(BodyParams(pose, shape, translation), loss, errors)


def _descend(unknowns: list[Tensor], loss: Callable[[], Tensor], settings: SmplifySettings) -> None:
    """Change the unknowns in place by Adam. The losses of frames are added, so frames do not
    influence each other.
    """
    for unknown in unknowns:
        unknown.requires_grad_(True)
    adam = torch.optim.Adam(unknowns, lr=settings.step, betas=(0.9, 0.999))
    with torch.enable_grad():
        for _ in range(settings.iterations):
            adam.zero_grad()
            loss().sum().backward()
            adam.step()
    for unknown in unknowns:
        unknown.requires_grad_(False)


def _check_start(start: BodyParams, frames: int) -> None:
    """Raise UserError where the start cannot be used."""
    if len(start) != frames:
        raise UserError(f"the start has {len(start)} frames; the keypoints have {frames}.")
    values = (start.pose, start.shape, start.translation)
    if not all(bool(torch.isfinite(value).all()) for value in values):
        raise UserError("the start has a number that is not finite (NaN or infinity).")
    behind = (start.translation[:, 2] < NEAREST_KEYPOINT_M).nonzero().flatten()
    if len(behind):
        raise UserError(
            f"the start puts the person behind the camera in frame {int(behind[0])}. Translations "
            "are metres in the camera frame: x right, y down, z forward, so z must be positive."
        )
