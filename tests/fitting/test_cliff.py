"""CLIFF's networks and crop answer as the original does."""

import numpy as np
import pytest
import torch

from fitting.init.regressors import (
    CARDS,
    CLIFF_CROPPING,
    BodyRegressor,
    cut_crops,
    load_regressor,
    place_windows,
)
from pose2d.base.errors import UserError
from pose2d.models.base import IMAGENET_RGB
from pose2d.models.checkpoints import describe_mismatch
from tests.references import answers, hollow, relative_error, state_and_input


def bare(name):
    with torch.device("meta"):
        return CARDS[name].build()


@torch.inference_mode()
def test_the_answers_are_cliffs(tmp_path):
    state, crops = state_and_input("cliff_res50")
    torch.save(
        {"model": {f"module.{key}": value for key, value in state.items()}}, tmp_path / "res50.pt"
    )
    network = load_regressor("cliff-res50", tmp_path / "res50.pt")
    expected = answers("cliff_res50")
    rotation, shape, crop_camera = network(crops, torch.from_numpy(expected["bbox_info"]))
    assert relative_error(rotation, expected["rotmat"]) < 1e-4
    assert relative_error(shape, expected["betas"]) < 1e-4
    assert relative_error(crop_camera, expected["cam"]) < 1e-4


def test_the_crop_is_cliffs():
    expected = answers("conventions")
    side = float(expected["cliff_s"]) * 200 / 1.1
    x, y = expected["cliff_c"]
    width = side * 0.75
    where = place_windows(
        np.array([[x - width / 2, y - side / 2, x + width / 2, y + side / 2]]), CLIFF_CROPPING
    )
    assert where.first[0].tolist() == expected["cliff_ul"].tolist()
    assert where.end[0].tolist() == expected["cliff_br"].tolist()
    crops = IMAGENET_RGB(cut_crops(expected["cliff_img"], where, CLIFF_CROPPING))
    np.testing.assert_allclose(crops[0].numpy(), expected["cliff_norm"], atol=1e-4)


def test_a_wide_box_is_made_high_enough_for_the_crop():
    where = place_windows(
        np.array([[0.0, 0.0, 90.0, 60.0], [0.0, 0.0, 30.0, 200.0]]), CLIFF_CROPPING
    )
    np.testing.assert_allclose(where.height_px, [1.1 * 90 * 256 / 192, 1.1 * 200])


def test_the_hrnet_has_its_published_size_and_key_names():
    network = bare("cliff-hr48")
    trunk = 77_469_864 - 2_049_000  # HRNet-W48-C without its classifier
    regressor = 1024 * (2208 + 1) + 1024 * 1025 + (144 + 10 + 3) * 1025
    assert sum(p.numel() for p in network.parameters()) == trunk + regressor
    shapes = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    assert shapes["encoder.transition1.1.0.0.weight"] == (96, 256, 3, 3)
    assert shapes["encoder.stage4.2.fuse_layers.3.0.2.1.running_var"] == (384,)
    assert shapes["encoder.stage4.2.branches.3.3.conv2.weight"] == (384, 384, 3, 3)
    assert shapes["encoder.incre_modules.3.0.downsample.0.weight"] == (1024, 384, 1, 1)
    assert shapes["encoder.downsamp_modules.2.0.bias"] == (1024,)
    assert shapes["encoder.final_layer.0.weight"] == (2048, 1024, 1, 1)
    assert shapes["fc1.weight"] == (1024, 2208)


def test_a_classifier_that_stayed_in_the_trunk_is_left_alone():
    wanted = bare("cliff-hr48").state_dict()
    state = {
        **wanted,
        "encoder.classifier.weight": torch.zeros(1000, 2048),
        "encoder.classifier.bias": torch.zeros(1000),
    }
    assert not describe_mismatch(wanted, BodyRegressor.convert(state))


def test_a_missing_tensor_and_the_other_size_are_named(tmp_path):
    state = hollow(bare("cliff-hr48").state_dict())
    torch.save({"model": state}, tmp_path / "hr48.pt")
    with pytest.raises(UserError, match=r"does not fit cliff-res50.*looks like cliff-hr48"):
        load_regressor("cliff-res50", tmp_path / "hr48.pt")
    state = hollow(bare("cliff-res50").state_dict())
    state.pop("deccam.bias")
    torch.save({"model": state}, tmp_path / "res50.pt")
    with pytest.raises(UserError, match=r"1 tensors are missing \(deccam.bias\)"):
        load_regressor("cliff-res50", tmp_path / "res50.pt")


def test_the_box_must_be_told():
    network = bare("cliff-res50")
    crops = torch.zeros(2, 3, 256, 192, device="meta")
    with pytest.raises(UserError, match=r"box_info must be \[2, 3\], got nothing"):
        network(crops)
    with pytest.raises(UserError, match=r"\[N, 3, 256, 192\]"):
        network(crops.mT, torch.zeros(2, 3, device="meta"))
