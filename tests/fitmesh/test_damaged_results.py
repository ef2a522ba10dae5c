"""Files of a run that were damaged afterwards are noticed and made again."""

from pathlib import Path

import numpy as np
import pytest

import fitmesh as package
from pose2d.base.errors import UserError
from tests.fitmesh.conftest import Fitmesh

STAGE = {"fit.npz": "fit", "keypoints.npz": "people", "overlay.mp4": "overlay", "scene.glb": "glb"}


@pytest.fixture(scope="module")
def finished(walk: tuple[str | Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "out"
    options = dict(zip(walk[::2], walk[1::2], strict=True))
    package.run(options["--video"], out, keypoints=options["--keypoints"])
    return out


@pytest.mark.parametrize("name", STAGE)
@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_a_damaged_file_is_made_again_with_a_word(
    name: str, how: str, finished: Path, walk: tuple[str | Path, ...], fitmesh: Fitmesh
) -> None:
    path = finished / name
    good = path.read_bytes()
    middle = len(good) // 2
    path.write_bytes(
        good[: 7 * len(good) // 10]
        if how == "cut"
        else good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
    )
    assert fitmesh("run", *walk, "--out", finished) == 0, fitmesh.said
    assert f"{name}: changed or damaged since it was written" in fitmesh.said
    assert STAGE[name] in fitmesh.stages_made()
    assert path.read_bytes() == good
    assert fitmesh("run", *walk, "--out", finished) == 0
    assert fitmesh.stages_made() == []


def test_without_run_json_what_is_whole_is_kept(
    finished: Path, walk: tuple[str | Path, ...], fitmesh: Fitmesh
) -> None:
    (finished / "run.json").write_text("[]")
    assert fitmesh("run", *walk, "--out", finished) == 0, fitmesh.said
    assert fitmesh.stages_made() == []


def test_a_result_with_an_array_missing_is_refused(finished: Path, tmp_path: Path) -> None:
    with np.load(finished / "fit.npz") as file:
        arrays = {name: file[name] for name in file.files}
    for name in ("row_pose_rad", "first_row", "focal_px", "shot_up_cam"):
        np.savez(
            tmp_path / "fit.npz", **{key: value for key, value in arrays.items() if key != name}
        )
        with pytest.raises(UserError, match=name):
            package.load(tmp_path)


def test_a_name_that_is_not_utf8_is_no_trouble(
    walk: tuple[str | Path, ...], tmp_path: Path, fitmesh: Fitmesh
) -> None:
    video = tmp_path / "caf\udce9.mp4"
    video.write_bytes(Path(walk[1]).read_bytes())
    assert fitmesh("run", "--video", video, *walk[2:], "--out", tmp_path / "out") == 0, fitmesh.said
    assert "caf" in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert package.load(tmp_path / "out").clip_path == video
