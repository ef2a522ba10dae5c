"""Convert a `scene.glb` of fitmesh into an FBX file with Blender, for programs that do not read
glTF.

`fitmesh run --export fbx` calls this script. It also works by itself, on any scene.glb of a run:

    blender --background --python fitmesh/exports/blender/to_fbx.py -- out/scene.glb out/scene.fbx
    python fitmesh/exports/blender/to_fbx.py out/scene.glb out/scene.fbx    # a Python with bpy

Skeletons, meshes, motion and cameras go into the file; the floor's lines do not. Bones keep their
names, so choose the skeleton that the other program expects when you make the scene.glb (`fitmesh
run --rig mixamo`, or unreal, rigify, vrm, unity). Frames are numbered from 0. FBX has no visibility
track: an absent person is shrunk to a thousandth of the size."""

import json
import struct
import sys
from fractions import Fraction
from pathlib import Path

import bpy

# Scale of an absent person; programs that invert a bone's matrix cannot read a 0.
ABSENT = 1e-3


def convert(source: Path, target: Path) -> None:
    """Write the FBX file `target` from the .glb file `source`."""
    bpy.ops.wm.read_factory_settings(use_empty=True)
    scene = bpy.context.scene
    rate = Fraction(frames_per_second(source)).limit_denominator(1001)
    # Blender's frame rate is fps / fps_base, but its glTF importer multiplies. With the inverse
    # base, keys fall on whole frames.
    scene.render.fps = round(rate)
    scene.render.fps_base = float(rate) / round(rate)
    bpy.ops.import_scene.gltf(filepath=str(source))
    scene.render.fps_base = round(rate) / float(rate)
    # Without people there is no action, only the camera.
    ranges = [action.frame_range for action in bpy.data.actions] or [(0, 0)]
    scene.frame_start = round(min(first for first, _ in ranges))
    scene.frame_end = round(max(last for _, last in ranges))
    remove_unskinned_meshes()
    bind_at_full_size(scene)
    bpy.ops.export_scene.fbx(
        filepath=str(target),
        object_types={"ARMATURE", "MESH", "CAMERA"},
        add_leaf_bones=False,  # bones at the tips, which other skeletons do not have
        bake_anim=True,
        bake_anim_use_all_actions=False,  # one take with all people in it
        bake_anim_use_nla_strips=False,
        bake_anim_simplify_factor=0.0,  # every key stays
        apply_scale_options="FBX_SCALE_UNITS",  # Unreal and Unity then need no factor of 100
    )
    armatures = [item for item in scene.objects if item.type == "ARMATURE"]
    bones = ", ".join(f"{item.name}: {len(item.data.bones)} bones" for item in armatures)
    frames = f"frames {scene.frame_start} to {scene.frame_end} at {float(rate):g} frames/s"
    print(f"{target}: {bones}; {frames}")


def remove_unskinned_meshes() -> None:
    """Remove the floor's lines and the shapes with which Blender's importer draws bones."""
    for item in list(bpy.data.objects):
        if item.type == "MESH" and not any(part.type == "ARMATURE" for part in item.modifiers):
            bpy.data.objects.remove(item)


def bind_at_full_size(scene: bpy.types.Scene) -> None:
    """Go to a frame before the first, in which all people have scale 1.

    The exporter takes the bind pose of every skin from the scene's current frame. A person who is
    absent in the first frame has scale 0 there, and a mesh that is bound at scale 0 cannot be
    unbound again."""
    before = scene.frame_start - 1
    for item in scene.objects:
        for curve in animation_curves(item):
            if curve.data_path != "scale":
                continue
            for key in curve.keyframe_points:
                key.co.y = max(key.co.y, ABSENT)
            full_size = curve.keyframe_points.insert(before, 1.0)
            full_size.interpolation = "CONSTANT"
            curve.update()
    scene.frame_set(before)


def animation_curves(item: bpy.types.Object) -> list[bpy.types.FCurve]:
    """Return the animation curves of an object. Blender 5 has them in channel bags, one for each
    slot of an action.
    """
    data = item.animation_data
    if data is None or data.action is None:
        return []
    if hasattr(data.action, "fcurves"):
        return list(data.action.fcurves)
    bags = [
        bag for layer in data.action.layers for strip in layer.strips for bag in strip.channelbags
    ]
    return [curve for bag in bags if bag.slot == data.action_slot for curve in bag.fcurves]


def frames_per_second(source: Path) -> float:
    """Return the frame rate that fitmesh wrote into a .glb file."""
    data = source.read_bytes()
    if data[:4] != b"glTF":
        sys.exit(f"{source} is not a .glb file")
    (length,) = struct.unpack_from("<I", data, 12)
    extras = json.loads(data[20 : 20 + length])["asset"].get("extras", {})
    return float(extras.get("frames_per_second", 30.0))


if __name__ == "__main__":
    # Blender passes its own arguments before "--".
    arguments = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else sys.argv[1:]
    if len(arguments) != 2:
        sys.exit("usage: to_fbx.py SCENE.glb SCENE.fbx")
    convert(Path(arguments[0]), Path(arguments[1]))
