"""One writer a folder: the second is told who the first is, and nobody waits for the dead."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pose2d.base.errors import UserError
from pose2d.base.folder_lock import FILE, FolderBusy, folder_lock

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from pose2d.base.folder_lock import folder_lock
with folder_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holder_of(folder: Path) -> "subprocess.Popen[str]":
    """Another process that holds the lock when this returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_process_is_told_who_holds_the_folder_and_since_when(tmp_path: Path) -> None:
    other = holder_of(tmp_path / "out")
    try:
        with pytest.raises(FolderBusy) as refused, folder_lock(tmp_path / "out"):
            pass
    finally:
        other.kill()
        other.wait()
    said = str(refused.value)
    assert f"process {other.pid} on " in said
    assert time.strftime("since %Y-%m-%d", time.gmtime()) in said
    assert str(tmp_path / "out") in said


def test_the_lock_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    other = holder_of(tmp_path)
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    assert (tmp_path / FILE).is_file()
    began = time.monotonic()
    with folder_lock(tmp_path):
        assert (tmp_path / FILE).read_text().startswith(f"process {os.getpid()} on ")
    assert time.monotonic() - began < 1
    assert list(tmp_path.iterdir()) == []


def test_who_has_patience_gets_the_lock_when_the_first_has_finished(tmp_path: Path) -> None:
    other = holder_of(tmp_path)
    other.terminate()  # Python's own handler: the process ends without giving the lock back
    with folder_lock(tmp_path, patience_s=10):
        pass
    other.wait()


def test_of_many_who_come_at_once_one_at_a_time_is_inside(tmp_path: Path) -> None:
    script = (
        "import sys, os\nfrom pathlib import Path\nfrom pose2d.base.folder_lock import folder_lock\n"
        "out = Path(sys.argv[1])\n"
        "for _ in range(40):\n"
        "    with folder_lock(out, patience_s=60):\n"
        "        os.close(os.open(out / 'inside', os.O_CREAT | os.O_EXCL))\n"
        "        os.unlink(out / 'inside')\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT) for _ in range(3)
    ]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert list(tmp_path.iterdir()) == []


def test_damaged_lock_files_lock_nobody_out(tmp_path: Path) -> None:
    for text in ("", "{", "[1]", '{"pid": "x"}', "\0" * 5000):
        (tmp_path / FILE).write_text(text)
        with folder_lock(tmp_path):
            pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file is a file"), folder_lock(tmp_path / "file"):
        pass
    with pytest.raises(UserError, match="cannot write"), folder_lock(tmp_path / "file" / "below"):
        pass
