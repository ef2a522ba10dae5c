"""Hands: 21 keypoints of both hands of a person, with their stated error, beside the body's keypoints."""

from dataclasses import dataclass

import numpy as np

from pose2d.base.table import Table, column, column_fields

SIDES = ("left", "right")  # of the person: axis 1 of every column
FINGERS = ("thumb", "index", "middle", "ring", "little")
# The order of the 21 keypoints is MediaPipe's: the wrist, then each finger's joints from the palm outwards.
HAND_KEYPOINTS = (
    "wrist",
    *("thumb_cmc", "thumb_mcp", "thumb_ip", "thumb_tip"),
    *(f"{finger}_{joint}" for finger in FINGERS[1:] for joint in ("mcp", "pip", "dip", "tip")),
)


@dataclass(frozen=True)
class HandKeypoints(Table):
    """The left and the right hand of a person in T frames."""

    PREFIX = "row_hand_"
    # [T, 2, 21, 2] full-frame pixels
    xy_px: np.ndarray = column((2, 21, 2), "f", "left and right hand; NaN: not seen", unit="px", fill=np.nan)
    # [T, 2, 21] calibrated
    std_px: np.ndarray = column(
        (2, 21), "f", "stated error, one standard deviation along each axis", unit="px", low=0, fill=np.nan
    )
    # [T, 2] calibrated; 0: no hand
    presence: np.ndarray = column((2,), "f", "probability that the hand is seen there", low=0, high=1)
    score: np.ndarray = column((2,), "f", "the hand network's own score", low=0, high=1)  # [T, 2]
    # [T, 2, 21, 3] camera axes: x right, y down, z forward
    landmarks_m: np.ndarray = column(
        (2, 21, 3), "f", "the network's 3D guess, relative to the wrist", unit="m", fill=np.nan
    )
    size_px: np.ndarray = column((2,), "f", "length of the hand in the image", unit="px", low=0)  # [T, 2]

    @classmethod
    def unseen(cls, rows: int) -> "HandKeypoints":
        """No hand in any of the rows."""
        return cls.empty().scatter(np.zeros(0, np.int64), rows)

    def exchanged(self, rows: np.ndarray) -> "HandKeypoints":
        """With left and right exchanged in some rows [T]."""
        values = {f.name: getattr(self, f.name).copy() for f, _ in column_fields(type(self))}
        for value in values.values():
            value[rows] = value[rows][:, ::-1]
        return HandKeypoints(**values)
