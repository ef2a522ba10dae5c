"""`fitmesh body`: what a body file holds, or in one sentence why it cannot be read."""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

OPEN_BODY = Path(str(files("fitting") / "data" / "open_body.npz"))


def test_the_embedded_body_is_described_and_drawn(tmp_path):
    command = [sys.executable, "-m", "fitmesh.cli", "body", "--out", str(tmp_path / "body.png")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "6,800 vertices" in result.stdout
    assert (tmp_path / "body.png").read_bytes().startswith(b"\x89PNG")


def _truncated(folder: Path) -> Path:
    path = folder / "body.npz"
    path.write_bytes(OPEN_BODY.read_bytes()[:100_000])
    return path


def _code_in_a_pickle(folder: Path) -> Path:
    path = folder / "SMPL_NEUTRAL.pkl"
    path.write_bytes(b"cos\nsystem\n(S'touch " + str(folder / "ran").encode() + b"'\ntR.")
    return path


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda folder: folder / "missing.pkl", "smpl.is.tue.mpg.de"),
        (lambda folder: folder, "SMPL_NEUTRAL"),  # an empty folder
        (_truncated, "cut off"),
        (_code_in_a_pickle, "os"),
    ],
    ids=["missing", "empty folder", "truncated", "code in a pickle"],
)
def test_a_body_that_cannot_be_read_leaves_with_2_and_one_sentence(fitmesh, tmp_path, make, word):
    assert fitmesh("body", "--body-model", make(tmp_path)) == 2
    assert fitmesh.said.startswith("Error: ")
    assert "Traceback" not in fitmesh.said
    assert word in fitmesh.said
    assert not (tmp_path / "ran").exists()
