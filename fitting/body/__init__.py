"""SMPL-layout bodies: files, kinematics, skinning, keypoints."""

from fitting.body.body import Body
from fitting.body.params import BodyOutput, BodyParams

__all__ = ["Body", "BodyOutput", "BodyParams"]
