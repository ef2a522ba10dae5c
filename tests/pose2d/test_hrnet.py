import torch

import pose2d
from pose2d import decode
from pose2d.models.base import IMAGENET_RGB
from pose2d.models.hrnet import HRNetPose
from pose2d.skeletons import COCO17, WHOLEBODY133


@torch.inference_mode()
def test_the_answers_are_the_official_implementations(reference, saved, relative_error):
    official = reference("hrnet_w32_256x192")
    model = pose2d.load("hrnet-w32-256x192", checkpoint=saved(official.state))
    features = model.features(official.crops)
    assert features.shape[1:] == model.feature_shape == (32, 64, 48)
    assert relative_error(features[:, :8], official.answers["penultimate_first8"]) < 1e-4
    assert relative_error(model.predict(features).maps, official.answers["output"]) < 1e-4
    assert model.normalization == IMAGENET_RGB
    assert model.decode is decode.quarter_offset
    assert model.state_dict().keys() == official.state.keys()


def test_mmposes_names_are_the_official_ones_under_two_prefixes():
    with torch.device("meta"):
        model = HRNetPose(48, (288, 384), WHOLEBODY133)
    own = model.state_dict()
    for head in ("head.", "keypoint_head."):
        state = {
            (head if key.startswith("final_layer") else "backbone.") + key: own[key] for key in own
        }
        assert model.convert(state).keys() == own.keys()
        assert model.decode is decode.mmpose_default


def test_the_wider_sister_has_the_same_tensors_in_other_shapes():
    with torch.device("meta"):
        narrow = HRNetPose(32, (192, 256), COCO17)
        wide = HRNetPose(48, (288, 384), COCO17)
    assert narrow.state_dict().keys() == wide.state_dict().keys()
    assert wide.stage4[2].fuse_layers[0]["3"][0].weight.shape == (48, 384, 1, 1)
    assert wide.feature_shape == (48, 96, 72)
