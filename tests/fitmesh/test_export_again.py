"""`fitmesh export`: more formats of a finished run, without its video and options."""

import json
from pathlib import Path

import numpy as np
import pytest

import fitmesh as package
from fitmesh.exports import EXPORTERS
from fitmesh.options.people import parse_names
from fitmesh.stages.export_again import export_again
from fitmesh.ui.events import Reporter
from pose2d.base.errors import OptionError, UserError
from tests.fitmesh.conftest import Fitmesh
from tests.fitmesh.test_export_glb import Glb
from tests.fitmesh.walkers import in_world, save, walkers

QUIET = Reporter()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The folder of a run of two people with its fit and run.json only."""
    save(in_world(walkers(tmp_path, frames=12)))
    settings = {"smooth": 0.5, "rig": "unreal", "in_place": "yes", "export_fps": True}
    facts = {"clip": "gone.mp4", "settings": settings, "files": {}, "entries": ["fit.npz"]}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    return tmp_path


def bvh_bones(path: Path) -> list[str]:
    lines = path.read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[0] in ("ROOT", "JOINT")]


def test_options_that_are_not_given_are_those_of_the_run(out: Path) -> None:
    files = export_again(out, ["bvh"], {}, QUIET)
    assert files == [out / "bvh" / "person_1.bvh", out / "bvh" / "person_4.bvh"]
    assert "upperarm_l" in bvh_bones(files[0])
    smoothed = files[0].read_text()
    export_again(out, ["bvh"], {"smooth": 0.0}, QUIET)
    assert files[0].read_text() != smoothed


def test_options_that_are_given_win_and_settings_follow_the_scene(out: Path) -> None:
    export_again(out, ["bvh"], {"rig": "mixamo"}, QUIET)
    assert package.load(out).settings["rig"] == "unreal"
    export_again(out, ["glb"], {"rig": "mixamo", "plant_feet": False}, QUIET)
    settings = package.load(out).settings
    assert (settings["rig"], settings["plant_feet"], settings["smooth"]) == ("mixamo", False, 0.5)


def test_each_person_has_a_file_with_a_name(out: Path) -> None:
    changes = {"per_person": True, "names": "1:Anna", "rig": "mixamo"}
    files = export_again(out, ["glb"], changes, QUIET)
    assert files == [out / "scene.glb", out / "glb" / "Anna.glb", out / "glb" / "person_4.glb"]
    anna = Glb(files[1])
    assert {"Anna", "Anna_mesh"} <= {node["name"] for node in anna.json["nodes"]}
    assert len(anna.json["skins"]) == 1
    everyone = Glb(files[0])
    np.testing.assert_array_equal(
        everyone.array(everyone.json["skins"][0]["inverseBindMatrices"]),
        anna.array(anna.json["skins"][0]["inverseBindMatrices"]),
    )
    assert set(EXPORTERS["glb"].entries) == {"scene.glb", "glb"}


def test_a_file_that_is_up_to_date_is_kept_and_a_foreign_one_is_not_replaced(out: Path) -> None:
    (file, _) = export_again(out, ["bvh"], {}, QUIET)
    written = file.stat().st_mtime_ns
    export_again(out, ["bvh"], {}, QUIET)
    assert file.stat().st_mtime_ns == written
    (out / "motion.csv").write_text("mine")
    with pytest.raises(UserError, match=r"motion\.csv, which fitmesh has not written"):
        export_again(out, ["csv"], {}, QUIET)


@pytest.mark.parametrize("names", ["Anna", "1:../up", "1:Anna,2:anna", "1:person_2", "1:", "1:a b"])
def test_names_that_cannot_be_files_are_refused(names: str) -> None:
    with pytest.raises(OptionError, match="--names must be"):
        parse_names(names)


def test_a_folder_without_a_fit_is_refused(fitmesh: Fitmesh, tmp_path: Path) -> None:
    assert fitmesh("export", tmp_path, "--export", "bvh") == 2
    assert fitmesh("export", tmp_path) == 2


def test_a_later_run_with_the_same_options_keeps_what_was_exported(
    fitmesh: Fitmesh, walk: tuple, tmp_path: Path
) -> None:
    assert fitmesh("run", *walk, "--out", tmp_path) == 0
    assert "".join(fitmesh.said.split()).endswith("".join(f"fitmesh view {tmp_path}".split()))
    options = ("--export", "bvh", "--rig", "mixamo")
    assert fitmesh("export", tmp_path, *options) == 0
    assert fitmesh("run", *walk, "--out", tmp_path, *options) == 0
    assert fitmesh.stages_made() == ["glb"]
