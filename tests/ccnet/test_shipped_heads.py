"""The heads in the wheel, on real people."""

from importlib.resources import files as resources

import pytest
import torch

import ccnet
import pose2d
from ccnet.data.datasets import Split, read_split
from ccnet.heads.files import embedded
from ccnet.metrics import calibration
from ccnet.predicted_people import predict_split
from pose2d.detect.multipose import MultiPose

SHIPPED = ("movenet-lightning", "movenet-thunder", "rtmpose-s-halpe26")


def test_heads_ship_for_all_embedded_networks():
    assert embedded() == sorted(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_head_is_small_and_made_for_the_embedded_weights(name):
    assert (resources("ccnet") / "weights" / f"{name}.safetensors").stat().st_size < 1_000_000
    ccnet.check_fits(ccnet.load(name), pose2d.load(name), name)


@pytest.mark.parametrize("name", SHIPPED)
def test_features_in_confidence_and_presence_out(name):
    model = pose2d.load(name)
    head = ccnet.load(name)
    width, height = model.input_wh
    with torch.inference_mode():
        features = model.features(
            model.normalize(torch.randint(0, 256, (3, 3, height, width), dtype=torch.uint8))
        )
        confidence, presence = head(features)
        part, _ = head(features[1:2])
    assert confidence.shape == presence.shape == (3, pose2d.card(name).skeleton.size)
    assert bool(((confidence >= 0) & (confidence <= 1) & (presence >= 0) & (presence <= 1)).all())
    torch.testing.assert_close(part, confidence[1:2])


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_confidence_is_closer_to_the_truth_than_the_raw_score_on_real_people(shared, name):
    model = pose2d.load(name)
    head = ccnet.load(name)
    everyone = read_split(shared / "data" / "coco", "val2017")
    few = Split(
        "val2017", everyone.skeleton, everyone.people[:60], everyone.dataset, everyone.source
    )
    predictions = predict_split(model, head, few)
    raw, ours = (
        calibration(predictions.confidence[s].keypoint, predictions.keypoint_oks)
        for s in ("raw", "ccnet")
    )
    assert ours["pearson"] > raw["pearson"] + 0.05
    assert ours["ece"] < 0.08 < raw["ece"]


def test_people_in_detected_boxes_are_measured_too(shared):
    model = pose2d.load("movenet-lightning")
    head = ccnet.load("movenet-lightning")
    everyone = read_split(shared / "data" / "coco", "val2017")
    few = Split(
        "val2017", everyone.skeleton, everyone.people[:12], everyone.dataset, everyone.source
    )
    detector = MultiPose()
    predictions = predict_split(
        model, head, few, lambda _, image: detector.detect(image), flip_test=True
    )
    assert len(predictions.oks) == len(predictions.box_score) > 0
    assert predictions.oks.max() > 0.7
    assert bool((predictions.confidence["ccnet"].keypoint <= 1).all())
