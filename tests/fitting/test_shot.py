"""Everyone in one shot: the scene they stand in, and what happens when it is not known."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

import fitting
from fitting.body import Body, BodyParams
from fitting.scene.ground_problem import GivenGround
from fitting.shot import SceneOptions, ShotFit, ShotPerson, fit_shot
from pose2d.skeletons import HALPE26
from pose2d.types import ErrorDistribution, Keypoints
from pose2d.video.camera_motion.motion import CameraMotion
from tests.fitting.people_scenes import angle_deg, standing_pose
from tests.fitting.standing_people import (
    CAMERA,
    CAMERA_M,
    FEET,
    FOCAL_PX,
    FPS,
    FRAMES,
    HEAD,
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
    bodies = [standing(body, s, x, z, n + 1) for n, (s, x, z) in enumerate(places)]
    child = bodies[2]
    child[:, HEAD] += 0.6 * (child[:, HEAD] - child[:, 18:19])  # children have large heads
    return [shot_person(n, observe(in_camera(points))) for n, points in enumerate(bodies)]


@pytest.fixture(scope="module")
def family_fit(family: list[ShotPerson], body: Body) -> ShotFit:
    return fit_shot(family, CAMERA, KNOWN, body, fps=FPS)


def height_m(fit: ShotFit, identity: int, body: Body) -> float:
    params = fit.people[identity].fit.params
    return body.height_m(params.shape) * float(params.size)


def test_people_who_stand_tell_where_up_is_and_who_is_a_child(
    family_fit: ShotFit, body: Body
) -> None:
    ground = family_fit.ground
    assert ground is not None
    assert angle_deg(ground.up_cam, UP) < 4
    assert ground.camera_height_m == pytest.approx(CAMERA_M, abs=0.4)  # 4 degrees at 5.5 m
    assert height_m(family_fit, 2, body) == pytest.approx(0.65 * 1.696, rel=0.1)
    assert height_m(family_fit, 0, body) == pytest.approx(1.696, rel=0.07)


def test_a_toddler_with_a_large_head_stands_upright(family: list[ShotPerson], body: Body) -> None:
    points = standing(body, 0.48, 0.2, 2.5, 3)
    points[:, HEAD] = points[:, 18:19] + 2.0 * (points[:, HEAD] - points[:, 18:19])
    shown = shot_person(2, observe(in_camera(points)))
    fit = fit_shot([*family[:2], shown], CAMERA, KNOWN, body, fps=FPS)
    joints = body.at(fit.people[2].fit.params).joints.double().numpy()
    lean = angle_deg((joints[:, 12] - joints[:, (7, 8)].mean(1)).mean(0), UP)
    assert lean < 8  # 12 where the body model's adult head is fitted to it
    assert height_m(fit, 2, body) < 1.2
    torch.testing.assert_close(
        fit.people[2].keypoints.xy_px, shown.keypoints.xy_px, atol=0.01, rtol=0
    )


def test_feet_that_stand_stay_put_on_the_floor(family_fit: ShotFit, body: Body) -> None:
    assert family_fit.ground is not None
    for fitted in family_fit.people.values():
        feet = body.at(fitted.fit.params).keypoints[:, FEET].double().numpy()
        assert fitted.contact.mean() > 0.7
        assert np.median(np.linalg.norm(np.diff(feet, axis=0), axis=-1)) * FPS < 0.02
        lift = float(fitted.fit.params.size) * fitting.solver.terms.floor.foot_lifts(body).numpy()
        height = feet @ family_fit.ground.up_cam + family_fit.ground.camera_height_m - lift
        assert np.abs(np.median(height)) < 0.05


@pytest.mark.parametrize("ground", [True, False])
def test_who_stands_behind_another_is_less_to_be_relied_on(body: Body, ground: bool) -> None:
    def stated(keypoints: Keypoints) -> Keypoints:
        weight, sigma = (
            torch.tensor(value).expand(*keypoints.confidence.shape, 2)
            for value in ((0.9, 0.1), (0.3, 5))
        )
        confidence = (weight / (1 + sigma.square())).sum(-1)
        return replace(
            keypoints, confidence=confidence, source="ccnet", error=ErrorDistribution(weight, sigma)
        )

    places = ((0.0, 4.0), (0.15, 4.8))
    people = [
        shot_person(n, stated(observe(in_camera(standing(body, 1.0, x, z, 1, 6)))))
        for n, (x, z) in enumerate(places)
    ]
    options = SceneOptions(ground=ground)
    both = fit_shot(people, CAMERA, KNOWN, body, fps=FPS, options=options).people
    alone = [
        fit_shot([one], CAMERA, KNOWN, body, fps=FPS, options=options).people[one.identity]
        for one in people
    ]
    hips = [HALPE26.keypoints.index(name) for name in ("left_hip", "right_hip")]
    before, after = (people[1] for people in (alone, both))
    assert (after.keypoints.confidence[:, hips] < 0.6 * before.keypoints.confidence[:, hips]).all()
    assert (after.keypoint_observed[:, hips] < before.keypoint_observed[:, hips]).all()
    assert not (after.joint_observed & ~before.joint_observed).any()
    if not ground:  # the scene of two is another than that of one
        torch.testing.assert_close(after.fit.params.pose, before.fit.params.pose, rtol=0, atol=0)
        front = both[0].keypoints.confidence, alone[0].keypoints.confidence
        torch.testing.assert_close(*front, rtol=0, atol=0.02)


def test_without_a_floor_everyone_is_fitted_as_a_track(
    family: list[ShotPerson], body: Body
) -> None:
    alone = fit_shot(family[:1], CAMERA, KNOWN, body, fps=FPS, options=SceneOptions(ground=False))
    track = fitting.fit_track(family[0].keypoints, family[0].frame, CAMERA, body, fps=FPS)
    ours = alone.people[0].fit.params
    theirs = track.fit.params
    for name in ("pose", "shape", "translation"):
        assert getattr(ours, name).numpy().tobytes() == getattr(theirs, name).numpy().tobytes()
    assert alone.ground is None


def test_a_static_camera_changes_no_byte(family: list[ShotPerson], body: Body) -> None:
    still = np.broadcast_to(np.eye(3), (FRAMES, 3, 3)).copy()
    motion = CameraMotion("static", np.arange(FRAMES), still, np.ones(FRAMES), FOCAL_PX, "")
    options = SceneOptions(ground=False)
    a = fit_shot(family[:1], CAMERA, KNOWN, body, fps=FPS, options=options).people[0].fit.params
    b = (
        fit_shot(family[:1], CAMERA, KNOWN, body, fps=FPS, motion=motion, options=options)
        .people[0]
        .fit.params
    )
    assert a.pose.numpy().tobytes() == b.pose.numpy().tobytes()


def test_a_known_height_is_the_height(family: list[ShotPerson], body: Body) -> None:
    tall = [replace(family[0], height_m=1.9), family[1]]
    fit = fit_shot(tall, CAMERA, KNOWN, body, fps=FPS)
    assert height_m(fit, 0, body) == pytest.approx(1.9, abs=0.004)
    assert height_m(fit, 1, body) == pytest.approx(
        1.9, rel=0.08
    )  # on the same floor, and as tall in the truth


def test_a_given_floor_is_kept(family: list[ShotPerson], body: Body) -> None:
    x, y, z = UP.tolist()
    fit = fit_shot(
        family,
        CAMERA,
        KNOWN,
        body,
        fps=FPS,
        options=SceneOptions(user_ground=GivenGround((x, y, z), CAMERA_M)),
    )
    assert fit.ground is not None
    assert angle_deg(fit.ground.up_cam, UP) < 0.5
    assert fit.ground.camera_height_m == pytest.approx(CAMERA_M, rel=0.02)
    assert height_m(fit, 2, body) == pytest.approx(0.65 * 1.696, rel=0.05)


def test_the_lens_is_in_the_depth_s_deviation_and_in_no_other(
    family: list[ShotPerson], body: Body
) -> None:
    options = SceneOptions(ground=False)
    unsure = replace(KNOWN, log_sigma=0.29)
    sharp, wide = (
        fit_shot(family[:1], CAMERA, f, body, fps=FPS, options=options).people[0].fit
        for f in (KNOWN, unsure)
    )
    assert sharp.joint_std_mm is not None
    assert wide.joint_std_mm is not None
    depth_mm = 1000 * sharp.params.translation[:, 2]
    more = (wide.joint_std_mm[..., 2].square() - sharp.joint_std_mm[..., 2].square()).sqrt()
    torch.testing.assert_close(
        more[:, 0], depth_mm * math.sqrt(0.29**2 - 0.01**2), rtol=0.02, atol=1.0
    )
    torch.testing.assert_close(wide.joint_std_mm[..., :2], sharp.joint_std_mm[..., :2])
    torch.testing.assert_close(wide.joint_std_relative_mm, sharp.joint_std_relative_mm)


def hidden_feet(keypoints: Keypoints) -> Keypoints:
    presence = keypoints.presence.clone()
    presence[:, [13, 14, 15, 16, *range(20, 26)]] = 0
    return replace(keypoints, presence=presence)


def test_what_cannot_be_known_is_said_and_everyone_is_fitted_all_the_same(body: Body) -> None:
    points = standing(body, 1.0, 0.3, 5.0, 1)
    flying = points + np.array([0.06, 0.05, 0.0]) * np.arange(FRAMES)[:, None, None]
    lying = points @ Rotation.from_euler("z", 90, degrees=True).as_matrix().T
    lying = lying - lying.mean((0, 1)) + np.array([0, 0.2, -5.0])
    cases = {
        "no feet in view": hidden_feet(observe(in_camera(points))),
        "in the air": observe(in_camera(flying)),
        "lying": observe(in_camera(lying)),
    }
    for name, keypoints in cases.items():
        fit = fit_shot([shot_person(0, keypoints)], CAMERA, KNOWN, body, fps=FPS)
        assert fit.ground is None or not fit.ground.floor_known, name
        assert fit.reason, name
        assert is_finite(fit), name
        assert float(fit.people[0].fit.params.size) == 1.0, name


def test_not_known_gives_the_arrays_of_not_looked_for(body: Body) -> None:
    lying = (
        standing(body, 1.0, 0.3, 5.0, 1) @ Rotation.from_euler("z", 90, degrees=True).as_matrix().T
    )
    keypoints = observe(in_camera(lying - lying.mean((0, 1)) + np.array([0, 0.2, -5.0])))
    looked, off = (
        fit_shot(
            [shot_person(0, keypoints)],
            CAMERA,
            KNOWN,
            body,
            fps=FPS,
            options=SceneOptions(ground=ground),
        )
        for ground in (True, False)
    )
    assert looked.ground is None
    assert looked.verdict == "not known"
    for name in ("pose", "translation", "shape", "size"):
        assert torch.equal(
            getattr(looked.people[0].fit.params, name), getattr(off.people[0].fit.params, name)
        ), name
    assert not looked.people[0].contact.any()


def test_a_single_image_has_gravity_and_obeys_a_stated_floor(body: Body) -> None:
    keypoints = observe(in_camera(standing(body, 1.0, 0.3, 5.0, 1)[:1]))
    ground = fit_shot([shot_person(0, keypoints)], CAMERA, KNOWN, body, fps=FPS).ground
    assert ground is not None
    up = np.array([0.0, -np.cos(0.5), -np.sin(0.5)])
    given = SceneOptions(user_ground=GivenGround((0.0, float(up[1]), float(up[2])), 4.0))
    stated = fit_shot([shot_person(0, keypoints)], CAMERA, KNOWN, body, fps=FPS, options=given)
    assert stated.ground is not None
    assert stated.ground.up_cam @ up > np.cos(np.radians(2))
    assert stated.ground.camera_height_m == pytest.approx(4.0, rel=0.03)


def test_a_stated_floor_that_contradicts_the_people_is_obeyed_with_a_warning(body: Body) -> None:
    keypoints = observe(in_camera(standing(body, 1.0, 0.3, 5.0, 1)))
    given = SceneOptions(user_ground=GivenGround((0.7, -0.7, 0.0), None))
    fit = fit_shot([shot_person(0, keypoints)], CAMERA, KNOWN, body, fps=FPS, options=given)
    assert fit.ground is not None
    assert fit.ground.up_cam[0] > 0.65
    assert any("degrees" in warning for warning in fit.warnings)


def test_a_stated_height_that_contradicts_a_shared_floor_is_obeyed_with_a_warning(
    family: list[ShotPerson], body: Body
) -> None:
    fit = fit_shot([replace(family[0], height_m=2.4), *family[1:]], CAMERA, KNOWN, body, fps=FPS)
    assert height_m(fit, 0, body) == pytest.approx(2.4, rel=0.05)
    assert any(
        "stated height of 2.40 m" in warning and "would be 1." in warning
        for warning in fit.warnings
    )


def test_somebody_who_sits_down_rests_at_the_seat_s_own_height(
    family: list[ShotPerson], body: Body
) -> None:
    share = np.clip((np.arange(75) - 25) / 15, 0, 1)[:, None]  # stands, sits down, sits
    pose, _ = standing_pose(75, np.random.default_rng(0))
    pose[:, 1:9] *= 0.05
    for joints, bend in (((1, 2), -80.0), ((4, 5), 80.0)):
        pose[:, joints, 0] = torch.from_numpy(np.radians(bend) * share).float()
    posed = body(pose, vertices=True)
    assert posed.vertices is not None
    points, pelvis = (part.double().numpy() for part in (posed.keypoints, posed.joints[:, 0]))
    sole = posed.vertices[..., 1].amin(1).double().numpy()
    feet = points[:, FEET].mean(1)
    points -= np.stack((feet[:, 0], sole, feet[:, 2]), 1)[
        :, None
    ]  # feet stay where they are, on the floor
    seated = shot_person(5, observe(in_camera(points + np.array([0.4, 0, -4.5]))))
    fit = fit_shot([*family[:2], seated], CAMERA, KNOWN, body, fps=FPS)
    assert fit.ground is not None
    assert fit.uses_scene(5)
    pelvis_m = body.at(fit.people[5].fit.params).joints[:, 0].double().numpy() @ fit.ground.up_cam
    over_m = pelvis_m + fit.ground.camera_height_m
    true_m = pelvis[:, 1] - sole
    assert true_m[50:].max() < 0.68 < 0.85 < true_m[0]
    assert np.abs(over_m - true_m)[50:].max() < 0.08
    assert np.ptp(over_m[50:]) < 0.02  # and does not slide


def test_nobody_is_an_answer(body: Body) -> None:
    fit = fit_shot([], CAMERA, KNOWN, body, fps=FPS)
    assert fit.people == {}
    assert fit.ground is None


def test_a_mirror_image_stands_on_the_same_floor(family: list[ShotPerson], body: Body) -> None:
    """Somebody before a mirror is seen twice: once with left and right exchanged, on the floor
    behind the wall.
    """
    points = standing(body, 1.0, -0.8, 5.0, 2)
    mirrored = (points * np.array([1, 1, -1.0]) + np.array([0.3, 0, -13.0]))[:, HALPE26.flip_order]
    people = [shot_person(n, observe(in_camera(p))) for n, p in enumerate((points, mirrored))]
    fit = fit_shot(people, CAMERA, KNOWN, body, fps=FPS)
    assert fit.ground is not None
    assert angle_deg(fit.ground.up_cam, UP) < 6
    assert is_finite(fit)


def test_parameters_refocused_there_and_back_are_the_same(body: Body) -> None:
    from fitting.camera.focal import refocus_params

    generator = torch.Generator().manual_seed(0)
    pose = 0.3 * torch.randn(4, 24, 3, generator=generator)
    params = BodyParams(
        pose,
        torch.zeros(10),
        torch.tensor([0.5, 0.2, 5.0]) + 0.1 * torch.randn(4, 3, generator=generator),
    )
    there = refocus_params(params, body.rest_joints[0], 1.3)
    back = refocus_params(there, body.rest_joints[0], 1 / 1.3)
    torch.testing.assert_close(back.pose, params.pose, atol=1e-5, rtol=0)
    torch.testing.assert_close(back.translation, params.translation, atol=1e-5, rtol=0)
    assert (there.translation[:, 2] > 1.25 * params.translation[:, 2]).all()
