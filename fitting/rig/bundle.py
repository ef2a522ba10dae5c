"""Bundle adjustment of cameras and of the points where people's rays meet.

Unknown are seven numbers of each camera (rotation, translation, logarithm of the focal length) and
the 26 keypoints of people in some frames. Keypoints pull as their stated errors say, bones keep
their lengths. Points are eliminated (Schur's complement), so that a step solves seven numbers a
camera.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

# Two cameras far from a person do not determine depth: bodies flattened by one factor explain the
# rays equally well. Bones tell which: pairs of Halpe's keypoints that keep the lifted body's length.
BONES = np.array(
    [
        (5, 7),
        (7, 9),
        (6, 8),
        (8, 10),
        (11, 13),
        (13, 15),
        (12, 14),
        (14, 16),
        (5, 11),
        (6, 12),
        (5, 6),
        (17, 18),
    ]
)
BONE_STD = 0.06  # of a person's proportions
ROBUST = 3.0  # deviations at which a keypoint counts half of its square
STEPS = 30
_MIN_DEPTH_M = 0.1
_POINTS = 3 * 26  # unknowns of a frame


@dataclass(frozen=True)
class BundleState:
    """Unknowns of C cameras, and of people in F frames."""

    rotation: np.ndarray  # [C, 3, 3]
    translation: np.ndarray  # [C, 3]
    log_focal: np.ndarray  # [C] over the lens that was assumed
    points: np.ndarray  # [F, 26, 3]

    def moved(self, step: np.ndarray, points: np.ndarray) -> "BundleState":
        """Return the state after a step [C, 7] of the cameras and one of the points."""
        turn = Rotation.from_rotvec(step[:, :3]).as_matrix()
        translation = np.einsum("cij,cj->ci", turn, self.translation) + step[:, 3:6]
        log_focal = self.log_focal + step[:, 6]
        return BundleState(turn @ self.rotation, translation, log_focal, self.points + points)


@dataclass(frozen=True)
class _Linearised:
    """Normal equations of the cameras and of each frame's points."""

    cameras: np.ndarray  # [C, 7, C, 7]
    camera_gradient: np.ndarray  # [C, 7]
    points: np.ndarray  # [F, 78, 78]
    point_gradient: np.ndarray  # [F, 78]
    cross: np.ndarray  # [7 C, F, 78]


@dataclass(frozen=True)
class Bundle:
    """Keypoints of people in F frames in C cameras, and how long their bones are."""

    rays: np.ndarray  # [C, F, 26, 2] under the lens that was assumed
    sigma: np.ndarray  # [C, F, 26]; inf: not visible
    bone_length_m: np.ndarray  # [F, B] of BONES
    focal_log_std: np.ndarray  # [C]
    correlated: float  # frames that count as one: errors of neighbours are correlated

    def residuals(self, state: BundleState) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return residuals of rays [C, F, 26, 2] and bones [F, B], and the points in the cameras.

        Residuals are in standard deviations; points in the cameras are [C, F, 26, 3].
        """
        in_camera = np.einsum("cij,fkj->cfki", state.rotation, state.points)
        in_camera = in_camera + state.translation[:, None, None]
        focal = np.exp(state.log_focal)[:, None, None, None]
        projected = focal * in_camera[..., :2] / np.maximum(in_camera[..., 2:], _MIN_DEPTH_M)
        bones = state.points[:, BONES[:, 0]] - state.points[:, BONES[:, 1]]
        lengths = np.linalg.norm(bones, axis=-1)
        ray_residual = (projected - self.rays) / self.sigma[..., None]
        bone_residual = (lengths / self.bone_length_m - 1) / BONE_STD * self._visible_bones
        return ray_residual, bone_residual, in_camera

    @property
    def _visible_bones(self) -> np.ndarray:
        """Return [F, B] whether both ends of a bone are visible."""
        visible = np.isfinite(self.sigma).any(0)
        return visible[:, BONES[:, 0]] & visible[:, BONES[:, 1]]

    def cost(self, state: BundleState) -> float:
        """Return the robust cost of rays and bones plus the prior of the focal lengths."""
        rays, bones, _ = self.residuals(state)
        squared = np.concatenate((np.square(rays).sum(-1).ravel(), np.square(bones).ravel()))
        robust = (squared * ROBUST**2 / (ROBUST**2 + squared)).sum() / self.correlated
        return float(robust + np.square(state.log_focal / self.focal_log_std).sum())

    def minimise(self, state: BundleState) -> tuple[BundleState, np.ndarray, float]:
        """Return the state of least cost, the cameras' covariance [7 C, 7 C] and the cost."""
        damping = 1e-3
        cost = self.cost(state)
        for _ in range(STEPS):
            cameras, points, _ = self.step(state, damping)
            trial = state.moved(cameras, points)
            trial_cost = self.cost(trial)
            if trial_cost < cost:
                has_converged = cost - trial_cost < 1e-4 * cost
                state = trial
                cost = trial_cost
                damping = max(damping / 5, 1e-7)
                if has_converged:
                    break
            else:
                damping *= 6
                if damping > 1e4:
                    break
        covariance = self.step(state, 0.0)[2]
        return state, covariance, cost

    def step(self, state: BundleState, damping: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return a step of the cameras [C, 7] and of the points [F, 26, 3], and the covariance.

        The covariance [7 C, 7 C] is that of the cameras. The first camera is the world and stays
        where it is; only its focal length changes.
        """
        equations = self._linearise(state)
        count = len(equations.cameras)
        frames = len(equations.points)
        unknowns = 7 * count
        diagonal = range(_POINTS)
        block = equations.points
        block[:, diagonal, diagonal] *= 1 + damping
        block[:, diagonal, diagonal] += 1e-6  # points that no camera sees
        cross = equations.cross
        solved = np.linalg.solve(block, cross.transpose(1, 2, 0))  # [F, 78, 7 C]
        reduced = equations.cameras.reshape(unknowns, unknowns)
        reduced = reduced - cross.reshape(unknowns, -1) @ solved.reshape(-1, unknowns)
        gradient = equations.camera_gradient.ravel()
        gradient = gradient - np.einsum("fpa,fp->a", solved, equations.point_gradient)
        free = np.r_[6, 7:unknowns]
        free_part = reduced[np.ix_(free, free)]
        inverse = np.linalg.pinv(free_part + damping * np.diag(np.diag(free_part)))
        step = np.zeros(unknowns)
        step[free] = -inverse @ gradient[free]
        covariance = np.zeros_like(reduced)
        covariance[np.ix_(free, free)] = inverse
        remaining = equations.point_gradient + np.einsum("afp,a->fp", cross, step)
        points = -np.linalg.solve(block, remaining[..., None])
        return step.reshape(count, 7), points.reshape(frames, 26, 3), covariance

    def _linearise(self, state: BundleState) -> _Linearised:
        rays, bones, in_camera = self.residuals(state)
        count, frames = rays.shape[:2]
        by_camera, by_point, residual = self._ray_derivatives(state, rays, in_camera)
        cameras = np.zeros((count, 7, count, 7))
        every = range(count)
        cameras[every, :, every] = np.einsum("cfkia,cfkib->cab", by_camera, by_camera)
        cameras[every, 6, every, 6] += 1 / self.focal_log_std**2
        camera_gradient = np.einsum("cfkia,cfki->ca", by_camera, residual)
        camera_gradient[:, 6] += state.log_focal / self.focal_log_std**2
        points = np.zeros((frames, 26, 3, 26, 3))
        keypoints = np.arange(26)
        points[:, keypoints, :, keypoints] = np.einsum("cfkil,cfkim->kflm", by_point, by_point)
        point_gradient = np.einsum("cfkil,cfki->fkl", by_point, residual)
        self._add_bones(state, bones, points, point_gradient)
        cross = np.einsum("cfkia,cfkil->cafkl", by_camera, by_point)
        return _Linearised(
            cameras,
            camera_gradient,
            points.reshape(frames, _POINTS, _POINTS),
            point_gradient.reshape(frames, _POINTS),
            cross.reshape(7 * count, frames, _POINTS),
        )

    def _ray_derivatives(
        self, state: BundleState, rays: np.ndarray, in_camera: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return derivatives by the cameras [C, F, 26, 2, 7] and the points [.., 3], and residuals.

        All are multiplied by the root of the robust weight.
        """
        root = _root_weight(np.square(rays).sum(-1)) / math.sqrt(self.correlated)
        depth = np.maximum(in_camera[..., 2], _MIN_DEPTH_M)
        focal = np.exp(state.log_focal)[:, None, None]
        projection = np.zeros((*in_camera.shape[:3], 2, 3))
        projection[..., 0, 0] = focal / depth
        projection[..., 1, 1] = focal / depth
        projection[..., 2] = -(focal / depth**2)[..., None] * in_camera[..., :2]
        projection *= (root / self.sigma)[..., None, None]
        by_point = np.einsum("cfkij,cjl->cfkil", projection, state.rotation)
        by_turn = np.cross(in_camera[..., None, :], projection)  # row . (w x p) = w . (p x row)
        by_focal = (focal / depth * root / self.sigma)[..., None] * in_camera[..., :2]
        by_camera = np.concatenate((by_turn, projection, by_focal[..., None]), -1)
        return by_camera, by_point, rays * root[..., None]

    def _add_bones(
        self,
        state: BundleState,
        residual: np.ndarray,
        points: np.ndarray,
        point_gradient: np.ndarray,
    ) -> None:
        """Add the bones' residuals [F, B] to the points' normal equations."""
        root = _root_weight(np.square(residual)) / math.sqrt(self.correlated)
        slope = root * self._visible_bones / (BONE_STD * self.bone_length_m)
        for number, (a, b) in enumerate(BONES):
            bone = state.points[:, a] - state.points[:, b]
            length = np.maximum(np.linalg.norm(bone, axis=-1, keepdims=True), 1e-6)
            row = slope[:, number, None] * bone / length
            std_m = BONE_STD * self.bone_length_m[:, number]
            weighted = residual[:, number] * slope[:, number] * std_m
            for end, sign in ((a, 1.0), (b, -1.0)):
                point_gradient[:, end] += sign * row * weighted[:, None]
                for other, other_sign in ((a, 1.0), (b, -1.0)):
                    block = sign * other_sign * row[:, :, None] * row[:, None]
                    points[:, end, :, other] += block


def _root_weight(squared: np.ndarray) -> np.ndarray:
    """Return the root of the weight of squared residuals under Geman-McClure's loss."""
    return ROBUST**2 / (ROBUST**2 + squared)
