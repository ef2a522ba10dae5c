"""Keypoint layouts of other programs, and their conversion to Halpe's 26 keypoints."""

import numpy as np

from pose2d.skeletons import COCO17, HALPE26, MPII16, WHOLEBODY133

# OpenPose's two layouts of 25 keypoints. The "neck" of BODY_25 is the middle of the shoulders,
# which Halpe's is not.
_OPENPOSE_FEET = tuple(
    f"{side}_{point}" for side in ("left", "right") for point in ("big_toe", "small_toe", "heel")
)
BODY_25 = (
    "nose",
    "mid_shoulder",
    "right_shoulder",
    "right_elbow",
    "right_wrist",
    "left_shoulder",
    "left_elbow",
    "left_wrist",
    "pelvis",
    "right_hip",
    "right_knee",
    "right_ankle",
    "left_hip",
    "left_knee",
    "left_ankle",
    "right_eye",
    "left_eye",
    "right_ear",
    "left_ear",
    *_OPENPOSE_FEET,
)
BODY_25B = (*COCO17.keypoints, "neck", "head_top", *_OPENPOSE_FEET)
# MediaPipe Pose's 33; its "foot index" is the tip of the foot.
MEDIAPIPE33 = (
    "nose",
    "left_eye_inner",
    "left_eye",
    "left_eye_outer",
    "right_eye_inner",
    "right_eye",
    "right_eye_outer",
    "left_ear",
    "right_ear",
    "mouth_left",
    "mouth_right",
    *(
        f"{side}_{point}"
        for point in (
            "shoulder",
            "elbow",
            "wrist",
            "pinky",
            "index",
            "thumb",
            "hip",
            "knee",
            "ankle",
            "heel",
            "big_toe",
        )
        for side in ("left", "right")
    ),
)


# For each of Halpe's 26 keypoints, its index in another layout; None where that layout has no such
# keypoint. MPII's "upper_neck" is the neck that networks with Halpe's keypoints were trained on.
_LAYOUTS = {
    "coco17": COCO17.keypoints,
    "halpe26": HALPE26.keypoints,
    "wholebody133": WHOLEBODY133.keypoints,
    "mpii16": tuple("neck" if name == "upper_neck" else name for name in MPII16.keypoints),
    "body_25": BODY_25,
    "body_25b": BODY_25B,
    "mediapipe33": MEDIAPIPE33,
}
HALPE26_IN: dict[str, tuple[int | None, ...]] = {
    name: tuple(
        layout.index(keypoint) if keypoint in layout else None for keypoint in HALPE26.keypoints
    )
    for name, layout in _LAYOUTS.items()
}

# Index of each COCO keypoint in OpenPose's COCO model, which has 18.
OPENPOSE18_TO_COCO17 = (0, 15, 14, 17, 16, 5, 2, 6, 3, 7, 4, 11, 8, 12, 9, 13, 10)


def to_halpe26(values: np.ndarray, layout: str, missing: float) -> np.ndarray:
    """Reorder values [N, K, ...] of a layout of HALPE26_IN to Halpe's keypoints, [N, 26, ...].

    The result is float32, with `missing` for keypoints that the layout lacks."""
    out = np.full((len(values), HALPE26.size, *values.shape[2:]), missing, np.float32)
    for number, index in enumerate(HALPE26_IN[layout]):
        if index is not None:
            out[:, number] = values[:, index]
    return out
