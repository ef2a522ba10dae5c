"""What a run may be given: a path alone, frames of a program, and in words what it cannot take."""

import json
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

import fitmesh as package
from fitmesh.inputs import folder_beside, spooled
from pose2d.base.errors import UserError
from tests.fitmesh.conftest import FRAMES, SIZE, Fitmesh
from tests.videos import write_video


def test_a_path_alone_is_the_video_and_its_results_lie_beside_it(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path, no_exports: None
) -> None:
    clip = Path(shutil.copy(walk[1], tmp_path / "dance.mp4"))
    assert fitmesh("run", clip, *walk[2:]) == 0, fitmesh.said
    assert (tmp_path / "dance.fitmesh" / "fit.npz").is_file()
    assert fitmesh("run", clip, *walk[2:]) == 0
    assert fitmesh.stages_made() == []  # the same folder again
    other = Path(shutil.copy(walk[1], tmp_path / "dance.mov"))
    before = (tmp_path / "dance.fitmesh" / "run.json").read_bytes()
    assert fitmesh("run", other, *walk[2:], "--only", "fit") == 0, fitmesh.said
    assert (tmp_path / "dance.fitmesh" / "run.json").read_bytes() == before
    assert sorted(path.name for path in (tmp_path / "dance-2.fitmesh").glob("[!.]*")) == [
        "fit.npz",
        "keypoints.npz",
        "run.json",
        "tracks.npz",
    ]


def test_a_folder_that_is_not_a_clips_own_is_left_alone(tmp_path: Path) -> None:
    clip = tmp_path / "a.b.mp4"
    assert folder_beside(clip) == tmp_path / "a.b.fitmesh"
    (tmp_path / "a.b.fitmesh").mkdir()
    assert folder_beside(clip) == tmp_path / "a.b.fitmesh"
    (tmp_path / "a.b.fitmesh" / "thesis.txt").write_text("mine")
    assert folder_beside(clip) == tmp_path / "a.b-2.fitmesh"
    (tmp_path / "a.b-2.fitmesh").mkdir()
    (tmp_path / "a.b-2.fitmesh" / "run.json").write_text(json.dumps({"clip": "/elsewhere/a.b.mp4"}))
    assert folder_beside(clip) == tmp_path / "a.b-3.fitmesh"


def test_images_and_folders_of_them_may_stand_alone_too(fitmesh: Fitmesh, tmp_path: Path) -> None:
    (tmp_path / "shots").mkdir()
    assert fitmesh("run", tmp_path / "shots") == 2
    assert "no images in" in fitmesh.said
    assert fitmesh("run", tmp_path / "me.jpg") == 2
    assert "no image at" in fitmesh.said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "`fitmesh run clip.mp4`"),
        (("0",), "ffmpeg -f v4l2 -i /dev/video0 -t 60 clip.mp4"),
        (("--video", "/dev/video3"), "/dev/video3 is a live camera or stream"),
        (
            ("rtsp://user@10.0.0.7:554/one",),
            "ffmpeg -i rtsp://user@10.0.0.7:554/one -t 60 clip.mp4",
        ),
        (("a.mp4", "b.mp4"), "--out is missing"),
        (("true", "a.mp4", "--relink"), "'true' is not an input"),
    ],
)
def test_what_cannot_be_taken_is_said_with_what_to_do(
    fitmesh: Fitmesh, given: tuple[str, ...], words: str
) -> None:
    assert fitmesh("run", *given) == 2
    assert words in fitmesh.said


def test_urls_in_python_are_named_as_they_were_given(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="rtsp://camera/1 is a live"):
        package.run("rtsp://camera/1", tmp_path)
    with pytest.raises(UserError, match=r"s3://bucket/a\.mp4 is a URL"):
        package.run("s3://bucket/a.mp4", tmp_path)


def test_one_stage_more_or_less(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fitmesh("run", *walk, "--out", tmp_path, "--only", "people") == 0, fitmesh.said
    assert (fitmesh.stages_made(), "keypoints.npz" in fitmesh.said) == (["people"], True)
    assert fitmesh("run", *walk, "--out", tmp_path, "--only", "fit", "--export", "bvh") == 0, (
        fitmesh.said
    )
    assert fitmesh.stages_made() == ["fit", "bvh"]
    options = dict(zip(walk[::2], walk[1::2], strict=True))
    result = package.run(
        options["--video"],
        tmp_path,
        keypoints=options["--keypoints"],
        outputs=("fit",),
        overwrite=True,
    )
    assert len(result.people) == 2
    assert not {"overlay.mp4", "scene.glb", "report.html"} & {
        path.name for path in tmp_path.iterdir()
    }
    with pytest.raises(UserError, match="outputs"):
        package.run(options["--video"], tmp_path, outputs=("people",))


def test_frames_are_the_same_as_the_images_of_a_folder(
    walk: tuple[str | Path, ...], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (FRAMES, SIZE[1], SIZE[0], 3), np.uint8)
    (tmp_path / "images").mkdir()
    for number, rgb in enumerate(frames):
        cv2.imwrite(str(tmp_path / "images" / f"{number:03d}.png"), rgb[..., ::-1])
    options = {"keypoints": walk[3], "outputs": ("fit",), "fps": 25}
    of_folder = package.run(tmp_path / "images", tmp_path / "a", **options)
    of_frames = package.run(frames=iter(frames), out=tmp_path / "b", **options)
    np.testing.assert_allclose(of_frames.time_s, of_folder.time_s, atol=1e-6)
    for one, other in zip(of_folder.people, of_frames.people, strict=True):
        np.testing.assert_allclose(one.joints_m, other.joints_m, atol=1e-5)
    assert not list((tmp_path / "b").rglob("frames*"))  # temporary


def test_spooled_frames_lose_nothing_and_take_no_memory(tmp_path: Path) -> None:
    def frames() -> Iterator[np.ndarray]:
        for number in range(60):
            yield np.random.default_rng(number).integers(
                0, 255, (121, 163, 3), np.uint8
            )  # odd sides too

    tracemalloc.start()
    with spooled(frames(), 29.97, tmp_path) as clip:
        assert tracemalloc.get_traced_memory()[1] < 20 * 121 * 163 * 3
        tracemalloc.stop()
        assert float(clip.info.rate) == pytest.approx(29.97)
        for read, given in zip(clip.frames(), frames(), strict=True):
            np.testing.assert_array_equal(read.rgb, given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("frames", "fps", "words"),
    [
        ([], 30, "there are no frames"),
        ([np.zeros((4, 4, 3), np.uint8)], None, "`fps`"),
        ([np.zeros((64, 64, 3))], 30, "frame 0 is float64"),
        (
            [np.zeros((64, 64, 3), np.uint8), np.zeros((64, 66, 3), np.uint8)],
            30,
            "frame 1 is uint8 of \\[64, 66, 3\\]",
        ),
    ],
)
def test_other_frames_are_refused(
    tmp_path: Path, frames: list[np.ndarray], fps: float | None, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        package.run(frames=frames, out=tmp_path, fps=fps)
    assert not list(tmp_path.iterdir())


def test_a_video_or_frames(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", [0, 40])
    for given in ({}, {"video": tmp_path / "a.mp4", "frames": []}):
        with pytest.raises(UserError, match="`video` or `frames`"):
            package.run(out=tmp_path, **given)
