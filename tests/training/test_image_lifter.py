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
from fitting.body.load import load_body
from fitting.init.lifter_inputs import Observation
from pose2d.base.errors import UserError
from pose2d.models.loading import load as load_model
from training.crops.draws import Crowd
from training.crops.renderer import CropRenderer
from training.crops.shards import ShardWriter, load_shard
from training.examples.crop_examples import load_crops
from training.examples.views import PELVIS_M, draw_views, move_to_floor_or_ceiling
from training.image.batches import fixed_batch, make_batch
from training.image.habits import draw_lowering, lower_hips
from training.image.loop import (
    ImageSettings,
    ImageTraining,
    Schedule,
    learning_rate,
    shards_in,
    train,
)
from training.image.losses import depth_target
from training.image.network import DEPTH_BINS, ImageLifter, depth_bins_m
from training.image.validation import validate
from training.motion.bank import bank
from training.motion.surface_points import CONTACTS

MODEL = "rtmpose-s-halpe26"
CROPS = 6
SETTINGS = ImageSettings(steps=4, batch=4, warmup=2)


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


def test_depth_targets_have_the_true_mean():
    depth = torch.tensor([-0.5, 0.0, 0.31])
    target = depth_target(depth)
    assert target.shape == (3, DEPTH_BINS)
    torch.testing.assert_close(target @ depth_bins_m(), depth, atol=0.01, rtol=0)


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
    batch = fixed_batch(shard, torch.arange(CROPS), model, body)
    examples = batch.examples
    points = examples.keypoints_m[:, 0] + examples.pelvis_m[:, 0, None]
    in_boxes = points[..., :2] / points[..., 2:] / examples.inputs.box.size[:, 0, None, None]
    off = (in_boxes - examples.inputs.points[:, 0]).norm(dim=-1)
    sure = shard.crops.keypoints.confidence > 0.7
    assert off[sure].median() < 0.3


@pytest.mark.slow
def test_mirroring_twice_gives_the_same_batch(folder, body, model):
    shard = load_shard(folder / "train_00000.npz")
    rows = torch.arange(2)
    pixels = shard.pixels(rows)
    zero = torch.zeros(2)
    plain = make_batch(shard, rows, zero.bool(), zero, pixels, model, body)
    flipped = make_batch(shard, rows, ~zero.bool(), zero, pixels, model, body)
    assert torch.equal(flipped.crops.flip(-1), plain.crops)
    torch.testing.assert_close(
        flipped.examples.joints_m[..., 2],
        plain.examples.joints_m[
            :,
            :,
            [0, 2, 1, 3, 5, 4, 6, 8, 7, 9, 11, 10, 12, 14, 13, 15, 17, 16, 19, 18, 21, 20, 23, 22],
            2,
        ],
        atol=0.02,
        rtol=0,
    )


@pytest.mark.slow
def test_the_network_states_bodies_depths_and_contacts(folder, body, model):
    shard = load_shard(folder / "train_00000.npz")
    network = ImageLifter(model)
    assert sum(p.numel() for p in network.parameters()) * 2 < 12e6  # bytes in half precision
    batch = fixed_batch(shard, torch.arange(3), model, body)
    output = network(
        network.early_features(batch.crops), batch.examples.inputs.features[:, 0], batch.points
    )
    assert output.body.rotation.shape == (3, 1, 24, 3, 3)
    assert output.depth_logits.shape == (3, 24, DEPTH_BINS)
    assert output.contact_logits.shape == (3, len(CONTACTS))
    figures = validate(network, [shard], model, body, CROPS)
    assert np.isfinite(list(figures.values())).all()
    assert {"MPJPE mm", "PA-MPJPE mm", "contacts right"} <= set(figures)


@pytest.mark.slow
def test_a_stopped_training_goes_on_as_if_it_had_not_been(
    folder, body, model, tmp_path, monkeypatch
):
    schedule = Schedule(held_out_crops=4)
    whole = tmp_path / "whole"
    halves = tmp_path / "halves"
    for out in (whole, halves):
        out.mkdir()
    ended = train([folder], whole, model, body, SETTINGS, schedule)
    assert ended.step == SETTINGS.steps

    advance = ImageTraining.advance

    def stop_after_two(self, *arguments):
        advance(self, *arguments)
        if self.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(ImageTraining, "advance", stop_after_two)
    assert train([folder], halves, model, body, SETTINGS, schedule).step == 2
    resumed = train([folder], halves, model, body, SETTINGS, schedule)
    assert all(torch.equal(resumed.mean[name], value) for name, value in ended.mean.items())
    with (halves / "held_out.csv").open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["4"]
    with pytest.raises(UserError, match="other settings"):
        train([folder], halves, model, body, replace(SETTINGS, batch=5), schedule)
