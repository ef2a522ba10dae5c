"""One sequence: its random plan, the people, camera and scene of it, and each frame's image and truth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import torch

from eval3dpw.synth import staging, surroundings
from eval3dpw.synth.clothed_people import (
    ClothedBody,
    SyntheticPerson,
    clothed_body,
    draw_outfit,
    draw_shape,
    moved_to,
    person_from_clip,
)
from eval3dpw.synth.motion import Clip, mirrored
from eval3dpw.synth.rendering import SceneMesh, build_scene_mesh, seen_by
from eval3dpw.synth.surroundings import OCCLUSION_LEVELS, SCENE_KINDS, SceneKind
from fitting.body import Body
from fitting.camera import Camera

FOCAL_OF_WIDTH = (0.75, 1.35)  # focal length as a share of the image's width: 67 to 41 degrees
_APART_M = 0.6  # least distance of two people, pelvis to pelvis
# Visibility of a keypoint: outside the image, hidden by another object or person, behind the own body, seen.
OUTSIDE, HIDDEN, BEHIND_SELF, SEEN = 0, 1, 2, 3
BY_OBJECT, BY_NOBODY = -1, -2
# Depth of each keypoint below the surface, metres: joints are inside the body, the face is on it.
DEPTH_M = np.array([
    0.06, 0.05, 0.05, 0.08, 0.08, 0.17, 0.17, 0.12, 0.12, 0.10, 0.10, 0.24, 0.24, 0.16, 0.16, 0.14, 0.14,  # COCO's 17
    0.12, 0.17, 0.24, 0.10, 0.10, 0.10, 0.10, 0.12, 0.12,  # and Halpe's others
])  # fmt: skip


@dataclass(frozen=True)
class ClipChoice:
    clip: int  # number among the split's clips
    mirrored: bool

    def of(self, clips: tuple[Clip, ...]) -> Clip:
        return mirrored(clips[self.clip]) if self.mirrored else clips[self.clip]


@dataclass(frozen=True)
class SequencePlan:
    """What one sequence shows: drawn from the seed and the sequence's number alone."""

    name: str
    people: tuple[ClipChoice, ...]
    bystanders: tuple[ClipChoice, ...]  # in the images, but not in the truth
    scene: SceneKind
    occlusion: surroundings.OcclusionLevel
    view: staging.CameraView
    focal_px: float
    sensor: staging.Sensor
    crossing: bool  # two people walk past each other
    seed: tuple[int, int]  # of everything that is drawn later

    def rng(self, what: str) -> np.random.Generator:
        """A generator for one part, so that a change of one part leaves the others as they were. The names are part of
        the seed: another name makes other images."""
        return np.random.default_rng([*self.seed, *what.encode()])


def draw_plan(seed: int, number: int, clip_count: int, width: int) -> SequencePlan:
    *before, count = (2 if k % 5 in (1, 3) else 1 for k in range(number + 1))
    first = sum(before)
    rng = np.random.default_rng([seed, number])
    kind = SCENE_KINDS[(number + seed) % len(SCENE_KINDS)]
    level = OCCLUSION_LEVELS[number % len(OCCLUSION_LEVELS)]
    motion = staging.CAMERA_MOTIONS[(number // 2 + number) % len(staging.CAMERA_MOTIONS)]
    # Clips in random order: each once, then each once mirrored, and so on.
    order = np.random.default_rng([seed, clip_count]).permutation(clip_count)
    shown = range(first, first + count)
    more = int(rng.random() < {"none": 0.25, "some": 0.4, "heavy": 0.5}[level])  # bystanders
    return SequencePlan(
        name=f"synth_{number:03d}_{kind}_{count}p_{motion}_{level}",
        people=tuple(ClipChoice(int(order[k % clip_count]), mirrored=k // clip_count % 2 == 1) for k in shown),
        bystanders=tuple(ClipChoice(int(rng.integers(clip_count)), bool(rng.integers(2))) for _ in range(more)),
        scene=kind, occlusion=level, view=staging.draw_view(rng, motion),
        focal_px=rng.uniform(*FOCAL_OF_WIDTH) * width,
        sensor=staging.draw_sensor(rng, width), crossing=bool(rng.random() < 0.6), seed=(seed, number),
    )  # fmt: skip


@dataclass(frozen=True)
class FrameTruth:
    """One image's truth in pixels."""

    keypoints_px: np.ndarray  # [P, K, 2]
    visibility: np.ndarray  # [P, K] uint8: OUTSIDE, HIDDEN, BEHIND_SELF or SEEN
    hidden_by: np.ndarray  # [P, K] int16: number of the person who hides it, BY_OBJECT, or BY_NOBODY
    boxes_px: np.ndarray  # [P, 4] x1, y1, x2, y2 of the whole person, cut at the image's edge
    area_px2: np.ndarray  # [P] of the person in the image without occlusion
    seen_px2: np.ndarray  # [P] of the visible part


def frame_truth(
    mesh: SceneMesh, vertices_m: np.ndarray, people_m: list[np.ndarray], keypoints_m: np.ndarray, camera: Camera,
    world_to_cam: np.ndarray,
) -> FrameTruth:  # fmt: skip
    """Of keypoints_m [P, K, 3] in the world frame: COCO's 17 or Halpe's 26."""
    buffer = seen_by(vertices_m, mesh.faces, camera, world_to_cam)
    owner = mesh.owner(buffer)
    surface_m = 1 / np.maximum(buffer.inverse_depth, 1e-6)
    in_cam = keypoints_m @ world_to_cam[:3, :3].T + world_to_cam[:3, 3]
    depth = np.maximum(in_cam[..., 2], 1e-3)
    pixels = in_cam[..., :2] / depth[..., None] * camera.focal_px + camera.center_px
    count, points = keypoints_m.shape[:2]
    visibility, hidden_by = np.zeros((count, points), np.uint8), np.zeros((count, points), np.int16)
    boxes, area, seen = np.zeros((count, 4)), np.zeros(count), np.zeros(count)
    for person in range(count):
        start, end = mesh.person_faces[person : person + 2]
        faces = mesh.faces[start:end] - np.int32(sum(len(vertices) for vertices in people_m[:person]))
        alone = seen_by(people_m[person], faces, camera, world_to_cam).triangle >= 0  # [H, W] without occlusion
        visibility[person], hidden_by[person] = _visibility(
            owner, surface_m, pixels[person], in_cam[person, :, 2], person
        )
        rows, columns = np.flatnonzero(alone.any(1)), np.flatnonzero(alone.any(0))
        if len(rows):
            boxes[person] = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
        area[person], seen[person] = alone.sum(), (owner == person).sum()
    return FrameTruth(pixels, visibility, hidden_by, boxes, area, seen)


def _visibility(
    owner: np.ndarray, surface_m: np.ndarray, pixels: np.ndarray, depth_m: np.ndarray, person: int
) -> tuple[np.ndarray, np.ndarray]:
    """Of each keypoint [K], and what hides it [K]."""
    height, width = owner.shape
    x, y = np.round(pixels).astype(int).T
    inside = (x >= 0) & (y >= 0) & (x < width) & (y < height) & (depth_m > 0.05)
    x, y = np.clip(x, 0, width - 1), np.clip(y, 0, height - 1)
    whose, nearest = owner[y, x], surface_m[y, x]
    other = (whose != person) & (nearest < depth_m - 0.02) & (whose != -2)
    buried = (whose == person) & (nearest < depth_m - DEPTH_M[: len(depth_m)])
    state = np.where(inside, np.where(other, HIDDEN, np.where(buried, BEHIND_SELF, SEEN)), OUTSIDE)
    return state.astype(np.uint8), np.where(inside & other, whose, BY_NOBODY)


@dataclass(frozen=True)
class SyntheticSequence:
    """Everything that a sequence's images are rendered from."""

    plan: SequencePlan
    people: list[SyntheticPerson]
    bystanders: list[SyntheticPerson]  # in the images, but not in the truth
    clothed: list[ClothedBody]  # of people, then of bystanders
    camera: Camera
    path: staging.CameraPath | staging.RecordedPath
    mesh: SceneMesh

    @property
    def frames(self) -> int:
        return len(self.people[0].pose)

    def posed(self) -> list[np.ndarray]:
        everyone = (*self.people, *self.bystanders)
        return [c.posed(p.placement, p.translation, p.size) for c, p in zip(self.clothed, everyone, strict=True)]

    def cam_poses(self) -> np.ndarray:
        """[T, 4, 4] world to camera."""
        return np.stack([self.path.world_to_cam(frame) for frame in range(self.frames)])


def build_sequence(
    plan: SequencePlan, body: Body, clips: tuple[Clip, ...], size: tuple[int, int], most_frames: int
) -> SyntheticSequence:
    """The people, camera and scene of a plan."""
    people = _people(plan, body, clips, most_frames)
    camera = Camera.from_focal(plan.focal_px, size)
    centers = torch.stack([person.joints[:, 0] for person in people], 1).numpy()
    path = staging.CameraPath(plan.view, camera, centers, plan.rng("camera"))
    cameras = np.stack([path.position(frame) for frame in range(len(centers))])[:, ::2]
    bystanders = _bystanders(plan, body, clips, people, cameras)
    paths = np.concatenate([person.path for person in (*people, *bystanders)])
    area = surroundings.ClearArea(paths, cameras, plan.view.azimuth)
    rng = plan.rng("scene")
    around = surroundings.build_scene(plan.scene, area, rng)
    sampled = range(0, len(centers), 5)
    keypoints = torch.stack([person.keypoints[sampled, :17] for person in people], 1).numpy()
    views = np.stack([path.world_to_cam(frame) for frame in sampled])
    occluders = surroundings.place_occluders(plan.occlusion, area, keypoints, views, camera, plan.scene, rng)
    around.solids.extend(occluders)
    clothed = dressed(plan, [*people, *bystanders], body)
    return SyntheticSequence(plan, people, bystanders, clothed, camera, path, build_scene_mesh(clothed, around, rng))


def dressed(plan: SequencePlan, people: Sequence[SyntheticPerson], body: Body) -> list[ClothedBody]:
    """Everybody in clothes of their own."""
    clothed = []
    for number, person in enumerate(people):
        outfit_rng = plan.rng(f"looks {number}")
        clothed.append(clothed_body(body, person.shape, draw_outfit(outfit_rng), outfit_rng))
    return clothed


def frame_images(
    sequence: SyntheticSequence, posed: list[np.ndarray], frames: range, rng: np.random.Generator, subframes: int
) -> Iterator[np.ndarray]:
    """What the sensor gives for each frame, exposed for the first of them."""
    sensor, gain = sequence.plan.sensor, None
    for frame in frames:
        light = exposed_light(sequence, posed, frame, subframes)
        gain = staging.exposure_gain(sensor, light) if gain is None else gain
        yield staging.sensor_image(sensor, light, gain, rng)


def render_frames(
    sequence: SyntheticSequence, keypoint_count: int = 17, subframes: int = staging.SUBFRAMES
) -> Iterator[tuple[bytes, FrameTruth]]:
    """The JPEG of every frame, and its truth: of COCO's 17 keypoints or Halpe's 26."""
    plan, people = sequence.plan, sequence.people
    posed, frames = sequence.posed(), range(sequence.frames)
    keypoints = torch.stack([person.keypoints[:, :keypoint_count] for person in people], 1).numpy()
    for frame, image in zip(frames, frame_images(sequence, posed, frames, plan.rng("sensor"), subframes), strict=True):
        bodies = [vertices[frame] for vertices in posed]
        truth = frame_truth(
            sequence.mesh, sequence.mesh.vertices_m(bodies), bodies, keypoints[frame], sequence.camera,
            sequence.path.world_to_cam(frame),
        )  # fmt: skip
        _, jpeg = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, plan.sensor.quality])
        yield jpeg.tobytes(), truth


def exposed_light(
    sequence: SyntheticSequence, posed: list[np.ndarray], frame: int, subframes: int = staging.SUBFRAMES
) -> np.ndarray:
    """Mean light [H, W, 3] while the shutter is open; subframes are shifted by parts of a pixel, which antialiases."""
    at_frame = [vertices[frame] for vertices in posed]
    center = np.mean([vertices.mean(0) for vertices in at_frame], 0)
    shadows = sequence.mesh.shadows(sequence.mesh.vertices_m(at_frame), center)
    total = np.zeros((sequence.camera.size[1], sequence.camera.size[0], 3), np.float32)
    shifts = staging.SUBFRAME_SHIFTS_PX[:: staging.SUBFRAMES // subframes]  # two of them lie opposite each other
    times = sequence.plan.sensor.shutter * ((np.arange(subframes) + 0.5) / subframes - 0.5)  # in frames, around 0
    for shift, time in zip(shifts, times, strict=True):
        x, y = sequence.camera.center_px
        subframe_camera = Camera.from_focal(
            sequence.camera.focal_px, sequence.camera.size, (x + shift[0], y + shift[1])
        )
        # linear between neighbours
        other, share = min(max(frame + (1 if time > 0 else -1), 0), sequence.frames - 1), np.float32(abs(time))
        vertices = sequence.mesh.vertices_m([v[frame] + share * (v[other] - v[frame]) for v in posed])
        transform = sequence.path.world_to_cam(frame + time)
        total += sequence.mesh.light(vertices, subframe_camera, transform, shadows, 4 * shift)
    return total / subframes


def _people(plan: SequencePlan, body: Body, clips: tuple[Clip, ...], most_frames: int) -> list[SyntheticPerson]:
    rng = plan.rng("people")
    chosen = [choice.of(clips) for choice in plan.people]
    count = min(most_frames, *(len(clip.pose) for clip in chosen))
    azimuth = plan.view.azimuth
    people = []
    for number, clip in enumerate(chosen):
        first = int(rng.integers(len(clip.pose) - count + 1))
        yaw = rng.uniform(-np.pi, np.pi)
        if plan.crossing and len(chosen) > 1:
            # Across the view from left to right of a camera at this azimuth. A rotation by yaw takes the direction
            # (x, z) = (sin a, cos a) to a + yaw.
            across = azimuth + (np.pi if number else 0) + rng.normal(0, 0.35)
            went = (clip.root_m[first + count - 1] - clip.root_m[first])[::2].numpy()
            yaw = float(np.arctan2(np.cos(across), -np.sin(across)) - np.arctan2(went[0], went[1]))
        people.append(person_from_clip(body, clip, draw_shape(rng), first, count, yaw))
    if len(people) == 2:  # the second nearer or farther than the first, as close as possible without a collision
        towards = _heading(azimuth)
        side, way = np.array([towards[1], -towards[0]]) * rng.uniform(-0.7, 0.7), towards * rng.choice((-1, 1))
        for apart in np.arange(rng.uniform(0.6, 1.2), 8, 0.15):
            shift = apart * way + side
            if np.linalg.norm(people[0].path - people[1].path - shift, axis=1).min() > _APART_M:
                break
        people[1] = moved_to(body, people[1], *shift)
    return people


def _bystanders(
    plan: SequencePlan, body: Body, clips: tuple[Clip, ...], people: list[SyntheticPerson], cameras_m: np.ndarray
) -> list[SyntheticPerson]:
    """Bystanders near the people, where their paths stay clear of others and of the camera, cameras_m [T, 2]."""
    rng = plan.rng("strangers")
    count = len(people[0].pose)
    bystanders: list[SyntheticPerson] = []
    for choice in plan.bystanders:
        clip = choice.of(clips)
        rows = np.minimum(np.arange(count), len(clip.pose) - 1)  # a shorter clip ends standing still
        clip = Clip(clip.name, clip.pose[rows], clip.root_m[rows])
        bystander = person_from_clip(body, clip, draw_shape(rng), 0, count, rng.uniform(-np.pi, np.pi))
        for _ in range(30):
            shift = people[0].path.mean(0) + rng.uniform(0.7, 2.8) * _heading(rng.uniform(-np.pi, np.pi))
            path = bystander.path + shift
            apart = min(np.linalg.norm(p.path - path, axis=1).min() for p in (*people, *bystanders))
            if apart > _APART_M and np.linalg.norm(cameras_m - path, axis=1).min() > 2.2:
                bystanders.append(moved_to(body, bystander, *shift))
                break
    return bystanders


def _heading(azimuth: float) -> np.ndarray:
    """Unit x, z."""
    return np.array([np.sin(azimuth), np.cos(azimuth)])
