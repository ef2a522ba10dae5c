"""A character for trying the extension in Blender: Mixamo's bone names, an A-pose, other proportions
than people have.

`tests/fitmesh/retarget_probe.py` and `tools/blender_pictures.py` call it; it needs `bpy`."""

import math

import bpy
from mathutils import Matrix, Vector

PREFIX = "mixamorig:"
HIPS_M = 1.12  # long legs
ARMS_DOWN_DEG = 40.0
# Bone: parent, head and tail relative to the hips, half width of its box. Metres, facing -y, left is
# +x; right bones mirror the left ones.
_BONES: dict[str, tuple[str, tuple[float, float, float], tuple[float, float, float], float]] = {
    "Hips": ("", (0, 0, 0), (0, 0, 0.10), 0.15),
    "Spine": ("Hips", (0, 0, 0.10), (0, 0, 0.20), 0.13),
    "Spine1": ("Spine", (0, 0, 0.20), (0, 0, 0.30), 0.15),
    "Spine2": ("Spine1", (0, 0, 0.30), (0, 0, 0.42), 0.17),
    "Neck": ("Spine2", (0, 0, 0.44), (0, 0, 0.50), 0.05),
    "Head": ("Neck", (0, 0, 0.50), (0, 0, 0.78), 0.13),
    "LeftShoulder": ("Spine2", (0.04, 0, 0.40), (0.18, 0, 0.40), 0.05),
    "LeftArm": ("LeftShoulder", (0.18, 0, 0.40), (0.40, 0, 0.40), 0.055),
    "LeftForeArm": ("LeftArm", (0.40, 0, 0.40), (0.60, 0, 0.40), 0.05),
    "LeftHand": ("LeftForeArm", (0.60, 0, 0.40), (0.76, 0, 0.40), 0.05),
    "LeftUpLeg": ("Hips", (0.11, 0, -0.02), (0.12, -0.01, -0.53), 0.085),
    "LeftLeg": ("LeftUpLeg", (0.12, -0.01, -0.53), (0.12, 0.02, -1.02), 0.065),
    "LeftFoot": ("LeftLeg", (0.12, 0.02, -1.02), (0.13, -0.15, -1.09), 0.05),
    "LeftToeBase": ("LeftFoot", (0.13, -0.15, -1.09), (0.13, -0.25, -1.09), 0.05),
}
# The corners of a foot's box reach from the heel to the ball, on the floor.
_HEEL_M = 0.09


def make_character(name: str = "character") -> bpy.types.Object:
    """Return the armature of a new character with a body of boxes, at the origin."""
    armature = bpy.data.objects.new(name, bpy.data.armatures.new(name))
    scene = bpy.context.scene
    scene.collection.objects.link(armature)
    bpy.context.view_layer.objects.active = armature
    bpy.ops.object.mode_set(mode="EDIT")
    widths = {}
    for bone_name, head, tail, parent, width in _all_bones():
        bone = armature.data.edit_bones.new(PREFIX + bone_name)
        bone.head = head
        bone.tail = tail
        if parent:
            bone.parent = armature.data.edit_bones[PREFIX + parent]
        widths[bone.name] = width
    bpy.ops.object.mode_set(mode="OBJECT")
    _add_boxes(armature, widths)
    return armature


def _all_bones() -> list[tuple[str, Vector, Vector, str, float]]:
    """Return name, head, tail, parent and half width of every bone, parents first."""
    down = Matrix.Rotation(math.radians(ARMS_DOWN_DEG), 4, "Y")
    shoulder = Vector(_BONES["LeftArm"][1])
    bones = []
    for name, (parent, head, tail, width) in _BONES.items():
        ends = [Vector(head), Vector(tail)]
        if name in ("LeftArm", "LeftForeArm", "LeftHand"):
            ends = [shoulder + down @ (end - shoulder) for end in ends]
        ends = [end + Vector((0, 0, HIPS_M)) for end in ends]
        bones.append((name, *ends, parent, width))
        if name.startswith("Left"):
            mirrored = [Vector((-end.x, end.y, end.z)) for end in ends]
            right = name.replace("Left", "Right")
            bones.append((right, *mirrored, parent.replace("Left", "Right"), width))
    return bones


def _add_boxes(armature: bpy.types.Object, widths: dict[str, float]) -> None:
    """Add one mesh of boxes around the bones, each moved by its bone alone."""
    vertices: list[Vector] = []
    faces: list[list[int]] = []
    groups: dict[str, range] = {}
    for bone in armature.data.bones:
        first = len(vertices)
        vertices += _corners(bone, widths[bone.name])
        groups[bone.name] = range(first, first + 8)
        for face in (
            (0, 1, 3, 2),
            (4, 6, 7, 5),
            (0, 4, 5, 1),
            (2, 3, 7, 6),
            (0, 2, 6, 4),
            (1, 5, 7, 3),
        ):
            faces.append([first + corner for corner in face])
    mesh = bpy.data.meshes.new(f"{armature.name}_body")
    mesh.from_pydata(vertices, [], faces)
    body = bpy.data.objects.new(f"{armature.name}_body", mesh)
    bpy.context.scene.collection.objects.link(body)
    body.parent = armature
    for name, rows in groups.items():
        body.vertex_groups.new(name=name).add(list(rows), 1.0, "REPLACE")
    body.modifiers.new("armature", "ARMATURE").object = armature
    material = bpy.data.materials.new(armature.name)
    material.diffuse_color = (0.9, 0.45, 0.15, 1)
    material.use_nodes = True
    material.node_tree.nodes["Principled BSDF"].inputs["Base Color"].default_value = (
        0.9,
        0.45,
        0.15,
        1,
    )
    mesh.materials.append(material)


def _corners(bone: bpy.types.Bone, width: float) -> list[Vector]:
    """Return the corners of a bone's box; feet and toes are flat on the floor."""
    head = bone.head_local
    tail = bone.tail_local
    if bone.name.endswith(("Foot", "ToeBase")):
        is_foot = bone.name.endswith("Foot")
        back = head.y + (_HEEL_M if is_foot else 0.0)
        top = 0.12 if is_foot else 0.06
        return [
            Vector((tail.x + x, y, z))
            for x in (-width, width)
            for y in (back, tail.y)
            for z in (0.0, top)
        ]
    matrix = bone.matrix_local
    return [
        matrix @ Vector((x, y, z))
        for x in (-width, width)
        for y in (0.0, bone.length)
        for z in (-width, width)
    ]
