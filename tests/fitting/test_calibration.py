"""Calibration files: hostile ones are refused quickly and in words, ours are read as written."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from bench.lib.rigs import placed_around
from fitting.camera import Camera
from fitting.rig.calibration import read_rig, write_rig
from fitting.rig.camera_names import match_videos, normalise_name
from fitting.rig.rig import PlacedCamera, Rig
from pose2d.base.errors import OptionError, UserError

SIZE = (1280, 720)
CAMERA = """[a]
size = {size}
matrix = {matrix}
rotation = {rotation}
translation = {translation}
"""
VALID = {
    "size": "[1280, 720]",
    "matrix": "[[900, 0, 640], [0, 900, 360], [0, 0, 1]]",
    "rotation": "[0.1, 0.2, 0.3]",
    "translation": "[0, 0, 4]",
}


def read_one(path: Path) -> Rig:
    return read_rig(path, ["a"], [SIZE])


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        ("size", "[0, 720]"),
        ("size", "[-1280, -720]"),
        ("size", "[1280]"),
        ("size", "[nan, 720]"),
        ("size", "[1" + "0" * 400 + ", 720]"),
        ("size", "[1" + "0" * 5000 + ", 720]"),
        ("matrix", "[[0, 0, 640], [0, 900, 360], [0, 0, 1]]"),
        ("matrix", "[[-900, 0, 640], [0, 900, 360], [0, 0, 1]]"),
        ("matrix", "[[900, 0, 640], [0, 900, 360], [0, 0, 2]]"),
        ("matrix", "[[1e300, 0, 640], [0, 900, 360], [0, 0, 1]]"),
        ("matrix", "[[900, 0, 640], [0, 900, 360]]"),
        ("matrix", "['900', 0, 640, 0, 900, 360, 0, 0, 1]"),
        ("rotation", "[1e300, 0, 0, 0, 1e300, 0, 0, 0, 1e300]"),
        ("rotation", "[nan, 0, 0]"),
        ("rotation", "[true, false, false]"),
        ("rotation", "[2, 0, 0, 0, 2, 0, 0, 0, 2]"),
        ("translation", "[inf, 0, 0]"),
        ("translation", "[1e12, 0, 0]"),
        ("translation", "{x = 1}"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(quantity: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "rig.toml"
    path.write_text(CAMERA.format(**VALID))
    read_one(path)
    path.write_text(CAMERA.format(**{**VALID, quantity: text}))
    with pytest.raises(UserError, match=r"rig\.toml"):
        read_one(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("newlines.yml", "\n" * 200_000),
        ("brackets.yml", "a: " + "[" * 200_000),
        ("spaces.yml", "a: !!opencv-matrix" + " " * 200_000),
        ("names.yml", "a:\n" * 80_000),
        ("large.yml", "a: 1\n" * 1_000_000),
        ("dotted.toml", "a" + ".a" * 20_000 + " = 1\n"),
        ("header.toml", "[" + ".".join("a" * 20_000) + "]\n"),
        ("deep.toml", "a = " + "[" * 100_000),
        ("digits.toml", "a = " + "1" * 100_000),
        ("large.toml", "a = 1 # " + "x" * 5_000_000),
        ("deep.json", "[" * 100_000),
        ("large.json", '{"a": "' + "x" * 5_000_000 + '"}'),
        ("binary.toml", "\x00\x01\x02"),
        ("empty.json", ""),
    ],
)
def test_hostile_files_are_refused_within_a_second(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    start = time.process_time()
    with pytest.raises(UserError, match=name):
        read_one(path)
    assert time.process_time() - start < 1


PLACED = st.builds(
    lambda focal, turn, place, distortion: (focal, turn, place, distortion),
    st.tuples(st.floats(100, 5000), st.floats(100, 5000)),
    st.tuples(*[st.floats(-1.5, 1.5)] * 3),
    st.tuples(*[st.floats(-20, 20)] * 3),
    st.sampled_from([(), (0.1, -0.02, 0.001, 0.0), (0.1, -0.02, 0.001, 0.0, 0.3)]),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    names=st.lists(
        st.one_of(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
            st.sampled_from(
                ["左", "cam 1", "cam_1", "a\nb", 'say "x"', "metadata", "\\", "cameras", "matrix"]
            ),
        ),
        min_size=1,
        max_size=4,
    ),
    placed=st.lists(PLACED, min_size=4, max_size=4),
)
def test_what_is_written_is_read_again(names: list[str], placed: list, tmp_path: Path) -> None:
    cameras = []
    for number, (name, (focal, turn, place, distortion)) in enumerate(
        zip(names, placed, strict=False)
    ):
        camera = Camera(focal, (640.0, 360.0), SIZE, distortion)
        rotation = Rotation.from_rotvec(turn).as_matrix()
        translation = np.add(place, (0, 0, 100 * number))
        cameras.append(PlacedCamera(name, camera, rotation, translation))
    path = tmp_path / "rig.toml"
    write_rig(path, Rig(tuple(cameras), "test"))
    again = read_rig(path, names, [SIZE] * len(names))
    for one, two in zip(cameras, again.cameras, strict=True):
        assert one.name == two.name
        np.testing.assert_allclose(one.rotation, two.rotation, atol=1e-9)
        np.testing.assert_allclose(one.translation_m, two.translation_m, atol=1e-9)
        np.testing.assert_allclose(one.camera.intrinsics, two.camera.intrinsics)
        np.testing.assert_allclose(
            one.camera.distortion or (0.0,) * 4, two.camera.distortion or (0.0,) * 4
        )


def test_names_are_matched_without_case_signs_and_leading_zeros() -> None:
    assert normalise_name("Cam_01") == normalise_name("cam-1") == normalise_name("CAM 001")
    assert normalise_name("cam10") != normalise_name("cam1")


@pytest.mark.parametrize(
    ("cameras", "videos", "stated", "numbers"),
    [
        (["cam_01", "cam_02", "cam_03"], ["cam03", "cam01"], [], [2, 0]),
        (["left", "right"], ["walk_right", "walk_left"], [], [1, 0]),
        (["cam1", "cam12"], ["trial2cam12", "trial2cam1"], [], [1, 0]),
        (["A", "a"], ["a", "A"], [], [1, 0]),
        (["x", "y"], ["one", "two"], [], [0, 1]),
        (["cam_01", "cam_02", "cam_03"], ["one", "two"], ["cam3", "cam_01"], [2, 0]),
    ],
)
def test_videos_are_matched_with_cameras(
    cameras: list[str], videos: list[str], stated: list[str], numbers: list[int]
) -> None:
    assert match_videos(cameras, videos, stated, Path("rig.toml"))[0] == numbers


def test_the_error_lists_cameras_and_videos() -> None:
    with pytest.raises(UserError) as error:
        match_videos(["north", "south", "west"], ["one", "two"], [], Path("rig.toml"))
    for word in ("north", "west", "one", "two", "--camera-names", "rig.toml"):
        assert word in str(error.value)


@pytest.mark.parametrize("stated", [["north"], ["north", "east"], ["north", "north"]])
def test_wrong_camera_names_are_refused(stated: list[str]) -> None:
    with pytest.raises(OptionError, match="--camera-names"):
        match_videos(["north", "south"], ["one", "two"], stated, Path("rig.toml"))


def test_padding_of_a_codec_leaves_the_lens_as_it_is(tmp_path: Path) -> None:
    rig = placed_around([0, 80])
    tall = [replace(c, camera=replace(c.camera, size=(1088, 1920))) for c in rig.cameras]
    write_rig(tmp_path / "rig.toml", replace(rig, cameras=tuple(tall)))
    cut = read_rig(tmp_path / "rig.toml", ["cam1", "cam2"], [(1080, 1920)] * 2)
    assert cut.cameras[0].camera.focal_px == rig.cameras[0].camera.focal_px
    assert "padding" in cut.notes[0]
    with pytest.raises(UserError, match="1060x1920"):
        read_rig(tmp_path / "rig.toml", ["cam1", "cam2"], [(1060, 1920)] * 2)
