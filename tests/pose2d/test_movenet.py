"""MoveNet: the same network whatever the batch, features that keep their trunk, mirror images that
agree.
"""

import numpy as np
import pytest
import torch

import pose2d
from pose2d.models.movenet import Conv
from pose2d.models.trunk import FeaturesWithTrunk

NAMES = ["movenet-lightning", "movenet-thunder"]


@pytest.fixture(scope="module", params=NAMES)
def model(request):
    return pose2d.load(request.param)


@pytest.fixture(scope="module")
def crops(model):
    """Smooth coloured noise: every head has something to say about it."""
    generator = torch.Generator().manual_seed(0)
    side = model.input_wh[0]
    coarse = torch.rand(3, 3, 12, 12, generator=generator) * 255
    return model.normalize(
        torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic")
    )


@pytest.fixture(scope="module")
def features(model, crops):
    return model.features(crops)


def test_the_card_tells_the_truth(model):
    name = "movenet-thunder" if model.input_wh[0] == 256 else "movenet-lightning"
    card = pose2d.card(name)
    assert card.parameters == sum(weight.numel() for weight in model.parameters())
    assert card.input_wh == model.input_wh
    assert not model.training
    assert not any(weight.requires_grad for weight in model.parameters())


def test_shapes_are_as_promised(model, features):
    side = model.input_wh[0] // 4
    assert features.shape == (3, *model.feature_shape) == (3, 96, side, side)
    prediction = model.predict(features)
    assert prediction.xy_px.shape == (3, 17, 2)
    assert prediction.score.shape == (3, 17)
    assert prediction.sigma_px.shape == (3, 17, 2)
    assert prediction.maps.shape == (3, 17, side, side)
    assert (prediction.maps > 0).all()
    assert (prediction.maps < 1).all()
    assert (prediction.sigma_px > 0).all()
    assert prediction.score.max() <= prediction.maps.max()


def test_a_batch_equals_its_crops_one_by_one(model, crops):
    together = model(crops)
    for index in range(3):
        alone = model(crops[index : index + 1])
        torch.testing.assert_close(together.xy_px[index], alone.xy_px[0], rtol=0, atol=1e-3)
        torch.testing.assert_close(together.score[index], alone.score[0], rtol=0, atol=1e-5)


def test_an_empty_batch_is_no_mistake(model):
    side = model.input_wh[0]
    features = model.features(torch.zeros(0, 3, side, side))
    assert features.shape == (0, *model.feature_shape)
    assert model.predict(features).xy_px.shape == (0, 17, 2)


def test_the_flip_test_of_a_mirrored_crop_is_the_mirrored_flip_test(model, crops, features):
    mirrored = model.features(crops.flip(-1))
    one = model.predict_flip(features, mirrored)
    other = model.predict_flip(mirrored, features)
    order = model.skeleton.flip_order
    width = model.input_wh[0]
    back = other.xy_px[:, order].clone()
    back[..., 0] = width - 1 - back[..., 0]
    torch.testing.assert_close(other.score[:, order], one.score, rtol=0, atol=1e-5)
    torch.testing.assert_close(back, one.xy_px, rtol=0, atol=2e-3)


def test_a_head_at_a_few_cells_equals_its_whole_map(model, features):
    head = model.net.head("kpt_offset")
    trunk = features.trunk
    whole = head(trunk)
    last = trunk.shape[-1] - 1
    cells = torch.tensor([[0, 0], [last, 3], [5, last], [last, last], [17, 20]]).expand(3, -1, -1)
    expected = whole[:, :, cells[0, :, 1], cells[0, :, 0]].transpose(1, 2)
    torch.testing.assert_close(head.at(trunk, cells), expected, rtol=1e-4, atol=1e-4)


def test_stride_two_pads_at_the_end_only():
    conv = Conv(2, 3, kernel=3, stride=2)
    x = torch.randn(1, 2, 8, 6)
    expected = torch.nn.functional.conv2d(
        torch.nn.functional.pad(x, (0, 1, 0, 1)), conv.weight, conv.bias, stride=2
    )
    torch.testing.assert_close(conv(x), expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f[[2, 0]],
        lambda f: f[1:],
        lambda f: f[torch.tensor([True, False, True])],
        lambda f: torch.cat([f[:1], f[1:]]),
        lambda f: torch.cat(f.split(2)),
        lambda f: torch.cat(torch.chunk(f, 3)),
        lambda f: f.index_select(0, torch.tensor([1])),
        lambda f: f.detach().clone().contiguous().cpu().to(torch.float32),
        lambda f: f.double().float(),
    ],
)
def test_what_happens_to_a_batch_happens_to_its_trunk(model, features, change):
    numbered = FeaturesWithTrunk.join(
        torch.zeros(features.shape) + torch.arange(3.0)[:, None, None, None],
        torch.zeros(features.trunk.shape) + torch.arange(3.0)[:, None, None, None],
    )
    changed = change(numbered)
    assert isinstance(changed, FeaturesWithTrunk)
    torch.testing.assert_close(changed.trunk[:, 0], torch.Tensor(changed[:, 0]))
    model.predict(change(features))


def test_features_survive_inference_mode(model, crops):
    with torch.inference_mode():
        features = model.features(crops)
        kept = torch.cat([features[1:], features[:1]])
        model.predict(kept)
    assert isinstance(kept.clone(), FeaturesWithTrunk)


@pytest.mark.parametrize(
    "change", [lambda f: f * 2, lambda f: f[0], lambda f: f[:, :5], lambda f: f.flip(-1)]
)
def test_other_arithmetic_gives_a_plain_tensor(features, change):
    assert type(change(features)) is torch.Tensor


def test_features_without_a_trunk_are_refused(model, features):
    with pytest.raises(pose2d.UserError, match="features"):
        model.predict(torch.from_numpy(features.numpy()))


def test_a_map_of_another_size_is_refused(model):
    small = FeaturesWithTrunk.join(torch.zeros(1, 96, 8, 8), torch.zeros(1, 24, 8, 8))
    with pytest.raises(pose2d.UserError, match="shape"):
        model.predict(small)


@pytest.mark.parametrize("shape", [(3, 256, 256), (1, 3, 256, 192), (1, 1, 256, 256)])
def test_a_batch_of_the_wrong_shape_is_refused(model, shape):
    with pytest.raises(pose2d.UserError, match="shape"):
        model.features(torch.zeros(shape))


def test_a_batch_that_was_not_normalised_is_refused(model):
    with pytest.raises(pose2d.UserError, match="normalize"):
        model.features(torch.zeros(1, 3, *model.input_wh, dtype=torch.uint8))


def test_the_embedded_weights_load_under_their_own_and_the_published_names(model):
    state = model.state_dict()
    assert set(model.convert(state)) == set(state)
    assert set(model.convert({"hs.kpt_heatmap.dw.c.weight": torch.zeros(1)})) <= set(state)


def test_weights_are_exact_in_half_precision(model):
    for weight in model.state_dict().values():
        np.testing.assert_array_equal(
            weight.numpy(), weight.numpy().astype(np.float16).astype(np.float32)
        )


def test_gradients_reach_the_crops_when_asked_for(model, crops):
    wanted = crops[:1].clone().requires_grad_()
    model.net.trunk(wanted).sum().backward()
    assert wanted.grad.abs().sum() > 0
