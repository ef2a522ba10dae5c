"""Where tests find data that is not part of the repository; tests that need it skip, saying so,
when it is absent.
"""

import os
from pathlib import Path

import pytest

if (
    "PYTEST_XDIST_WORKER" in os.environ
):  # one thread for each of the processes; before torch is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")

SHARED = Path(os.environ.get("FITMESH_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """COCO images, CMU motion and videos: data that may not be copied into the repository."""
    if not (SHARED / "data").is_dir():
        pytest.skip(
            f"needs COCO images, CMU motion or videos, not found at {SHARED}/data (set FITMESH_SHARED)"
        )
    return SHARED
