"""The lens, floor and heights that a run is told; the camera's motion on its way through
`tracks.npz`.
"""

import json
import math
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from fitmesh.stages.scene import lens_of, read_floor, scene_options
from fitmesh.stages.settings import RunSettings
from fitting.camera.focal import PRIOR_LOG_SIGMA, PRIOR_SHARE
from pose2d.base.errors import UserError
from pose2d.video.camera_motion.background import BackgroundMotion
from pose2d.video.camera_motion.motion import read_motion
from pose2d.video.frames import Frame
from tests.pose2d.camera_scenes import texture

SIZE = (1280, 720)
NOWHERE = Path("no such file.mp4")


def test_the_lens_is_the_user_s_word_then_a_prior() -> None:
    given = lens_of(NOWHERE, SIZE, focal_px=900.0)
    assert given.known
    assert given.camera.focal_px == (900.0, 900.0)
    assert given.focal.log_sigma < 0.02
    by_angle = lens_of(NOWHERE, SIZE, fov_deg=90.0)
    assert by_angle.camera.focal_px[0] == pytest.approx(640.0)
    unknown = lens_of(NOWHERE, SIZE)
    assert not unknown.known
    assert unknown.camera.focal_px[0] == pytest.approx(PRIOR_SHARE * math.hypot(*SIZE))
    assert unknown.focal.log_sigma == PRIOR_LOG_SIGMA


def test_the_file_s_own_word_comes_before_the_prior(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pose2d.video.lens_metadata import LensMetadata

    clip = tmp_path / "clip.mp4"
    clip.touch()
    said = LensMetadata(950.0, 0.08, "a tag 26 mm", "")
    monkeypatch.setattr("fitmesh.stages.scene.read_lens_metadata", lambda *_: said)
    found = lens_of(clip, SIZE)
    assert found.known
    assert (found.focal.focal_px, found.focal.log_sigma) == (950.0, 0.08)
    assert "metadata" in found.focal.source
    assert lens_of(clip, SIZE, focal_px=800.0).focal.focal_px == 800.0
    unbelievable = LensMetadata(
        None, math.inf, "", "a tag 2 mm is not believable: 0.05 times the image's diagonal."
    )
    monkeypatch.setattr("fitmesh.stages.scene.read_lens_metadata", lambda *_: unbelievable)
    refused = lens_of(clip, SIZE)
    assert not refused.known
    assert "not believable" in refused.warning


@pytest.mark.parametrize("focal", [0.0, math.nan, -5.0, math.inf, 1e9])
def test_a_focal_length_that_cannot_be_is_refused(focal: float) -> None:
    with pytest.raises(UserError, match="focal length"):
        lens_of(NOWHERE, SIZE, focal_px=focal)


def test_one_word_about_the_lens_is_enough() -> None:
    with pytest.raises(UserError, match="--focal and --fov"):
        RunSettings(focal_px=900.0, fov_deg=60.0)


def test_intrinsics_are_read_with_their_distortion(tmp_path: Path) -> None:
    path = tmp_path / "k.json"
    path.write_text(
        json.dumps(
            {"matrix": [[900, 0, 600], [0, 905, 350], [0, 0, 1]], "distortion": [0.1, 0, 0, 0]}
        )
    )
    camera = lens_of(NOWHERE, SIZE, intrinsics=path).camera
    assert camera.focal_px == (900.0, 905.0)
    assert camera.center_px == (600.0, 350.0)
    assert camera.distortion == (0.1, 0.0, 0.0, 0.0)
    path.write_text(json.dumps({"matrix": [[900, 0], [0, 905]]}))
    with pytest.raises(UserError, match="matrix"):
        lens_of(NOWHERE, SIZE, intrinsics=path)


def test_heights_are_everybody_s_or_one_person_s() -> None:
    assert RunSettings(height_m="1.82").heights() == {None: 1.82}
    assert RunSettings(height_m="2:1.25, 1.8").heights() == {2: 1.25, None: 1.8}
    assert RunSettings().heights() == {}
    for wrong in ("tall", "2:", "0", "nan", "170", "a:1.2", "-1.7"):
        with pytest.raises(UserError, match="--height"):
            RunSettings(height_m=wrong)


def test_a_floor_file_states_up_or_height_or_both(tmp_path: Path) -> None:
    path = tmp_path / "floor.json"
    path.write_text(json.dumps({"up": [0, -2, 0], "camera_height_m": 1.5}))
    given = read_floor(path)
    assert given.up_cam == (0.0, -1.0, 0.0)
    assert given.camera_height_m == 1.5
    path.write_text(json.dumps({"camera_height_m": 1.5}))
    assert read_floor(path).up_cam is None
    for wrong in ({}, {"up": [0, 0, 0]}, {"up": [0, 1]}, {"camera_height_m": 0}, {"up": "up"}, []):
        path.write_text(json.dumps(wrong))
        with pytest.raises(UserError, match="floor"):
            read_floor(path)
    with pytest.raises(UserError, match="up"):
        scene_options(str(tmp_path / "none.json"))


def watched(
    turn_deg: float, frames: int = 30, cut: int | None = None
) -> tuple[BackgroundMotion, np.ndarray]:
    """A wall seen by a camera that pans; another wall after a cut."""
    watch = BackgroundMotion(SIZE, PRIOR_SHARE * math.hypot(*SIZE))
    focal = PRIOR_SHARE * math.hypot(*SIZE)
    k = np.array([[focal, 0, SIZE[0] / 2], [0, focal, SIZE[1] / 2], [0, 0, 1]])
    far = k @ np.diag([1.0, 1.0, 1.0])
    walls = [cv2.resize(texture(np.random.default_rng(seed), 700), (2800, 2800)) for seed in (0, 1)]
    to_center = np.array([[1, 0, SIZE[0] / 2 - 1400], [0, 1, SIZE[1] / 2 - 1400], [0, 0, 1.0]])
    turns = Rotation.from_euler(
        "y", np.linspace(0, turn_deg, frames)[:, None], degrees=True
    ).as_matrix()
    for frame in range(frames):
        if frame in (0, cut):
            watch.cut(frame)
        wall = walls[int(cut is not None and frame >= cut)]
        image = cv2.warpPerspective(wall, k @ turns[frame].T @ np.linalg.inv(far) @ to_center, SIZE)
        watch.add(
            Frame(frame, Fraction(frame, 30), np.repeat(image[..., None], 3, 2)), np.zeros((0, 4))
        )
    return watch, turns


def test_a_pan_comes_through_the_file_and_a_static_camera_is_static() -> None:
    for degrees, kind in ((12.0, "rotating"), (0.0, "static")):
        watch, turns = watched(degrees)
        arrays = {"frame": np.arange(30), "shot_first_frame": np.array([0])}
        arrays |= watch.arrays(arrays["frame"], arrays["shot_first_frame"])
        motion = read_motion(arrays, 0)
        assert motion is not None
        assert motion.kind == kind
        off = Rotation.from_matrix(turns).inv() * Rotation.from_matrix(motion.first_from_camera)
        assert np.degrees(np.linalg.norm(off.as_rotvec(), axis=1)).max() < 0.5


def test_every_shot_has_a_camera_of_its_own() -> None:
    watch, _ = watched(0.0, cut=15)
    frames = np.arange(30)
    arrays = {
        "frame": frames,
        "shot_first_frame": np.array([0, 15]),
        **watch.arrays(frames, np.array([0, 15])),
    }
    assert [str(kind) for kind in arrays["camera_kind"]] == ["static", "static"]
    second = read_motion(arrays, 1)
    assert second is not None
    assert second.frames.tolist() == list(range(15, 30))
    late = watch.arrays(frames, np.array([0, 10, 15]))  # a cut that was noticed only afterwards
    assert str(late["camera_kind"][1]) == "unknown"
