"""From keypoints to a body: exact truth, bad input, and what is reported."""

from dataclasses import replace

import pytest
import torch

import fitting
from fitting.body import BodyParams
from fitting.body.rotations import matrix_to_axis_angle, rotation_matrices
from fitting.solver.terms.contact import FEET
from fitting.solver.terms.floor import foot_lifts
from pose2d.base.errors import UserError
from pose2d.skeletons import COCO17, MPII16
from pose2d.types import Keypoints, expected_oks, l_squared

CAMERA = fitting.Camera.from_focal(1000.0, (1280, 960))
SIGMA_PX = 2.0


@pytest.fixture(scope="module")
def body() -> fitting.Body:
    return fitting.load_body()


def walk(frames: int) -> BodyParams:
    """A person who walks past the camera, swinging arms and legs."""
    t = torch.arange(frames) / 30.0
    swing = 0.5 * torch.sin(2 * torch.pi * t)
    pose = torch.zeros(frames, 24, 3)
    turn = rotation_matrices(torch.tensor([torch.pi, 0.0, 0.0])) @ rotation_matrices(
        torch.tensor([0.0, 0.6, 0.0])
    )
    pose[:, 0] = matrix_to_axis_angle(turn)
    pose[:, 1, 0] = -swing
    pose[:, 2, 0] = swing
    pose[:, 4, 0] = 0.4 + 0.3 * swing
    pose[:, 5, 0] = 0.4 - 0.3 * swing
    pose[:, 16, 2] = -1.2
    pose[:, 17, 2] = 1.2
    pose[:, 16, 1] = 0.4 * swing
    pose[:, 17, 1] = 0.4 * swing
    pose[:, 18, 1] = -0.5
    pose[:, 19, 1] = 0.5
    translation = torch.stack((0.8 * t - 0.4, torch.zeros(frames), 4.0 + 0.2 * t), 1)
    shape = torch.tensor([0.8, -0.5, 0.3, 0, 0, 0, 0, 0, 0, 0])
    return BodyParams(pose, shape, translation)


def seen(
    body: fitting.Body,
    truth: BodyParams,
    noise_px: float = SIGMA_PX,
    camera: fitting.Camera = CAMERA,
) -> Keypoints:
    exact = camera.project(body.at(truth).keypoints[:, :17])
    area = torch.full((len(exact),), 40_000.0)
    confidence = expected_oks(torch.full(exact.shape[:2], SIGMA_PX**2), l_squared(area, COCO17))
    xy = exact + noise_px * torch.randn(exact.shape, generator=torch.Generator().manual_seed(0))
    return Keypoints(xy, confidence, torch.ones_like(confidence), "ccnet", area)


def joint_error_mm(body: fitting.Body, found: fitting.Fit, truth: BodyParams) -> torch.Tensor:
    joints = body.at(found.params).joints
    exact = body.at(truth).joints
    return 1000 * ((joints - joints[:, :1]) - (exact - exact[:, :1])).norm(dim=-1).mean(-1)


def test_a_track_is_found_from_nothing_but_its_keypoints(body) -> None:
    truth = walk(20)
    found = fitting.fit(seen(body, truth), CAMERA, body)
    assert found.stopped == "converged"
    assert joint_error_mm(body, found, truth).mean() < 70
    assert found.reprojection_px.nanmean() < 3 * SIGMA_PX
    assert found.params.shape.shape == (10,)
    assert found.observed.all()
    assert found.source == "ccnet"


def test_a_good_guess_is_made_better_and_kept_close_to(body) -> None:
    truth = walk(12)
    g = torch.Generator().manual_seed(1)
    guess = BodyParams(
        truth.pose + 0.1 * torch.randn(truth.pose.shape, generator=g),
        torch.zeros(10),
        truth.translation + 0.05 * torch.randn(12, 3, generator=g),
    )
    found = fitting.fit(seen(body, truth), CAMERA, body, init=guess)
    joints = body.at(guess).joints
    exact = body.at(truth).joints
    before = 1000 * ((joints - joints[:, :1]) - (exact - exact[:, :1])).norm(dim=-1).mean()
    assert joint_error_mm(body, found, truth).mean() < 0.6 * before
    torch.testing.assert_close(
        found.params.pose[:, 22:], guess.pose[:, 22:], atol=1e-4, rtol=0
    )  # hands: as guessed


def test_an_error_that_lasts_does_not_bend_the_shape(body) -> None:
    """Hips marked too low in every frame: a hundred frames that say the same are not a hundred
    witnesses.
    """
    truth = walk(24)
    keypoints = seen(body, truth)
    keypoints.xy_px[:, 11:13, 1] += 5 * SIGMA_PX
    few = replace(
        keypoints,
        **{n: getattr(keypoints, n)[:3] for n in ("xy_px", "confidence", "presence", "area_px2")},
    )
    sizes = [
        float((fitting.fit(k, CAMERA, body).params.shape - truth.shape).norm())
        for k in (few, keypoints)
    ]
    assert sizes[1] < 1.5 * sizes[0]
    assert sizes[1] < 3


def test_one_frame_is_a_track_too(body) -> None:
    found = fitting.fit(seen(body, walk(1)), CAMERA, body)
    assert found.params.pose.shape == (1, 24, 3)
    assert found.reprojection_px.nanmean() < 3 * SIGMA_PX


def test_independent_frames_have_shapes_and_cameras_of_their_own(body) -> None:
    truth = walk(4)
    cameras = [fitting.Camera.from_focal(f, (1280, 960)) for f in (800.0, 1000.0, 1200.0, 1500.0)]
    frames = [
        seen(
            body,
            BodyParams(truth.pose[t : t + 1], truth.shape, truth.translation[t : t + 1]),
            camera=c,
        )
        for t, c in enumerate(cameras)
    ]
    keypoints = replace(
        frames[0],
        **{
            n: torch.cat([getattr(f, n) for f in frames])
            for n in ("xy_px", "confidence", "presence", "area_px2")
        },
    )
    found = fitting.fit_frames(keypoints, cameras, body)
    assert found.params.shape.shape == (4, 10)
    assert found.reprojection_px.nanmean() < 3 * SIGMA_PX
    assert not torch.equal(found.params.shape[0], found.params.shape[1])


def test_one_wild_keypoint_does_not_bend_the_body(body) -> None:
    truth = walk(10)
    clean = seen(body, truth)
    xy = clean.xy_px.clone()
    xy[4, 9] += torch.tensor([300.0, -200.0])
    good, wild = (fitting.fit(k, CAMERA, body) for k in (clean, replace(clean, xy_px=xy)))
    pixels = [CAMERA.project(body.at(found.params).joints) for found in (good, wild)]
    assert (pixels[0] - pixels[1]).norm(dim=-1).mean() < 2 * SIGMA_PX


def test_lens_distortion_is_undone(body) -> None:
    truth = walk(3)
    camera = replace(CAMERA, distortion=(-0.2, 0.05, 0.0, 0.0))
    found = fitting.fit(seen(body, truth, 0.0, camera), camera, body)
    assert found.reprojection_px.nan_to_num().max() < 4 * SIGMA_PX


@pytest.mark.parametrize("weighting", ["ones", "confidence", "squared", "gate"])
def test_every_weighting_fits_and_only_precision_states_uncertainty(body, weighting) -> None:
    keypoints = seen(body, walk(4))
    found = fitting.fit(keypoints, CAMERA, body, weighting=weighting)
    assert found.weighting == weighting
    assert found.joint_std_mm is None
    assert fitting.fit(keypoints, CAMERA, body).joint_std_mm is not None


def test_raw_confidence_states_no_uncertainty(body) -> None:
    assert (
        fitting.fit(replace(seen(body, walk(2)), source="raw"), CAMERA, body).joint_std_mm is None
    )


def test_a_frame_that_shows_nothing_is_filled_from_its_neighbours(body) -> None:
    truth = walk(11)
    whole = seen(body, truth)
    xy = whole.xy_px.clone()
    presence = whole.presence.clone()
    xy[5] = torch.nan
    presence[6] = 0
    xy[7, 3:] = torch.inf
    found = fitting.fit(replace(whole, xy_px=xy, presence=presence), CAMERA, body)
    assert found.observed.tolist() == [True] * 5 + [False] * 3 + [True] * 3
    assert not found.used[5:8].any()
    assert found.reprojection_px[5:8].isnan().all()
    exact = body.at(truth).joints
    assert (CAMERA.project(body.at(found.params).joints[5:8]) - CAMERA.project(exact[5:8])).norm(
        dim=-1
    ).mean() < 25


def test_one_bad_keypoint_is_left_out_and_the_rest_is_used(body) -> None:
    keypoints = seen(body, walk(3))
    keypoints.xy_px[1, 9] = torch.nan
    found = fitting.fit(keypoints, CAMERA, body)
    assert found.observed.all()
    assert not found.used[1, 9]
    assert int((~found.used[:, :17]).sum()) == 1


def test_in_independent_frames_the_blind_one_is_marked_and_the_others_are_solved(body) -> None:
    keypoints = seen(body, walk(3))
    keypoints.presence[1] = 0
    found = fitting.fit_frames(keypoints, CAMERA, body)
    assert found.observed.tolist() == [True, False, True]
    assert torch.isfinite(found.params.pose).all()
    assert found.joint_std_mm is not None
    assert found.joint_std_mm[1].isnan().all()
    assert torch.isfinite(found.joint_std_mm[[0, 2]]).all()


def test_no_frames_are_refused(body) -> None:
    empty = Keypoints(torch.zeros(0, 17, 2), torch.zeros(0, 17), torch.zeros(0, 17), "ccnet")
    with pytest.raises(UserError, match="no frames"):
        fitting.fit(empty, CAMERA, body)


def test_three_keypoints_are_refused_and_four_are_not(body) -> None:
    keypoints = seen(body, walk(1))
    keypoints.presence[:, 4:] = 0
    assert torch.isfinite(fitting.fit(keypoints, CAMERA, body).params.pose).all()
    keypoints.presence[:, 3] = 0
    with pytest.raises(UserError, match="no frame has 4 keypoints"):
        fitting.fit(keypoints, CAMERA, body)


def test_nothing_but_nan_is_refused(body) -> None:
    keypoints = seen(body, walk(2))
    with pytest.raises(UserError, match="no frame has 4 keypoints"):
        fitting.fit(
            replace(keypoints, xy_px=torch.full_like(keypoints.xy_px, torch.nan)), CAMERA, body
        )


def test_a_guess_behind_the_camera_is_refused_and_in_some_frames_replaced(body) -> None:
    truth = walk(6)
    keypoints = seen(body, truth)
    behind = BodyParams(truth.pose, truth.shape, truth.translation * torch.tensor([1.0, 1.0, -1.0]))
    with pytest.raises(UserError, match="behind the camera"):
        fitting.fit(keypoints, CAMERA, body, init=behind)
    partly = BodyParams(truth.pose, truth.shape, truth.translation.clone())
    partly.translation[2, 2] = -4
    found = fitting.fit(keypoints, CAMERA, body, init=partly)
    assert (body.at(found.params).keypoints[..., 2] > 0).all()


def test_confidence_beyond_one_and_other_skeletons_are_refused(body) -> None:
    keypoints = seen(body, walk(1))
    with pytest.raises(UserError, match="between 0 and 1"):
        fitting.fit(replace(keypoints, confidence=keypoints.confidence * 100), CAMERA, body)
    with pytest.raises(UserError, match="mpii16"):
        fitting.fit(replace(keypoints, skeleton=MPII16), CAMERA, body)
    with pytest.raises(UserError, match="choose lifter"):
        fitting.fit(keypoints, CAMERA, body, init="magic")
    with pytest.raises(UserError, match="fps"):
        fitting.fit(keypoints, CAMERA, body, fps=0.0)


def test_all_keypoints_on_one_pixel_do_not_crash(body) -> None:
    keypoints = seen(body, walk(2))
    found = fitting.fit(
        replace(keypoints, xy_px=torch.full_like(keypoints.xy_px, 400.0)), CAMERA, body
    )
    assert torch.isfinite(found.params.translation).all()


def test_a_floor_keeps_feet_out_of_it(body) -> None:
    keypoints = seen(body, walk(6))

    def lowest(found: fitting.Fit) -> torch.Tensor:
        return (body.at(found.params).keypoints[:, FEET, 1] + foot_lifts(body)).amax(
            1
        )  # of the soles; y is down

    free = lowest(fitting.fit(keypoints, CAMERA, body))
    limit = float(free.max()) - 0.05
    held = lowest(
        fitting.fit(
            keypoints,
            CAMERA,
            body,
            scene=fitting.SceneTerms(torch.tensor([0.0, -1.0, 0.0]), floor_m=-limit),
        )
    )
    assert (held - limit).max() < 0.5 * (free - limit).max()


def test_a_body_with_pose_correctives_is_fitted_through_them(body) -> None:
    """As SMPL has them: they move keypoints, and the fit must account for it."""
    generator = torch.Generator().manual_seed(0)
    posedirs = 3e-3 * torch.randn(len(body.v_template), 3, 207, generator=generator)
    given = {
        name: getattr(body, name)
        for name, entry in fitting.Body.__dataclass_fields__.items()
        if entry.init
    }
    corrected = fitting.Body(**{**given, "posedirs": posedirs})
    truth = walk(6)
    found = fitting.fit(seen(corrected, truth), CAMERA, corrected)
    assert found.stopped == "converged"
    assert found.reprojection_px.nanmean() < 3 * SIGMA_PX
