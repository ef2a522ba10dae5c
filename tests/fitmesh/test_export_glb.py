"""`scene.glb`, read back by other code than wrote it."""

import json
import os
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from fitmesh.exports import EXPORTERS
from fitmesh.exports.scene import scene_frame
from fitmesh.exports.scene_glb import reduce_skin
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from fitting.body.kinematics import JOINT_NAMES
from tests.fitmesh.walkers import walkers

QUIET = Reporter()
DTYPE = {5126: "<f4", 5125: "<u4", 5123: "<u2", 5121: "u1"}
WIDTH = {"SCALAR": 1, "VEC3": 3, "VEC4": 4, "MAT4": 16}


class Glb:
    """Just enough of a glTF player: accessors, animation at a key, skinning."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        magic, version, total = struct.unpack_from("<4sII", data)
        assert (magic, version, total) == (b"glTF", 2, len(data))
        length, kind = struct.unpack_from("<I4s", data, 12)
        assert kind == b"JSON"
        self.json: dict[str, Any] = json.loads(data[20 : 20 + length])
        self.binary = data[28 + length :]

    def array(self, number: int) -> np.ndarray:
        accessor = self.json["accessors"][number]
        view = self.json["bufferViews"][accessor["bufferView"]]
        width = WIDTH[accessor["type"]]
        flat = np.frombuffer(
            self.binary,
            DTYPE[accessor["componentType"]],
            accessor["count"] * width,
            view["byteOffset"],
        )
        return flat.reshape(accessor["count"], width) if width > 1 else flat

    def node(self, name: str) -> int:
        return next(i for i, node in enumerate(self.json["nodes"]) if node["name"] == name)

    def channels(self) -> dict[tuple[int, str], tuple[np.ndarray, np.ndarray, str]]:
        """(node, path) -> times, values, interpolation."""
        (animation,) = self.json["animations"]
        found = {}
        for channel in animation["channels"]:
            sampler = animation["samplers"][channel["sampler"]]
            key = channel["target"]["node"], channel["target"]["path"]
            found[key] = (
                self.array(sampler["input"]),
                self.array(sampler["output"]),
                sampler["interpolation"],
            )
        return found

    def posed(self, identity: int, row: int) -> np.ndarray:
        """Vertices [V, 3] at the row-th key of a person."""
        node = self.json["nodes"][self.node(f"person_{identity}_mesh")]
        skin = self.json["skins"][node["skin"]]
        channels = self.channels()
        primitive = self.json["meshes"][node["mesh"]]["primitives"][0]["attributes"]
        points = np.c_[
            self.array(primitive["POSITION"]), np.ones(len(self.array(primitive["POSITION"])))
        ]
        inverse = self.array(skin["inverseBindMatrices"]).reshape(-1, 4, 4).transpose(0, 2, 1)
        world: dict[int, np.ndarray] = {}

        def place(number: int, above: np.ndarray) -> None:
            entry = self.json["nodes"][number]
            local = np.eye(4)
            local[:3, 3] = entry.get("translation", [0, 0, 0])
            if (number, "translation") in channels:
                local[:3, 3] = channels[number, "translation"][1][row]
            if (number, "rotation") in channels:
                local[:3, :3] = Rotation.from_quat(channels[number, "rotation"][1][row]).as_matrix()
            world[number] = above @ local
            for child in entry.get("children", []):
                place(child, world[number])

        place(self.node(f"person_{identity}"), np.eye(4))
        bones = np.stack([world[joint] @ inverse[i] for i, joint in enumerate(skin["joints"])])
        joints = self.array(primitive["JOINTS_0"])
        weights = self.array(primitive["WEIGHTS_0"])
        return np.einsum("vk,vkab,vb->va", weights, bones[joints], points)[:, :3]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    result = walkers(tmp_path_factory.mktemp("glb"))
    EXPORTERS["glb"].write(result, result.folder, QUIET)
    return result


@pytest.fixture(scope="module")
def glb(result: Result) -> Glb:
    return Glb(result.folder / "scene.glb")


def test_skinning_the_file_gives_the_fitted_mesh(result: Result, glb: Glb) -> None:
    scene = scene_frame(result)
    influences = (result.body.weights > 0).sum(1).numpy()
    for person in result.people:
        for row in (0, len(person) // 2, len(person) - 1):
            error_mm = 1000 * np.linalg.norm(
                glb.posed(person.identity, row)
                - scene.points(result.vertices(person, row)[None], person.frame[[row]])[0],
                axis=1,
            )
            assert error_mm[influences <= 4].max() < 0.02
            assert error_mm.max() < 10
            assert error_mm.mean() < 0.1


def test_the_four_weights_of_a_vertex_sum_to_one(result: Result) -> None:
    joints, weights = reduce_skin(result.body.weights.numpy())
    assert joints.shape == weights.shape == (len(result.body.v_template), 4)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)


def test_joints_have_names_and_stand_in_a_t_pose_at_rest(result: Result, glb: Glb) -> None:
    for skin in glb.json["skins"]:
        assert tuple(glb.json["nodes"][joint]["name"] for joint in skin["joints"]) == JOINT_NAMES
        assert all(glb.json["nodes"][joint]["rotation"] == [0, 0, 0, 1] for joint in skin["joints"])


def test_the_camera_sees_joints_where_the_fit_put_them(result: Result, glb: Glb) -> None:
    (camera,) = glb.json["cameras"]
    node = glb.json["nodes"][glb.node("camera")]
    height = 2 * np.tan(camera["perspective"]["yfov"] / 2)
    width = height * camera["perspective"]["aspectRatio"]
    person = result.people[0]
    across, down = result.camera.size
    points = scene_frame(result).points(person.joints_m[[3]], person.frame[[3]])[0] - np.array(
        node["translation"]
    )
    assert (points[:, 2] < 0).all()  # in front of a camera that looks along -z
    x = (points[:, 0] / -points[:, 2] / width + 0.5) * across
    y = (0.5 - points[:, 1] / -points[:, 2] / height) * down
    expected = result.camera.project(torch.from_numpy(person.joints_m[3])).numpy()
    np.testing.assert_allclose(np.c_[x, y], expected, atol=1e-3)


def test_people_stand_upright_and_the_lowest_feet_on_the_floor(result: Result, glb: Glb) -> None:
    lowest = []
    for person in result.people:
        for row in range(0, len(person), 4):
            mesh = glb.posed(person.identity, row)
            lowest.append(mesh[:, 1].min())
            assert mesh[:, 1].argmax() in np.flatnonzero(
                result.body.weights[:, 15] > 0.5
            )  # the head is on top
            assert 1.3 < np.ptp(mesh[:, 1]) < 2.0
    assert abs(min(lowest)) < 0.05


def test_times_start_at_zero_and_follow_the_video(result: Result, glb: Glb) -> None:
    times = glb.channels()[glb.node("pelvis"), "translation"][0]
    np.testing.assert_allclose(times, np.arange(24) * 1001 / 30000, atol=1e-6)


def test_a_person_is_shown_only_while_tracked(result: Result, glb: Glb) -> None:
    channels = glb.channels()
    assert (glb.node("person_1"), "scale") not in channels  # there from the first frame to the last
    times, scale, interpolation = channels[glb.node("person_4"), "scale"]
    late = result.people[1]
    start_s = result.time_s[0]
    assert interpolation == "STEP"
    assert scale.tolist() == [[0, 0, 0], [1, 1, 1], [0, 0, 0]]
    after = result.time_s[result.frames == late.frame[-1] + 1][0]
    np.testing.assert_allclose(times, [0, late.time_s[0] - start_s, after - start_s], atol=1e-6)


def test_neighbouring_quaternions_lie_in_one_hemisphere(tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=40)
    person = result.people[0]
    turning = person.pose_rad.copy()
    turning[:, 0] = np.linspace(0, 4 * np.pi, 40)[:, None] * np.array(
        [0, 1, 0]
    )  # the axis-angle passes whole turns
    EXPORTERS["glb"].write(
        replace(result, people=[replace(person, pose_rad=turning)]), tmp_path, QUIET
    )
    glb = Glb(tmp_path / "scene.glb")
    for (_, path), (_, values, _) in glb.channels().items():
        if path == "rotation":
            np.testing.assert_allclose(np.linalg.norm(values, axis=1), 1, atol=1e-6)
            assert ((values[1:] * values[:-1]).sum(1) > 0).all()


def test_a_result_without_people_is_a_scene_with_a_camera(tmp_path: Path) -> None:
    EXPORTERS["glb"].write(replace(walkers(tmp_path), people=[]), tmp_path, QUIET)
    scene = Glb(tmp_path / "scene.glb").json
    assert [node["name"] for node in scene["nodes"]] == ["camera"]
    assert "animations" not in scene
    assert "meshes" not in scene


def test_one_image_becomes_a_scene_with_one_key(tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=1)
    EXPORTERS["glb"].write(result, tmp_path, QUIET)
    glb = Glb(tmp_path / "scene.glb")
    assert glb.channels()[glb.node("pelvis"), "translation"][0].tolist() == [0]


def test_a_gltf_library_reads_it(result: Result) -> None:
    pygltflib = pytest.importorskip("pygltflib", reason="needs pygltflib")
    scene = pygltflib.GLTF2().load(str(result.folder / "scene.glb"))
    assert [len(skin.joints) for skin in scene.skins] == [24, 24]
    assert scene.accessors[scene.meshes[0].primitives[0].attributes.POSITION].count == 6800


def test_the_khronos_validator_finds_nothing(result: Result) -> None:
    modules = os.environ.get("FITMESH_NODE_MODULES", "")
    if not shutil.which("node") or not (Path(modules) / "gltf-validator").is_dir():
        pytest.skip(
            "needs node and `npm install gltf-validator` in the folder that FITMESH_NODE_MODULES names"
        )
    script = (
        f"require({json.dumps(str(Path(modules) / 'gltf-validator'))})"
        ".validateBytes(new Uint8Array(require('fs').readFileSync(process.argv[1])))"
        ".then(report => console.log(JSON.stringify(report.issues)))"
    )
    run = subprocess.run(
        ["node", "-e", script, str(result.folder / "scene.glb")],
        capture_output=True,
        text=True,
        check=True,
    )
    issues = json.loads(run.stdout)
    assert (issues["numErrors"], issues["numWarnings"]) == (0, 0), issues["messages"]
