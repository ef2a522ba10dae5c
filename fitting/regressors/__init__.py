"""A picture and boxes -> a first guess of every body in it, by networks that read pixels: SPIN and CLIFF.

Their weights are not shipped; `docs/initialisers.md` says where they come from.
"""

from fitting.regressors.initialise import initialise, initialise_track
from fitting.regressors.load import load, names
from fitting.regressors.network import BodyRegressor, Regression

__all__ = ["BodyRegressor", "Regression", "initialise", "initialise_track", "load", "names"]
