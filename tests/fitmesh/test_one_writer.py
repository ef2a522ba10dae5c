"""Two runs in one folder: one of them works, the other says who does."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

import fitmesh as package
from pose2d.base.folder_lock import folder_lock
from tests.ccnet.toy import write_coco
from tests.fitmesh.conftest import Fitmesh
from tests.fitmesh.test_resume import start


@pytest.mark.slow
def test_of_two_runs_in_one_folder_one_ends_well_and_the_other_names_it(
    walk: tuple[str | Path, ...], tmp_path: Path
) -> None:
    first = start((*walk, "--out", tmp_path))
    assert first.stdout is not None
    while json.loads(first.stdout.readline()).get("state") != "started":  # it is at work now
        pass
    first.send_signal(signal.SIGSTOP)  # so that it is still at work when the second one has started
    second = start((*walk, "--out", tmp_path))
    news, _ = second.communicate(timeout=120)
    assert second.returncode == 2
    said = json.loads(news.splitlines()[-1])
    assert said["event"] == "error"
    assert f"is being written by process {first.pid} on " in said["text"]
    first.send_signal(signal.SIGCONT)
    assert _ended(first) == 0
    assert len(package.load(tmp_path).people) == 2
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".fitmesh")]


def _ended(process: "subprocess.Popen[str]") -> int:
    process.communicate(timeout=120)
    return process.returncode


@pytest.mark.parametrize(
    "command",
    [
        ("synth", "--sequences", "1", "--frames", "2"),
        ("eval-3dpw", "--data", "nowhere"),
        ("train-ccnet", "--data", "DATA", "--model", "movenet-lightning", "--epochs", "1"),
    ],
)
def test_no_command_writes_into_a_folder_that_another_one_holds(
    fitmesh: Fitmesh, tmp_path: Path, command: tuple[str, ...]
) -> None:
    write_coco(tmp_path / "data", "train2017", count=2)
    arguments = [str(tmp_path / "data") if word == "DATA" else word for word in command]
    with folder_lock(tmp_path / "out"):
        assert fitmesh(*arguments, "--out", tmp_path / "out") == 2
    assert "is being written by process" in fitmesh.said
    assert list((tmp_path / "out").iterdir()) == []
