"""Place solids between the camera and the people until enough keypoints are hidden."""

from typing import Literal

import numpy as np

from eval3dpw.synth.solids import PROPS, Solid, pick_texture
from eval3dpw.synth.surroundings import ClearArea, SceneKind
from fitting.camera import Camera

OcclusionLevel = Literal["none", "some", "heavy"]
OCCLUSION_LEVELS: tuple[OcclusionLevel, ...] = ("none", "some", "heavy")
# Share of all keypoints to hide, and of one person's at most; by bounding boxes, so the true share
# is a little less.
HIDDEN_SHARE: dict[OcclusionLevel, tuple[float, float]] = {
    "none": (0.0, 0.0),
    "some": (0.12, 0.4),
    "heavy": (0.32, 0.62),
}
INDOOR_OCCLUDERS = ("table", "chair", "shelf", "pillar", "plant")
OUTDOOR_OCCLUDERS = ("bush", "bench", "fence", "pole", "block", "bin")
_TRIES = 120


def place_occluders(
    level: OcclusionLevel,
    area: ClearArea,
    keypoints_m: np.ndarray,
    world_to_cam: np.ndarray,
    camera: Camera,
    kind: SceneKind,
    rng: np.random.Generator,
) -> list[Solid]:
    """Return solids between camera and people that hide enough keypoints, but not too many of one
    person.

    keypoints_m [T, P, 17, 3] in the world and world_to_cam [T, 4, 4] are of a sample of the frames.
    """
    if level == "none":
        return []
    enough, most = HIDDEN_SHARE[level]
    hidden: np.ndarray = np.zeros(keypoints_m.shape[:-1], bool)
    objects: list[Solid] = []
    rotation = world_to_cam[:, :3, :3]
    shift = world_to_cam[:, None, :3, 3]

    def project(points_m: np.ndarray) -> np.ndarray:
        """Project points [T or 1, n, 3] to pixels [T, n, 2]."""
        points_m = np.broadcast_to(points_m, (len(rotation), *points_m.shape[1:]))
        in_cam = np.einsum("tij,tnj->tni", rotation, points_m) + shift
        return (
            in_cam[..., :2] / np.maximum(in_cam[..., 2:], 0.05) * camera.focal_px + camera.center_px
        )

    pixels = project(keypoints_m.reshape(len(keypoints_m), -1, 3))
    cameras = -np.einsum("tji,tj->ti", rotation, shift[:, 0])[:, ::2]
    for _ in range(_TRIES):
        frame = int(rng.integers(len(hidden)))
        person = int(rng.integers(hidden.shape[1]))
        place = keypoints_m[frame, person, 11:13, ::2].mean(0)  # between the hips
        apart = np.linalg.norm(cameras[frame] - place)
        towards = (cameras[frame] - place) / apart
        high = rng.uniform(0.75, 1.15) if level == "heavy" else rng.uniform(0.45, 0.85)
        parts = PROPS[
            pick_texture(rng, *(INDOOR_OCCLUDERS if kind == "room" else OUTDOOR_OCCLUDERS))
        ](rng, rng.uniform(0.5, 1.2), high)
        half_depth = max(float(part.vertices_m[:, 2].max()) for part in parts)
        nearer = rng.uniform(0.5, 1.1) + half_depth
        spot = (
            place + nearer * towards + rng.uniform(-0.3, 0.3) * np.array([towards[1], -towards[0]])
        )
        yaw = np.arctan2(towards[0], towards[1]) + rng.normal(0, 0.25)
        parts = [part.moved((spot[0], 0, spot[1]), yaw) for part in parts]
        clear = np.linalg.norm(area.paths_m - spot, axis=1).min() > 0.42 + half_depth
        far_from_lens = np.linalg.norm(area.cameras_m - spot, axis=1).min() > 1.0 + half_depth
        if not (clear and far_from_lens and nearer < 0.6 * apart):
            continue
        box_px = project(np.concatenate([part.vertices_m for part in parts])[None])  # [T, n, 2]
        low = box_px.min(1)[:, None]
        high = box_px.max(1)[:, None]
        with_it = hidden | ((pixels > low) & (pixels < high)).all(-1).reshape(hidden.shape)
        if with_it.mean((0, 2)).max() <= most and with_it.sum() > hidden.sum():
            hidden = with_it
            objects = objects + parts
        if hidden.mean() >= enough:
            break
    return objects
