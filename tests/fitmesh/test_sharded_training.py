"""Training whose workers are killed ends with the same head as undisturbed; features that are there
are kept.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pose2d
from ccnet.data import observations
from ccnet.data.datasets import read_split
from ccnet.train import TrainingSettings, make_examples, new_head
from pose2d.base.distributed import ALONE
from tests.ccnet.toy import write_coco

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
# More steps than one checkpoint is apart from the next, so that a killed run has one to resume
# from.
TRAINING = (
    "--model",
    "movenet-lightning",
    "--epochs",
    "80",
    "--batch",
    "4",
    "--augment",
    "0",
    "--threads",
    "1",
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_coco(tmp_path / "data", "train2017", count=8)
    return tmp_path / "data"


def train(
    data: Path, out: Path, *more: str, prefix: tuple[str, ...] = ()
) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        *prefix,
        "-m",
        "fitmesh",
        "train-ccnet",
        "--data",
        data,
        "--out",
        out,
        *TRAINING,
        *more,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        list(map(str, command)),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def finished(process: "subprocess.Popen[str]") -> None:
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said


def elastic(processes: int) -> tuple[str, ...]:
    return (
        "-m",
        "torch.distributed.run",
        "--nnodes=1:1",
        "--max-restarts=3",
        f"--nproc-per-node={processes}",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
    )


def workers_end(running: subprocess.Popen[str]) -> None:
    """Wait for torchrun; after two minutes end it with its workers, which have process groups of
    their own.
    """
    try:
        running.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        workers = subprocess.run(
            ["pgrep", "-P", str(running.pid)], capture_output=True, text=True
        ).stdout.split()
        for process in (running.pid, *map(int, workers)):
            os.kill(process, signal.SIGKILL)
        running.communicate()


def test_a_training_under_torchrun_whose_worker_is_killed_ends_with_the_same_head(
    data: Path, tmp_path: Path
) -> None:
    finished(train(data, tmp_path / "undisturbed", prefix=elastic(2)))
    running = train(data, tmp_path / "killed", prefix=elastic(2))
    checkpoint = tmp_path / "killed" / "training.pt"
    give_up = time.monotonic() + 300
    while not checkpoint.exists():  # the first 100 steps are done
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < give_up
        time.sleep(0.005)
    found = subprocess.run(
        ["pgrep", "-P", str(running.pid)], capture_output=True, text=True, check=True
    ).stdout
    os.kill(int(found.split()[-1]), signal.SIGKILL)
    workers_end(running)
    assert running.returncode == 0
    heads = [
        (tmp_path / name / "ccnet.safetensors").read_bytes() for name in ("killed", "undisturbed")
    ]
    assert heads[0] == heads[1]


def test_a_shard_that_is_there_is_not_computed_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observations, "SHARD", 6)
    model = pose2d.load("movenet-lightning")
    settings = TrainingSettings(head="movenet", augmented_passes=0)
    head = new_head(model, settings, "movenet-lightning")
    people = list(read_split(data, "train2017", model.skeleton).people)
    given = (model, head, people, settings, ALONE, tmp_path / "cache")
    make_examples(*given)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.np?")}
    assert len(written) == 6
    next(path for path in written if path.name == "0000006.npy").unlink()
    make_examples(*given)
    again = {path: path.stat().st_mtime_ns for path in written}
    assert {path.name for path in written if again[path] != written[path]} == {
        "0000006.npy",
        "0000006.npz",
    }
