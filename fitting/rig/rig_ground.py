"""Gravity and floor that a calibration's world states."""

from collections.abc import Sequence

import numpy as np

from fitting.fits import OtherView
from fitting.rig.epipolar import FEWEST_KEYPOINTS
from fitting.rig.rig import Rig
from fitting.rig.views import triangulate_views
from fitting.scene.ground_problem import GivenGround

_NECK = 18
_PELVIS = 19
_ANKLES = (15, 16)
_FEET = (20, 21, 22, 23, 24, 25)
STRAIGHT_COS = np.cos(np.radians(20))  # between trunk and legs of people who stand
GRAVITY_COS = np.cos(np.radians(8))  # between standing people and a world axis that is up
ON_FLOOR_M = 0.12  # feet on a floor at 0


def find_stated_ground(rig: Rig, people: Sequence[Sequence[OtherView]]) -> GivenGround:
    """Return gravity and floor of a calibration whose world has an axis along which people stand.

    The floor is known where feet are near 0 along that axis. What the calibration does not state
    stays open. people: the views of each person, in the first camera's frame.
    """
    base = rig.cameras[0]
    triangulated = [triangulate_views(views)[0] for views in people if len(views) > 1]
    if not triangulated or rig.source == "people":
        return GivenGround()
    points = (np.concatenate(triangulated) - base.translation_m) @ base.rotation  # in the world
    trunk = points[:, _NECK] - points[:, _PELVIS]
    legs = points[:, _PELVIS] - points[:, _ANKLES].mean(1)
    with np.errstate(invalid="ignore"):
        lengths = np.linalg.norm(trunk, axis=-1) * np.linalg.norm(legs, axis=-1)
        is_straight = (trunk * legs).sum(-1) > STRAIGHT_COS * lengths
    if is_straight.sum() < FEWEST_KEYPOINTS / 3:
        return GivenGround()
    axis = np.nanmedian((trunk + legs)[is_straight], axis=0)
    along = int(np.abs(axis).argmax())
    if abs(axis[along]) < GRAVITY_COS * np.linalg.norm(axis):
        return GivenGround()
    up = np.sign(axis[along]) * np.eye(3)[along]
    x, y, z = (base.rotation @ up).tolist()
    feet = points[:, _FEET] @ up
    lowest = np.nanquantile(feet, 0.05) if np.isfinite(feet).any() else np.inf
    height = float(base.position_m @ up)
    is_floor_known = abs(lowest) < ON_FLOOR_M and height > 0
    return GivenGround((x, y, z), height if is_floor_known else None)
