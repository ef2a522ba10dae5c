"""A grey background for simulated shots: a textured floor and walls, seen by a camera that is known
exactly.

Small and cheap: it is all that the estimate of camera motion looks at.
"""

from dataclasses import dataclass

import cv2
import numba
import numpy as np

from bench.lib.world_scenes import ShotTruth
from eval3dpw.synth.textures import tileable_noise
from pose2d.video.camera_motion.estimator import CameraMotionEstimator
from pose2d.video.camera_motion.motion import CameraMotion

SIDE_PX = 320  # longer side of the images
CELLS_M = (1.6, 0.4, 0.1)  # sizes of the texture's patches
NOISE, QUALITY = 4.0, 50  # grey levels of the sensor's noise, JPEG's quality
PEOPLE_MARGIN = 0.08  # of a person's keypoints, to the box that a detector would draw


@dataclass(frozen=True)
class Room:
    """A floor at y = 0 and four walls."""

    low_m: np.ndarray  # [2] x, z
    high_m: np.ndarray  # [2]
    texture: np.ndarray  # [256, 256] -1..1, repeats
    shift: np.ndarray  # [5] where each side starts in the texture


def draw_room(shot: ShotTruth, rng: np.random.Generator) -> Room:
    """Around all people and the camera, with walls 1.5 to 8 m away from them."""
    spots = np.concatenate([shot.positions_m(), *(p.joints_m[:, 0] for p in shot.people)])[:, ::2]
    low = spots.min(0) - rng.uniform(1.5, 8, 2)
    high = spots.max(0) + rng.uniform(1.5, 8, 2)
    return Room(low, high, tileable_noise(256, 8, rng, 5), rng.uniform(0, 100, 5))


def background(
    room: Room, size: tuple[int, int], focal_px: float, camera_from_world: np.ndarray
) -> np.ndarray:
    """[h, w] float32 grey levels."""
    bounds = np.array([0.0, room.low_m[0], room.high_m[0], room.low_m[1], room.high_m[1]])
    return _cast(
        size[0],
        size[1],
        focal_px,
        camera_from_world,
        bounds,
        room.texture,
        room.shift,
        np.array(CELLS_M),
    )


@numba.njit(cache=True)
def _cast(
    width: int,
    height: int,
    focal_px: float,
    camera_from_world: np.ndarray,
    bounds: np.ndarray,
    texture: np.ndarray,
    shift: np.ndarray,
    cells_m: np.ndarray,
) -> np.ndarray:
    """Every pixel's ray meets the floor or a wall; patches smaller than what a pixel covers blur to
    grey.
    """
    axes = (1, 0, 0, 2, 2)
    rotation = camera_from_world[:3, :3]
    move = camera_from_world[:3, 3]
    origin = np.zeros(3)
    for i in range(3):
        for j in range(3):
            origin[i] -= rotation[j, i] * move[j]
    image = np.empty((height, width), np.float32)
    ray = np.zeros(3)
    for row in range(height):
        for column in range(width):
            x = (column + 0.5 - width / 2) / focal_px
            y = (row + 0.5 - height / 2) / focal_px
            for i in range(3):
                ray[i] = rotation[0, i] * x + rotation[1, i] * y + rotation[2, i]
            best = 1e9
            side = -1
            for number in range(5):
                if ray[axes[number]] != 0:
                    far = (bounds[number] - origin[axes[number]]) / ray[axes[number]]
                    if 1e-3 < far < best:
                        best, side = far, number
            grey = 110.0
            if side >= 0:
                axis = axes[side]
                u = origin[0 if axis != 0 else 1] + best * ray[0 if axis != 0 else 1] + shift[side]
                v = origin[2 if axis != 2 else 1] + best * ray[2 if axis != 2 else 1] + shift[side]
                length = (ray[0] ** 2 + ray[1] ** 2 + ray[2] ** 2) ** 0.5
                covers = best * length**2 / (focal_px * max(abs(ray[axis]), 1e-6))
                grey += 12.0 * (side % 3)
                for cell in cells_m:
                    strength = min(max(cell / (4 * covers) - 0.15, 0.0), 1.0)
                    if strength > 0:
                        a = u / cell * 32 % 256
                        b = v / cell * 32 % 256
                        i = int(a)
                        j = int(b)
                        da = a - i
                        db = b - j
                        i, j, k, m = i % 256, j % 256, (i + 1) % 256, (j + 1) % 256
                        near = texture[i, j] * (1 - db) + texture[i, m] * db
                        next_to = texture[k, j] * (1 - db) + texture[k, m] * db
                        grey += 55 * strength * (near * (1 - da) + next_to * da)
            image[row, column] = grey
    return image


def boxes_px(shot: ShotTruth, frame: int) -> np.ndarray:
    """[P, 4] what a detector would say."""
    boxes = []
    for person in shot.people:
        assert person.keypoints is not None
        xy = person.keypoints.xy_px[frame][person.keypoints.presence[frame] > 0].numpy()
        low = xy.min(0)
        high = xy.max(0)
        margin = PEOPLE_MARGIN * (high - low).max()
        boxes.append(np.concatenate((low - margin, high + margin)))
    return np.array(boxes)


def shot_image(
    shot: ShotTruth, room: Room, looks: list[np.ndarray], frame: int, rng: np.random.Generator
) -> np.ndarray:
    """[h, w] uint8 at SIDE_PX, people as textured ellipses in front."""
    scale = SIDE_PX / max(shot.camera.size)
    size = (round(shot.camera.size[0] * scale), round(shot.camera.size[1] * scale))
    grey = background(room, size, shot.camera.focal_px[0] * scale, shot.camera_from_world[frame])
    for box, look in zip(boxes_px(shot, frame) * scale, looks, strict=True):
        x1, y1, x2, y2 = np.clip(box, 0, (*size, *size)).round().astype(int)
        if x2 - x1 < 4 or y2 - y1 < 4:
            continue
        figure = cv2.resize(look, (x2 - x1, y2 - y1), interpolation=cv2.INTER_AREA)
        yy, xx = np.mgrid[-1 : 1 : (y2 - y1) * 1j, -1 : 1 : (x2 - x1) * 1j]
        body = (np.hypot(xx, yy) < 0.9) | (np.abs(xx) < 0.35)
        grey[y1:y2, x1:x2] = np.where(body, figure, grey[y1:y2, x1:x2])
    observed = np.clip(grey + rng.normal(0, NOISE, grey.shape), 0, 255).astype(np.uint8)
    _, data = cv2.imencode(".jpg", observed, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    decoded: np.ndarray = cv2.imdecode(data, cv2.IMREAD_GRAYSCALE)
    return decoded


def camera_motion(shot: ShotTruth, focal_px: float) -> CameraMotion:
    """What the estimate makes of the shot's background, with the focal length that it is told."""
    rng = np.random.default_rng([*shot.seed, 29])
    room = draw_room(shot, rng)
    looks = [(110 + 70 * tileable_noise(256, 8, rng, 4)).astype(np.float32) for _ in shot.people]
    estimator = CameraMotionEstimator(shot.camera.size, focal_px)
    for frame in range(shot.frames):
        image = shot_image(shot, room, looks, frame, rng) if estimator.wants(frame) else None
        estimator.feed(frame, image, boxes_px(shot, frame))
    return estimator.finish()
