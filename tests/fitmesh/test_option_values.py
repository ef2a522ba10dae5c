"""Option values that parse and make no sense are refused before any work, with the option's name."""

from pathlib import Path

import numpy as np
import pytest

import fitmesh
from fitmesh.exports import Motion
from fitmesh.exports.motion import change_motion
from fitmesh.stages.scene import _read_intrinsics, read_floor
from fitmesh.stages.settings import RunSettings
from pose2d.base.errors import OptionError, ResourceError, UserError
from tests.fitmesh.walkers import walkers
from tests.videos import write_video
from tests.walkers import write_json


@pytest.mark.parametrize(
    "text",
    ["0:80", ":80", "-1:80", "1:", "1:2:80", "1_0:80", "٣:80", "1:nan", "1:80,1:90", "80,90"],
)
def test_weights_and_heights_name_people_who_can_exist(text: str) -> None:
    with pytest.raises(OptionError, match="--weight") as refused:
        RunSettings(weight_kg=text)
    assert refused.value.option == "weight"


def test_weights_by_person_are_read() -> None:
    assert RunSettings(weight_kg="82, 2:24").weights() == {None: 82.0, 2: 24.0}


@pytest.mark.parametrize("text", ["1e308,-1e308", "0,nan", "0,inf", "0", "0,1,2", "x,y", "0,1e9"])
def test_clock_offsets_are_finite_seconds_for_every_camera(text: str) -> None:
    with pytest.raises(OptionError, match="--sync must be"):
        RunSettings(sync=text, videos=(Path("b.mp4"),)).offsets_s()


@pytest.mark.parametrize(
    "content",
    [
        {"up": [1e300, 1e300, 0]},
        {"up": [0, -1e300, 0]},
        {"up": [1e-300, 0, 0]},
        {"up": [10**400, 0, 0]},
        {"camera_height_m": 1e300},
        {"camera_height_m": 0},
    ],
)
def test_a_floor_of_huge_or_tiny_numbers_is_refused(content: object, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"floor\.json"):
        read_floor(write_json(tmp_path / "floor.json", content))


@pytest.mark.parametrize(
    ("focal_px", "x_px", "distortion"),
    [(1e300, 80, 0), (0.5, 80, 0), (900, 1e300, 0), (900, -3, 0), (900, 80, 1e300)],
)
def test_a_lens_that_cannot_exist_is_refused(
    focal_px: float, x_px: float, distortion: float, tmp_path: Path
) -> None:
    matrix = [[focal_px, 0, x_px], [0, focal_px, 60], [0, 0, 1]]
    content = {"matrix": matrix, "distortion": [distortion, 0, 0, 0]}
    with pytest.raises(UserError, match=r"lens\.json"):
        _read_intrinsics(write_json(tmp_path / "lens.json", content), (160, 120))


def test_a_frame_rate_of_exports_is_limited_by_what_it_would_write(tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=3)
    result.time_s[:] = [0.0, 1.0, 86_400.0]  # a day
    for person in result.people:
        person.time_s[:] = result.time_s[np.searchsorted(result.frames, person.frame)]
    with pytest.raises(ResourceError, match="--export-fps"):
        change_motion(result, Motion(fps=1000))
    assert len(change_motion(result, Motion(fps=0.01)).frames) == 865


def test_the_frame_rate_of_exports_is_refused_before_any_work(tmp_path: Path) -> None:
    video = write_video(tmp_path / "clip.mkv", [0, 1000, 86_400_000])
    nobody = write_json(tmp_path / "keypoints.json", [])
    with pytest.raises(ResourceError, match="export_fps") as refused:
        fitmesh.run(video, tmp_path / "out", keypoints=nobody, exports=("bvh",), export_fps=1000)
    assert refused.value.option == "export_fps"
    assert not list((tmp_path / "out").rglob("*.npz"))
