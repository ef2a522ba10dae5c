"""One shot: everything that its images are rendered from, and each frame's image and truth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import cv2
import numpy as np
import torch

from eval3dpw.synth import sensors
from eval3dpw.synth.camera_paths import CameraKind, CameraPath
from eval3dpw.synth.clothed_people import ClothedBody
from eval3dpw.synth.rendering import SceneMesh, seen_by
from eval3dpw.synth.staging import SyntheticPerson
from eval3dpw.synth.surroundings import SceneKind
from fitting.camera import Camera

# One image is the mean of several renderings within the exposure time, each shifted by a part of a
# pixel.
SUBFRAME_SHIFTS_PX = np.array([(-0.375, -0.125), (0.125, -0.375), (0.375, 0.125), (-0.125, 0.375)])
SUBFRAMES = len(SUBFRAME_SHIFTS_PX)
# Visibility of a keypoint: outside the image, hidden by another object or person, behind the own
# body, seen.
OUTSIDE = 0
HIDDEN = 1
BEHIND_SELF = 2
SEEN = 3
BY_OBJECT = -1
BY_NOBODY = -2
# Depth of each keypoint below the surface, metres: joints are inside the body, the face is on it.
DEPTH_M = np.array(
    [
        0.06,
        0.05,
        0.05,
        0.08,
        0.08,
        0.17,
        0.17,
        0.12,
        0.12,
        0.10,
        0.10,
        0.24,
        0.24,
        0.16,
        0.16,
        0.14,
        0.14,  # COCO's 17
        0.12,
        0.17,
        0.24,
        0.10,
        0.10,
        0.10,
        0.10,
        0.12,
        0.12,  # and Halpe's others
    ]
)


@dataclass(frozen=True)
class Shot:
    people: list[SyntheticPerson]
    identities: list[int]  # of the people, over all shots of a video
    bystanders: list[SyntheticPerson]  # in the images, but not in the truth
    clothed: list[ClothedBody]  # of people, then of bystanders
    camera: Camera
    camera_kind: CameraKind
    path: CameraPath
    place: SceneKind
    mesh: SceneMesh
    sensor: sensors.Sensor
    seed: Sequence[int]  # of the sensor's noise

    @property
    def frames(self) -> int:
        return len(self.people[0].pose)

    def posed(self) -> list[np.ndarray]:
        """Return the vertices [T, V, 3] of each person."""
        everyone = (*self.people, *self.bystanders)
        return [
            c.posed(p.placement, p.translation, p.size)
            for c, p in zip(self.clothed, everyone, strict=True)
        ]


@dataclass(frozen=True)
class FrameTruth:
    """Hold the truth of P people in pixels; over many images with an axis for time after the
    first.
    """

    keypoints_px: np.ndarray  # [P, 26, 2]
    visibility: np.ndarray  # [P, 26] uint8: OUTSIDE, HIDDEN, BEHIND_SELF or SEEN
    hidden_by: (
        np.ndarray
    )  # [P, 26] int16: number of the person who hides it, BY_OBJECT, or BY_NOBODY
    boxes_px: np.ndarray  # [P, 4] x1, y1, x2, y2 of the whole person, cut at the image's edge
    area_px2: np.ndarray  # [P] of the person in the image without occlusion
    seen_px2: np.ndarray  # [P] of the visible part

    @staticmethod
    def over_time(truths: "Sequence[FrameTruth]") -> "FrameTruth":
        return FrameTruth(
            *(np.stack([getattr(truth, f.name) for truth in truths], 1) for f in fields(FrameTruth))
        )


def frame_truth(shot: Shot, posed_m: list[np.ndarray], frame: int) -> FrameTruth:
    """Return the truth of one frame; posed_m: vertices [V, 3] of each person in it, in the
    world.
    """
    mesh = shot.mesh
    camera = shot.camera
    world_to_cam = shot.path.world_to_cam(frame)
    buffer = seen_by(mesh.vertices_m(posed_m), mesh.faces, camera, world_to_cam)
    owner = mesh.owner(buffer)
    surface_m = 1 / np.maximum(buffer.inverse_depth, 1e-6)
    keypoints_m = torch.stack([person.keypoints[frame] for person in shot.people]).numpy()
    in_cam = keypoints_m @ world_to_cam[:3, :3].T + world_to_cam[:3, 3]
    depth = np.maximum(in_cam[..., 2], 1e-3)
    pixels = in_cam[..., :2] / depth[..., None] * camera.focal_px + camera.center_px
    count, points = keypoints_m.shape[:2]
    visibility = np.zeros((count, points), np.uint8)
    hidden_by = np.zeros((count, points), np.int16)
    boxes = np.zeros((count, 4))
    area = np.zeros(count)
    visible_share = np.zeros(count)
    for person in range(count):
        start, end = mesh.person_faces[person : person + 2]
        faces = mesh.faces[start:end] - np.int32(
            sum(len(vertices) for vertices in posed_m[:person])
        )
        alone = (
            seen_by(posed_m[person], faces, camera, world_to_cam).triangle >= 0
        )  # [H, W] without occlusion
        visibility[person], hidden_by[person] = _visibility(
            owner, surface_m, pixels[person], in_cam[person, :, 2], person
        )
        rows = np.flatnonzero(alone.any(1))
        columns = np.flatnonzero(alone.any(0))
        if len(rows):
            boxes[person] = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
        area[person] = alone.sum()
        visible_share[person] = (owner == person).sum()
    return FrameTruth(pixels, visibility, hidden_by, boxes, area, visible_share)


def _visibility(
    owner: np.ndarray, surface_m: np.ndarray, pixels: np.ndarray, depth_m: np.ndarray, person: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the visibility of each keypoint [K] and what hides it [K]."""
    height, width = owner.shape
    x, y = np.round(pixels).astype(int).T
    inside = (x >= 0) & (y >= 0) & (x < width) & (y < height) & (depth_m > 0.05)
    x = np.clip(x, 0, width - 1)
    y = np.clip(y, 0, height - 1)
    pixel_owner = owner[y, x]
    nearest = surface_m[y, x]
    hidden_by_other = (pixel_owner != person) & (nearest < depth_m - 0.02) & (pixel_owner != -2)
    buried = (pixel_owner == person) & (nearest < depth_m - DEPTH_M)
    state = np.where(
        inside, np.where(hidden_by_other, HIDDEN, np.where(buried, BEHIND_SELF, SEEN)), OUTSIDE
    )
    return state.astype(np.uint8), np.where(inside & hidden_by_other, pixel_owner, BY_NOBODY)


def frame_images(
    shot: Shot, posed: list[np.ndarray], frames: range, rng: np.random.Generator, subframes: int
) -> Iterator[np.ndarray]:
    """Yield what the sensor gives for each frame, exposed for the first of them."""
    gain = None
    for frame in frames:
        light = exposed_light(shot, posed, frame, subframes)
        gain = sensors.exposure_gain(shot.sensor, light) if gain is None else gain
        yield sensors.sensor_image(shot.sensor, light, gain, rng)


def render_frames(shot: Shot, subframes: int = SUBFRAMES) -> Iterator[tuple[bytes, FrameTruth]]:
    """Yield the JPEG and the truth of every frame."""
    posed = shot.posed()
    frames = range(shot.frames)
    images = frame_images(shot, posed, frames, np.random.default_rng(shot.seed), subframes)
    for frame, image in zip(frames, images, strict=True):
        _, jpeg = cv2.imencode(
            ".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, shot.sensor.quality]
        )
        yield jpeg.tobytes(), frame_truth(shot, [vertices[frame] for vertices in posed], frame)


def exposed_light(
    shot: Shot, posed: list[np.ndarray], frame: int, subframes: int = SUBFRAMES
) -> np.ndarray:
    """Return the mean light [H, W, 3] while the shutter is open.

    Subframes are shifted by parts of a pixel, which smooths edges.
    """
    at_frame = [vertices[frame] for vertices in posed]
    center = np.mean([vertices.mean(0) for vertices in at_frame], 0)
    shadows = shot.mesh.shadows(shot.mesh.vertices_m(at_frame), center)
    total = np.zeros((shot.camera.size[1], shot.camera.size[0], 3), np.float32)
    shifts = SUBFRAME_SHIFTS_PX[:: SUBFRAMES // subframes]  # two of them lie opposite each other
    times = shot.sensor.shutter * (
        (np.arange(subframes) + 0.5) / subframes - 0.5
    )  # in frames, around 0
    for shift, time in zip(shifts, times, strict=True):
        x, y = shot.camera.center_px
        subframe_camera = Camera.from_focal(
            shot.camera.focal_px, shot.camera.size, (x + shift[0], y + shift[1])
        )
        # linear between neighbours
        neighbour = min(max(frame + (1 if time > 0 else -1), 0), shot.frames - 1)
        share = np.float32(abs(time))
        vertices = shot.mesh.vertices_m(
            [v[frame] + share * (v[neighbour] - v[frame]) for v in posed]
        )
        transform = shot.path.world_to_cam(frame + time)
        total += shot.mesh.light(vertices, subframe_camera, transform, shadows, 4 * shift)
    return total / subframes
