"""`opensim/`: markers, angles and set-up files for OpenSim (`fitmesh.opensim.setup_files`)."""

from fitmesh.opensim.setup_files import write

__all__ = ["write"]
