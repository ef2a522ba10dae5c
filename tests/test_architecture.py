"""Imports go one way, inference does not import training, and few modules lie between a video and
its bodies.
"""

import importlib.util
import sys
from types import ModuleType

import pytest

from tests.imports import PACKAGES, ROOT, closure, cycles, import_graph, modules_in

MAY_IMPORT = {
    "pose2d": {"pose2d"},
    "ccnet": {"pose2d", "ccnet"},
    "fitting": {"pose2d", "fitting"},
    "eval3dpw": {"pose2d", "fitting", "eval3dpw"},
    "fitmesh": set(PACKAGES),
}
TRAINING = ("training", "ccnet.train", "ccnet.data")
FITTING_INFERENCE = (
    "fitting.track",
    "fitting.init",
    "fitting.solver",
    "fitting.keypoints",
    "fitting.body",
    "fitting.camera",
)

# Modules of this project (without package __init__ files) that `fitmesh run --video` with its
# defaults has loaded when it writes fit.npz. `python tools/house.py --names` says which of them do
# nothing for it.
MOST_MODULES = 190


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_go_one_way(package: str) -> None:
    wrong = [
        f"{module} imports {imported}"
        for module in modules_in(package)
        for imported in import_graph()[module]
        if imported.split(".")[0] not in MAY_IMPORT[package]
    ]
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert cycles() == []


@pytest.mark.parametrize("inference", FITTING_INFERENCE)
def test_fitting_does_not_import_training(inference: str) -> None:
    assert _training_behind(inference) == []


@pytest.mark.parametrize("inference", ["ccnet.heads", "ccnet.confidence"])
def test_calibration_does_not_import_training(inference: str) -> None:
    assert _training_behind(inference) == []


def _training_behind(inference: str) -> list[str]:
    modules = modules_in(inference)
    assert modules, f"there is no module {inference}: name the one that took its place"
    return sorted(closure(*modules).intersection(modules_in(*TRAINING)))


def test_training_can_be_found_by_its_names() -> None:
    assert [name for name in TRAINING if not modules_in(name)] == []


def test_few_modules_are_loaded_between_a_video_and_its_bodies() -> None:
    """By the real command in a process of its own, on one frame that shows somebody."""
    walk = _house().run_one_frame(ROOT)
    loaded = walk.loaded
    assert "fitting.track" in loaded
    assert set(loaded).isdisjoint(modules_in(*TRAINING))
    assert "torch" in walk.libraries
    assert "matplotlib" not in walk.libraries
    assert len(loaded) <= MOST_MODULES, "\n".join(loaded)


def _house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module
