"""Fit the fingers of both hands of a person whose body is fitted."""

import itertools
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.fingers import WRISTS
from fitting.body.kinematics import PARENTS
from fitting.body.rotations import matrix_to_axis_angle, nearest_rotation, rotation_matrices
from fitting.camera import Camera
from fitting.fits import HandFit
from fitting.hands.pose import Hand
from fitting.hands.solve import solve_hand
from fitting.keypoints.hands import KNUCKLES, HandObservations
from pose2d.base.threads import single_thread

# What the equations cannot know (one optimum, a hand of other proportions, landmarks that err
# together): on deviations of joints and of keypoints. Chosen on rendered hands and on half of the
# recording of bench/fingers.py.
JOINT_STD_FACTOR = 1.4
POINT_STD_FACTOR = 1.75
_BLOCK = 1000  # frames solved together


@single_thread()
def fit_hands(
    observations: HandObservations,
    params: BodyParams,
    camera: Camera,
    body: Body,
    fps: float,
    segment: np.ndarray | None = None,
) -> HandFit:
    """Return the fingers of both hands, and the wrists as the palms show them.

    observations: a row per frame of `params`, by `camera`; segment [T]: frames with one number
    follow each other.
    """
    frames = len(params)
    rotation = body.placement(rotation_matrices(params.pose), _full_shape(params, body)).rotation
    angles = torch.zeros(frames, 2, 5, 5, dtype=torch.float64)
    variance = torch.zeros(frames, 2, 5, 5)
    wrist_rad = params.pose[:, list(WRISTS)].double()
    point_std_m = torch.zeros(frames, 2, 21)
    hands = _place_hands(observations, params, camera, body)
    for side, joint in enumerate(WRISTS):
        for rows in _split_frames(segment, frames):
            solved = solve_hand(hands[side].rows(rows), fps)
            angles[rows, side] = solved.angles
            variance[rows, side] = solved.variance.float()
            point_std_m[rows, side] = solved.point_std_m.float()
            forearm = rotation[rows, PARENTS[joint]].double()
            wrist = matrix_to_axis_angle(nearest_rotation(forearm.mT @ solved.palm))
            is_seen = observations.visible[rows, side, None]
            wrist_rad[rows, side] = torch.where(is_seen, wrist, wrist_rad[rows, side])
    std_rad = _joint_variance(variance).clamp(min=0).sqrt()
    return HandFit(
        pose_rad=body.with_fingers().to(dtype=torch.float64).pose(angles).float().numpy(),
        std_deg=JOINT_STD_FACTOR * std_rad.rad2deg().flatten(1).numpy(),
        seen=observations.visible.numpy(),
        wrist_rad=wrist_rad.float().numpy(),
        point_std_mm=1000 * POINT_STD_FACTOR * point_std_m.numpy(),
    )


def _full_shape(params: BodyParams, body: Body) -> Tensor:
    """Return the shape of the first frame, padded with zeros to all directions of the body."""
    shape = params.shape.reshape(-1, params.shape.shape[-1])[0]
    missing = body.shape_size - len(shape)
    return torch.nn.functional.pad(shape, (0, missing)).to(body.dtype)


def _place_hands(
    observations: HandObservations, params: BodyParams, camera: Camera, body: Body
) -> tuple[Hand, Hand]:
    """Return what is known of the left and the right hand, in float64."""
    frames = len(params)
    fingers = body.with_fingers().to(dtype=torch.float64)
    shape = _full_shape(params, body)
    size = float(params.size.reshape(-1)[0])
    placement = body.placement(rotation_matrices(params.pose), shape)
    wrists = body.at(replace(params, hands=None)).joints[:, list(WRISTS)].double()
    rest_wrists = placement.rest_joints[list(WRISTS)].double()
    rest_joints, rest_tips = fingers.rest(shape.double())
    palm_m = _palm_length(fingers.flat_points(placement.rest_joints, shape.double()))
    mean_palm_m = _palm_length(fingers.flat_points(body.rest_joints))
    scale = size * palm_m / mean_palm_m
    focal_px = torch.tensor(camera.focal_px, dtype=torch.float64).expand(frames, 2)
    center_px = torch.tensor(camera.center_px, dtype=torch.float64).expand(frames, 2)

    def place_hand(side: int) -> Hand:
        return Hand(
            wrist=wrists[:, side],
            rotation=placement.rotation[:, WRISTS[side]].double(),
            joints=size * (rest_joints[side] - rest_wrists[side]),
            tips=size * (rest_tips[side] - rest_wrists[side]),
            offsets=scale[side] * fingers.offsets[side],
            axes=fingers.axes[side],
            focal_px=focal_px,
            center_px=center_px,
            xy_px=observations.xy_px[:, side].double(),
            weight=observations.weight[:, side].double(),
            depth_m=scale[side] * observations.depth_m[:, side].double(),
            depth_weight=observations.depth_weight[:, side].double() / scale[side] ** 2,
            line=observations.line[:, side].double(),
            palm_rad=observations.palm_rad[:, side].double(),
        )

    return place_hand(0), place_hand(1)


def _palm_length(points: Tensor) -> Tensor:
    """Return the mean distance [2] of the knuckles from the wrist."""
    return points[:, KNUCKLES].norm(dim=-1).mean(-1)


def _joint_variance(variance: Tensor) -> Tensor:
    """Return the variance [T, 2, 5, 3] of each joint's rotation from that of its angles
    [T, 2, 5, 5].
    """
    first = variance[..., :2].sum(-1)
    second = variance[..., 2:4].sum(-1)
    return torch.stack([first, second, variance[..., 4]], -1)


def _split_frames(segment: np.ndarray | None, frames: int) -> list[slice]:
    """Return frames that follow each other, a bounded number at a time."""
    ends = np.zeros(0, int) if segment is None else np.flatnonzero(np.diff(segment)) + 1
    edges = [0, *ends.tolist(), frames]
    return [
        slice(first, min(first + _BLOCK, end))
        for start, end in itertools.pairwise(edges)
        for first in range(start, end, _BLOCK)
    ]
