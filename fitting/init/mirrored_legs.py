"""The other way to see a leg: thighs mirrored in depth.

In an image, a straight leg that leans away from the camera looks like a bent one whose knee comes forward: the thigh's
depth has two signs, and between them lies a straight leg that fits worse, so no search gets from one to the other.
Where a fitted body would fall over, the mirrored start is solved as well, and the likelier of both is kept.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.kinematics import rotation_matrices
from fitting.body.rotations import matrix_to_axis_angle

LEGS = ((1, 4), (2, 5))  # hips and knees


def mirrored_legs(params: BodyParams, body: Body, frames: Tensor) -> BodyParams:
    """Thighs mirrored in depth at their hips in some frames [T]; shanks and feet keep their directions."""
    rotation = rotation_matrices(params.pose)
    shape = torch.nn.functional.pad(params.shape, (0, body.shape_size - params.shape.shape[-1]))
    placed = body.placement(rotation, shape)
    for hip, knee in LEGS:
        thigh = placed.joints[:, knee] - placed.joints[:, hip]
        ray = torch.nn.functional.normalize(placed.joints[:, hip] + params.translation, dim=-1)
        other = thigh - 2 * (thigh * ray).sum(-1, keepdim=True) * ray
        axis = torch.nn.functional.normalize(torch.linalg.cross(thigh, other), dim=-1)
        angle = torch.acos(torch.cosine_similarity(thigh, other, dim=-1).clamp(-1, 1))
        turned = rotation_matrices(axis * angle[:, None]) @ placed.rotation[:, hip]
        rotation[:, hip] = placed.rotation[:, 0].mT @ turned
        rotation[:, knee] = turned.mT @ placed.rotation[:, knee]
    pose = torch.where(frames[:, None, None], matrix_to_axis_angle(rotation), params.pose)
    return replace(params, pose=pose)
