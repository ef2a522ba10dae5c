"""OpenSim gets markers, set-up files and angles that fit its model, and its own run is read back."""

import os
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fitmesh.cli import app
from fitmesh.exports import EXPORTERS
from fitmesh.exports.scene import scene_frame
from fitmesh.opensim import DATA, FOLDER, MARKERS, MODEL, comparison, tools
from fitmesh.opensim.coordinates import coordinate_std_deg, model_coordinates
from fitmesh.opensim.setup_files import PersonFiles
from fitmesh.opensim.tables import read_table, write_table
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from pose2d.base.errors import UserError
from tests.fitmesh.walkers import in_world, walkers

QUIET = Reporter(lambda event: None)
# A Python with the package opensim, for the slow test.
OPENSIM_PYTHON = os.environ.get("FITMESH_OPENSIM_PYTHON", sys.executable)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return in_world(walkers(tmp_path_factory.mktemp("opensim"), frames=12), pan_deg=15)


@pytest.fixture
def out(result: Result, tmp_path: Path) -> Path:
    EXPORTERS["opensim"].write(result, tmp_path, QUIET)
    return tmp_path


def names_in(path: Path, tag: str) -> set[str]:
    return {element.attrib["name"] for element in xml.parse(path).getroot().iter(tag)}


def test_set_up_files_name_only_files_of_the_folder(out: Path) -> None:
    files = next(tools.segments(out))
    for setup in (files.scale, files.kinematics):
        root = xml.parse(setup).getroot()
        named = [
            element.text
            for tag in ("model_file", "marker_file", "marker_set_file")
            for element in root.iter(tag)
        ]
        assert named
        for name in named:
            assert name is not None
            is_made_by_scaling = name == files.scaled_model.name
            assert is_made_by_scaling or (files.folder / name).is_file()


def test_every_marker_and_body_of_the_set_up_is_in_the_model(out: Path) -> None:
    files = next(tools.segments(out))
    in_model = names_in(out / FOLDER / MARKERS, "Marker")
    in_trc = set(files.markers.read_text().splitlines()[3].split("\t")[2:])
    followed = names_in(files.kinematics, "IKMarkerTask")
    assert followed == in_model & in_trc
    pairs = {
        marker
        for element in xml.parse(files.scale).getroot().iter("markers")
        for marker in (element.text or "").split()
    }
    assert pairs <= in_model
    bodies = names_in(out / FOLDER / MODEL, "Body")
    scaled = names_in(files.scale, "BodyScale")
    assert scaled == bodies


def test_our_motion_has_only_coordinates_of_the_model(out: Path, result: Result) -> None:
    files = next(tools.segments(out))
    _, ours = read_table(files.our_motion)
    assert set(ours) <= names_in(DATA / MODEL, "Coordinate")
    _, deviations = read_table(files.our_deviations)
    assert set(deviations) <= set(ours)
    person = result.people[0]
    expected = model_coordinates(person, scene_frame(result))
    for name, values in ours.items():
        np.testing.assert_allclose(values, expected[name][: len(values)], atol=1e-4)
    assert set(coordinate_std_deg(person)) == set(deviations)


def test_the_models_hips_are_where_ours_are(result: Result) -> None:
    person = result.people[0]
    scene = scene_frame(result)
    coordinates = model_coordinates(person, scene)
    hips_m = scene.points(person.joints_m[:, 1:3].astype(float), person.frame).mean(1)
    pelvis_m = np.stack([coordinates[f"pelvis_t{axis}"] for axis in "xyz"], -1)
    distance_m = np.linalg.norm(pelvis_m - hips_m, axis=-1)
    np.testing.assert_allclose(distance_m, 0.0968 * person.height_m / 1.70, rtol=0.01)


def test_differences_are_the_shorter_way_around_and_offsets_are_told_from_changes(
    tmp_path: Path,
) -> None:
    files = PersonFiles(tmp_path, "person_1")
    time_s = np.arange(50) / 50
    swing = 20 * np.sin(6 * time_s)
    write_table(files.our_motion, time_s, {"knee_angle_r": swing + 365, "hip_flexion_r": swing})
    write_table(files.motion, time_s[5:], {"knee_angle_r": swing[5:], "other": swing[5:]})
    (knee,) = comparison.compare(files)
    assert knee.name == "knee_angle_r"
    assert len(knee.time_s) == 45
    assert knee.offset_deg == pytest.approx(5, abs=1e-3)
    assert knee.rms_deg == pytest.approx(5, abs=1e-3)
    assert knee.rms_without_offset_deg == pytest.approx(0, abs=1e-3)
    assert knee.correlation == pytest.approx(1)


@pytest.mark.parametrize(
    "text", ["", "endheader\n", "endheader\ntime\tx\n1\n", "endheader\ntime\tx\n1 a\n"]
)
def test_a_damaged_table_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.mot"
    file.write_text(text)
    with pytest.raises(UserError, match=r"x\.mot must be a table of OpenSim"):
        read_table(file)


def test_without_the_package_the_command_says_how_to_get_it(out: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"No module named 'opensim'\" >&2\nexit 1\n")
    python.chmod(0o755)
    answer = CliRunner().invoke(app, ["opensim", str(out), "--python", str(python)])
    assert isinstance(answer.exception, UserError)
    assert "pip install 'fitmesh[opensim]'" in str(answer.exception)


def test_a_failing_run_is_reported_with_what_opensim_said(out: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho '[error] no such body'\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(UserError, match="no such body"):
        tools.run(next(tools.segments(out)), str(python))


@pytest.mark.slow
def test_opensim_scales_its_model_and_finds_our_knees(out: Path) -> None:
    try:
        tools.check_python(OPENSIM_PYTHON)
    except UserError:
        pytest.skip("needs the package opensim (or FITMESH_OPENSIM_PYTHON)")
    files = next(tools.segments(out))
    errors = tools.run(files, OPENSIM_PYTHON)
    assert errors.rms_mm < 30
    by_name = {one.name: one for one in comparison.compare(files)}
    for side in "rl":
        assert by_name[f"knee_angle_{side}"].rms_deg < 8
        assert by_name[f"hip_adduction_{side}"].rms_without_offset_deg < 5
    comparison.write_page(files, list(by_name.values()), errors)
    assert "<svg" in files.comparison.read_text()
