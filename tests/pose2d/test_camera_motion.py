"""Camera motion against cameras that are known exactly."""

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from pose2d.video.camera_motion.estimator import CameraMotionEstimator
from pose2d.video.camera_motion.motion import CameraMotion
from tests.pose2d.camera_scenes import seen, sensed, texture, wall, with_walker

SIZE = (320, 180)
FPS = 30
FOCAL_PX = 0.7 * float(np.hypot(*SIZE))


@dataclass(frozen=True)
class Shot:
    motion: CameraMotion
    error_deg: np.ndarray  # [F]
    zoom: np.ndarray  # [F] true


def shot(
    turn_deg: Callable[[float], tuple[float, float, float]] = lambda s: (0, 0, 0),
    place_m: Callable[[float], tuple[float, float, float]] = lambda s: (0, 0, 0),
    zoom: Callable[[float], float] = lambda s: 1.0,
    seconds: float = 5.0,
    people: int = 2,
    boxed: bool = True,
    noise: float = 4.0,
    quality: int = 35,
    seed: int = 0,
    assumed: float = FOCAL_PX,
    depths_m: tuple[float, ...] = (30, 12, 7, 4.5),
    overlay: Callable[[np.ndarray], np.ndarray] = lambda image: image,
    close_up: bool = False,
) -> Shot:
    rng = np.random.default_rng(seed)
    boards = [wall(texture(rng, 1400), (0, 0, depths_m[0]), 3 * depths_m[0], 3 * depths_m[0])]
    for z in depths_m[1:]:
        for _ in range(3):
            center = (rng.uniform(-0.7, 0.7) * z, rng.uniform(-0.3, 0.4) * z, z)
            boards.append(wall(texture(rng, 200), center, 0.18 * z, 0.35 * z))
    figures = [texture(rng, 300) for _ in range(people)]
    estimator = CameraMotionEstimator(SIZE, assumed)
    truth = []
    zooms = []
    for frame in range(round(seconds * FPS)):
        s = frame / FPS
        truth.append(Rotation.from_rotvec(np.radians(turn_deg(s))).as_matrix())
        zooms.append(zoom(s))
        boxes = []
        if estimator.wants(frame):
            image = seen(boards, SIZE, FOCAL_PX * zooms[-1], truth[-1], np.array(place_m(s), float))
            for number, figure in enumerate(figures):
                image, box = with_walker(image, figure, s, number)
                boxes.append(box)
            if close_up:  # of a person who hides most of the background
                boxes.append(np.array([0.1, 0.0, 0.9, 0.66]) * (*SIZE, *SIZE))
            image = sensed(overlay(image), rng, noise, quality)
            estimator.feed(frame, image, boxes if boxed else [])
        else:
            estimator.feed(frame, None, [])
    motion = estimator.finish()
    off = Rotation.from_matrix(np.stack(truth)).inv() * Rotation.from_matrix(
        motion.first_from_camera
    )
    return Shot(motion, np.degrees(np.linalg.norm(off.as_rotvec(), axis=1)), np.array(zooms))


@pytest.mark.parametrize(
    "how",
    [{}, {"boxed": False}, {"noise": 12.0, "quality": 12}, {"people": 0}, {"people": 4, "seed": 3}],
)
def test_a_static_camera_is_called_static_whatever_moves_in_front_of_it(how: dict) -> None:
    got = shot(seconds=4, **how).motion
    assert got.kind == "static"
    assert np.array_equal(got.first_from_camera, np.broadcast_to(np.eye(3), (120, 3, 3)))
    assert (got.zoom == 1).all()


@pytest.mark.parametrize("rate", [-12.0, -3.0, 8.0])
def test_a_pan_is_followed_to_a_fraction_of_a_degree_over_five_seconds(rate: float) -> None:
    got = shot(lambda s: (1.5 * s, rate * s, 0.5 * np.sin(s)), seed=int(abs(rate)))
    assert got.motion.kind == "rotating"
    assert got.error_deg.max() < 0.4  # the target is 1
    assert np.abs(np.log(got.motion.zoom)).max() < 0.02


@pytest.mark.parametrize("wrong", [0.75, 1.4])
def test_a_pan_tells_the_focal_length(wrong: float) -> None:
    got = shot(lambda s: (0.5 * s, 9 * s, 0), seconds=4, assumed=wrong * FOCAL_PX).motion
    assert got.kind == "rotating"
    off = abs(np.log(got.turning_focal_px / FOCAL_PX))
    assert off < 0.1
    assert off < 3 * got.turning_focal_log_sigma


def test_a_shaken_camera_that_stays_in_place_is_rotating() -> None:
    got = shot(lambda s: (0.6 * np.sin(6 * s), 0.6 * np.sin(5 * s), 0.3 * np.sin(4 * s)), seconds=3)
    assert got.motion.kind == "rotating"
    assert got.error_deg.max() < 0.3


def test_zoom_is_told_from_turning() -> None:
    got = shot(lambda s: (0, s, 0), zoom=lambda s: float(np.exp(0.12 * s)))
    assert got.motion.kind == "rotating"
    assert np.abs(np.log(got.motion.zoom / got.zoom)).max() < 0.02
    assert got.error_deg.max() < 0.4


def test_a_camera_that_goes_somewhere_is_called_moving() -> None:
    got = shot(lambda s: (0, 2 * s, 0), lambda s: (0.35 * s, 0, 0.15 * s), seconds=3)
    assert got.motion.kind == "moving"
    assert got.error_deg.max() < 6
    assert np.isfinite(got.motion.first_from_camera).all()


def test_a_slide_along_a_wall_is_no_turning() -> None:
    got = shot(place_m=lambda s: (0.5 * s, 0, 0), seconds=4, depths_m=(4.0, 3.4, 2.8))
    assert got.motion.kind == "moving"
    assert got.error_deg.max() < 1  # it would look like 25 degrees of turning


@pytest.mark.parametrize("speed", [0.3, -0.3])
def test_going_forwards_and_back_is_no_zoom(speed: float) -> None:
    going = shot(place_m=lambda s: (0, 0, speed * s), seconds=4, depths_m=(4.0, 3.4, 2.8)).motion
    assert going.kind == "moving"
    assert going.zooming(np.arange(3)) is None
    zooming = shot(
        zoom=lambda s: float(np.exp(speed * s / 3)), seconds=4, depths_m=(4.0, 3.4, 2.8)
    ).motion
    assert zooming.kind == "rotating"


def test_another_focal_length_scales_pan_and_tilt_but_not_roll() -> None:
    estimator = shot(lambda s: (0, 8 * s, 0), seconds=2).motion
    wrong = estimator.with_focal(FOCAL_PX * 1.25)
    back = wrong.with_focal(FOCAL_PX)
    end = np.linalg.norm(Rotation.from_matrix(wrong.first_from_camera[-1]).as_rotvec(degrees=True))
    full = np.linalg.norm(
        Rotation.from_matrix(estimator.first_from_camera[-1]).as_rotvec(degrees=True)
    )
    assert end == pytest.approx(full / 1.25, rel=1e-3)
    assert np.allclose(back.first_from_camera, estimator.first_from_camera, atol=1e-6)


def test_a_background_without_corners_is_unknown_and_nothing_is_made_up() -> None:
    estimator = CameraMotionEstimator(SIZE, FOCAL_PX)
    for frame in range(30):
        estimator.feed(
            frame, np.full(SIZE[::-1], 90, np.uint8), [[0, 0, np.nan, 5], [10, 10, 100, 200]]
        )
    got = estimator.finish()
    assert got.kind == "unknown"
    assert np.array_equal(got.first_from_camera[-1], np.eye(3))


def test_one_frame_and_no_frame_are_shots_too() -> None:
    rng = np.random.default_rng(0)
    estimator = CameraMotionEstimator(SIZE, FOCAL_PX)
    assert len(estimator.finish().frames) == 0
    estimator.feed(7, texture(rng, 300), [])
    got = estimator.finish()
    assert got.kind == "static"
    assert got.frames.tolist() == [7]
    with pytest.raises(ValueError, match="order"):
        estimator.feed(7, None, [])


def with_caption(image: np.ndarray) -> np.ndarray:
    """Burn three lines of text and a logo into a frame; they have most of its corners."""
    image = image.copy()
    lines = ("WHEELCHAIR BASKETBALL", "follow for more 12:45:07", "#sport #court #final 2024")
    for number, text in enumerate(lines):
        place = (20, 132 + 18 * number)
        cv2.putText(image, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.55, 0, 4)
        cv2.putText(image, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.55, 255, 1)
    cv2.rectangle(image, (262, 8), (308, 30), 255, -1)
    cv2.putText(image, "LIVE", (266, 25), cv2.FONT_HERSHEY_SIMPLEX, 0.5, 0, 2)
    return image


CAPTIONED = {"people": 0, "close_up": True, "noise": 2.0, "overlay": with_caption, "seconds": 3}


@pytest.mark.parametrize("degrees", [0.5, 1.2])
def test_a_caption_does_not_hold_a_shaken_camera_still(degrees: float) -> None:
    def turn(s: float) -> tuple[float, float, float]:
        return (degrees * np.sin(3 * s), degrees * np.sin(2.5 * s), 0)

    assert shot(turn, **CAPTIONED).motion.kind == "rotating"


def test_a_caption_does_not_hold_a_moving_camera_still() -> None:
    got = shot(lambda s: (0, 2 * s, 0), lambda s: (0.35 * s, 0, 0.15 * s), **CAPTIONED)
    assert got.motion.kind == "moving"


def test_a_static_camera_with_a_caption_is_static() -> None:
    assert shot(**CAPTIONED).motion.kind == "static"


def test_a_caption_alone_does_not_tell_whether_the_camera_moves() -> None:
    estimator = CameraMotionEstimator(SIZE, FOCAL_PX)
    for frame in range(60):
        grey = np.full(SIZE[::-1], 90 + frame // 3, np.uint8)
        cv2.putText(grey, "follow for more", (20, 160), cv2.FONT_HERSHEY_SIMPLEX, 0.8, 255, 2)
        estimator.feed(frame, grey, [])
    assert estimator.finish().kind == "unknown"
