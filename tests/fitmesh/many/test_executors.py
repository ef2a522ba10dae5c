"""Local processes: every task once, whoever dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fitmesh.many.executors import RETRIES, ProcessExecutor, SerialExecutor
from tests.fitmesh.many import jobs

ROOT = Path(__file__).parents[3]


def nothing(number: int, news: object) -> None: ...


def test_every_task_is_done_once_by_processes_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    told = []
    ended = list(
        ProcessExecutor(2, 3).map(
            jobs.square, range(9), lambda number, news: told.append((number, news))
        )
    )
    assert {one.number: one.result[0] for one in ended} == {n: n * n for n in range(9)}
    assert len(ended) == 9
    assert 1 <= len({one.result[1] for one in ended} - {os.getpid()}) <= 2
    assert sorted(number for number, _ in told) == list(range(9))
    assert [one.result for one in ProcessExecutor(1, 3).map(jobs.threads, [0], nothing)] == ["3"]
    assert "OMP_NUM_THREADS" not in os.environ


def test_this_process_does_the_same() -> None:
    assert [
        (one.number, one.result) for one in SerialExecutor().map(jobs.square, [3, 4], nothing)
    ] == [
        (0, (9, os.getpid())),
        (1, (16, os.getpid())),
    ]


def test_a_task_whose_process_was_killed_is_tried_again_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    tasks = [
        (tmp_path / "never", 0),
        (tmp_path / "once", 1),
        (tmp_path / "always", 99),
        (tmp_path / "again", 0),
    ]
    ended = {
        one.number: one for one in ProcessExecutor(2, 1).map(jobs.die_some_times, tasks, nothing)
    }
    assert [ended[n].result for n in range(4)] == [1, 2, None, 1]
    assert (tmp_path / "always").stat().st_size == 1 + RETRIES
    assert ended[2].lost.startswith("the worker process was killed (SIGKILL")
    assert f"{1 + RETRIES} times" in ended[2].lost


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path\nfrom fitmesh.many.executors import ProcessExecutor\n"
        "from tests.fitmesh.many import jobs\n"
        "if __name__ == '__main__':\n"
        f"    list(ProcessExecutor(1, 1).map(jobs.sleep, [Path({str(tmp_path / 'pid')!r})], print))\n"
    )
    (tmp_path / "script.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, str(tmp_path / "script.py")], env=environment)
    worker = int(_when_there(tmp_path / "pid"))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    give_up = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and _state(worker) != "Z":
        assert time.monotonic() < give_up
        time.sleep(0.05)


def _when_there(path: Path) -> str:
    give_up = time.monotonic() + 60
    while not path.exists() or not path.read_text():
        assert time.monotonic() < give_up
        time.sleep(0.05)
    return path.read_text()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def test_a_script_that_forgets_its_guard_is_told(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from fitmesh.many.executors import ProcessExecutor\nfrom tests.fitmesh.many import jobs\n"
        "list(ProcessExecutor(1, 1).map(jobs.square, [1], lambda number, news: None))\n"
    )
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "if __name__ == '__main__':" in ended.stderr
