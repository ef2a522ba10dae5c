"""The frame that every export shares, so that all of them line up when imported together.

Scene frame: metres, x to the right as the camera sees it, y up, z from the people towards the camera; the camera looks
along -z. It is the camera frame (x right, y down, z forward) turned by half a turn about x and lifted until the
lowest feet stand on y = 0, so the camera hangs at (0, camera_height_m, 0). A camera that looks up or down is not
levelled: nothing in one video says how far it is tilted.
"""

from dataclasses import dataclass

import numpy as np

from fitting.body.kinematics import JOINT_NAMES

FLIP = np.diag([1.0, -1.0, -1.0])  # camera axes -> scene axes; a rotation, so left stays left
_FEET = [JOINT_NAMES.index(name) for name in ("left_ankle", "right_ankle", "left_foot", "right_foot")]
_LOW_PERCENTILE = 5.0  # of the lower foot over all frames: one bad frame does not move the floor


@dataclass(frozen=True)
class SceneFrame:
    """Where the scene's origin is below the camera."""

    camera_height_m: float

    def points(self, points_cam_m: np.ndarray) -> np.ndarray:
        """[..., 3] in the camera frame -> [..., 3] in the scene frame, metres."""
        return points_cam_m @ FLIP + np.array([0.0, self.camera_height_m, 0.0])

    @property
    def from_camera(self) -> np.ndarray:
        """[4, 4] takes homogeneous points of the camera frame to the scene frame."""
        matrix = np.eye(4)
        matrix[:3, :3], matrix[1, 3] = FLIP, self.camera_height_m
        return matrix


def standing_on_floor(joints_cam_m: np.ndarray, sole_m: float) -> SceneFrame:
    """The frame in which the lowest feet of [R, 24, 3] joints stand on y = 0; soles are `sole_m` below the joints."""
    if not len(joints_cam_m):
        return SceneFrame(0.0)
    lowest = joints_cam_m[:, _FEET, 1].max(1)  # y points down
    return SceneFrame(float(np.percentile(lowest, 100 - _LOW_PERCENTILE)) + sole_m)
