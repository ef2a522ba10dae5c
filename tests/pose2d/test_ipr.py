import pytest
import torch

import pose2d
from pose2d.models.base import IMAGENET_RGB
from pose2d.models.sbl import IPR
from pose2d.skeletons import COCO17

SIZE = torch.tensor([192.0, 256.0])


@torch.inference_mode()
def test_the_answers_are_the_official_implementations(reference, saved, relative_error):
    official = reference("ipr_r50_256x192")
    model = pose2d.load(
        "ipr-resnet50-256x192", checkpoint=saved({"network": official.state, "epoch": 3})
    )
    features = model.features(official.crops)
    prediction = model.predict(features)
    assert features.shape[1:] == model.feature_shape == (256, 64, 48)
    assert relative_error(prediction.maps, official.answers["output"]) < 1e-4
    assert relative_error(prediction.xy_px / SIZE - 0.5, official.answers["uv"]) < 1e-4
    assert torch.equal(prediction.score, torch.ones(1, 17))
    assert model.normalization == IMAGENET_RGB
    assert model.state_dict().keys() == official.state.keys()


def build(input_wh: tuple[int, int] = (192, 256)) -> IPR:
    with torch.device("meta"):
        return IPR(50, input_wh, COCO17)


def test_mmposes_names_are_known_and_its_grid_is_left_out():
    model = build((256, 256))
    own = model.state_dict()
    state = {
        "head.linspace_x": torch.zeros(1, 1, 1, 64),
        "head.linspace_y": torch.zeros(1, 1, 64, 1),
    }
    for key, value in own.items():
        if key.startswith("head.features.9."):
            key = key.replace("features.9", "simplebaseline_head.final_layer")
        state[key.replace("head.features.", "head.simplebaseline_head.deconv_layers.")] = value
    assert not [key for key in state if "features" in key]
    assert model.convert(state).keys() == own.keys()


def test_the_flip_test_averages_places_not_maps(monkeypatch):
    model = build()
    monkeypatch.setattr(model, "maps", lambda features: features)
    plain = torch.zeros(1, 17, 64, 48)
    mirrored = torch.zeros(1, 17, 64, 48)
    plain[:, 1, 10, 20] = 100  # left eye, 80 px from the left
    mirrored[:, 2, 10, 30] = 100  # the mirror calls it the right eye, 120 px from its left
    xy = model.predict_flip(plain, mirrored).xy_px[0, 1]
    assert xy.tolist() == pytest.approx([(80 + 191 - 120) / 2, 40], abs=1e-3)


def test_the_heatmap_score_is_the_largest_probability_and_the_spread_its_deviation():
    model = build()
    maps = torch.full((1, 17, 64, 48), -torch.inf)
    maps[:, :, 10, 20] = torch.log(torch.tensor(0.75))
    maps[:, :, 14, 20] = torch.log(torch.tensor(0.25))
    found = model.decode_maps(maps)
    assert found.heatmap_score is not None
    assert found.sigma_px is not None
    torch.testing.assert_close(found.heatmap_score, torch.full((1, 17), 0.75))
    expected = torch.tensor([0.0, 4 * (0.75 * 0.25) ** 0.5]) * 4  # 4 cells apart, 4 pixels a cell
    torch.testing.assert_close(found.sigma_px, expected.expand(1, 17, 2))


def test_the_flip_test_averages_heatmap_scores_of_the_same_keypoint(monkeypatch):
    model = build()
    monkeypatch.setattr(model, "maps", lambda features: features)
    plain = torch.zeros(1, 17, 64, 48)
    mirrored = torch.zeros(1, 17, 64, 48)
    plain[:, 1, 10, 20] = mirrored[:, 2, 10, 27] = (
        100  # left eye; the mirror calls it the right one
    )
    score = model.predict_flip(plain, mirrored).heatmap_score
    assert score is not None
    assert score[0, 1] == pytest.approx(1)
    assert score[0, 2] < 0.01
