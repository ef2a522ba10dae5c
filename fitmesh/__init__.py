"""Body meshes from ordinary video, every 2D keypoint weighted by its calibrated confidence."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fitmesh.api import Progress, run
    from fitmesh.result import Person, Result, load
    from pose2d.base.errors import UserError

__all__ = ["Person", "Progress", "Result", "UserError", "load", "run"]
_HOME = {
    "run": "fitmesh.api", "Progress": "fitmesh.api", "UserError": "pose2d.base.errors",
    "Person": "fitmesh.result", "Result": "fitmesh.result", "load": "fitmesh.result",
}  # fmt: skip

try:
    __version__ = version("fitmesh")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Imported when first used: they bring torch with them, and `fitmesh --help` should not wait for torch."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fitmesh' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
