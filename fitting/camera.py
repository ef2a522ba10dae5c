"""Cameras: pinhole and lens distortion, the camera of a crop, the focal length and how well it is
known, the world.

Camera frame: x right, y down, z forward, metres. Pixels as in OpenCV: x right, y down, and (0, 0)
is the *centre* of the top left pixel.

Lens distortion with OpenCV's coefficients, in their order: k1 k2 p1 p2 [k3 [k4 k5 k6 [s1 s2 s3
s4]]].

A ray through (x, y, 1) meets the sensor, in units of the focal length and with r^2 = x^2 + y^2, at

    x' = x R + 2 p1 x y + p2 (r^2 + 2 x^2) + s1 r^2 + s2 r^4        R = 1 + k1 r^2 + k2 r^4 + k3 r^6
    y' = y R + p1 (r^2 + 2 y^2) + 2 p2 x y + s3 r^2 + s4 r^4            ---------------------------
                                                                        1 + k4 r^2 + k5 r^4 + k6 r^6

`crop_to_full` goes from the camera of a crop network to the person's translation in the full frame.
SPIN and CLIFF answer (s, tx, ty): shift the body by (tx, ty) metres, scale it by s, look at the
square from -1 to 1. With a crop of side b pixels around (cx, cy) and a camera of focal length f and
centre (ox, oy)

    tz = 2 f / (b s)        tx_full = tx + (cx - ox) tz / f        ty_full = ty + (cy - oy) tz / f

is the translation of the body in the frame (CLIFF). SPIN's own translation is the same formula for
a camera that sees nothing but the crop: focal 5000, 224 x 224 (`SPIN_CROP`), with the crop around
its centre.

`FocalEstimate`: there is a prior, and estimates are combined by their uncertainty. A focal length
acts by its ratio (10 % longer puts everybody 10 % farther away), so it is Gaussian in log f.

The world frame: metres, y up, floor at y = 0, the first camera above the origin and looking along
-z. Right-handed, like the camera frame (x right, y down, z forward): a level camera's world is its
frame turned half way about x. The first camera stands at (0, its height, 0), and its optical axis,
laid onto the floor, is -z, so x is to its right."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, overload

import numpy as np
import torch
from torch import Tensor

from fitting.body import BodyParams
from fitting.body.kinematics import matrix_to_axis_angle, rotation_matrices, shortest_turn
from pose2d.base.errors import UserError

COUNTS = (0, 4, 5, 8, 12)  # how many distortion coefficients may be given
# Metres: a point closer to the camera's plane has no image. The solver keeps bodies beyond the
# first; the renderer cuts triangles at the second, nearer one, so that no body the solver accepts
# is cut. Not tuned.
NEAREST_KEYPOINT_M, NEAR_PLANE_M = 0.1, 0.05


@dataclass(frozen=True)
class Camera:
    """A pinhole that sees the full frame, with lens distortion if it has any."""

    focal_px: tuple[float, float]  # along x, along y
    center_px: tuple[float, float]  # the principal point: where the optical axis meets the image
    size: tuple[int, int]  # width, height of the image in pixels
    distortion: tuple[
        float, ...
    ] = ()  # k1 k2 p1 p2 [k3 [k4 k5 k6 [s1 s2 s3 s4]]], as OpenCV orders them

    def __post_init__(self) -> None:
        _check_size(self.size)
        if len(self.focal_px) != 2 or not all(math.isfinite(f) and f > 0 for f in self.focal_px):
            raise UserError(
                f"the focal length must be positive pixels along x and y, got {self.focal_px}."
            )
        if len(self.center_px) != 2 or not all(map(math.isfinite, self.center_px)):
            raise UserError(
                f"the principal point must be two finite pixel coordinates, got {self.center_px}."
            )
        if len(self.distortion) not in COUNTS or not all(map(math.isfinite, self.distortion)):
            raise UserError(
                f"distortion must be {', '.join(map(str, COUNTS[:-1]))} or {COUNTS[-1]} finite numbers in "
                f"OpenCV's order k1 k2 p1 p2 k3 k4 k5 k6 s1 s2 s3 s4, got {list(self.distortion)}. "
                "A tilted sensor (14 numbers) and fisheye lenses are not modelled: undistort the video first."
            )

    @staticmethod
    def default(size: tuple[int, int]) -> "Camera":
        """When nothing is known: the focal length is the diagonal (CLIFF), 53 degrees corner to
        corner.
        """
        return Camera.from_focal(math.hypot(*size), size)

    @staticmethod
    def from_focal(
        focal_px: float | tuple[float, float],
        size: tuple[int, int],
        center_px: tuple[float, float] | None = None,
    ) -> "Camera":
        """A known focal length in pixels; the principal point is CLIFF's (W / 2, H / 2) unless
        given.
        """
        _check_size(size)
        fx, fy = focal_px if isinstance(focal_px, tuple) else (focal_px, focal_px)
        cx, cy = center_px or (size[0] / 2, size[1] / 2)
        return Camera((float(fx), float(fy)), (float(cx), float(cy)), (int(size[0]), int(size[1])))

    @staticmethod
    def from_field_of_view(
        degrees: float, size: tuple[int, int], *, across: Literal["width", "height", "diagonal"]
    ) -> "Camera":
        """A known angle of view, measured across the image's width, height or diagonal."""
        _check_size(size)
        extents = {"width": size[0], "height": size[1], "diagonal": math.hypot(*size)}
        if across not in extents:
            raise UserError(
                f"a field of view is measured across {', '.join(extents)}; got {across!r}."
            )
        if not 0 < degrees < 180:  # NaN fails too
            raise UserError(f"the field of view must lie between 0 and 180 degrees, got {degrees}.")
        return Camera.from_focal(extents[across] / 2 / math.tan(math.radians(degrees) / 2), size)

    @staticmethod
    def from_intrinsics(
        matrix: Sequence[Sequence[float]] | np.ndarray | Tensor,
        size: tuple[int, int],
        distortion: Sequence[float] | np.ndarray | Tensor = (),
    ) -> "Camera":
        """A calibrated camera: [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] in pixels, and its distortion."""
        k = np.asarray(matrix, dtype=np.float64)
        if k.shape != (3, 3) or not np.isfinite(k).all():
            raise UserError(
                f"intrinsics must be a finite 3x3 matrix, got {list(k.shape)}: {k.tolist()}."
            )
        if k[0, 1] != 0 or k[1, 0] != 0 or k[2].tolist() != [0, 0, 1]:
            raise UserError(
                f"intrinsics must read [[fx, 0, cx], [0, fy, cy], [0, 0, 1]], got {k.tolist()}."
            )
        camera = Camera.from_focal(
            (float(k[0, 0]), float(k[1, 1])), size, (float(k[0, 2]), float(k[1, 2]))
        )
        return replace(
            camera, distortion=tuple(np.asarray(distortion, dtype=np.float64).ravel().tolist())
        )

    @property
    def intrinsics(self) -> np.ndarray:
        """The 3x3 matrix in pixels, float64."""
        fx, fy = self.focal_px
        cx, cy = self.center_px
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])

    @property
    def mean_focal_px(self) -> float:
        """One focal length for formulas that know only one: the geometric mean of the two."""
        return math.sqrt(self.focal_px[0] * self.focal_px[1])

    @property
    def pinhole(self) -> "Camera":
        """This camera with a perfect lens; sees `undistort`-ed pixels."""
        return replace(self, distortion=())

    @overload
    def project(self, points_cam: Tensor) -> Tensor: ...
    @overload
    def project(self, points_cam: np.ndarray) -> np.ndarray: ...

    def project(self, points_cam: Tensor | np.ndarray) -> Tensor | np.ndarray:
        """Points in the camera frame [..., 3] metres -> pixels [..., 2], tensors or arrays.
        Differentiable. A point with z <= 0 has no image: its pixel is NaN and its gradient zero."""
        if points_cam.shape[-1:] != (3,):
            raise UserError(f"points must have shape [..., 3], got {list(points_cam.shape)}.")
        if isinstance(points_cam, np.ndarray):
            return self.project(torch.from_numpy(points_cam)).numpy()
        z = points_cam[..., 2:]
        in_front = z > 0
        # Dividing by 1 instead of z, not masking afterwards, keeps NaN out of the gradients.
        xy = points_cam[..., :2] / torch.where(in_front, z, torch.ones_like(z))
        if self.distortion:
            xy = distort(xy, self.distortion)
        return torch.where(in_front, self._to_pixels(xy), torch.nan)

    def rays(self, xy_px: Tensor) -> Tensor:
        """Pixels [..., 2] -> the points [..., 3] at z = 1 they look at; NaN where the lens sees
        nothing.
        """
        if xy_px.shape[-1:] != (2,):
            raise UserError(f"pixels must have shape [..., 2], got {list(xy_px.shape)}.")
        xy = (xy_px - xy_px.new_tensor(self.center_px)) / xy_px.new_tensor(self.focal_px)
        if self.distortion:
            xy = undistort(xy, self.distortion)
        return torch.cat((xy, torch.ones_like(xy[..., :1])), dim=-1)

    def undistort(self, xy_px: Tensor) -> Tensor:
        """Pixels [..., 2] of this camera -> pixels [..., 2] of `pinhole`; NaN where the lens sees
        nothing.
        """
        return self._to_pixels(self.rays(xy_px)[..., :2]) if self.distortion else xy_px

    def _to_pixels(self, xy: Tensor) -> Tensor:
        return xy * xy.new_tensor(self.focal_px) + xy.new_tensor(self.center_px)


def _check_size(size: tuple[int, int]) -> None:
    if len(size) != 2 or not all(math.isfinite(s) and s == int(s) and s > 0 for s in size):
        raise UserError(f"the image's size must be (width, height) in whole pixels, got {size}.")


_NEWTON_STEPS = 20  # quadratic near the answer: 4 or 5 do for an ordinary lens
_COMPLEX_STEP = (
    1e-20  # f'(x) = Im f(x + i h) / h for an analytic f, exact to rounding for any small h
)
_WIDEST = 20.0  # tan of the widest angle looked at, 87 degrees


def _padded(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    return (*coefficients, *(0.0,) * (12 - len(coefficients)))


def distort(xy: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Where straight rays [..., 2] (x / z, y / z) meet the sensor [..., 2]."""
    k1, k2, p1, p2, k3, k4, k5, k6, s1, s2, s3, s4 = _padded(coefficients)
    x, y = xy.unbind(-1)
    r2 = x * x + y * y
    radial = (1 + r2 * (k1 + r2 * (k2 + r2 * k3))) / (1 + r2 * (k4 + r2 * (k5 + r2 * k6)))
    return torch.stack(
        (
            x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x) + r2 * (s1 + r2 * s2),
            y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y + r2 * (s3 + r2 * s4),
        ),
        dim=-1,
    )


def undistort(xy_seen: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """The inverse of `distort`, by Newton's method in float64; NaN where no ray leads to that
    point. No gradient flows through it: what is undone here is a measurement."""
    seen = xy_seen.detach().double()
    ray = seen
    steps = _COMPLEX_STEP * torch.eye(2, dtype=seen.dtype, device=seen.device)
    for _ in range(_NEWTON_STEPS):
        stepped = (
            distort(torch.complex(ray, step.expand_as(ray)), coefficients).imag for step in steps
        )
        (xx, yx), (xy, yy) = (
            (change / _COMPLEX_STEP).unbind(-1) for change in stepped
        )  # d(x', y') / dx, / dy
        ex, ey = (distort(ray, coefficients) - seen).unbind(-1)
        determinant = xx * yy - xy * yx
        ray = (
            ray
            - torch.stack(((yy * ex - xy * ey), (xx * ey - yx * ex)), -1) / determinant[..., None]
        )
    off = (distort(ray, coefficients) - seen).norm(dim=-1)
    found = (off < 1e-9) & (ray.norm(dim=-1) <= valid_radius(coefficients))
    return ray.where(found[..., None], torch.nan).to(xy_seen.dtype)


def valid_radius(coefficients: tuple[float, ...]) -> float:
    """The largest |(x, y)| up to which the radial part grows; beyond it the image folds back on
    itself.
    """
    k1, k2, _, _, k3, k4, k5, k6, *_ = _padded(coefficients)
    r = np.linspace(0, _WIDEST, 20_001)
    with np.errstate(divide="ignore", invalid="ignore"):
        top = np.polynomial.polynomial.polyval(r * r, (1, k1, k2, k3))
        seen = r * top / np.polynomial.polynomial.polyval(r * r, (1, k4, k5, k6))
    folds = ~(np.diff(seen) > 0)
    return float(r[folds.argmax()]) if folds.any() else float("inf")


SPIN_CROP = Camera.from_focal(5000.0, (224, 224))

_EPSILON = 1e-9  # both systems add it to b s


def crop_to_full(
    crop_camera: Tensor, box_center_px: Tensor, box_side_px: Tensor, camera: Camera
) -> Tensor:
    """(s, tx, ty) [..., 3]; crop centre [..., 2], side [...] in frame px -> translation [..., 3]
    metres.
    """
    scale = crop_camera[..., 0]
    shift = crop_camera[..., 1:]
    depth = (2 * camera.mean_focal_px / (box_side_px * scale + _EPSILON))[..., None]
    # How far the crop's centre lies off the optical axis, metres per metre of depth.
    center = box_center_px.new_tensor(camera.center_px)
    focal = box_center_px.new_tensor(camera.focal_px)
    return torch.cat((shift + (box_center_px - center) / focal * depth, depth), dim=-1)


def cliff_box_info(box_center_px: Tensor, box_side_px: Tensor, camera: Camera) -> Tensor:
    """Where the crop lies in the frame, [..., 3], scaled to about unit variance as CLIFF's network
    expects.
    """
    focal = camera.mean_focal_px
    center = 2.8 * (box_center_px - box_center_px.new_tensor(camera.center_px)) / focal
    side = (box_side_px - 0.24 * focal) / (0.06 * focal)
    return torch.cat((center, side[..., None]), dim=-1)


# As shares of the image's diagonal. Phones: 26 mm equivalent is 0.60, EMDB's phone has 1435 px of
# 2400 (0.60), and video crops for stabilisation up to 0.75; 1680 px of 2203 (0.76) was measured on
# a camera of shared videos. Webcams with 65 to 78 degrees across the diagonal: 0.62 to 0.78. Action
# cameras in their linear mode: 19 to 27 mm, 0.44 to 0.62. Lenses for cinema and sports: 35 to 85
# mm, 0.8 to 2. The median lies among the phones and webcams, which make most videos; one deviation
# reaches 0.54 .. 0.96, two 0.41 .. 1.28.
PRIOR_SHARE = 0.72
PRIOR_LOG_SIGMA = 0.29
GIVEN_LOG_SIGMA = 0.01  # a focal length or field of view that the user states
SANE_SHARE = (0.2, 15.0)


@dataclass(frozen=True)
class FocalEstimate:
    """A focal length that may be wrong."""

    focal_px: float  # median, pixels of the full frame
    log_sigma: float  # standard deviation of log f
    source: str  # "given", "metadata: ..", "people and floor", "prior", or several joined by " + "


def focal_prior(size_px: tuple[int, int]) -> FocalEstimate:
    """What cameras have, for an image of (width, height) pixels."""
    return FocalEstimate(PRIOR_SHARE * math.hypot(*size_px), PRIOR_LOG_SIGMA, "prior")


def given_focal(focal_px: float, size_px: tuple[int, int]) -> FocalEstimate:
    """What the user states; impossible values are refused with a message."""
    share = focal_px / math.hypot(*size_px) if math.isfinite(focal_px) else math.nan
    if not SANE_SHARE[0] <= share <= SANE_SHARE[1]:  # NaN fails too
        low, high = (math.hypot(*size_px) * s for s in SANE_SHARE)
        raise UserError(
            f"a focal length of {focal_px:g} pixels cannot belong to an image of {size_px[0]}x{size_px[1]}: "
            f"expected {low:.0f} to {high:.0f}. Give pixels of the full frame (f_mm / 43.27 * diagonal for a "
            "35 mm equivalent), or leave it out to have it estimated."
        )
    return FocalEstimate(focal_px, GIVEN_LOG_SIGMA, "given")


def combined(estimates: Iterable[FocalEstimate]) -> FocalEstimate:
    """The product of independent Gaussians in log f. Estimates that contradict each other (chi^2
    above their number) widen the answer by Birge's ratio sqrt(chi^2 / (n - 1)): the figures are
    then wrong about themselves, and the mean of two contradictions is no better than either."""
    usable = [e for e in estimates if 0 < e.focal_px < math.inf and 0 < e.log_sigma < math.inf]
    if not usable:
        raise ValueError("no finite estimate of the focal length to combine")
    log_f = np.log([e.focal_px for e in usable])
    precision = 1 / np.square([e.log_sigma for e in usable])
    mean = float(precision @ log_f / precision.sum())
    sigma = float(precision.sum() ** -0.5)
    if len(usable) > 1:
        chi2 = float(precision @ (log_f - mean) ** 2)
        sigma *= max(1.0, math.sqrt(chi2 / (len(usable) - 1)))
    weightiest_first = sorted(usable, key=lambda e: e.log_sigma)
    return FocalEstimate(
        math.exp(mean), sigma, " + ".join(dict.fromkeys(e.source for e in weightiest_first))
    )


def refocused_params(
    params: BodyParams, rest_pelvis_m: torch.Tensor, focal_ratio: float
) -> BodyParams:
    """A fitted body as a focal length `focal_ratio` times as long would place it: of the same size
    and with the same image it lies at z * ratio, x and y unchanged, and turns with its viewing ray.
    rest_pelvis_m [3]: the pelvis of this body's shape at rest."""
    if focal_ratio == 1.0:
        return params
    rest = rest_pelvis_m.double()
    pose = params.pose.clone()
    root = rest + params.translation.double()
    new_root = root * root.new_tensor([1.0, 1.0, focal_ratio])
    turn = shortest_turn(root, new_root)
    pose[:, 0] = matrix_to_axis_angle(turn @ rotation_matrices(pose[:, 0].double())).to(pose)
    return BodyParams(pose, params.shape, (new_root - rest).to(params.translation), params.size)


# length of the optical axis laid on the floor, below which the image's up direction is used instead
_STEEPEST = 0.02


def world_from_camera(
    up_cam: np.ndarray,
    camera_height_m: float,
    first_from_camera: np.ndarray | None,
    frames: int = 1,
) -> np.ndarray:
    """Where the camera was in the world, [F, 4, 4]: from `GroundEstimate`'s up direction and camera
    height and `CameraMotion`'s rotations [F, 3, 3]; None: it did not turn in so many frames. Its
    place is the first frame's."""
    turn = np.tile(np.eye(3), (frames, 1, 1)) if first_from_camera is None else first_from_camera
    transform = np.tile(np.eye(4), (len(turn), 1, 1))
    transform[:, :3, :3] = rotation_to_world(up_cam) @ turn
    transform[:, 1, 3] = camera_height_m
    return transform


def rotation_to_world(up_cam: np.ndarray) -> np.ndarray:
    """[3, 3] from the first camera's axes to the world's: up_cam becomes y, the optical axis lies
    over -z.
    """
    up = np.asarray(up_cam, float)
    size = np.linalg.norm(up)
    if up.shape != (3,) or not np.isfinite(size) or size < 1e-6:
        raise ValueError(
            f"the up direction must be three finite numbers that are not all zero, got {up_cam}"
        )
    up = up / size
    forward = np.array([0.0, 0.0, 1.0]) - up[2] * up
    if (
        np.linalg.norm(forward) < _STEEPEST
    ):  # straight down or up: the top of the image points ahead or back
        forward = np.array([0.0, -1.0, 0.0]) * -np.sign(up[2])
        forward = forward - (forward @ up) * up
    forward /= np.linalg.norm(forward)
    return np.stack((np.cross(forward, up), up, -forward))


def points_to_world(points_cam_m: np.ndarray, world_from_camera: np.ndarray) -> np.ndarray:
    """Points [T, N, 3] of T frames by their [T, 4, 4]."""
    rotated = np.einsum("tij,tnj->tni", world_from_camera[:, :3, :3], points_cam_m)
    return rotated + world_from_camera[:, None, :3, 3]


def params_to_world(
    params: BodyParams, rest_pelvis_m: torch.Tensor, world_from_camera: np.ndarray
) -> BodyParams:
    """A body's parameters [T] in the world: the root is turned, and the translation puts the pelvis
    in its place.

    rest_pelvis_m [3]: the pelvis of this body's shape at rest, before its size multiplies the whole
    body. A body turns about its pelvis, not about the origin, so the translation is not simply
    transformed:

        pelvis = size * rest_pelvis + translation,     translation' = R pelvis + t - size * rest_pelvis
    """
    dtype = params.translation.dtype
    rest = (
        params.size.detach().cpu().double().reshape(-1, 1).numpy()
        * rest_pelvis_m.detach().cpu().double().numpy()
    )
    pelvis = rest + params.translation.detach().cpu().double().numpy()
    moved = points_to_world(pelvis[:, None], world_from_camera)[:, 0] - rest
    pose = params.pose.detach().clone()
    turn = torch.from_numpy(world_from_camera[:, :3, :3]).double()
    pose[:, 0] = matrix_to_axis_angle(turn @ rotation_matrices(pose[:, 0].double().cpu())).to(pose)
    return BodyParams(pose, params.shape, torch.from_numpy(moved).to(dtype), params.size)
