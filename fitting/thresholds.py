"""Thresholds that more than one file uses, each once."""

from pose2d.types import ConfidenceSource

CALIBRATED: tuple[ConfidenceSource, ...] = ("closed-form", "ccnet", "oracle")  # sources of an expected OKS

# A frame is fitted by itself when so many keypoints have at least this confidence times presence. Low on purpose: the
# weights already say how much a keypoint counts, and a frame that is left out is filled from its neighbours. Not tuned.
USABLE_CONFIDENCE = 0.2
LEAST_KEYPOINTS = 4

# A network's own score, which states no probability, from which a keypoint counts as seen. Not tuned.
OBSERVED_SCORE = 0.25

# Metres: a point closer to the camera's plane has no image. The solver keeps bodies beyond the first; the renderer cuts
# triangles at the second, nearer one, so that no body the solver accepts is cut. Not tuned.
NEAREST_KEYPOINT_M = 0.1
NEAR_PLANE_M = 0.05
