"""Blender turns a `scene.glb` of fitmesh into an FBX file, for programs that read nothing else.

`fitmesh run --export fbx` calls it. It also works by itself, on any scene.glb of a run:

    blender --background --python fitmesh/exports/blender/to_fbx.py -- out/scene.glb out/scene.fbx
    python fitmesh/exports/blender/to_fbx.py out/scene.glb out/scene.fbx        (a Python with the package bpy)

Skeletons, meshes, motion and cameras go into the file; the floor's lines do not. Bones keep their
names, so choose before the names that the other program looks for (`fitmesh run --bone-names
mixamo`, or unreal, unity, rigify). Frames are numbered from 0. FBX cannot hide anybody: whoever is
not in view is shrunk to a thousandth of the size."""

import json
import struct
import sys
from fractions import Fraction
from pathlib import Path

import bpy

# scale of somebody who is not in view; programs that invert a bone's matrix cannot read a 0
ABSENT = 1e-3


def convert(source: Path, target: Path) -> None:
    bpy.ops.wm.read_factory_settings(use_empty=True)
    scene = bpy.context.scene
    rate = Fraction(frames_per_second(source)).limit_denominator(1001)
    # Blender's frame rate is fps / fps_base, but its glTF importer multiplies: turned round, keys
    # fall on whole frames.
    scene.render.fps = round(rate)
    scene.render.fps_base = float(rate) / round(rate)
    bpy.ops.import_scene.gltf(filepath=str(source))
    scene.render.fps_base = round(rate) / float(rate)
    ends = [action.frame_range for action in bpy.data.actions] or [
        (0, 0)
    ]  # nobody: the camera alone
    scene.frame_start = round(min(first for first, _ in ends))
    scene.frame_end = round(max(last for _, last in ends))
    keep_what_belongs_in_the_file()
    bind_at_full_size(scene)
    bpy.ops.export_scene.fbx(
        filepath=str(target),
        object_types={"ARMATURE", "MESH", "CAMERA"},
        add_leaf_bones=False,  # bones at the tips, which no other skeleton has
        bake_anim=True,
        bake_anim_use_all_actions=False,  # one take with everybody in it
        bake_anim_use_nla_strips=False,
        bake_anim_simplify_factor=0.0,  # every key stays
        apply_scale_options="FBX_SCALE_UNITS",  # Unreal and Unity then need no factor of 100
    )
    armatures = [thing for thing in scene.objects if thing.type == "ARMATURE"]
    bones = ", ".join(f"{thing.name}: {len(thing.data.bones)} bones" for thing in armatures)
    print(
        f"{target}: {bones}; frames {scene.frame_start} to {scene.frame_end} at {float(rate):g} frames/s"
    )


def keep_what_belongs_in_the_file() -> None:
    """Without the floor's lines and the shapes that Blender's importer draws bones with."""
    for thing in list(bpy.data.objects):
        skinned = thing.type == "MESH" and any(part.type == "ARMATURE" for part in thing.modifiers)
        if thing.type == "MESH" and not skinned:
            bpy.data.objects.remove(thing)


def bind_at_full_size(scene: bpy.types.Scene) -> None:
    """Go to a frame before the first, in which everybody has scale 1. The exporter takes the bind
    pose of every skin from the frame that the scene is at. Whoever is not in view in the first
    frame has scale 0 there, and a mesh that is bound at scale 0 cannot be unbound again."""
    before = scene.frame_start - 1
    for thing in scene.objects:
        for curve in curves_of(thing):
            if curve.data_path != "scale":
                continue
            for key in curve.keyframe_points:
                key.co.y = max(key.co.y, ABSENT)
            full = curve.keyframe_points.insert(before, 1.0)
            full.interpolation = "CONSTANT"
            curve.update()
    scene.frame_set(before)


def curves_of(thing: bpy.types.Object) -> list[bpy.types.FCurve]:
    """The animation curves of an object; Blender 5 keeps them in channel bags, one for each of an
    action's slots.
    """
    data = thing.animation_data
    if data is None or data.action is None:
        return []
    if hasattr(data.action, "fcurves"):
        return list(data.action.fcurves)
    bags = [
        bag for layer in data.action.layers for strip in layer.strips for bag in strip.channelbags
    ]
    return [curve for bag in bags if bag.slot == data.action_slot for curve in bag.fcurves]


def frames_per_second(source: Path) -> float:
    """As fitmesh wrote it into the file."""
    data = source.read_bytes()
    if data[:4] != b"glTF":
        sys.exit(f"{source} is not a .glb file")
    (length,) = struct.unpack_from("<I", data, 12)
    about = json.loads(data[20 : 20 + length])["asset"].get("extras", {})
    return float(about.get("frames_per_second", 30.0))


if __name__ == "__main__":
    given = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else sys.argv[1:]
    if len(given) != 2:
        sys.exit("give a scene.glb and the name of the FBX file to write")
    convert(Path(given[0]), Path(given[1]))
