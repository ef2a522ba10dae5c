"""`scene.glb`: every person as a skinned, animated mesh, the camera and the floor. Opens in Blender
and three.js.

All shots are in one file. Each has a world frame of its own, and its people are shown only during
it, so a cut in the video is a cut in the scene."""

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from fitmesh.exports import DEFAULT, bone_names
from fitmesh.exports import scene as scenes
from fitmesh.exports.draw import surface_colour
from fitmesh.exports.scene import RestBody, SceneFrame, one_hemisphere
from fitmesh.result import Person, Result
from fitmesh.ui.events import Reporter
from fitmesh.version import __version__
from fitting.camera import Camera
from fitting.render.shading import vertex_normals
from pose2d.base.files import atomic_file

FILE = "scene.glb"
_COMPONENT = {"<f4": 5126, "<u4": 5125, "<u2": 5123, "|u1": 5121}
_TYPE: dict[tuple[int, ...], str] = {(): "SCALAR", (3,): "VEC3", (4,): "VEC4", (4, 4): "MAT4"}
ARRAY_BUFFER, ELEMENT_ARRAY_BUFFER = 34962, 34963
_ALIGNMENT = 4
_MAGIC = b"glTF"
_VERSION = 2
_JSON = b"JSON"
_BINARY = b"BIN\0"
INFLUENCES = 4  # joints that may move a vertex; what game engines and most importers read
NEAR_M, FAR_M = 0.05, 1000.0
_LINES = 1  # glTF's mode of a primitive
_FLOOR_GREY = 0.2
_FLOOR_MARGIN_M = 2
_WIDEST_FLOOR_M = 60  # a wider one has a line every 10 m
_STANDS_STILL_M = 1e-6  # also of the elements of a rotation: rounding of float32


@dataclass
class Gltf:
    """A scene under construction, in glTF 2.0's binary container: arrays become accessors,
    everything else is JSON. Entries refer to each other by number: `add` returns the number of its
    entry."""

    extras: dict[str, Any]
    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _samplers: list[dict[str, Any]] = field(default_factory=list)  # of the one animation
    _channels: list[dict[str, Any]] = field(default_factory=list)
    _chunks: list[bytes] = field(default_factory=list)
    _size: int = 0

    def add(self, kind: str, entry: dict[str, Any]) -> int:
        """Append to nodes, meshes, skins, ..; glTF forbids empty lists, so one is made with its
        first entry.
        """
        entries = self.lists.setdefault(kind, [])
        entries.append(entry)
        return len(entries) - 1

    def array(
        self,
        values: np.ndarray,
        target: int | None = None,
        *,
        limits: bool = False,
        normalized: bool = False,
    ) -> int:
        """An accessor for [N], [N, 3], [N, 4] or [N, 4, 4] (columns first) numbers. `limits` states
        min and max; `normalized`: the largest whole number stands for 1."""
        values = np.ascontiguousarray(values)
        view: dict[str, Any] = {"buffer": 0, "byteOffset": self._size, "byteLength": values.nbytes}
        self._chunks.append(values.tobytes() + b"\0" * (-values.nbytes % _ALIGNMENT))
        self._size += len(self._chunks[-1])
        if target is not None:
            view["target"] = target
        accessor: dict[str, Any] = {
            "bufferView": self.add("bufferViews", view),
            "componentType": _COMPONENT[values.dtype.str],
            "count": len(values),
            "type": _TYPE[values.shape[1:]],
        }
        if normalized:
            accessor["normalized"] = True
        if limits:
            flat = values.reshape(len(values), -1)
            accessor["min"] = flat.min(0).tolist()
            accessor["max"] = flat.max(0).tolist()
        return self.add("accessors", accessor)

    def times(self, time_s: np.ndarray) -> int:
        return self.array(time_s.astype("<f4"), limits=True)

    def move(
        self, node: int, path: str, times: int, values: np.ndarray, interpolation: str = "LINEAR"
    ) -> None:
        """A channel of the animation."""
        output = self.array(values.astype("<f4"))
        self._samplers.append({"input": times, "output": output, "interpolation": interpolation})
        self._channels.append(
            {"sampler": len(self._samplers) - 1, "target": {"node": node, "path": path}}
        )

    def write(self, path: Path, roots: list[int]) -> None:
        """One .glb whose scene has the nodes `roots` at its top."""
        if self._channels:
            self.add(
                "animations",
                {"name": "motion", "samplers": self._samplers, "channels": self._channels},
            )
        document: dict[str, Any] = {
            "asset": {
                "version": "2.0",
                "generator": f"fitmesh {__version__}",
                "extras": self.extras,
            },
            "scene": 0,
            "scenes": [{"name": "fitmesh", "nodes": roots}],
            **self.lists,
        }
        if self._size:
            document["buffers"] = [{"byteLength": self._size}]
        text = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        chunks = struct.pack("<I4s", len(text), _JSON), text
        binary = (struct.pack("<I4s", self._size, _BINARY), *self._chunks) if self._size else ()
        total = 12 + sum(map(len, (*chunks, *binary)))
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            file.write(struct.pack("<4sII", _MAGIC, _VERSION, total))
            file.writelines((*chunks, *binary))


def write(result: Result, out: Path, progress: Reporter, convention: str = DEFAULT) -> None:
    """Meshes, skeletons, motion and camera in one file; bones are named after the `convention` of
    another program.
    """
    scene = scenes.scene_frame(result)
    gltf = Gltf(
        {
            "body": result.body_name,
            "bone_names": convention,
            "frames_per_second": float(scenes.frame_rate(result)),
            "confidence": result.source,
            "first_frame_s": float(result.time_s[0]) if len(result.time_s) else 0.0,
            "units": "metres",
            "axes": "x right as the shot's first camera sees it, y up, z towards that camera",
            "shots": [
                {
                    "first_frame": shot.first_frame,
                    "camera": shot.camera,
                    "frame": scenes.about_frame(shot, upright),
                }
                for shot, upright in zip(result.shots, scene.upright, strict=True)
            ],
        }
    )
    roots = [*_cameras(gltf, result, scene), *_floor(gltf, result, scene)]
    shared: dict[str, int] = {}  # what all people share: faces and skin
    if result.people:  # hands were looked for in the whole clip, or not at all
        joints, kept = reduced_skin(scenes.rest_body(result.body, result.people[0]).weights)
        index_type = (
            "<u2" if len(result.body.v_template) < 65_535 else "<u4"
        )  # glTF reserves the largest number
        shared = {
            "faces": gltf.array(
                result.body.faces.numpy().reshape(-1).astype(index_type), ELEMENT_ARRAY_BUFFER
            ),
            "JOINTS_0": gltf.array(joints.astype("|u1"), ARRAY_BUFFER),
            "WEIGHTS_0": gltf.array(kept.astype("<f4"), ARRAY_BUFFER),
        }
    with progress.stage("scene.glb", len(result.people), "people") as tick:
        for person in result.people:
            roots += _person(gltf, result, person, scene, shared, convention)
            tick(1)
        gltf.write(out / FILE, roots)


def _person(
    gltf: Gltf,
    result: Result,
    person: Person,
    scene: SceneFrame,
    shared: dict[str, int],
    convention: str,
) -> list[int]:
    """The nodes of skeleton and mesh. A skinned mesh ignores its parents, so it is a root node
    beside them.
    """
    name = f"person_{person.identity}"
    rest = scenes.rest_body(result.body, person)
    rotations, pelvis_m = scenes.motion_of(result, person, scene)
    joints = _joint_nodes(gltf, rest, pelvis_m[0], bone_names(convention, rest.joint_names))
    mesh = gltf.add(
        "nodes", {"name": f"{name}_mesh", "mesh": _mesh(gltf, result, person, rest, shared)}
    )
    gltf.lists["nodes"][mesh]["skin"] = _skin(gltf, name, rest, joints)
    extras = {
        "shot": person.shot + 1,
        "same_as": person.same_as,
        "height_m": round(person.height_m, 3),
    }
    root = gltf.add("nodes", {"name": name, "children": [joints[0]], "extras": extras})

    times = gltf.times(scenes.clip_time_s(result, person))
    for node, rotation in zip(joints, rotations, strict=True):
        gltf.move(node, "rotation", times, one_hemisphere(rotation.as_quat()))
    gltf.move(joints[0], "translation", times, pelvis_m)
    _show_while_present(gltf, root, result, person)
    return [root, mesh]


def _show_while_present(gltf: Gltf, root: int, result: Result, person: Person) -> None:
    """Scale 0 wherever the person is absent: glTF's way to hide a node. The mesh shrinks to a
    point.
    """
    present = np.isin(result.frames, person.frame)
    at = np.flatnonzero(
        np.diff(present, prepend=not present[0])
    )  # the first frame, and every change
    if len(at) > 1:
        times = gltf.times(result.time_s[at] - result.time_s[0])
        scale = present[at].astype(float)
        gltf.move(root, "scale", times, np.repeat(scale[:, None], 3, 1), "STEP")


def _joint_nodes(
    gltf: Gltf, rest: RestBody, pelvis_m: np.ndarray, names: Sequence[str]
) -> list[int]:
    """The joints in T-pose, at the person's first position, facing the camera."""
    first = len(gltf.lists["nodes"])
    for joint, name in enumerate(names):
        offset = rest.offsets_m[joint] if joint else pelvis_m
        node: dict[str, Any] = {
            "name": name,
            "translation": offset.tolist(),
            "rotation": [0.0, 0.0, 0.0, 1.0],
        }
        if children := [
            first + child for child, parent in enumerate(rest.parents) if parent == joint
        ]:
            node["children"] = children
        gltf.add("nodes", node)
    return list(range(first, first + len(names)))


def _skin(gltf: Gltf, name: str, rest: RestBody, joints: list[int]) -> int:
    to_joint = np.tile(np.eye(4), (len(joints), 1, 1))
    to_joint[:, :3, 3] = -rest.joints_m
    columns_first = np.swapaxes(to_joint, 1, 2).astype("<f4")
    matrices = gltf.array(columns_first)
    return gltf.add(
        "skins",
        {"name": name, "joints": joints, "skeleton": joints[0], "inverseBindMatrices": matrices},
    )


def _mesh(
    gltf: Gltf, result: Result, person: Person, rest: RestBody, shared: dict[str, int]
) -> int:
    normals = vertex_normals(rest.vertices_m, result.body.faces.numpy().astype(np.int32))
    attributes = {
        "POSITION": gltf.array(rest.vertices_m.astype("<f4"), ARRAY_BUFFER, limits=True),
        "NORMAL": gltf.array(normals.astype("<f4"), ARRAY_BUFFER),
        "JOINTS_0": shared["JOINTS_0"],
        "WEIGHTS_0": shared["WEIGHTS_0"],
        "COLOR_0": gltf.array(_colours(result, person), ARRAY_BUFFER, normalized=True),
    }
    # White: the colour is that of the vertices, times this.
    shading = {
        "baseColorFactor": [1.0, 1.0, 1.0, 1.0],
        "metallicFactor": 0.0,
        "roughnessFactor": 0.8,
    }
    material = gltf.add(
        "materials", {"name": f"person_{person.identity}", "pbrMetallicRoughness": shading}
    )
    primitive = {"attributes": attributes, "indices": shared["faces"], "material": material}
    return gltf.add("meshes", {"name": f"person_{person.identity}", "primitives": [primitive]})


def _colours(result: Result, person: Person) -> np.ndarray:
    """[V, 4] of a surface that is paler the fewer frames it was observed in. glTF cannot change
    colours over time.
    """
    colour = surface_colour(
        person.identity, scenes.observed_surface(result.body, person.joint_observed)
    )
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    opaque = np.ones((len(linear), 1))
    return np.round(65535 * np.concatenate([linear, opaque], 1)).astype("<u2")


def reduced_skin(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[V, 4] numbers of the joints that move a vertex most (0 where the weight is 0), and their
    weights of [V, J], scaled to sum to 1 again."""
    order = np.argsort(-weights, axis=1, kind="stable")[:, :INFLUENCES]
    kept = np.take_along_axis(weights, order, 1).astype(np.float64)
    kept /= kept.sum(1, keepdims=True)
    return np.where(kept > 0, order, 0), kept


def _cameras(gltf: Gltf, result: Result, scene: SceneFrame) -> list[int]:
    """A node for each shot, moved if the camera moves: `camera`, `camera_shot_2`, ..; of several
    cameras `camera_NAME`.

    glTF cameras look along -z with y up; the principal point and a zoom, which they cannot express,
    are in extras.
    """
    every = []  # name, lens of the first frame, rows, poses [T, 4, 4], focal lengths [T]
    for shot, rows in enumerate(scenes.shot_rows(result)):
        if len(frames := result.frames[rows]):
            name = f"camera_shot_{shot + 1}" if shot else "camera"
            first = result.camera_at(int(frames[0]))
            every.append((name, first, rows, scene.from_camera[rows], result.focal_px[rows]))
    for view in result.views[1:]:  # other cameras of the same scene, which stand
        width, height = view.size_px.tolist()
        lens = Camera(tuple(view.focal_px), tuple(view.center_px), (width, height))
        pose = scene.from_camera[:1] @ np.linalg.inv(view.from_camera)
        every.append((f"camera_{view.name}", lens, slice(0, 1), pose, view.focal_px[:1]))
    nodes = []
    for name, lens, rows, pose, focal_px in every:
        turn = Rotation.from_matrix(pose[:, :3, :3] @ np.diag([1.0, -1.0, -1.0]))
        quaternion = one_hemisphere(turn.as_quat())
        place_m = pose[:, :3, 3]
        entry = {
            "name": name,
            "camera": _lens(gltf, lens, name, focal_px),
            "translation": place_m[0].tolist(),
        }
        node = gltf.add("nodes", entry | {"rotation": quaternion[0].tolist()})
        nodes.append(node)
        moves, turns = (
            np.ptp(values, axis=0).max() > _STANDS_STILL_M for values in (place_m, pose[:, :3, :3])
        )
        if moves or turns:
            times = gltf.times(result.time_s[rows] - result.time_s[0])
            if moves:
                gltf.move(node, "translation", times, place_m)
            if turns:
                gltf.move(node, "rotation", times, quaternion)
    return nodes


def _lens(gltf: Gltf, camera: Camera, name: str, focal_px: np.ndarray) -> int:
    """The lens of a shot's first frame, and how it zooms."""
    fx, fy = camera.focal_px
    width, height = camera.size
    perspective = {
        "yfov": 2 * math.atan(height / (2 * fy)),
        "aspectRatio": (width / fx) / (height / fy),
        "znear": NEAR_M,
        "zfar": FAR_M,
    }
    extras: dict[str, Any] = {
        "width_px": width,
        "height_px": height,
        "focal_px": [fx, fy],
        "center_px": list(camera.center_px),
    }
    if np.ptp(focal_px) > 0:
        extras["focal_px_by_frame"] = focal_px.round(3).tolist()
    return gltf.add(
        "cameras",
        {"name": name, "type": "perspective", "perspective": perspective, "extras": extras},
    )


def _floor(gltf: Gltf, result: Result, scene: SceneFrame) -> list[int]:
    """A grid of lines at y = 0, a line a metre, around everybody whose world frame is known; else
    none.
    """
    people = [person for person in result.people if scene.upright[person.shot]]
    if not people:
        return []
    places = [scene.points(person.joints_m[:, :1], person.frame)[:, 0] for person in people]
    places += [scene.at(person.frame)[:, :3, 3] for person in people]
    ground = np.concatenate(places)[:, [0, 2]]
    low = np.floor(ground.min(0)) - _FLOOR_MARGIN_M
    high = np.ceil(ground.max(0)) + _FLOOR_MARGIN_M
    step = 1 if (high - low).max() <= _WIDEST_FLOOR_M else 10
    low = np.floor(low / step) * step
    high = np.ceil(high / step) * step
    xs, zs = (np.arange(a, b + step / 2, step) for a, b in zip(low, high, strict=True))
    lines = [[(x, 0, low[1]), (x, 0, high[1])] for x in xs] + [
        [(low[0], 0, z), (high[0], 0, z)] for z in zs
    ]
    points = gltf.array(np.array(lines, "<f4").reshape(-1, 3), ARRAY_BUFFER, limits=True)
    shading = {
        "baseColorFactor": [_FLOOR_GREY] * 3 + [1.0],
        "metallicFactor": 0.0,
        "roughnessFactor": 1.0,
    }
    material = gltf.add("materials", {"name": "floor", "pbrMetallicRoughness": shading})
    primitive = {"attributes": {"POSITION": points}, "mode": _LINES, "material": material}
    mesh = gltf.add("meshes", {"name": "floor", "primitives": [primitive]})
    return [
        gltf.add("nodes", {"name": "floor", "mesh": mesh, "extras": {"metres_between_lines": step}})
    ]
