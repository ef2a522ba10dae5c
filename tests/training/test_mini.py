"""The miniature networks: crops, labels and losses that belong together."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import pose2d
from pose2d.models.rle import RLE
from pose2d.models.sbl import IPR, SimpleBaseline
from training.mini import families, training
from training.mini.batches import batches
from training.mini.people import CroppedPeople

WH = (96, 128)


def dots(count: int, keypoint: int = 9) -> CroppedPeople:
    """People whose one known keypoint, a left wrist, is the only bright place of their crop."""
    random = np.random.default_rng(0)
    pixels = np.zeros((count, 192, 144, 3), np.uint8)
    xy = np.zeros((count, 17, 2), np.float32)
    weight = np.zeros((count, 17), np.float32)
    for row in range(count):
        x, y = random.integers((55, 75), (90, 118))
        pixels[row, y - 2 : y + 3, x - 2 : x + 3] = 255
        xy[row, keypoint] = (x, y)
        weight[row, keypoint] = 1
    return CroppedPeople(pixels, xy, weight)


@pytest.fixture(scope="module")
def baseline() -> SimpleBaseline:
    torch.manual_seed(0)
    model = families.new_model("sbl", None)
    assert isinstance(model, SimpleBaseline)
    return model.eval()


@pytest.mark.parametrize("input_wh", [WH, (48, 64)])
def test_keypoints_move_with_the_pixels(input_wh):
    (batch,) = batches(dots(16), 16, input_wh, WH, (0,))
    sides = set()
    for crop, xy, weight in zip(
        batch.crops.float().mean(1), batch.xy_px, batch.weight, strict=True
    ):
        (shown,) = torch.nonzero(weight)[:, 0].tolist()
        sides.add(shown)
        light = crop - crop.median()
        light = light * (light > 0.5 * light.max())
        y, x = (
            light.sum(axis) @ torch.arange(float(light.shape[1 - axis])) / light.sum()
            for axis in (1, 0)
        )
        assert torch.hypot(x - xy[shown, 0], y - xy[shown, 1]) < 0.6
    assert sides == {9, 10}  # mirrored, a left wrist is a right one


def test_an_epoch_depends_on_its_seed_alone():
    first, again, other = (next(batches(dots(4), 4, WH, WH, (seed,))) for seed in (1, 1, 2))
    assert torch.equal(first.crops, again.crops)
    assert not torch.equal(first.crops, other.crops)


@pytest.mark.parametrize("input_wh", [WH, (48, 64)])
def test_the_heatmap_loss_is_nothing_where_the_map_is_the_target(baseline, input_wh):
    """The network's cells are 4 pixels apart at either size, even where its map is wider than the
    crop.
    """
    (batch,) = batches(dots(2), 2, input_wh, WH, (0,))
    with torch.no_grad():
        maps = baseline.maps(
            baseline.deconv_layers(baseline.stages(baseline.normalize(batch.crops))[-1])
        )
    height, width = maps.shape[-2:]
    cells = batch.xy_px / 4
    x = torch.exp(-((torch.arange(width) - cells[..., :1]) ** 2) / (2 * families.TARGET_CELLS**2))
    y = torch.exp(-((torch.arange(height) - cells[..., 1:]) ** 2) / (2 * families.TARGET_CELLS**2))
    maps = y[..., :, None] * x[..., None, :]
    assert families._heatmap_loss(maps, batch) < 1e-9
    assert families._heatmap_loss(maps.roll(2, -1), batch) > 0.1


def test_the_other_families_start_from_the_baselines_trunk(baseline):
    crops = torch.randint(0, 256, (1, 3, 128, 96), dtype=torch.uint8)
    wanted = baseline.conv1(baseline.normalize(crops))[..., 4:-4, 4:-4]
    ipr = families.new_model("ipr", baseline)
    rle = families.new_model("rle", baseline)
    assert isinstance(ipr, IPR)
    assert isinstance(rle, RLE)
    for first, model in ((ipr.backbone.conv1, ipr), (rle.preact.conv1, rle)):
        change = first(model.normalize(crops))[..., 4:-4, 4:-4] - wanted
        assert (
            change.std((0, 2, 3)).max() < 1e-4
        )  # the same but for a constant, which the normalisation takes out
    torch.testing.assert_close(
        ipr.head.features[9].weight, families.SHARPEN * baseline.final_layer.weight
    )


@pytest.mark.parametrize("family", ["ipr", "rle"])
def test_every_tensor_of_a_family_learns(baseline, family):
    (batch,) = batches(dots(2), 2, WH, WH, (0,))
    model = families.new_model(family, baseline).train()
    families.loss(model, batch).backward()
    assert all(
        tensor.grad is not None and tensor.grad.isfinite().all() for tensor in model.parameters()
    )
    assert (
        family != "rle"
        or sum(name.startswith("flow.") for name, _ in model.named_parameters()) == 72
    )


def test_training_goes_on_after_the_last_whole_epoch_and_leaves_a_checkpoint(tmp_path, capsys):
    plan = training.Plan(small_epochs=1, epochs=0, learning_rate=1e-3, batch=2)
    torch.manual_seed(0)
    model = families.new_model("sbl", None)
    training.train(model, dots(4), plan, tmp_path / "x.pt")
    assert "epoch 1 of 1 at 64x48" in capsys.readouterr().out
    other = families.new_model("sbl", None)
    training.train(other, dots(4), plan, tmp_path / "x.pt")
    assert capsys.readouterr().out == ""
    assert torch.equal(other.final_layer.weight, model.final_layer.weight)
    training.train(other, dots(4), replace(plan, seed=1), tmp_path / "x.pt")
    assert "epoch 1 of 1" in capsys.readouterr().out
    loaded = pose2d.load("sbl-r18-128x96", tmp_path / "x.pt")
    assert loaded.feature_shape == (128, 32, 24)
