"""`amass` and `trc`, read back as their readers read them."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from fitmesh.exports import EXPORTERS
from fitmesh.exports.person_files import SMPL_REST_PELVIS_M
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from tests.fitmesh.walkers import in_world, walkers

QUIET = Reporter()
FRAMES = 24


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    result = in_world(walkers(tmp_path_factory.mktemp("amass"), frames=FRAMES), pan_deg=15)
    for name in ("amass", "trc"):
        EXPORTERS[name].write(result, result.folder, QUIET)
    return result


def z_up(points: np.ndarray) -> np.ndarray:
    """x right, y up, z towards the camera -> x right, y away from it, z up."""
    return np.stack((points[..., 0], -points[..., 2], points[..., 1]), -1)


def test_amass_has_its_keys_and_shapes(result: Result) -> None:
    for person in result.people:
        with np.load(
            result.folder / "amass" / f"person_{person.identity}.npz", allow_pickle=False
        ) as file:
            read = dict(file)
        count = len(person)
        assert (read["poses"].shape, read["trans"].shape, read["betas"].shape) == (
            (count, 156),
            (count, 3),
            (16,),
        )
        assert str(read["gender"]) == "neutral"
        for name in ("mocap_framerate", "mocap_frame_rate"):
            assert read[name].item() == pytest.approx(30000 / 1001)
        np.testing.assert_array_equal(
            np.c_[read["root_orient"], read["pose_body"]], read["poses"][:, :66]
        )
        np.testing.assert_array_equal(read["poses"][:, 66:], read["pose_hand"])
        assert (read["height_m"].item(), read["size"].item(), read["upright"].item()) == (
            pytest.approx(person.height_m),
            person.size,
            True,
        )
        assert not read["betas"].any()  # the open body's shape means nothing to SMPL


def test_amass_poses_a_body_of_size_1_that_stands_upright_with_z_up(result: Result) -> None:
    for person in result.people:
        with np.load(result.folder / "amass" / f"person_{person.identity}.npz") as file:
            poses = file["poses"]
            trans = file["trans"]
        pose = np.concatenate([poses[:, :66], np.zeros((len(poses), 6))], 1)
        pelvis = result.body.rest_joints[0].numpy()
        # A body whose rest pelvis is SMPL's, posed with `trans` as SMPL is.
        placed = result.body(pose, person.shape, trans + SMPL_REST_PELVIS_M - pelvis).joints.numpy()
        assert person.joints_world_m is not None
        np.testing.assert_allclose(
            person.size * placed[:, :22], z_up(person.joints_world_m)[:, :22], atol=2e-3
        )
        assert 0 < placed[:, [10, 11], 2].min() < 0.06
        assert (
            placed[:, 15, 2].mean() > 1.3
        )  # the child's file too describes somebody of SMPL's size


def read_trc(path: Path) -> tuple[dict[str, str], list[str], np.ndarray]:
    """Header, marker names and rows, by the rules of OpenSim's reader: a token ends at every tab."""

    def tokens(line: str) -> list[str]:
        parts = line.split("\t")
        return parts if parts[-1] else parts[:-1]

    lines = path.read_text().splitlines()
    assert lines[0].split("\t")[:3] == ["PathFileType", "4", "(X/Y/Z)"]
    keys = tokens(lines[1])
    values = tokens(lines[2])
    assert " ".join(keys) == (
        "DataRate CameraRate NumFrames NumMarkers Units OrigDataRate OrigDataStartFrame OrigNumFrames"
    )
    header = dict(zip(keys, values, strict=True))
    labels = [token for token in tokens(lines[3]) if token]
    assert labels[:2] == ["Frame#", "Time"]
    assert len(labels) == int(header["NumMarkers"]) + 2
    axes = [token for token in tokens(lines[4]) if token]
    assert axes == [f"{axis}{n}" for n in range(1, len(labels) - 1) for axis in "XYZ"]
    rows = [tokens(line) for line in lines[5:]]
    assert {len(row) for row in rows} == {3 * (len(labels) - 2) + 2}
    return header, labels[2:], np.array(rows, float)


def test_trc_is_read_by_opensims_rules(result: Result) -> None:
    for person in result.people:
        header, names, rows = read_trc(result.folder / "trc" / f"person_{person.identity}.trc")
        assert (header["Units"], int(header["NumFrames"]), int(header["OrigNumFrames"])) == (
            "m",
            len(person),
            len(person),
        )
        assert float(header["DataRate"]) == pytest.approx(30000 / 1001, abs=1e-5)
        np.testing.assert_array_equal(rows[:, 0], np.arange(1, len(person) + 1))
        np.testing.assert_allclose(rows[:, 1], person.time_s - result.time_s[0], atol=1e-6)
        points = rows[:, 2:].reshape(len(person), -1, 3)
        assert person.joints_world_m is not None
        np.testing.assert_allclose(points[:, 26:], person.joints_world_m, atol=2e-5)
        lowest = points[
            :, [names.index(name) for name in ("LHeel", "RHeel", "LBigToe", "RSmallToe")], 1
        ].min()
        assert 0 < lowest < 0.05
        assert points[:, names.index("LHip"), 1].mean() == pytest.approx(
            points[:, 27, 1].mean(), abs=0.03
        )


def test_trc_has_the_names_of_pose2sims_halpe_markers(result: Result) -> None:
    """As its Markers_Halpe26.xml and IK_Setup_Pose2Sim_Halpe26.xml name them."""
    _, names, _ = read_trc(result.folder / "trc" / "person_1.trc")
    sides = [
        f"{side}{part}"
        for side in "LR"
        for part in (
            "Shoulder",
            "Elbow",
            "Wrist",
            "Hip",
            "Knee",
            "Ankle",
            "BigToe",
            "SmallToe",
            "Heel",
            "Eye",
            "Ear",
        )
    ]
    assert sorted(names[:26]) == sorted(["Nose", "Head", "Neck", "Hip", *sides])
    assert len(set(names)) == 50


def test_an_absence_begins_a_new_file(result: Result, tmp_path: Path) -> None:
    gone = replace(
        result,
        people=[result.people[0].rows(np.delete(np.arange(24), [9, 10, 11]))],
        folder=tmp_path,
    )
    gone.__dict__["body"] = result.body
    for name in ("amass", "trc"):
        files = EXPORTERS[name].write(gone, tmp_path, QUIET)
        assert sorted(files) == sorted(
            str(path.relative_to(tmp_path)) for path in (tmp_path / name).iterdir()
        )
    _, _, first = read_trc(tmp_path / "trc" / "person_1.trc")
    _, _, second = read_trc(tmp_path / "trc" / "person_1_part_2.trc")
    assert (len(first), len(second)) == (9, 12)
    assert second[0, 1] == pytest.approx(result.time_s[12] - result.time_s[0], abs=1e-6)
    with (
        np.load(tmp_path / "amass" / "person_1_part_2.npz") as part,
        np.load(result.folder / "amass" / "person_1.npz") as whole,
    ):
        np.testing.assert_allclose(part["trans"], whole["trans"][12:], atol=1e-6)


def test_uneven_frames_become_even(tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=30, rate=Fraction(30))
    time_s = result.time_s.copy()
    time_s[15:] += 0.5  # the camera paused
    person = replace(result.people[0], time_s=time_s)
    uneven = replace(result, people=[person], time_s=time_s)
    for name in ("amass", "trc"):
        EXPORTERS[name].write(uneven, tmp_path, QUIET)
    with np.load(tmp_path / "amass" / "person_1.npz") as file:
        assert len(file["poses"]) == 45
        assert not file["upright"]
        speed = np.linalg.norm(np.diff(file["trans"], axis=0), axis=1)
    assert speed.max() < 0.05
    header, _, rows = read_trc(tmp_path / "trc" / "person_1.trc")
    assert int(header["NumFrames"]) == 45
    np.testing.assert_allclose(np.diff(rows[:, 1]), 1 / 30, atol=2e-6)


def test_nobody_is_no_file(tmp_path: Path) -> None:
    empty = replace(walkers(tmp_path, frames=3), people=[])
    for name in ("amass", "trc"):
        assert EXPORTERS[name].write(empty, tmp_path, QUIET) == []
