"""Hand keypoints as fits use them: pixels of a perfect lens with weights, and the network's landmarks as depths."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.kinematics import matrix_to_axis_angle, nearest_rotation, rotation_matrices
from fitting.camera import Camera
from pose2d.base.table import Table, column
from pose2d.hands import HandKeypoints

KNUCKLES = (5, 9, 13, 17)  # of the fingers, among the 21 keypoints
PALM = (1, *KNUCKLES)  # hangs on the wrist without bending; the thumb's base, too
LEAST_PRESENCE = 0.5  # of a hand that pulls
# Std along each axis of a keypoint of a person's hand from the model's: proportions differ, and the network shows the
# wrist on its skin, seen from either side.
UNMODELLED_M, UNMODELLED_WRIST_M = 0.004, 0.010
# Of the landmarks' depth relative to the wrist, as a share of the palm's length; they err together, so that each counts
# as a fraction of an observation. Measured by bench/hands.py.
DEPTH_STD, DEPTH_SHARE = 0.16, 0.3


@dataclass(frozen=True)
class SeenHands(Table):
    """Both hands in T frames, for a body of the mean shape."""

    TENSORS = True
    xy_px: Tensor = column((2, 21, 2), "f", "pixels of a perfect lens", unit="px")  # [T, 2, 21, 2]
    weight: Tensor = column((2, 21), "f", "presence over the variance along each axis; 0: not seen")  # [T, 2, 21]
    # [T, 2, 21] along the line of sight, from the wrist, for the mean palm
    depth_m: Tensor = column((2, 21), "f", "depths by the network's landmarks", unit="m")
    depth_weight: Tensor = column((2,), "f", "1 over their variance; 0: not seen")  # [T, 2]
    line: Tensor = column((2, 3), "f", "unit vectors of the line of sight to the wrist")  # [T, 2, 3]
    # [T, 2, 3] axis-angle of the palm by wrist and knuckles of the landmarks: where a search begins
    palm_rad: Tensor = column((2, 3), "f", "the palm's rotation from the T-pose to the camera frame", unit="rad")

    @property
    def seen(self) -> Tensor:
        """[T, 2]"""
        return self.depth_weight > 0


def seen_hands(hands: HandKeypoints, camera: Camera, body: Body) -> SeenHands:
    """What a camera shows of hands, for a body with fingers."""
    shown = torch.from_numpy((hands.presence >= LEAST_PRESENCE) & np.isfinite(hands.xy_px).all((-1, -2)))

    def real(values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.nan_to_num(values)).float() * shown.reshape(*shown.shape, *[1] * (values.ndim - 2))

    rest, tensor = body.with_fingers().flat_points(body.rest_joints), torch.tensor
    xy = camera.undistort(real(hands.xy_px))
    shown = shown & torch.isfinite(xy).all(-1).all(-1)  # behind what the lens sees
    xy, landmarks = real(xy.numpy()), real(hands.landmarks_m)
    spans, palms_m = landmarks[:, :, KNUCKLES].norm(dim=-1).mean(-1), rest[:, KNUCKLES].norm(dim=-1).mean(-1)
    known = spans > 0
    typical = torch.stack([part[there].median() if bool(there.any()) else tensor(1.0)
                           for part, there in zip(spans.T, known.T, strict=True)])  # fmt: skip
    landmarks = landmarks * (palms_m / typical)[:, None, None]
    # Pixels a metre, as if from far away: how far keypoints spread in the image and landmarks across the line of sight.
    spread = [(part - part.mean(2, keepdim=True)).square().sum((-1, -2)).sqrt() for part in (xy, landmarks[..., :2])]
    px_per_m = torch.where(known, spread[0] / spread[1].clamp(min=1e-3), spread[0] / (5 * palms_m))
    unmodelled_m = torch.full((21,), UNMODELLED_M)
    unmodelled_m[0] = UNMODELLED_WRIST_M
    variance = real(hands.std_px).clamp(min=0.3).square() + (px_per_m.unsqueeze(-1) * unmodelled_m).square()
    ray = torch.cat(
        ((xy[:, :, 0] - xy.new_tensor(camera.center_px)) / xy.new_tensor(camera.focal_px), torch.ones(*shown.shape, 1)),
        -1,
    )
    line = torch.nn.functional.normalize(ray, dim=-1)
    # The network looks along the line of sight: its axes are the camera's, turned from the optical axis to that.
    axis = tensor([0.0, 0.0, 1.0]).expand_as(line)
    off = torch.linalg.cross(axis, line)
    turn = rotation_matrices(
        off * (torch.asin(off.norm(dim=-1).clamp(max=1)) / off.norm(dim=-1).clamp(min=1e-9))[..., None]
    )
    cross = torch.einsum("thki,hkj->thij", landmarks[:, :, PALM], rest[:, PALM])
    presence = real(hands.presence)
    return SeenHands(
        xy, presence.unsqueeze(-1) / variance, landmarks[..., 2],
        known * presence * DEPTH_SHARE / (DEPTH_STD * palms_m) ** 2, line,
        matrix_to_axis_angle(turn @ nearest_rotation(cross)),
    )  # fmt: skip
