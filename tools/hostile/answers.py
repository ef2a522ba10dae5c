"""Odd answers of other people's code and servers: a plug-in's network, and the Hugging Face hub.

Readers take a file, as those of other hostile inputs: JSON that describes the answer."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

import pose2d
from pose2d import hub
from pose2d.crops import estimate
from pose2d.models.plugins import build_checked
from pose2d.types import Prediction

MODEL = "vitpose-b"
FACTS: dict[str, Any] = {
    "_id": "1",
    "id": hub.REPOSITORIES[MODEL],
    "sha": "0123456789abcdef" * 2 + "01234567",
    "private": False,
    "tags": [f"license:{hub.LICENCE}", "vitpose"],
    "siblings": [
        {"rfilename": "README.md", "size": 10, "blobId": "a"},
        {
            "rfilename": "model.safetensors",
            "size": 1000,
            "blobId": "b",
            "lfs": {"sha256": "0123456789abcdef" * 4, "size": 1000, "pointerSize": 1},
        },
    ],
}


def read_hub_answer(path: Path) -> None:
    """Take a file for the hub's answer about a repository; a success must be a valid offer."""
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import ModelInfo

    def answer(*_: object, **__: object) -> ModelInfo:
        return ModelInfo(**json.loads(path.read_bytes()))

    with mock.patch.object(HfApi, "model_info", answer):
        offer = hub.look_up(MODEL)
    if len(offer.revision) != 40 or len(offer.sha256) != 64 or type(offer.size) is not int:
        raise AssertionError(f"an offer that cannot be right: {offer}")


WH = (24, 32)
COUNT = 2  # crops
IMAGE = np.zeros((64, 64, 3), np.uint8)
BOXES = np.array([[4.0, 4, 40, 60], [10, 10, 30, 50]])
SHAPES = {
    "normalize": (COUNT, 3, 32, 24),
    "features": (COUNT, 5, 8, 6),
    "maps": (COUNT, 17, 8, 6),
    "predict.xy_px": (COUNT, 17, 2),
    "predict.score": (COUNT, 17),
    "predict.sigma_px": (COUNT, 17, 2),
    "predict.heatmap_score": (COUNT, 17),
}
METHODS = (*SHAPES, "build", "convert")
KINDS = ("tensor", "tensor", "tensor", "array", "null", "text", "number", "list", "raise", "exit")
DTYPES = ("float32", "float32", "float16", "float64", "int64", "bool", "complex64", "bfloat16")
FILLS = (0.0, 1.0, -1.0, 1e30, 1e-30, "nan", "inf", "-inf")


class _Toy(pose2d.HeatmapModel):
    """A small network one of whose methods gives the answer of a file."""

    skeleton = pose2d.COCO17
    input_wh = WH
    feature_shape = SHAPES["features"][1:]

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__()
        self.trunk = nn.Conv2d(3, 5, 4, 4)
        self.final_layer = nn.Conv2d(5, 17, 1)
        self.answer = answer

    def _odd(self, method: str, right: Any) -> Any:
        return _make_answer(self.answer) if self.answer.get("method") == method else right

    def normalize(self, crops: Tensor) -> Tensor:
        return self._odd("normalize", super().normalize(crops))

    def features(self, crops: Tensor) -> Tensor:
        return self._odd("features", self.trunk(crops))

    def maps(self, features: Tensor) -> Tensor:
        return self._odd("maps", super().maps(features))

    def convert(self, state: Any) -> dict[str, Tensor]:
        return self._odd("convert", super().convert(state))

    def predict(self, features: Tensor) -> Prediction:
        prediction = super().predict(features)
        method, _, field = str(self.answer.get("method")).partition(".")
        if method == "predict" and field:
            return Prediction(**{**vars(prediction), field: _make_answer(self.answer)})
        return prediction


def _make_answer(answer: dict[str, Any]) -> Any:
    """Make the object that a description stands for."""
    kind = answer.get("kind")
    if kind == "raise":
        raise RuntimeError("a mistake of the plug-in")
    if kind == "exit":
        sys.exit(3)
    if kind in ("tensor", "array"):
        fill = float(answer.get("fill", 0))
        dtype = getattr(torch, str(answer.get("dtype")))
        tensor = torch.full(tuple(answer.get("shape", ())), 1.0).mul(fill).to(dtype)
        return tensor if kind == "tensor" else tensor.real.float().numpy()
    return {"text": "an answer", "number": 3, "list": [1, 2]}.get(str(kind))


def draw_plugin_answer(rng: np.random.Generator) -> dict[str, Any]:
    """Describe a random answer of a random method: often a tensor of about the right shape."""
    method = METHODS[int(rng.integers(len(METHODS)))]
    shape = list(SHAPES.get(method, (1,)))
    change = int(rng.integers(4))
    if change == 1:
        shape[int(rng.integers(len(shape)))] = int(rng.integers(0, 20))
    elif change == 2:
        shape = shape[: int(rng.integers(len(shape)))]
    elif change == 3:
        shape.append(int(rng.integers(0, 3)))
    return {
        "method": method,
        "kind": KINDS[int(rng.integers(len(KINDS)))],
        "shape": shape,
        "dtype": DTYPES[int(rng.integers(len(DTYPES)))],
        "fill": FILLS[int(rng.integers(len(FILLS)))],
    }


def plugin_answers() -> Iterator[dict[str, Any]]:
    """Yield one description of every kind for every method."""
    for method in METHODS:
        shape = list(SHAPES.get(method, (1,)))
        right = {"method": method, "kind": "tensor", "shape": shape, "dtype": "float32", "fill": 0}
        for kind in dict.fromkeys(KINDS[3:]):
            yield {**right, "kind": kind}
        yield {**right, "shape": shape[:-1]}
        yield {**right, "shape": [*shape[:-1], shape[-1] + 1]}
        yield {**right, "shape": []}
        yield {**right, "dtype": "complex64"}
        yield {**right, "dtype": "int64"}
        yield {**right, "fill": "nan"}
        yield {**right, "fill": "inf"}


def read_plugin_answer(path: Path) -> None:
    """Run a network that gives the answer of a file; a success must be finite keypoints."""
    answer = json.loads(path.read_bytes())

    def build() -> Any:
        return _make_answer(answer) if answer["method"] == "build" else _Toy(answer)

    model = build_checked(pose2d.ModelCard("toy-network", build, pose2d.COCO17, WH))
    model.load_state_dict(model.convert(model.state_dict()))
    poses = estimate(model.eval(), IMAGE, BOXES)
    if poses.xy_px.shape != (COUNT, 17, 2) or not bool(torch.isfinite(poses.xy_px).all()):
        raise AssertionError(f"keypoints that cannot be right, after {answer}")
    if not bool(torch.isfinite(poses.score).all()):
        raise AssertionError(f"scores that cannot be right, after {answer}")
