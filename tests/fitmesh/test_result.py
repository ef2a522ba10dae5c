"""`fitmesh.load`: what a run found, with the shapes and meanings that docs/run.md promises."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fitmesh
from fitmesh.result import SCHEMA_VERSION
from pose2d.base.errors import UserError
from tests.fitmesh.conftest import FRAMES, SIZE, Fitmesh
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
    "keypoints_px": (26, 2),
    "confidence": (26,),
    "presence": (26,),
    "raw": (26,),
    "used": (26,),
    "swapped": (26,),
    "reprojection_px": (26,),
    "box_px": (4,),
}
LEFT_WRIST, LEGS_FROM_KNEES, HIPS = 20, [4, 5, 7, 8, 10, 11], [1, 2]

pytestmark = pytest.mark.usefixtures("no_exports")


def test_what_was_fitted_is_read_back_whole(fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path) -> None:
    import fitmesh as package

    assert fitmesh("run", *walk, "--out", tmp_path) == 0, fitmesh.said
    result = package.load(tmp_path)
    assert isinstance(result, package.Result)
    assert [person.identity for person in result.people] == [1, 2]
    assert (result.size, result.source, result.init) == (SIZE, "raw", "none")
    assert result.clip_path == Path(walk[1]).resolve()
    assert result.settings["fit"]["weighting"] == "precision"
    assert set(result.timings_s) == {"people", "fit", "overlay"}
    assert result.camera.focal_px == (200.0, 200.0)  # the diagonal of 160 x 120
    for person in result.people:
        for name, size in ROWS.items():
            assert getattr(person, name).shape == (FRAMES, *size), name
        assert person.shape.shape == (10,)
        assert person.observed.all()
        assert person.joint_observed.all()
        assert np.nanmean(person.reprojection_px) < 1
        assert (person.joints_m[:, LEFT_WRIST, 0] > person.joints_m[:, 0, 0]).all()  # they face the camera
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
    entries = [entry for entry in coco_results([walker(FRAMES, SIZE)]) if entry["image_id"] not in (4, 5)]
    video = write_video(tmp_path / "video.mp4", [40 * i for i in range(FRAMES)], SIZE)
    keypoints = write_json(tmp_path / "k.json", entries)
    assert fitmesh("run", "--video", video, "--keypoints", keypoints, "--out", tmp_path, "--init", "none") == 0
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
    assert fitmesh("run", "--video", video, "--keypoints", keypoints, "--out", tmp_path, "--init", "none") == 0
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
    with pytest.raises(UserError, match=r"fit\.npz is not there"):
        fitmesh.load(tmp_path)
    (tmp_path / "fit.npz").write_text("words")
    with pytest.raises(UserError, match="is damaged"):
        fitmesh.load(tmp_path)
    np.savez(tmp_path / "fit.npz", schema_version=SCHEMA_VERSION + 1)
    with pytest.raises(UserError, match=f"schema {SCHEMA_VERSION + 1}"):
        fitmesh.load(tmp_path)


def test_another_body_is_noticed(fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path) -> None:
    from fitting.body.load import OPEN_BODY

    body = tmp_path / "mine.npz"
    body.write_bytes(OPEN_BODY.read_bytes())
    assert fitmesh("run", *walk, "--out", tmp_path / "out", "--body-model", body) == 0, fitmesh.said
    assert fitmesh_load(tmp_path / "out").body_name == "mine.npz"
    assert torch.is_tensor(fitmesh_load(tmp_path / "out").body.faces)
    body.write_bytes(b"something else")
    with pytest.raises(UserError, match="is not the body that was fitted"):
        _ = fitmesh_load(tmp_path / "out").body
    body.unlink()
    with pytest.raises(UserError, match="no longer there"):
        _ = fitmesh_load(tmp_path / "out").body


def test_the_cache_key_travels_with_the_result(fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path) -> None:
    assert fitmesh("run", *walk, "--out", tmp_path) == 0
    with np.load(tmp_path / "fit.npz", allow_pickle=False) as file:
        assert json.loads(str(file["cache_key"]))["stage"] == "fit"
