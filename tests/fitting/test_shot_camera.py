"""Everyone in a shot whose camera turns, zooms or travels."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

import fitting
from fitting.body import Body
from fitting.shot import SceneOptions, ShotPerson, fit_shot
from pose2d.video.camera_motion.motion import CameraMotion
from tests.fitting.people_scenes import angle_deg
from tests.fitting.standing_people import (
    CAMERA,
    FEET,
    FOCAL_PX,
    FPS,
    FRAMES,
    KNOWN,
    UP,
    in_camera,
    is_finite,
    observe,
    shot_person,
    standing,
)


@pytest.fixture(scope="module")
def body() -> Body:
    return fitting.load_body()


@pytest.fixture(scope="module")
def family(body: Body) -> list[ShotPerson]:
    """Two adults and a child of 1.1 m."""
    places = ((1.0, -1.0, 5.0), (1.0, 1.2, 6.5), (0.65, 0.2, 4.2))
    return [
        shot_person(n, observe(in_camera(standing(body, s, x, z, n + 1))))
        for n, (s, x, z) in enumerate(places)
    ]


def turning(degrees: float, zoom: np.ndarray | None = None) -> CameraMotion:
    turn = Rotation.from_euler(
        "y", np.linspace(0, degrees, FRAMES)[:, None], degrees=True
    ).as_matrix()
    ones = np.ones(FRAMES)
    return CameraMotion(
        "rotating", np.arange(FRAMES), turn, ones if zoom is None else zoom, FOCAL_PX, ""
    )


def test_under_a_panning_camera_feet_stay_put_in_the_world(body: Body) -> None:
    motion = turning(12.0)
    points = standing(body, 1.0, 0.3, 5.0, 1)
    fit = fit_shot(
        [shot_person(0, observe(in_camera(points, motion.first_from_camera)))],
        CAMERA,
        KNOWN,
        body,
        fps=FPS,
        motion=motion,
    )
    assert fit.ground is not None
    assert (
        angle_deg(fit.ground.up_cam, UP) < 2.5 * fit.ground.up_sigma_deg
    )  # one person, who stands
    feet = body.at(fit.people[0].fit.params).keypoints[:, FEET].double().numpy()
    world = np.einsum("tij,tnj->tni", motion.first_from_camera, feet)
    assert np.median(np.linalg.norm(np.diff(world, axis=0), axis=-1)) * FPS < 0.02
    assert np.median(np.linalg.norm(np.diff(feet, axis=0), axis=-1)) * FPS > 0.2


def test_a_zoom_moves_nobody_and_pixels_stay_those_of_the_video(body: Body) -> None:
    zoom = np.linspace(1.0, 1.6, FRAMES)
    points = in_camera(standing(body, 1.0, 0.3, 5.0, 1))
    zoomed = observe(points, zoom)
    plain = observe(points)
    options = SceneOptions(ground=False)
    a = fit_shot(
        [shot_person(0, zoomed)],
        CAMERA,
        KNOWN,
        body,
        fps=FPS,
        motion=turning(0.0, zoom),
        options=options,
    )
    b = fit_shot(
        [shot_person(0, plain)], CAMERA, KNOWN, body, fps=FPS, motion=turning(0.0), options=options
    )
    torch.testing.assert_close(a.people[0].keypoints.xy_px, zoomed.xy_px, atol=1e-2, rtol=0)
    moved = a.people[0].fit.params.translation - b.people[0].fit.params.translation
    assert moved.abs().max() < 0.02


def test_a_camera_that_goes_somewhere_holds_no_foot(family: list[ShotPerson], body: Body) -> None:
    motion = replace(turning(3.0), kind="moving")
    fit = fit_shot(family[:1], CAMERA, KNOWN, body, fps=FPS, motion=motion)
    assert (fit.people[0].contact == 0).all()
    assert is_finite(fit)
