"""Rendered data sets: exactly 3DPW's layout, and truth that matches the images."""

import os
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from eval3dpw.synth.dataset import (
    SynthSettings,
    make_dataset,
    make_sequence,
    openpose18,
    truth_path,
)
from eval3dpw.synth.motion import SPLITS, VALIDATION_SUBJECTS, load_clips
from eval3dpw.synth.plans import draw_plan
from eval3dpw.synth.scripted import build_shots
from eval3dpw.synth.sequence import BEHIND_SELF, HIDDEN, OUTSIDE, SEEN, exposed_light
from fitting import Camera, load_body
from pose2d.base.errors import UserError
from pose2d.base.unpickle import load as load_pickle

TINY = SynthSettings(sequences=2, frames=3, size=(160, 90), seed=5)
KEYS = {
    "sequence",
    "betas",
    "poses",
    "trans",
    "poses_60Hz",
    "trans_60Hz",
    "betas_clothed",
    "v_template_clothed",
    "genders",
    "texture_maps",
    "poses2d",
    "jointPositions",
    "img_frame_ids",
    "cam_poses",
    "campose_valid",
    "cam_intrinsics",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("synth")
    torch.set_num_threads(1)
    assert [done.people for done in make_dataset(out, TINY)] == [1, 2]
    return out


def sequences(root: Path) -> list[dict]:
    return [load_pickle(path) for path in sorted((root / "sequenceFiles" / "test").glob("*.pkl"))]


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_the_safe_reader_finds_3dpw_keys_and_shapes(made: Path) -> None:
    for content in sequences(made):
        assert set(content) == KEYS
        frames = len(content["cam_poses"])
        people = len(content["poses"])
        per_person = {
            "betas": (10,),
            "poses": (frames, 72),
            "trans": (frames, 3),
            "poses_60Hz": (2 * frames - 1, 72),
            "trans_60Hz": (2 * frames - 1, 3),
            "betas_clothed": (10,),
            "v_template_clothed": (6800, 3),
            "poses2d": (frames, 3, 18),
            "jointPositions": (frames, 72),
            "campose_valid": (frames,),
        }
        for key, shape in per_person.items():
            assert isinstance(content[key], list)
            assert [array.shape for array in content[key]] == [shape] * people, key
        assert content["cam_poses"].shape == (frames, 4, 4)
        assert content["cam_intrinsics"].shape == (3, 3)
        assert content["img_frame_ids"].tolist() == [2 * n for n in range(frames)]
        assert set(content["genders"]) <= {"m", "f"}
        folder = made / "imageFiles" / content["sequence"]
        assert sorted(os.listdir(folder)) == [f"image_{n:05d}.jpg" for n in range(frames)]
        image = cv2.imread(str(folder / "image_00000.jpg"))
        assert image.shape == (90, 160, 3)


def test_the_body_stands_where_the_joints_say(made: Path) -> None:
    body = load_body()
    for content in sequences(made):
        for pose, betas, trans, joints in zip(
            content["poses"],
            content["betas"],
            content["trans"],
            content["jointPositions"],
            strict=True,
        ):
            shape = np.concatenate((betas, np.zeros(body.shape_size - 10)))
            again = body(pose, shape, trans).joints.flatten(1)
            np.testing.assert_allclose(again, joints, atol=1e-5)


def test_the_cameras_are_rigid_and_face_the_people(made: Path) -> None:
    for content in sequences(made):
        turn = content["cam_poses"][:, :3, :3]
        np.testing.assert_allclose(
            turn @ turn.transpose(0, 2, 1), np.tile(np.eye(3), (len(turn), 1, 1)), atol=1e-12
        )
        assert (np.linalg.det(turn) > 0).all()
        for joints in content["jointPositions"]:
            pelvis = np.einsum("tij,tj->ti", turn, joints[:, :3]) + content["cam_poses"][:, :3, 3]
            assert (pelvis[:, 2] > 1).all()


def test_projected_joints_land_on_the_drawn_person() -> None:
    """Everything but the person is made black, so the silhouette can be read off the image itself."""
    body = load_body()
    clips = load_clips(body, "test")
    drawn = draw_plan(5, 0)  # number 0: one person, nothing in the way
    (scene,) = build_shots(drawn, body, {"any": clips}, (320, 180), 2)
    mesh = scene.mesh
    person_faces = scene.mesh.person_faces
    mesh.atlas.texels[:] = 0
    mesh.scene.sky[:] = 0
    mesh.appearance[: person_faces[1], :, :3], mesh.appearance[person_faces[1] :] = 0.5, 0
    light = exposed_light(scene, scene.posed(), 0).sum(2)
    joints = scene.people[0].joints[0]
    transform = torch.from_numpy(scene.path.camera_from_world[0])
    camera = Camera.from_intrinsics(scene.camera.intrinsics, (320, 180))
    pixels = (
        camera.project(joints.double() @ transform[:3, :3].T + transform[:3, 3])
        .round()
        .int()
        .tolist()
    )
    inside = [(x, y) for x, y in pixels if 0 <= x < 320 and 0 <= y < 180]
    assert len(inside) >= 15
    assert np.mean([light[y, x] > 0 for x, y in inside]) > 0.9
    assert (light > 0).mean() < 0.5  # and the rest is black indeed


def test_the_truth_sidecar_agrees_with_the_pickle(made: Path) -> None:
    for content in sequences(made):
        with np.load(truth_path(made, content["sequence"])) as truth:
            visibility = truth["visibility"]
            assert (
                visibility.shape
                == truth["keypoints_px"].shape[:3]
                == (len(content["poses"]), len(content["cam_poses"]), 17)
            )
            assert set(np.unique(visibility)) <= {OUTSIDE, HIDDEN, BEHIND_SELF, SEEN}
            assert (visibility == SEEN).any()
            x, y = truth["keypoints_px"][visibility > OUTSIDE].T
            assert ((x > -0.51) & (x < 159.51) & (y > -0.51) & (y < 89.51)).all()
            assert (truth["seen_px2"] <= truth["area_px2"]).all()
            for person, points in enumerate(content["poses2d"]):
                nose = points[:, :2, 0]
                found = points[:, 2, 0] > 0
                np.testing.assert_allclose(nose[found], truth["keypoints_px"][person, found, 0])


def test_openpose_points_follow_visibility() -> None:
    xy = np.arange(17 * 2, dtype=float).reshape(1, 17, 2) + 1
    visibility = np.full((1, 17), SEEN)
    visibility[0, 6] = HIDDEN
    visibility[0, 5] = BEHIND_SELF
    visibility[0, 9] = OUTSIDE
    points = openpose18(xy, visibility)[0]
    assert points[:, 0].tolist() == [1, 2, 0.9]  # nose
    np.testing.assert_allclose(
        points[:, 1], [*xy[0, 5:7].mean(0), 0.2]
    )  # the neck has the lower confidence of the shoulders
    assert points[:, 7].tolist() == [0, 0, 0]  # the left wrist is outside
    visibility[0, 3:] = HIDDEN
    assert not openpose18(xy, visibility).any()  # too few are visible to detect anybody


def test_the_same_seed_makes_the_same_bytes_and_another_does_not(
    made: Path, tmp_path: Path
) -> None:
    again = {}
    for number in (1, 0):  # in another order, as parallel workers would
        make_sequence(tmp_path / "again", TINY, number)
        again = files(tmp_path / "again")
    whole = files(made)
    whole.pop("synth.json")
    assert again == whole
    other = SynthSettings(**{**TINY.__dict__, "seed": 6, "sequences": 1})
    list(make_dataset(tmp_path / "other", other))
    images = {
        content for name, content in files(tmp_path / "other").items() if name.endswith(".jpg")
    }
    assert images.isdisjoint(whole.values())


def test_a_killed_run_continues_where_it_stopped(made: Path, tmp_path: Path) -> None:
    whole = files(made)
    first, second = sorted(path.stem for path in (made / "sequenceFiles" / "test").iterdir())
    for name, content in whole.items():
        if second not in name:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
    half = (
        tmp_path / "imageFiles" / f".{second}.partial"
    )  # what a killed run leaves of the sequence it was at
    half.mkdir(parents=True)
    (half / "image_00000.jpg").write_bytes(b"cut short")
    before = (tmp_path / "imageFiles" / first / "image_00000.jpg").stat().st_mtime_ns
    assert [(done.name, done.skipped) for done in make_dataset(tmp_path, TINY)] == [
        (first, True),
        (second, False),
    ]
    assert (tmp_path / "imageFiles" / first / "image_00000.jpg").stat().st_mtime_ns == before
    assert files(tmp_path) == whole


def test_a_folder_made_with_other_settings_is_refused(made: Path) -> None:
    with pytest.raises(UserError, match="other settings"):
        list(make_dataset(made, SynthSettings(**{**TINY.__dict__, "seed": 7})))


def test_missing_and_wrong_motion_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file"):
        list(make_dataset(tmp_path / "out", SynthSettings(motion=tmp_path / "nowhere.npz")))
    np.savez(tmp_path / "other.npz", something=np.zeros(3))
    with pytest.raises(
        UserError, match=r"other.npz is not a file of motion capture: it lacks joint"
    ):
        list(make_dataset(tmp_path / "out", SynthSettings(motion=tmp_path / "other.npz")))
    with pytest.raises(UserError, match="--motion"):
        list(make_dataset(tmp_path / "out", SynthSettings(split="train")))
    assert not (tmp_path / "out").exists()


def test_no_split_shares_a_captured_person_with_another() -> None:
    body = load_body()
    subjects = {
        split: {int(clip.name.split("_")[0]) for clip in load_clips(body, split)}
        for split in SPLITS
        if split != "train"
    }
    assert subjects["validation"] == set(VALIDATION_SUBJECTS)
    assert subjects["test"].isdisjoint(subjects["validation"])
    assert all(
        subject % 5 == 0 for group in subjects.values() for subject in group
    )  # nothing is learned from these
