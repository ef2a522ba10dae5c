"""Nothing leaves the machine: a run without network access succeeds and opens no socket."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Python tells audit hooks of every socket that is made. In a network namespace of its own the
# process also reaches nothing through libraries in C; most systems allow that to all users.
WATCHED = """
import ctypes, os, sys

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
if sys.platform == "linux":
    libc = ctypes.CDLL(None, use_errno=True)
    alone = libc.unshare(CLONE_NEWNET) == 0 or libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0
    print("alone:", alone)
sockets = []

def watch(event, arguments):
    if event == "socket.__new__" or event in ("socket.connect", "socket.getaddrinfo"):
        sockets.append(event)
        raise PermissionError("network access is denied")

sys.addaudithook(watch)
from fitmesh import cli

sys.argv = ["fitmesh", *sys.argv[1:]]
code = 0
try:
    cli.main()
except SystemExit as left:
    code = left.code
if os.path.isdir("/proc/self/fd"):  # libraries in C call no hook
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    sockets += [os.readlink(link) for link in links if os.path.islink(link)
                and os.readlink(link).startswith("socket:")]
print("sockets:", sockets)
sys.exit(code)
"""


def run_watched(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WATCHED, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_run_without_network_succeeds_and_opens_no_socket(tmp_path: Path) -> None:
    """The whole way from pixels to the report, with the embedded networks."""
    out = tmp_path / "out"
    clip = ROOT / "examples" / "park.mp4"
    ended = run_watched("run", "--video", clip, "--out", out, "--end", "0.3", "--threads", "1")
    assert ended.returncode == 0, ended.stderr
    assert "sockets: []" in ended.stdout, ended.stdout
    names = ("fit.npz", "overlay.mp4", "scene.glb", "report.html")
    assert all((out / name).is_file() for name in names)


def test_lists_and_help_open_no_socket() -> None:
    for arguments in (("models",), ("run", "--help")):
        ended = run_watched(*arguments)
        assert ended.returncode == 0, ended.stderr
        assert "sockets: []" in ended.stdout


def test_the_watch_sees_sockets(tmp_path: Path) -> None:
    """The viewer needs a socket: denied, it says so."""
    watched = WATCHED.replace("cli.main()", "import socket; socket.socket()")
    ended = subprocess.run(
        [sys.executable, "-c", watched],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "network access is denied" in ended.stderr
