"""Read a hand that two calibrated cameras recorded, and triangulate it."""

from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import torch

from fitting.camera import Camera
from pose2d.hands import (
    Look,
    _constants,
    error_features,
    look,
    region_around,
    relative_std,
)
from pose2d.video.video_file import Video

# the hand's first square in each camera
FIRST = 20
START = (((520, 250), 300, np.pi), ((370, 360), 300, np.pi / 2))
CONSISTENT_PX = 4.0  # a triangulated keypoint farther from either image is no truth


class Recording(NamedTuple):
    """One camera's keypoints of T frames, and where it stands."""

    camera: Camera
    rotation: np.ndarray  # [3, 3]
    translation: np.ndarray  # [3] in the recording's unit
    seen: Look  # [T]
    std_px: np.ndarray  # [T, 21]


def stated_px(observed: Look, guess_px: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """[N, 21] as `pose2d.hands` states it."""
    constants = _constants()
    features = error_features(observed, guess_px, size)
    return observed.size_px[:, None] * relative_std(
        features, constants["error"], constants["floor"]
    )


def followed(video: Path, start: tuple[tuple[int, int], int, float]) -> tuple[Look, np.ndarray]:
    """The one hand of a video, followed from a first square."""
    results = []
    stds = []
    guess = np.full((1, 21, 2), np.nan)
    region = np.array([[*start[0], *start[1:]]], np.float64)
    for frame in Video(video).frames():
        if frame.index < FIRST:
            continue
        for _ in range(1 if results else 3):
            observed = look([frame.rgb], region)
            region = region_around(observed.xy_px)
        results.append(observed)
        stds.append(stated_px(observed, guess, (frame.rgb.shape[1], frame.rgb.shape[0])))
        guess = observed.xy_px
    return Look.concat(results), np.concatenate(stds)


def recording(folder: Path, number: int) -> Recording:
    def rows(name: str, first: int, count: int) -> np.ndarray:
        lines = (folder / name).read_text().splitlines()[first : first + count]
        return np.array([[float(word) for word in line.split()] for line in lines])

    intrinsics = rows(f"c{number}.dat", 1, 3)
    distortion = tuple(rows(f"c{number}.dat", 5, 1)[0].tolist())
    place = f"rot_trans_c{number}.dat"
    focal = (float(intrinsics[0, 0]), float(intrinsics[1, 1]))
    center = (float(intrinsics[0, 2]), float(intrinsics[1, 2]))
    observed, std = followed(folder / f"cam{number}_test.mp4", START[number])
    return Recording(
        Camera(focal, center, (720, 720), distortion),
        rows(place, 1, 3),
        rows(place, 5, 3)[:, 0],
        observed,
        std,
    )


def triangulated(pair: list[Recording]) -> tuple[np.ndarray, np.ndarray]:
    """[T, 21, 3] in the recording's unit, and which of them both images agree on [T, 21]."""
    planes = [np.column_stack([view.rotation, view.translation]) for view in pair]
    flat = [
        view.camera.undistort(torch.from_numpy(view.seen.xy_px)).numpy().reshape(-1, 2)
        for view in pair
    ]
    rays = [
        (xy - view.camera.center_px) / view.camera.focal_px
        for xy, view in zip(flat, pair, strict=True)
    ]
    points = cv2.triangulatePoints(*planes, rays[0].T, rays[1].T)
    points = (points[:3] / points[3]).T
    away = []
    for view, xy in zip(pair, flat, strict=True):
        present = points @ view.rotation.T + view.translation
        away.append(
            np.linalg.norm(
                present[:, :2] / present[:, 2:] * view.camera.focal_px + view.camera.center_px - xy,
                axis=1,
            )
        )
    shape = pair[0].seen.xy_px.shape[:2]
    return points.reshape(*shape, 3), (np.maximum(*away) < CONSISTENT_PX).reshape(shape)
