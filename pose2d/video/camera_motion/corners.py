"""Corners of the background and where optical flow finds them in another frame.

Corners are followed on a small grey image, from a key frame to the current frame directly, so that
errors do not add up."""

import math
from dataclasses import dataclass

import cv2
import numpy as np

from pose2d.video.camera_motion.rotation import Pose

CORNERS = 120  # that are followed at a time
LEAST_CORNERS = 12  # with fewer, nothing is concluded
BOX_MARGIN = 0.08  # of a person's box on each side: hair, shadows, bags
_BORDER_PX = 3  # at the image's border no corners are taken
_FLOW_STOP = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 20, 0.02)
_WORST_FLOW_ERROR = 30  # mean difference in grey levels between a corner's patches


@dataclass(frozen=True)
class KeyFrame:
    """The frame that corners are followed from."""

    image: np.ndarray  # [h, w] uint8
    corners: np.ndarray  # [N, 2] small pixels from the image's centre
    pose: Pose


def shrink_to_grey(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the grey levels [h, w] of an image [H, W] or [H, W, 3] at another size (width,
    height).
    """
    size = (max(1, size[0]), max(1, size[1]))  # an image of 1 x 4000 has no width when it is shrunk
    if image.shape[1::-1] != size:
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    if image.ndim == 3:
        return cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    return np.ascontiguousarray(image)


def background_mask(boxes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return [h, w] uint8: 255 outside people's boxes [P, 4] and away from the border, else 0. A
    box with a value that is not finite hides nothing.
    """
    width, height = size
    mask = np.zeros((height, width), np.uint8)
    mask[_BORDER_PX:-_BORDER_PX, _BORDER_PX:-_BORDER_PX] = 255
    for x1, y1, x2, y2 in boxes[np.isfinite(boxes).all(1)]:
        margin_x = BOX_MARGIN * max(x2 - x1, 0)
        margin_y = BOX_MARGIN * max(y2 - y1, 0)
        left = max(0, math.floor(x1 - margin_x))
        top = max(0, math.floor(y1 - margin_y))
        right = max(0, math.ceil(x2 + margin_x))
        bottom = max(0, math.ceil(y2 + margin_y))
        mask[top:bottom, left:right] = 0
    return mask


def find_corners(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return up to CORNERS corners [N, 2] of an image [h, w] where the mask is not 0, from the
    image's centre.
    """
    height, width = image.shape
    center = (np.array([width, height]) - 1) / 2
    spacing = max(4, round(math.sqrt(width * height / CORNERS) / 2))
    corners = cv2.goodFeaturesToTrack(image, CORNERS, 0.01, spacing, mask=mask, blockSize=5)
    if corners is None:
        return np.zeros((0, 2), np.float32)
    return (corners[:, 0] - center).astype(np.float32)


def follow_corners(
    key: KeyFrame, guess: np.ndarray, image: np.ndarray, mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of the key frame that are found in another image, outside people there
    too, and where they are found: both [M, 2], from the image's centre. Search starts at `guess`
    [N, 2].
    """
    height, width = image.shape
    center = (np.array([width, height]) - 1) / 2
    before = (key.corners + center).astype(np.float32)
    start = np.clip(guess + center, -20, np.array([width, height]) + 20).astype(np.float32)
    after, status, error = cv2.calcOpticalFlowPyrLK(
        key.image,
        image,
        before,
        start,
        winSize=(15, 15),
        maxLevel=3,
        criteria=_FLOW_STOP,
        flags=cv2.OPTFLOW_USE_INITIAL_FLOW,
    )
    pixel = np.rint(after).astype(int)
    inside = ((pixel >= 0) & (pixel < (width, height))).all(1)
    row = np.clip(pixel[:, 1], 0, height - 1)
    col = np.clip(pixel[:, 0], 0, width - 1)
    is_background = mask[row, col] > 0
    is_followed = (status[:, 0] == 1) & inside & is_background & (error[:, 0] < _WORST_FLOW_ERROR)
    corners = key.corners[is_followed].astype(np.float64)
    points = after[is_followed].astype(np.float64) - center
    return corners, points
