"""What stands in the way of the view: furniture, bushes, posts, bins."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eval3dpw.synth import solids
from eval3dpw.synth.scene import Ground, Kind, Level
from eval3dpw.synth.solids import Solid
from fitting.camera import Camera

# How much of all keypoints to hide, and of one person's at most; of whole rectangles, so a little less in truth.
HIDDEN_SHARE: dict[Level, tuple[float, float]] = {"none": (0.0, 0.0), "some": (0.12, 0.4), "heavy": (0.32, 0.62)}
_TRIES = 120


@dataclass(frozen=True)
class Watched:
    """What is to be partly hidden: keypoints at some of the frames."""

    keypoints_m: np.ndarray  # [T, P, 17, 3] in the world
    world_to_cam: np.ndarray  # [T, 4, 4]
    camera: Camera

    def behind(self, things: list[Solid]) -> np.ndarray:
        """[T, P, 17] whether the outline of these things, a rectangle in the image, covers a keypoint."""
        corners = self._seen(np.concatenate([thing.vertices_m for thing in things])[None])  # [T, n, 2]
        points = self._seen(self.keypoints_m.reshape(len(self.keypoints_m), -1, 3))
        low, high = corners.min(1)[:, None], corners.max(1)[:, None]
        return ((points > low) & (points < high)).all(-1).reshape(self.keypoints_m.shape[:-1])

    def _seen(self, points_m: np.ndarray) -> np.ndarray:
        """[T or 1, n, 3] -> pixels [T, n, 2]."""
        turn, shift = self.world_to_cam[:, :3, :3], self.world_to_cam[:, None, :3, 3]
        points_m = np.broadcast_to(points_m, (len(turn), *points_m.shape[1:]))
        in_cam = np.einsum("tij,tnj->tni", turn, points_m) + shift
        return in_cam[..., :2] / np.maximum(in_cam[..., 2:], 0.05) * self.camera.focal_px + self.camera.center_px


def put(level: Level, ground: Ground, watched: Watched, kind: Kind, rng: np.random.Generator) -> list[Solid]:
    """Things between the camera and people, until enough is hidden, and never too much of anybody."""
    if level == "none":
        return []
    enough, most = HIDDEN_SHARE[level]
    hidden: np.ndarray = np.zeros(watched.keypoints_m.shape[:-1], bool)
    things: list[Solid] = []
    cameras = -np.einsum("tji,tj->ti", watched.world_to_cam[:, :3, :3], watched.world_to_cam[:, :3, 3])[:, ::2]
    for _ in range(_TRIES):
        frame, person = int(rng.integers(len(hidden))), int(rng.integers(hidden.shape[1]))
        place, camera = watched.keypoints_m[frame, person, 11:13, ::2].mean(0), cameras[frame]  # between the hips
        apart = np.linalg.norm(camera - place)
        towards = (camera - place) / apart
        thing, half_depth = _obstacle(level, kind, rng)
        nearer = rng.uniform(0.5, 1.1) + half_depth
        spot = place + nearer * towards + rng.uniform(-0.3, 0.3) * np.array([towards[1], -towards[0]])
        yaw = np.arctan2(towards[0], towards[1]) + rng.normal(0, 0.25)
        thing = [part.moved((spot[0], 0, spot[1]), yaw) for part in thing]
        clear = np.linalg.norm(ground.paths_m - spot, axis=1).min() > 0.42 + half_depth
        far_from_lens = np.linalg.norm(ground.cameras_m - spot, axis=1).min() > 1.0 + half_depth
        if not (clear and far_from_lens and nearer < 0.6 * apart):
            continue
        with_it = hidden | watched.behind(thing)
        if with_it.mean((0, 2)).max() <= most and with_it.sum() > hidden.sum():
            hidden, things = with_it, things + thing
        if hidden.mean() >= enough:
            break
    return things


def _obstacle(level: Level, kind: Kind, rng: np.random.Generator) -> tuple[list[Solid], float]:
    """Something to stand behind, and half of its depth."""
    high = rng.uniform(0.75, 1.15) if level == "heavy" else rng.uniform(0.45, 0.85)
    wide = rng.uniform(0.5, 1.2)
    surface = str(rng.choice(["planks", "painted", "concrete", "painted"]))
    shelf = str(rng.choice(["planks", "posters", "painted"]))
    post = str(rng.choice(["bark", "concrete", "painted"]))
    indoors: list[Callable[[], tuple[list[Solid], float]]] = [
        lambda: (solids.table((wide + 0.3, high * 0.9, 0.6), surface), 0.3),
        lambda: (solids.chair(surface), 0.25),
        lambda: ([solids.box((wide, high, 0.4), shelf)], 0.2),
        lambda: ([solids.box((wide / 4, 2.7, 0.25), "plaster")], 0.15),
        lambda: (solids.potted_plant(high, rng), 0.3),
    ]
    outdoors: list[Callable[[], tuple[list[Solid], float]]] = [
        lambda: ([solids.bush((wide * 0.6, high / 2, 0.4), "foliage", rng)], 0.4),
        lambda: (solids.bench("planks"), 0.3),
        lambda: (solids.fence(2 * wide, high, surface), 0.1),
        lambda: ([solids.cylinder(wide / 8, 3.2, post)], 0.12),
        lambda: ([solids.box((wide, high, 0.5), surface)], 0.25),
        lambda: ([solids.cylinder(0.28, high, "painted")], 0.28),
    ]
    choices = indoors if kind == "room" else outdoors
    return choices[rng.integers(len(choices))]()
