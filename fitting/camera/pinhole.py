"""A pinhole camera with lens distortion.

Camera frame: x right, y down, z forward, metres. Pixels as in OpenCV: x right, y down, and (0, 0)
is the *centre* of the top left pixel.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from fitting.camera.distortion import distort, undistort
from pose2d.base.errors import UserError

COUNTS = (0, 4, 5, 8, 12)  # how many distortion coefficients may be given
# Metres: a point closer to the camera's plane has no image. The solver keeps bodies beyond the
# first; the renderer cuts triangles at the second, nearer one, so that no body the solver accepts
# is cut. Not tuned.
NEAREST_KEYPOINT_M = 0.1
NEAR_PLANE_M = 0.05


@dataclass(frozen=True)
class Camera:
    """A pinhole camera that sees the full frame, with lens distortion if it has any."""

    focal_px: tuple[float, float]  # along x, along y
    center_px: tuple[float, float]  # the principal point: where the optical axis meets the image
    size: tuple[int, int]  # width, height of the image in pixels
    # k1 k2 p1 p2 [k3 [k4 k5 k6 [s1 s2 s3 s4]]], as OpenCV orders them
    distortion: tuple[float, ...] = ()

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
                f"distortion must be {', '.join(map(str, COUNTS[:-1]))} or {COUNTS[-1]} finite "
                "numbers in OpenCV's order k1 k2 p1 p2 k3 k4 k5 k6 s1 s2 s3 s4, "
                f"got {list(self.distortion)}. A tilted sensor (14 numbers) and fisheye lenses are "
                "not modelled: undistort the video first."
            )

    @staticmethod
    def default(size: tuple[int, int]) -> "Camera":
        """Return a camera of unknown lens: the focal length is the diagonal (CLIFF), 53 degrees
        corner to corner.
        """
        return Camera.from_focal(math.hypot(*size), size)

    @staticmethod
    def from_focal(
        focal_px: float | tuple[float, float],
        size: tuple[int, int],
        center_px: tuple[float, float] | None = None,
    ) -> "Camera":
        """Return a camera of known focal length in pixels; the principal point is CLIFF's (W / 2, H
        / 2) unless given.
        """
        _check_size(size)
        fx, fy = focal_px if isinstance(focal_px, tuple) else (focal_px, focal_px)
        cx, cy = center_px or (size[0] / 2, size[1] / 2)
        return Camera((float(fx), float(fy)), (float(cx), float(cy)), (int(size[0]), int(size[1])))

    @staticmethod
    def from_field_of_view(
        degrees: float, size: tuple[int, int], *, across: Literal["width", "height", "diagonal"]
    ) -> "Camera":
        """Return a camera of known angle of view, measured across the image's width, height or
        diagonal.
        """
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
        """Return a calibrated camera: [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] in pixels, and its
        distortion.
        """
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
        """Return the 3x3 matrix in pixels, float64."""
        fx, fy = self.focal_px
        cx, cy = self.center_px
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])

    @property
    def mean_focal_px(self) -> float:
        """Return the geometric mean of both focal lengths, for formulas with only one."""
        return math.sqrt(self.focal_px[0] * self.focal_px[1])

    def resized(self, size: tuple[int, int]) -> "Camera":
        """Return the camera of the same images at another size (width, height)."""
        ratio = (size[0] / self.size[0], size[1] / self.size[1])
        return Camera(
            (ratio[0] * self.focal_px[0], ratio[1] * self.focal_px[1]),
            (resize_px(self.center_px[0], ratio[0]), resize_px(self.center_px[1], ratio[1])),
            (int(size[0]), int(size[1])),
            self.distortion,
        )

    @property
    def pinhole(self) -> "Camera":
        """Return this camera with a perfect lens, for `undistort`-ed pixels."""
        return replace(self, distortion=())

    @overload
    def project(self, points_cam: Tensor) -> Tensor: ...
    @overload
    def project(self, points_cam: np.ndarray) -> np.ndarray: ...

    def project(self, points_cam: Tensor | np.ndarray) -> Tensor | np.ndarray:
        """Project points [..., 3] in the camera frame (metres) to pixels [..., 2].

        Takes tensors or arrays, and is differentiable. A point with z <= 0 has no image: its pixel is NaN and its gradient zero.
        """
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
        """Return the points [..., 3] at z = 1 that pixels [..., 2] look at; NaN where the lens sees
        nothing.
        """
        if xy_px.shape[-1:] != (2,):
            raise UserError(f"pixels must have shape [..., 2], got {list(xy_px.shape)}.")
        xy = (xy_px - xy_px.new_tensor(self.center_px)) / xy_px.new_tensor(self.focal_px)
        if self.distortion:
            xy = undistort(xy, self.distortion)
        return torch.cat((xy, torch.ones_like(xy[..., :1])), dim=-1)

    def undistort(self, xy_px: Tensor) -> Tensor:
        """Convert pixels [..., 2] of this camera to pixels [..., 2] of `pinhole`; NaN where the
        lens sees nothing.
        """
        return self._to_pixels(self.rays(xy_px)[..., :2]) if self.distortion else xy_px

    def _to_pixels(self, xy: Tensor) -> Tensor:
        return xy * xy.new_tensor(self.focal_px) + xy.new_tensor(self.center_px)


T = TypeVar("T", float, np.ndarray)


def resize_px(pixels: T, ratio: float) -> T:
    """Return coordinates in an image that is `ratio` times as wide. Pixel centres are whole numbers,
    so the image's edge lies at -1/2.
    """
    return (pixels + 0.5) * ratio - 0.5


def _check_size(size: tuple[int, int]) -> None:
    if len(size) != 2 or not all(math.isfinite(s) and s == int(s) and s > 0 for s in size):
        raise UserError(f"the image's size must be (width, height) in whole pixels, got {size}.")
