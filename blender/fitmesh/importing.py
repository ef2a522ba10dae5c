"""A result of fitmesh in Blender: scene.glb at the video's frame rate."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import bpy

from .armatures import facts_of_glb

RIG = "fitmesh_rig"  # custom property of imported armatures: the preset of their bones
FIRST = "fitmesh_first"  # frames in which the person is there
LAST = "fitmesh_last"
SMALLEST = 0.5  # scale of a person who is there


def import_result(scene: bpy.types.Scene, folder: Path) -> list[bpy.types.Object]:
    """Import the scene.glb in a folder that `fitmesh run` wrote and return the people's armatures.
    The scene gets the video's frame rate and span.
    """
    path = folder / "scene.glb"
    if not path.is_file():
        raise ValueError(f"{folder} has no scene.glb: choose a folder that fitmesh run wrote.")
    facts = facts_of_glb(path)
    rate = Fraction(float(facts.get("frames_per_second", 30.0))).limit_denominator(1001)
    before = set(bpy.data.objects)
    # Blender's frame rate is fps / fps_base, but its glTF importer multiplies. With the inverse
    # base, keys fall on whole frames.
    scene.render.fps = round(rate)
    scene.render.fps_base = float(rate) / round(rate)
    bpy.ops.import_scene.gltf(filepath=str(path), bone_heuristic="TEMPERANCE")
    scene.render.fps_base = round(rate) / float(rate)
    added = [item for item in bpy.data.objects if item not in before]
    rig = str(facts.get("rig", "smpl"))
    found = [item for item in added if item.type == "ARMATURE"]
    for armature in found:
        armature[RIG] = "fitmesh" if rig == "smpl" else rig
        first, last = _span(armature)
        armature[FIRST] = first
        armature[LAST] = last
    if found:
        scene.frame_start = min(item[FIRST] for item in found)
        scene.frame_end = max(item[LAST] for item in found)
    return found


def _span(armature: bpy.types.Object) -> tuple[int, int]:
    """Return the first and last frame with keys of a person's bones."""
    data = armature.animation_data
    tracks = [] if data is None else [strip for track in data.nla_tracks for strip in track.strips]
    actions = [strip.action for strip in tracks]
    if data is not None and data.action is not None:
        actions.append(data.action)
    if not actions:
        return 0, 0
    first = min(action.frame_range[0] for action in actions)
    last = max(action.frame_range[1] for action in actions)
    return round(first), round(last)


def frames_of(scene: bpy.types.Scene, armature: bpy.types.Object) -> list[int]:
    """Return the frames in which an imported person is there: absent people have scale 0."""
    shown = scene.frame_current
    frames = []
    for frame in range(armature[FIRST], armature[LAST] + 1):
        scene.frame_set(frame)
        if armature.matrix_world.to_scale().x > SMALLEST:
            frames.append(frame)
    scene.frame_set(shown)
    return frames
