"""Runs inside Blender: installs the extension, imports a result, retargets a person to the sample
character, and prints where its feet are in every frame.

python retarget_probe.py ZIP FOLDER PERSON [PRESET]      (a Python that has the package `bpy`)
"""

import json
import sys
from pathlib import Path

import bpy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "blender"))
from sample_character import PREFIX, make_character

zip_file, folder, person = sys.argv[1:4]
preset = sys.argv[4] if len(sys.argv) > 4 else "auto"
bpy.ops.wm.read_factory_settings(use_empty=True)
bpy.ops.extensions.package_install_files(
    filepath=zip_file, repo="user_default", enable_on_install=True
)
bpy.ops.fitmesh.import_result(directory=folder)
scene = bpy.context.scene
character = make_character()
bpy.context.view_layer.objects.active = character
bpy.ops.fitmesh.load_preset(preset=preset)
mapped = {pair.joint: pair.bone for pair in character.fitmesh_pairs if pair.bone}
answer = bpy.ops.fitmesh.retarget(person=person)
body = scene.objects[f"{character.name}_body"]
feet = {}
for group in body.vertex_groups:
    if group.name.endswith(("Foot", "ToeBase")):
        feet[group.name.removeprefix(PREFIX)] = [
            vertex.index
            for vertex in body.data.vertices
            if vertex.groups[0].group == group.index and vertex.co.z < 1e-6
        ]
corners: dict[str, list] = {name: [] for name in feet}
hips = []
spread = []
source = scene.objects[person]
source_arms = []
frames = list(range(scene.frame_start, scene.frame_end + 1))
for frame in frames:
    scene.frame_set(frame)
    posed = body.evaluated_get(bpy.context.evaluated_depsgraph_get())
    vertices = posed.to_mesh().vertices
    for name, rows in feet.items():
        corners[name].append([list(posed.matrix_world @ vertices[row].co) for row in rows])
    bones = character.pose.bones
    hips.append(list(bones[f"{PREFIX}Hips"].head))
    arm = bones[f"{PREFIX}LeftArm"]
    spread.append(list((arm.tail - arm.head).normalized()))
    own = [source.matrix_world @ source.pose.bones[n].head for n in ("left_shoulder", "left_elbow")]
    source_arms.append(list((own[1] - own[0]).normalized()))
print(
    "\n"
    + json.dumps(
        {
            "answer": list(answer),
            "version": list(bpy.app.version),
            "mapped": mapped,
            "frames": frames,
            "feet": corners,
            "hips": hips,
            "left_arm": spread,
            "source_left_arm": source_arms,
            "fps": scene.render.fps / scene.render.fps_base,
        }
    )
)
