"""`scene.glb`: every person as a skinned, animated mesh, the camera and the floor, for Blender and
three.js.

All shots are in one file. Each has a world frame of its own, and its people are shown only during
it, so a cut in the video is a cut in the scene."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from fitmesh.exports import DEFAULT
from fitmesh.exports import scene as scenes
from fitmesh.exports.draw import surface_colour
from fitmesh.exports.gltf import ARRAY_BUFFER, ELEMENT_ARRAY_BUFFER, Gltf
from fitmesh.exports.rig import Rig, rig_of
from fitmesh.exports.scene import SceneFrame, one_hemisphere
from fitmesh.person import Person
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from fitting.camera import Camera
from fitting.render.shading import vertex_normals

FILE = "scene.glb"
INFLUENCES = 4  # most joints that move a vertex: game engines and most importers read no more
NEAR_M = 0.05
FAR_M = 1000.0
_LINES = 1  # glTF's mode of a primitive
_FLOOR_GREY = 0.2
_FLOOR_MARGIN_M = 2
_WIDEST_FLOOR_M = 60  # a wider one has a line every 10 m
# A camera whose position (metres) and rotation elements change less stands still: rounding.
_STANDS_STILL = 1e-6


def write(result: Result, out: Path, progress: Reporter, rig: str = DEFAULT) -> None:
    """Write meshes, skeletons, motion and cameras into one file; skeletons are those of a `rig`."""
    scene = scenes.scene_frame(result)
    gltf = Gltf(_about(result, scene, rig))
    roots = [*_cameras(gltf, result, scene), *_floor(gltf, result, scene)]
    shared = _shared_arrays(gltf, result) if result.people else {}
    with progress.stage("scene.glb", len(result.people), "people") as tick:
        for person in result.people:
            roots += _person(gltf, result, person, scene, shared, rig)
            tick(1)
        gltf.write(out / FILE, roots)


def _about(result: Result, scene: SceneFrame, rig: str) -> dict[str, Any]:
    """Return the facts of the scene that glTF has no fields for."""
    shots = [
        {
            "first_frame": shot.first_frame,
            "camera": shot.camera,
            "frame": scenes.about_frame(shot, upright),
        }
        for shot, upright in zip(result.shots, scene.upright, strict=True)
    ]
    return {
        "body": result.body_name,
        "rig": rig,
        "frames_per_second": float(scenes.frame_rate(result)),
        "confidence": result.source,
        "first_frame_s": float(result.time_s[0]) if len(result.time_s) else 0.0,
        "units": "metres",
        "axes": "x right as the shot's first camera sees it, y up, z towards that camera",
        "shots": shots,
    }


def _shared_arrays(gltf: Gltf, result: Result) -> dict[str, int]:
    """Add the faces and skinning weights that all people share, and return their accessors. Either
    all people have fingers or none: hands are detected in the whole clip or not at all.
    """
    joints, weights = reduce_skin(scenes.rest_body(result.body, result.people[0]).weights)
    # glTF reserves the largest number of a type.
    index_type = "<u2" if len(result.body.v_template) < 65_535 else "<u4"
    faces = result.body.faces.numpy().reshape(-1).astype(index_type)
    return {
        "faces": gltf.array(faces, ELEMENT_ARRAY_BUFFER),
        "JOINTS_0": gltf.array(joints.astype("|u1"), ARRAY_BUFFER),
        "WEIGHTS_0": gltf.array(weights.astype("<f4"), ARRAY_BUFFER),
    }


def _person(
    gltf: Gltf,
    result: Result,
    person: Person,
    scene: SceneFrame,
    shared: dict[str, int],
    rig: str,
) -> list[int]:
    """Add a person and return the nodes of skeleton and mesh. A skinned mesh ignores its parents,
    so it is a root node beside the skeleton.
    """
    name = result.name_of(person)
    rest_pose = scenes.rest_body(result.body, person)
    rotations, pelvis_m = scenes.motion_of(result, person, scene)
    skeleton = rig_of(rest_pose, rig)
    root_m = pelvis_m * [1, 0, 1] if skeleton.root is not None else np.zeros(3)
    bones = _bone_nodes(gltf, skeleton, pelvis_m - root_m, root_m)
    surface = _mesh(gltf, result, person, skeleton, shared)
    mesh = gltf.add("nodes", {"name": f"{name}_mesh", "mesh": surface})
    gltf.lists["nodes"][mesh]["skin"] = _skin(gltf, name, skeleton, bones)
    extras = {
        "shot": person.shot + 1,
        "same_as": person.same_as,
        "height_m": round(person.height_m, 3),
    }
    root = gltf.add(
        "nodes", {"name": name, "children": [bones[skeleton.order[0]]], "extras": extras}
    )

    times = gltf.times(scenes.clip_time_s(result, person))
    turns = skeleton.motion(rotations, rest_pose.parents)
    for node, rotation in zip(bones, turns, strict=False):  # the others follow their parents
        gltf.move(node, "rotation", times, one_hemisphere(rotation.as_quat()))
    gltf.move(bones[0], "translation", times, pelvis_m - root_m)
    if skeleton.root is not None:
        gltf.move(bones[skeleton.root], "translation", times, root_m)
    _show_while_present(gltf, root, result, person)
    return [root, mesh]


def _show_while_present(gltf: Gltf, root: int, result: Result, person: Person) -> None:
    """Scale the person by 0 during absences, which is glTF's way to hide a node: the mesh shrinks
    to a point.
    """
    is_present = np.isin(result.frames, person.frame)
    # The first frame, and every change.
    key_rows = np.flatnonzero(np.diff(is_present, prepend=not is_present[0]))
    if len(key_rows) > 1:
        times = gltf.times(result.time_s[key_rows] - result.time_s[0])
        scale = is_present[key_rows].astype(float)
        gltf.move(root, "scale", times, np.repeat(scale[:, None], 3, 1), "STEP")


def _bone_nodes(gltf: Gltf, rig: Rig, hips_m: np.ndarray, root_m: np.ndarray) -> list[int]:
    """Add the bones in their rest pose, at the person's first position, and return their nodes."""
    first = len(gltf.lists["nodes"])
    for bone, name in enumerate(rig.names):
        offset_m = rig.offset_m(bone)
        if bone == 0:
            offset_m = hips_m[0]
        elif bone == rig.root:
            offset_m = root_m[0]
        node: dict[str, Any] = {
            "name": name,
            "translation": offset_m.tolist(),
            "rotation": rig.rest_turn(bone).as_quat().tolist(),
        }
        children = [child for child, parent in enumerate(rig.parents) if parent == bone]
        if children:
            node["children"] = [first + child for child in children]
        gltf.add("nodes", node)
    return list(range(first, first + len(rig.names)))


def _skin(gltf: Gltf, name: str, rig: Rig, bones: list[int]) -> int:
    """Add the skin that binds a mesh to bone nodes and return its number."""
    to_bone = np.tile(np.eye(4), (len(bones), 1, 1))
    to_bone[:, :3, :3] = np.swapaxes(rig.axes, 1, 2)
    to_bone[:, :3, 3] = -np.einsum("bji,bj->bi", rig.axes, rig.place_m)
    columns_first = np.swapaxes(to_bone, 1, 2).astype("<f4")
    matrices = gltf.array(columns_first)
    top = bones[rig.order[0]]
    return gltf.add(
        "skins",
        {"name": name, "joints": bones, "skeleton": top, "inverseBindMatrices": matrices},
    )


def _mesh(gltf: Gltf, result: Result, person: Person, rig: Rig, shared: dict[str, int]) -> int:
    """Add a person's mesh in its rest pose and return its number."""
    normals = vertex_normals(rig.vertices_m, result.body.faces.numpy().astype(np.int32))
    attributes = {
        "POSITION": gltf.array(rig.vertices_m.astype("<f4"), ARRAY_BUFFER, limits=True),
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
        "materials", {"name": result.name_of(person), "pbrMetallicRoughness": shading}
    )
    primitive = {"attributes": attributes, "indices": shared["faces"], "material": material}
    return gltf.add("meshes", {"name": result.name_of(person), "primitives": [primitive]})


def _colours(result: Result, person: Person) -> np.ndarray:
    """Return linear colours [V, 4] of a surface that is paler the fewer frames it was observed in.
    glTF cannot change colours over time.
    """
    observed = scenes.observed_surface(result.body, person.joint_observed)
    colour = surface_colour(person.identity, observed)
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    opaque = np.ones((len(linear), 1))
    return np.round(65535 * np.concatenate([linear, opaque], 1)).astype("<u2")


def reduce_skin(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers [V, 4] of the joints that move each vertex most (0 where the weight is 0)
    and their weights [V, 4], scaled to sum to 1, of skinning weights [V, J].
    """
    strongest = np.argsort(-weights, axis=1, kind="stable")[:, :INFLUENCES]
    reduced = np.take_along_axis(weights, strongest, 1).astype(np.float64)
    reduced /= reduced.sum(1, keepdims=True)
    return np.where(reduced > 0, strongest, 0), reduced


@dataclass(frozen=True)
class _SceneCamera:
    """A camera of the scene over some of its frames."""

    name: str
    lens: Camera  # of the first frame
    rows: slice  # of the result's frames
    pose: np.ndarray  # [T, 4, 4] camera -> scene
    focal_px: np.ndarray  # [T]


def _cameras(gltf: Gltf, result: Result, scene: SceneFrame) -> list[int]:
    """Add a node for each shot, animated if the camera moves, and return the nodes: `camera`,
    `camera_shot_2`, ..; for several cameras `camera_NAME`.

    glTF cameras look along -z with y up; the principal point and a zoom, which they cannot express,
    are in extras.
    """
    nodes = []
    for camera in _scene_cameras(result, scene):
        turn = Rotation.from_matrix(camera.pose[:, :3, :3] @ np.diag([1.0, -1.0, -1.0]))
        quaternion = one_hemisphere(turn.as_quat())
        place_m = camera.pose[:, :3, 3]
        entry = {
            "name": camera.name,
            "camera": _lens(gltf, camera.lens, camera.name, camera.focal_px),
            "translation": place_m[0].tolist(),
            "rotation": quaternion[0].tolist(),
        }
        node = gltf.add("nodes", entry)
        nodes.append(node)
        moves = np.ptp(place_m, axis=0).max() > _STANDS_STILL
        turns = np.ptp(camera.pose[:, :3, :3], axis=0).max() > _STANDS_STILL
        if moves or turns:
            times = gltf.times(result.time_s[camera.rows] - result.time_s[0])
            if moves:
                gltf.move(node, "translation", times, place_m)
            if turns:
                gltf.move(node, "rotation", times, quaternion)
    return nodes


def _scene_cameras(result: Result, scene: SceneFrame) -> list[_SceneCamera]:
    """Return the cameras of all shots with frames, and the other cameras of the same scene."""
    cameras = []
    for shot, rows in enumerate(scenes.shot_rows(result)):
        frames = result.frames[rows]
        if len(frames):
            name = f"camera_shot_{shot + 1}" if shot else "camera"
            lens = result.camera_at(int(frames[0]))
            pose = scene.from_camera[rows]
            cameras.append(_SceneCamera(name, lens, rows, pose, result.focal_px[rows]))
    for view in result.views[1:]:  # other cameras of the same scene stand still
        width, height = view.size_px.tolist()
        lens = Camera(tuple(view.focal_px), tuple(view.center_px), (width, height))
        pose = scene.from_camera[:1] @ np.linalg.inv(view.from_camera)
        name = f"camera_{view.name}"
        cameras.append(_SceneCamera(name, lens, slice(0, 1), pose, view.focal_px[:1]))
    return cameras


def _lens(gltf: Gltf, camera: Camera, name: str, focal_px: np.ndarray) -> int:
    """Add the lens of a shot's first frame, with its zoom in extras, and return its number."""
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
    entry = {"name": name, "type": "perspective", "perspective": perspective, "extras": extras}
    return gltf.add("cameras", entry)


def _floor(gltf: Gltf, result: Result, scene: SceneFrame) -> list[int]:
    """Add a grid of lines at y = 0, one line per metre, around all people whose world frame is
    known, and return its node; no node if there are none.
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
    lines = [[(x, 0, low[1]), (x, 0, high[1])] for x in xs]
    lines += [[(low[0], 0, z), (high[0], 0, z)] for z in zs]
    points = gltf.array(np.array(lines, "<f4").reshape(-1, 3), ARRAY_BUFFER, limits=True)
    shading = {
        "baseColorFactor": [_FLOOR_GREY] * 3 + [1.0],
        "metallicFactor": 0.0,
        "roughnessFactor": 1.0,
    }
    material = gltf.add("materials", {"name": "floor", "pbrMetallicRoughness": shading})
    primitive = {"attributes": {"POSITION": points}, "mode": _LINES, "material": material}
    mesh = gltf.add("meshes", {"name": "floor", "primitives": [primitive]})
    entry = {"name": "floor", "mesh": mesh, "extras": {"metres_between_lines": step}}
    return [gltf.add("nodes", entry)]
