"""What a plug-in's network answers is checked; the error names the network and what was expected."""

import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pose2d
from pose2d.base.caching import code_files, weights_digest
from pose2d.base.errors import UserError
from pose2d.crops import estimate, estimate_people
from pose2d.models import registry
from pose2d.models.base import HeatmapModel, PoseModel
from pose2d.types import Prediction

NAME = "toy-network"
WH = (24, 32)
IMAGE = np.zeros((64, 64, 3), np.uint8)
BOXES = np.array([[4.0, 4, 40, 60], [10, 10, 30, 50]])


class Toy(HeatmapModel):
    skeleton = pose2d.COCO17
    input_wh = WH
    feature_shape = (5, 8, 6)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Conv2d(3, 5, 4, 4)
        self.final_layer = nn.Conv2d(5, 17, 1)

    def features(self, crops: Tensor) -> Tensor:
        return self.trunk(crops)


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("toy_plugin", None)


def load(tmp_path: Path, build: Callable[[], Any], **fields: Any) -> PoseModel:
    card = pose2d.ModelCard(NAME, build, pose2d.COCO17, WH)
    pose2d.register(replace(card, **fields))
    torch.save(Toy().state_dict(), tmp_path / "toy.pth")
    return pose2d.load(NAME, tmp_path / "toy.pth")


def test_a_right_network_computes_the_same_as_without_checks(tmp_path: Path) -> None:
    model = load(tmp_path, Toy)
    plain = Toy().eval()
    assert isinstance(model, Toy)
    assert type(model).__module__ == Toy.__module__
    assert weights_digest(model.state_dict()) == weights_digest(plain.state_dict())
    for flip_test in (False, True):
        checked = estimate(model, IMAGE, BOXES, flip_test)
        unchecked = estimate(plain, IMAGE, BOXES, flip_test)
        torch.testing.assert_close(checked.xy_px, unchecked.xy_px, rtol=0, atol=0)
        torch.testing.assert_close(checked.score, unchecked.score, rtol=0, atol=0)
    assert len(estimate(model, IMAGE, np.zeros((0, 4)))) == 0
    assert isinstance(deepcopy(model), Toy)
    assert registry.module_of(NAME) in code_files(registry.module_of(NAME))


def answers(method: str, answer: Callable[..., Any]) -> type[Toy]:
    """A toy network one of whose methods answers differently."""
    return type("Odd", (Toy,), {method: answer})


def fail(*_: object) -> Any:
    raise RuntimeError("my own mistake\nwith details")


def leave(*_: object) -> Any:
    sys.exit(3)


PREDICTION = Prediction(torch.zeros(2, 17, 2), torch.zeros(2, 17))
NAN = float("nan")
WRONG: dict[str, tuple[str, Callable[..., Any], str]] = {
    "features raise": ("features", fail, r"features\(\) failed with RuntimeError: my own mistake"),
    "features exit": ("features", leave, r"features\(\) failed with SystemExit: 3"),
    "features None": ("features", lambda *_: None, r"features\(\).*\[2, 5, 8, 6\]; got None"),
    "features array": ("features", lambda *_: np.zeros((2, 5, 8, 6)), "got ndarray"),
    "features shape": (
        "features",
        lambda *_: torch.zeros(2, 5, 8, 7),
        r"got float32 \[2, 5, 8, 7\]",
    ),
    "features batch": (
        "features",
        lambda *_: torch.zeros(1, 5, 8, 6),
        r"got float32 \[1, 5, 8, 6\]",
    ),
    "features empty": ("features", lambda *_: torch.zeros(0), r"got float32 \[0\]"),
    "features complex": (
        "features",
        lambda *_: torch.zeros(2, 5, 8, 6, dtype=torch.complex64),
        "got complex64",
    ),
    "features integer": ("features", lambda *_: torch.zeros(2, 5, 8, 6).long(), "got int64"),
    "features NaN": ("features", lambda *_: torch.full((2, 5, 8, 6), NAN), "finite.*NaN"),
    "features tuple": ("features", lambda *_: (1, 2), r"got \(1, 2\)"),
    "maps raise": ("maps", fail, r"maps\(\) failed with RuntimeError"),
    "maps None": ("maps", lambda *_: None, r"maps\(\).*\[2, 17, height, width\]; got None"),
    "maps of 16": ("maps", lambda *_: torch.zeros(2, 16, 8, 6), r"got float32 \[2, 16, 8, 6\]"),
    "maps flat": ("maps", lambda *_: torch.zeros(2, 17), r"got float32 \[2, 17\]"),
    "maps without cells": ("maps", lambda *_: torch.zeros(2, 17, 0, 6), r"\[2, 17, 0, 6\]"),
    "maps infinite": ("maps", lambda *_: torch.full((2, 17, 8, 6), -torch.inf), "NaN or infinite"),
    "predict raise": ("predict", fail, r"predict\(\) failed with RuntimeError"),
    "predict None": ("predict", lambda *_: None, r"predict\(\) must be a pose2d\.Prediction"),
    "predict of 16": (
        "predict",
        lambda *_: replace(PREDICTION, xy_px=torch.zeros(2, 16, 2)),
        r"predict\(\)\.xy_px.*\[2, 17, 2\]; got float32 \[2, 16, 2\]",
    ),
    "predict score": (
        "predict",
        lambda *_: replace(PREDICTION, score=torch.full((2, 17), NAN)),
        r"predict\(\)\.score.*finite",
    ),
    "predict no score": (
        "predict",
        lambda *_: replace(PREDICTION, score=None),
        r"predict\(\)\.score.*got None",
    ),
    "predict sigma": (
        "predict",
        lambda *_: replace(PREDICTION, sigma_px=-torch.ones(2, 17, 2)),
        r"predict\(\)\.sigma_px must be standard deviations of at least 0",
    ),
    "normalize": ("normalize", lambda *_: None, r"normalize\(\).*\[2, 3, 32, 24\]; got None"),
    "normalize shape": ("normalize", lambda _, crops: crops[:, :2].float(), r"\[2, 2, 32, 24\]"),
    "decode": ("decode", staticmethod(lambda maps: None), r"predict\(\) failed with TypeError"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_answer_is_refused_with_the_networks_name(tmp_path: Path, case: str) -> None:
    method, answer, message = WRONG[case]
    model = load(tmp_path, answers(method, answer))
    with pytest.raises(UserError, match=message) as refused:
        estimate_people(model, [IMAGE] * 2, BOXES)
    assert NAME in str(refused.value)


def test_the_flip_test_is_checked_too(tmp_path: Path) -> None:
    model = load(tmp_path, answers("predict_flip", lambda *_: None))
    with pytest.raises(UserError, match=r"toy-network: predict_flip\(\) must be a pose2d"):
        estimate(model, IMAGE, BOXES, flip_test=True)


class NoSuper(Toy):
    def __init__(self) -> None:
        pass


class NoWeights(PoseModel):
    skeleton = pose2d.COCO17
    input_wh = WH
    feature_shape = (5,)


BUILDS: dict[str, tuple[Callable[..., Any], str]] = {
    "raises": (fail, r"build\(\) failed with RuntimeError: my own mistake"),
    "exits": (leave, r"build\(\) failed with SystemExit"),
    "takes an argument": (lambda size: Toy(), r"build\(\) failed with TypeError"),
    "None": (lambda: None, r"build\(\) must be a pose2d\.PoseModel; got None"),
    "a class": (lambda: Toy, r"build\(\) must be a pose2d\.PoseModel; got \w+"),
    "another module": (lambda: nn.Linear(1, 1), "got Linear"),
    "no super": (NoSuper, r"call super\(\)\.__init__\(\)"),
    "no weights": (NoWeights, "has no weights"),
    "no feature_shape": (type("A", (Toy,), {"feature_shape": None}), "feature_shape.*got None"),
    "long feature_shape": (type("B", (Toy,), {"feature_shape": (1, 2, 3, 4)}), "feature_shape"),
    "text in feature_shape": (type("C", (Toy,), {"feature_shape": ("5", 8, 6)}), "feature_shape"),
    "another skeleton": (type("D", (Toy,), {"skeleton": pose2d.MPII16}), "differ in skeleton"),
    "no input_wh": (type("E", (Toy,), {"input_wh": None}), "differ in input_wh"),
    "another crop": (type("F", (Toy,), {"crop": "round"}), "crop must be one of sbl, udp, square"),
    "NaN box_scale": (type("G", (Toy,), {"box_scale": NAN}), "box_scale must be a number"),
    "no normalization": (type("H", (Toy,), {"normalization": 3}), "normalization"),
    "convert None": (answers("convert", lambda *_: None), r"convert\(\) must be a dict of tensors"),
    "convert raises": (answers("convert", fail), r"convert\(\) failed with RuntimeError"),
    "convert numbers": (answers("convert", lambda *_: {"a": 1}), r"convert\(\) must be a dict"),
}


@pytest.mark.parametrize("case", BUILDS)
def test_a_network_that_cannot_be_built_is_refused(tmp_path: Path, case: str) -> None:
    build, message = BUILDS[case]
    with pytest.raises(UserError, match=message) as refused:
        load(tmp_path, build)
    assert NAME in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"build": None}, "build must be a function"),
        ({"skeleton": "coco17"}, "skeleton must be a pose2d.Skeleton"),
        ({"input_wh": (0, 32)}, "input_wh"),
        ({"input_wh": (24.0, 32.0)}, "input_wh"),
        ({"input_wh": 24}, "input_wh"),
        ({"parameters": None}, "parameters"),
        ({"licence": None}, "licence"),
        ({"graph": "rtmpose_s_halpe26.onnx"}, "graph"),
        ({"name": 3}, "name"),
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
    ],
)
def test_a_wrong_card_is_refused(fields: dict[str, Any], message: str) -> None:
    card = pose2d.ModelCard(NAME, Toy, pose2d.COCO17, WH)
    with pytest.raises(UserError, match=message):
        pose2d.register(replace(card, **fields))


def test_an_embedded_file_outside_the_package_is_not_read(tmp_path: Path) -> None:
    card = pose2d.ModelCard(NAME, Toy, pose2d.COCO17, WH, embedded="../../../etc/passwd")
    pose2d.register(card)
    with pytest.raises(UserError, match="not in the list of embedded files"):
        pose2d.load(NAME)


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("my.toy.py", "x = 1", r"my\.toy\.py.*without a dot"),
        ("toy_plugin.py", "raise SystemExit(3)", "does not run: SystemExit: 3"),
        ("toy_plugin.py", "import sys\nsys.exit()", "does not run: SystemExit"),
        ("toy_plugin.py", "def f(:", "does not run: SyntaxError"),
        ("toy_plugin.py", "import pose2d\npose2d.register(3)", "takes a pose2d.ModelCard"),
        ("toy_plugin.py", "raise ValueError('a\\nb')", "does not run: ValueError: a"),
    ],
)
def test_a_plugin_file_that_fails_is_refused(
    tmp_path: Path, name: str, code: str, message: str
) -> None:
    (tmp_path / name).write_text(code)
    with pytest.raises(UserError, match=message):
        registry.use_plugin(tmp_path / name)


def test_a_builtin_as_build_has_no_code_to_depend_on() -> None:
    pose2d.register(pose2d.ModelCard(NAME, dict().copy, pose2d.COCO17, WH))
    with pytest.raises(UserError, match="write it to a file"):
        registry.module_of(NAME)
