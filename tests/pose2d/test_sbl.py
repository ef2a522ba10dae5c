import pytest
import torch

import pose2d
from pose2d import decode
from pose2d.models.base import IMAGENET_BGR, IMAGENET_RGB
from pose2d.models.sbl import SimpleBaseline
from pose2d.skeletons import COCO17

NAME = "sbl-resnet50-256x192"


@torch.inference_mode()
def test_the_answers_are_the_official_implementations(reference, saved, relative_error):
    official = reference("sbl_r50_256x192")
    model = pose2d.load(NAME, checkpoint=saved(official.state))
    features = model.features(official.crops)
    prediction = model.predict(features)
    assert features.shape[1:] == model.feature_shape == (256, 64, 48)
    assert relative_error(features[:, :8], official.answers["penultimate_first8"]) < 1e-4
    assert relative_error(prediction.maps, official.answers["output"]) < 1e-4
    assert model.normalization == IMAGENET_BGR


@torch.inference_mode()
def test_the_answers_are_mmposes_under_both_of_its_names(reference, saved, relative_error):
    mmpose = reference("mmpose_res50_256x192")
    model = pose2d.load(NAME, checkpoint=saved({"meta": {}, "state_dict": mmpose.state}))
    assert relative_error(model(mmpose.crops).maps, mmpose.answers["output"]) < 1e-4
    assert model.normalization == IMAGENET_RGB
    assert model.decode is decode.mmpose_default
    older = {key.replace("head.", "keypoint_head."): value for key, value in mmpose.state.items()}
    assert (
        model.convert(older).keys()
        == model.convert(mmpose.state).keys()
        == model.state_dict().keys()
    )


def small() -> SimpleBaseline:
    with torch.device("meta"):
        return SimpleBaseline(50, (192, 256), COCO17)


def test_official_weights_see_blue_first_and_mmposes_red():
    red = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1)
    lit = ((1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225)
    model = small()
    assert model.normalize(red)[0, 2].item() == pytest.approx(lit[2], rel=1e-5)
    assert model.normalize(red)[0, 0].item() == pytest.approx(-0.485 / 0.229, rel=1e-5)
    model.normalization = IMAGENET_RGB
    assert model.normalize(red)[0, 0].item() == pytest.approx(lit[0], rel=1e-5)


def test_a_cell_is_four_crop_pixels():
    maps = torch.zeros(1, 17, 64, 48)
    maps[:, :, 30, 20] = 0.8
    maps[:, :, 30, 21] = 0.2
    prediction = small().decode_maps(maps)
    assert prediction.xy_px[0, 3].tolist() == [4 * 20.25, 4 * 30]
    assert prediction.score[0, 3].item() == pytest.approx(0.8)


def test_the_flip_test_averages_the_map_and_the_shifted_mirror(monkeypatch):
    model = small()
    monkeypatch.setattr(model, "maps", lambda features: features)
    plain, mirrored = torch.rand(2, 2, 17, 64, 48).unbind()
    expected = (plain + decode.shift_right(decode.maps_back(mirrored, COCO17.flip_order))) / 2
    prediction = model.predict_flip(plain, mirrored)
    torch.testing.assert_close(prediction.maps, expected)
    torch.testing.assert_close(prediction.score, expected.amax((2, 3)))


def test_crops_of_another_size_are_refused_in_words():
    with pytest.raises(pose2d.UserError, match=r"\[N, 3, 256, 192\]"):
        small().features(torch.zeros(1, 3, 192, 256))
