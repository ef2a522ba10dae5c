"""Hands within a run: what `--hands` does to its files, its log and what it says of the video."""

from pathlib import Path

import numpy as np
import pytest

from fitmesh.stages.people import read_keypoints, read_tracks
from tests.fitmesh.conftest import Fitmesh
from tests.videos import write_video
from tests.walkers import coco_results, walker, write_json

pytestmark = pytest.mark.usefixtures("no_exports")
SIZE = (640, 480)


def run(fitmesh: Fitmesh, folder: Path, video: Path, size: tuple[int, int], *more: str) -> Path:
    """With keypoints of the first frames alone."""
    keypoints = write_json(folder / "k.json", coco_results([walker(3, size)]))
    out = folder / "out"
    arguments = (
        "run",
        "--video",
        video,
        "--keypoints",
        keypoints,
        "--only",
        "people",
        "--out",
        out,
        *more,
    )
    assert fitmesh(*arguments) == 0, fitmesh.said
    return out


def test_a_video_without_a_hand_has_none(fitmesh: Fitmesh, tmp_path: Path) -> None:
    video = write_video(tmp_path / "a.mp4", [0, 40, 80], SIZE)
    hands = read_keypoints(run(fitmesh, tmp_path, video, SIZE)).rows.hands
    assert hands is not None
    assert hands.presence.shape == (3, 2)
    assert not hands.presence.any()
    assert np.isnan(hands.xy_px).all()


def test_hands_are_left_out_when_nobody_wants_them(fitmesh: Fitmesh, tmp_path: Path) -> None:
    video = write_video(tmp_path / "a.mp4", [0, 40, 80], SIZE)
    assert read_keypoints(run(fitmesh, tmp_path, video, SIZE, "--hands", "off")).rows.hands is None
    assert fitmesh("run", "--video", video, "--out", tmp_path / "other", "--hands", "yes") != 0
    assert "unknown --hands 'yes': choose auto or off" in fitmesh.said


def test_hands_too_small_to_see_are_said_to_be_left_out(fitmesh: Fitmesh, tmp_path: Path) -> None:
    video = write_video(tmp_path / "a.mp4", [0, 40, 80], (160, 120))
    run(fitmesh, tmp_path, video, (160, 120))
    assert "6 of 6 hands" in fitmesh.said


def test_damage_after_the_last_hand_is_still_warned_of(fitmesh: Fitmesh, tmp_path: Path) -> None:
    """Hands are looked for in a second reading, which ends with the last person."""
    whole = write_video(tmp_path / "a.mkv", list(range(0, 3200, 40)), SIZE).read_bytes()
    video = tmp_path / "b.mkv"
    video.write_bytes(whole[: len(whole) * 6 // 10])
    assert "b.mkv" in read_tracks(run(fitmesh, tmp_path, video, SIZE)).warnings[0]
