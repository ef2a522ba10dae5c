"""Body meshes from ordinary video, every 2D keypoint weighted by its calibrated confidence."""

TYPE_CHECKING = False  # type checkers take it for true; importing typing would come before Ctrl-C is watched for
if TYPE_CHECKING:
    from typing import Any

    from fitmesh.api import Progress, run, run_many
    from fitmesh.many.summary import ClipStatus
    from fitmesh.result import Event, Person, Result, Shot, load
    from fitmesh.tracks import edit_tracks
    from fitmesh.version import __version__
    from pose2d.base.errors import UserError

__all__ = [
    "ClipStatus", "Event", "Person", "Progress", "Result", "Shot", "UserError", "__version__", "edit_tracks", "load",
    "run", "run_many",
]  # fmt: skip
_HOME = {
    "__version__": "fitmesh.version",
    "run": "fitmesh.api", "Progress": "fitmesh.api", "UserError": "pose2d.base.errors",
    "Event": "fitmesh.result", "Person": "fitmesh.result", "Result": "fitmesh.result", "Shot": "fitmesh.result",
    "run_many": "fitmesh.api", "ClipStatus": "fitmesh.many.summary",
    "load": "fitmesh.result", "edit_tracks": "fitmesh.tracks",
}  # fmt: skip


def __getattr__(name: str) -> "Any":
    """Imported when first used: they bring torch with them, and `fitmesh --help` should not wait for torch."""
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fitmesh' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
