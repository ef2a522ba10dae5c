"""Move keypoints from where networks read them back to the body, as far as the image allows.

The inverse of `fitting.body.reading` in two dimensions: the lifter was trained on the body's own
keypoints. A bone whose far end is not certain moves its keypoint less.
"""

from dataclasses import replace

from torch import Tensor

from fitting.body.reading import HABITS
from pose2d.skeletons import HALPE26
from pose2d.types import Keypoints

CERTAIN = 0.5  # confidence of a far end from which on its bone counts in full. Not tuned
PELVIS = HALPE26.keypoints.index("pelvis")


def undo_reading(keypoints: Keypoints, reading: Tensor) -> Keypoints:
    """Return keypoints [T, 26] moved to where the body of a person of this reading [R] has them."""
    xy_px = keypoints.xy_px.clone()
    certain = (keypoints.confidence * keypoints.presence / CERTAIN).clamp(max=1)[..., None]
    for side in ("left", "right"):
        # bottom up, since a bone ends at the keypoint below
        for habit, own in zip(reversed(HABITS), reversed(reading.tolist()), strict=True):
            near = HALPE26.keypoints.index(f"{side}_{habit.keypoint}")
            far = HALPE26.keypoints.index(f"{side}_{habit.end}")
            share = (habit.mean + habit.std * own) * certain[:, far]
            shift = -share / (1 - share) * (xy_px[:, far] - xy_px[:, near])
            xy_px[:, near] += shift
            if habit.keypoint == "hip":
                xy_px[:, PELVIS] += shift / 2
    return replace(keypoints, xy_px=xy_px)
