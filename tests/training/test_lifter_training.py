"""Training the lifter: examples that are what they say, losses that fall, and a training that can
be stopped.
"""

from dataclasses import replace

import pytest
import torch

import fitting
from fitting.body.kinematics import MIRROR
from fitting.body.rotations import quaternion_to_matrix, rotation_matrices
from fitting.init.lifter_inputs import FEATURES, Observation
from fitting.init.lifter_network import Lifter, LifterOutput, load_lifter
from pose2d.base.errors import UserError
from pose2d.skeletons import COCO17
from training.examples.crop_examples import Crops, draw_crop_examples
from training.examples.lifter_examples import draw_examples, place_bodies
from training.examples.simulated_keypoints import draw_mixtures, observe
from training.examples.views import DISTANCE_M, draw_views
from training.lifter import Training, TrainingSettings, learning_rate, losses, total_loss, train
from training.motion.bank import Bank, Windows, cut_windows, vary
from training.motion.kinds import LYING, SEATED, SHARES, STANDING, UPSIDE_DOWN, pose_kinds

TINY = TrainingSettings(steps=6, batch=8, warmup=2)


@pytest.fixture(scope="module")
def body():
    return fitting.load_body()


@pytest.fixture(scope="module")
def banks():
    """Two clips in which every joint swings a little."""
    generator = torch.Generator().manual_seed(3)
    turn = torch.zeros(80, 24, 4)
    turn[..., :3] = (
        0.2
        * torch.randn(24, 3, generator=generator)
        * torch.sin(torch.arange(80) / 6)[:, None, None]
    )
    turn[..., 3] = 1
    kind = torch.where(torch.arange(80) % 2 == 0, STANDING, SEATED)
    root = torch.stack((torch.arange(80) / 60, torch.ones(80), torch.zeros(80)), -1)
    return [
        Bank(
            torch.nn.functional.normalize(turn, dim=-1), root, torch.tensor([0, 50, 80]), kind, 30.0
        )
    ]


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


def as_answer(truth):
    """What a network that knows everything would say."""
    size = truth.inputs.box.size
    offset = truth.pelvis_m[..., :2] / truth.pelvis_m[..., 2:] / size[..., None]
    return LifterOutput(
        truth.rotation,
        truth.shape[:, None].expand(*size.shape, -1),
        offset,
        (truth.pelvis_m[..., 2] * size).log(),
        torch.zeros(*size.shape, 24),
        torch.zeros(size.shape),
    )


def test_the_truth_has_no_loss_but_for_bones_that_ten_shape_numbers_cannot_tell(body, banks):
    truth = draw_examples(banks, body, 16, drawn())
    found = losses(as_answer(truth), truth, body)
    for name in ("rotation", "place", "shape"):
        assert float(getattr(found, name)) < 1e-3, name
    assert float(found.joints) < 0.01
    assert float(found.image) < 0.03


def test_crops_mirrored_or_not_have_their_truth_where_their_keypoints_are(body):
    count = 12
    generator = drawn()
    turn = torch.nn.functional.normalize(
        torch.tensor([0.0, 0, 0, 1]) + 0.2 * torch.randn(count, 24, 4, generator=generator), dim=-1
    )
    turn[:, 0] = torch.nn.functional.normalize(torch.randn(count, 4, generator=generator), dim=-1)
    shape = torch.randn(count, body.shape_size, generator=generator)
    pelvis = torch.tensor([0.3, -0.2, 5.0]) + 0.2 * torch.randn(count, 3, generator=generator)
    points = (
        place_bodies(body, quaternion_to_matrix(turn)[:, None], shape[:, None]).keypoints[:, 0]
        + pelvis[:, None]
    )
    ones = torch.ones(count, 26)
    edges = torch.tensor([-0.1, -0.15, 0.12, 0.2]).repeat(count, 1)
    seen = Observation(
        points[..., :2] / points[..., 2:],
        ones[..., None],
        0.001 * ones[..., None],
        ones,
        ones,
        edges,
        ones[:, 0],
    )
    truth = draw_crop_examples(Crops(seen, turn, shape, pelvis), body, 64, generator)
    expected = truth.keypoints_m + truth.pelvis_m[:, :, None]
    projected = expected[..., :2] / expected[..., 2:] / truth.inputs.box.size[..., None, None]
    assert torch.allclose(projected, truth.inputs.points, atol=1e-4)
    edges_seen = truth.inputs.features[..., -4:].flatten(0, 1)
    assert (
        len(edges_seen.round(decimals=4).unique(dim=0)) > count
    )  # the image's edges are mirrored with the person


def test_keypoints_are_where_the_truth_puts_them_up_to_the_stated_sigma(body, banks):
    truth = draw_examples(banks, body, 64, drawn())
    points = truth.keypoints_m + truth.pelvis_m[:, :, None]
    exact = points[..., :2] / points[..., 2:] / truth.inputs.box.size[..., None, None]
    sure = truth.inputs.weight > 0.9
    assert sure.sum() > 500
    assert (truth.inputs.points - exact).norm(dim=-1)[sure].median() < 0.1


def test_errors_have_the_distribution_that_is_stated():
    rays = torch.randn(1, 1, 26, 2, generator=drawn(2)).mul(0.05).expand(400, 8, 26, 2)
    seen = observe(
        rays,
        torch.zeros(400, 8),
        torch.full((400, 2), 5.0),
        torch.zeros(400, dtype=torch.bool),
        drawn(),
    )
    squared = (seen.rays - rays).square().sum(-1, keepdim=True)
    below = (seen.error_weight * -torch.expm1(-squared / 2 / seen.error_sigma.square())).sum(-1)[
        seen.presence > 0.5
    ]
    for stated in (
        0.1,
        0.5,
        0.9,
    ):  # so many errors are below that quantile of the stated distribution
        assert abs(float((below < stated).float().mean()) - stated) < 0.05, stated
    mixed = (seen.error_weight > 0).sum(-1).flatten()
    assert set(mixed.tolist()) == {1, 3}  # some state one Gaussian, others a mixture


def test_a_stated_mixture_has_the_expected_oks_of_its_confidence():
    confidence = torch.linspace(0.1, 0.97, 50)
    weight, sigma = draw_mixtures(confidence, torch.ones(50, dtype=torch.bool), drawn())
    torch.testing.assert_close(weight.sum(-1), torch.ones(50))
    assert ((weight / (1 + sigma.square())).sum(-1) - confidence).abs().median() < 1e-5
    weight, sigma = draw_mixtures(confidence, torch.zeros(50, dtype=torch.bool), drawn())
    torch.testing.assert_close((weight / (1 + sigma.square())).sum(-1), confidence)


def test_frames_are_drawn_by_the_kind_of_their_pose(banks):
    made = cut_windows(banks, [1.0], torch.arange(8).expand(4000, 8) * 0.02, drawn())
    share = float((made.kind == STANDING).float().mean())
    expected = SHARES[STANDING] / (SHARES[STANDING] + SHARES[SEATED])
    assert abs(share - expected) < 0.04


def test_poses_are_told_apart(body):
    pose = torch.zeros(4, 24, 3)
    # both thighs forward, shanks down
    pose[1, 1:3, 0] = -1.5
    pose[1, 4:6, 0] = 1.5
    pose[2, 0, 0] = -1.5  # on the back
    pose[3, 0, 0] = 3.1
    assert pose_kinds(body(pose).joints).tolist() == [STANDING, SEATED, LYING, UPSIDE_DOWN]


def test_what_is_beyond_the_image_is_not_present():
    rays = torch.zeros(50, 8, 26, 2)
    rays[..., 13:, 1] = 2.0
    rays = rays + 0.05 * torch.randn(26, 2, generator=drawn(1))
    seen = observe(
        rays, torch.zeros(50, 8), torch.ones(50, 2), torch.zeros(50, dtype=torch.bool), drawn()
    )
    assert seen.presence[..., 13:].max() <= 0.2
    assert seen.presence[..., :13].median() > 0.8


def test_cameras_look_at_people_in_front_of_them():
    made = draw_views(500, drawn())
    assert (made.target_m[:, 2] >= DISTANCE_M[0] - 1e-4).all()
    torch.testing.assert_close(
        made.turn @ made.turn.mT, torch.eye(3).expand(500, 3, 3), atol=1e-5, rtol=0
    )
    up = made.turn[:, :, 1]  # the world's up, in the camera: mostly towards -y
    assert (up[:, 1] < -0.3).all()


def test_a_mirror_image_is_a_mirror_image(body, banks):
    """Joints of the mirrored pose are the mirrored joints, left and right in each other's place."""
    plain = cut_windows(banks, [1.0], torch.arange(8).expand(4, 8) * 0.1, drawn())
    mirrored = plain.turn[:, :, MIRROR] * torch.tensor([1.0, -1.0, -1.0, 1.0])
    zero = torch.zeros(4, 8, 10)
    here, there = (
        place_bodies(body, quaternion_to_matrix(turn), zero)[0] for turn in (plain.turn, mirrored)
    )
    torch.testing.assert_close(
        there, here[:, :, MIRROR] * torch.tensor([-1.0, 1.0, 1.0]), atol=5e-3, rtol=0
    )


def test_windows_stay_in_their_clip(banks):
    made = cut_windows(banks, [1.0], torch.arange(8).expand(200, 8) * 0.15, drawn())
    assert made.inside[:, 0].all()
    assert not made.inside.all()  # the short clip is shorter than the window
    step = made.root_m[:, 1:, 0] - made.root_m[:, :-1, 0]
    assert (
        step[made.inside[:, 1:]] - 0.15 / 2
    ).abs().max() < 1e-4  # 30 frames of 1/60 m a second, no jump across clips


def test_variation_keeps_rotations_rotations(banks):
    plain = cut_windows(banks, [1.0], torch.arange(8).expand(32, 8) * 0.1, drawn())
    more = vary(plain, drawn(1))
    torch.testing.assert_close(more.turn.norm(dim=-1), torch.ones(32, 8, 24))
    assert isinstance(more, Windows)
    assert (more.turn - plain.turn).abs().max() > 0.05


def test_frames_attend_only_to_those_they_may():
    torch.manual_seed(0)
    network = Lifter().eval()
    features = torch.randn(1, 6, FEATURES)
    time_s = torch.arange(6)[None] * 0.1
    alone = network(features, time_s, torch.eye(6, dtype=torch.bool)[None])
    one = network(features[:, 2:3], time_s[:, 2:3], torch.ones(1, 1, 1, dtype=torch.bool))
    torch.testing.assert_close(alone.rotation[:, 2:3], one.rotation, atol=1e-5, rtol=0)


def test_only_differences_of_time_matter():
    torch.manual_seed(0)
    network = Lifter().eval()
    features = torch.randn(1, 6, FEATURES)
    time_s = torch.arange(6)[None] * 0.1
    attends = torch.ones(1, 6, 6, dtype=torch.bool)
    here, later = (network(features, time_s + shift, attends).rotation for shift in (0.0, 1.7))
    torch.testing.assert_close(here, later, atol=1e-4, rtol=0)
    slower = network(features, 3 * time_s, attends).rotation
    assert (here - slower).abs().max() > 1e-6


def test_the_loss_falls(body, banks):
    settings = replace(TINY, steps=60, warmup=5)
    training = Training.begin(settings)
    measured = draw_examples(banks, body, 32, drawn(9))

    def now():
        with torch.no_grad():
            given = training.network(measured.inputs.features, measured.time_s, measured.attends)
            return float(total_loss(losses(given, measured, body)))

    before = now()
    for _ in range(60):
        training.advance(banks, None, body, settings)
    assert now() < 0.75 * before


def test_a_training_that_was_stopped_ends_like_one_that_was_not(body, banks, tmp_path, monkeypatch):
    monkeypatch.setattr("training.lifter.KEEP_EVERY", 2)
    straight = train(banks, banks, None, body, tmp_path / "a.npz", TINY, None, lambda _: None)

    class Stop(Exception):
        pass

    def stop_at_four(line):
        if line.startswith("step 4: held"):
            raise Stop

    with pytest.raises(Stop):
        train(banks, banks, None, body, tmp_path / "b.npz", TINY, None, stop_at_four)
    resumed = train(banks, banks, None, body, tmp_path / "b.npz", TINY, None, lambda _: None)
    for name, value in straight.mean.items():
        torch.testing.assert_close(resumed.mean[name], value, atol=0, rtol=0)
    assert (tmp_path / "a.npz").read_bytes()[:2] == b"PK"
    loaded = load_lifter(tmp_path / "b.npz").state_dict()
    torch.testing.assert_close(
        loaded["embed.weight"], straight.mean["embed.weight"], atol=2e-3, rtol=0
    )


def test_a_training_can_begin_with_weights(body, banks):
    start = {name: value + 0.01 for name, value in Lifter().state_dict().items()}
    begun = Training.begin(TINY, start)
    torch.testing.assert_close(begun.network.state_dict()["embed.weight"], start["embed.weight"])
    torch.testing.assert_close(begun.mean["embed.weight"], start["embed.weight"])


def test_a_checkpoint_of_other_settings_is_refused(body, banks, tmp_path):
    path = tmp_path / "c.pt"
    training = Training.begin(TINY)
    training.step = 5
    training.save(path, TINY)
    with pytest.raises(UserError, match="other settings"):
        Training.resume(path, replace(TINY, batch=16))
    with pytest.raises(UserError, match="other settings"):
        Training.resume(path, replace(TINY, steps=50))  # the rate is already falling
    training.step = 1
    training.save(path, TINY)
    assert Training.resume(path, replace(TINY, steps=50)).step == 1


def test_the_rate_of_learning_rises_stays_and_falls():
    settings = TrainingSettings(steps=1000, warmup=100, rate=1.0)
    assert learning_rate(0, settings) < 0.02
    assert learning_rate(100, settings) == learning_rate(390, settings) == pytest.approx(1.0)
    assert learning_rate(999, settings) == pytest.approx(0.01, abs=1e-3)


def test_the_skeleton_mirrors_like_the_body(body):
    """Swapping left and right keypoints is what a mirror does: examples with swapped sides rely on
    it.
    """
    pose = torch.zeros(1, 24, 3)
    points = body(pose).keypoints[0, :17]
    torch.testing.assert_close(
        points[COCO17.flip_order] * torch.tensor([-1.0, 1.0, 1.0]), points, atol=5e-3, rtol=0
    )
    assert rotation_matrices(pose).shape == (1, 24, 3, 3)
