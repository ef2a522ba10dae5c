"""Which edits of the code make a stage's file invalid. The edits are made in a copy of the source
tree.
"""

import ast
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fitmesh.stages import export, fit, people
from fitmesh.stages.settings import Job, RunSettings
from fitmesh.ui.events import Reporter
from pose2d.base import caching
from pose2d.models.registry import module_of
from pose2d.video.video_file import Video
from tests.imports import import_graph, modules_in
from tests.videos import write_video

SOLVER, RENDERER = "fitting/solver/unknowns.py", "fitting/render/raster.py"
SETTINGS = RunSettings(pose_model="movenet-lightning")
POSE_NETWORK = module_of(SETTINGS.pose_model).replace(".", "/") + ".py"
Digests = Callable[[], dict[str, str]]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the five packages' source, which `caching` reads instead of the original."""
    root = Path(caching.__file__).parents[2]
    copy = tmp_path_factory.mktemp("tree")
    for package in caching.PACKAGES:
        for path in (root / package).rglob("*.py"):
            (copy / path.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy / path.relative_to(root))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caching, "_ROOT", copy)
        yield copy
    _forget()


@pytest.fixture(scope="module")
def digests(tree: Path) -> Digests:
    """Of the cache keys of a run's stages, by name, with the source as it is now."""
    job = Job(Video(write_video(tree / "video.mp4", [0, 40])), SETTINGS, tree / "out", Reporter())

    def now() -> dict[str, str]:
        _forget()
        people_key = people.cache_key(job)
        fit_key = fit.cache_key(job, people_key)
        return {
            key.stage: key.digest for key in (people_key, fit_key, export.overlay_key(job, fit_key))
        }

    return now


@pytest.fixture(scope="module")
def unedited(digests: Digests) -> dict[str, str]:
    return digests()


def _forget() -> None:
    caching.code_digest.cache_clear()
    caching.code_files.cache_clear()
    caching._parse_file.cache_clear()


def _one_more_statement(source: str) -> str:
    return source + "\n_EDITED = 1\n"


def _other_words_and_layout(source: str) -> str:
    assert source.startswith('"""')
    return '"""Another docstring."""\n\n\n# another comment' + source[source.index('"""', 3) + 3 :]


@pytest.mark.parametrize(
    ("file", "edit", "made_again"),
    [
        (SOLVER, _one_more_statement, {"fit", "overlay"}),
        (RENDERER, _one_more_statement, {"overlay"}),
        (POSE_NETWORK, _one_more_statement, {"people", "fit", "overlay"}),
        (SOLVER, _other_words_and_layout, set()),
    ],
    ids=["solver", "renderer", "pose network", "comments and docstrings"],
)
def test_an_edit_makes_again_what_it_touches_and_nothing_else(
    tree: Path,
    unedited: dict[str, str],
    digests: Digests,
    file: str,
    edit: Callable[[str], str],
    made_again: set[str],
) -> None:
    source = (tree / file).read_text("utf-8")
    (tree / file).write_text(edit(source), "utf-8")
    try:
        edited = digests()
    finally:
        (tree / file).write_text(source, "utf-8")
    assert {stage for stage in unedited if edited[stage] != unedited[stage]} == made_again


def test_every_module_that_a_syntax_tree_imports_counts() -> None:
    _forget()
    for name in modules_in(*caching.PACKAGES):
        imported = import_graph()[name]
        path = caching._module_file(name)
        assert path is not None
        statements = caching._parse_file(path)[0]
        counted = {caching._imported_module(name, statement) for statement in statements}
        counted -= {name, None}
        # Modules that are loaded by name are named by cache keys.
        loads_by_name = "import_module" in path.read_text("utf-8")
        assert counted == imported or (loads_by_name and counted < imported), name


def test_a_cache_key_builds_no_syntax_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 may fail where two threads build one, and the file that the other thread reads
    looks damaged.
    """
    _forget()
    monkeypatch.setattr(ast, "parse", None)
    assert caching.code_digest("fitmesh.stages.fit")
