"""Fingers after the body's fit: each hand by itself, all frames of a segment together.

The unknowns of a frame are a small rotation of the palm beside the body's wrist, a shift that
nobody keeps (the wrist's own error, and the hand's size, which looks like depth) and the 25 angles
of `Fingers`. What pulls on them:

- the 2D keypoints, with their stated errors and what a hand of average proportions leaves
  unexplained, robustly;
- the network's 3D landmarks along the line of sight, weakly: they say which way a finger bends, not
  by how much;
- a hand at rest: angles are Gaussian about those of a relaxed hand, an end joint bends with the one
  before it;
- limits of the joints, softly; and angles that wander over time like a random walk.

Where nothing is seen, the last two terms make the hand relax within a fraction of a second, with
deviations that grow to those of any hand. The solver is Gauss-Newton with closed-form derivatives:
an angle about an axis a at a joint P moves what hangs on it, q, by a x (q - P).
"""

import itertools
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.fingers import DOF_JOINT, TO_MEDIAPIPE, WRISTS
from fitting.body.kinematics import PARENTS
from fitting.body.rotations import (
    axis_angle_to_quaternion,
    matrix_to_axis_angle,
    nearest_rotation,
    rotation_matrices,
)
from fitting.camera import Camera
from fitting.fits import HandFit
from fitting.keypoints.hands import KNUCKLES, UNMODELLED_M, HandObservations
from fitting.solver.arrow import BandFactor
from fitting.solver.jacobian import cross_matrix, left_jacobian
from fitting.solver.terms.reprojection import project, projection_rows
from fitting.solver.terms.term import geman_mcclure
from pose2d.base.threads import single_thread

ROBUST = 3.0  # stds at which a keypoint counts half of its square
# Beside the body's wrist: radians, metres across the line of sight, and share of the distance along
# it.
WRIST_STD_RAD = 0.3
SHIFT_STD_M = 0.04
DEPTH_STD_SHARE = 0.1
# of an angle in a second (bench/fingers.py, camera 1); shifts wander as far as they may be off
WANDER_DEG = 90.0
LIMIT_STD_DEG = 3.0
FIRST_DEPTH = 50.0  # on the weight of landmarks, where a search begins
# Errors of neighbouring frames are alike: stated deviations take so many frames a second for
# independent.
INDEPENDENT_FRAMES_PER_SECOND = 3.0
# What the equations cannot know (one optimum, a hand of other proportions, landmarks that err
# together): on deviations of joints and of keypoints. Chosen on rendered hands and on half of the
# recording of bench/fingers.py.
JOINT_STD_FACTOR, POINT_STD_FACTOR = 1.4, 1.75
# Who is on the hands: the line from toes to wrists is level within this and so long, hips and neck
# are higher over the floor than this and wrists lower (tests/fitting/test_motion.py has planks, all
# fours, downward dogs, and others).
ON_HANDS_RAD = 0.5
ON_HANDS_M = 0.45
LOWEST_TRUNK_M = 0.08
HIGHEST_HAND_M = 0.15
_BLOCK = 1000  # frames solved together
_ITERATIONS, _CONVERGED = 20, 1e-3
_RIGID, _ANGLES = 6, 25

# Spread and flexion of the first joint, of the second, flexion of the third, in degrees, for
# SMPL-H's order of fingers. Ranges are those of textbooks on the hand; mean and deviations of a
# relaxed hand are chosen, not fitted.
RELAXED_DEG = np.array(
    [
        [0, 18, 0, 28, 15],
        [0, 22, 0, 32, 17],
        [0, 30, 0, 34, 18],
        [0, 26, 0, 34, 18],
        [0, 8, 0, 12, 15],
    ],
    np.float64,
)
PRIOR_STD_DEG = np.array([[8, 30, 1.5, 32, 12]] * 4 + [[20, 20, 10, 22, 28]], np.float64)
LIMITS_DEG = np.array(
    [[(-25, 25), (-30, 95), (-3, 3), (-8, 115), (-12, 80)]] * 4
    + [[(-50, 45), (-40, 60), (-25, 25), (-25, 70), (-30, 90)]],
    np.float64,
)
END_WITH_MIDDLE = (
    0.6  # an end joint flexes by this share of the one before it; the thumb's does not
)


class _Hand(NamedTuple):
    """One hand of T frames: what is known of it."""

    wrist: Tensor  # [T, 3] metres in the camera frame
    rotation: Tensor  # [T, 3, 3] of the wrist, from the T-pose to the camera frame
    joints: Tensor  # [5, 3, 3] in the T-pose, from the wrist
    tips: Tensor  # [5, 3]
    offsets: Tensor  # [21, 3] from joints and tips to keypoints
    axes: Tensor  # [5, 5, 3] of the angles in the T-pose
    focal_px: Tensor  # [T, 2]
    center_px: Tensor  # [T, 2]
    xy_px: Tensor  # [T, 21, 2] of a perfect lens
    weight: Tensor  # [T, 21] 1 / px^2; 0: not seen
    depth_m: Tensor  # [T, 21] from the wrist, along the line of sight
    depth_weight: Tensor  # [T] 1 / m^2
    line: Tensor  # [T, 3] unit vectors of the line of sight
    palm_rad: Tensor  # [T, 3] where the palm's search begins

    def rows(self, some: slice) -> "_Hand":
        return _Hand(
            *(
                v if n in ("joints", "tips", "offsets", "axes") else v[some]
                for n, v in self._asdict().items()
            )
        )


class _Prior(NamedTuple):
    """Gaussian of all 31 unknowns of a frame, limits of angles, and how far they go from a frame to
    the next.
    """

    mean: Tensor  # [31]
    precision: Tensor  # [31, 31], or [T, 31, 31]
    low: Tensor  # [25]
    high: Tensor  # [25]
    step_precision: Tensor  # [31]


@single_thread()
def fit_hands(
    seen: HandObservations,
    params: BodyParams,
    camera: Camera,
    body: Body,
    fps: float,
    segment: np.ndarray | None = None,
) -> HandFit:
    """seen: a row per frame of `params`, by `camera`; segment [T]: frames with one number follow
    each other.
    """
    fingers = body.with_fingers().to(dtype=torch.float64)
    frames = len(params)
    shape = torch.nn.functional.pad(
        params.shape.reshape(-1, params.shape.shape[-1])[0],
        (0, body.shape_size - params.shape.shape[-1]),
    )
    size = float(params.size.reshape(-1)[0])
    placement = body.placement(rotation_matrices(params.pose), shape.to(body.dtype))
    wrists = body.at(replace(params, hands=None)).joints[:, list(WRISTS)].double()
    rest_wrists = placement.rest_joints[list(WRISTS)].double()
    rest, tips = fingers.rest(shape.double())
    palm = (
        fingers.flat_points(placement.rest_joints, shape.double())[:, KNUCKLES]
        .norm(dim=-1)
        .mean(-1)
    )
    larger = size * palm / fingers.flat_points(body.rest_joints)[:, KNUCKLES].norm(dim=-1).mean(-1)
    focal, center = (
        torch.tensor(v, dtype=torch.float64).expand(frames, 2)
        for v in (camera.focal_px, camera.center_px)
    )
    angles = torch.zeros(frames, 2, 5, 5, dtype=torch.float64)
    variance = torch.zeros(frames, 2, 5, 5)
    wrist_rad = params.pose[:, list(WRISTS)].double()
    point_std = torch.zeros(frames, 2, 21)
    for side, joint in enumerate(WRISTS):
        hand = _Hand(
            wrists[:, side],
            placement.rotation[:, joint].double(),
            size * (rest[side] - rest_wrists[side]),
            size * (tips[side] - rest_wrists[side]),
            larger[side] * fingers.offsets[side],
            fingers.axes[side],
            focal,
            center,
            seen.xy_px[:, side].double(),
            seen.weight[:, side].double(),
            larger[side] * seen.depth_m[:, side].double(),
            seen.depth_weight[:, side].double() / larger[side] ** 2,
            seen.line[:, side].double(),
            seen.palm_rad[:, side].double(),
        )
        for rows in _parts(segment, frames):
            bent, palm_rotation, unsure, std = solve_hand(hand.rows(rows), fps)
            angles[rows, side] = bent
            variance[rows, side] = unsure.float()
            point_std[rows, side] = std.float()
            above = placement.rotation[rows, PARENTS[joint]].double()
            turn = matrix_to_axis_angle(nearest_rotation(above.mT @ palm_rotation))
            wrist_rad[rows, side] = torch.where(
                seen.visible[rows, side, None], turn, wrist_rad[rows, side]
            )
    of_joints = torch.stack(
        [variance[..., :2].sum(-1), variance[..., 2:4].sum(-1), variance[..., 4]], -1
    )
    return HandFit(
        pose_rad=fingers.pose(angles).float().numpy(),
        std_deg=JOINT_STD_FACTOR * of_joints.clamp(min=0).sqrt().rad2deg().flatten(1).numpy(),
        seen=seen.visible.numpy(),
        wrist_rad=wrist_rad.float().numpy(),
        point_std_mm=1000 * POINT_STD_FACTOR * point_std.numpy(),
    )


def flat_palms(params: BodyParams, body: Body, up: Tensor) -> BodyParams:
    """Palms of people on their hands lie flat with the fingers ahead: wrists bend back and forearms
    turn, which no keypoint of the body shows and which moves none. up [T, 3]: roughly, in each
    frame's camera; it tells who is on the hands: wrists as low as the toes and far from them, hips
    and shoulders above both. The floor is the plane through wrists and toes, so neither gravity nor
    a floor need be known.
    """
    at = body.at(replace(params, hands=None)).joints / params.size
    toes, wrists, trunk = (
        at[:, list(part)] for part in ((10, 11), WRISTS, (0, 12))
    )  # trunk: pelvis and neck
    ahead = wrists.mean(1) - toes.mean(1)
    far_m = ahead.norm(dim=-1)
    ahead = ahead / far_m.clamp(min=1e-6)[:, None]
    level = (ahead * up).sum(-1, keepdim=True)
    normal = torch.nn.functional.normalize(up - level * ahead, dim=-1)
    over_m = torch.einsum(
        "tnc,tc->tn", torch.cat((trunk, wrists), 1) - toes.mean(1, keepdim=True), normal
    )
    low = ON_HANDS_RAD - torch.asin(level.squeeze(-1).clamp(-1, 1)).abs()
    trunk_m = over_m[:, :2].amin(1) - LOWEST_TRUNK_M
    far_m = far_m - ON_HANDS_M
    bears = torch.stack((low / 0.2, far_m / 0.1, trunk_m / 0.05)).amin(0)
    share = torch.minimum(bears[:, None], (HIGHEST_HAND_M - over_m[:, 2:].abs()) / 0.05).clamp(
        0, 1
    )  # [T, 2]
    if not bool(share.any()):
        return params
    placed = body.placement(
        rotation_matrices(params.pose), body.v_template.new_zeros(body.shape_size)
    ).rotation
    pose = params.pose.clone()
    for side, joint in enumerate(WRISTS):
        along = (
            ahead if side == 0 else -ahead
        )  # the T-pose has the left hand along +x, palms along -y
        flat = torch.stack((along, normal, torch.linalg.cross(along, normal)), -1)
        elbow = PARENTS[joint]
        on = share[:, side, None]
        bend = axis_angle_to_quaternion(matrix_to_axis_angle(placed[:, elbow].mT @ flat))
        axis = torch.nn.functional.normalize(
            body.rest_joints[joint] - body.rest_joints[elbow], dim=0
        )
        half = torch.atan(
            (bend[:, :3] @ axis) / bend[:, 3].where(bend[:, 3].abs() > 1e-6, bend.new_tensor(1e-6))
        )
        twisted = rotation_matrices(
            on * 2 * half[:, None] * axis
        )  # about the forearm: the elbow's joint does it
        turned = placed[:, joint] @ rotation_matrices(
            on * matrix_to_axis_angle(placed[:, joint].mT @ flat)
        )
        fore = matrix_to_axis_angle(rotation_matrices(pose[:, elbow]) @ twisted)
        wrist = matrix_to_axis_angle(nearest_rotation((placed[:, elbow] @ twisted).mT @ turned))
        pose[:, elbow], pose[:, joint] = (
            fore.where(on > 0, pose[:, elbow]),
            wrist.where(on > 0, pose[:, joint]),
        )
    return replace(params, pose=pose)


def _parts(segment: np.ndarray | None, frames: int) -> list[slice]:
    """Frames that follow each other, a bounded number at a time."""
    ends = np.flatnonzero(np.diff(segment)) + 1 if segment is not None else np.zeros(0, int)
    edges = [0, *ends.tolist(), frames]
    return [
        slice(first, min(first + _BLOCK, b))
        for a, b in itertools.pairwise(edges)
        for first in range(a, b, _BLOCK)
    ]


class _Posed(NamedTuple):
    """A hand's 21 keypoints and how they move with the unknowns."""

    points: Tensor  # [T, 21, 3] metres in the camera frame
    jacobian: Tensor  # [T, 21, 3, 31]; empty where it is not wanted
    rotation: Tensor  # [T, 3, 3] of the palm


def solve_hand(hand: _Hand, fps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Angles [T, 5, 5], the palm's rotation [T, 3, 3], the angles' variance [T, 5, 5] rad^2 and
    deviations of keypoints [T, 21] metres; from the palm that the 3D landmarks show, where it is
    seen, and a relaxed hand."""
    prior = _prior(hand, fps)
    unknown = prior.mean.expand(len(hand.wrist), -1).clone()
    turn = matrix_to_axis_angle(
        rotation_matrices(hand.palm_rad) @ hand.rotation.mT
    )  # from the body's palm
    unknown[:, :3] = turn * (hand.depth_weight > 0)[:, None]
    # At first landmarks count as if they were exact to a few millimetres: a finger that points at
    # the camera and one that is bent look alike, and no search gets from the one to the other.
    sure = hand._replace(depth_weight=FIRST_DEPTH * hand.depth_weight)
    unknown = _search(sure, prior, unknown, first=True)
    unknown = _search(hand, prior, unknown, first=False)
    posed = place(hand, unknown)
    doubted = prior._replace(
        step_precision=prior.step_precision * min(1.0, INDEPENDENT_FRAMES_PER_SECOND / fps)
    )
    covariance = _factor(hand, doubted, unknown, posed, first=False)[0].marginals()
    relative = posed.jacobian - posed.jacobian[:, :1]
    variance = torch.einsum("tkcd,tde,tkce->tk", relative, covariance, relative)
    angles, own = (
        value[:, _RIGID:].unflatten(1, (5, 5))
        for value in (unknown, covariance.diagonal(dim1=-2, dim2=-1))
    )
    return angles, posed.rotation, own, (variance + 3 * UNMODELLED_M**2).sqrt()


def _prior(hand: _Hand, fps: float) -> _Prior:
    std = torch.from_numpy(np.radians(PRIOR_STD_DEG)).flatten()
    mean = torch.from_numpy(np.radians(RELAXED_DEG)).flatten()
    shape = torch.eye(_ANGLES, dtype=torch.float64)
    for finger in range(4):  # rows of `shape` are what is independent
        shape[5 * finger + 4, 5 * finger + 3] = -END_WITH_MIDDLE
    of_angles = shape.T @ torch.diag(std**-2) @ shape
    depth = hand.wrist[:, 2].clamp(min=0.1)
    precision = torch.zeros(len(depth), _RIGID + _ANGLES, _RIGID + _ANGLES, dtype=torch.float64)
    rigid = torch.stack(
        [torch.full_like(depth, WRIST_STD_RAD**-2)] * 3
        + [torch.full_like(depth, SHIFT_STD_M**-2)] * 2
        + [(DEPTH_STD_SHARE * depth) ** -2],
        -1,
    )
    precision[:, :_RIGID, :_RIGID] = torch.diag_embed(rigid)
    precision[:, _RIGID:, _RIGID:] = of_angles
    wander = torch.full((_RIGID + _ANGLES,), np.radians(WANDER_DEG), dtype=torch.float64)
    wander[:3] = WRIST_STD_RAD
    wander[3:5] = SHIFT_STD_M
    wander[5] = DEPTH_STD_SHARE * float(depth.median())
    low, high = torch.from_numpy(np.radians(LIMITS_DEG)).flatten(0, 1).unbind(-1)
    return _Prior(
        torch.cat((torch.zeros(_RIGID, dtype=torch.float64), mean)),
        precision,
        low,
        high,
        fps / wander**2,
    )


def place(hand: _Hand, unknown: Tensor) -> _Posed:
    """Keypoints and their derivatives at unknowns [T, 31]."""
    frames = len(unknown)
    turn = unknown[:, :3]
    shift = unknown[:, 3:_RIGID]
    angles = unknown[:, _RIGID:].unflatten(1, (5, 5))
    palm = rotation_matrices(turn) @ hand.rotation
    wrist = hand.wrist + shift
    local = rotation_matrices(angles.unsqueeze(-1) * hand.axes)  # [T, 5, 5, 3, 3]
    above = palm.unsqueeze(1).expand(frames, 5, 3, 3)
    axes = []
    at = wrist.unsqueeze(1).expand(-1, 5, -1)
    joints = []
    turned = []
    before = torch.zeros(5, 3, dtype=unknown.dtype)
    for number, joint in enumerate(DOF_JOINT):
        if number == 0 or DOF_JOINT[number - 1] != joint:
            at = at + (above @ (hand.joints[:, joint] - before).unsqueeze(-1)).squeeze(-1)
            before = hand.joints[:, joint]
            joints.append(at)
            turned.append(above)
        axes.append((above @ hand.axes[:, number].unsqueeze(-1)).squeeze(-1))
        above = above @ local[:, :, number]
    joints.append(at + (above @ (hand.tips - before).unsqueeze(-1)).squeeze(-1))
    turned.append(above)
    order = list(TO_MEDIAPIPE)
    pivots = torch.stack(joints, 2)  # [T, 5, 4, 3]: joints and tip
    offsets = torch.empty(5, 4, 3, dtype=unknown.dtype)
    offsets[order] = hand.offsets[1:].unflatten(0, (5, 4))
    ends = pivots + (torch.stack(turned, 2) @ offsets.unsqueeze(-1)).squeeze(-1)
    first = (wrist + (palm @ hand.offsets[0]))[:, None]
    points = torch.cat((first, ends[:, order].flatten(1, 2)), 1)
    jacobian = unknown.new_zeros(frames, 21, 3, _RIGID + _ANGLES)
    jacobian[..., :3] = cross_matrix(wrist.unsqueeze(1) - points) @ left_jacobian(turn).unsqueeze(1)
    jacobian[..., 3:_RIGID] = torch.eye(3, dtype=unknown.dtype)
    moved = unknown.new_zeros(frames, 5, 4, 3, 5, 5)  # finger, its points, axis; finger, its angles
    for number, joint in enumerate(DOF_JOINT):
        arm = ends[:, :, joint + 1 :] - pivots[:, :, joint : joint + 1]
        lever = torch.linalg.cross(axes[number].unsqueeze(2).expand_as(arm), arm)
        for finger in range(5):
            moved[:, finger, joint + 1 :, :, finger, number] = lever[:, finger]
    jacobian[:, 1:, :, _RIGID:] = moved[:, order].flatten(1, 2).flatten(3)
    return _Posed(points, jacobian, palm)


def _residuals(hand: _Hand, posed: _Posed, *, first: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Whitened pixels [T, 21, 2] and depths [T, 20], and the pixels' robust losses with their
    slopes [T, 21]. At first keypoints count squared."""
    pixels = hand.weight.sqrt().unsqueeze(-1) * (
        project(posed.points, hand.focal_px, hand.center_px) - hand.xy_px
    )
    away = torch.einsum("tkc,tc->tk", posed.points - posed.points[:, :1], hand.line) - hand.depth_m
    depth = hand.depth_weight.sqrt()[:, None] * away[:, 1:]
    square = pixels.square().sum(-1)
    loss, slope = (square, torch.ones_like(square)) if first else geman_mcclure(square, ROBUST**2)
    return pixels, depth, loss, slope


def _cost(hand: _Hand, prior: _Prior, unknown: Tensor, posed: _Posed, *, first: bool) -> Tensor:
    _, depth, loss, _ = _residuals(hand, posed, first=first)
    away = unknown - prior.mean
    over = _over(prior, unknown) / np.radians(LIMIT_STD_DEG)
    steps = prior.step_precision.sqrt() * unknown.diff(dim=0)
    rest = torch.einsum("td,tde,te->", away, prior.precision, away)
    return (
        loss.sum() + depth.square().sum() + rest + over.square().sum() + steps.square().sum()
    ) / 2


def _over(prior: _Prior, unknown: Tensor) -> Tensor:
    """[T, 25] how far angles are beyond their limits."""
    angles = unknown[:, _RIGID:]
    return angles - angles.clamp(prior.low, prior.high)


def _factor(
    hand: _Hand, prior: _Prior, unknown: Tensor, posed: _Posed, *, first: bool, damping: float = 0.0
) -> tuple[BandFactor, Tensor]:
    """The Gauss-Newton matrix, factorised, and the gradient [T, 31]."""
    pixels, depth, _, slope = _residuals(hand, posed, first=first)
    root = (hand.weight * slope).sqrt()
    rows = projection_rows(posed.points, hand.focal_px) * root[..., None, None]
    by_pixel = (rows @ posed.jacobian).flatten(1, 2)
    relative = (posed.jacobian - posed.jacobian[:, :1])[:, 1:]
    by_depth = hand.depth_weight.sqrt()[:, None, None] * torch.einsum(
        "tkcd,tc->tkd", relative, hand.line
    )
    jacobian = torch.cat((by_pixel, by_depth), 1)
    residual = torch.cat(((pixels * slope.sqrt().unsqueeze(-1)).flatten(1), depth), 1)
    over = _over(prior, unknown)
    steps = prior.step_precision * unknown.diff(dim=0)
    gradient = torch.einsum("tnd,tn->td", jacobian, residual)
    gradient = gradient + torch.einsum("tde,te->td", prior.precision, unknown - prior.mean)
    gradient[:, _RIGID:] += over / np.radians(LIMIT_STD_DEG) ** 2
    gradient[:-1] -= steps
    gradient[1:] += steps
    matrix = jacobian.mT @ jacobian + prior.precision
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    diagonal[:, _RIGID:] += (over != 0) / np.radians(LIMIT_STD_DEG) ** 2
    diagonal[:-1] += prior.step_precision
    diagonal[1:] += prior.step_precision
    diagonal *= 1 + damping
    frames, size = unknown.shape
    off = -torch.diag(prior.step_precision).expand(max(frames - 1, 0), size, size)
    return BandFactor(matrix, off, unknown.new_zeros(max(frames - 2, 0), size, size)), gradient


def _search(hand: _Hand, prior: _Prior, unknown: Tensor, *, first: bool) -> Tensor:
    """Levenberg-Marquardt."""
    posed = place(hand, unknown)
    cost = float(_cost(hand, prior, unknown, posed, first=first))
    damping = 1e-2
    for _ in range(_ITERATIONS):
        factor, gradient = _factor(hand, prior, unknown, posed, first=first, damping=damping)
        trial = unknown - factor.solve(gradient.unsqueeze(-1)).squeeze(-1)
        there = place(hand, trial)
        now = float(_cost(hand, prior, trial, there, first=first))
        if now >= cost:
            damping *= 10
            if damping > 1e4:
                break
            continue
        gained = cost - now
        cost = now
        unknown = trial
        posed = there
        damping = damping / 5
        if gained < _CONVERGED * len(unknown):
            break
    return unknown
