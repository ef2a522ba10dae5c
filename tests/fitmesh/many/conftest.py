"""Tiny clips, and settings under which one takes a moment."""

from pathlib import Path
from typing import Any

import pytest

from tests.fitmesh.conftest import *  # noqa: F403  # the command in this process
from tests.videos import write_video

LIGHT: dict[str, Any] = {"whole_image": True, "pose_model": "movenet-lightning", "floor": "off"}
LIGHT_OPTIONS = ("--whole-image", "--pose-model", "movenet-lightning", "--floor", "off")
RESULTS = ("tracks.npz", "keypoints.npz", "fit.npz", "overlay.mp4", "scene.glb")


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a.mp4, b.mov and c.mp4, which is not a video."""
    folder = tmp_path_factory.mktemp("clips")
    write_video(folder / "a.mp4", [0, 40, 80])
    write_video(folder / "b.mov", [0, 40])
    (folder / "c.mp4").write_bytes(b"no video" * 100)
    return folder
