"""The Gauss-Newton system at a state: gradient and matrix, frame by frame, coupled over time in a track.

A robust keypoint enters with the slope of its loss (iteratively reweighted least squares); the mixture prior with its
nearest component; limits where they bind.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.solver.jacobian import Geometry, left_jacobian
from fitting.solver.problem import (
    CHUNK,
    LEAN_SCALE,
    MOTION_SCALE,
    Anchor,
    Problem,
    acceleration,
    acceleration_factor,
    acceleration_sigma,
    box_limits,
    charbonnier,
    geman_mcclure,
    in_shot,
    keypoint_loss,
    lean,
    lean_axis,
    projection_rows,
    reprojection,
)
from fitting.solver.scene_equations import Blocks, add_floor, add_rest, points_of
from fitting.solver.unknowns import BODY_JOINTS, POSE, SIGMA_RAD, TRANSLATION, State


@dataclass(frozen=True)
class NormalEquations:
    """Half the cost's second-order model: cost(x + d) ~ cost + g . d + d . H d / 2."""

    gradient: Tensor  # [T, 63]
    matrix: Tensor  # [T, 63, 63]
    arrow: Tensor  # [T, 63, S] step against shape
    shape_gradient: Tensor  # [S], or [T, S] when each frame has its own shape
    corner: Tensor  # [S, S] or [T, S, S]
    next_one: Tensor | None  # [T - 1, 63, 63] frame t against t + 1; None: frames are not coupled
    next_two: Tensor | None  # [T - 2, 63, 63] against t + 2

    def double(self) -> "NormalEquations":
        """The same in float64."""
        return NormalEquations(
            self.gradient.double(), self.matrix.double(), self.arrow.double(), self.shape_gradient.double(),
            self.corner.double(), None if self.next_one is None else self.next_one.double(),
            None if self.next_two is None else self.next_two.double(),
        )  # fmt: skip

    def damped(self, damping: Tensor) -> "NormalEquations":
        """Marquardt's: diagonals grow by a share, [] or one per frame [T]."""
        matrix, corner = self.matrix.clone(), self.corner.clone()
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        diagonal.mul_(1 + damping[..., None])
        shape_diagonal = corner.diagonal(dim1=-2, dim2=-1)
        shape_diagonal.mul_(1 + damping[..., None])
        return NormalEquations(
            self.gradient, matrix, self.arrow, self.shape_gradient, corner, self.next_one, self.next_two
        )


def normal_equations(problem: Problem, state: State) -> NormalEquations:
    """Set the system up, a bounded number of frames at a time."""
    coupled = problem.fps is not None and len(state) >= 3
    joints = torch.empty(0)
    if coupled:
        parts = (state.frames(slice(a, a + CHUNK)) for a in range(0, len(state), CHUNK))
        joints = torch.cat([problem.jacobian.place(part, derivatives=False).joints for part in parts])
        joints = in_shot(problem, joints)
    columns = [
        list(column)
        for column in zip(
            *(_piece(problem, state, first, coupled, joints) for first in range(0, len(state), CHUNK)), strict=True
        )
    ]

    def joined(part: int) -> Tensor:
        whole = columns[part][0] if len(columns[part]) == 1 else torch.cat(columns[part])
        columns[part].clear()  # a long track's blocks are large: not twice in memory
        return whole

    gradient, matrix, arrow, shape_gradient, corner = (joined(part) for part in range(5))
    if state.shared_shape:
        shape_gradient, corner = shape_gradient.sum(0), corner.sum(0)
    eye = torch.eye(state.shape.shape[-1], dtype=gradient.dtype)
    weight = problem.shape_weight
    shape_gradient, corner = shape_gradient + weight * state.shape, corner + weight * eye
    if problem.anchor is not None:
        per = weight / problem.anchor.shape**2
        shape_gradient = shape_gradient + per * (state.shape - problem.anchor.state.shape)
        corner = corner + per * eye
    if not coupled:
        return NormalEquations(gradient, matrix, arrow, shape_gradient, corner, None, None)
    return NormalEquations(gradient, matrix, arrow, shape_gradient, corner, joined(5), joined(6))


def _piece(problem: Problem, state: State, first: int, coupled: bool, joints: Tensor) -> tuple[Tensor, ...]:
    """The rows of frames first .. first + CHUNK. Coupling looks two frames beyond either end."""
    count = len(state)
    last = min(first + CHUNK, count)
    halo = 2 if coupled else 0
    low, high = max(first - halo, 0), min(last + halo, count)
    wide = problem.jacobian.place(state.frames(slice(low, high)))
    inner = slice(first - low, last - low)
    rows = slice(first, last)
    geometry = Geometry(
        wide.keypoints[inner], wide.joints[inner],
        type(wide.placement)(wide.placement.rotation[inner], wide.placement.joints[inner], wide.placement.rest_joints),
        wide.terms[inner], wide.axis_jacobian[inner],
    )  # fmt: skip
    part, moved = problem.frames(rows), state.frames(rows)
    joint_shape_jacobian = problem.jacobian.joint_shape_jacobian(wide)
    gradient, matrix, arrow, shape_gradient, corner = _keypoint_part(part, geometry, joint_shape_jacobian[inner])
    _add_pose_part(part, moved, gradient, matrix)
    if part.lean_rad is not None:
        _add_lean(part.lean_rad, lean_axis(part), moved, gradient, matrix)
    if part.anchor is not None:
        _add_anchor(part.anchor, moved, gradient, matrix)
    blocks = Blocks(gradient, matrix, arrow, shape_gradient, corner)
    points = points_of(problem, wide, joint_shape_jacobian, low, high)
    if points is not None and problem.scene is not None and problem.scene.has_floor:
        add_floor(part, points.frames(inner), blocks)
    if not coupled:
        return gradient, matrix, arrow, shape_gradient, corner
    found = _with_motion(
        problem, state, wide, joint_shape_jacobian, joints, (low, first, last, high),
        gradient, matrix, arrow, shape_gradient, corner,
    )  # fmt: skip
    if points is not None and problem.scene is not None and problem.scene.rest is not None:
        add_rest(problem, points, (low, first, last, high), blocks, found[5])
    return found


def _keypoint_part(problem: Problem, geometry: Geometry, joint_shape_jacobian: Tensor) -> tuple[Tensor, ...]:
    p = problem
    residual = reprojection(geometry.keypoints, p.xy_px, p.weight, p.focal_px, p.center_px)
    _, slope = keypoint_loss(p, residual)
    root_slope = slope.sqrt()
    rows = projection_rows(geometry.keypoints, p.focal_px) * (root_slope * p.weight.sqrt().unsqueeze(-1)).unsqueeze(-1)
    step_jacobian = p.jacobian.keypoint_step_jacobian(geometry, rows).flatten(1, 2)  # [T, 34, 63]
    shape_jacobian = (rows @ p.jacobian.keypoint_shape_jacobian(geometry, joint_shape_jacobian)).flatten(
        1, 2
    )  # [T, 34, S]
    residual = (residual * root_slope).flatten(1).unsqueeze(-1)
    transposed = step_jacobian.mT
    return (
        (transposed @ residual).squeeze(-1), transposed @ step_jacobian, transposed @ shape_jacobian,
        (shape_jacobian.mT @ residual).squeeze(-1), shape_jacobian.mT @ shape_jacobian,
    )  # fmt: skip


def _add_pose_part(problem: Problem, state: State, gradient: Tensor, matrix: Tensor) -> None:
    """The pose prior's nearest component, and the limits that are overstepped."""
    pose = state.body_pose
    _, nearest = problem.prior.energy(pose)
    counts = problem.prior_weight * problem.prior.pull(pose, nearest)
    precision = counts[:, None, None] * problem.prior.precision[nearest]
    beyond = box_limits(pose, problem.limit_low, problem.limit_high, SIGMA_RAD)
    gradient[:, POSE] += torch.einsum("tij,tj->ti", precision, pose - problem.prior.mean[nearest]) + beyond / SIGMA_RAD
    matrix[:, POSE, POSE] += precision
    matrix.diagonal(dim1=-2, dim2=-1)[:, POSE] += (beyond != 0) / SIGMA_RAD**2


def _add_lean(lean_rad: float, axis: Tensor, state: State, gradient: Tensor, matrix: Tensor) -> None:
    residual = lean(state.root, axis, lean_rad)
    _, slope = geman_mcclure(residual.square(), residual.new_tensor(LEAN_SCALE**2))
    up = state.root[:, :, 1]  # a turn w moves it by w x up, and axis . (w x up) = w . (up x axis)
    row = torch.linalg.cross(up, axis) / lean_rad
    gradient[:, :3] += (slope * residual)[:, None] * row
    matrix[:, :3, :3] += slope[:, None, None] * row[:, :, None] * row[:, None]


def _add_anchor(anchor: Anchor, state: State, gradient: Tensor, matrix: Tensor) -> None:
    root, pose, translation = anchor.residuals(state)
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    # root = log(R R_guess^T): its derivative by a turn of R is the inverse left Jacobian at that vector.
    root_jacobian = torch.linalg.inv(left_jacobian(root * anchor.root_rad)) / anchor.root_rad[..., None]
    gradient[:, :3] += torch.einsum("tij,ti->tj", root_jacobian, root)
    matrix[:, :3, :3] += root_jacobian.mT @ root_jacobian
    gradient[:, POSE] += pose / anchor.pose_rad
    diagonal[:, POSE] += 1 / anchor.pose_rad**2
    gradient[:, TRANSLATION] += translation / anchor.translation_m
    diagonal[:, TRANSLATION] += 1 / anchor.translation_m**2


def _second_difference(values: Tensor) -> Tensor:
    return values[2:] - 2 * values[1:-1] + values[:-2]


def _second_difference_transposed(second: Tensor) -> Tensor:
    """The transpose of the second difference: [T - 2, ...] -> [T, ...]."""
    out = second.new_zeros(len(second) + 2, *second.shape[1:])
    out[:-2] += second
    out[1:-1] -= 2 * second
    out[2:] += second
    return out


def _with_motion(
    problem: Problem, state: State, wide: Geometry, joint_shape_jacobian: Tensor, joints: Tensor,
    edges: tuple[int, int, int, int],
    gradient: Tensor, matrix: Tensor, arrow: Tensor, shape_gradient: Tensor, corner: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Add acceleration of joints and of rotations; the last two results are the couplings over time.

    With x_t the joints and X_t their derivative, a second difference x_t - 2 x_{t+1} + x_{t+2} of weight w_t makes
    blocks X_t^T w X_t' times the product of two of (1, -2, 1).
    """
    low, first, last, high = edges
    assert problem.fps is not None
    count = len(state)
    inner = slice(first - low, last - low)
    prior, root_weight = problem.prior, problem.motion_weight**0.5
    factor = acceleration_factor(problem.fps) * root_weight
    sigma = acceleration_sigma(problem, state)
    step_jacobian = problem.jacobian.joint_step_jacobian(wide)
    if problem.scene is not None:
        seen = problem.scene.frames(slice(low, high))
        step_jacobian, joint_shape_jacobian = seen.in_shot(step_jacobian), seen.in_shot(joint_shape_jacobian)
    step_jacobian = (step_jacobian * (factor / sigma).unsqueeze(-1)).flatten(1, 2)  # [t, 72, 63]
    shape_jacobian = (joint_shape_jacobian * (factor / sigma).unsqueeze(-1)).flatten(1, 2)  # [t, 72, S]
    per_angle = factor / prior.angular_sigma  # [57]

    # All second differences of the window, and their weights: those of the inner frames are complete.
    follows = problem.follows(slice(low, high))
    linear, weight = _weighted(acceleration(joints[low:high], problem.fps, sigma).flatten(1), root_weight, follows)
    theta = state.theta[low:high][:, BODY_JOINTS].flatten(1)
    angular, angular_weight = _weighted(acceleration(theta, problem.fps, prior.angular_sigma), root_weight, follows)
    # a / size(shape): the shape moves the joints, and changes the size they are measured by.
    relative = problem.jacobian.size_gradient / problem.jacobian.size(state.shape)
    shape_second = _second_difference(shape_jacobian) - linear.unsqueeze(-1) * relative

    x = step_jacobian[inner]
    gradient += torch.einsum("tnd,tn->td", x, _second_difference_transposed(weight * linear)[inner])
    gradient[:, POSE] += _second_difference_transposed(angular_weight * angular)[inner] * per_angle
    arrow += x.mT @ _second_difference_transposed(weight.unsqueeze(-1) * shape_second)[inner]
    matrix += x.mT @ (_weight_of_frames(weight)[inner].unsqueeze(-1) * x)
    matrix.diagonal(dim1=-2, dim2=-1)[:, POSE] += _weight_of_frames(angular_weight)[inner] * per_angle**2

    # Second differences that begin in this piece, for the shape's own part.
    begins = slice(first - low, max(min(last, count - 2), first) - low)
    part = weight[begins].unsqueeze(-1) * shape_second[begins]
    shape_gradient[: len(part)] += torch.einsum("tns,tn->ts", part, linear[begins])
    corner[: len(part)] += part.mT @ shape_second[begins]

    offset = first - low
    ones = slice(offset, min(last, count - 1) - low)
    after = step_jacobian[offset + 1 : ones.stop + 1]
    next_one = x[: len(after)].mT @ (_weight_of_neighbours(weight)[ones].unsqueeze(-1) * after)
    next_one.diagonal(dim1=-2, dim2=-1)[:, POSE] += _weight_of_neighbours(angular_weight)[ones] * per_angle**2
    after = step_jacobian[begins.start + 2 : begins.stop + 2]
    next_two = x[: len(after)].mT @ (weight[begins].unsqueeze(-1) * after)
    next_two.diagonal(dim1=-2, dim2=-1)[:, POSE] += angular_weight[begins] * per_angle**2
    return gradient, matrix, arrow, shape_gradient, corner, next_one, next_two


def _weighted(residual: Tensor, root_weight: float, follows: Tensor | float) -> tuple[Tensor, Tensor]:
    """Residuals [t, 3 n] of n vectors as they count, and the robust loss's slope (times `follows`) for each number."""
    _, slope = charbonnier(residual.unflatten(1, (-1, 3)).square().sum(-1), MOTION_SCALE)
    return root_weight * residual, (slope * follows).repeat_interleave(3, dim=1)


def _weight_of_frames(weight: Tensor) -> Tensor:
    """Weights of second differences [t - 2, n] -> what they make of each frame's own block: squares of (1, -2, 1)."""
    out = weight.new_zeros(len(weight) + 2, weight.shape[1])
    out[:-2] += weight
    out[1:-1] += 4 * weight
    out[2:] += weight
    return out


def _weight_of_neighbours(weight: Tensor) -> Tensor:
    """The same for frames t and t + 1, [t - 1, n]: a first with a middle, or a middle with a last, each -2."""
    out = weight.new_zeros(len(weight) + 1, weight.shape[1])
    out[:-1] -= 2 * weight
    out[1:] -= 2 * weight
    return out
