"""docs/api.md is what the code says."""

import importlib.util

from tests.docs.pages import ROOT


def test_the_api_reference_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("api_reference", ROOT / "tools" / "api_reference.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    written = tool.PAGE.read_text(encoding="utf-8")
    assert written == tool.page(), "docs/api.md is out of date: run `python tools/api_reference.py`"
