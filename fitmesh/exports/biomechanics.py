"""Files for biomechanics programs: `mot` and `sto` (OpenSim's tables) and `c3d`.

docs/biomechanics.md explains the angles, docs/exports.md the files. `trc` is in `person_files`.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fitmesh.exports import Y_UP
from fitmesh.exports.angles import ANGLE_NAMES, person_angle_std_deg, person_angles_deg
from fitmesh.exports.axes import rotation_from_y_up
from fitmesh.exports.person_files import marker_names, markers_in_scene
from fitmesh.exports.scene import SceneFrame, clip_time_s, frame_rate
from fitmesh.gait.people import movements
from fitmesh.opensim.tables import write_table
from fitmesh.person import Person
from fitmesh.result import Result
from pose2d.base.errors import ResourceError

_MM = 1000.0
_C3D_EVENTS = {"foot_strike": "Foot Strike", "toe_off": "Foot Off"}


def write_mot(result: Result, scene: SceneFrame, path: Path, person: Person, rows: slice) -> None:
    """Write `mot/person_N.mot`: the joint angles in degrees, in OpenSim's table format."""
    part = person.rows(rows)
    angles = person_angles_deg(part)
    write_table(path, clip_time_s(result, person)[rows], angles)


def write_sto(result: Result, scene: SceneFrame, path: Path, person: Person, rows: slice) -> None:
    """Write `sto/person_N.sto`: the standard deviations of the angles of `mot`, in degrees."""
    deviations = person_angle_std_deg(person.rows(rows))
    columns = {f"{name}_std": deviations[name] for name in ANGLE_NAMES}
    write_table(path, clip_time_s(result, person)[rows], columns)


def write_c3d(
    result: Result,
    scene: SceneFrame,
    path: Path,
    person: Person,
    rows: slice,
    axes: str = Y_UP,
) -> None:
    """Write `c3d/person_N.c3d`: the markers of `trc` in millimetres, and events of walking.

    The residual of a marker is the stated standard deviation of the joint nearest to it, in
    millimetres. Frames without a stated deviation have residual 0.
    """
    ezc3d = import_ezc3d()
    points_m, has_hands = markers_in_scene(result, scene, person, rows)
    points_m = points_m @ rotation_from_y_up(result, axes).T
    part = person.rows(rows)
    joints_m = scene.points(part.joints_m.astype(np.float64), part.frame)
    joints_m = joints_m @ rotation_from_y_up(result, axes).T
    nearest = _nearest_joints(points_m, joints_m)
    residual_mm = np.nan_to_num(part.joint_std_mm[:, nearest])  # [T, M]
    content = ezc3d.c3d()
    parameters = content["parameters"]
    parameters["POINT"]["RATE"]["value"] = [float(frame_rate(result))]
    parameters["POINT"]["LABELS"]["value"] = marker_names(has_hands)
    parameters["POINT"]["UNITS"]["value"] = ["mm"]
    values = np.ones((4, points_m.shape[1], len(points_m)))
    values[:3] = _MM * points_m.transpose(2, 1, 0)
    content["data"]["points"] = values
    content["data"]["meta_points"]["residuals"] = residual_mm.T[None].astype(np.float64)
    _add_events(content, result, scene, part)
    content.write(str(path))


def _add_events(content: Any, result: Result, scene: SceneFrame, part: Person) -> None:
    """Add foot strikes and toe-offs of a segment as C3D's events, in seconds from its first frame."""
    events = [event for movement in movements(result, scene, part) for event in movement.events]
    if not events:
        return
    begin_s = float(clip_time_s(result, part)[0])
    content.add_parameter("EVENT", "USED", [len(events)])
    content.add_parameter("EVENT", "CONTEXTS", [event.side_name.title() for event in events])
    content.add_parameter("EVENT", "LABELS", [_C3D_EVENTS[event.kind] for event in events])
    times = [(0.0, event.time_s - begin_s) for event in events]  # minutes, seconds
    content.add_parameter("EVENT", "TIMES", np.array(times).T)


def _nearest_joints(points_m: np.ndarray, joints_m: np.ndarray) -> np.ndarray:
    """Return for each marker [T, M, 3] the joint of [T, J, 3] that is nearest over all frames."""
    distance = np.zeros((points_m.shape[1], joints_m.shape[1]))
    for marker in range(points_m.shape[1]):
        offset = joints_m - points_m[:, marker : marker + 1]
        distance[marker] = np.linalg.norm(offset, axis=-1).mean(0)
    return distance.argmin(1)


def import_ezc3d() -> Any:
    """Return the module that writes c3d, or raise ResourceError that says how to install it."""
    try:
        import ezc3d
    except ImportError as error:
        raise ResourceError(
            "--export c3d needs ezc3d, which is not installed: pip install 'fitmesh[c3d]'."
        ) from error
    return ezc3d
