"""SMPLify gives SPIN's numbers in the crop, and the same in any frame and size."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

import fitting
from fitting import BodyParams, Camera
from fitting.smplify import (
    Observations,
    SmplifySettings,
    backward_bend,
    body_loss,
    camera_loss,
    coco17,
    fit_points,
    load_max_mixture,
    make_placer,
    max_mixture,
    smplify,
    torso_reprojection,
)
from fitting.solver.terms.pose_prior import Mixture
from fitting.solver.terms.reprojection import project
from pose2d.base.errors import UserError
from pose2d.skeletons import COCO17
from pose2d.types import Keypoints
from tests.fitting.spin49 import COCO_SLOTS, NAMES, openpose49
from tests.references import answers, relative_error, rules


@pytest.fixture(scope="module")
def rule():
    return rules()


@pytest.fixture(scope="module")
def spin():
    return {
        key: torch.from_numpy(np.asarray(value)) for key, value in answers("spin_smplify").items()
    }


@pytest.fixture(scope="module")
def sight(spin):
    focal = torch.full((2, 2), 5000.0)
    return Observations(
        spin["kp2d"][..., :2], spin["kp2d"][..., 2], focal, spin["center"], torch.ones(2)
    )


@pytest.fixture(scope="module")
def toy(rule, tmp_path_factory):
    path = tmp_path_factory.mktemp("toy") / "SMPL_NEUTRAL.pkl"
    path.write_bytes(pickle.dumps(rule.toy_body(), protocol=2))
    return fitting.load_body(path)


@pytest.fixture(scope="module")
def points(rule, toy):
    return openpose49(toy, rule.toy_extra_regressor())


@pytest.fixture(scope="module")
def prior(rule):
    mixture = rule.toy_pose_mixture()
    return max_mixture(Mixture(mixture["weights"], mixture["means"], mixture["covars"]))


@pytest.fixture(scope="module")
def start(spin):
    return BodyParams(spin["pose0"].unflatten(1, (24, 3)), spin["betas0"], spin["cam0"])


@pytest.mark.parametrize("through", ["mesh", "bones", "smplx"])
def test_the_49_points_are_spins(spin, toy, points, through):
    placed = make_placer(toy, points, through)(spin["pose0"], spin["betas0"])
    torch.testing.assert_close(placed, spin["joints49_0"], atol=1e-6, rtol=0)
    projected = project(placed + spin["cam0"][:, None], torch.full((2, 2), 5000.0), spin["center"])
    torch.testing.assert_close(projected, spin["proj0"], atol=1e-4, rtol=0)


def test_the_losses_are_spins(spin, sight, points, prior):
    settings = SmplifySettings()
    placed = spin["joints49_0"]
    cam = spin["cam0"]
    for moved, expected in ((cam, "camera_loss0"), (cam + 0.1, "camera_loss_moved")):
        loss = camera_loss(placed, moved, cam[:, 2], sight, points, settings).sum()
        torch.testing.assert_close(loss, spin[expected], rtol=1e-5, atol=0)
    everything = replace(points, ignored=())
    body_pose = spin["pose0"][:, 3:]
    loss, errors = body_loss(
        placed, body_pose, spin["betas0"], cam, sight, everything, prior, settings
    )
    torch.testing.assert_close(loss.sum(), spin["body_loss0"], rtol=1e-5, atol=0)
    assert relative_error(errors, spin["reproj0"].numpy()) < 1e-5
    torch.testing.assert_close(prior.energy(body_pose)[0], spin["gmm0"], rtol=1e-5, atol=0)
    torch.testing.assert_close(backward_bend(body_pose), spin["angle0"], rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("iterations", "through"),
    [(1, "mesh"), (10, "mesh"), (100, "mesh"), (10, "bones"), (10, "smplx")],
)
def test_the_fits_are_spins(spin, sight, toy, points, prior, start, iterations, through):
    fit = fit_points(
        sight, toy, points, start, prior, SmplifySettings(iterations=iterations), through
    )
    expected = {
        key: spin[f"{key}_it{iterations}"] for key in ("joints", "pose", "betas", "cam", "reproj")
    }
    pose = fit.params.pose.flatten(1)
    shape = fit.params.shape
    torch.testing.assert_close(pose, expected["pose"], atol=1e-4, rtol=0)
    torch.testing.assert_close(shape, expected["betas"], atol=1e-4, rtol=0)
    torch.testing.assert_close(fit.params.translation, expected["cam"], atol=1e-5, rtol=0)
    torch.testing.assert_close(
        make_placer(toy, points, "mesh")(pose, shape), expected["joints"], atol=1e-5, rtol=0
    )
    assert relative_error(fit.reprojection, expected["reproj"].numpy()) < 1e-4


def test_frames_do_not_depend_on_who_else_is_in_the_batch(sight, toy, points, prior, start):
    settings = SmplifySettings(iterations=3)
    together = fit_points(sight, toy, points, start, prior, settings, "bones")
    apart = fit_points(sight, toy, points, start, prior, replace(settings, batch=1), "bones")
    torch.testing.assert_close(together.params.pose, apart.params.pose, atol=1e-6, rtol=0)
    torch.testing.assert_close(together.loss, apart.loss)


def test_coco_keypoints_go_to_the_slots_of_their_names(toy, points):
    assert tuple(NAMES[slot] for slot in COCO_SLOTS) == COCO17.keypoints
    # Those slots are the same points of the body, but for the hips, which SPIN regresses from the
    # mesh.
    own = coco17(toy)
    limbs = [k for k in range(17) if "hip" not in COCO17.keypoints[k]]
    at = [COCO_SLOTS[k] for k in limbs]
    assert torch.equal(own.joint_part[limbs], points.joint_part[at])
    assert torch.equal(own.vertex_part[limbs], points.vertex_part[at])
    assert [COCO_SLOTS[k] for k in own.torsos[0]] == list(points.torsos[1])
    assert {COCO_SLOTS[k] for k in own.ignored} == {slot for slot in points.ignored if slot >= 25}


def test_smplifys_own_mixture_is_read_and_another_pickle_is_refused(rule, prior, tmp_path):
    path = tmp_path / "gmm_08.pkl"
    path.write_bytes(pickle.dumps(rule.toy_pose_mixture(), protocol=2))
    assert torch.equal(load_max_mixture(path).precision, prior.precision)
    wrong = tmp_path / "other.pkl"
    wrong.write_bytes(
        pickle.dumps(
            {"means": np.zeros((8, 63)), "covars": np.zeros(3), "weights": np.ones(8)}, protocol=2
        )
    )
    with pytest.raises(UserError, match="not a pose prior"):
        load_max_mixture(wrong)


# In the full frame, on the embedded body
# ---------------------------------------------------------------------------

CAMERA = Camera.from_focal(1000.0, (1280, 720))


@pytest.fixture(scope="module")
def body():
    return fitting.load_body()


@pytest.fixture(scope="module")
def truth():
    generator = torch.Generator().manual_seed(1)
    pose = 0.15 * torch.randn(2, 24, 3, generator=generator)
    pose[:, 0] = torch.tensor([torch.pi, 0.0, 0.0])  # upright: the camera's y points down
    return BodyParams(pose, torch.zeros(10), torch.tensor([[0.8, 0.1, 4.0], [-1.0, 0.2, 6.0]]))


@pytest.fixture(scope="module")
def seen(body, truth):
    xy = CAMERA.project(body.at(truth).keypoints[:, :17])
    return Keypoints(xy, torch.full((2, 17), 0.8), torch.ones(2, 17), "oracle")


def nearby(truth):
    return replace(
        truth,
        pose=0.5 * truth.pose
        + torch.tensor([torch.pi / 2, 0, 0]) * (torch.arange(24) == 0)[:, None],
    )


def test_a_fit_comes_closer_to_what_is_seen(body, truth, seen):
    begin = nearby(truth)
    begin = replace(begin, translation=begin.translation + torch.tensor([0.15, -0.1, 0.0]))
    fit = smplify(seen, CAMERA, body, begin, SmplifySettings(iterations=40), through="bones")

    def pixels(params):
        return (CAMERA.project(body.at(params).keypoints[:, :17]) - seen.xy_px).norm(dim=-1).mean(1)

    assert (pixels(fit.params) < 0.25 * pixels(begin)).all()
    assert fit.params.shape.shape == (2, 10)
    assert fit.loss.shape == (2,)
    assert fit.reprojection[:, 11:13].abs().max() == 0  # hips take no part in the second stage


def test_a_image_twice_as_large_gives_the_same_body(body, truth, seen):
    large = Camera((2000.0, 2000.0), (1280.0, 720.0), (2560, 1440))
    settings = SmplifySettings(iterations=10)
    small_fit = smplify(seen, CAMERA, body, nearby(truth), settings, through="bones")
    large_fit = smplify(
        replace(seen, xy_px=2 * seen.xy_px), large, body, nearby(truth), settings, through="bones"
    )
    torch.testing.assert_close(small_fit.params.pose, large_fit.params.pose, atol=1e-4, rtol=0)
    torch.testing.assert_close(
        small_fit.params.translation, large_fit.params.translation, atol=1e-4, rtol=0
    )
    torch.testing.assert_close(small_fit.reprojection, large_fit.reprojection, atol=1e-2, rtol=1e-3)


def test_confidence_counts_by_its_power(body, truth, seen):
    def errors(power):
        settings = SmplifySettings(iterations=0, conf_power=power)
        return smplify(seen, CAMERA, body, nearby(truth), settings, through="bones").reprojection

    torch.testing.assert_close(errors(2.0), 0.8 * errors(1.0))
    torch.testing.assert_close(errors(1.0), 0.8 * errors(0.0))


def test_keypoints_that_nobody_saw_do_not_pull(body, truth, seen):
    confidence = seen.confidence.clone()
    confidence[:, [5, 9]] = 0
    settings = SmplifySettings(iterations=3)
    fits = []
    for nonsense in (0.0, 1e4):
        xy = seen.xy_px.clone()
        xy[:, [5, 9]] = nonsense
        given = replace(seen, xy_px=xy, confidence=confidence)
        fits.append(smplify(given, CAMERA, body, nearby(truth), settings, through="bones"))
    assert torch.equal(fits[0].params.pose, fits[1].params.pose)
    assert torch.equal(fits[0].params.translation, fits[1].params.translation)


def test_the_first_torso_seen_whole_counts():
    projected = torch.zeros(2, 4, 2)
    xy = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]]).expand(2, 4, 2)
    confidence = torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 0.0]])
    loss = torso_reprojection(projected, xy, confidence, torch.ones(2), ((0, 1), (2, 3)))
    assert loss.tolist() == [1 + 4, 9]


def test_a_start_that_cannot_be_used_is_refused(body, truth, seen):
    behind = replace(truth, translation=-truth.translation)
    with pytest.raises(UserError, match="behind the camera in frame 0"):
        smplify(seen, CAMERA, body, behind)
    with pytest.raises(UserError, match="pose has 1 rows"):
        smplify(seen, CAMERA, body, replace(truth, pose=truth.pose[:1]))
    with pytest.raises(UserError, match="not finite"):
        smplify(seen, CAMERA, body, replace(truth, pose=truth.pose * torch.nan))
    with pytest.raises(UserError, match="the start has 1 frames; the keypoints have 2"):
        smplify(seen, CAMERA, body, truth.rows(slice(0, 1)))
    with pytest.raises(UserError, match="iterations >= 0"):
        SmplifySettings(iterations=-1)
