"""Scripted scenes: truth that matches the images, identities that last over cuts, feet that stand."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from eval3dpw.captured.feet import FEET_KEYPOINTS, feet_over_sole_m, speeds_m_s
from eval3dpw.captured.motion import HELD_OUT_EVERY
from eval3dpw.synth.camera_paths import CameraPath
from eval3dpw.synth.dataset import SynthSettings, make_dataset, make_sequence, truth_path
from eval3dpw.synth.motion import FPS, KINDS, Clip, clips_by_kind, load_clips
from eval3dpw.synth.plans import draw_plan
from eval3dpw.synth.scripted import build_shots
from eval3dpw.synth.sequence import BY_NOBODY, BY_OBJECT, HIDDEN, OUTSIDE, frame_truth
from eval3dpw.synth.staging import contacts, staged_person, there_and_back
from fitting.body.load import load_body
from pose2d.base.errors import UserError

TINY = SynthSettings(scenes=("cuts", "behind"), sequences=2, seconds=0.6, size=(96, 64), seed=4)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scripted")
    torch.set_num_threads(1)
    assert len(list(make_dataset(out, TINY))) == 2
    return out


def truths(root: Path) -> list[dict[str, np.ndarray]]:
    return [dict(np.load(path)) for path in sorted((root / "synthFiles").glob("*.npz"))]


def walk(frames: int = 60, fps: int = 30) -> Clip:
    """Two stiff legs that swing like scissors while the pelvis goes 1 m/s."""
    pose = torch.zeros(frames, 24, 3)
    swing = 0.4 * torch.sin(2 * torch.pi * torch.arange(frames) / fps)
    pose[:, 1, 0] = swing
    pose[:, 2, 0] = -swing
    root = torch.stack(
        (torch.zeros(frames), torch.full((frames,), 0.95), torch.arange(frames) / fps), 1
    )
    return Clip("01_01", pose, root)


def test_everybody_is_in_the_shots_that_say_so_and_nowhere_else(made: Path) -> None:
    for truth in truths(made):
        frames = int(truth["frames"])
        first = truth["shot_first_frame"]
        assert first[0] == 0
        assert truth["camera_from_world"].shape == (frames, 4, 4)
        assert (
            truth["in_shot"].shape
            == truth["boxes_px"].shape[:2]
            == (len(truth["identity"]), frames)
        )
        for start, end in zip(
            first, [*first[1:], frames], strict=True
        ):  # all of a shot, or nothing of it
            assert (
                truth["in_shot"][:, start:end].all(1) | ~truth["in_shot"][:, start:end].any(1)
            ).all()
        absent = ~truth["in_shot"]
        assert not truth["area_px2"][absent].any()
        assert not truth["contact"][absent].any()
        assert np.isnan(truth["keypoints_px"][absent]).all()
        assert np.isfinite(truth["keypoints_px"][~absent]).all()
        assert (truth["seen_px2"] <= truth["area_px2"]).all()


def test_a_sequence_with_cuts_has_three_shots_with_other_cameras(made: Path) -> None:
    truth = next(t for t in truths(made) if str(t["script"]) == "cuts")
    assert len(truth["shot_first_frame"]) == 3
    before = truth["shot_first_frame"][1:] - 1
    turned = np.abs(
        truth["camera_from_world"][before] - truth["camera_from_world"][before + 1]
    ).max((1, 2))
    assert (turned > 0.01).all()
    assert len(set(truth["shot_scene"])) > 1


def test_projected_keypoints_agree_with_camera_and_visibility(made: Path) -> None:
    for truth in truths(made):
        camera = truth["camera_from_world"]
        there = truth["in_shot"]
        points = (
            np.einsum("tij,ptkj->ptki", camera[:, :3, :3], truth["halpe_m"])
            + camera[:, None, :3, 3]
        )
        width, height = truth["size_px"]
        shot = (
            np.searchsorted(
                truth["shot_first_frame"], np.arange(int(truth["frames"])), side="right"
            )
            - 1
        )
        focal = truth["shot_focal_px"][shot][:, None, None]
        offset = (truth["halpe_px"] - points[..., :2] / points[..., 2:] * focal)[there]
        np.testing.assert_allclose(
            offset, np.broadcast_to((width / 2, height / 2), offset.shape), atol=0.01
        )
        x, y = np.moveaxis(np.round(truth["halpe_px"][there]), -1, 0)
        inside = (x >= 0) & (y >= 0) & (x < width) & (y < height)
        assert ((truth["halpe_visibility"][there] != OUTSIDE) == inside).all()
        hidden = truth["halpe_visibility"] == HIDDEN
        assert (hidden == (truth["halpe_hidden_by"] != BY_NOBODY)).all()
        assert (
            truth["halpe_hidden_by"][hidden] != np.nonzero(hidden)[0]
        ).all()  # nobody is hidden by themselves


def test_the_mesh_before_a_hidden_keypoint_belongs_to_who_hides_it() -> None:
    """Everybody but the one who hides is taken away: the keypoint must then be covered by that one
    still.
    """
    body = load_body()
    plan = draw_plan(3, 0, ("crossing",))
    shot = build_shots(plan, body, clips_by_kind(body, True), (160, 90), 18)[0]
    posed = shot.posed()
    checked = 0
    for frame in range(shot.frames):
        bodies = [v[frame] for v in posed]
        truth = frame_truth(shot, bodies, frame)
        for person, point in zip(*np.nonzero(truth.hidden_by >= 0), strict=True):
            alone = [
                v if n == truth.hidden_by[person, point] else v + 100 for n, v in enumerate(bodies)
            ]
            assert frame_truth(shot, alone, frame).visibility[person, point] == HIDDEN
            checked += 1
            if checked > 5:
                return
    assert checked, "nobody hides anybody in a crossing"


def test_something_hides_people_who_walk_behind_it(made: Path) -> None:
    body = load_body()
    plan = draw_plan(4, 0, ("behind",))
    shot = build_shots(plan, body, clips_by_kind(body, True), (160, 90), 60)[0]
    posed = shot.posed()
    by_wall = 0
    for frame in range(0, shot.frames, 4):
        truth = frame_truth(shot, [v[frame] for v in posed], frame)
        by_wall += int(((truth.hidden_by == BY_OBJECT).sum(1) >= 20).sum())
    assert by_wall > 0


def test_the_same_seed_makes_the_same_files_and_another_does_not(
    made: Path, tmp_path: Path
) -> None:
    make_sequence(tmp_path, TINY, 1)
    name = next(
        path.name for path in (made / "imageFiles").iterdir() if path.name.startswith("behind")
    )
    for path in sorted((made / "imageFiles" / name).iterdir()):
        assert path.read_bytes() == (tmp_path / "imageFiles" / name / path.name).read_bytes()
    for key, value in np.load(truth_path(made, name)).items():
        np.testing.assert_array_equal(value, np.load(truth_path(tmp_path, name))[key])
    other = draw_plan(5, 1, TINY.scenes)
    a, b = (
        build_shots(p, load_body(), clips_by_kind(load_body(), True), (96, 64), 5)
        for p in (draw_plan(4, 1, TINY.scenes), other)
    )
    assert not np.allclose(a[0].people[0].joints, b[0].people[0].joints)


def test_images_are_as_many_as_frames_and_of_the_size_asked_for(made: Path) -> None:
    for path in (made / "synthFiles").glob("*.npz"):
        images = sorted((made / "imageFiles" / path.stem).iterdir())
        assert len(images) == int(np.load(path)["frames"])
        assert cv2.imread(str(images[0])).shape == (64, 96, 3)


def test_uniforms_share_clothes_and_not_faces() -> None:
    plan = draw_plan(2, 0, ("crossing",))
    assert plan.uniforms
    outfits = [plan.outfit(n) for n in range(plan.people)]
    assert len({outfit.top for outfit in outfits}) == 1
    assert len({outfit.skin for outfit in outfits}) == len(outfits)


def test_planted_feet_stand_where_the_captured_ones_slide() -> None:
    body = load_body()
    clip = next(
        clip for clip in load_clips(body, "test") if clip.name == "35_29"
    )  # a walk that slides by 11 cm/s
    person = staged_person(body, clip, np.arange(len(clip.pose)), torch.zeros(10), 1.0, 0.7)
    stands, still = contacts(body, person, FPS)
    feet = person.keypoints[:, list(FEET_KEYPOINTS)].double().numpy()
    bare = body(clip.pose, translation=clip.root_m - body.rest_joints[0]).keypoints[
        :, list(FEET_KEYPOINTS)
    ]
    before = speeds_m_s(bare.double().numpy(), FPS)
    assert stands.any(1).mean() > 0.7
    assert still.any(1).mean() > 0.1
    assert np.median(speeds_m_s(feet, FPS)[stands]) < 0.7 * np.median(before[stands])
    sole = feet[..., 1] - feet_over_sole_m(body)
    assert abs(np.median(sole[stands])) < 0.02  # on the floor


def test_a_child_is_the_same_body_made_smaller() -> None:
    body = load_body()
    clip = walk()
    small = staged_person(body, clip, np.arange(60), torch.zeros(10), 0.6, 0.0)
    big = staged_person(body, clip, np.arange(60), torch.zeros(10), 1.0, 0.0)
    bones = [(p.joints[:, 1] - p.joints[:, 4]).norm(dim=-1) for p in (small, big)]
    torch.testing.assert_close(bones[0], 0.6 * bones[1])


def test_a_camera_between_two_frames_is_between_them() -> None:
    turn = torch.eye(4).double().numpy()
    other = turn.copy()
    other[:3, :3] = cv2.Rodrigues(np.array([0.0, 0.2, 0.0]))[0]
    other[:3, 3] = -other[:3, :3] @ np.array([1.0, 0, 0])
    path = CameraPath(np.stack((turn, other)))
    half = path.world_to_cam(0.5)
    np.testing.assert_allclose(cv2.Rodrigues(half[:3, :3])[0][:, 0], [0, 0.1, 0], atol=1e-9)
    np.testing.assert_allclose(-half[:3, :3].T @ half[:3, 3], [0.5, 0, 0], atol=1e-9)
    np.testing.assert_allclose(path.world_to_cam(1.0), other, atol=1e-12)


def test_a_clip_is_played_there_and_back() -> None:
    assert there_and_back(4, 9).tolist() == [0, 1, 2, 3, 2, 1, 0, 1, 2]


def test_embedded_clips_for_choosing_and_reporting_share_no_subject() -> None:
    body = load_body()
    subjects = []
    for reporting in (False, True):
        found = clips_by_kind(body, reporting)
        assert set(found) == set(KINDS)
        every = [clip for clips in found.values() for clip in clips]
        assert all(clip.subject % HELD_OUT_EVERY == 0 for clip in every)
        subjects.append({clip.name.split("_")[0] for clip in every})
    assert not subjects[0] & subjects[1]
    assert clips_by_kind(body, True)["walking"]


def test_unknown_scenes_and_missing_motion_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="choose from crossing"):
        list(make_dataset(tmp_path, SynthSettings(scenes=("duel",))))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="--motion"):
        list(make_dataset(tmp_path, SynthSettings(scenes=("world",))))
