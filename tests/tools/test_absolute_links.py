"""`tools/absolute_links.py` leaves no link in the README that PyPI could not follow."""

import importlib.util
from types import ModuleType

import pytest
from markdown_it import MarkdownIt

from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "absolute_links", ROOT / "tools" / "absolute_links.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_images_become_raw_files_and_pages_stay_pages(tool: ModuleType) -> None:
    given = "![a](docs/img/a.gif) [b](docs/b.md#c) [d](https://e.f) [g](#h) [`fitmesh run`](docs/run.md)"
    assert tool.absolute(given, "https://host/o/fitmesh/", "v1") == (
        "![a](https://host/o/fitmesh/raw/v1/docs/img/a.gif) [b](https://host/o/fitmesh/blob/v1/docs/b.md#c) "
        "[d](https://e.f) [g](#h) [`fitmesh run`](https://host/o/fitmesh/blob/v1/docs/run.md)"
    )


def test_no_relative_link_is_left_in_the_readme(tool: ModuleType) -> None:
    text = tool.absolute(
        (ROOT / "README.md").read_text(encoding="utf-8"), "https://host/o/fitmesh", "v1"
    )
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    parts = [part for token in tokens if token.type == "inline" for part in token.children or []]
    targets = [
        str(part.attrGet("href") or part.attrGet("src"))
        for part in parts
        if part.type in ("link_open", "image")
    ]
    assert len(targets) > 20
    assert [target for target in targets if not target.startswith("https://")] == []
