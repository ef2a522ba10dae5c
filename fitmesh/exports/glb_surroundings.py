"""What stands around the people in `scene.glb`: the camera of each shot, and the floor."""

import math
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from fitmesh.exports.gltf import ARRAY_BUFFER, Animation, Gltf, one_hemisphere
from fitmesh.exports.scene import SceneFrame
from fitmesh.result import Result
from fitting.camera import Camera

NEAR_M, FAR_M = 0.05, 1000.0
_LINES = 1  # glTF's mode of a primitive
_FLOOR_GREY = 0.2
_FLOOR_MARGIN_M = 2
_WIDEST_FLOOR_M = 60  # a wider one has a line every 10 m
_STANDS_STILL_M = 1e-6  # also of the elements of a rotation: rounding of float32


def add_cameras(gltf: Gltf, animation: Animation, result: Result, scene: SceneFrame) -> list[int]:
    """A node for each shot, moved if the camera moves: `camera`, `camera_shot_2`, ..; of several cameras `camera_NAME`.

    glTF cameras look along -z with y up; the principal point and a zoom, which they cannot express, are in extras.
    """
    nodes = []
    shots = np.array([result.shot_at(frame) for frame in result.frames.tolist()])
    for shot in range(len(result.shots)):
        rows = np.flatnonzero(shots == shot)
        if not len(rows):
            continue
        name = f"camera_shot_{shot + 1}" if shot else "camera"
        pose = scene.from_camera[rows]
        turn = Rotation.from_matrix(pose[:, :3, :3] @ np.diag([1.0, -1.0, -1.0]))
        quaternion, place_m = one_hemisphere(turn.as_quat()), pose[:, :3, 3]
        lens = _lens(gltf, result.camera_at(int(result.frames[rows[0]])), name, result.focal_px[rows])
        entry = {"name": name, "camera": lens, "translation": place_m[0].tolist()}
        node = gltf.add("nodes", entry | {"rotation": quaternion[0].tolist()})
        nodes.append(node)
        moves, turns = (np.ptp(values, axis=0).max() > _STANDS_STILL_M for values in (place_m, pose[:, :3, :3]))
        if moves or turns:
            times = animation.times(result.time_s[rows] - result.time_s[0])
            if moves:
                animation.move(node, "translation", times, place_m)
            if turns:
                animation.move(node, "rotation", times, quaternion)
    for view in result.views[1:]:  # other cameras of the same scene, which stand
        pose = scene.from_camera[0] @ np.linalg.inv(view.from_camera)
        turn = Rotation.from_matrix(pose[:3, :3] @ np.diag([1.0, -1.0, -1.0])).as_quat()
        name, focal, center = f"camera_{view.name}", tuple(view.focal_px), tuple(view.center_px)
        size = int(view.size_px[0]), int(view.size_px[1])
        lens = _lens(gltf, Camera(focal, center, size), name, view.focal_px[:1])
        entry = {"name": name, "camera": lens, "translation": pose[:3, 3].tolist(), "rotation": turn.tolist()}
        nodes.append(gltf.add("nodes", entry))
    return nodes


def _lens(gltf: Gltf, camera: Camera, name: str, focal_px: np.ndarray) -> int:
    """The lens of a shot's first frame, and how it zooms."""
    (fx, fy), (width, height) = camera.focal_px, camera.size
    perspective = {
        "yfov": 2 * math.atan(height / (2 * fy)),
        "aspectRatio": (width / fx) / (height / fy),
        "znear": NEAR_M,
        "zfar": FAR_M,
    }
    extras: dict[str, Any] = {
        "width_px": width, "height_px": height, "focal_px": [fx, fy], "center_px": list(camera.center_px),
    }  # fmt: skip
    if np.ptp(focal_px) > 0:
        extras["focal_px_by_frame"] = focal_px.round(3).tolist()
    return gltf.add("cameras", {"name": name, "type": "perspective", "perspective": perspective, "extras": extras})


def add_floor(gltf: Gltf, result: Result, scene: SceneFrame) -> list[int]:
    """A grid of lines at y = 0, a line a metre, around everybody whose world frame is known; else none."""
    people = [person for person in result.people if scene.upright[person.shot]]
    if not people:
        return []
    places = [scene.points(person.joints_m[:, :1], person.frame)[:, 0] for person in people]
    places += [scene.at(person.frame)[:, :3, 3] for person in people]
    ground = np.concatenate(places)[:, [0, 2]]
    low = np.floor(ground.min(0)) - _FLOOR_MARGIN_M
    high = np.ceil(ground.max(0)) + _FLOOR_MARGIN_M
    step = 1 if (high - low).max() <= _WIDEST_FLOOR_M else 10
    low, high = np.floor(low / step) * step, np.ceil(high / step) * step
    xs, zs = (np.arange(a, b + step / 2, step) for a, b in zip(low, high, strict=True))
    lines = [[(x, 0, low[1]), (x, 0, high[1])] for x in xs] + [[(low[0], 0, z), (high[0], 0, z)] for z in zs]
    points = gltf.array(np.array(lines, "<f4").reshape(-1, 3), ARRAY_BUFFER, limits=True)
    shading = {"baseColorFactor": [_FLOOR_GREY] * 3 + [1.0], "metallicFactor": 0.0, "roughnessFactor": 1.0}
    material = gltf.add("materials", {"name": "floor", "pbrMetallicRoughness": shading})
    primitive = {"attributes": {"POSITION": points}, "mode": _LINES, "material": material}
    mesh = gltf.add("meshes", {"name": "floor", "primitives": [primitive]})
    return [gltf.add("nodes", {"name": "floor", "mesh": mesh, "extras": {"metres_between_lines": step}})]
