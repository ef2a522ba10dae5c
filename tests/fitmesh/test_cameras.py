"""`fitmesh run --together`: several cameras become one result, without a network: keypoints are
simulated.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fitmesh as package
import fitting
from bench.lib.rigs import Z_UP, SimulatedRig, placed_around, simulate
from bench.lib.simulation import Noise
from fitmesh.stages import people, together
from fitmesh.stages.settings import Job
from fitting.rig.calibration import read_rig, write_rig
from pose2d.base.caching import CacheKey
from pose2d.tracking.identity import People
from pose2d.types import Detections, HandKeypoints, Keypoints
from tests.fitmesh.conftest import Fitmesh
from tests.videos import write_video

SIZE = (320, 180)
FRAMES = 30
NOISE = Noise(confidence=(0.9, 0.98), outliers=0.0, constant_share=0.2, mixtures=True)


@pytest.fixture(scope="module")
def sim() -> SimulatedRig:
    rig = placed_around([0, 90], size=SIZE)
    return simulate(rig, fitting.load_body(), 3, people=2, frames=FRAMES, noise=NOISE)


def trc_marker(out: Path, name: str) -> np.ndarray:
    """Return a marker of the first person in the first frame."""
    lines = (out / "trc" / "person_1.trc").read_text().splitlines()
    number = lines[3].split("\t")[2::3].index(name)
    return np.array(lines[5].split("\t")[2 + 3 * number : 5 + 3 * number], float)


@pytest.fixture
def clips(sim: SimulatedRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """cam1.mp4, cam2.mp4, rig.toml; whoever looks for people finds the simulated ones."""
    for placed in sim.rig.cameras:
        write_video(
            tmp_path / f"{placed.name}.mp4", [round(1000 * n / 30) for n in range(FRAMES)], SIZE
        )
    write_rig(tmp_path / "rig.toml", sim.rig)

    def make(job: Job, key: CacheKey) -> None:
        number = int(job.clip.path.stem[-1]) - 1
        frames = np.arange(FRAMES)
        rows = []
        for identity, points in enumerate(sim.keypoints[number], 1):
            xy = points.xy_px.numpy()
            box = np.concatenate((xy.min(1), xy.max(1)), 1).astype(float)
            raw = Keypoints(
                points.xy_px,
                points.confidence,
                points.presence,
                "ccnet",
                points.area_px2,
                points.skeleton,
                points.error,
                points.confidence,
            )
            rows.append(Detections(frames, np.full(FRAMES, identity), box, np.ones(FRAMES), raw))
        found = People(
            Detections.concat(rows),
            frames,
            frames / 30,
            np.ones(FRAMES, bool),
            np.zeros(1, int),
            {1: 1, 2: 2},
            [],
        )
        people.write(job, key, found, "rtmpose-s-halpe26", "halpe26", "ccnet")

    monkeypatch.setattr(people, "make", make)
    return tmp_path


def videos(folder: Path) -> list[str]:
    return [word for name in ("cam1", "cam2") for word in ("--video", str(folder / f"{name}.mp4"))]


def test_two_cameras_become_one_result(
    fitmesh_command: Fitmesh, clips: Path, sim: SimulatedRig
) -> None:
    out = clips / "out"
    arguments = ("run", *videos(clips), "--cameras", clips / "rig.toml", "--together", "--out", out)
    assert fitmesh_command(*arguments, "--export", "trc") == 0, fitmesh_command.said
    result = package.load(out)
    base = sim.rig.cameras[0]
    truth = [joints @ base.rotation.T + base.translation_m for joints in sim.joints_m]
    for person in result.people:
        away = [
            np.linalg.norm(person.joints_m - joints[person.frame], axis=-1).mean()
            for joints in truth
        ]
        assert min(away) < 0.06
        assert person.joints_world_m is not None
        in_laboratory = [  # z up in the rig, y up in results
            np.linalg.norm(person.joints_world_m - joints[person.frame][..., [1, 2, 0]], axis=-1)
            for joints in sim.joints_m
        ]
        assert min(distance.mean() for distance in in_laboratory) < 0.06
    assert [view.name for view in result.views] == ["cam1", "cam2"]
    np.testing.assert_allclose(
        result.views[1].from_camera[:3, :3], sim.rig.relative(1)[0], atol=1e-5
    )
    other = package.load(out / "cameras" / "cam2")
    for one, two in zip(result.people, other.people, strict=True):
        assert one.identity == two.identity
        same = one.joints_m @ sim.rig.relative(1)[0].T + sim.rig.relative(1)[1]
        np.testing.assert_allclose(two.joints_m, same, atol=2e-3)
        np.testing.assert_allclose(two.joints_world_m, one.joints_world_m, atol=2e-3)
        assert np.nanmedian(two.reprojection_px) < 12
    for name in ("overlay.mp4", "cameras/cam2/overlay.mp4", "scene.glb", "report.html", "rig.toml"):
        assert (out / name).is_file(), name
    first = result.people[0]
    pelvis = first.joints_world_m[0, 0]
    np.testing.assert_allclose(trc_marker(out, "joint_pelvis"), pelvis, atol=2e-3)
    assert fitmesh_command(*arguments, "--export", "trc", "--trc-axes", "as-rig") == 0
    np.testing.assert_allclose(trc_marker(out, "joint_pelvis"), pelvis[[2, 0, 1]], atol=2e-3)
    assert len(read_rig(out / "rig.toml", ["cam1", "cam2"], [SIZE] * 2)) == 2
    assert fitmesh_command(*arguments, "--export", "trc", "--trc-axes", "as-rig") == 0
    assert fitmesh_command.stages_made() == []


def test_the_function_takes_a_list_of_videos(clips: Path) -> None:
    result = package.run(
        [clips / "cam1.mp4", clips / "cam2.mp4"],
        clips / "out",
        cameras=clips / "rig.toml",
        outputs=("fit",),
    )
    assert len(result.people) == 2
    assert len(result.views) == 2
    with pytest.raises(package.UserError, match="at least two videos"):
        package.run([clips / "cam1.mp4"], clips / "other")


def test_somebody_whom_the_first_camera_does_not_see_has_a_body(
    clips: Path, sim: SimulatedRig
) -> None:
    hidden = sim.keypoints[0].pop()
    try:
        result = package.run(
            [clips / "cam1.mp4", clips / "cam2.mp4"],
            clips / "out",
            cameras=clips / "rig.toml",
            outputs=("fit",),
        )
    finally:
        sim.keypoints[0].append(hidden)
    seen, unseen = result.people
    assert np.isfinite(seen.keypoints_px).any()
    assert not np.isfinite(unseen.keypoints_px).any()
    assert np.isfinite(unseen.joints_m).all()
    other = package.load(clips / "out" / "cameras" / "cam2").people[1]
    assert np.nanmedian(other.reprojection_px) < 12


def test_a_calibration_in_the_wrong_order_is_said_before_the_fit(
    fitmesh_command: Fitmesh, clips: Path
) -> None:
    text = (clips / "rig.toml").read_text()
    (clips / "wrong.toml").write_text(text.replace("cam1", "b").replace("cam2", "a"))
    arguments = (
        "run",
        *videos(clips),
        "--cameras",
        clips / "wrong.toml",
        "--together",
        "--out",
        clips / "out",
    )
    assert fitmesh_command(*arguments, "--only", "fit") == 0
    swapped = text.replace("cam1", "x").replace("cam2", "cam1").replace("x", "cam2", 2)
    (clips / "wrong.toml").write_text(swapped.replace('name = "x"', 'name = "cam2"'))
    assert fitmesh_command(*arguments, "--only", "fit") == 2
    assert "another order" in fitmesh_command.said or "inverted" in fitmesh_command.said


def test_of_long_videos_a_part_is_looked_at_first(
    fitmesh_command: Fitmesh, clips: Path, monkeypatch: pytest.MonkeyPatch, sim: SimulatedRig
) -> None:
    monkeypatch.setattr(together, "PREVIEW_FROM_S", 0.5)
    inverted = tuple(camera.inverse() for camera in sim.rig.cameras)
    write_rig(clips / "wrong.toml", replace(sim.rig, cameras=inverted))
    arguments = (
        "run",
        *videos(clips),
        "--cameras",
        clips / "wrong.toml",
        "--together",
        "--out",
        clips / "out",
    )
    assert fitmesh_command(*arguments) == 2
    assert "inverted" in fitmesh_command.said
    assert not list((clips / "out").rglob("*.npz"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--together",), "at least two"),
        (("--together", "--cameras", "none.toml"), "at least two"),
        (("--cameras", "rig.toml"), "--together"),
        (("--video", "cam2.mp4", "--together", "--cameras", "none.toml"), "no calibration"),
        (("--video", "cam2.mp4", "--together", "--sync", "0,0,1"), "--sync must be"),
        (("--video", "cam2.mp4", "--together", "--jobs", "2"), "--jobs is for many videos"),
        (("--video", "cam2.mp4", "--together", "--shard", "1/2"), "--shard is for many videos"),
        (("--video", "cam2.mp4", "--together", "--ray", "auto"), "--ray is for many videos"),
        (("--video", "cam2.mp4", "--together", "--retry-failed"), "--retry-failed is for many"),
        (("--video", "cam1.mp4", "--together"), "given twice"),
        (("--video", "gone.mp4", "--together"), "gone.mp4"),
        (
            ("--video", "cam2.mp4", "--together", "--cameras", "rig.toml", "--keypoints", "k.json"),
            "k.json",
        ),
    ],
)
def test_what_cannot_be_done_is_said_at_once(
    arguments: tuple[str, ...],
    words: str,
    fitmesh_command: Fitmesh,
    clips: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(clips)
    assert fitmesh_command("run", "--video", "cam1.mp4", *arguments, "--out", "out") == 2
    assert words in fitmesh_command.said
    assert not (clips / "out" / "tracks.npz").exists()


def test_deviations_of_several_cameras_hold_and_tell_which_frames_to_use(
    clips: Path, sim: SimulatedRig
) -> None:
    found = package.run(
        [clips / "cam1.mp4", clips / "cam2.mp4"],
        clips / "out",
        cameras=clips / "rig.toml",
        outputs=("fit",),
    )
    base = sim.rig.cameras[0]
    for person in found.people:
        exact = [joints @ base.rotation.T + base.translation_m for joints in sim.joints_m]
        truth = min(
            (j[person.frame] for j in exact),
            key=lambda j: float(np.abs(person.joints_m - j).mean()),
        )
        error = 1000 * ((person.joints_m - person.joints_m[:, :1]) - (truth - truth[:, :1]))
        assert (
            np.abs(error[:, 1:]) < person.joint_std_relative_mm[:, 1:, None] / np.sqrt(3)
        ).mean() > 0.6
        assert (np.diff([person.reliable(mm).mean() for mm in (20, 50, 100, 200)]) > 0).all()


def test_fingers_come_from_the_camera_that_shows_the_hand(
    clips: Path, sim: SimulatedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = fitting.load_body()
    fingers = body.with_fingers()
    flat = (
        fingers.flat_points(body.rest_joints) + fingers.offsets
    ).numpy() @ Z_UP.T  # [2, 21, 3] from the wrists

    def hands(job: Job, rows: Detections, *video: object) -> HandKeypoints:
        found = HandKeypoints.unseen(len(rows))
        number = int(job.clip.path.stem[-1]) - 1
        if number:  # the first camera shows none
            placed = sim.rig.cameras[number]
            for row, (who, frame) in enumerate(zip(rows.identity, rows.frame, strict=True)):
                points = sim.joints_m[who - 1][frame, [20, 21], None] + flat
                there = points @ placed.rotation.T + placed.translation_m
                found.xy_px[row] = placed.camera.project(torch.from_numpy(there)).numpy()
                found.landmarks_m[row] = there - there[:, :1]
            found.presence[:] = 1
            found.std_px[:] = 0.5
            found.size_px[:] = 40
        return found

    monkeypatch.setattr(people, "_hands", hands)
    out = clips / "out"
    result = package.run(
        [clips / "cam1.mp4", clips / "cam2.mp4"], out, cameras=clips / "rig.toml", outputs=("fit",)
    )
    other = package.load(out / "cameras" / "cam2")
    for person, same in zip(result.people, other.people, strict=True):
        assert person.hand_seen.all()
        assert np.degrees(np.abs(person.hand_pose_rad)).mean() < 10
        np.testing.assert_allclose(same.hand_pose_rad, person.hand_pose_rad, atol=1e-5)
