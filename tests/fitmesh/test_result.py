"""`fitmesh.load`: what a run found, with the shapes and meanings that docs/run.md promises."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fitmesh
from fitmesh.schema import SCHEMA_VERSION, fit_schema
from pose2d.base.errors import UserError
from tests.fitmesh.conftest import FRAMES, SIZE, Fitmesh
from tests.fitmesh.walkers import save, walkers
from tests.videos import write_video
from tests.walkers import LEGS, coco_results, walker, write_json

ROWS = {
    "frame": (),
    "time_s": (),
    "observed": (),
    "converged": (),
    "pose_rad": (24, 3),
    "translation_m": (3,),
    "joints_m": (24, 3),
    "joint_std_mm": (24,),
    "joint_std_relative_mm": (24,),
    "joint_observed": (24,),
    "keypoint_observed": (26,),
    "keypoints_px": (26, 2),
    "confidence": (26,),
    "presence": (26,),
    "raw": (26,),
    "used": (26,),
    "swapped": (26,),
    "reprojection_px": (26,),
    "box_px": (4,),
    "contact": (4,),
}
LEFT_WRIST = 20
LEGS_FROM_KNEES = [4, 5, 7, 8, 10, 11]
HIPS = [1, 2]

pytestmark = pytest.mark.usefixtures("no_exports")


def test_what_was_fitted_is_read_back_whole(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path
) -> None:
    import fitmesh as package

    assert fitmesh("run", *walk, "--out", tmp_path) == 0, fitmesh.said
    result = package.load(tmp_path)
    assert isinstance(result, package.Result)
    assert [person.identity for person in result.people] == [1, 2]
    assert (result.size, result.source, result.init) == (SIZE, "raw", "lifter")
    assert result.clip_path == Path(walk[1]).resolve()
    assert result.settings["weighting"] == "likelihood"
    assert set(result.timings_s) == {"people", "fit", "overlay"}
    np.testing.assert_allclose(result.camera.focal_px, 0.72 * 200)  # of the diagonal of 160 x 120
    for person in result.people:
        for name, size in ROWS.items():
            assert getattr(person, name).shape == (FRAMES, *size), name
        assert person.shape.shape == (10,)
        assert person.observed.all()
        assert person.joint_observed.all()
        assert np.nanmean(person.reprojection_px) < 1
        assert (
            person.joints_m[:, LEFT_WRIST, 0] > person.joints_m[:, 0, 0]
        ).all()  # they face the camera
        posed = result.body.at(result.params(person))
        np.testing.assert_allclose(person.joints_m, posed.joints, atol=1e-5)
        mesh = result.vertices(person, 3)
        assert mesh.shape == (len(result.body.v_template), 3)
        np.testing.assert_allclose(mesh.mean(0), result.vertices(person, 3 - FRAMES).mean(0))
        assert np.abs(mesh - person.joints_m[3].mean(0)).max() < 1.5
    assert result.person(2) is result.people[1]
    with pytest.raises(UserError, match="no person 3"):
        result.person(3)


def test_frames_without_a_detection_are_filled_and_marked(fitmesh: Fitmesh, tmp_path: Path) -> None:
    entries = [
        entry for entry in coco_results([walker(FRAMES, SIZE)]) if entry["image_id"] not in (4, 5)
    ]
    video = write_video(tmp_path / "video.mp4", [40 * i for i in range(FRAMES)], SIZE)
    keypoints = write_json(tmp_path / "k.json", entries)
    assert fitmesh("run", "--video", video, "--keypoints", keypoints, "--out", tmp_path) == 0
    (person,) = fitmesh_load(tmp_path).people
    assert person.frame.tolist() == list(range(FRAMES))
    missing = np.isin(person.frame, (4, 5))
    np.testing.assert_array_equal(person.observed, ~missing)
    assert not person.joint_observed[missing].any()
    assert np.isnan(person.keypoints_px[missing]).all()
    assert np.isnan(person.box_px[missing]).all()
    assert np.isnan(person.reprojection_px[missing]).all()
    assert np.isfinite(person.joints_m).all()
    step = np.linalg.norm(np.diff(person.joints_m[:, 0], axis=0), axis=-1)
    assert step.max() < 0.05  # it walks on through the gap


def test_legs_that_nobody_saw_are_marked_and_rest(fitmesh: Fitmesh, tmp_path: Path) -> None:
    video = write_video(tmp_path / "video.mp4", [40 * i for i in range(FRAMES)], SIZE)
    keypoints = write_json(tmp_path / "k.json", coco_results([walker(FRAMES, SIZE)], hidden=LEGS))
    assert fitmesh("run", "--video", video, "--keypoints", keypoints, "--out", tmp_path) == 0
    (person,) = fitmesh_load(tmp_path).people
    assert not person.joint_observed[:, LEGS_FROM_KNEES].any()
    assert person.joint_observed[:, [0, *HIPS, LEFT_WRIST]].all()
    knee_bend = np.linalg.norm(person.pose_rad[:, [4, 5]], axis=-1)
    assert knee_bend.max() < 1.2


def fitmesh_load(folder: Path) -> "fitmesh.Result":
    return fitmesh.load(folder)


def test_a_folder_without_results_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder of results"):
        fitmesh.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"fit\.npz does not exist"):
        fitmesh.load(tmp_path)
    (tmp_path / "fit.npz").write_text("words")
    with pytest.raises(UserError, match="is damaged"):
        fitmesh.load(tmp_path)
    for version in (SCHEMA_VERSION - 1, SCHEMA_VERSION + 1):
        np.savez(tmp_path / "fit.npz", schema_version=version)
        with pytest.raises(UserError, match=rf"schema {version}.*`fitmesh run`"):
            fitmesh.load(tmp_path)


def test_another_body_is_noticed(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path
) -> None:
    from fitting.body.open_body import OPEN_BODY

    body = tmp_path / "mine.npz"
    body.write_bytes(OPEN_BODY.read_bytes())
    assert fitmesh("run", *walk, "--out", tmp_path / "out", "--body-model", body) == 0, fitmesh.said
    assert fitmesh_load(tmp_path / "out").body_name == "mine.npz"
    assert torch.is_tensor(fitmesh_load(tmp_path / "out").body.faces)
    body.write_bytes(b"something else")
    with pytest.raises(UserError, match="has changed since the fit"):
        _ = fitmesh_load(tmp_path / "out").body
    body.unlink()
    with pytest.raises(UserError, match="does not exist any more"):
        _ = fitmesh_load(tmp_path / "out").body


def test_the_cache_key_travels_with_the_result(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path
) -> None:
    assert fitmesh("run", *walk, "--out", tmp_path) == 0
    with np.load(tmp_path / "fit.npz", allow_pickle=False) as file:
        assert json.loads(str(file["cache_key"]))["stage"] == "fit"


def test_nothing_is_said_of_the_world_when_nothing_is_known(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path
) -> None:
    assert fitmesh("run", *walk, "--out", tmp_path, "--focal", "210", "--floor", "off") == 0, (
        fitmesh.said
    )
    result = fitmesh_load(tmp_path)
    (shot,) = result.shots
    assert (shot.first_frame, shot.camera, shot.up_cam, shot.floor_known) == (
        0,
        "unknown",
        None,
        False,
    )
    assert (shot.focal_px, shot.focal_source) == (210, "given")
    assert 0 < shot.focal_log_std < 0.05
    assert np.isnan([shot.up_std_deg, shot.camera_height_m]).all()
    assert result.world_from_camera.shape == (FRAMES, 4, 4)
    assert np.isnan(result.world_from_camera).all()
    assert result.camera_at(3) == result.camera
    assert (result.shot_at(0), result.shot_at(FRAMES - 1), result.events) == (0, 0, [])
    for person in result.people:
        assert (person.size, person.shot, person.same_as) == (1, 0, person.identity)
        assert person.joints_world_m is None
        assert not person.contact.any()
        assert person.height_m == pytest.approx(
            np.ptp(
                result.body(torch.zeros(1, 24, 3), person.shape, vertices=True)
                .vertices[0, :, 1]
                .numpy()
            ),
            abs=1e-4,
        )
    with pytest.raises(UserError, match="frame 999 is not among"):
        result.camera_at(999)


def test_shots_world_frame_and_sizes_are_read_back(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path
) -> None:
    """Into the file of a run go a cut, a camera 1.4 m high and pitched down by 18 degrees, a zoom
    and a child.
    """
    assert fitmesh("run", *walk, "--out", tmp_path) == 0, fitmesh.said
    cut = FRAMES // 2
    pitch = np.radians(18)
    up = np.array([0, -np.cos(pitch), -np.sin(pitch)])
    world = np.full((FRAMES, 4, 4), np.nan, np.float32)
    world[:cut] = np.eye(4)
    world[:cut, :3, :3] = [[1, 0, 0], up, [0, np.sin(pitch), -np.cos(pitch)]]
    world[:cut, 1, 3] = 1.4
    with np.load(tmp_path / "fit.npz", allow_pickle=False) as file:
        arrays = dict(file)
    first_row = arrays["first_row"]
    rows = np.arange(len(arrays["row_frame"]))
    keep = np.where(
        rows < first_row[1], arrays["row_frame"] < cut, arrays["row_frame"] >= cut
    )  # one person a shot
    arrays |= {name: values[keep] for name, values in arrays.items() if name.startswith("row_")}
    arrays |= {
        "first_row": np.array([0, cut, FRAMES]),
        "shot_first_frame": np.array([0, cut]),
        "shot_camera": np.array(["static", "unknown"]),
        "shot_up_cam": np.stack([up, np.full(3, np.nan)]),
        "shot_up_std_deg": np.array([2, np.nan]),
        "shot_floor_known": np.array([True, False]),
        "shot_camera_height_m": np.array([1.4, np.nan]),
        "shot_focal_px": np.array([200.0, 300]),
        "shot_focal_log_std": np.array([0.1, np.nan]),
        "shot_focal_source": np.array(["people and floor", "prior"]),
        "shot_scene": np.array(["used", "not known"]),
        "shot_scene_reason": np.array(["12 stance points", "nobody stands"]),
        "world_from_camera": world,
        "frame_focal_px": np.linspace(200, 300, FRAMES),
        "shot": np.array([0, 1]),
        "same_as": np.array([1, 1]),
        "size": np.array([0.7, 1]),
        "event_time_s": np.array([1.5]),
        "event_identity": np.array([2]),
        "event_kind": np.array(["likely swap"]),
        "event_text": np.array(["with person 1 | at the door"]),
    }
    np.savez(tmp_path / "fit.npz", **arrays)
    result = fitmesh_load(tmp_path)
    child, other = result.people
    assert [shot.camera for shot in result.shots] == ["static", "unknown"]
    assert result.shots[0].camera_height_m == pytest.approx(1.4)
    assert [result.shot_at(frame) for frame in (0, cut - 1, cut, FRAMES - 1)] == [0, 0, 1, 1]
    np.testing.assert_allclose(result.camera_at(FRAMES - 1).focal_px, (300, 300))
    assert (other.shot, other.same_as, other.joints_world_m) == (1, 1, None)
    homogeneous = np.concatenate([child.joints_m, np.ones((*child.joints_m.shape[:2], 1))], -1)
    assert child.joints_world_m is not None
    np.testing.assert_allclose(child.joints_world_m, (homogeneous @ world[0].T)[..., :3], atol=1e-5)
    posed, full = (
        result.body.at(replace(result.params(child), size=torch.tensor(s))).joints
        for s in (0.7, 1.0)
    )
    shift = torch.from_numpy(child.translation_m)[:, None]
    np.testing.assert_allclose(posed - shift, 0.7 * (full - shift), atol=1e-5)
    np.testing.assert_allclose(result.body.at(result.params(child)).joints, posed)
    (event,) = result.events
    assert (event.time_s, event.identity, event.kind, event.text) == (
        1.5,
        2,
        "likely swap",
        "with person 1 | at the door",
    )


def test_a_lens_with_distortion_is_read_back(tmp_path: Path) -> None:
    plain = walkers(tmp_path, frames=3)
    bent = replace(plain, camera=replace(plain.camera, distortion=(-0.2, 0.05, 0.001, -0.001)))
    save(bent)
    assert fitmesh_load(tmp_path).camera == bent.camera
    assert (
        fitmesh_load(tmp_path).camera_at(int(bent.frames[1])).distortion == bent.camera.distortion
    )


def test_the_documentation_tells_every_array_of_fit_npz_and_its_size() -> None:
    text = (
        (Path(__file__).resolve().parents[2] / "docs" / "run.md")
        .read_text()
        .split("## fit.npz")[1]
        .split("\n## ")[0]
    )
    lines = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    told = {name: cells[2] for cells in lines for name in re.findall(r"`(\w+)`", cells[1])}
    letters = {
        "rows": "R",
        "people": "P",
        "people + 1": "P + 1",
        "shots": "S",
        "frames": "F",
        "events": "E",
        "views": "V",
        "coefficients": "D",
        "directions": "10",
        "fitted": "10",
    }
    declared = fit_schema()
    assert set(told) == {*declared, "schema_version", "cache_key"}
    for name, array in declared.items():
        size = ", ".join(letters.get(str(side), str(side)) for side in array.shape)
        assert not size or f"[{size}]" in told[name], (name, size, told[name])


@pytest.mark.parametrize(
    ("name", "nonsense", "words"),
    [
        ("row_joint_std_mm", -1.0, "expected at least 0"),
        ("row_confidence", 1.5, "expected at most 1"),
        ("row_pose_rad", 1e9, "expected at most 100"),
        ("row_pose_rad", np.nan, "not finite"),
        ("frame_focal_px", np.nan, "not finite"),
        ("focal_px", 0.0, "expected at least 0.001"),
        ("shot_focal_px", -500.0, "expected at least 0.001"),
        ("size", 0.0, "expected at least 0.001"),
        ("row_contact", -0.1, "expected at least 0"),
    ],
)
def test_numbers_that_cannot_be_are_refused_in_words(
    tmp_path: Path, name: str, nonsense: float, words: str
) -> None:
    save(walkers(tmp_path, frames=3))
    with np.load(tmp_path / "fit.npz") as file:
        arrays = dict(file)
    arrays[name] = np.array(arrays[name], float)
    arrays[name].flat[0] = nonsense
    np.savez(tmp_path / "fit.npz", **arrays)
    with pytest.raises(UserError, match=f"{name} has .*{words}"):
        fitmesh_load(tmp_path)


def test_an_array_that_nobody_declared_is_not_looked_at(tmp_path: Path) -> None:
    save(walkers(tmp_path, frames=3))
    with np.load(tmp_path / "fit.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "fit.npz", **arrays, row_x=np.zeros(2))
    assert len(fitmesh_load(tmp_path).people) == len(arrays["identity"])
