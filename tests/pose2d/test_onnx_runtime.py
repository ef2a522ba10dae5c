"""ONNX Runtime computes what the modules compute, with whatever weights they have."""

from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import numpy as np
import onnxruntime
import pytest
import torch

import pose2d
from pose2d.base.threads import torch_threads
from pose2d.detect.detector import load_detector
from pose2d.detect.yolox import YOLOX_GRAPH, load_yolox
from pose2d.models.convolutions import OnnxNetwork
from tests.patterns import pattern

NAME = "rtmpose-s-halpe26"


@pytest.fixture(scope="module")
def crops():
    pixels = torch.from_numpy(
        np.concatenate([pattern(seed, 256, 192) for seed in (1, 2, 3)])
    ).float()
    return pose2d.load(NAME).normalize(pixels)


@pytest.mark.parametrize("threads", [1, 2])
def test_rtmpose_has_the_features_of_its_module(crops, threads):
    plain = pose2d.load(NAME, engine="torch")
    fast = pose2d.load(NAME)
    with torch.inference_mode(), torch_threads(threads):
        expected = plain.features(crops)
        got = fast.features(crops)
    assert type(got) is type(expected)
    assert torch.allclose(
        got.as_subclass(torch.Tensor), expected.as_subclass(torch.Tensor), atol=1e-4
    )
    assert torch.allclose(got.trunk, expected.trunk, atol=1e-3)  # values reach 40


def test_an_image_without_people_has_no_features(crops):
    with torch.inference_mode():
        assert pose2d.load(NAME).features(crops[:0]).shape == (0, 26, 256)


@pytest.mark.parametrize("size", [(256, 416), (416, 256), (64, 96)])
def test_yolox_has_the_boxes_of_its_module_at_any_size(size):
    module = load_yolox()
    fast = OnnxNetwork(YOLOX_GRAPH, module.state_dict())
    images = torch.from_numpy(pattern(5, *size)).float()
    with torch.inference_mode():
        boxes, scores = module(images)
    got_boxes, got_scores = fast(images)
    assert torch.allclose(got_boxes, boxes, atol=2e-3)
    assert torch.allclose(got_scores, scores, atol=1e-6)


def test_weights_of_a_checkpoint_are_those_that_run(crops, tmp_path):
    plain = pose2d.load(NAME, engine="torch")
    state = {key: value.clone() for key, value in plain.state_dict().items()}
    state["head.gau.res_scale.scale"] *= 2
    np.savez(tmp_path / "other.npz", **{key: value.numpy() for key, value in state.items()})
    other = pose2d.load(NAME, tmp_path / "other.npz")
    slow = pose2d.load(NAME, tmp_path / "other.npz", engine="torch")
    with torch.inference_mode():
        before, got, expected = (model.features(crops[:1]) for model in (plain, other, slow))
    assert torch.allclose(
        got.as_subclass(torch.Tensor), expected.as_subclass(torch.Tensor), atol=1e-4
    )
    assert not torch.allclose(
        got.as_subclass(torch.Tensor), before.as_subclass(torch.Tensor), atol=0.1
    )


def test_calls_from_several_threads_give_the_same_numbers():
    detector = load_detector("yolox-tiny")
    image = pattern(7, 200, 300)[0].transpose(1, 2, 0).astype(np.uint8)
    with ThreadPoolExecutor(2) as pool, torch_threads(1):
        found = list(pool.map(detector.detect, [image] * 4))
    assert all(np.array_equal(one.boxes_px, found[0].boxes_px) for one in found)


@pytest.mark.parametrize("name", ["rtmpose_s_halpe26.onnx", "yolox_tiny.onnx"])
def test_a_graph_holds_no_weights_of_its_own(name, tmp_path):
    path = files("pose2d") / "graphs" / name
    assert len(path.read_bytes()) < 200_000
    with pytest.raises(
        Exception, match="weights"
    ):  # they are said to lie beside it, and nothing does
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
