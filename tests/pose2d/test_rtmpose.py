"""RTMPose says what OpenMMLab's export says, and its two distributions are read as they were
trained.
"""

import copy
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import pose2d
from pose2d import UserError, crops
from pose2d.models import rtmpose
from pose2d.models.convolutions import ChannelAttention, Conv, fold_batch_norms
from pose2d.models.rtmpose import BINS, NORM_EPSILON, TOKENS, RTMPose, decode_axis
from pose2d.models.trunk import FeaturesWithTrunk
from tests.patterns import pattern

NAME = "rtmpose-s-halpe26"
ONNX = "weights/rtmpose_s_halpe26_256x192.onnx"
DATA = Path(__file__).resolve().parents[1] / "data" / "openmmlab_onnx.npz"


@pytest.fixture(scope="module")
def model():
    return pose2d.load(NAME)


@pytest.fixture(scope="module")
def features(model):
    inputs = model.normalize(
        torch.from_numpy(np.concatenate([pattern(seed, 256, 192) for seed in (1, 3)])).float()
    )
    with torch.inference_mode():
        return model.features(inputs)


def _photo_crops(shared, model):
    """Crops of a real image, with its annotated person and boxes around it."""
    image = cv2.imread(str(shared / "data/coco/images/val2017/000000000139.jpg"))[:, :, ::-1]
    boxes = np.array(
        [
            [412.8, 157.6, 465.9, 295.6],
            [380, 120, 500, 330],
            [0, 0, 639, 425],
            [384.4, 172.2, 399.5, 207.9],
        ]
    )
    return crops.crop_boxes(
        np.ascontiguousarray(image), boxes, model.input_wh, model.box_scale, model.crop
    )[0]


def test_outputs_are_those_of_onnx_runtime_on_fixed_inputs(model, features):
    expected = np.load(DATA)
    with torch.inference_mode():
        x, y = model.simcc(features[:1])
    assert np.abs(x.numpy() - expected["simcc_x"]).max() < 1e-4
    assert np.abs(y.numpy() - expected["simcc_y"]).max() < 1e-4


def test_outputs_are_those_of_the_published_file_on_real_crops(shared):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = pose2d.load(NAME, shared / ONNX)
    inputs = model.normalize(_photo_crops(shared, model))
    session = onnxruntime.InferenceSession(str(shared / ONNX), providers=["CPUExecutionProvider"])
    with torch.inference_mode():
        x, y = model.simcc(model.features(inputs))
    for got, expected in zip((x, y), session.run(None, {"input": inputs.numpy()}), strict=True):
        assert np.abs(got.numpy() - expected).max() < 1e-4


def test_the_embedded_weights_are_the_published_ones_in_half_precision(shared, model):
    published = pose2d.load(NAME, shared / ONNX).state_dict()
    for key, value in model.state_dict().items():
        exact = torch.equal(value, published[key])
        assert exact or torch.equal(value, published[key].half().float()), key
        assert exact or value.ndim > 1, key  # vectors stay as they were


# Other files
# ---------------------------------------------------------------------------------------------------


def _with_batch_norms(model: RTMPose) -> dict[str, torch.Tensor]:
    """The model's weights as OpenMMLab's trainer would have saved them."""
    folded = {name for name, layer in model.named_modules() if isinstance(layer, Conv)}
    state = {}
    for key, value in model.state_dict().items():
        layer, _, part = key.rpartition(".")
        if layer not in folded:
            state[key] = value
        elif part == "weight":
            gain = torch.linspace(0.5, 2, len(value))
            state[f"{layer}.conv.weight"] = value * gain[:, None, None, None]
            state |= {
                f"{layer}.bn.weight": torch.full_like(gain, 3),
                f"{layer}.bn.bias": torch.ones_like(gain),
            }
            state[f"{layer}.bn.running_var"] = (3 * gain).square() - NORM_EPSILON
            state[f"{layer}.bn.num_batches_tracked"] = torch.tensor(1)
        else:
            state[f"{layer}.bn.running_mean"] = (
                3 * torch.linspace(0.5, 2, len(value)) / 3 * (1 - value)
            )
    return state


def test_a_checkpoint_with_batch_norms_gives_the_same_network(model, features, saved):
    state = {
        **_with_batch_norms(model),
        "head.gau.w": torch.zeros(51),
        "data_preprocessor.mean": torch.zeros(3, 1, 1),
    }
    loaded = pose2d.load(NAME, saved({"state_dict": state, "meta": {"epoch": 700}}))
    for key, value in model.state_dict().items():
        assert torch.allclose(loaded.state_dict()[key], value, atol=1e-4), key


def _random(name: str) -> RTMPose:
    model = pose2d.card(name).build().eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for value in model.state_dict().values():
        value.copy_(0.02 * torch.randn(value.shape, generator=generator))
    return model


@pytest.mark.parametrize("name", ["t-coco17", "m-halpe26", "l-halpe26"])
def test_other_sizes_load_from_a_checkpoint_by_name(name, saved):
    model = _random(f"rtmpose-{name}")
    loaded = pose2d.load(f"rtmpose-{name}", saved({"state_dict": _with_batch_norms(model)}))
    for key, value in model.state_dict().items():
        assert torch.allclose(loaded.state_dict()[key], value, atol=1e-4), key
    assert pose2d.card(f"rtmpose-{name}").skeleton == loaded.skeleton


class _Exported(torch.nn.Module):
    """What the published exports compute: crops in, the outputs of both axes out, attention by a
    convolution.
    """

    def __init__(self, model: RTMPose) -> None:
        super().__init__()
        self.model = model

    def forward(self, crops):
        head = self.model.head
        tokens = head[TOKENS](self.model.backbone(crops))
        return head.cls_x(tokens), head.cls_y(tokens)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["t-coco17", "m-halpe26"])
def test_other_sizes_load_from_an_export_by_name(name, tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    gate = lambda layer, x: x * F.hardsigmoid(layer.fc(F.adaptive_avg_pool2d(x, 1)))  # noqa: E731
    monkeypatch.setattr(ChannelAttention, "forward", gate)
    model = _random(f"rtmpose-{name}")
    path = tmp_path / "export.onnx"
    crops = torch.rand(1, 3, *model.input_wh[::-1])
    torch.onnx.export(_Exported(model), (crops,), str(path), opset_version=11, dynamo=False)
    loaded = pose2d.load(f"rtmpose-{name}", path)
    for key, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value), key


def test_folding_is_a_convolution_and_a_batch_norm_in_one():
    weight = torch.randn(4, 3, 3, 3)
    statistics = [torch.rand(4) + 0.5 for _ in range(4)]
    mean, variance, gain, bias = statistics
    state = {"a.conv.weight": weight, "a.bn.weight": gain, "a.bn.bias": bias, "b.weight": gain}
    state |= {
        "a.bn.running_mean": mean,
        "a.bn.running_var": variance,
        "a.bn.num_batches_tracked": torch.tensor(3),
    }
    folded = fold_batch_norms(state, 1e-3)
    assert set(folded) == {"a.weight", "a.bias", "b.weight"}
    x = torch.randn(2, 3, 6, 6)
    expected = F.batch_norm(F.conv2d(x, weight), mean, variance, gain, bias, eps=1e-3)
    assert torch.allclose(F.conv2d(x, folded["a.weight"], folded["a.bias"]), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("t-halpe26", 3.51),
        ("s-halpe26", 5.70),
        ("m-halpe26", 13.93),
        ("l-halpe26", 28.11),
        ("x-halpe26-384x288", 50.00),
    ],
)
def test_sizes_are_the_published_ones(name, millions):
    card = pose2d.card(f"rtmpose-{name}")
    with torch.device("meta"):
        model = card.build()
    own = sum(value.numel() for value in model.parameters())
    batch_norms = sum(layer.out_channels for layer in model.modules() if isinstance(layer, Conv))
    assert own == card.parameters
    assert abs((own + batch_norms) / 1e6 - millions) < 0.006


def test_a_file_of_another_size_is_named(saved, model):
    with pytest.raises(UserError, match="looks like rtmpose-s-halpe26"):
        pose2d.load("rtmpose-m-halpe26", saved(model.state_dict()))


def test_the_export_of_another_network_is_refused(shared):
    with pytest.raises(UserError, match="does not fit rtmpose-s-halpe26"):
        pose2d.load(NAME, shared / "weights/yolox_tiny_humanart_416.onnx")


# Features
# ------------------------------------------------------------------------------------------------------


def test_features_are_tokens_that_carry_the_backbones_map(model, features):
    assert tuple(features.shape[1:]) == model.feature_shape == (26, 256)
    assert tuple(features.trunk.shape) == (2, 512, 8, 6)
    again = torch.cat([features[:1], features[1:].clone()]).to(torch.float64)
    assert isinstance(again, FeaturesWithTrunk)
    assert torch.equal(again.trunk, features.trunk.double())


def test_predictions_need_the_tokens_only(model, features):
    plain = torch.from_numpy(features.numpy())
    assert torch.equal(model.predict(plain).xy_px, model.predict(features).xy_px)


def test_other_features_are_refused(model):
    with pytest.raises(UserError, match=r"\[N, 26, 256\]"):
        model.predict(torch.zeros(1, 17, 256))


# Decoding
# ------------------------------------------------------------------------------------------------------


def _trained_outputs(mean: float, sigma: float, target_sigma: float, bins: int) -> torch.Tensor:
    """What the loss's optimum says of a keypoint that is spread normally around `mean`, in bins."""
    b = torch.arange(bins, dtype=torch.float64)
    places = mean + sigma * torch.linspace(-4, 4, 161, dtype=torch.float64)
    weight = torch.exp(-0.5 * ((places - mean) / sigma) ** 2)
    target = torch.exp(-0.5 * ((b - places[:, None]) / target_sigma) ** 2)
    p = (weight[:, None] / weight.sum() * torch.softmax(10 * target, 1)).sum(0)
    return (p.log() / 10)[None, None]


@pytest.mark.parametrize(("mean", "sigma"), [(101.3, 3.0), (200.75, 8.0), (180.0, 1.5)])
def test_place_and_spread_of_a_known_distribution_are_found(mean, sigma):
    place, _, width = decode_axis(_trained_outputs(mean, sigma, 4.9, 384), 4.9)
    assert abs(place.item() - mean) < 0.15
    assert abs(width.item() - sigma) < 0.15 * sigma


def test_the_score_is_the_lower_peak_clipped(model, monkeypatch):
    x = torch.zeros(1, 26, 384)
    y = torch.zeros(1, 26, 512)
    x[..., 100], y[..., 60] = 0.7, 1.2
    monkeypatch.setattr(rtmpose.RTMPose, "simcc", lambda *_: (x, y))
    found = model.predict(torch.zeros(1))
    assert torch.allclose(found.score, torch.tensor(0.7))
    assert torch.allclose(found.xy_px, torch.tensor([50.0, 30.0]), atol=0.02)
    y[..., 60] = -0.2
    x[..., 100] = 0.1
    assert (model.predict(torch.zeros(1)).score == 0).all()


def test_a_mirrored_crop_says_the_same_as_the_crop(model, monkeypatch):
    """Pixel x of the crop is pixel 191 - x of its mirror image, and left is right."""
    left, right = 9, 10
    outputs = {}
    for kind, (x_left, x_right) in {"crop": (30, 120), "mirror": (191 - 120, 191 - 30)}.items():
        x = torch.zeros(1, 26, 384)
        y = torch.zeros(1, 26, 512)
        x[0, left, BINS * x_left], x[0, right, BINS * x_right] = 0.9, 0.9
        y[0, left, 40 if kind == "crop" else 80], y[0, right, 80 if kind == "crop" else 40] = (
            0.8,
            0.8,
        )
        outputs[kind] = (x, y)
    monkeypatch.setattr(rtmpose.RTMPose, "simcc", lambda _, kind: outputs[kind])
    found = model.predict_flip("crop", "mirror")
    assert torch.allclose(found.xy_px[0, left], torch.tensor([30.0, 20.0]), atol=0.02)
    assert torch.allclose(found.xy_px[0, right], torch.tensor([120.0, 40.0]), atol=0.02)
    assert torch.allclose(found.score[0, [left, right]], torch.tensor(0.8))


def test_the_flip_test_of_a_real_crop_agrees_with_the_plain_one(shared, model):
    inputs = model.normalize(_photo_crops(shared, model)[:1])
    with torch.inference_mode():
        plain = model.features(inputs)
        mirrored = model.features(inputs.flip(-1))
    both = model.predict_flip(plain, mirrored)
    sure = both.score[0] > 0.5
    assert sure.sum() > 8
    assert ((both.xy_px - model.predict(plain).xy_px)[0, sure].norm(dim=-1) < 4).all()
    assert (both.sigma_px > 0).all()


def test_copies_and_batches_of_none_work(model):
    other = copy.deepcopy(model)
    crops = torch.rand(2, 3, 256, 192)
    torch.testing.assert_close(other(crops).xy_px, model(crops).xy_px)
    found = other(torch.zeros(0, 3, 256, 192))
    assert tuple(found.xy_px.shape) == (0, 26, 2)
