"""An image and boxes -> a first guess of every body in it, by networks that read pixels: SPIN and CLIFF.

Their weights are not shipped; `docs/initialisers.md` says where they come from.
"""

from fitting.init.regressors.from_images import NAMES, initialise, initialise_track, load
from fitting.init.regressors.network import BodyRegressor, Regression

__all__ = ["NAMES", "BodyRegressor", "Regression", "initialise", "initialise_track", "load"]
