"""Blender turns a `scene.glb` of fitmesh into an FBX file, for programs that read nothing else.

    blender --background --python examples/blender_fbx.py -- out/scene.glb out/scene.fbx
    python examples/blender_fbx.py out/scene.glb out/scene.fbx        (a Python with the package bpy)

Skeletons, meshes, motion and cameras go into the file; the floor's lines do not. Bones keep their names, so choose
before the names that the other program looks for (`fitmesh run --bone-names mixamo`, or unreal, unity, rigify).
Frames are numbered from 0.
"""

import json
import struct
import sys
from fractions import Fraction
from pathlib import Path

import bpy


def convert(source: Path, target: Path) -> None:
    bpy.ops.wm.read_factory_settings(use_empty=True)
    scene = bpy.context.scene
    rate = Fraction(frames_per_second(source)).limit_denominator(1001)
    # Blender's frame rate is fps / fps_base, but its glTF importer multiplies: turned round, keys fall on whole frames.
    scene.render.fps, scene.render.fps_base = round(rate), float(rate) / round(rate)
    bpy.ops.import_scene.gltf(filepath=str(source))
    scene.render.fps_base = round(rate) / float(rate)
    ends = [action.frame_range for action in bpy.data.actions]
    if not ends:
        sys.exit(f"{source} holds no motion")
    scene.frame_start = round(min(first for first, _ in ends))
    scene.frame_end = round(max(last for _, last in ends))
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
    print(f"{target}: {bones}; frames {scene.frame_start} to {scene.frame_end} at {float(rate):g} frames/s")


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
