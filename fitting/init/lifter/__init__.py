"""A first guess from keypoints alone: a small network lifts a window of 2D poses to a body in front of the camera.

What it reads is in `inputs`, what it is in `network`, how a track is read in `lift`. It is trained by
`python -m fitting.training.lifter`.
"""

from fitting.init.lifter.lift import Lifted, lift, lift_frames
from fitting.init.lifter.network import load_lifter

__all__ = ["Lifted", "lift", "lift_frames", "load_lifter"]
