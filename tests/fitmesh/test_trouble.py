"""When the world does not play along: disks that are full, odd videos."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fitmesh as package
from pose2d.video.video_file import Video
from tests.fitmesh.conftest import Fitmesh
from tests.videos import write_video
from tests.walkers import coco_results, walker, write_json

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kilobytes", "survivors"), [(3, []), (20, ["keypoints.npz", "tracks.npz"])]
)
def test_a_full_disk_is_said_and_leaves_no_half_written_file(
    walk: tuple[str | Path, ...], tmp_path: Path, kilobytes: int, survivors: list[str]
) -> None:
    """A disk that takes files up to a limit only stands in for one that is full."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * kilobytes, 1024 * kilobytes))

    command = [
        sys.executable,
        "-m",
        "fitmesh",
        "run",
        *map(str, walk),
        "--out",
        str(tmp_path / "out"),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=limit)
    assert ended.returncode == 2, ended.stderr
    assert "Error: cannot write" in ended.stderr
    assert "File too large" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert sorted(p.name for p in (tmp_path / "out").iterdir() if p.name != "run.json") == survivors


def test_a_video_that_cannot_be_written_is_said(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path, no_exports: None
) -> None:
    """The encoder works in a thread of its own, and its troubles must come out all the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert fitmesh("run", *walk, "--out", tmp_path) == 0
    (tmp_path / "overlay.mp4").unlink()
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        code = fitmesh("run", *walk, "--out", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 2, fitmesh.said
    assert "cannot write" in fitmesh.said
    assert "overlay.mp4" in fitmesh.said
    left = sorted(p.name for p in tmp_path.iterdir() if p.name != ".cache_keys")
    assert left == ["fit.npz", "keypoints.npz", "run.json", "tracks.npz"]
    assert not list(
        (tmp_path / ".cache_keys").glob("overlay*")
    )  # nothing vouches for what is not there


def test_a_tall_video_in_four_thousand_lines(
    fitmesh: Fitmesh, tmp_path: Path, no_exports: None
) -> None:
    size = (2160, 3840)
    video = write_video(tmp_path / "tall.mp4", [0, 40], size)
    given = write_json(tmp_path / "k.json", coco_results([walker(2, size)]))
    assert fitmesh("run", "--video", video, "--keypoints", given, "--out", tmp_path) == 0, (
        fitmesh.said
    )
    result = package.load(tmp_path)
    assert result.camera.focal_px[0] == pytest.approx(
        0.72 * np.hypot(*size)
    )  # usual, where nothing tells of the lens
    shown = Video(tmp_path / "overlay.mp4").info
    assert (shown.width_px, shown.height_px, shown.frames) == (720, 1280, 2)


def test_one_frame_has_a_body(fitmesh: Fitmesh, tmp_path: Path) -> None:
    video = write_video(tmp_path / "one.mp4", [0], (160, 120))
    given = write_json(tmp_path / "k.json", coco_results([walker(1)]))
    assert fitmesh("run", "--video", video, "--keypoints", given, "--out", tmp_path) == 0, (
        fitmesh.said
    )
    (person,) = package.load(tmp_path).people
    assert len(person) == 1
    assert np.nanmean(person.reprojection_px) < 1
    assert (tmp_path / "scene.glb").is_file()


def test_a_person_that_is_hardly_seen_is_said_and_drawn_flat(
    fitmesh: Fitmesh, tmp_path: Path, no_exports: None
) -> None:
    video = write_video(tmp_path / "video.mp4", [0, 40, 80], (160, 120))
    given = write_json(tmp_path / "k.json", coco_results([walker(3)], hidden=range(3, 17)))
    assert fitmesh("run", "--video", video, "--keypoints", given, "--out", tmp_path) == 0, (
        fitmesh.said
    )
    assert "person 1 never shows enough confident keypoints" in fitmesh.said
    assert package.load(tmp_path).people == []
    drawn = next(iter(Video(tmp_path / "overlay.mp4").frames())).rgb
    plain = next(iter(Video(video).frames())).rgb
    assert (np.abs(drawn.astype(int) - plain).max(-1) > 60).sum() > 50
