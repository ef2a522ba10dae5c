"""Run OpenSim's scaling and inverse kinematics: worker.py SCALE.xml IK.xml, in their folder.

A script of its own that imports nothing but opensim, so that another Python may have it and a crash
of OpenSim ends this process alone. The log is opensim.log in the current folder.
"""

import sys


def main() -> None:
    import opensim

    opensim.Logger.removeFileSink()
    opensim.Logger.addFileSink("opensim.log")
    opensim.Logger.setLevelString("Info")
    scale, kinematics = sys.argv[1:]
    # run() is false without a marker placement too, so that files say what succeeded.
    opensim.ScaleTool(scale).run()
    opensim.InverseKinematicsTool(kinematics).run()


if __name__ == "__main__":
    main()
