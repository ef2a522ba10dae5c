"""Body meshes from ordinary video, every 2D keypoint weighted by calibrated trust."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fitmesh.result import Person, Result, load

__all__ = ["Person", "Result", "load"]

try:
    __version__ = version("fitmesh")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Reading results brings torch with it; `fitmesh --help` should not wait for torch."""
    if name in __all__:
        from fitmesh import result

        return getattr(result, name)
    raise AttributeError(f"module 'fitmesh' has no attribute {name!r}")
