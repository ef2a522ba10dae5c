"""Hand keypoints as fits use them: undistorted pixels with weights, and 3D landmarks as depths."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.rotations import matrix_to_axis_angle, nearest_rotation, rotation_matrices
from fitting.camera import Camera
from pose2d.base.columns import column
from pose2d.base.table import Table, blocks, join_rows
from pose2d.types import HandKeypoints

KNUCKLES = (5, 9, 13, 17)  # of the fingers, among the 21 keypoints
PALM = (1, *KNUCKLES)  # hangs on the wrist without bending; the thumb's base, too
LEAST_PRESENCE = 0.5  # of a hand that pulls
# std along each axis of a keypoint of a person's hand from the model's: proportions differ
UNMODELLED_M = 0.004
# Of the landmarks' depth relative to the wrist, as a share of the palm's length; they err together,
# so that each counts as a fraction of an observation. Measured by bench/fingers.py.
DEPTH_STD = 0.35
DEPTH_SHARE = 0.3


@dataclass(frozen=True)
class HandObservations(Table):
    """Both hands in T frames, for a body of the mean shape."""

    TENSORS = True
    xy_px: Tensor = column((2, 21, 2), "f", "pixels of a perfect lens", unit="px")  # [T, 2, 21, 2]
    weight: Tensor = column(
        (2, 21), "f", "presence over the variance along each axis; 0: not seen"
    )  # [T, 2, 21]
    # [T, 2, 21] along the line of sight, from the wrist, for the mean palm
    depth_m: Tensor = column((2, 21), "f", "depths by the network's landmarks", unit="m")
    depth_weight: Tensor = column((2,), "f", "1 over their variance; 0: not seen")  # [T, 2]
    line: Tensor = column(
        (2, 3), "f", "unit vectors of the line of sight to the wrist"
    )  # [T, 2, 3]
    # [T, 2, 3] axis-angle of the palm by wrist and knuckles of the landmarks: where a search begins
    palm_rad: Tensor = column(
        (2, 3), "f", "the palm's rotation from the T-pose to the camera frame", unit="rad"
    )

    @property
    def visible(self) -> Tensor:
        """Return which hands are visible, [T, 2]."""
        return self.depth_weight > 0


def observe_hands(hands: HandKeypoints, camera: Camera, body: Body) -> HandObservations:
    """Turn the hand keypoints of a camera into observations for a body with fingers."""
    fingers = body.with_fingers()
    rest_points = fingers.flat_points(body.rest_joints) + fingers.offsets
    rest_points = (
        rest_points - rest_points[:, :1]
    )  # landmarks are relative to the wrist as the network shows it
    spans = torch.cat(
        [_palm_spans(_visible_hands(hands.rows(rows), camera)[2]) for rows in blocks(len(hands))]
    )  # [T, 2]
    typical_span = torch.stack(
        [
            part[part > 0].median() if bool((part > 0).any()) else torch.tensor(1.0)
            for part in spans.T
        ]
    )
    return join_rows(
        (
            _observe_rows(hands.rows(rows), camera, rest_points, typical_span)
            for rows in blocks(len(hands))
        ),
        len(hands),
    )


def _palm_spans(landmarks: Tensor) -> Tensor:
    """Return the lengths of palms [n, 2] by the landmarks; 0 where there are none."""
    return landmarks[:, :, KNUCKLES].norm(dim=-1).mean(-1)


def _masked_tensor(values: np.ndarray, visible: Tensor) -> Tensor:
    """Return values [n, 2, ...] as float32, zero where a hand is not visible [n, 2]."""
    return torch.from_numpy(np.nan_to_num(values)).float() * visible.reshape(
        *visible.shape, *[1] * (values.ndim - 2)
    )


def _visible_hands(hands: HandKeypoints, camera: Camera) -> tuple[Tensor, Tensor, Tensor]:
    """Return which hands are visible [n, 2], their pixels and their landmarks; zero where they are
    not.
    """
    visible = torch.from_numpy(
        (hands.presence >= LEAST_PRESENCE) & np.isfinite(hands.xy_px).all((-1, -2))
    )
    xy = camera.undistort(_masked_tensor(hands.xy_px, visible))
    visible = visible & torch.isfinite(xy).all(-1).all(-1)  # behind what the lens sees
    return visible, _masked_tensor(xy.numpy(), visible), _masked_tensor(hands.landmarks_m, visible)


def _observe_rows(
    hands: HandKeypoints, camera: Camera, rest_points: Tensor, typical_span: Tensor
) -> HandObservations:
    """Return the observations of some frames.

    rest_points [2, 21, 3]: the mean body's hands; typical_span [2]: the palms' typical span over
    all frames.
    """
    visible, xy, landmarks = _visible_hands(hands, camera)
    has_landmarks = _palm_spans(landmarks) > 0
    palms_m = rest_points[:, KNUCKLES].norm(dim=-1).mean(-1)
    landmarks = landmarks * (palms_m / typical_span)[:, None, None]
    # Pixels a metre, as if from far away: how far keypoints spread in the image and landmarks
    # across the line of sight.
    spread = [
        (part - part.mean(2, keepdim=True)).square().sum((-1, -2)).sqrt()
        for part in (xy, landmarks[..., :2])
    ]
    px_per_m = torch.where(
        has_landmarks, spread[0] / spread[1].clamp(min=1e-3), spread[0] / (5 * palms_m)
    )
    variance = (
        _masked_tensor(hands.std_px, visible).clamp(min=0.3).square()
        + (px_per_m.unsqueeze(-1) * UNMODELLED_M).square()
    )
    ray = torch.cat(
        (
            (xy[:, :, 0] - xy.new_tensor(camera.center_px)) / xy.new_tensor(camera.focal_px),
            torch.ones(*visible.shape, 1),
        ),
        -1,
    )
    line = torch.nn.functional.normalize(ray, dim=-1)
    # The network looks along the line of sight: its axes are the camera's, turned from the optical
    # axis to that.
    axis = torch.tensor([0.0, 0.0, 1.0]).expand_as(line)
    axis_to_line = torch.linalg.cross(axis, line)
    turn = rotation_matrices(
        axis_to_line
        * (
            torch.asin(axis_to_line.norm(dim=-1).clamp(max=1))
            / axis_to_line.norm(dim=-1).clamp(min=1e-9)
        )[..., None]
    )
    cross = torch.einsum("thki,hkj->thij", landmarks[:, :, PALM], rest_points[:, PALM])
    presence = _masked_tensor(hands.presence, visible)
    return HandObservations(
        xy,
        presence.unsqueeze(-1) / variance,
        landmarks[..., 2],
        has_landmarks * presence * DEPTH_SHARE / (DEPTH_STD * palms_m) ** 2,
        line,
        matrix_to_axis_angle(turn @ nearest_rotation(cross)),
    )
