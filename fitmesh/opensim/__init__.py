"""OpenSim: set-up files from a result, its scaling and inverse kinematics, and how they compare.

`setup_files` writes what OpenSim needs (`fitmesh run --export opensim`), `tools` runs OpenSim's
scaling and inverse kinematics on it (`fitmesh opensim`), `comparison` sets its angles beside ours.
The model and its markers are Pose2Sim's (BSD-3-Clause, data/LICENSE-Pose2Sim.txt), unmodified.
"""

from pathlib import Path

DATA = Path(__file__).parent / "data"
MODEL = "Model_Pose2Sim_simple.osim"
MARKERS = "Markers_Halpe26.xml"
LICENCE = "LICENSE-Pose2Sim.txt"
FOLDER = "opensim"  # in a result's folder
