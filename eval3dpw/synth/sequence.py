"""One sequence from its plan: people, camera and scene put together, then frame after frame."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from eval3dpw.synth import cast, figure, obstacles, outfit, scene, sensor, stage
from eval3dpw.synth.camera_path import CameraPath
from eval3dpw.synth.cast import Person
from eval3dpw.synth.figure import Figure
from eval3dpw.synth.motion import Clip, mirrored
from eval3dpw.synth.plan import Plan
from eval3dpw.synth.stage import Stage
from eval3dpw.synth.truth import FrameTruth, observe
from fitting.body import Body
from fitting.camera import Camera

_APART_M = 0.6  # pelvis to pelvis


@dataclass(frozen=True)
class Sequence:
    """Everything that a sequence's images are made from."""

    plan: Plan
    people: list[Person]
    strangers: list[Person]  # seen, but not in the truth
    figures: list[Figure]  # of people, then of strangers
    camera: Camera
    path: CameraPath
    stage: Stage

    @property
    def frames(self) -> int:
        return len(self.people[0].pose)

    def posed(self) -> list[np.ndarray]:
        """Vertices [T, V, 3] of every figure."""
        everyone = (*self.people, *self.strangers)
        return [f.posed(p.placement, p.translation) for f, p in zip(self.figures, everyone, strict=True)]

    def cam_poses(self) -> np.ndarray:
        """[T, 4, 4] world to camera."""
        return np.stack([self.path.world_to_cam(frame) for frame in range(self.frames)])


def prepare(
    plan: Plan,
    body: Body,
    clips: tuple[Clip, ...],
    size: tuple[int, int],
    most_frames: int,
    photo: np.ndarray | None = None,
) -> Sequence:
    """A photograph [h, w, 3] uint8 RGB, if there is one, takes the place of the built scene."""
    people = _people(plan, body, clips, most_frames)
    camera = Camera.from_focal(plan.focal_px, size)
    centers = torch.stack([person.joints[:, 0] for person in people], 1).numpy()
    path = CameraPath(plan.view, camera, centers, plan.rng("camera"))
    cameras = np.stack([path.position(frame) for frame in range(len(centers))])[:, ::2]
    strangers = _strangers(plan, body, clips, people, cameras)
    paths = np.concatenate([person.path for person in (*people, *strangers)])
    ground = scene.Ground(paths, cameras, plan.view.azimuth)
    rng = plan.rng("scene")
    if photo is None:
        around = scene.build(plan.scene, ground, rng)
    else:
        focal = 0.75 * plan.focal_px * max(photo.shape[1] / size[0], photo.shape[0] / size[1])
        around = scene.before_photograph(photo, ground, path.world_to_cam(len(centers) / 2), focal, rng)
    some = range(0, len(centers), 5)
    watched = obstacles.Watched(
        torch.stack([person.keypoints[some] for person in people], 1).numpy(),
        np.stack([path.world_to_cam(frame) for frame in some]),
        camera,
    )
    around.solids.extend(obstacles.put(plan.occlusion, ground, watched, plan.scene, rng))
    figures = []
    for number, person in enumerate((*people, *strangers)):
        looks = plan.rng(f"looks {number}")
        figures.append(figure.dress(body, person.shape, outfit.draw(looks), looks))
    return Sequence(plan, people, strangers, figures, camera, path, stage.build(figures, around, rng))


def shoot(sequence: Sequence) -> Iterator[tuple[bytes, FrameTruth]]:
    """The JPEG of every frame, and its truth."""
    plan, people = sequence.plan, sequence.people
    rng = plan.rng("sensor")
    posed = sequence.posed()
    keypoints = torch.stack([person.keypoints for person in people], 1).numpy()
    gain = None
    for frame in range(sequence.frames):
        light = _exposed(sequence, posed, frame)
        gain = sensor.exposure(plan.sensor, light) if gain is None else gain
        image = sensor.develop(plan.sensor, light, gain, rng)
        bodies = [vertices[frame] for vertices in posed]
        truth = observe(
            sequence.stage, sequence.stage.vertices_m(bodies), bodies, keypoints[frame], sequence.camera,
            sequence.path.world_to_cam(frame),
        )  # fmt: skip
        yield sensor.encode(plan.sensor, image), truth


def _exposed(sequence: Sequence, posed: list[np.ndarray], frame: int) -> np.ndarray:
    """Light [H, W, 3] gathered while the shutter is open; each moment a little aside, which smooths outlines too."""
    at_once = [vertices[frame] for vertices in posed]
    center = np.mean([vertices.mean(0) for vertices in at_once], 0)
    shadows = sequence.stage.shadows(sequence.stage.vertices_m(at_once), center)
    total = np.zeros((sequence.camera.size[1], sequence.camera.size[0], 3), np.float32)
    for shift, moment in zip(sensor.SHIFTS_PX, sensor.moments(sequence.plan.sensor), strict=True):
        x, y = sequence.camera.center_px
        aside = Camera.from_focal(sequence.camera.focal_px, sequence.camera.size, (x + shift[0], y + shift[1]))
        vertices = sequence.stage.vertices_m([_between(v, frame, moment) for v in posed])
        transform = sequence.path.world_to_cam(frame + moment)
        total += sequence.stage.light(vertices, aside, transform, shadows, 4 * shift)
    return total / sensor.MOMENTS


def _between(vertices: np.ndarray, frame: int, moment: float) -> np.ndarray:
    """Vertices [T, V, 3] at a time near a frame, straight between neighbours."""
    other = min(max(frame + (1 if moment > 0 else -1), 0), len(vertices) - 1)
    share = np.float32(abs(moment))
    return vertices[frame] + share * (vertices[other] - vertices[frame])


def _people(plan: Plan, body: Body, clips: tuple[Clip, ...], most_frames: int) -> list[Person]:
    rng = plan.rng("people")
    chosen = [mirrored(clips[role.clip]) if role.mirrored else clips[role.clip] for role in plan.roles]
    count = min(most_frames, *(len(clip.pose) for clip in chosen))
    azimuth = plan.view.azimuth
    people = []
    for number, clip in enumerate(chosen):
        first = int(rng.integers(len(clip.pose) - count + 1))
        yaw = rng.uniform(-np.pi, np.pi)
        if plan.crossing and len(chosen) > 1:
            yaw = _yaw_across(clip, first, count, azimuth + (np.pi if number else 0) + rng.normal(0, 0.35))
        people.append(cast.stand(body, clip, cast.draw_shape(rng), first, count, yaw))
    if len(people) == 2:
        people[1] = _beside(body, people[0], people[1], azimuth, rng)
    return people


def _strangers(
    plan: Plan, body: Body, clips: tuple[Clip, ...], people: list[Person], cameras_m: np.ndarray
) -> list[Person]:
    """Bystanders near the others, in nobody's way. cameras_m [T, 2]."""
    rng = plan.rng("strangers")
    count = len(people[0].pose)
    strangers: list[Person] = []
    for role in plan.bystanders:
        clip = mirrored(clips[role.clip]) if role.mirrored else clips[role.clip]
        again = np.minimum(np.arange(count), len(clip.pose) - 1)  # who is done earlier stands still
        clip = Clip(clip.name, clip.pose[again], clip.root_m[again])
        stranger = cast.stand(body, clip, cast.draw_shape(rng), 0, count, rng.uniform(-np.pi, np.pi))
        for _ in range(30):
            shift = people[0].path.mean(0) + rng.uniform(0.7, 2.8) * _heading(rng.uniform(-np.pi, np.pi))
            path = stranger.path + shift
            apart = min(np.linalg.norm(p.path - path, axis=1).min() for p in (*people, *strangers))
            if apart > _APART_M and np.linalg.norm(cameras_m - path, axis=1).min() > 2.2:
                strangers.append(cast.shifted(body, stranger, (float(shift[0]), float(shift[1]))))
                break
    return strangers


def _heading(azimuth: float) -> np.ndarray:
    """Unit x, z."""
    return np.array([np.sin(azimuth), np.cos(azimuth)])


def _yaw_across(clip: Clip, first: int, count: int, azimuth: float) -> float:
    """The turn that makes a clip go across the view, from left to right as the camera at this azimuth sees it."""
    moved = (clip.root_m[first + count - 1] - clip.root_m[first])[::2].numpy()
    right = np.array([np.cos(azimuth), -np.sin(azimuth)])  # x, z
    # Turning by yaw takes the direction (x, z) = (sin a, cos a) to a + yaw.
    return float(np.arctan2(right[0], right[1]) - np.arctan2(moved[0], moved[1]))


def _beside(body: Body, one: Person, other: Person, azimuth: float, rng: np.random.Generator) -> Person:
    """The second person nearer or farther than the first, as close as they never meet."""
    towards = _heading(azimuth)
    side = np.array([towards[1], -towards[0]]) * rng.uniform(-0.7, 0.7)
    way = towards * rng.choice((-1, 1))
    for apart in np.arange(rng.uniform(0.6, 1.2), 8, 0.15):
        shift = apart * way + side
        if np.linalg.norm(one.path - other.path - shift, axis=1).min() > _APART_M:
            break
    return cast.shifted(body, other, (float(shift[0]), float(shift[1])))
