"""An image and boxes -> a first guess of every body in it, by networks that read pixels: SPIN and CLIFF.

Their weights are not shipped; `docs/initialisers.md` says where they come from.
"""

from fitting.init.regressors.initialise import initialise, initialise_track
from fitting.init.regressors.load import NAMES, load
from fitting.init.regressors.network import BodyRegressor, Regression

__all__ = ["NAMES", "BodyRegressor", "Regression", "initialise", "initialise_track", "load"]
