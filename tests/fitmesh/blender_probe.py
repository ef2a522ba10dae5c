"""Runs inside Blender: imports scene.glb and a bvh, and prints where vertices, joints and the
camera are.

python blender_probe.py FOLDER FPS FRAME IDENTITY      (a Python that has the package `bpy`)
"""

import json
import sys

import bpy
import mathutils

folder = sys.argv[1]
fps = float(sys.argv[2])
frame = int(sys.argv[3])
identity = sys.argv[4]
bpy.ops.wm.read_factory_settings(use_empty=True)
scene = bpy.context.scene
# Blender's frame rate is fps / fps_base, but its glTF importer multiplies: the inverse puts keys on
# whole frames.
scene.render.fps = round(fps)
scene.render.fps_base = fps / round(fps)
bpy.ops.import_scene.gltf(filepath=f"{folder}/scene.glb")
scene.render.fps_base = round(fps) / fps
scene.frame_set(frame)  # glTF's time 0 is frame 0
mesh = scene.objects[f"person_{identity}_mesh"].evaluated_get(bpy.context.evaluated_depsgraph_get())
vertices = [list(mesh.matrix_world @ vertex.co) for vertex in mesh.to_mesh().vertices]
(camera,) = (thing for thing in scene.objects if thing.type == "CAMERA")
looks_along = list(camera.matrix_world.to_3x3() @ mathutils.Vector((0, 0, -1)))
corners = [
    scene.objects["floor"].matrix_world @ vertex.co
    for vertex in scene.objects["floor"].data.vertices
]
floor = [[pick(corner[axis] for corner in corners) for axis in range(3)] for pick in (min, max)]
bpy.ops.import_anim.bvh(filepath=f"{folder}/bvh/person_{identity}.bvh")
scene.frame_set(frame + 1)  # a bvh starts at frame 1
armature = bpy.context.object
joints = {bone.name: list(armature.matrix_world @ bone.head) for bone in armature.pose.bones}
print(
    "\n"
    + json.dumps(
        {
            "vertices": vertices,
            "joints": joints,
            "camera": list(camera.location),
            "fov_y": camera.data.angle_y,
            "sensor_fit": camera.data.sensor_fit,
            "looks_along": looks_along,
            "floor": floor,
        }
    )
)
