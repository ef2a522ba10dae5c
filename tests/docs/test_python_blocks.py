"""Every Python block in the documentation is complete and runs, page by page, on the example clip.

The blocks of a page run one after the other in one namespace, in a folder that holds `examples/`,
`docs/` and a run of the example in `out/park` and `out/`. A block that cannot run anywhere says why
in a comment in front of it, `<!-- not run: REASON -->`; it must still compile.
"""

import shutil
from pathlib import Path

import pytest

import fitmesh
from pose2d.models import registry
from tests.docs.pages import ROOT, Block, page_names, read_page

MOST_NOT_RUN = 0.2  # share of all blocks
USES_THE_EXAMPLE = ("out/", "examples/")


def python_blocks(name: str) -> list[Block]:
    return [block for block in read_page(name).blocks if block.language in ("python", "py")]


def all_blocks() -> list[Block]:
    return [block for name in page_names() for block in python_blocks(name)]


def slow_if_it_runs_the_example(name: str) -> object:
    code = "".join(block.code for block in python_blocks(name))
    slow = [pytest.mark.slow] if any(word in code for word in USES_THE_EXAMPLE) else []
    return pytest.param(name, marks=slow)


@pytest.fixture(scope="session")
def example_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first second of the example clip; the blocks that run it again find everything up to
    date.
    """
    out = tmp_path_factory.mktemp("docs") / "park"
    fitmesh.run(ROOT / "examples" / "park.mp4", out, end_s=1.0, exports=("csv",))
    return out


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("examples", "docs"):
        (tmp_path / name).symlink_to(ROOT / name, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {})  # a page's own network is gone with the page
    return tmp_path


@pytest.mark.parametrize(
    "name", [slow_if_it_runs_the_example(n) for n in page_names() if python_blocks(n)]
)
def test_the_python_blocks_of_a_page_run(
    name: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    blocks = [block for block in python_blocks(name) if block.not_run is None]
    if any(word in block.code for block in blocks for word in USES_THE_EXAMPLE):
        run = request.getfixturevalue("example_run")
        shutil.copytree(run, folder / "out")
        shutil.copytree(run, folder / "out" / "park")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        code = (
            "\n" * (block.line - 1) + block.code
        )  # so that a traceback names the line of the page
        exec(compile(code, str(ROOT / name), "exec"), namespace)


@pytest.mark.parametrize("block", all_blocks(), ids=lambda block: f"{block.page}:{block.line}")
def test_every_python_block_compiles(block: Block) -> None:
    compile(block.code, f"{block.page}:{block.line}", "exec")


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    not_run = [block for block in all_blocks() if block.not_run is not None]
    assert all(block.not_run for block in not_run)
    nowhere = [
        block for block in not_run if "runs it" not in str(block.not_run)
    ]  # others name the test that does
    assert len(nowhere) <= MOST_NOT_RUN * len(all_blocks())
