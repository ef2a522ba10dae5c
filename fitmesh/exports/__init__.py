"""A result -> files that other programs open. Each format is one module with `files` and `write`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fitmesh.exports import bvh, csv_table, json_text, obj, report, scene_glb
from fitmesh.progress import Reporter
from fitmesh.result import Result


@dataclass(frozen=True)
class Exporter:
    """One format."""

    files: Callable[[Result], list[str]]  # the names it writes, relative to the folder
    write: Callable[[Result, Path, Reporter], None]  # (result, folder, who is told how far it is)
    about: str  # one line for a list of formats


EXPORTERS = {
    "glb": Exporter(scene_glb.files, scene_glb.write, "animated, skinned meshes with the camera; Blender, three.js"),
    "report": Exporter(report.files, report.write, "a page that shows how well it went"),
    "obj": Exporter(obj.files, obj.write, "the exact mesh of every person and frame"),
    "bvh": Exporter(bvh.files, bvh.write, "skeleton motion, one file per person"),
    "json": Exporter(json_text.files, json_text.write, "everything, readable by any program"),
    "csv": Exporter(csv_table.files, csv_table.write, "joints and joint angles, one row per person and frame"),
}
