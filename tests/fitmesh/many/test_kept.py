"""Clips that are done and unchanged are told by their digests; whatever else changes lets the
stages decide.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fitmesh.many.sources import find_clips
from fitmesh.many.unchanged import recipe_digest, unchanged_statuses
from fitmesh.options.run import RunOptions
from tests.fitmesh.many.conftest import LIGHT, LIGHT_OPTIONS

ROOT = Path(__file__).parents[3]
RUN = "import sys, atexit; atexit.register(lambda: print('torch' in sys.modules))\nfrom fitmesh.cli import main; main()"


def run(clips: Path, out: Path, *more: str, exit_code: int = 0) -> str:
    command = [
        sys.executable,
        "-c",
        RUN,
        "run",
        "--video",
        str(clips / "a.mp4"),
        "--video",
        str(clips / "b.mov"),
    ]
    ended = subprocess.run(
        [*command, "--out", str(out), *LIGHT_OPTIONS, *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == exit_code, ended.stderr
    return ended.stderr + ended.stdout


@pytest.fixture(scope="module")
def done(clips: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kept")
    run(clips, out)
    return out


def states(clips: Path, out: Path, **changed: object) -> list[str] | None:
    found = find_clips([str(clips / "a.mp4"), str(clips / "b.mov")], [], str(out)).clips
    statuses = unchanged_statuses(
        found, recipe_digest(RunOptions(**{**LIGHT, **changed})), str(out)
    )
    return None if statuses is None else [status.state for status in statuses]


def test_a_run_with_nothing_to_do_says_so_without_loading_torch(clips: Path, done: Path) -> None:
    said = run(clips, done)
    assert "2 of 2 clips done (2 before)" in said
    assert said.strip().endswith("False")


def test_a_broken_clip_is_told_without_loading_torch_and_ends_with_3(
    clips: Path, done: Path
) -> None:
    run(clips, done, "--video", str(clips / "c.mp4"), exit_code=3)
    said = run(clips, done, "--video", str(clips / "c.mp4"), exit_code=3)
    assert "as before; not tried again without --retry-failed" in said
    assert said.strip().endswith("False")


def test_threads_do_not_matter_and_other_options_do(clips: Path, done: Path) -> None:
    assert states(clips, done) == states(clips, done, threads=1) == ["kept", "kept"]
    assert states(clips, done, min_score=0.6) is None
    assert states(clips, done, exports=("csv",)) is None


@pytest.mark.parametrize("change", ["another byte", "gone", "edits", "another clip"])
def test_what_was_changed_is_looked_at(
    clips: Path, done: Path, tmp_path: Path, change: str
) -> None:
    fit = done / "a" / "fit.npz"
    edits = done / "a" / "tracks_edits.json"
    clip = clips / "a.mp4"
    before = {path: path.read_bytes() for path in (fit, clip)}
    try:
        if change == "another byte":
            fit.write_bytes(before[fit][:-1] + b"?")
        elif change == "gone":
            fit.unlink()
        elif change == "edits":
            edits.write_text("[]")
        else:
            clip.write_bytes(before[clip] + b"?")
        assert states(clips, done) is None
    finally:
        edits.unlink(missing_ok=True)
        for path, content in before.items():
            path.write_bytes(content)
    assert states(clips, done) == ["kept", "kept"]


def test_a_folder_among_the_options_is_not_looked_into(tmp_path: Path) -> None:
    options = RunOptions(**LIGHT)
    assert recipe_digest(options)
    assert recipe_digest(replace(options, body_model=tmp_path)) == ""
