"""Keypoints and confidence -> body parameters: the body, the camera, the solver.

Names are imported when first used, so that `import fitting` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fitting.body import Body, BodyOutput, BodyParams
    from fitting.body.load import load_body
    from fitting.camera import Camera
    from fitting.fits import Fit, TrackFit
    from fitting.init.guess import InitialGuess
    from fitting.optimise import fit, fit_frames
    from fitting.solver.prior import PosePrior, load_prior
    from fitting.solver.terms.scene import SceneTerms
    from fitting.track import fit_track, start_track

__all__ = [
    "Body",
    "BodyOutput",
    "BodyParams",
    "Camera",
    "Fit",
    "InitialGuess",
    "PosePrior",
    "SceneTerms",
    "TrackFit",
    "fit",
    "fit_frames",
    "fit_track",
    "load_body",
    "load_prior",
    "start_track",
]

_MODULES = {
    "fitting.body": ("Body", "BodyOutput", "BodyParams"),
    "fitting.body.load": ("load_body",),
    "fitting.camera": ("Camera",),
    "fitting.init.guess": ("InitialGuess",),
    "fitting.fits": ("Fit", "TrackFit"),
    "fitting.optimise": ("fit", "fit_frames"),
    "fitting.solver.prior": ("PosePrior", "load_prior"),
    "fitting.solver.terms.scene": ("SceneTerms",),
    "fitting.track": ("fit_track", "start_track"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fitting' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
