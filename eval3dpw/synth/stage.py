"""Stage people, things around them and a camera that records them in one shot."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from eval3dpw.synth import camera_paths, occluders, sensors, staging, surroundings
from eval3dpw.synth.camera_paths import CameraKind, CameraPath
from eval3dpw.synth.motion import FPS, Clip
from eval3dpw.synth.plans import Plan
from eval3dpw.synth.rendering import build_scene_mesh
from eval3dpw.synth.sequence import Shot
from eval3dpw.synth.solids import Solid
from eval3dpw.synth.staging import SyntheticPerson, draw_shape, heading, staged_person
from eval3dpw.synth.surroundings import SCENE_KINDS
from fitting.body import Body
from fitting.camera import Camera

_FARTHEST_M = 14.0


@dataclass(frozen=True)
class Stage:
    """Hold what every script works with."""

    plan: Plan
    body: Body
    clips: Mapping[str, Sequence[Clip]]  # by kind; without a script all of them are under "any"
    size: tuple[int, int]  # of the images
    frames: int  # of the shot, at most
    rng: np.random.Generator
    identities: list[int]  # of the people
    number: int = 0  # of the shot

    def shape(self, identity: int) -> Tensor:
        return draw_shape(self.plan.rng(f"shape {identity}"))

    def walking_clip(self) -> Clip:
        clips = self.clips["walking"]
        return clips[int(self.rng.integers(len(clips)))]

    def walker(self, identity: int, direction: float) -> SyntheticPerson:
        """Return a person who walks along `direction` (radians, x = sin), and back when the clip
        ends.
        """
        clip = self.walking_clip()
        fps = self.plan.fps
        clip = clip.mirrored() if self.rng.random() < 0.5 else clip
        rows = staging.there_and_back(len(clip.pose), self.frames * (FPS // fps))[:: FPS // fps]
        yaw = direction - heading(clip.root_m)
        return staged_person(self.body, clip, rows, self.shape(identity), 1.0, yaw, fps)

    def close_up(
        self,
        people: list[SyntheticPerson],
        kind: CameraKind,
        azimuth: float,
        tall: float,
        height_m: float,
        aim_m: float = 0.9,
        show_all: bool = False,
    ) -> tuple[Camera, CameraPath]:
        """Place a camera so near that a person in front has this share of the image's height.

        show_all: move back until nearly all of the walks are in view; otherwise people may walk out
        of the image and in again.
        """
        size = self.size
        rng = self.rng
        camera = Camera.from_focal(rng.uniform(0.65, 1.1) * math.hypot(*size), size)
        pelvises = np.stack([p.joints[:, 0].double().numpy() for p in people], 1)
        centers = pelvises.mean(1)
        towards = np.array([math.sin(azimuth), 0, math.cos(azimuth)])
        nearest = float(((pelvises - (centers.min(0) + centers.max(0)) / 2) @ towards).max())
        distance = nearest + camera.focal_px[1] * 1.7 / (tall * size[1])
        roll = rng.normal(0, 1)
        seed = int(rng.integers(2**31))
        while True:
            pitch = math.degrees(math.atan2(height_m - aim_m, distance))
            view = camera_paths.StagedView(azimuth, distance, height_m, pitch, roll)
            path = camera_paths.camera_path(
                view, kind, centers, self.plan.fps, np.random.default_rng(seed)
            )
            x, _, z = np.moveaxis(path.in_camera(pelvises), -1, 0)
            inside = np.abs(x) * camera.focal_px[0] < 0.40 * size[0] * np.maximum(z, 0.1)
            if not show_all or inside.mean() >= 0.95 or distance > _FARTHEST_M:
                return camera, path
            distance *= 1.1

    def film(
        self,
        people: list[SyntheticPerson],
        camera: Camera,
        kind: CameraKind,
        path: CameraPath,
        objects: Sequence[Solid] = (),
        bystanders: Sequence[SyntheticPerson] = (),
    ) -> Shot:
        """Build a place around the people, with what may hide them, and record them."""
        plan = self.plan
        rng = self.plan.rng(f"scene {self.number}")
        place = SCENE_KINDS[(sum(plan.seed) + self.number) % len(SCENE_KINDS)]
        everyone = [*people, *bystanders]
        area = surroundings.ClearArea(
            np.concatenate([p.path for p in everyone]), path.positions_m[:, ::2]
        )
        around = surroundings.build_scene(place, area, rng)
        keypoints = torch.stack([person.keypoints[::5, :17] for person in people], 1).numpy()
        views = path.camera_from_world[::5]
        hiding = occluders.place_occluders(
            plan.occlusion, area, keypoints, views, camera, place, rng
        )
        around.solids.extend([*objects, *hiding])
        clothed = plan.dressed(
            everyone,
            [*self.identities, *range(plan.people, plan.people + len(bystanders))],
            self.body,
        )
        mesh = build_scene_mesh(clothed, around, rng)
        sensor = sensors.draw_sensor(plan.rng(f"sensor {self.number}"), self.size[0])
        return Shot(
            people,
            self.identities,
            list(bystanders),
            clothed,
            camera,
            kind,
            path,
            place,
            mesh,
            sensor,
            (*plan.seed, self.number),
        )
