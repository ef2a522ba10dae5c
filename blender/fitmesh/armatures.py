"""Armatures of Blender as skeletons of `retarget`, and back as keys."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import bpy
import numpy as np
from mathutils import Matrix, Quaternion, Vector

from .retarget import Motion, RestPose

PRESETS: dict[str, dict[str, str]] = json.loads(
    Path(__file__).with_name("presets.json").read_text("utf-8")
)
SOLE_M = 0.03  # vertices so far over the lowest one are the sole


def facts_of_glb(path: Path) -> dict[str, Any]:
    """Return what fitmesh wrote into a .glb beside the scene: rig, frames per second."""
    data = path.read_bytes()
    if data[:4] != b"glTF":
        raise ValueError(f"{path} is not a .glb file")
    (length,) = struct.unpack_from("<I", data, 12)
    return dict(json.loads(data[20 : 20 + length])["asset"].get("extras", {}))


def best_preset(armature: bpy.types.Object) -> tuple[str, dict[str, str]]:
    """Return the preset that has most bones of an armature, and its bones by joint."""
    matches = {name: match_bones(armature, name) for name in PRESETS}
    name = max(matches, key=lambda preset: len(matches[preset]))
    return name, matches[name]


def match_bones(armature: bpy.types.Object, preset: str) -> dict[str, str]:
    """Return an armature's bones by joint. Prefixes (mixamorig1:) may differ."""
    exact = {bone.name: bone.name for bone in armature.data.bones}
    plain = {bone.name.rpartition(":")[2]: bone.name for bone in armature.data.bones}
    found = {}
    for joint, name in PRESETS[preset].items():
        bone = exact.get(name) or plain.get(name.rpartition(":")[2])
        if bone is not None:
            found[joint] = bone
    return found


def rest_pose(armature: bpy.types.Object, bones: Mapping[str, str]) -> RestPose:
    """Return an armature's rest pose in world axes."""
    places = {}
    turns = {}
    for joint, name in bones.items():
        matrix = armature.matrix_world @ armature.data.bones[name].matrix_local
        places[joint] = np.array(matrix.translation)
        turns[joint] = np.array(matrix.to_quaternion().to_matrix())
    vertices = _vertices(armature)
    lowest = [place.z for place, _ in vertices]
    if not lowest:
        ends = [end for bone in armature.data.bones for end in (bone.head_local, bone.tail_local)]
        lowest = [(armature.matrix_world @ end).z for end in ends]
    sole_m = float(min(lowest))
    soles = {}
    for joint, name in bones.items():
        if joint.endswith(("_ankle", "_foot")):
            points = [list(at) for at, bone in vertices if bone == name and at.z < sole_m + SOLE_M]
            soles[joint] = _outermost(np.array(points, float).reshape(-1, 3))
    return RestPose(places, turns, sole_m, soles)


def _vertices(armature: bpy.types.Object) -> list[tuple[Vector, str]]:
    """Return the vertices of the armature's meshes at rest, in world axes, each with the bone that
    moves it most.
    """
    found = []
    for item in bpy.data.objects:
        parts = [part for part in item.modifiers if part.type == "ARMATURE"]
        if item.type != "MESH" or all(part.object != armature for part in parts):
            continue
        names = [group.name for group in item.vertex_groups]
        for vertex in item.data.vertices:
            strongest = max(vertex.groups, key=lambda group: group.weight, default=None)
            bone = "" if strongest is None else names[strongest.group]
            found.append((item.matrix_world @ vertex.co, bone))
    return found


def _outermost(points_m: np.ndarray) -> np.ndarray:
    """Return the points [N, 3] that lie farthest out in eight level directions."""
    if len(points_m) <= 8:
        return points_m
    angles = np.arange(8) * np.pi / 4
    directions = np.stack([np.cos(angles), np.sin(angles)])
    return points_m[np.unique((points_m[:, :2] @ directions).argmax(0))]


def sample(armature: bpy.types.Object, bones: Mapping[str, str], frames: Iterable[int]) -> Motion:
    """Return an armature's motion over some frames, in world axes."""
    scene = bpy.context.scene
    places: dict[str, list[Vector]] = {joint: [] for joint in bones}
    turns: dict[str, list[Matrix]] = {joint: [] for joint in bones}
    for frame in frames:
        scene.frame_set(frame)
        for joint, name in bones.items():
            matrix = armature.matrix_world @ armature.pose.bones[name].matrix
            places[joint].append(matrix.translation.copy())
            turns[joint].append(matrix.to_quaternion().to_matrix())
    return Motion(
        {joint: np.array(values, float) for joint, values in places.items()},
        {joint: np.array(values, float) for joint, values in turns.items()},
    )


def key(
    armature: bpy.types.Object, bones: Mapping[str, str], frames: Iterable[int], motion: Motion
) -> None:
    """Write a motion as keys of an armature's bones: all rotations, and the place of the hips."""
    to_armature = armature.matrix_world.inverted()
    from_world = to_armature.to_quaternion()
    joint_of = {bones[joint]: joint for joint in motion.turn}
    order = [bone.name for bone in armature.data.bones]  # parents come first
    order.sort(key=lambda name: len(armature.data.bones[name].parent_recursive))
    for name in joint_of:
        armature.pose.bones[name].rotation_mode = "QUATERNION"
    before: dict[str, Quaternion] = {}
    for row, frame in enumerate(frames):
        posed: dict[str, Quaternion] = {}
        for name in order:
            bone = armature.data.bones[name]
            own = bone.matrix_local.to_quaternion()
            follows = own
            if bone.parent is not None:
                parent_rest = bone.parent.matrix_local.to_quaternion()
                follows = posed[bone.parent.name] @ (parent_rest.inverted() @ own)
            if name not in joint_of:
                posed[name] = follows
                continue
            turn = Matrix(motion.turn[joint_of[name]][row].tolist()).to_quaternion()
            posed[name] = from_world @ turn
            basis = follows.inverted() @ posed[name]
            if name in before and basis.dot(before[name]) < 0:
                basis.negate()
            before[name] = basis
            pose_bone = armature.pose.bones[name]
            pose_bone.rotation_quaternion = basis
            pose_bone.keyframe_insert("rotation_quaternion", frame=frame, group=name)
        _key_hips(armature, bones["pelvis"], frame, motion.place_m["pelvis"][row], posed)


def _key_hips(
    armature: bpy.types.Object,
    name: str,
    frame: int,
    place_m: np.ndarray,
    posed: Mapping[str, Quaternion],
) -> None:
    """Write the place of the hips as a key; bones above them rest."""
    bone = armature.data.bones[name]
    wanted = armature.matrix_world.inverted() @ Vector(place_m.tolist())
    pose_bone = armature.pose.bones[name]
    # With the bones above at rest, a location is along the bone's own axes at rest.
    pose_bone.location = bone.matrix_local.inverted() @ wanted
    pose_bone.keyframe_insert("location", frame=frame, group=name)
