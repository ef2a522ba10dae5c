"""A result -> files that other programs open. Each format says which files it makes and writes them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fitmesh.exports import amass, bvh, obj, report, scene_glb, tables, trc
from fitmesh.result import Result
from fitmesh.ui.events import Reporter


@dataclass(frozen=True)
class Exporter:
    """One format."""

    files: Callable[[Result], list[str]]  # the names it writes, relative to the folder
    write: Callable[[Result, Path, Reporter], None]  # (result, folder, progress)
    about: str  # one line for a list of formats
    write_named: Callable[[Result, Path, Reporter, str], None] | None = None  # with a convention for names of bones


EXPORTERS = {
    "glb": Exporter(
        scene_glb.files,
        scene_glb.write,
        "animated, skinned meshes with the camera; Blender, three.js",
        scene_glb.write,
    ),
    "report": Exporter(report.files, report.write, "a page that shows the quality of the run"),
    "obj": Exporter(obj.files, obj.write, "the exact mesh of every person and frame"),
    "bvh": Exporter(bvh.files, bvh.write, "skeleton motion, one file per person", bvh.write),
    "amass": Exporter(amass.files, amass.write, "SMPL-H poses in AMASS's layout, z up, for retargeting"),
    "trc": Exporter(trc.files, trc.write, "markers for OpenSim and Pose2Sim"),
    "json": Exporter(tables.json_files, tables.write_json, "everything, readable by any program"),
    "csv": Exporter(tables.csv_files, tables.write_csv, "joints and joint angles, one row per person and frame"),
}
