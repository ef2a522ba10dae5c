"""Render hands with known joint angles and read them."""

from typing import NamedTuple

import numpy as np
import torch

from bench.lib.hand_recordings import stated_px
from fitting.body import Body
from fitting.body.fingers import TO_MEDIAPIPE
from fitting.camera import Camera
from fitting.hands.prior import LIMITS_DEG, PRIOR_STD_DEG, RELAXED_DEG
from fitting.render import Mesh, render
from pose2d.hands import (
    Look,
    look,
    region_around,
)

SIZE = 360


class Rendered(NamedTuple):
    """N images of one hand each."""

    seen: Look
    std_px: np.ndarray  # [N, 21]
    side: np.ndarray  # [N]
    palm: np.ndarray  # [N, 3, 3] from the T-pose to the camera
    angles: np.ndarray  # [N, 5, 5] radians
    points: np.ndarray  # [N, 21, 3] metres in the camera frame: wrist, joints and tips


CAMERA = Camera((700.0, 700.0), (SIZE / 2, SIZE / 2), (SIZE, SIZE))


def rendered(count: int, body: Body) -> Rendered:
    rng = np.random.default_rng(5)
    fingers = body.with_fingers().to(dtype=torch.float64)
    looks = []
    stds = []
    sides = []
    palms = []
    poses = []
    points = []
    while len(looks) < count:
        side = len(looks) % 2
        angles = rng.normal(RELAXED_DEG, 0.8 * PRIOR_STD_DEG)
        if len(looks) % 4 == 0:
            angles = rng.normal(0, 6, (5, 5)) * [1, 1, 0, 1, 1]
        angles = np.radians(np.clip(angles, LIMITS_DEG[..., 0], LIMITS_DEG[..., 1]))
        posed = body(
            torch.zeros(1, 24, 3),
            vertices=True,
            hands=fingers.pose(torch.from_numpy(angles).expand(1, 2, 5, 5)),
        )
        assert posed.hands is not None
        assert posed.vertices is not None
        hand = posed.hands[0, side].numpy()
        target = hand[[0, 5, 9, 17]].mean(0)
        away = rng.normal(size=3)
        away /= np.linalg.norm(away)
        if away[0] * (1 - 2 * side) < -0.6:  # from inside the arm
            continue
        eye = target + rng.uniform(0.6, 1.0) * away
        up = rng.normal(size=3)
        right = np.cross(-away, up) / np.linalg.norm(np.cross(-away, up))
        turn = np.stack([right, np.cross(-away, right), -away])
        paper = np.full((SIZE, SIZE, 3), rng.integers(60, 230, 3)) + rng.normal(
            0, 12, (SIZE, SIZE, 1)
        )
        skin = tuple((np.array([0.80, 0.58, 0.47]) * rng.uniform(0.6, 1.1)).tolist())
        mesh = Mesh((posed.vertices[0].numpy() - eye) @ turn.T, body.faces, skin)
        image = render([mesh], CAMERA, paper.clip(0, 255).astype(np.uint8), alpha=1.0)
        present = (hand - eye) @ turn.T
        guess = CAMERA.project(torch.from_numpy(present)).numpy()[None]
        for _ in range(2):
            observed = look([image], region_around(guess))
            std = stated_px(observed, guess, (SIZE, SIZE))
            guess = observed.xy_px
        for column, value in zip(
            (looks, stds, sides, palms, poses, points),
            (observed, std, side, turn, angles, present),
            strict=True,
        ):
            column.append(value)
    return Rendered(
        Look.concat(looks),
        np.concatenate(stds),
        *(np.array(part) for part in (sides, palms, poses, points)),
    )


def bones_of(palm: np.ndarray, angles: np.ndarray, side: int, body: Body) -> np.ndarray:
    """[N, 21, 3, 3] rotations of the bones that keypoints turn with."""
    fingers = body.with_fingers()
    shape = torch.zeros(body.shape_size)
    pose = (
        fingers.to(dtype=torch.float64)
        .pose(torch.from_numpy(angles)[:, None].expand(-1, 2, 5, 5))
        .float()
    )
    still = body.placement(torch.eye(3).expand(len(angles), 24, 3, 3), shape)
    turns = (
        fingers.placement(still, pose, shape)
        .rotation[:, 22:]
        .unflatten(1, (2, 5, 3))[:, side, list(TO_MEDIAPIPE)]
    )
    first = torch.eye(3).expand(len(angles), 5, 1, 3, 3)
    full = torch.cat((first[:, 0], torch.cat((first, turns), 2).flatten(1, 2)), 1)
    return np.asarray(palm[:, None] @ full.double().numpy())


def keypoints_of(
    points: np.ndarray, palm: np.ndarray, angles: np.ndarray, side: int, body: Body
) -> np.ndarray:
    """[N, 21, 3] metres, as the network should show them."""
    offsets = body.with_fingers().offsets[side].double().numpy()
    return points + np.einsum("nkij,kj->nki", bones_of(palm, angles, side, body), offsets)
