"""SMPL-layout bodies: files, kinematics, skinning, keypoints."""

from fitting.body.body import Body, BodyOutput, BodyParams

__all__ = ["Body", "BodyOutput", "BodyParams"]
