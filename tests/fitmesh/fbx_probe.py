"""Runs inside Blender: imports an FBX file, prints bones and meshes at a frame, the frames and the
rate.

python fbx_probe.py FILE FRAME      (a Python that has the package `bpy`)
"""

import json
import sys

import bpy

bpy.ops.wm.read_factory_settings(use_empty=True)
bpy.ops.import_scene.fbx(filepath=sys.argv[1], anim_offset=0.0)
scene = bpy.context.scene
ends = [action.frame_range for action in bpy.data.actions]
frames = [min(first for first, _ in ends), max(last for _, last in ends)]
scene.frame_set(round(frames[0]) + int(sys.argv[2]))
armatures = {
    thing.name: {bone.name: list(thing.matrix_world @ bone.head) for bone in thing.pose.bones}
    for thing in scene.objects
    if thing.type == "ARMATURE"
}
depsgraph = bpy.context.evaluated_depsgraph_get()
meshes = {}
for thing in scene.objects:
    if thing.type == "MESH":
        posed = thing.evaluated_get(depsgraph)
        meshes[thing.name] = [
            list(posed.matrix_world @ vertex.co) for vertex in posed.to_mesh().vertices
        ]
fps = scene.render.fps / scene.render.fps_base
print("\n" + json.dumps({"armatures": armatures, "meshes": meshes, "frames": frames, "fps": fps}))
