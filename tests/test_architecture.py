"""Imports go one way, inference does not import training, and few modules lie between a video and its bodies."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.imports import PACKAGES, ROOT, closure, cycles, import_graph, modules_in
from tests.videos import write_video

MAY_IMPORT = {
    "pose2d": {"pose2d"},
    "ccnet": {"pose2d", "ccnet"},
    "fitting": {"pose2d", "fitting"},
    "eval3dpw": {"pose2d", "fitting", "eval3dpw"},
    "fitmesh": set(PACKAGES),
}
TRAINING = ("fitting.training", "ccnet.train", "ccnet.data")
FITTING_INFERENCE = (
    "fitting.track", "fitting.init", "fitting.solver", "fitting.keypoints", "fitting.body", "fitting.camera",
)  # fmt: skip

# Modules of this project (without package __init__ files) that a run has loaded when it writes fit.npz. Of 107, 33 came
# with the scene (camera motion, lens, gravity, floor, contacts), with people who keep their identity behind others and
# across cuts, with edits of tracks, and with networks that run in ONNX Runtime.
MOST_MODULES = 107
TARGET_MODULES = 35

_RUN_UP_TO_FIT = """
import json, sys
from pathlib import Path
from fitmesh.progress import Reporter
from fitmesh.stages import fit, people
from fitmesh.stages.settings import WHOLE_IMAGE, Job, KeypointSettings, RunSettings, TrackSettings
from pose2d.video.reader import Video

settings = RunSettings(
    tracks=TrackSettings(detections=WHOLE_IMAGE), keypoints=KeypointSettings(pose_model="movenet-lightning")
)
job = Job(Video(Path(sys.argv[1])), settings, Path(sys.argv[2]), Reporter(quiet=True))
people.make(job, people_key := people.cache_key(job))
fit.make(job, fit.cache_key(job, people_key))
packages = ("pose2d", "ccnet", "fitting", "eval3dpw", "fitmesh")
loaded = {
    name: module.__file__ for name, module in sys.modules.items()
    if name.split(".")[0] in packages and not module.__file__.endswith("__init__.py")
}
print(json.dumps({"ours": sorted(loaded), "plots": "matplotlib" in sys.modules}))
"""


@pytest.mark.parametrize("package", PACKAGES)
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


@pytest.mark.parametrize("inference", ["ccnet.heads", "ccnet.closed_form"])
def test_calibration_does_not_import_training(inference: str) -> None:
    assert _training_behind(inference) == []


def _training_behind(inference: str) -> list[str]:
    modules = modules_in(inference)
    assert modules, f"there is no module {inference}: name the one that took its place"
    return sorted(closure(*modules).intersection(modules_in(*TRAINING)))


def test_training_can_be_found_by_its_names() -> None:
    assert [name for name in TRAINING if not modules_in(name)] == []


def test_few_modules_are_loaded_between_a_video_and_its_bodies(tmp_path: Path) -> None:
    """What is in sys.modules after the stages people and fit on a tiny video, in a process of its own."""
    video = write_video(tmp_path / "video.mp4", [0, 40, 80])
    command = [sys.executable, "-c", _RUN_UP_TO_FIT, str(video), str(tmp_path / "out")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout.splitlines()[-1])
    loaded = said["ours"]
    assert "fitting.track" in loaded
    assert set(loaded).isdisjoint(modules_in(*TRAINING))
    assert not said["plots"]
    assert len(loaded) <= MOST_MODULES, "\n".join(loaded)
