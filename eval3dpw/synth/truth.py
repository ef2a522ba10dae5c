"""What each image shows of each keypoint: seen, behind oneself, behind something else, or outside."""

from dataclasses import dataclass

import numpy as np

from eval3dpw.synth.pixels import look
from eval3dpw.synth.stage import Stage
from fitting.camera import Camera

OUTSIDE, HIDDEN, BEHIND_SELF, SEEN = 0, 1, 2, 3
# How deep a keypoint lies under the surface it is seen by, metres: joints are inside the body, the face is on it.
_DEPTH_M = np.array(
    [0.06, 0.05, 0.05, 0.08, 0.08, 0.17, 0.17, 0.12, 0.12, 0.10, 0.10, 0.24, 0.24, 0.16, 0.16, 0.14, 0.14]
)


@dataclass(frozen=True)
class FrameTruth:
    """One image's truth in pixels."""

    keypoints_px: np.ndarray  # [P, 17, 2]
    visibility: np.ndarray  # [P, 17] uint8: OUTSIDE, HIDDEN, BEHIND_SELF or SEEN
    boxes_px: np.ndarray  # [P, 4] x1, y1, x2, y2 of the whole person, cut at the image's edge
    area_px2: np.ndarray  # [P] of the person in the image, were nothing in the way
    seen_px2: np.ndarray  # [P] of what is seen


def observe(
    stage: Stage,
    vertices_m: np.ndarray,
    people_m: list[np.ndarray],
    keypoints_m: np.ndarray,
    camera: Camera,
    world_to_cam: np.ndarray,
) -> FrameTruth:
    """keypoints_m [P, 17, 3] in the world."""
    sight = stage.see(vertices_m, camera, world_to_cam)
    owner = stage.owner(sight)
    surface_m = 1 / np.maximum(sight.inverse_depth, 1e-6)
    in_cam = keypoints_m @ world_to_cam[:3, :3].T + world_to_cam[:3, 3]
    depth = np.maximum(in_cam[..., 2], 1e-3)
    pixels = in_cam[..., :2] / depth[..., None] * camera.focal_px + camera.center_px
    count = len(keypoints_m)
    visibility = np.zeros((count, 17), np.uint8)
    boxes, area, seen = np.zeros((count, 4)), np.zeros(count), np.zeros(count)
    for person in range(count):
        alone = _alone(stage, people_m, person, camera, world_to_cam)
        visibility[person] = _visibility(owner, surface_m, pixels[person], in_cam[person, :, 2], person)
        rows, columns = np.flatnonzero(alone.any(1)), np.flatnonzero(alone.any(0))
        if len(rows):
            boxes[person] = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
        area[person], seen[person] = alone.sum(), (owner == person).sum()
    return FrameTruth(pixels, visibility, boxes, area, seen)


def _alone(
    stage: Stage, people_m: list[np.ndarray], person: int, camera: Camera, world_to_cam: np.ndarray
) -> np.ndarray:
    """[H, W] where the person would be seen with nothing in the way."""
    first, end = stage.person_faces[person : person + 2]
    before = sum(len(vertices) for vertices in people_m[:person])
    faces = stage.surfaces.faces[first:end] - np.int32(before)
    return look(people_m[person], faces, camera, world_to_cam).triangle >= 0


def _visibility(
    owner: np.ndarray, surface_m: np.ndarray, pixels: np.ndarray, depth_m: np.ndarray, person: int
) -> np.ndarray:
    height, width = owner.shape
    x, y = np.round(pixels).astype(int).T
    inside = (x >= 0) & (y >= 0) & (x < width) & (y < height) & (depth_m > 0.05)
    x, y = np.clip(x, 0, width - 1), np.clip(y, 0, height - 1)
    whose, nearest = owner[y, x], surface_m[y, x]
    other = (whose != person) & (nearest < depth_m - 0.02) & (whose != -2)
    buried = (whose == person) & (nearest < depth_m - _DEPTH_M)
    return np.where(inside, np.where(other, HIDDEN, np.where(buried, BEHIND_SELF, SEEN)), OUTSIDE).astype(np.uint8)
