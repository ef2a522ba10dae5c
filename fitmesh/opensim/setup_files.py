"""`opensim/`: what OpenSim needs to scale its model to a person and to follow the person's markers.

For each person and segment of frames without an absence:

person_N.trc               the 26 keypoints of the fitted body under Pose2Sim's marker names
person_N_fitmesh.mot       our angles as coordinates of the model
person_N_fitmesh_std.sto   their standard deviations
person_N_scale.xml         OpenSim's Scale Tool: the generic model -> person_N_scaled.osim
person_N_ik.xml            OpenSim's Inverse Kinematics Tool: markers -> person_N_ik.mot

and once the generic model, its markers and their licence. Names in the files are relative, so that
the folder can be moved and opened in OpenSim's window.
"""

import shutil
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fitmesh.exports.person_files import MARKER_COUNT, marker_names, markers_in_scene, write_markers
from fitmesh.exports.scene import SceneFrame, clip_time_s, pieces, scene_frame
from fitmesh.opensim import DATA, FOLDER, LICENCE, MARKERS, MODEL
from fitmesh.opensim.coordinates import coordinate_std_deg, model_coordinates
from fitmesh.opensim.tables import write_table
from fitmesh.person import Person
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from pose2d.base.files import atomic_folder

FEWEST_FRAMES = 3  # of a segment
# A body mass index of adults, for people whose weight was not stated: inverse kinematics does not
# depend on it.
_BODY_MASS_INDEX = 23.0
# Bodies of the model that are scaled by the distances between pairs of markers, as in Pose2Sim's
# set-up. {} is a side: markers have R and L in front, bodies _r and _l at the end.
_MEASUREMENTS = {
    "torso": ((("{}Shoulder", "{}Hip"),), ("torso",)),
    "pelvis": ((("RHip", "LHip"),), ("pelvis", "sacrum")),
    "head": ((("Head", "Neck"), ("Head", "Nose")), ("head",)),
    "thigh": ((("{}Hip", "{}Knee"),), ("femur",)),
    "shank": ((("{}Knee", "{}Ankle"),), ("tibia",)),
    "foot": ((("{}Heel", "{}BigToe"),), ("talus", "calcn", "toes")),
    "arm": ((("{}Shoulder", "{}Elbow"),), ("humerus",)),
    "forearm": ((("{}Elbow", "{}Wrist"),), ("ulna", "radius", "hand")),
}
_CENTRAL = ("torso", "pelvis", "head")
# Weights as in Pose2Sim's set-up for these markers; 1 for others that the model has.
_WEIGHTS = {"Nose": 0.1, "Head": 0.1, "Neck": 0.2}
_WEIGHTS |= {f"{side}{part}": 2.0 for side in "LR" for part in ("Shoulder", "Hip")}
_NOT_IN_MODEL = {f"{side}{part}" for side in "LR" for part in ("Eye", "Ear")}
# Keeps the trunk from bending where markers alone do not tell it from the pelvis' tilt.
_STRAIGHT_BACK = ("L5_S1_Flex_Ext", 0.1)


@dataclass(frozen=True)
class PersonFiles:
    """Name the files of one person's segment, all in one folder."""

    folder: Path
    name: str  # person_1, person_1_part_2

    def file(self, ending: str) -> Path:
        """Return the path of a file of the segment."""
        return self.folder / f"{self.name}{ending}"

    @property
    def markers(self) -> Path:
        return self.file(".trc")

    @property
    def our_motion(self) -> Path:
        return self.file("_fitmesh.mot")

    @property
    def our_deviations(self) -> Path:
        return self.file("_fitmesh_std.sto")

    @property
    def scale(self) -> Path:
        return self.file("_scale.xml")

    @property
    def kinematics(self) -> Path:
        return self.file("_ik.xml")

    @property
    def scaled_model(self) -> Path:
        return self.file("_scaled.osim")

    @property
    def motion(self) -> Path:
        return self.file("_ik.mot")

    @property
    def marker_errors(self) -> Path:
        """Return the file that OpenSim names after the tool: ours has the segment's name."""
        return self.file("_ik_marker_errors.sto")

    @property
    def comparison(self) -> Path:
        return self.file("_comparison.html")


def write(result: Result, out: Path, progress: Reporter) -> list[str]:
    """Write the folder `opensim` of a result and return the names of its files."""
    scene = scene_frame(result)
    segments = [
        (person, name, rows)
        for person in result.people
        for name, rows in pieces(result, person, "segment")
        if len(range(*rows.indices(len(person)))) >= FEWEST_FRAMES
    ]
    with (
        progress.stage(FOLDER, len(segments), "people") as tick,
        atomic_folder(out / FOLDER) as temporary,
    ):
        for file in (MODEL, MARKERS, LICENCE):
            shutil.copyfile(DATA / file, temporary / file)
        for person, name, rows in segments:
            _write_segment(result, scene, person, rows, PersonFiles(temporary, name))
            tick(1)
        names = sorted(path.name for path in temporary.iterdir())
    return [f"{FOLDER}/{name}" for name in names]


def _write_segment(
    result: Result, scene: SceneFrame, person: Person, rows: slice, files: PersonFiles
) -> None:
    """Write the files of one segment."""
    part = person.rows(rows)
    time_s = clip_time_s(result, person)[rows]
    points_m, _ = markers_in_scene(result, scene, person, rows)
    names = marker_names(hands=False)[:MARKER_COUNT]
    write_markers(files.markers, result, time_s, names, points_m[:, :MARKER_COUNT])
    write_table(files.our_motion, time_s, model_coordinates(part, scene))
    write_table(files.our_deviations, time_s, coordinate_std_deg(part))
    _write_xml(files.scale, scale_setup(files, person, time_s))
    _write_xml(files.kinematics, kinematics_setup(files, time_s))


def scale_setup(files: PersonFiles, person: Person, time_s: np.ndarray) -> xml.Element:
    """Return the set-up of OpenSim's Scale Tool: bodies by the mean distances between markers."""
    tool = xml.Element("ScaleTool", name=files.name)
    _add(tool, "mass", f"{_BODY_MASS_INDEX * person.height_m**2:.1f}")
    _add(tool, "height", f"{1000 * person.height_m:.0f}")
    maker = _add(tool, "GenericModelMaker")
    _add(maker, "model_file", MODEL)
    _add(maker, "marker_set_file", MARKERS)
    scaler = _add(tool, "ModelScaler")
    _add(scaler, "apply", "true")
    _add(scaler, "scaling_order", "measurements")
    measurements = _add(_add(scaler, "MeasurementSet"), "objects")
    for name, (pairs, bodies) in _MEASUREMENTS.items():
        measurement = _add(measurements, "Measurement", name=name)
        _add(measurement, "apply", "true")
        marker_pairs = _add(_add(measurement, "MarkerPairSet"), "objects")
        for pair in pairs:
            for side in "RL" if "{}" in pair[0] else "R":
                markers = " ".join(marker.format(side) for marker in pair)
                _add(_add(marker_pairs, "MarkerPair"), "markers", markers)
        scales = _add(_add(measurement, "BodyScaleSet"), "objects")
        for body in bodies:
            for ending in ("",) if name in _CENTRAL else ("_r", "_l"):
                scale = _add(scales, "BodyScale", name=f"{body}{ending}")
                _add(scale, "axes", "X Y Z")
    _add(scaler, "marker_file", files.markers.name)
    _add(scaler, "time_range", f"{time_s[0]:.6f} {time_s[-1]:.6f}")
    _add(scaler, "preserve_mass_distribution", "true")
    _add(scaler, "output_model_file", files.scaled_model.name)
    _add(_add(tool, "MarkerPlacer"), "apply", "false")
    return tool


def kinematics_setup(files: PersonFiles, time_s: np.ndarray) -> xml.Element:
    """Return the set-up of OpenSim's Inverse Kinematics Tool."""
    tool = xml.Element("InverseKinematicsTool", name=files.name)
    _add(tool, "results_directory", ".")
    _add(tool, "model_file", files.scaled_model.name)
    _add(tool, "constraint_weight", "Inf")
    _add(tool, "accuracy", "1e-05")
    _add(tool, "time_range", f"{time_s[0]:.6f} {time_s[-1]:.6f}")
    _add(tool, "output_motion_file", files.motion.name)
    _add(tool, "report_errors", "true")
    _add(tool, "report_marker_locations", "false")
    tasks = _add(_add(tool, "IKTaskSet"), "objects")
    for marker in marker_names(hands=False)[:MARKER_COUNT]:
        if marker not in _NOT_IN_MODEL:
            task = _add(tasks, "IKMarkerTask", name=marker)
            _add(task, "apply", "true")
            _add(task, "weight", f"{_WEIGHTS.get(marker, 1.0):g}")
    name, weight = _STRAIGHT_BACK
    task = _add(tasks, "IKCoordinateTask", name=name)
    _add(task, "apply", "true")
    _add(task, "weight", f"{weight:g}")
    _add(task, "value_type", "default_value")
    _add(tool, "marker_file", files.markers.name)
    return tool


def _add(parent: xml.Element, tag: str, text: str = "", **attributes: str) -> xml.Element:
    """Append an element and return it."""
    element = xml.SubElement(parent, tag, attributes)
    element.text = text or None
    return element


def _write_xml(path: Path, tool: xml.Element) -> None:
    """Write a document of OpenSim with one tool."""
    document = xml.Element("OpenSimDocument", Version="40500")
    document.append(tool)
    tree = xml.ElementTree(document)
    xml.indent(tree, "\t")
    tree.write(path, encoding="UTF-8", xml_declaration=True)
