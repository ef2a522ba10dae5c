"""Python blocks of README and docs pass a type checker, as they would in a reader's editor."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, page_names, read_page

pytestmark = pytest.mark.slow
# Their heads have methods that only some kinds of head have.
NOT_CHECKED = {"docs/train-ccnet.md", "docs/calibration.md"}


def test_snippets_pass_mypy(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    files = []
    for name in sorted(set(page_names()) - NOT_CHECKED):
        blocks = [
            block
            for block in read_page(name).blocks
            if block.language in ("python", "py") and block.not_run is None
        ]
        if not blocks:
            continue
        file = tmp_path / (name.replace("/", "_").replace("-", "_").removesuffix(".md") + ".py")
        file.write_text("\n".join(block.code for block in blocks), encoding="utf-8")
        files.append(str(file))
    options = ["--follow-imports=silent", "--allow-untyped-defs", "--no-error-summary"]
    configuration = ["--config-file", str(ROOT / "pyproject.toml")]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *configuration, *options, *files],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
