"""torchrun: two processes find what one finds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pose2d.base.distributed import ALONE
from tests.ccnet.toy import write_coco
from tests.eval3dpw import tiny_3dpw

ROOT = Path(__file__).parents[2]


def fitmesh(processes: int, *arguments: object) -> None:
    torchrun = (
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(processes),
    ) * (processes > 1)
    command = [
        sys.executable,
        *torchrun,
        "-m",
        "fitmesh",
        *map(str, arguments),
        "--device",
        "cpu",
        "--threads",
        "1",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_eval_coco_finds_the_same_in_two_processes(tmp_path: Path) -> None:
    write_coco(tmp_path / "data", "val2017", count=5)
    found = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        options = (
            "--model",
            "movenet-lightning",
            "--data",
            tmp_path / "data",
            "--out",
            out,
            "--no-occlusion-test",
        )
        fitmesh(processes, "eval-coco", *options)
        found.append(json.loads((out / "metrics.json").read_text()))
    assert found[0]["people"] == 10
    assert found[0] == found[1]


@pytest.mark.slow
def test_train_ccnet_evaluates_in_two_processes_as_in_one(tmp_path: Path) -> None:
    for split in ("train2017", "val2017"):
        write_coco(tmp_path / "data", split, count=4)
    found = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        options = (
            "--model",
            "movenet-lightning",
            "--data",
            tmp_path / "data",
            "--out",
            out,
            "--no-occlusion-test",
        )
        fitmesh(processes, "train-ccnet", *options, "--epochs", 1, "--batch", 4, "--augment", 0)
        found.append(json.loads((out / "metrics.json").read_text()))
    assert found[0]["checkpoint_digest"] == found[1]["checkpoint_digest"]
    for source in ("raw", "closed-form", "oracle"):
        assert found[0]["test"]["sources"][source] == found[1]["test"]["sources"][source]


@pytest.mark.slow
def test_eval_3dpw_finds_the_same_in_two_processes(tmp_path: Path) -> None:
    data = tiny_3dpw.write(tmp_path / "data", {"a_00": 1, "b_00": 2, "c_00": 1})
    found = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        options = ("--keypoints-from", "poses2d", "--confidence", "raw", "--out", out, "--quiet")
        fitmesh(processes, "eval-3dpw", "--data", data, *options)
        found.append(json.loads((out / "eval-3dpw.json").read_text()))
        (predicted,) = (out / "predictions").glob("raw*.npz")
        with np.load(predicted) as file:
            assert len(file["frame"]) == 4 * tiny_3dpw.FRAMES
    assert found[0]["person_frames"] == 4 * tiny_3dpw.FRAMES
    assert found[0]["rows"] == found[1]["rows"]


def test_one_process_does_and_gathers_everything() -> None:
    items = list(range(7))
    assert ALONE.gather(ALONE.share(items)) == items
