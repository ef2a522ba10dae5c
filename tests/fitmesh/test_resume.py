"""A run that is stopped in any way goes on where it stopped, and ends as if nothing had happened."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fitmesh.exports import draw
from tests.fitmesh.conftest import Fitmesh

ARRAYS = ("tracks.npz", "keypoints.npz", "fit.npz")
MOMENTS = (("people", "started"), ("fit", "started"), ("overlay", "started"))


def start(arguments: tuple[str | Path, ...]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "fitmesh", "run", *map(str, arguments), "--json"]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def kill_at(arguments: tuple[str | Path, ...], stage: str, state: str) -> list[str]:
    """Kill a run without mercy as soon as it says that; returns the stages it kept from earlier
    runs.
    """
    process = start(arguments)
    assert process.stdout is not None
    kept = []
    for line in process.stdout:
        news = json.loads(line)
        if news["event"] == "stage" and news["state"] == "kept":
            kept.append(news["stage"])
        if (news.get("stage"), news.get("state")) == (stage, state):
            break
    else:
        raise AssertionError(process.stderr.read() if process.stderr else "")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    return kept


@pytest.mark.slow
def test_killed_at_several_moments_it_ends_like_an_undisturbed_run(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path
) -> None:
    assert fitmesh("run", *walk, "--out", tmp_path / "undisturbed") == 0, fitmesh.said
    arguments = (*walk, "--out", tmp_path / "killed")
    kept = [kill_at(arguments, *moment) for moment in MOMENTS]
    assert kept == [[], [], ["people"]]
    assert fitmesh("run", *arguments) == 0
    assert fitmesh.stages_made() == ["overlay", "glb", "report"]
    for name in ARRAYS:
        assert (tmp_path / "killed" / name).read_bytes() == (
            tmp_path / "undisturbed" / name
        ).read_bytes(), name
    same = [
        sorted(p.name for p in (tmp_path / folder).iterdir())
        for folder in ("killed", "undisturbed")
    ]
    assert same[0] == same[1]  # nothing half-written is left


def test_interrupted_by_hand_it_keeps_what_was_finished(
    fitmesh: Fitmesh,
    walk: tuple[str | Path, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_exports: None,
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(draw, "draw_legend", interrupt)
        assert fitmesh("run", *walk, "--out", tmp_path) == 130
    assert "Stopped. Finished stages are kept" in fitmesh.said
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "fit.npz",
        "keypoints.npz",
        "run.json",
        "tracks.npz",
    ]
    assert fitmesh("run", *walk, "--out", tmp_path) == 0
    assert fitmesh.stages_made() == ["overlay"]


def test_a_changed_setting_redoes_exactly_what_it_touches(
    fitmesh: Fitmesh, walk: tuple[str | Path, ...], tmp_path: Path
) -> None:
    command = ("run", *walk, "--out", tmp_path)
    after_fit = ["overlay", "glb", "report"]
    fitmesh(*command)
    assert fitmesh.stages_made() == ["people", "fit", *after_fit]
    fitmesh(*command)
    assert fitmesh.stages_made() == []
    fitmesh(*command, "--export", "csv")
    assert fitmesh.stages_made() == ["csv"]
    fitmesh(*command, "--fov", "40")
    assert fitmesh.stages_made() == ["fit", *after_fit]
    fitmesh(*command, "--fov", "40", "--weighting", "ones")
    assert fitmesh.stages_made() == ["fit", *after_fit]
    (tmp_path / "scene.glb").unlink()
    fitmesh(*command, "--fov", "40", "--weighting", "ones")
    assert fitmesh.stages_made() == ["glb"]
    fitmesh(*command, "--fov", "40", "--weighting", "ones", "--max-people", "1")
    assert fitmesh.stages_made() == ["people", "fit", *after_fit]
