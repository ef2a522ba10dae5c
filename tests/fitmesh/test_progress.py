"""What a run says while it works: on a terminal, in a log and for programs."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fitmesh.ui import events
from fitmesh.ui.events import Reporter, as_json_lines, heartbeat, on_stderr

LONGEST_SILENCE_S = 2.0
EXAMPLE = Path(__file__).parents[2] / "examples" / "park.mp4"


def test_a_heartbeat_counts_until_the_work_is_done() -> None:
    heard: list[int] = []
    with heartbeat(heard.append, 0.01):
        while len(heard) < 3:
            time.sleep(0.005)
    after = len(heard)
    time.sleep(0.05)
    assert heard == list(range(1, after + 1))


def test_a_log_gets_one_line_about_what_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(events, "BEAT_S", 0.005)
    with Reporter(on_stderr()).busy("thinking"):
        time.sleep(0.2)
    with Reporter(on_stderr()).busy("blinking"):
        pass
    assert capsys.readouterr().err == "thinking ..\n"


def test_a_stage_without_a_single_step_still_reports_to_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(events, "BEAT_S", 0.02)
    reporter = Reporter(as_json_lines)
    with reporter.busy("thinking"):
        time.sleep(0.1)
    with reporter.stage("fit", 10) as tick:
        time.sleep(0.1)
        tick(10)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines if line["event"] == "busy"][:2] == [
        "thinking",
        "thinking",
    ]
    states = [line["state"] for line in lines if line["event"] == "stage"]
    assert states[:3] == ["started", "running", "running"]
    assert states[-1] == "done"


def test_a_quiet_run_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter(on_stderr(quiet=True)).busy("thinking"):
        time.sleep(0.01)
    assert capsys.readouterr() == ("", "")


def test_interrupted_while_starting_a_run_shows_the_cursor_again(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty", reason="needs pseudo-terminals")
    command = [
        sys.executable,
        "-m",
        "fitmesh",
        "run",
        "--video",
        EXAMPLE,
        "--out",
        tmp_path / "out",
    ]
    here, there = pty.openpty()
    ended = subprocess.Popen(
        command,
        stdout=there,
        stderr=there,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm"},
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.default_int_handler
        ),  # ignored in background jobs
    )
    os.close(there)
    said = os.read(here, 1 << 16).decode()
    while "starting" not in said:
        said += os.read(here, 1 << 16).decode(errors="replace")
    ended.send_signal(signal.SIGINT)
    said += _listen(here)[1]
    assert ended.wait(timeout=60) == 130
    assert "Stopped." in said
    assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l"), (
        "the last word about the cursor is to show it"
    )


@pytest.mark.slow
def test_on_a_terminal_a_run_is_never_silent_for_long(tmp_path: Path) -> None:
    """From the first word to the last, also when the renderer has to be compiled (an empty cache
    folder).
    """
    pty = pytest.importorskip("pty", reason="needs pseudo-terminals")
    command = [
        sys.executable,
        "-m",
        "fitmesh",
        "run",
        "--video",
        EXAMPLE,
        "--end",
        "0.2",
        "--out",
        tmp_path / "out",
    ]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba"), "TERM": "xterm"}
    here, there = pty.openpty()
    ended = subprocess.Popen(
        command, stdout=there, stderr=there, stdin=subprocess.DEVNULL, env=environment
    )
    os.close(there)
    silences, text = _listen(here)
    assert ended.wait(timeout=60) == 0, text
    assert any((tmp_path / "numba").rglob("*.nbc")), (
        "the renderer was compiled, said or beside other work"
    )
    late = [
        (f"{seconds:.1f} s", before)
        for seconds, before in silences
        if seconds > LONGEST_SILENCE_S * _slowness()
    ]
    assert late == []


def _slowness() -> float:
    """How many others want each core: a busy machine is slower than the program."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _listen(terminal: int) -> tuple[list[tuple[float, str]], str]:
    """The pauses in what comes out of a terminal, each with the words before it, and everything
    that came.
    """
    silences = []
    said = ""
    last = time.monotonic()
    while True:
        select.select([terminal], [], [])
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # the other side has been closed
            return silences, said
        if not data:
            return silences, said
        silences.append((time.monotonic() - last, said[-80:]))
        said = said + data.decode(errors="replace")
        last = time.monotonic()
