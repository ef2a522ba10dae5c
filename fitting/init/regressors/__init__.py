"""An image and boxes -> a first guess of every body in it, by networks that read pixels: SPIN and CLIFF.

Their weights are not shipped; `docs/initialisers.md` says where they come from. Names are imported when first used."""

from typing import TYPE_CHECKING

from pose2d.base.errors import lazy_names

if TYPE_CHECKING:
    from fitting.init.regressors.from_images import BodyRegressor, Regression, initialise, initialise_track, load

__all__ = ["NAMES", "BodyRegressor", "Regression", "initialise", "initialise_track", "load"]

NAMES = ("spin", "cliff", "cliff-res50", "cliff-hr48")  # what `load` takes

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__[1:], "fitting.init.regressors.from_images"))
