"""With a known world frame (a camera 1.4 m high, pitched down by 18 degrees) every export is
upright and metric.
"""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from fitmesh.exports import EXPORTERS
from fitmesh.exports.scene import foot_points, scene_frame
from fitmesh.loading import load
from fitmesh.person import Person, Shot
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from fitting.body.kinematics import JOINT_NAMES
from tests.fitmesh.test_export_glb import Glb
from tests.fitmesh.test_exports import play_bvh
from tests.fitmesh.walkers import NUMBER, in_world, save, walkers

QUIET = Reporter()
HEIGHT_M = 1.4
PITCH_DEG = 18.0
PAN_DEG = 20.0
HEAD, PELVIS, LEFT_HIP, RIGHT_HIP = (
    NUMBER[name] for name in ("head", "pelvis", "left_hip", "right_hip")
)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("world")
    save(in_world(walkers(folder, frames=24), PITCH_DEG, HEIGHT_M, PAN_DEG))
    result = load(folder)
    for name in ("glb", "bvh", "obj", "json", "csv"):
        EXPORTERS[name].write(result, folder, QUIET)
    return result


def assert_upright_walk(joints_m: np.ndarray, person: Person) -> None:
    """[T, 24, 3] in the world: y up, feet near 0, nobody leans, left is left, and the right way is
    walked.
    """
    spine = joints_m[:, HEAD] - joints_m[:, PELVIS]
    lean_deg = np.degrees(np.arctan2(np.linalg.norm(spine[:, [0, 2]], axis=1), spine[:, 1]))
    assert (
        lean_deg.max() < 9
    )  # the rest pose's own head lies a little before its pelvis; 18 would be the camera's
    assert 0 < joints_m[:, [10, 11], 1].min() < 0.06
    assert joints_m[:, HEAD, 1].mean() == pytest.approx(0.92 * person.height_m, rel=0.02)
    moved = joints_m[-1, PELVIS] - joints_m[0, PELVIS]
    seconds = person.time_s[-1] - person.time_s[0]
    assert np.linalg.norm(moved) == pytest.approx(1.2 * seconds, rel=1e-3)
    assert abs(moved[1]) < 1e-3
    forward = (
        np.array([1.0, 0, 0]) if person.identity == 1 else np.array([np.sin(0.2), 0, np.cos(0.2)])
    )
    np.testing.assert_allclose(moved / np.linalg.norm(moved), forward, atol=1e-3)
    left = joints_m[:, LEFT_HIP] - joints_m[:, RIGHT_HIP]
    assert (
        np.cross(left, forward) @ np.array([0, -1.0, 0]) > 0.08 * person.size
    ).all()  # left x forward is down


def test_joints_in_the_world_are_upright(result: Result) -> None:
    for person in result.people:
        assert person.joints_world_m is not None
        assert_upright_walk(person.joints_world_m, person)


def test_the_scene_frame_is_the_world_frame(result: Result) -> None:
    scene = scene_frame(result)
    assert scene.upright == (True,)
    for person in result.people:
        np.testing.assert_allclose(
            scene.points(person.joints_m, person.frame), person.joints_world_m, atol=1e-5
        )


def test_soles_reach_the_floor_and_not_below(result: Result) -> None:
    scene = scene_frame(result)
    for person in result.people:
        lowest = [
            scene.points(result.vertices(person, row)[None], person.frame[[row]])[0, :, 1].min()
            for row in range(len(person))
        ]
        assert min(lowest) == pytest.approx(0, abs=1e-4)
        feet = foot_points(result, person, scene)
        assert (feet[person.contact > 0.5][:, 1] < 0.06).all()


def test_glb_meshes_stand_in_the_world(result: Result) -> None:
    glb = Glb(result.folder / "scene.glb")
    scene = scene_frame(result)
    for person in result.people:
        for row in (0, len(person) - 1):
            expected = scene.points(result.vertices(person, row)[None], person.frame[[row]])[0]
            assert (
                np.median(np.linalg.norm(glb.posed(person.identity, row) - expected, axis=1)) < 1e-5
            )
        mesh = glb.posed(person.identity, 0)
        assert np.ptp(mesh[:, 1]) == pytest.approx(person.height_m, rel=0.06)
        assert glb.json["nodes"][glb.node(f"person_{person.identity}")]["extras"][
            "height_m"
        ] == pytest.approx(person.height_m, abs=1e-3)
    (shot,) = glb.json["asset"]["extras"]["shots"]
    assert shot["frame"].startswith("world")


def test_the_glb_camera_pans_and_sees_the_joints_where_the_video_does(result: Result) -> None:
    glb = Glb(result.folder / "scene.glb")
    times, turns, _ = glb.channels()[glb.node("camera"), "rotation"]
    assert len(times) == len(result.frames)
    assert (glb.node("camera"), "translation") not in glb.channels()
    place = np.array(glb.json["nodes"][glb.node("camera")]["translation"])
    np.testing.assert_allclose(place, (0, HEIGHT_M, 0), atol=1e-6)
    rotation = Rotation.from_quat(turns)
    axis = rotation.apply([0, 0, -1.0])
    np.testing.assert_allclose(np.degrees(np.arcsin(axis[:, 1])), -PITCH_DEG, atol=1e-3)
    np.testing.assert_allclose(
        np.degrees(np.arctan2(axis[:, 0], -axis[:, 2]))[[0, -1]], [0, PAN_DEG], atol=1e-3
    )
    (camera,) = glb.json["cameras"]
    focal = result.size[1] / 2 / np.tan(camera["perspective"]["yfov"] / 2)
    person = result.people[0]
    assert person.joints_world_m is not None
    seen = np.stack(
        [
            rotation[row].inv().apply(person.joints_world_m[row] - place)
            for row in range(len(person))
        ]
    )
    middle = np.array(result.camera.center_px)
    pixels = np.stack((seen[..., 0], -seen[..., 1]), -1) / -seen[..., 2:] * focal + middle
    expected = np.stack(
        [
            result.camera_at(int(f)).project(torch.from_numpy(j))
            for f, j in zip(person.frame, person.joints_m, strict=True)
        ]
    )
    np.testing.assert_allclose(pixels, expected, atol=0.01)


def test_the_glb_floor_lies_under_everybody(result: Result) -> None:
    glb = Glb(result.folder / "scene.glb")
    mesh = glb.json["meshes"][glb.json["nodes"][glb.node("floor")]["mesh"]]
    (primitive,) = mesh["primitives"]
    lines = glb.array(primitive["attributes"]["POSITION"]).reshape(-1, 2, 3)
    assert primitive["mode"] == 1
    assert not lines[..., 1].any()
    low = lines.min((0, 1))
    high = lines.max((0, 1))
    for person in result.people:
        assert person.joints_world_m is not None
        assert (person.joints_world_m[..., [0, 2]] > low[[0, 2]]).all()
        assert (person.joints_world_m[..., [0, 2]] < high[[0, 2]]).all()
    assert len(lines) == (high - low)[[0, 2]].sum() + 2  # one a metre


def test_without_gravity_there_is_no_floor_and_the_file_says_so(tmp_path: Path) -> None:
    EXPORTERS["glb"].write(walkers(tmp_path, frames=3), tmp_path, QUIET)
    glb = Glb(tmp_path / "scene.glb")
    assert "floor" not in [node["name"] for node in glb.json["nodes"]]
    assert "gravity not known" in glb.json["asset"]["extras"]["shots"][0]["frame"]


def test_bvh_stands_in_the_world(result: Result) -> None:
    for person in result.people:
        names, places, _ = play_bvh(result.folder / "bvh" / f"person_{person.identity}.bvh")
        assert_upright_walk(
            places[-len(person) :, [names.index(name) for name in JOINT_NAMES]], person
        )


def test_obj_stands_in_the_world(result: Result) -> None:
    child = result.people[1]
    text = (
        (result.folder / "obj" / "person_4" / f"frame_{child.frame[0]:06d}.obj")
        .read_text()
        .splitlines()
    )
    vertices = np.array([line.split()[1:] for line in text if line.startswith("v ")], float)
    assert 0 <= vertices[:, 1].min() < 0.1
    assert vertices[:, 1].max() == pytest.approx(child.height_m, rel=0.06)


def test_json_and_csv_have_both_frames_and_the_way_between(result: Result) -> None:
    read = json.loads((result.folder / "motion.json").read_text())
    (shot,) = read["shots"]
    assert (shot["camera"], shot["camera_height_m"], shot["floor_known"]) == (
        "rotating",
        HEIGHT_M,
        True,
    )
    with (result.folder / "motion.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    world = {
        entry["frame"]: np.array(entry["world_from_camera"]) for entry in read["camera_frames"]
    }
    for person, entry in zip(result.people, read["people"], strict=True):
        assert (entry["size"], entry["height_m"]) == (
            pytest.approx(person.size, abs=1e-4),
            pytest.approx(person.height_m, abs=1e-3),
        )
        assert_upright_walk(
            np.array([frame["joints_world_m"] for frame in entry["frames"]]), person
        )
        for frame in entry["frames"]:
            points = np.c_[frame["joints_camera_m"], np.ones(24)] @ world[frame["frame"]].T
            np.testing.assert_allclose(points[:, :3], frame["joints_world_m"], atol=2e-4)
        rows = [row for row in table if row["person"] == str(person.identity)]
        places = [
            [[row[f"{name}_world_{axis}_m"] for axis in "xyz"] for name in JOINT_NAMES]
            for row in rows
        ]
        assert_upright_walk(np.array(places, float), person)
        matrix = np.array(
            [[float(rows[0][f"world_from_camera_{i}{j}"]) for j in range(4)] for i in range(3)]
        )
        np.testing.assert_allclose(matrix, world[int(rows[0]["frame"])][:3], atol=1e-5)
        assert [float(rows[0][f"{name}_contact"]) for name in ("left_heel", "right_toes")] == [
            person.contact[0, 0],
            person.contact[0, 3],
        ]


def two_shots(folder: Path) -> Result:
    """Person 1 is in the first shot, whose world is known; person 4 in the second, whose world is
    not.
    """
    result = in_world(walkers(folder, frames=24), PITCH_DEG, HEIGHT_M)
    cut = 12
    world = result.world_from_camera.copy()
    world[cut:] = np.nan
    first, late = result.people

    cut_frame = int(result.frames[cut])
    early = first.rows(first.frame < cut_frame)
    after = replace(late.rows(late.frame >= cut_frame), world_from_camera=None, shot=1)
    unknown = Shot(cut_frame, "unknown", None, np.nan, False, np.nan, 500.0, np.nan, "prior")
    focal_px = np.where(result.frames < cut_frame, result.focal_px, 500.0)
    return replace(
        result,
        people=[early, after],
        shots=[*result.shots, unknown],
        world_from_camera=world,
        focal_px=focal_px,
    )


def test_shots_share_a_file_and_people_are_shown_during_theirs(tmp_path: Path) -> None:
    result = two_shots(tmp_path)
    assert scene_frame(result).upright == (True, False)
    EXPORTERS["glb"].write(result, tmp_path, QUIET)
    glb = Glb(tmp_path / "scene.glb")
    first, second = glb.json["cameras"]
    assert [camera["name"] for camera in glb.json["cameras"]] == ["camera", "camera_shot_2"]
    assert second["extras"]["focal_px"][0] == 500
    assert first["extras"]["focal_px"][0] == pytest.approx(result.camera.focal_px[0])
    channels = glb.channels()
    cut_s = result.time_s[12] - result.time_s[0]
    times, scale, _ = channels[glb.node("person_1"), "scale"]
    assert times[scale[:, 0] == 0] == pytest.approx(cut_s), "hidden from the cut on"
    times, scale, _ = channels[glb.node("person_4"), "scale"]
    assert times[scale[:, 0] == 1] == pytest.approx(cut_s)
    assert [glb.json["nodes"][glb.node(f"person_{i}")]["extras"]["shot"] for i in (1, 4)] == [1, 2]
