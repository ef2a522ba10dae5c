"""The export formats: files of a result that other programs open.

An exporter can write the skeleton of another program (`exports.rig`) and change the motion on its
way (`exports.motion`)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from pose2d.base.errors import OptionError

if TYPE_CHECKING:
    from fitmesh.result import Result
    from fitmesh.ui.events import Reporter


DEFAULT = "smpl"
RIGS = (DEFAULT, "mixamo", "unreal", "rigify", "vrm", "unity")  # of --rig


@dataclass(frozen=True)
class Motion:
    """How an export changes the fitted motion (`exports.motion`)."""

    fps: float | None = None  # None: the frames that were processed
    smooth: float = 0.0  # 0..1: share of the strongest filter
    filter: str = "none"  # by name (`exports.filters`)
    in_place: bool = False  # the root stays over the origin, at its height
    # Leave out frames whose probability of being within `reliable_mm` is lower; None: keep all.
    keep_reliable: float | None = None
    reliable_mm: float = 100.0
    plant_feet: bool = False  # hold contacts in place (`exports.feet`)


PLAIN = Motion()
Y_UP = "y-up"
Z_UP = "z-up"
AS_RIG = "as-rig"
AXES = (Y_UP, Z_UP, AS_RIG)  # of --trc-axes


@dataclass(frozen=True)
class Exporter:
    """One format. Its module is imported when it is used, because a run needs few of them."""

    # Module in this package with `write(result, folder, progress)`, which also takes `rig` if it
    # writes skeletons. It returns the names of its files if `entry` is a folder.
    name: str
    entry: str  # the file or folder that it writes into the result's folder
    has_skeleton: bool = False
    turns_axes: bool = False  # whether `write` takes `axes`
    plants_feet: bool = False  # for eyes rather than for numbers: feet may be planted
    motion: str = ""  # function of `exports.motion` that prepares the result; empty: as it is
    write_function: str = "write"
    # If not empty, `entry` is a folder with a file for each "person", "segment" or "frame", whose
    # names end in `suffix` (`exports.scene.write_pieces`).
    each: str = ""
    suffix: str = ""
    # If not empty, the folder of one file a person, where they are asked for; `keeps_scene`: beside
    # the file with everyone.
    people_folder: str = ""
    keeps_scene: bool = False

    @property
    def module(self) -> str:
        return f"{__name__}.{self.name}"

    @property
    def entries(self) -> tuple[str, ...]:
        """Return everything that it may write into the result's folder."""
        return (self.entry, self.people_folder) if self.people_folder else (self.entry,)

    def write(
        self,
        result: "Result",
        folder: Path,
        progress: "Reporter",
        rig: str = DEFAULT,
        motion: Motion = PLAIN,
        axes: str = Y_UP,
        per_person: bool = False,
    ) -> list[str]:
        """Write the format and return the names of its files, relative to the folder."""
        write = getattr(import_module(self.module), self.write_function)
        if self.motion:
            motion = replace(motion, plant_feet=motion.plant_feet and self.plants_feet)
            result = getattr(import_module(f"{__name__}.motion"), self.motion)(result, motion)
        if self.has_skeleton:
            write = partial(write, rig=rig)
        if self.turns_axes:
            write = partial(write, axes=axes)
        if not self.each:
            if not (per_person and self.people_folder):
                return write(result, folder, progress) or [self.entry]
            from fitmesh.exports.scene import write_people

            files = []
            if self.keeps_scene:
                write(result, folder, progress)
                files.append(self.entry)
            people = folder / self.people_folder
            return files + write_people(result, people, progress, self.entry, write)
        from fitmesh.exports.scene import write_pieces

        return write_pieces(result, folder / self.entry, progress, self.each, self.suffix, write)


EXPORTERS = {
    # Animated, skinned meshes with the camera.
    "glb": Exporter(
        "scene_glb",
        "scene.glb",
        has_skeleton=True,
        plants_feet=True,
        motion="change_motion",
        people_folder="glb",
        keeps_scene=True,  # the viewer shows it
    ),
    # The content of scene.glb, written by Blender.
    "fbx": Exporter(
        "fbx",
        "scene.fbx",
        has_skeleton=True,
        plants_feet=True,
        motion="change_motion",
        people_folder="fbx",
    ),
    # A page that shows the quality of the run.
    "report": Exporter("report", "report.html"),
    # The exact mesh of every person and frame.
    "obj": Exporter("person_files", "obj", write_function="write_obj", each="frame", suffix=".obj"),
    # A skeleton and its motion.
    "bvh": Exporter(
        "person_files",
        "bvh",
        has_skeleton=True,
        plants_feet=True,
        motion="change_motion_at_even_times",
        write_function="write_bvh",
        each="person",
        suffix=".bvh",
    ),
    # SMPL-H poses in AMASS's layout.
    "amass": Exporter(
        "person_files",
        "amass",
        motion="change_motion_at_even_times",
        write_function="write_amass",
        each="segment",
        suffix=".npz",
    ),
    # Markers for OpenSim.
    "trc": Exporter(
        "person_files",
        "trc",
        motion="change_motion_at_even_times",
        turns_axes=True,
        write_function="write_trc",
        each="segment",
        suffix=".trc",
    ),
    # Joint angles and their deviations as OpenSim's tables.
    "mot": Exporter(
        "biomechanics",
        "mot",
        motion="change_motion_at_even_times",
        write_function="write_mot",
        each="segment",
        suffix=".mot",
    ),
    "sto": Exporter(
        "biomechanics",
        "sto",
        motion="change_motion_at_even_times",
        write_function="write_sto",
        each="segment",
        suffix=".sto",
    ),
    # Markers, our angles and set-up files of OpenSim's tools.
    "opensim": Exporter("opensim", "opensim", motion="change_motion_at_even_times"),
    # Steps, cycles, squats and jumps as tables.
    "gait": Exporter("gait", "gait", motion="change_motion_at_even_times"),
    # Markers with residuals, by ezc3d.
    "c3d": Exporter(
        "biomechanics",
        "c3d",
        turns_axes=True,
        motion="change_motion_at_even_times",
        write_function="write_c3d",
        each="segment",
        suffix=".c3d",
    ),
    # The numbers of the fit.
    "json": Exporter(
        "csv_json", "motion.json", motion="blank_unreliable_rows", write_function="write_json"
    ),
    "csv": Exporter(
        "csv_json", "motion.csv", motion="blank_unreliable_rows", write_function="write_csv"
    ),
}
ALWAYS = ("glb", "report")


def choose_exports(names: Iterable[str], always: Iterable[str] = ALWAYS) -> list[str]:
    """Return the formats that a run with these names makes, in the order in which they are made;
    the report comes last. always: formats that are made in any case.
    """
    requested = set(names)
    if unknown := sorted(requested - set(EXPORTERS)):
        raise OptionError(f"--export has {', '.join(unknown)}; choose from {', '.join(EXPORTERS)}.")
    chosen = [name for name in EXPORTERS if name in requested.union(always)]
    return sorted(chosen, key=lambda name: name == "report")


def check_exports(names: Iterable[str], rig: str) -> None:
    """Refuse unknown formats and rigs, and formats that this machine cannot make."""
    names = list(names)
    if "fbx" in choose_exports(names, always=()):
        import_module(EXPORTERS["fbx"].module).blender()
    if "c3d" in names:
        import_module(EXPORTERS["c3d"].module).import_ezc3d()
    if rig not in RIGS:
        raise OptionError(f"--rig must be one of {', '.join(RIGS)}; got {rig!r}.", option="--rig")
