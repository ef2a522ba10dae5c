"""Pages that are made from the code are what the code says."""

import importlib.util

import pytest

from tests.docs.pages import ROOT


@pytest.mark.parametrize("name", ["api_reference", "api_stub", "command_reference", "bench_page"])
def test_a_generated_page_is_up_to_date(name: str) -> None:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    written = tool.PAGE.read_text(encoding="utf-8")
    assert written == tool.page(), f"{tool.PAGE.name} is out of date: run `python tools/{name}.py`"
