"""The image network's data and training, on a few crops."""

import csv
import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from eval3dpw.captured.motion import Motion
from eval3dpw.synth.motion import load_clips
from fitting.body.kinematics import MIRROR
from fitting.body.load import load_body
from fitting.init.lifter_inputs import Observation
from pose2d.base.errors import UserError
from pose2d.models.loading import load as load_model
from training.crops.draws import Crowd
from training.crops.renderer import CropRenderer
from training.crops.shards import ShardWriter, load_shard
from training.examples.crop_examples import load_crops
from training.examples.lifter_examples import place_bodies
from training.examples.marks import mark_offsets
from training.examples.views import PELVIS_M, draw_views, move_to_floor_or_ceiling
from training.image.batches import (
    Draw,
    crop_inputs,
    draw_crops,
    real_batch,
    rendered_batch,
    unchanged,
)
from training.image.habits import draw_lowering, lower_hips
from training.image.loop import (
    ImageSettings,
    ImageTraining,
    Schedule,
    learning_rate,
    shards_in,
    train,
)
from training.image.losses import real_loss
from training.image.maps import MapCache
from training.image.network import BONES, BoneSlopes, ImageLifter, bone_slopes
from training.image.pseudo_truth import fit_marks
from training.image.real_people import (
    MARKED,
    RealShard,
    load_fits,
    load_real,
    reprojection_loss,
)
from training.image.validation import validate, validate_measured
from training.motion.bank import bank
from training.motion.surface_points import CONTACTS

MODEL = "rtmpose-s-halpe26"
CROPS = 6
SETTINGS = ImageSettings(steps=4, batch=4, real=2, warmup=2)


def test_hips_are_lowered_by_a_share_of_the_thigh():
    rays = torch.randn(3, 26, 2)
    plain = Observation(rays, *[torch.zeros(3)] * 6)
    low = torch.tensor([0.0, 0.1, 0.2])
    moved, points = lower_hips(plain, 100 * rays, low)
    thigh = rays[:, 13] - rays[:, 11]
    torch.testing.assert_close(moved.rays[:, 11] - rays[:, 11], low[:, None] * thigh)
    torch.testing.assert_close(points, 100 * moved.rays)
    same = [k for k in range(26) if k not in (11, 12, 19)]
    assert torch.equal(moved.rays[:, same], rays[:, same])


def test_the_habit_differs_between_people():
    low = draw_lowering(4000, torch.Generator().manual_seed(0))
    lowered = low[low != 0]
    assert 0.65 < len(lowered) / len(low) < 0.75
    assert lowered.mean() == pytest.approx(0.10, abs=0.01)
    assert 0.03 < lowered.std() < 0.06


def test_some_cameras_are_near_the_floor_or_the_ceiling():
    generator = torch.Generator().manual_seed(0)
    view = draw_views(400, generator)
    moved = move_to_floor_or_ceiling(view, 1.0, generator)
    above_pelvis = -torch.einsum("bji,bj->bi", moved.turn, moved.target_m)[:, 1]
    height = PELVIS_M + above_pelvis
    near_floor = (height > 0) & (height < 0.5)
    near_ceiling = (height > 2.2) & (height < 4.8)
    assert (near_floor | near_ceiling).float().mean() > 0.75
    assert near_floor.float().mean() > 0.2
    assert near_ceiling.float().mean() > 0.2
    assert torch.equal(moved.target_m, view.target_m)


def test_a_bone_that_points_at_the_camera_has_slope_minus_one():
    joints = torch.zeros(1, 24, 3)
    start, end = BONES[0]
    joints[0, end] = torch.tensor([0.0, 0.0, -0.4])
    assert bone_slopes(joints)[0, 0] == pytest.approx(-1)
    joints[0, end] = joints[0, start] + torch.tensor([0.3, 0.0, 0.4])
    assert bone_slopes(joints)[0, 0] == pytest.approx(0.8)


def test_the_likelihood_of_slopes_is_a_density():
    weight = torch.tensor([0.5, 0.3, 0.2])
    slopes = BoneSlopes(
        weight.log()[None, None],
        torch.tensor([[[-0.5, 0.5, 0.0]]]),
        torch.tensor([[[0.1, 0.2, 0.3]]]),
    )
    grid = torch.linspace(-3, 3, 6001)
    density = torch.stack([slopes.log_likelihood(at.view(1, 1)) for at in grid]).exp().flatten()
    assert torch.trapezoid(density, grid) == pytest.approx(1, abs=1e-3)
    assert torch.trapezoid(density * grid, grid) == pytest.approx(
        float(slopes.expected()), abs=1e-3
    )


def test_kept_maps_are_computed_once(tmp_path):
    calls = []

    def compute(rows):
        calls.append(rows.tolist())
        return rows.view(-1, 1, 1, 1) * torch.ones(len(rows), 256, 16, 12)

    for cache in (MapCache(tmp_path), MapCache(tmp_path)):  # the second one reads the files
        maps = cache.maps("train_00000", 5, torch.tensor([3, 1, 3]), compute)
        assert maps[:, 0, 0, 0].tolist() == [3.0, 1.0, 3.0]
    assert calls == [[1, 3]]
    maps = cache.maps("train_00000", 5, torch.tensor([0, 1]), compute)
    assert maps[:, 5, 2, 2].tolist() == [0.0, 1.0]
    assert calls == [[1, 3], [0]]


def test_the_rate_rises_and_falls():
    settings = ImageSettings(steps=1000, warmup=100)
    rates = [learning_rate(step, settings) for step in range(1000)]
    assert rates[0] < rates[99] == pytest.approx(settings.rate)
    assert rates[-1] < 0.02 * settings.rate


def grey_photos() -> Iterator[np.ndarray]:
    while True:
        yield np.full((60, 80, 3), 0.3, np.float32)


@pytest.fixture(scope="module")
def body():
    return load_body()


@pytest.fixture(scope="module")
def model():
    return load_model(MODEL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, body, model):
    """Two shards of a few rendered crops."""
    out = tmp_path_factory.mktemp("crops")
    clips = load_clips(body, "test")[:4]
    pose = torch.cat([clip.pose for clip in clips])
    start = np.cumsum([0, *(len(clip.pose) for clip in clips)])
    root = torch.cat([clip.root_m for clip in clips])
    motion = Motion(pose, root, start, tuple(clip.name for clip in clips), 30.0)
    banked = bank(motion, body, np.ones(len(clips), bool))
    is_bar = torch.arange(len(pose)) % 2 == 0
    rng = np.random.default_rng(0)
    crowd = Crowd([banked], banked, is_bar, body, seed=0)
    people = iter(CropRenderer(crowd, body, model, grey_photos(), rng))
    writer = ShardWriter(model, MODEL)
    writer.write(out / "train_00000.npz", people, CROPS)
    writer.write(out / "held_out_00000.npz", people, CROPS)
    return out


@pytest.mark.slow
def test_a_shard_holds_pixels_keypoints_and_truth(folder, body, model):
    (path,) = shards_in([folder], "train")
    shard = load_shard(path)
    assert len(shard) == CROPS
    width, height = model.input_wh
    pixels = shard.pixels(torch.arange(CROPS))
    assert pixels.shape == (CROPS, 3, height, width)
    assert pixels.float().std() > 5
    assert shard.contacts is not None
    assert shard.contacts.shape == (CROPS, len(CONTACTS))
    # The lifter reads the same files.
    assert torch.equal(load_crops(path).turn, shard.crops.turn)


@pytest.mark.slow
def test_the_true_joints_project_near_the_keypoints(folder, body, model):
    shard = load_shard(folder / "train_00000.npz")
    batch = rendered_batch(shard, unchanged(torch.arange(CROPS)), model, body)
    examples = batch.examples
    points = examples.keypoints_m[:, 0] + examples.pelvis_m[:, 0, None]
    in_boxes = points[..., :2] / points[..., 2:] / examples.inputs.box.size[:, 0, None, None]
    off = (in_boxes - examples.inputs.points[:, 0]).norm(dim=-1)
    sure = shard.crops.keypoints.confidence > 0.7
    assert off[sure].median() < 0.3


def mirrored(rows: torch.Tensor) -> Draw:
    return replace(unchanged(rows), flip=torch.ones(len(rows), dtype=torch.bool))


@pytest.mark.slow
def test_the_mirror_image_has_the_same_depths(folder, body, model):
    shard = load_shard(folder / "train_00000.npz")
    rows = torch.arange(2)
    plain = rendered_batch(shard, unchanged(rows), model, body)
    flipped = rendered_batch(shard, mirrored(rows), model, body)
    pixels = crop_inputs(shard, unchanged(rows), model)
    assert torch.equal(crop_inputs(shard, mirrored(rows), model).flip(-1), pixels)
    torch.testing.assert_close(
        flipped.examples.joints_m[..., 2],
        plain.examples.joints_m[:, :, list(MIRROR), 2],
        atol=0.02,
        rtol=0,
    )


def test_crops_with_kept_maps_keep_their_pixels():
    generator = torch.Generator().manual_seed(0)
    draw = draw_crops(100, 20, True, generator)
    assert not draw.flip.any()
    assert (draw.gain == 1).all()
    assert (draw.low != 0).any()


@pytest.mark.slow
def test_before_training_the_network_says_what_the_lifter_says(folder, body, model):
    shard = load_shard(folder / "train_00000.npz")
    network = ImageLifter(model, body)
    assert sum(p.numel() for p in network.parameters()) * 2 < 12e6  # bytes in half precision
    draw = unchanged(torch.arange(3))
    batch = rendered_batch(shard, draw, model, body)
    early = network.early_features(crop_inputs(shard, draw, model))
    output = network(early, batch.features, batch.points)
    assert output.body.rotation.shape == (3, 1, 24, 3, 3)
    assert output.slopes.mean.shape == (3, len(BONES), 3)
    assert output.contact_logits.shape == (3, len(CONTACTS))
    torch.testing.assert_close(output.body.rotation, output.base.rotation, atol=0.03, rtol=0)
    figures = validate(network, [shard], model, body, CROPS)
    assert np.isfinite(list(figures.values())).all()
    assert figures["MPJPE mm"] == pytest.approx(figures["lifter MPJPE mm"], rel=0.03)


def seen_body(body, batch):
    """The true bodies of a batch of rendered people, and their pelvises."""
    examples = batch.examples
    placed = place_bodies(body, examples.rotation[:, 0], examples.shape)
    return placed, examples.pelvis_m[:, 0]


@pytest.mark.slow
def test_true_bodies_project_onto_their_marks(folder, body, model):
    shard = load_shard(folder / "train_00000.npz")
    batch = rendered_batch(shard, unchanged(torch.arange(CROPS)), model, body)
    placed, pelvis = seen_body(body, batch)
    box = batch.examples.inputs.box
    alone = box._replace(to_camera=box.to_camera[:, 0], size=box.size[:, 0])
    points = (
        placed.keypoints + mark_offsets(placed.turned[:, None], torch.zeros(CROPS, 26, 3))[:, 0]
    )
    in_camera = torch.einsum("bij,bkj->bki", alone.to_camera, points + pelvis[:, None])
    marks = (in_camera[..., :2] / in_camera[..., 2:])[:, :MARKED]
    weight = torch.ones(CROPS, MARKED)
    exact = reprojection_loss(placed, pelvis, alone, marks, weight)
    assert exact < 1e-3
    weight[:, 9] = 0
    moved = marks.clone()
    moved[:, (9, 11, 12)] += 1  # one that is not annotated, and hips
    assert reprojection_loss(placed, pelvis, alone, moved, weight) == pytest.approx(
        float(exact), abs=1e-3
    )
    moved[:, 10] += 0.1
    assert reprojection_loss(placed, pelvis, alone, moved, weight) > exact + 1e-3


@pytest.fixture(scope="module")
def real_folder(folder, body, model):
    """A file of "real" people beside the rendered ones, which are taken from them."""
    with np.load(folder / "train_00000.npz") as arrays:
        content = dict(arrays)
    content["marked_rays"] = content["rays"][:, :MARKED]
    content["mark_weight"] = np.ones((CROPS, MARKED), np.float32)
    np.savez(folder / "real_00000.npz", **content)
    spread = np.random.default_rng(0).normal(0, 0.3, (CROPS, 12, 3))
    content["points_m"] = spread + np.array((0.0, 0.0, 3.0))
    np.savez(folder / "measured.npz", **content)
    return folder


@pytest.mark.slow
def test_real_people_are_mirrored_with_their_marks(real_folder, body, model):
    shard = load_real(real_folder / "real_00000.npz")
    rows = torch.arange(2)
    plain = real_batch(shard, unchanged(rows), model, body)
    flipped = real_batch(shard, mirrored(rows), model, body)
    torch.testing.assert_close(flipped.marked_rays[:, 9, 0], -plain.marked_rays[:, 10, 0])
    torch.testing.assert_close(flipped.marked_rays[:, 9, 1], plain.marked_rays[:, 10, 1])
    torch.testing.assert_close(flipped.points[:, 9, 1], plain.points[:, 10, 1])


@pytest.mark.slow
def test_real_people_are_measured_and_learned_from(real_folder, body, model):
    network = ImageLifter(model, body)
    shard: RealShard = load_real(real_folder / "measured.npz")
    figures = validate_measured(network, shard, model, body)
    assert np.isfinite(list(figures.values())).all()
    draw = unchanged(torch.arange(3))
    batch = real_batch(shard, draw, model, body)
    early = network.early_features(crop_inputs(shard, draw, model))
    loss = real_loss(network(early, batch.features, batch.points), batch, body)
    loss.backward()
    assert network.to_rotation.weight.grad is not None
    assert network.to_rotation.weight.grad.abs().sum() > 0


@pytest.mark.slow
def test_bodies_are_fitted_to_marks_and_learned_from(real_folder, body, model, tmp_path):
    network = ImageLifter(model, body).eval()
    shard = load_real(real_folder / "real_00000.npz")
    fits = fit_marks(shard, network, model, body)
    assert bool(fits.is_good.any())
    fits.save(tmp_path / "fits_00000.npz")
    again = load_fits(tmp_path / "fits_00000.npz")
    assert torch.equal(again.turn, fits.turn)
    draw = unchanged(torch.arange(CROPS))
    batch = real_batch(shard, draw, model, body, again)
    assert batch.fits is not None
    assert torch.equal(batch.fits.counts[:, 0] > 0, fits.is_good)
    # Where a fit is good, its keypoints project onto the marks.
    alone = batch.inputs.box._replace(
        to_camera=batch.inputs.box.to_camera[:, 0], size=batch.inputs.box.size[:, 0]
    )
    placed = place_bodies(body, batch.fits.rotation[:, 0], again.shape)
    weight = batch.mark_weight * fits.is_good[:, None]
    miss = reprojection_loss(placed, batch.fits.pelvis_m[:, 0], alone, batch.marked_rays, weight)
    assert miss < 0.2
    early = network.early_features(crop_inputs(shard, draw, model))
    output = network(early, batch.features, batch.points)
    assert real_loss(output, batch, body) > real_loss(output, replace(batch, fits=None), body)


@pytest.mark.slow
@pytest.mark.parametrize("keeps_maps", [False, True])
def test_a_stopped_training_goes_on_as_if_it_had_not_been(
    real_folder, body, model, tmp_path, monkeypatch, keeps_maps
):
    folder = real_folder
    maps = tmp_path / "maps" if keeps_maps else None
    schedule = Schedule(held_out_crops=4)
    whole = tmp_path / "whole"
    halves = tmp_path / "halves"
    for out in (whole, halves):
        out.mkdir()
    ended = train([folder], whole, model, body, SETTINGS, schedule, maps)
    assert ended.step == SETTINGS.steps

    advance = ImageTraining.advance

    def stop_after_two(self, *arguments):
        advance(self, *arguments)
        if self.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(ImageTraining, "advance", stop_after_two)
    assert train([folder], halves, model, body, SETTINGS, schedule, maps).step == 2
    resumed = train([folder], halves, model, body, SETTINGS, schedule, maps)
    assert all(torch.equal(resumed.mean[name], value) for name, value in ended.mean.items())
    with (halves / "held_out.csv").open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["4"]
    with pytest.raises(UserError, match="other settings"):
        train([folder], halves, model, body, replace(SETTINGS, batch=5), schedule)
