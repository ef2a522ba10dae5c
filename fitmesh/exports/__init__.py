"""A result -> files that other programs open. Each format says which files it makes and writes
them.

An export can be told the names of its bones, and how motion is changed on its way (by
`exports.motion`).

Every skeleton here has the tree of SMPL's 24 joints, or of SMPL-H's 52 where fingers are known, and
a joint carries the bone that turns about it: `left_hip` the thigh. Other programs find bones by the
names they look for; their skeletons have the same tree, with more bones (twists) than are known
here. SMPL's `left_hand` is where the fingers begin: the middle finger's first bone."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from pose2d.base.errors import UserError

if TYPE_CHECKING:
    from fitmesh.result import Result
    from fitmesh.ui.events import Reporter


DEFAULT = "smpl"
_CENTRE = ("pelvis", "spine1", "spine2", "spine3", "neck", "head")
_SIDE = ("hip", "knee", "ankle", "foot", "collar", "shoulder", "elbow", "wrist", "hand")
_FINGERS = ("index", "middle", "pinky", "ring", "thumb")
# By convention: names of _CENTRE, names of _SIDE with {} for the side, the words for left and
# right, the name of a finger's bone, and the words for _FINGERS and for a finger's three bones.
_OTHERS = json.loads(Path(__file__).with_name("bone_names.json").read_text("utf-8"))
CHOICES = (DEFAULT, *_OTHERS)


def bone_names(convention: str, joints: Sequence[str]) -> tuple[str, ...]:
    """The bones of SMPL's or SMPL-H's joints."""
    if convention not in CHOICES:
        raise UserError(f"unknown --bone-names {convention!r}: choose {', '.join(CHOICES)}.")
    if convention == DEFAULT:
        return tuple(joints)
    theirs = _OTHERS[convention]
    names = dict(zip(_CENTRE, theirs["centre"], strict=True))
    for ours, side in zip(("left", "right"), theirs["sides"], strict=True):
        names |= {
            f"{ours}_{part}": name.format(side)
            for part, name in zip(_SIDE, theirs["side"], strict=True)
        }
        for which, finger in zip(_FINGERS, theirs["fingers"], strict=True):
            for number, bone in enumerate(theirs["bones"], 1):
                names[f"{ours}_{which}{number}"] = theirs["finger_bone"].format(
                    side=side, finger=finger, bone=bone
                )
    return tuple(names[joint] for joint in joints)


@dataclass(frozen=True)
class Motion:
    """What becomes of a fit's motion in an export (`exports.motion`)."""

    fps: float | None = None  # None: the frames that were processed
    smooth: float = 0.0  # 0..1: share of the strongest filter
    in_place: bool = False  # the root stays over the origin, at its height
    keep_reliable: float | None = (
        None  # frames that are less probable to be within `reliable_mm` are left out
    )
    reliable_mm: float = 100.0


PLAIN = Motion()


@dataclass(frozen=True)
class Exporter:
    """One format. Its module is imported when it is used: a run needs few of them, and those last."""

    # of its module here: `write(result, folder, progress)`, with the convention where it names
    # bones
    name: str
    entry: str  # the one file or folder that it leaves in `out`
    names_bones: bool = False
    motion: str = ""  # it shows what this function of `exports.motion` makes of a result
    write_function: str = "write"
    # a folder, with a file for each person, segment or frame (`exports.scene.write_pieces`) ..
    each: str = ""
    suffix: str = ""  # .. whose names end so

    @property
    def module(self) -> str:
        return f"{__name__}.{self.name}"

    def write(
        self,
        result: "Result",
        folder: Path,
        progress: "Reporter",
        bone_names: str = DEFAULT,
        motion: Motion = PLAIN,
    ) -> list[str]:
        """The names of the files that it wrote, relative to the folder."""
        write = getattr(import_module(self.module), self.write_function)
        if self.motion:
            result = getattr(import_module(f"{__name__}.motion"), self.motion)(result, motion)
        if self.names_bones:
            write = partial(write, convention=bone_names)
        if not self.each:
            write(result, folder, progress)
            return [self.entry]
        from fitmesh.exports.scene import write_pieces

        return write_pieces(result, folder / self.entry, progress, self.each, self.suffix, write)


EXPORTERS = {
    "glb": Exporter(
        "scene_glb", "scene.glb", True, "reworked"
    ),  # animated, skinned meshes with the camera
    "fbx": Exporter("fbx", "scene.fbx", True, "reworked"),  # the same, by Blender
    "report": Exporter("report", "report.html"),  # a page that shows the quality of the run
    # The exact mesh of every person and frame; a skeleton's motion; SMPL-H poses in AMASS's layout;
    # markers for OpenSim
    "obj": Exporter("person_files", "obj", write_function="write_obj", each="frame", suffix=".obj"),
    "bvh": Exporter(
        "person_files", "bvh", True, "evened", "write_bvh", each="person", suffix=".bvh"
    ),
    "amass": Exporter(
        "person_files", "amass", False, "evened", "write_amass", each="segment", suffix=".npz"
    ),
    "trc": Exporter(
        "person_files", "trc", False, "evened", "write_trc", each="segment", suffix=".trc"
    ),
    "json": Exporter("csv_json", "motion.json", motion="emptied", write_function="write_json"),
    "csv": Exporter("csv_json", "motion.csv", motion="emptied", write_function="write_csv"),
}
ALWAYS = ("glb", "report")


def wanted(names: Iterable[str], always: Iterable[str] | None = None) -> list[str]:
    """The exports of a run that was asked for `names`, in the order they are made; the report comes
    last. always: what is made unasked; None: ALWAYS."""
    asked = set(names)
    if unknown := sorted(asked - set(EXPORTERS)):
        raise UserError(f"unknown --export {', '.join(unknown)}: choose {', '.join(EXPORTERS)}.")
    chosen = [
        name
        for name in EXPORTERS
        if name in asked or name in (ALWAYS if always is None else always)
    ]
    return sorted(chosen, key=lambda name: name == "report")


def check_exports(names: Iterable[str], convention: str) -> None:
    """Refuse formats and names of bones that there are none of, and what this machine cannot make."""
    if "fbx" in wanted(names, ()):
        import_module(EXPORTERS["fbx"].module).blender()
    bone_names(convention, ())
