"""Files for biomechanics programs hold the angles and markers of the result."""

from pathlib import Path

import numpy as np
import pytest

from fitmesh.exports import EXPORTERS
from fitmesh.exports.angles import ANGLE_NAMES, person_angles_deg
from fitmesh.exports.person_files import marker_names
from fitmesh.exports.scene import scene_frame
from fitmesh.gait.people import movements
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from tests.fitmesh.walkers import in_world, walkers

QUIET = Reporter(lambda event: None)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return in_world(walkers(tmp_path_factory.mktemp("biomechanics"), frames=12), pan_deg=15)


def read_table(path: Path) -> tuple[dict[str, str], list[str], np.ndarray]:
    """Return header, names and values of OpenSim's table."""
    lines = path.read_text().splitlines()
    end = lines.index("endheader")
    header = dict(line.split("=") for line in lines[1:end])
    values = np.array([line.split("\t") for line in lines[end + 2 :]], float)
    return header, lines[end + 1].split("\t"), values


@pytest.mark.parametrize("name", ["mot", "sto"])
def test_tables_have_opensims_header_and_a_column_for_each_angle(
    name: str, result: Result, tmp_path: Path
) -> None:
    files = EXPORTERS[name].write(result, tmp_path, QUIET)
    header, columns, values = read_table(tmp_path / files[0])
    assert header["inDegrees"] == "yes"
    assert int(header["nRows"]) == len(values)
    assert int(header["nColumns"]) == len(columns) == 1 + len(ANGLE_NAMES)
    assert columns[0] == "time"
    assert (np.diff(values[:, 0]) > 0).all()


def test_mot_has_the_angles_of_the_result(result: Result, tmp_path: Path) -> None:
    files = EXPORTERS["mot"].write(result, tmp_path, QUIET)
    _, columns, values = read_table(tmp_path / files[0])
    person = result.people[0]
    angles = person_angles_deg(person)
    for number, name in enumerate(columns[1:], 1):
        np.testing.assert_allclose(values[:, number], angles[name][: len(values)], atol=1e-3)


def test_c3d_has_the_markers_of_trc_in_millimetres(result: Result, tmp_path: Path) -> None:
    ezc3d = pytest.importorskip("ezc3d")
    c3d = tmp_path / EXPORTERS["c3d"].write(result, tmp_path, QUIET)[0]
    trc = tmp_path / EXPORTERS["trc"].write(result, tmp_path, QUIET)[0]
    content = ezc3d.c3d(str(c3d))
    lines = trc.read_text().splitlines()
    rows = np.array([line.split("\t")[2:] for line in lines[5:]], float)
    points = content["data"]["points"][:3].transpose(2, 1, 0)  # [T, M, 3]
    np.testing.assert_allclose(points.reshape(len(rows), -1), 1000 * rows, atol=0.05)
    labels = content["parameters"]["POINT"]["LABELS"]["value"]
    assert labels == marker_names(len(labels) > 50)
    assert content["parameters"]["POINT"]["UNITS"]["value"] == ["mm"]
    assert (content["data"]["meta_points"]["residuals"] >= 0).all()


def test_c3d_has_the_events_of_the_walk(tmp_path: Path) -> None:
    ezc3d = pytest.importorskip("ezc3d")
    walk = in_world(walkers(tmp_path, frames=150), pan_deg=15)
    c3d = tmp_path / EXPORTERS["c3d"].write(walk, tmp_path, QUIET)[0]
    events = ezc3d.c3d(str(c3d))["parameters"]["EVENT"]
    (movement,) = movements(walk, scene_frame(walk), walk.people[0])
    assert events["USED"]["value"] == [len(movement.events)]
    times = np.array(events["TIMES"]["value"])[1]
    expected = [event.time_s - movement.motion.time_s[0] for event in movement.events]
    np.testing.assert_allclose(times, expected, atol=1e-4)
    assert set(events["LABELS"]["value"]) == {"Foot Strike", "Foot Off"}
    assert set(events["CONTEXTS"]["value"]) == {"Left", "Right"}
