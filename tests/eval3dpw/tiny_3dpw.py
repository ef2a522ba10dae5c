"""A folder in 3DPW's layout, small enough for tests: the open body swings its arms in a grey room."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.render.draw import Mesh, render

FRAMES = 6
SIZE = (160, 120)
FOCAL_PX = 150.0
# COCO's 17 in the order of OpenPose's 18; the neck (number 1) is between the shoulders
_COCO_OF_OPENPOSE = (0, -1, 6, 8, 10, 5, 7, 9, 12, 14, 16, 11, 13, 15, 2, 1, 4, 3)


@dataclass(frozen=True)
class Actor:
    """A person's truth, as the pickle holds it."""

    pose: np.ndarray  # [N, 72]
    translation: np.ndarray  # [N, 3]
    shape: np.ndarray  # [10]
    gender: str = "m"


def actor(seed: int) -> Actor:
    rng = np.random.default_rng(seed)
    pose = np.zeros((FRAMES, 24, 3))
    swing = np.sin(np.linspace(0, 1.5, FRAMES) + seed)
    pose[:, 0, 1] = 0.4 * swing
    # arms hang
    pose[:, 16, 2] = -1.1 + 0.2 * swing
    pose[:, 17, 2] = 1.1 - 0.2 * swing
    pose[:, 18, 1] = -0.6
    pose[:, 1, 0] = -0.3 * swing
    place = np.stack([0.1 * swing, np.full(FRAMES, 0.1), np.zeros(FRAMES)], 1)
    return Actor(pose.reshape(FRAMES, 72), place, rng.normal(0, 0.7, 10))


def world_to_camera() -> np.ndarray:
    """The world's y is up; the camera stands 3 m in front and looks back, slightly moving."""
    T = np.tile(np.diag([1.0, -1.0, -1.0, 1.0]), (FRAMES, 1, 1))
    T[:, :3, 3] = np.stack([0.02 * np.arange(FRAMES), np.zeros(FRAMES), np.full(FRAMES, 3.0)], 1)
    return T


def content(actors: list[Actor]) -> dict[str, Any]:
    """What a sequence's pickle holds, keys and sizes as in 3DPW."""
    body = load_body()
    intrinsics = np.array([[FOCAL_PX, 0, SIZE[0] / 2], [0, FOCAL_PX, SIZE[1] / 2], [0, 0, 1]])
    T = world_to_camera()
    poses2d = []
    joints = []
    for one in actors:
        out = body(
            one.pose.astype(np.float32),
            one.shape.astype(np.float32),
            one.translation.astype(np.float32),
        )
        joints.append(out.joints.flatten(1).double().numpy())
        seen = (
            np.einsum("tij,tkj->tki", T[:, :3, :3], out.keypoints.double().numpy())
            + T[:, None, :3, 3]
        )
        xy = seen[..., :2] / seen[..., 2:] * FOCAL_PX + np.array(SIZE) / 2
        xy = np.concatenate([xy, xy[:, 5:7].mean(1, keepdims=True)], 1)[:, _COCO_OF_OPENPOSE]
        poses2d.append(np.concatenate([xy, np.full((FRAMES, 18, 1), 0.9)], 2).transpose(0, 2, 1))
    return {
        "sequence": "tiny",
        "betas": [one.shape for one in actors],
        "poses": [one.pose for one in actors],
        "trans": [one.translation for one in actors],
        "genders": [one.gender for one in actors],
        "poses2d": poses2d,
        "jointPositions": joints,
        "img_frame_ids": np.arange(FRAMES) * 2,
        "cam_poses": T,
        "campose_valid": [np.ones(FRAMES, np.int64) for _ in actors],
        "cam_intrinsics": intrinsics,
    }


def write(
    root: Path,
    people: dict[str, int] | None = None,
    change: Callable[[str, dict[str, Any]], None] = lambda name, content: None,
) -> Path:
    """sequence -> number of people; `change` may spoil a sequence before it is written."""
    rng = np.random.default_rng(0)
    camera = Camera.from_focal(FOCAL_PX, SIZE)
    faces = load_body().faces
    for number, (name, count) in enumerate((people or {"one_00": 1, "two_00": 2}).items()):
        actors = [actor(10 * number + i) for i in range(count)]
        spoiled = content(actors)
        change(name, spoiled)
        path = root / "sequenceFiles" / "test" / f"{name}.pkl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(spoiled, protocol=2))
        images = root / "imageFiles" / name
        images.mkdir(parents=True)
        meshes = [true_mesh(one) for one in actors]
        for frame in range(FRAMES):
            room = rng.integers(100, 150, (SIZE[1], SIZE[0], 3), dtype=np.uint8)
            people_there = [Mesh(mesh[frame], faces, (0.8, 0.6, 0.5)) for mesh in meshes]
            rgb = render(people_there, camera, room, alpha=1.0, antialias=False)
            cv2.imwrite(str(images / f"image_{frame:05d}.jpg"), rgb[..., ::-1])
    return root


def true_mesh(one: Actor) -> torch.Tensor:
    """Vertices in the camera, made the long way: the mesh in the world, then the camera."""
    body = load_body()
    out = body(
        one.pose.astype(np.float32),
        one.shape.astype(np.float32),
        one.translation.astype(np.float32),
        vertices=True,
    )
    assert out.vertices is not None
    T = torch.from_numpy(world_to_camera()).float()
    return torch.einsum("tij,tvj->tvi", T[:, :3, :3], out.vertices) + T[:, None, :3, 3]
