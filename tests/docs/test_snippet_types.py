"""Python blocks of README and docs pass type checkers, as they would in a reader's editor."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, page_names, read_page

pytestmark = pytest.mark.slow
# Their heads have methods that only some kinds of head have.
NOT_CHECKED = {"docs/train-ccnet.md", "docs/calibration.md"}


@pytest.fixture(scope="module")
def snippets(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """One file for the blocks of each page, outside the checkout."""
    folder = tmp_path_factory.mktemp("snippets")
    files = []
    for name in sorted(set(page_names()) - NOT_CHECKED):
        blocks = [
            block
            for block in read_page(name).blocks
            if block.language in ("python", "py") and block.not_run is None
        ]
        if not blocks:
            continue
        file = folder / (name.replace("/", "_").replace("-", "_").removesuffix(".md") + ".py")
        file.write_text("\n".join(block.code for block in blocks), encoding="utf-8")
        files.append(str(file))
    return files


def check(*command: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_snippets_pass_mypy(snippets: list[str]) -> None:
    pytest.importorskip("mypy")
    options = ["--follow-imports=silent", "--allow-untyped-defs", "--no-error-summary"]
    check("mypy", "--config-file", str(ROOT / "pyproject.toml"), *options, *snippets)


@pytest.mark.skipif(find_spec("pyright") is None, reason="needs pyright")
def test_snippets_pass_pyright(snippets: list[str]) -> None:
    project = Path(snippets[0]).with_name("pyrightconfig.json")
    project.write_text(json.dumps({"extraPaths": [str(ROOT)], "pythonVersion": "3.11"}))
    check("pyright", "--pythonpath", sys.executable, "--project", str(project))
