"""Masks within a run: what `--shape` and `--weight` do to its files, and what edits do to outlines."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fitmesh.stages.people import read_keypoints
from pose2d.base.errors import UserError
from pose2d.types import OUTLINE_POINTS, Outlines
from tests.fitmesh.conftest import Fitmesh
from tests.videos import write_video
from tests.walkers import coco_results, walker, write_json

pytestmark = pytest.mark.usefixtures("no_exports")
SIZE = (640, 480)


def run(fitmesh: Fitmesh, folder: Path, *more: str) -> Path:
    video = write_video(folder / "a.mp4", list(range(0, 240, 40)), SIZE)
    keypoints = write_json(folder / "k.json", coco_results([walker(6, SIZE)]))
    out = folder / "out"
    arguments = (
        "run",
        "--video",
        video,
        "--keypoints",
        keypoints,
        "--only",
        "fit",
        "--out",
        out,
        *more,
    )
    assert fitmesh(*arguments) == 0, fitmesh.said
    return out


def fitted(out: Path) -> dict[str, np.ndarray]:
    with np.load(out / "fit.npz") as file:
        return {name: file[name] for name in file.files if name not in ("cache_key", "stage_key")}


def test_a_video_without_people_has_no_mask_and_the_fit_is_that_of_keypoints(
    fitmesh: Fitmesh, tmp_path: Path
) -> None:
    """Keypoints are given, but there is nobody in the images."""
    plain = fitted(run(fitmesh, tmp_path, "--shape", "keypoints"))
    assert read_keypoints(tmp_path / "out").outlines is None
    masked = fitted(run(fitmesh, tmp_path, "--shape", "masks"))
    read = read_keypoints(tmp_path / "out")
    (outlines,) = map(read.outlines_of, read.people)
    assert outlines is not None
    assert not len(outlines)
    assert masked["masks"].tolist() == [0]
    for name in ("shape", "row_pose_rad", "row_translation_m", "shape_covariance"):
        np.testing.assert_array_equal(masked[name], plain[name])


def test_a_weight_makes_a_body_heavier_or_lighter(fitmesh: Fitmesh, tmp_path: Path) -> None:
    from fitting.body.load import load_body

    heavy, light = (
        fitted(run(fitmesh, tmp_path, "--weight", kg, "--height", "1.75")) for kg in ("100", "1:55")
    )
    volume = [
        load_body().volume_m3(one["shape"][0].astype(np.float32)) * float(one["size"][0]) ** 3
        for one in (heavy, light)
    ]
    assert volume[0] > 1.25 * volume[1]


def test_an_unknown_shape_or_weight_is_refused(fitmesh: Fitmesh, tmp_path: Path) -> None:
    video = write_video(tmp_path / "a.mp4", [0, 40], SIZE)
    assert fitmesh("run", "--video", video, "--out", tmp_path / "out", "--shape", "pixels") != 0
    assert "unknown --shape 'pixels': choose keypoints or masks" in fitmesh.said
    assert fitmesh("run", "--video", video, "--out", tmp_path / "out", "--weight", "2:heavy") != 0
    assert "--weight must be" in fitmesh.said


def some_outlines(rows: list[int]) -> Outlines:
    xy_px = np.arange(len(rows) * OUTLINE_POINTS * 2, dtype=np.float32).reshape(
        len(rows), OUTLINE_POINTS, 2
    )
    return Outlines(np.array(rows), xy_px, np.zeros_like(xy_px))


def test_outlines_go_with_their_rows(fitmesh: Fitmesh, tmp_path: Path) -> None:
    out = run(fitmesh, tmp_path, "--shape", "masks")
    arrays = dict(np.load(out / "keypoints.npz"))
    wanted = some_outlines([1, 4])
    np.savez(out / "keypoints.npz", **arrays | wanted.to_arrays())
    read = read_keypoints(out)
    (outlines,) = map(read.outlines_of, read.people)
    assert outlines is not None
    assert outlines.row.tolist() == [1, 4]
    np.testing.assert_array_equal(outlines.xy_px, wanted.xy_px)
    np.savez(out / "keypoints.npz", **arrays | replace(wanted, row=np.array([1, 600])).to_arrays())
    with pytest.raises(UserError, match="a mask belongs to no row"):
        read_keypoints(out)
