import numpy as np
import pytest
import torch
from torch import Tensor

import pose2d
from pose2d.models.base import IMAGENET_RGB, RLE_RGB
from pose2d.models.rle import RLE
from pose2d.skeletons import COCO17
from training.mini.families import Flow, flow_nll, log_prob, rle_loss

SIZE = torch.tensor([192.0, 256.0])


def build(name: str = "rle-resnet50-256x192") -> RLE:
    with torch.device("meta"):
        model = pose2d.card(name).build()
    return model.to_empty(device="cpu").eval()


@torch.inference_mode()
def test_the_answers_are_the_official_implementations(reference, saved, relative_error):
    official = reference("rle_r50_256x192")
    answers = official.answers
    model = pose2d.load("rle-resnet50-256x192", checkpoint=saved(official.state))
    features = model.features(official.crops)
    prediction = model.predict(features)
    assert relative_error(features, answers["penultimate"]) < 1e-4
    assert relative_error(prediction.xy_px / SIZE - 0.5, answers["pred_jts"]) < 1e-4
    assert relative_error(prediction.sigma_px / SIZE, answers["sigma"]) < 1e-4
    assert relative_error(prediction.score, answers["scores"][..., 0]) < 1e-4
    assert model.normalization == RLE_RGB

    flow = Flow()
    learnt = {name: official.state[f"flow.{name}"] for name, _ in flow.named_parameters()}
    flow.load_state_dict(learnt, strict=False)  # the mask is the architecture's, not the file's
    log_phi = log_prob(flow, torch.from_numpy(answers["bar_mu"]))
    assert relative_error(log_phi, answers["log_phi"]) < 1e-4
    given = [torch.from_numpy(answers[f"loss_{key}"]) for key in ("pred", "sigma", "gt", "weight")]
    assert relative_error(flow_nll(flow, *given[:3]), answers["nf_loss"]) < 1e-4
    assert rle_loss(flow, *given).item() == pytest.approx(float(answers["loss"]), rel=1e-4)


def test_rle_subtracts_its_own_mean_and_scales_nothing():
    white = torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)
    assert build().normalize(white).flatten().tolist() == pytest.approx(
        [1 - 0.406, 1 - 0.457, 1 - 0.480], abs=1e-6
    )


@torch.inference_mode()
def test_a_mirrored_answer_comes_back_as_in_the_official_code(conventions, monkeypatch):
    model = build()
    xy = torch.from_numpy(conventions["rle_pj"])
    score = torch.from_numpy(conventions["rle_ps"])
    monkeypatch.setattr(
        model, "coordinates", lambda features: (xy * features, (1 - score).expand_as(xy))
    )
    merged = model.predict_flip(
        torch.zeros(()), torch.ones(())
    )  # the crop itself says "the middle"
    np.testing.assert_allclose(
        (merged.xy_px / SIZE - 0.5) * 2, conventions["rle_flip_pj"], atol=1e-6
    )
    expected = (conventions["rle_ps"] + conventions["rle_flip_ps"])[..., 0] / 2
    np.testing.assert_allclose(merged.score, expected, atol=1e-6)


def test_the_middle_of_the_answer_is_the_middle_of_the_crop(conventions, monkeypatch):
    model = build()
    xy = torch.from_numpy(conventions["rle_pj"][:1])
    monkeypatch.setattr(model, "coordinates", lambda features: (xy, torch.ones_like(xy)))
    in_crop = model.predict(torch.zeros(1, 2048)).xy_px / SIZE
    box = conventions["rle_bbox"]
    in_image = in_crop.numpy() * (box[2:] - box[:2]) + box[:2]
    np.testing.assert_allclose(in_image, conventions["rle_coords"], atol=1e-4)


# mmpose
# ----------------------------------------------------------------------------------------------------------


def mmpose_state(model: RLE, head: str, loss: str) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(0)
    state = {
        key.replace("preact.", "backbone."): value
        for key, value in model.state_dict().items()
        if "preact." in key
    }
    state[f"{head}.fc.weight"] = torch.randn(68, 2048, generator=random) / 50
    state[f"{head}.fc.bias"] = torch.randn(68, generator=random)
    for key, value in Flow().state_dict().items():
        state[f"{head}.{loss}.flow_model.{key}"] = value
    state[f"{head}.{loss}.flow_model.loc"] = torch.zeros(2)
    state[f"{head}.{loss}.flow_model.cov"] = torch.eye(2)
    return state


@pytest.mark.parametrize(("head", "loss"), [("head", "loss_module"), ("keypoint_head", "loss")])
@torch.inference_mode()
def test_mmposes_layer_counts_from_the_corner_and_does_not_normalise(head, loss):
    model = build()
    state = mmpose_state(model, head, loss)
    model.load_state_dict(model.convert(state))
    assert model.normalization == IMAGENET_RGB
    features = torch.randn(2, 2048, generator=torch.Generator().manual_seed(1))
    rows = (features @ state[f"{head}.fc.weight"].T + state[f"{head}.fc.bias"]).reshape(2, 17, 4)
    prediction = model.predict(features)
    torch.testing.assert_close(prediction.xy_px, rows[..., :2] * SIZE, atol=1e-3, rtol=1e-5)
    torch.testing.assert_close(
        prediction.sigma_px, rows[..., 2:].sigmoid() * SIZE, atol=1e-3, rtol=1e-5
    )
    torch.testing.assert_close(prediction.score, 1 - rows[..., 2:].sigmoid().mean(-1))


def test_loading_an_official_file_after_mmposes_changes_back():
    model = build()
    model.convert(mmpose_state(model, "head", "loss_module"))
    model.convert(model.state_dict())
    assert model.direction_only
    assert model.normalization == RLE_RGB


# the flow
# --------------------------------------------------------------------------------------------------------


def test_the_flow_is_a_density():
    torch.manual_seed(0)
    flow = Flow()
    for value in flow.parameters():
        torch.nn.init.normal_(value, std=0.1)
    axis = torch.linspace(-12, 12, 241)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1)
    with torch.inference_mode():
        mass = log_prob(flow, grid).exp().sum() * (axis[1] - axis[0]) ** 2
    assert mass.item() == pytest.approx(1, abs=1e-3)


def test_a_new_flow_is_the_standard_normal_density():
    flow = Flow()
    x = torch.randn(5, 2)
    expected = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)).log_prob(x)
    torch.testing.assert_close(log_prob(flow, x), expected)


# HRNet
# -----------------------------------------------------------------------------------------------------------


def test_rle_on_hrnet_reads_the_classification_vector():
    with torch.device("meta"):
        model = pose2d.card("rle-hrnet-w48-256x192").build()
        features = model.features(torch.empty(2, 3, 256, 192))
    assert features.shape == (2, 2048)
    assert model.predict(features).xy_px.shape == (2, COCO17.size, 2)
    assert {
        "preact.incre_modules.3.0.downsample.0.weight",
        "preact.downsamp_modules.2.0.bias",
    } <= set(model.state_dict())
