"""People whose bodies are known exactly, as the keypoints a camera would see."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import fitting
from pose2d.types import Detections


def tracks_of(rows: Detections) -> list[Detections]:
    """Each person's rows, in order of identity, frames rising."""
    return list(rows.people().values())


LEGS = (13, 14, 15, 16)  # knees and ankles among COCO's keypoints


@dataclass(frozen=True)
class Walker:
    """One person walking across the image, facing the camera."""

    params: fitting.BodyParams
    keypoints_px: np.ndarray  # [T, 17, 2]


def walker(
    frames: int, size: tuple[int, int] = (160, 120), start_x_m: float = 0.0, speed_m: float = 0.01
) -> Walker:
    """speed_m: metres per frame."""
    body = fitting.load_body()
    camera = fitting.Camera.default(size)
    t = torch.arange(frames)
    pose = torch.zeros(frames, 24, 3)
    pose[:, 0, 0] = torch.pi  # upright: the body's y points up, the camera's down
    # arms down
    pose[:, 16, 2] = -1.1
    pose[:, 17, 2] = 1.1
    pose[:, 18, 1] = -0.5 - 0.3 * torch.sin(t / 10)
    pose[:, 1, 0] = 0.3 * torch.sin(t / 8)
    pose[:, 2, 0] = -0.3 * torch.sin(t / 8)
    still = body(pose[:1]).keypoints[0, :17, 1]
    middle = -float(still.amin() + still.amax()) / 2
    place = torch.stack(
        (start_x_m + speed_m * t, torch.full((frames,), middle), torch.full((frames,), 5.0)), 1
    )
    params = fitting.BodyParams(pose, torch.zeros(10), place)
    return Walker(params, camera.project(body.at(params).keypoints[:, :17]).numpy())


def coco_results(
    walkers: Iterable[Walker],
    named: bool = True,
    hidden: Iterable[int] = (),
    confidence: float = 0.9,
) -> list[dict]:
    """As COCO's keypoint results; `hidden` keypoints have no confidence."""
    entries = []
    for number, person in enumerate(walkers, start=1):
        for frame, points in enumerate(person.keypoints_px):
            scores = np.full(17, confidence)
            scores[list(hidden)] = 0
            entry = {
                "image_id": frame,
                "category_id": 1,
                "score": 1.0,
                "keypoints": np.concatenate([points, scores[:, None]], 1).ravel().tolist(),
            }
            entries.append({**entry, "track_id": number} if named else entry)
    return entries


def write_json(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path
