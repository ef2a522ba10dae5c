"""Where a posed body must stand so that its points fall on the keypoints: linear least squares, as SPIN does it."""

import torch
from torch import Tensor


def least_squares_translation(
    points: Tensor,  # [N, K, 3] metres, before any translation
    xy_px: Tensor,  # [N, K, 2]
    confidence: Tensor,  # [N, K] weight of a squared error
    focal_px: Tensor,  # [N, 2]
    center_px: Tensor,  # [N, 2]
) -> Tensor:
    """Translation [N, 3] metres that minimises sum_k conf |f (X + t) - (xy - c) (Z + t_z)|^2.

    This is the projection's error times the depth, so far points count more than in pixels; it needs no start.
    """
    points, xy, weight, focal, center = (v.double() for v in (points, xy_px, confidence, focal_px, center_px))
    off = xy - center[:, None]  # [N, K, 2]
    rows = torch.diag_embed(focal)[:, None].expand(*off.shape, 2)
    rows = torch.cat((rows, -off.unsqueeze(-1)), -1)  # [N, K, 2, 3]
    wanted = off * points[..., 2:] - focal[:, None] * points[..., :2]
    matrix = torch.einsum("nk,nkai,nkaj->nij", weight, rows, rows)
    vector = torch.einsum("nk,nkai,nka->ni", weight, rows, wanted)
    return torch.linalg.solve(matrix, vector)
