"""SMPLify as SPIN runs it: Adam on the place first, then on the pose. The baseline that fits are measured against.

Stage 1 turns and moves the whole body until hips and shoulders fall on theirs; stage 2 bends it, the place held.
Weights are in pixels of SPIN's 224-pixel crop, so in the full frame every error is scaled by 224 / b, with b the
side of the square around the person. Each frame is fitted by itself and has a shape of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.camera import Camera
from fitting.camera.crop_camera import SPIN_CROP, crop_to_full, full_to_crop
from fitting.keypoints.observed import body_keypoints, undistorted
from fitting.smplify.losses import (
    MaxMixture,
    SmplifySettings,
    bend,
    load_max_mixture,
    reprojection,
    torso_reprojection,
)
from fitting.smplify.points import FitPoints, Place, Through, coco17, placer
from fitting.solver.residuals import NEAR_M, project
from pose2d.base.errors import UserError
from pose2d.types import Keypoints

CROP_PX = 224
SHAPE_SIZE = 10  # shape directions that are fitted
BOX_MARGIN = 1.2  # SPIN's square is larger than the keypoints' extent by this
BOX_CONFIDENCE = 0.2  # keypoints that span it


@dataclass(frozen=True)
class Sight:
    """What is seen of N people, and by which camera."""

    xy_px: Tensor  # [N, K, 2]
    confidence: Tensor  # [N, K] 0: not seen
    focal_px: Tensor  # [N, 2]
    center_px: Tensor  # [N, 2]
    pixel_scale: Tensor  # [N] crop pixels per pixel: 1 in the crop, 224 / b in the full frame

    def frames(self, part: slice) -> "Sight":
        return Sight(*(value[part] for value in vars(self).values()))


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
    prior: MaxMixture | None = None,
    box_side_px: Tensor | None = None,
    through: Through = "mesh",
) -> SmplifyFit:
    """Fit T frames in the full frame, from `start`.

    prior: `load_max_mixture(...)`; the embedded one if None. box_side_px: [T] the side b of the square around the
    person; from the keypoints if None. through: "mesh" skins all vertices at every step, as the original does;
    "smplx" does so by the very package that the original calls; "bones" places the keypoints alone. The result is
    the same.
    """
    xy_px, confidence, _, around = _seen(keypoints, camera)
    frames = len(xy_px)
    side = around if box_side_px is None else box_side_px.to(confidence)
    if tuple(side.shape) != (frames,) or not bool((side > 0).all()):
        raise UserError(
            f"box_side_px must be {frames} positive numbers of pixels, one per frame, got {list(side.shape)}."
        )
    sight = _sight(xy_px, confidence, camera, CROP_PX / side)
    body = body.to(dtype=torch.float32)
    return fit_points(sight, body, coco17(body), start, prior or load_max_mixture(), settings, through)


def smplify_crop(
    keypoints: Keypoints,
    camera: Camera,
    body: Body,
    start: BodyParams,
    settings: SmplifySettings | None = None,
    *,
    prior: MaxMixture | None = None,
    through: Through = "mesh",
) -> SmplifyFit:
    """The same as SPIN does it: in a crop around each person, by a camera of focal length 5000 that sees only that.

    `start` and the answer are in the full frame; they go into the crop and back by `fitting.camera.crop_camera`.
    """
    xy_px, confidence, center, side = _seen(keypoints, camera)
    middle = torch.full_like(center, CROP_PX / 2)
    whole = torch.full_like(side, float(CROP_PX))
    in_crop = (xy_px - center[:, None]) * (CROP_PX / side)[:, None, None] + CROP_PX / 2
    sight = _sight(in_crop, confidence, SPIN_CROP, torch.ones_like(side))
    _check_start(start, len(side))
    near = crop_to_full(
        full_to_crop(start.translation.detach().float(), center, side, camera), middle, whole, SPIN_CROP
    )
    body = body.to(dtype=torch.float32)
    start = replace(start, translation=near)
    fit = fit_points(sight, body, coco17(body), start, prior or load_max_mixture(), settings, through)
    back = crop_to_full(full_to_crop(fit.params.translation, middle, whole, SPIN_CROP), center, side, camera)
    return replace(fit, params=replace(fit.params, translation=back))


def fit_points(
    sight: Sight,
    body: Body,
    points: FitPoints,
    start: BodyParams,
    prior: MaxMixture,
    settings: SmplifySettings | None = None,
    through: Through = "mesh",
) -> SmplifyFit:
    """The two stages for any set of points, such as SPIN's 49, `settings.batch` at a time."""
    settings = settings or SmplifySettings()
    frames = len(sight.xy_px)
    _check_start(start, frames)
    size = min(SHAPE_SIZE, body.shape_size)
    shape = start.shape.detach().float()[..., :size]
    shape = torch.nn.functional.pad(shape, (0, size - shape.shape[-1])).expand(frames, size)
    pose, translation = start.pose.detach().float().reshape(frames, -1), start.translation.detach().float()
    place = _padded(placer(body, points, through), body.shape_size - size)
    parts = [
        _two_stages(sight.frames(part), place, points, pose[part], shape[part], translation[part], prior, settings)
        for part in (slice(first, first + settings.batch) for first in range(0, frames, settings.batch))
    ]
    joined = BodyParams(
        torch.cat([part.params.pose for part in parts]),
        torch.cat([part.params.shape for part in parts]),
        torch.cat([part.params.translation for part in parts]),
    )
    return SmplifyFit(
        joined, torch.cat([part.loss for part in parts]), torch.cat([part.reprojection for part in parts])
    )


def camera_loss(
    placed: Tensor, translation: Tensor, depth: Tensor, sight: Sight, points: FitPoints, settings: SmplifySettings
) -> Tensor:
    """Stage 1, [N]: the torso's error, and the distance held near `depth` [N]."""
    projected = project(placed + translation[:, None], sight.focal_px, sight.center_px)
    torso = torso_reprojection(projected, sight.xy_px, sight.confidence, sight.pixel_scale, points.torsos)
    return torso + settings.depth_weight**2 * (translation[:, 2] - depth).square()


def body_loss(
    placed: Tensor,
    body_pose: Tensor,
    shape: Tensor,
    translation: Tensor,
    sight: Sight,
    points: FitPoints,
    prior: MaxMixture,
    settings: SmplifySettings,
) -> tuple[Tensor, Tensor]:
    """Stage 2: the loss [N], and each keypoint's part of it [N, K]."""
    weight = sight.confidence**settings.conf_power * (sight.confidence > 0)
    weight[:, list(points.ignored)] = 0
    projected = project(placed + translation[:, None], sight.focal_px, sight.center_px)
    errors = reprojection(projected, sight.xy_px, weight, sight.pixel_scale, settings.robust_px)
    loss = (
        errors.sum(1)
        + settings.pose_weight**2 * prior.energy(body_pose)
        + settings.bend_weight**2 * bend(body_pose).sum(1)
        + settings.shape_weight**2 * shape.square().sum(1)
    )
    return loss, errors


def square_around(xy_px: Tensor, confidence: Tensor) -> tuple[Tensor, Tensor]:
    """Centre [T, 2] and side [T] of the square around each person's keypoints; a frame without any has side 224."""
    sure = confidence > BOX_CONFIDENCE
    used = torch.where((sure.sum(1) >= 2)[:, None], sure, confidence > 0)[..., None]
    low, high = torch.where(used, xy_px, torch.inf).amin(1), torch.where(used, xy_px, -torch.inf).amax(1)
    side = BOX_MARGIN * (high - low).amax(1)
    usable = used.sum((1, 2)) >= 2
    center = torch.where(usable[:, None], (low + high) / 2, torch.zeros_like(low))
    return center, torch.where(usable, side.clamp(min=1), torch.full_like(side, float(CROP_PX)))


def _seen(keypoints: Keypoints, camera: Camera) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pixels of a perfect lens [T, 17, 2], how far to trust them [T, 17], and the square around: centre and side."""
    known = undistorted(body_keypoints(keypoints), [camera])
    confidence = known.confidence * known.presence
    return known.xy_px, confidence, *square_around(known.xy_px, confidence)


def _two_stages(
    sight: Sight,
    place: Place,
    points: FitPoints,
    pose: Tensor,
    shape: Tensor,
    translation: Tensor,
    prior: MaxMixture,
    settings: SmplifySettings,
) -> SmplifyFit:
    root, bent, shape, translation = pose[:, :3].clone(), pose[:, 3:].clone(), shape.clone(), translation.clone()
    depth = translation[:, 2].clone()

    def first_stage() -> Tensor:
        return camera_loss(place(torch.cat((root, bent), 1), shape), translation, depth, sight, points, settings)

    def second_stage() -> tuple[Tensor, Tensor]:
        placed = place(torch.cat((root, bent), 1), shape)
        return body_loss(placed, bent, shape, translation, sight, points, prior, settings)

    _descend([root, translation], first_stage, settings)
    _descend([bent, shape, root], lambda: second_stage()[0], settings)
    with torch.no_grad():
        loss, errors = second_stage()
    return SmplifyFit(BodyParams(torch.cat((root, bent), 1).unflatten(1, (-1, 3)), shape, translation), loss, errors)


def _descend(unknowns: list[Tensor], loss: Callable[[], Tensor], settings: SmplifySettings) -> None:
    """Adam changes the unknowns in place. The frames' losses are added, which leaves each frame on its own."""
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


def _padded(place: Place, missing: int) -> Place:
    """For a body with more shape directions than are fitted: the others stay zero."""
    return (lambda pose, shape: place(pose, torch.nn.functional.pad(shape, (0, missing)))) if missing else place


def _sight(xy_px: Tensor, confidence: Tensor, camera: Camera, pixel_scale: Tensor) -> Sight:
    frames = len(xy_px)
    focal, center = (xy_px.new_tensor(pair).expand(frames, 2) for pair in (camera.focal_px, camera.center_px))
    return Sight(xy_px, confidence, focal, center, pixel_scale)


def _check_start(start: BodyParams, frames: int) -> None:
    sizes = [list(value.shape) for value in (start.pose, start.shape, start.translation)]
    fits = (
        sizes[0] in ([frames, 24, 3], [frames, 72])
        and sizes[2] == [frames, 3]
        and (len(sizes[1]) == 1 or (len(sizes[1]) == 2 and sizes[1][0] == frames))
    )
    if not fits:
        raise UserError(
            f"the start has sizes pose {sizes[0]}, shape {sizes[1]}, translation {sizes[2]}; expected axis-angle "
            f"[{frames}, 24, 3], [S] or [{frames}, S], and [{frames}, 3]."
        )
    if not all(bool(torch.isfinite(value).all()) for value in (start.pose, start.shape, start.translation)):
        raise UserError("the start has a number that is not finite (NaN or infinity).")
    behind = (start.translation[:, 2] < NEAR_M).nonzero().flatten()
    if len(behind):
        raise UserError(
            f"the start puts the person behind the camera in frame {int(behind[0])}. Translations are metres in the "
            "camera frame: x right, y down, z forward, so z must be positive."
        )
