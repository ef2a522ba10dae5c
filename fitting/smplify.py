"""SMPLify as SPIN runs it: Adam on the place first, then on the pose. The baseline that fits are
measured against.

Stage 1 turns and moves the whole body until hips and shoulders fall on theirs; stage 2 bends it,
the place held. Weights are in pixels of SPIN's 224-pixel crop, so in the full frame every error is
scaled by 224 / b, with b the side of the square around the person. Each frame is fitted by itself
and has a shape of its own."""

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
Place = Callable[
    [Tensor, Tensor], Tensor
]  # pose [N, 72] axis-angle, shape [N, S] -> points [N, K, 3], metres


@dataclass(frozen=True)
class FitPoints:
    """K points as weighted sums of posed joints and vertices, and the part each plays."""

    joint_part: Tensor  # [K, 24]
    vertex_part: Tensor  # [K, V]
    torsos: tuple[
        tuple[int, ...], ...
    ]  # hips and shoulders, for the first stage; the first set that is seen whole
    ignored: tuple[int, ...]  # left out of the second stage


def coco17(body: Body) -> FitPoints:
    """The body's own COCO keypoints, in the parts that SPIN gives their slots."""
    return FitPoints(
        body.keypoint_joints[:17], body.keypoint_vertices[:17], ((12, 11, 6, 5),), (11, 12)
    )


def placer(body: Body, points: FitPoints, through: Through) -> Place:
    """How to place the points: "mesh" skins every vertex, as SMPLify does; "bones" only what the
    points need. "smplx" skins every vertex by the smplx package, which is what published SMPLify
    code calls."""
    attached = body.points(points.joint_part, points.vertex_part)
    size = 3 * len(body.v_template)
    # SMPL's file has correctives, so smplx always adds them
    correctives = body.v_template.new_zeros(9 * (JOINT_COUNT - 1), size)
    if body.posedirs is not None:
        correctives = body.posedirs.reshape(size, -1).T.contiguous()

    def place(pose: Tensor, shape: Tensor) -> Tensor:
        if through == "smplx":
            from smplx.lbs import lbs  # slow to import

            template = body.v_template[None]
            tree = torch.tensor(PARENTS)
            vertices, joints = lbs(
                shape,
                pose,
                template,
                body.shapedirs,
                correctives,
                body.J_regressor,
                tree,
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


# Numbers of the 69 that bend elbows and knees, and the sign in which they bend backwards.
_HINGES = (52, 55, 9, 12)
_BACKWARDS = (1.0, -1.0, -1.0, -1.0)


@dataclass(frozen=True)
class SmplifySettings:
    """SPIN's numbers. Weights are squared before use, as there."""

    iterations: int = 100  # of each of the two stages
    step: float = 1e-2  # Adam's learning rate
    conf_power: float = (
        2.0  # an error counts confidence ** conf_power: 2 as in SPIN, 1 by the confidence itself
    )
    robust_px: float = (
        100.0  # error at which a keypoint counts half of its square, pixels of a 224-pixel crop
    )
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
    """Squared crop pixels of hips and shoulders, not weighted, [N]: of the first torso seen whole,
    else the last. Of the last, points with confidence 0 are left out: they have no position."""
    squared = ((projected_px - xy_px) * pixel_scale[:, None, None]).square().sum(-1)
    *preferred, last = (list(torso) for torso in torsos)
    loss = (squared[:, last] * (confidence[:, last] > 0)).sum(1)
    for torso in reversed(preferred):
        whole = (confidence[:, torso] > 0).all(1)
        loss = torch.where(whole, squared[:, torso].sum(1), loss)
    return loss


def bend(body_pose: Tensor) -> Tensor:
    """exp(angle)^2 of elbows and knees bent backwards, [N, 69] -> [N, 4]."""
    return (body_pose[:, list(_HINGES)] * body_pose.new_tensor(_BACKWARDS)).exp().square()


def max_mixture(mixture: Mixture) -> PosePrior:
    """SMPLify's pose prior over joints 1 to 23: of M Gaussians, the nearest counts. c_m = -log(w_m
    / ((2 pi)^(69/2) sqrt(det_m) / min sqrt(det))), as SMPLify scales it."""
    prior = prior_from_mixture(
        replace(mixture, freedom=GAUSSIAN), np.ones(24), np.ones(69), range(1, JOINT_COUNT)
    )
    least = float(np.linalg.slogdet(mixture.covariances.astype(np.float64))[1].min()) / 2
    return replace(prior, constant=prior.constant - least)


@lru_cache(maxsize=4)
def load_max_mixture(path: str | Path | None = None) -> PosePrior:
    """SMPLify's own mixture (gmm_08.pkl), or the embedded one in the same form."""
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
        return Observations(*(value[part] for value in vars(self).values()))


@dataclass(frozen=True)
class SmplifyFit:
    """Where Adam ended, for each of N frames."""

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
    """Fit T frames in the full frame, from `start`. prior: `load_max_mixture(...)`; the embedded
    one if None. through: "mesh" skins all vertices at every step, as the original does; "smplx"
    does so by the very package that the original calls; "bones" places the keypoints alone. The
    result is the same."""
    keypoints = undistort_keypoints(check_body_keypoints(keypoints), [camera])
    xy_px = keypoints.xy_px[:, :17]
    confidence = (keypoints.confidence * keypoints.presence)[:, :17]
    focal, center = (
        xy_px.new_tensor(pair).expand(len(xy_px), 2) for pair in (camera.focal_px, camera.center_px)
    )
    seen = Observations(xy_px, confidence, focal, center, CROP_PX / square_side(xy_px, confidence))
    body = body.to(dtype=torch.float32)
    return fit_points(
        seen, body, coco17(body), start, prior or load_max_mixture(), settings, through
    )


def fit_points(
    seen: Observations,
    body: Body,
    points: FitPoints,
    start: BodyParams,
    prior: PosePrior,
    settings: SmplifySettings | None = None,
    through: Through = "mesh",
) -> SmplifyFit:
    """The two stages for any set of points, such as SPIN's 49, `settings.batch` at a time."""
    settings = settings or SmplifySettings()
    frames = len(seen.xy_px)
    _check_start(start, frames)
    size = min(SHAPE_SIZE, body.shape_size)
    shape = start.shape.detach().float()[..., :size]
    shape = torch.nn.functional.pad(shape, (0, size - shape.shape[-1])).expand(frames, size)
    pose = start.pose.detach().float().reshape(frames, -1)
    translation = start.translation.detach().float()
    place = placer(body, points, through)
    missing = body.shape_size - size
    if missing:  # shape directions beyond those that are fitted stay zero
        whole = place
        place = lambda pose, shape: whole(pose, torch.nn.functional.pad(shape, (0, missing)))  # noqa: E731
    parts = [
        _two_stages(
            seen.frames(part),
            place,
            points,
            pose[part],
            shape[part],
            translation[part],
            prior,
            settings,
        )
        for part in (
            slice(first, first + settings.batch) for first in range(0, frames, settings.batch)
        )
    ]
    loss, errors = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("loss", "reprojection")
    )
    return SmplifyFit(BodyParams.concat([part.params for part in parts]), loss, errors)


def camera_loss(
    placed: Tensor,
    translation: Tensor,
    depth: Tensor,
    seen: Observations,
    points: FitPoints,
    settings: SmplifySettings,
) -> Tensor:
    """Stage 1, [N]: the torso's error, and the distance held near `depth` [N]."""
    projected = project(placed + translation[:, None], seen.focal_px, seen.center_px)
    torso = torso_reprojection(
        projected, seen.xy_px, seen.confidence, seen.pixel_scale, points.torsos
    )
    return torso + settings.depth_weight**2 * (translation[:, 2] - depth).square()


def body_loss(
    placed: Tensor,
    body_pose: Tensor,
    shape: Tensor,
    translation: Tensor,
    seen: Observations,
    points: FitPoints,
    prior: PosePrior,
    settings: SmplifySettings,
) -> tuple[Tensor, Tensor]:
    """Stage 2: the loss [N], and each keypoint's part of it [N, K]."""
    weight = seen.confidence**settings.conf_power * (seen.confidence > 0)
    weight[:, list(points.ignored)] = 0
    projected = project(placed + translation[:, None], seen.focal_px, seen.center_px)
    squared = ((projected - seen.xy_px) * seen.pixel_scale[:, None, None]).square()  # crop pixels
    errors = weight * geman_mcclure(squared, settings.robust_px**2)[0].sum(-1)
    loss = errors.sum(1) + settings.pose_weight**2 * prior.energy(body_pose)[0]
    loss = (
        loss
        + settings.bend_weight**2 * bend(body_pose).sum(1)
        + settings.shape_weight**2 * shape.square().sum(1)
    )
    return loss, errors


def square_side(xy_px: Tensor, confidence: Tensor) -> Tensor:
    """Side [T] of the square around each person's keypoints; a frame without any has side 224."""
    sure = confidence > BOX_CONFIDENCE
    used = torch.where((sure.sum(1) >= 2)[:, None], sure, confidence > 0)[..., None]
    low = torch.where(used, xy_px, torch.inf).amin(1)
    high = torch.where(used, xy_px, -torch.inf).amax(1)
    side = (BOX_MARGIN * (high - low).amax(1)).clamp(min=1)
    return torch.where(used.sum((1, 2)) >= 2, side, torch.full_like(side, float(CROP_PX)))


def _two_stages(
    seen: Observations,
    place: Place,
    points: FitPoints,
    pose: Tensor,
    shape: Tensor,
    translation: Tensor,
    prior: PosePrior,
    settings: SmplifySettings,
) -> SmplifyFit:
    root = pose[:, :3].clone()
    bent = pose[:, 3:].clone()
    shape = shape.clone()
    translation = translation.clone()
    depth = translation[:, 2].clone()

    def first_stage() -> Tensor:
        return camera_loss(
            place(torch.cat((root, bent), 1), shape), translation, depth, seen, points, settings
        )

    def second_stage() -> tuple[Tensor, Tensor]:
        placed = place(torch.cat((root, bent), 1), shape)
        return body_loss(placed, bent, shape, translation, seen, points, prior, settings)

    _descend([root, translation], first_stage, settings)
    _descend([bent, shape, root], lambda: second_stage()[0], settings)
    with torch.no_grad():
        loss, errors = second_stage()
    return SmplifyFit(
        BodyParams(torch.cat((root, bent), 1).unflatten(1, (-1, 3)), shape, translation),
        loss,
        errors,
    )


def _descend(unknowns: list[Tensor], loss: Callable[[], Tensor], settings: SmplifySettings) -> None:
    """Adam changes the unknowns in place. The frames' losses are added, which leaves each frame on
    its own.
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
    if len(start) != frames:
        raise UserError(f"the start has {len(start)} frames; the keypoints have {frames}.")
    if not all(
        bool(torch.isfinite(value).all()) for value in (start.pose, start.shape, start.translation)
    ):
        raise UserError("the start has a number that is not finite (NaN or infinity).")
    behind = (start.translation[:, 2] < NEAREST_KEYPOINT_M).nonzero().flatten()
    if len(behind):
        raise UserError(
            f"the start puts the person behind the camera in frame {int(behind[0])}. Translations are metres in the "
            "camera frame: x right, y down, z forward, so z must be positive."
        )
