"""The laboratory frame that a calibration states: its axes, gravity and floor."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitting.fits import OtherView
from fitting.rig.epipolar import FEWEST_KEYPOINTS
from fitting.rig.rig import PlacedCamera, Rig
from fitting.rig.views import triangulate_views
from fitting.scene.ground_problem import GivenGround

_NECK = 18
_PELVIS = 19
_ANKLES = (15, 16)
_FEET = (20, 21, 22, 23, 24, 25)
STRAIGHT_COS = np.cos(np.radians(20))  # between trunk and legs of people who stand
GRAVITY_COS = np.cos(np.radians(8))  # between standing people and a world axis that is up
LEANING_COS = np.cos(np.radians(15))  # the same of people who lean, if their feet are at 0
ON_FLOOR_M = 0.12  # feet on a floor at 0
FLOOR_QUANTILE = 0.05  # of feet's heights, which stands for the floor


@dataclass(frozen=True)
class LaboratoryFrame:
    """The world of a calibration along one of whose axes people stand."""

    up: np.ndarray  # [3] the axis, with its sign
    feet_m: float  # height of the lowest feet along it, of the person nearest to 0; inf: unknown

    @property
    def is_floor_at_zero(self) -> bool:
        """Say whether feet stand near 0."""
        return abs(self.feet_m) < ON_FLOOR_M

    @property
    def y_up(self) -> np.ndarray:
        """Return the rotation [3, 3] from the calibration's axes to axes with y up.

        Axes keep their cyclic order: with z up, (x, y, z) becomes (y, z, x), as in Pose2Sim's trc.
        """
        axis = int(np.abs(self.up).argmax())
        rotation = np.roll(np.eye(3), 1 - axis, axis=0)
        if self.up[axis] < 0:  # half a turn about the new x axis
            rotation = np.diag([1.0, -1.0, -1.0]) @ rotation
        return rotation

    def from_camera(self, placed: PlacedCamera) -> np.ndarray:
        """Return the transformation [4, 4] from a camera to the calibration's world with y up."""
        matrix = np.eye(4)
        matrix[:3, :3] = self.y_up @ placed.rotation.T
        matrix[:3, 3] = self.y_up @ placed.position_m
        return matrix

    def ground(self, camera: PlacedCamera) -> GivenGround:
        """Return gravity, and the floor where feet are at 0, in a camera's frame."""
        x, y, z = (camera.rotation @ self.up).tolist()
        height_m = float(camera.position_m @ self.up)
        is_floor_known = self.is_floor_at_zero and height_m > 0
        return GivenGround((x, y, z), height_m if is_floor_known else None)


def find_laboratory_frame(
    rig: Rig, people: Sequence[Sequence[OtherView]]
) -> LaboratoryFrame | None:
    """Return the frame of a calibration whose world has an axis along which people stand.

    None: cameras were placed by people, too few people stand, or no axis is up. people: the views
    of each person, in the first camera's frame.
    """
    base = rig.cameras[0]
    triangulated = [triangulate_views(views)[0] for views in people if len(views) > 1]
    if not triangulated or rig.source == "people":
        return None
    points = (np.concatenate(triangulated) - base.translation_m) @ base.rotation  # in the world
    trunk = points[:, _NECK] - points[:, _PELVIS]
    legs = points[:, _PELVIS] - points[:, _ANKLES].mean(1)
    with np.errstate(invalid="ignore"):
        lengths = np.linalg.norm(trunk, axis=-1) * np.linalg.norm(legs, axis=-1)
        is_straight = (trunk * legs).sum(-1) > STRAIGHT_COS * lengths
    if is_straight.sum() < FEWEST_KEYPOINTS / 3:
        return None
    standing = np.nanmedian((trunk + legs)[is_straight], axis=0)
    axis = int(np.abs(standing).argmax())
    cosine = abs(standing[axis]) / np.linalg.norm(standing)
    if cosine < LEANING_COS:
        return None
    up = np.sign(standing[axis]) * np.eye(3)[axis]
    heights = []
    for person_points in triangulated:
        feet = (person_points[:, _FEET] - base.translation_m) @ base.rotation @ up
        if np.isfinite(feet).any():
            heights.append(float(np.nanquantile(feet, FLOOR_QUANTILE)))
    # One person at 0 is enough: others may stand on something, or be badly triangulated far away.
    frame = LaboratoryFrame(up, min(heights, key=abs, default=np.inf))
    # People who lean need the second sign of a laboratory: feet at 0.
    return frame if cosine >= GRAVITY_COS or frame.is_floor_at_zero else None
