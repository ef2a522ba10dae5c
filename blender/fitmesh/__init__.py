"""Blender extension: people of a fitmesh result, and their motion on a character.

View 3D > Sidebar (N) > fitmesh: import a folder that `fitmesh run` wrote, select a character's
armature, choose a preset, retarget."""

from __future__ import annotations

from pathlib import Path

import bpy
from bpy.props import CollectionProperty, EnumProperty, StringProperty
from bpy_extras.io_utils import ImportHelper

from . import armatures, importing
from .retarget import retarget

_CHOICES = [("auto", "Automatic", "The preset that has most bones of the character")]
_CHOICES += [(name, name.capitalize(), f"Bones of {name}") for name in armatures.PRESETS]


class FitmeshPair(bpy.types.PropertyGroup):
    """A joint of fitmesh and the character's bone that follows it."""

    joint: StringProperty()  # type: ignore[valid-type]
    bone: StringProperty(name="", description="Bone that follows; empty: none")  # type: ignore[valid-type]


def people(scene: bpy.types.Scene) -> list[bpy.types.Object]:
    """Return the armatures that were imported from fitmesh."""
    return [item for item in scene.objects if importing.RIG in item and item.type == "ARMATURE"]


def _people_items(self: object, context: bpy.types.Context) -> list[tuple[str, str, str]]:
    return [(item.name, item.name, "") for item in people(context.scene)] or [("", "none", "")]


class FITMESH_OT_import(bpy.types.Operator, ImportHelper):
    """Import the people, the camera and the floor of a fitmesh result"""

    bl_idname = "fitmesh.import_result"
    bl_label = "Import fitmesh result"
    bl_options = {"REGISTER", "UNDO"}  # noqa: RUF012  # read by Blender

    directory: StringProperty(subtype="DIR_PATH")  # type: ignore[valid-type]
    filter_folder = True
    filename_ext = ""

    def execute(self, context: bpy.types.Context) -> set[str]:
        try:
            found = importing.import_result(context.scene, Path(self.directory))
        except (OSError, ValueError) as error:
            self.report({"ERROR"}, str(error))
            return {"CANCELLED"}
        self.report({"INFO"}, f"{len(found)} people")
        return {"FINISHED"}


def _character(context: bpy.types.Context) -> bpy.types.Object | None:
    """Return the selected armature, if it is none of fitmesh's."""
    item = context.active_object
    is_character = item is not None and item.type == "ARMATURE" and importing.RIG not in item
    return item if is_character else None


class FITMESH_OT_preset(bpy.types.Operator):
    """Fill the character's mapping with the bones of a preset"""

    bl_idname = "fitmesh.load_preset"
    bl_label = "Load preset"
    bl_options = {"REGISTER", "UNDO"}  # noqa: RUF012  # read by Blender

    preset: EnumProperty(items=_CHOICES)  # type: ignore[valid-type]

    @classmethod
    def poll(cls, context: bpy.types.Context) -> bool:
        return _character(context) is not None

    def execute(self, context: bpy.types.Context) -> set[str]:
        character = _character(context)
        assert character is not None
        if self.preset == "auto":
            _, bones = armatures.best_preset(character)
        else:
            bones = armatures.match_bones(character, self.preset)
        character.fitmesh_pairs.clear()
        for joint in armatures.PRESETS["fitmesh"]:
            pair = character.fitmesh_pairs.add()
            pair.joint = joint
            pair.bone = bones.get(joint, "")
        return {"FINISHED"}


class FITMESH_OT_retarget(bpy.types.Operator):
    """Put the motion of an imported person on the selected character"""

    bl_idname = "fitmesh.retarget"
    bl_label = "Retarget"
    bl_options = {"REGISTER", "UNDO"}  # noqa: RUF012  # read by Blender

    person: EnumProperty(items=_people_items)  # type: ignore[valid-type]

    @classmethod
    def poll(cls, context: bpy.types.Context) -> bool:
        return _character(context) is not None and bool(people(context.scene))

    def execute(self, context: bpy.types.Context) -> set[str]:
        character = _character(context)
        person = context.scene.objects.get(self.person)
        assert character is not None
        if person is None:
            self.report({"ERROR"}, "Import a fitmesh result first.")
            return {"CANCELLED"}
        if not len(character.fitmesh_pairs):
            bpy.ops.fitmesh.load_preset(preset="auto")
        bones = {
            pair.joint: pair.bone
            for pair in character.fitmesh_pairs
            if pair.bone in character.data.bones
        }
        needed = ("pelvis", "left_hip", "right_hip")
        if missing := [joint for joint in needed if joint not in bones]:
            self.report({"ERROR"}, f"The mapping has no bone for {', '.join(missing)}.")
            return {"CANCELLED"}
        own_bones = armatures.match_bones(person, person[importing.RIG])
        shared = {joint: bone for joint, bone in own_bones.items() if joint in bones}
        frames = importing.frames_of(context.scene, person)
        shown = context.scene.frame_current
        context.scene.frame_set(frames[0])  # at rest an absent person has no size either
        source = armatures.rest_pose(person, own_bones)
        motion = armatures.sample(person, shared, frames)
        context.scene.frame_set(shown)
        target = armatures.rest_pose(character, bones)
        armatures.key(character, bones, frames, retarget(source, motion, target))
        self.report({"INFO"}, f"{len(frames)} frames, {len(shared)} bones")
        return {"FINISHED"}


class FITMESH_PT_panel(bpy.types.Panel):
    """Import, mapping and retargeting in the sidebar of the 3D view."""

    bl_label = "fitmesh"
    bl_space_type = "VIEW_3D"
    bl_region_type = "UI"
    bl_category = "fitmesh"

    def draw(self, context: bpy.types.Context) -> None:
        layout = self.layout
        layout.operator(FITMESH_OT_import.bl_idname, icon="IMPORT")
        character = _character(context)
        if character is None:
            layout.label(text="Select a character's armature")
            return
        layout.label(text=f"Character: {character.name}")
        layout.operator_menu_enum(FITMESH_OT_preset.bl_idname, "preset", text="Load preset")
        for person in people(context.scene):
            operator = layout.operator(
                FITMESH_OT_retarget.bl_idname, text=f"Put {person.name} on it"
            )
            operator.person = person.name
        column = layout.column(align=True)
        for pair in character.fitmesh_pairs:
            row = column.split(factor=0.45)
            row.label(text=pair.joint)
            row.prop_search(pair, "bone", character.data, "bones")


_CLASSES = (
    FitmeshPair,
    FITMESH_OT_import,
    FITMESH_OT_preset,
    FITMESH_OT_retarget,
    FITMESH_PT_panel,
)


def _menu(self: bpy.types.Menu, context: bpy.types.Context) -> None:
    self.layout.operator(FITMESH_OT_import.bl_idname, text="fitmesh result (folder)")


def register() -> None:
    for item in _CLASSES:
        bpy.utils.register_class(item)
    bpy.types.Object.fitmesh_pairs = CollectionProperty(type=FitmeshPair)
    bpy.types.TOPBAR_MT_file_import.append(_menu)


def unregister() -> None:
    bpy.types.TOPBAR_MT_file_import.remove(_menu)
    del bpy.types.Object.fitmesh_pairs
    for item in reversed(_CLASSES):
        bpy.utils.unregister_class(item)
