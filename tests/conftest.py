"""Where tests find the shared reference data; tests that need it skip, with a word, when it is absent."""

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("FITMESH_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    if not (SHARED / "FACTS.md").is_file():
        pytest.skip(f"needs the shared reference data, not found at {SHARED} (set FITMESH_SHARED)")
    return SHARED
