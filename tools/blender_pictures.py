"""Runs inside Blender: the steps of docs/animation.md in images, docs/img/retarget_*.jpg.

python tools/blender_pictures.py ZIP out/park person_2 docs/img      (a Python with the package `bpy`)

ZIP is the extension that `python tools/blender_extension.py` writes. The character is that of
blender/sample_character.py.
"""

import math
import sys
from pathlib import Path

import bpy
from mathutils import Vector

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "blender"))
from sample_character import make_character

SIZE = (720, 405)
STEPS = 4  # of the walk in the last image


def render(path: Path, middle: Vector, away_m: float) -> None:
    """Render the scene as seen from the front left, slightly above."""
    scene = bpy.context.scene
    camera = scene.camera
    camera.location = middle + Vector((-0.35 * away_m, -away_m, 0.25 * away_m))
    camera.rotation_euler = (middle - camera.location).to_track_quat("-Z", "Y").to_euler()
    scene.render.filepath = str(path)
    bpy.ops.render.render(write_still=True)


def set_up_studio() -> None:
    """Add a light, a sky and a camera."""
    scene = bpy.context.scene
    camera = bpy.data.objects.new("viewer", bpy.data.cameras.new("viewer"))
    camera.data.lens = 40
    sun = bpy.data.objects.new("sun", bpy.data.lights.new("sun", "SUN"))
    sun.data.energy = 2.4
    sun.rotation_euler = (math.radians(40), math.radians(20), 0)
    scene.collection.objects.link(camera)
    scene.collection.objects.link(sun)
    bpy.ops.mesh.primitive_plane_add(size=60, location=(0, 8, -0.005))
    world = bpy.data.worlds.new("sky")
    world.use_nodes = True
    world.node_tree.nodes["Background"].inputs[0].default_value = (0.75, 0.82, 0.9, 1)
    world.node_tree.nodes["Background"].inputs[1].default_value = 0.5
    scene.world = world
    scene.camera = camera
    scene.render.engine = "CYCLES"
    scene.cycles.samples = 16
    scene.cycles.use_denoising = False
    scene.render.resolution_x, scene.render.resolution_y = SIZE
    scene.render.resolution_percentage = 100
    scene.render.image_settings.file_format = "JPEG"


def freeze(body: bpy.types.Object) -> None:
    """Add a copy of a body as it is posed now."""
    posed = body.evaluated_get(bpy.context.evaluated_depsgraph_get())
    mesh = bpy.data.meshes.new_from_object(posed)
    mesh.transform(posed.matrix_world)
    bpy.context.scene.collection.objects.link(bpy.data.objects.new("step", mesh))


def main() -> None:
    zip_file, folder, person, out = sys.argv[1:5]
    bpy.ops.wm.read_factory_settings(use_empty=True)
    bpy.ops.extensions.package_install_files(
        filepath=zip_file, repo="user_default", enable_on_install=True
    )
    scene = bpy.context.scene
    bpy.ops.fitmesh.import_result(directory=folder)
    set_up_studio()
    source = scene.objects[person]
    scene.frame_set((source["fitmesh_first"] + source["fitmesh_last"]) // 2)
    hips = (source.matrix_world @ source.pose.bones[0].head).copy()
    render(Path(out, "retarget_1_import.jpg"), Vector((hips.x, hips.y, 0.9)), 4.5)

    character = make_character()
    body = scene.objects[f"{character.name}_body"]
    character.location = (hips.x + 1.2, hips.y, 0)
    render(Path(out, "retarget_2_character.jpg"), Vector((hips.x + 0.6, hips.y, 0.9)), 4.5)
    character.location = (0, 0, 0)
    bpy.context.view_layer.update()

    bpy.context.view_layer.objects.active = character
    bpy.ops.fitmesh.load_preset(preset="mixamo")
    bpy.ops.fitmesh.retarget(person=person)
    begins, ends = map(int, character.animation_data.action.frame_range)
    apart = (ends - begins) // STEPS
    frames = range(begins + apart // 2, ends, apart)
    places = []
    for frame in frames:
        scene.frame_set(frame)
        freeze(body)
        places.append(character.matrix_world @ character.pose.bones[0].head)
    body.hide_render = True
    for item in scene.objects:
        if item.type == "MESH" and item.name.startswith("person_"):
            item.hide_render = True
    middle = sum(places, Vector()) / len(places)
    render(Path(out, "retarget_3_walk.jpg"), Vector((middle.x, middle.y, 0.9)), 6.5)


if __name__ == "__main__":
    main()
