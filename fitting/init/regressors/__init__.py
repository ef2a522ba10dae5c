"""An image and boxes -> a first guess of every body in it, by networks that read pixels: SPIN and CLIFF.

Their weights are not shipped; `docs/initialisers.md` says where they come from. Names are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fitting.init.regressors.from_images import initialise, initialise_track, load
    from fitting.init.regressors.network import BodyRegressor, Regression

__all__ = ["NAMES", "BodyRegressor", "Regression", "initialise", "initialise_track", "load"]

NAMES = ("spin", "cliff", "cliff-res50", "cliff-hr48")  # what `load` takes


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    part = "network" if name in ("BodyRegressor", "Regression") else "from_images"
    return getattr(import_module(f"{__name__}.{part}"), name)
