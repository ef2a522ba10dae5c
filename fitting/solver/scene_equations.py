"""What floor and resting points add to the normal equations: closed-form derivatives of `scene_terms`' residuals.

With y_t the points in the shot's axes, X_t their derivative by the frame's step and A_t by the shape, a resting pair of
weight w adds

    X_t^T w X_t  and  X_{t+1}^T w X_{t+1}  to the frames' own blocks,      -X_t^T w X_{t+1}  to their coupling,
    X^T w (A_{t+1} - A_t)  with either sign to the arrow,      (A_{t+1} - A_t)^T w (A_{t+1} - A_t)  to the corner.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.solver.jacobian import Geometry
from fitting.solver.problem import Problem, geman_mcclure
from fitting.solver.scene_terms import FLOOR_SCALE, REST_SCALE, floor_residuals, rest_residuals


@dataclass(frozen=True)
class Blocks:
    """Parts of the normal equations of some frames, added to in place."""

    gradient: Tensor  # [T, 63]
    matrix: Tensor  # [T, 63, 63]
    arrow: Tensor  # [T, 63, S]
    shape_gradient: Tensor  # [T, S]
    corner: Tensor  # [T, S, S]


@dataclass(frozen=True)
class ScenePoints:
    """The points of some frames in the shot's axes, and their derivatives."""

    place: Tensor  # [T, n, 3]
    step_jacobian: Tensor  # [T, n, 3, 63]
    shape_jacobian: Tensor  # [T, n, 3, S]

    def frames(self, index: slice) -> "ScenePoints":
        return ScenePoints(self.place[index], self.step_jacobian[index], self.shape_jacobian[index])


def points_of(
    problem: Problem, wide: Geometry, joint_shape_jacobian: Tensor, low: int, high: int
) -> ScenePoints | None:
    """Of frames low .. high, whose geometry is `wide`; None where nothing rests and there is no floor."""
    scene = problem.scene
    if scene is None or (scene.rest is None and not scene.has_floor):
        return None
    scene, jacobian = scene.frames(slice(low, high)), problem.jacobian
    step = jacobian.some_keypoints_step_jacobian(wide, scene.points)
    shape = jacobian.some_keypoints_shape_jacobian(wide, joint_shape_jacobian, scene.points)
    return ScenePoints(scene.in_shot(wide.keypoints[:, scene.points]), scene.in_shot(step), scene.in_shot(shape))


def add_floor(problem: Problem, points: ScenePoints, blocks: Blocks) -> None:
    """problem: of the same frames as `points` and `blocks`."""
    scene = problem.scene
    assert scene is not None
    assert scene.up is not None
    residual, share = floor_residuals(points.place, scene, problem.jacobian.point_lift[list(scene.points)])
    root_slope = geman_mcclure(residual.square(), residual.new_tensor(FLOOR_SCALE**2))[1].sqrt()
    share, residual = root_slope * share, root_slope * residual
    step = torch.einsum("tn,c,tncd->tnd", share, scene.up, points.step_jacobian)
    shape = torch.einsum("tn,c,tncs->tns", share, scene.up, points.shape_jacobian)
    blocks.gradient.add_(torch.einsum("tnd,tn->td", step, residual))
    blocks.matrix.add_(step.mT @ step)
    blocks.arrow.add_(step.mT @ shape)
    blocks.shape_gradient.add_(torch.einsum("tns,tn->ts", shape, residual))
    blocks.corner.add_(shape.mT @ shape)


def add_rest(
    problem: Problem, points: ScenePoints, edges: tuple[int, int, int, int], blocks: Blocks, next_one: Tensor
) -> None:
    """points: of frames low .. high; blocks and next_one: of first .. last (`edges`), so a frame's both neighbours are
    among the points."""
    low, first, last, high = edges
    scene, fps = problem.scene, problem.fps
    assert scene is not None
    assert fps is not None
    residual, share = rest_residuals(points.place, scene.frames(slice(low, high)), fps)
    root_slope = geman_mcclure(residual.square().sum(-1), residual.new_tensor(REST_SCALE**2))[1].sqrt()
    share = (root_slope * share).repeat_interleave(3, dim=1)  # [t - 1, 3 n]
    residual = (root_slope.unsqueeze(-1) * residual).flatten(1)
    step, shape = points.step_jacobian.flatten(1, 2), points.shape_jacobian.flatten(1, 2)  # [t, 3 n, 63], [t, 3 n, S]
    shape_difference = share.unsqueeze(-1) * (shape[1:] - shape[:-1])

    inner = slice(first - low, last - low)
    x = step[inner]
    blocks.gradient.add_(torch.einsum("tnd,tn->td", x, _difference_transposed(share * residual)[inner]))
    blocks.arrow.add_(x.mT @ _difference_transposed(share.unsqueeze(-1) * shape_difference)[inner])
    weight = share.square()
    around = torch.nn.functional.pad(weight, (0, 0, 1, 0)) + torch.nn.functional.pad(weight, (0, 0, 0, 1))
    blocks.matrix.add_(x.mT @ (around[inner].unsqueeze(-1) * x))
    begins = slice(first - low, min(last, len(problem) - 1) - low)  # pairs that begin in this piece
    count = begins.stop - begins.start
    next_one.sub_(step[begins].mT @ (weight[begins].unsqueeze(-1) * step[begins.start + 1 : begins.stop + 1]))
    blocks.shape_gradient[:count].add_(torch.einsum("tns,tn->ts", shape_difference[begins], residual[begins]))
    blocks.corner[:count].add_(shape_difference[begins].mT @ shape_difference[begins])


def _difference_transposed(difference: Tensor) -> Tensor:
    """The transpose of y_{t+1} - y_t: [t - 1, ...] -> [t, ...]."""
    out = difference.new_zeros(len(difference) + 1, *difference.shape[1:])
    out[1:] += difference
    out[:-1] -= difference
    return out
