"""Body meshes from ordinary video, every 2D keypoint weighted by its calibrated confidence."""

from typing import TYPE_CHECKING

from pose2d.base.errors import lazy_names

if TYPE_CHECKING:
    from fitmesh.api import Progress, run, run_many
    from fitmesh.loading import load
    from fitmesh.many.status import ClipStatus
    from fitmesh.person import Person, Shot
    from fitmesh.result import Result
    from fitmesh.tracks import edit_tracks
    from fitmesh.version import __version__
    from pose2d.base.errors import UserError
    from pose2d.events import Event

__all__ = [
    "ClipStatus",
    "Event",
    "Person",
    "Progress",
    "Result",
    "Shot",
    "UserError",
    "__version__",
    "edit_tracks",
    "load",
    "run",
    "run_many",
]

# Imported when first used: they bring torch with them, and `fitmesh --help` should not wait for
# torch.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("Progress", "run", "run_many"), "fitmesh.api"),
        **dict.fromkeys(("Person", "Shot"), "fitmesh.person"),
        "Event": "pose2d.events",
        "Result": "fitmesh.result",
        "load": "fitmesh.loading",
        "ClipStatus": "fitmesh.many.status",
        "UserError": "pose2d.base.errors",
        "__version__": "fitmesh.version",
        "edit_tracks": "fitmesh.tracks",
    },
)
