"""Runs inside Blender: imports scene.glb and renders one frame, docs/img/blender.jpg.

python tools/blender_still.py out/park 85 docs/img/blender.jpg      (a Python that has the package
`bpy`) blender --background --python tools/blender_still.py -- out/park 85 docs/img/blender.jpg
"""

import math
import sys

import bpy

given = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else sys.argv[1:]
folder = given[0]
frame = int(given[1])
image = given[2]
bpy.ops.wm.read_factory_settings(use_empty=True)
scene = bpy.context.scene
scene.render.fps = 30  # before the import: times become frames
bpy.ops.import_scene.gltf(filepath=f"{folder}/scene.glb")
scene.frame_set(frame)

# Person 1 of the example stands on a roof: a box from the floor to the soles.
mesh = scene.objects["person_1_mesh"].evaluated_get(bpy.context.evaluated_depsgraph_get())
corners = [mesh.matrix_world @ vertex.co for vertex in mesh.to_mesh().vertices]
middle = [(min(c[axis] for c in corners) + max(c[axis] for c in corners)) / 2 for axis in range(2)]
roof_m = min(corner[2] for corner in corners)
bpy.ops.mesh.primitive_cube_add(
    size=1, location=(middle[0] - 0.6, middle[1], roof_m / 2), scale=(2.6, 2.2, roof_m)
)

camera = bpy.data.objects.new("viewer", bpy.data.cameras.new("viewer"))
camera.location = (7.2, 1.2, 3.6)
camera.rotation_euler = (math.radians(81), 0, math.radians(47))
camera.data.lens = 40
sun = bpy.data.objects.new("sun", bpy.data.lights.new("sun", "SUN"))
sun.data.energy = 2.4
sun.rotation_euler = (math.radians(40), math.radians(20), 0)
scene.collection.objects.link(camera)
scene.collection.objects.link(sun)
bpy.ops.mesh.primitive_plane_add(size=40, location=(0, 8, -0.005))
world = bpy.data.worlds.new("sky")
world.use_nodes = True
world.node_tree.nodes["Background"].inputs[0].default_value = (0.75, 0.82, 0.9, 1)
world.node_tree.nodes["Background"].inputs[1].default_value = 0.5

scene.world, scene.camera = world, camera
scene.render.engine = "CYCLES"
scene.cycles.samples = 20
scene.cycles.use_denoising = False
scene.render.resolution_x = 960
scene.render.resolution_y = 540
scene.render.resolution_percentage = 100
scene.render.image_settings.file_format = "JPEG" if image.endswith(("jpg", "jpeg")) else "PNG"
scene.render.filepath = image
bpy.ops.render.render(write_still=True)
