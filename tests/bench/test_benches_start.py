"""Every bench can be started: its imports still exist, and it says what it takes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [*(ROOT / "bench").glob("*.py"), *(ROOT / "bench" / "tuning").glob("*.py")]
BENCHES = sorted(path for path in SCRIPTS if "def main()" in path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("bench", BENCHES, ids=lambda path: path.stem)
def test_a_bench_answers_help(bench: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(bench), "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={
            name: value for name, value in os.environ.items() if name != "PYTHONPATH"
        },  # as a user starts it
    )
    assert ended.returncode == 0, ended.stderr
    assert "usage" in ended.stdout.lower()
