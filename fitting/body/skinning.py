"""Skinning: the posed mesh of rest vertices and bones."""

import torch
from torch import Tensor

from fitting.body.kinematics import Placement
from fitting.body.rotations import rotate

FRAMES_AT_A_TIME = 16  # 16 frames of 6,800 vertices blend 5 MB of transforms
Rows = tuple[Tensor, Tensor, Tensor | None, Tensor]


def mesh_rows(
    v_template: Tensor, shapedirs: Tensor, posedirs: Tensor | None, weights: Tensor
) -> Rows:
    """Lay a mesh out for `Body.mesh`, all x, then all y, then all z.

    Returns the template [3 V], shape directions [S, 3 V], correctives [P, 3 V] and weights [24 or
    52, V].
    """
    by_shape, by_pose = (
        None if d is None else torch.einsum("vcn->ncv", d).flatten(1) for d in (shapedirs, posedirs)
    )
    assert by_shape is not None
    return v_template.T.flatten(), by_shape, by_pose, weights.T.contiguous()


def skin(rest_vertices: Tensor, weights_by_bone: Tensor, placement: Placement) -> Tensor:
    """Return posed vertices [T, 3, V] of rest vertices [3, V] or [T, 3, V], with weights [24 or 52,
    V].

    v = sum_j w_j (G_j x + P_j - G_j J_j). Vertices run along the last axis, so that the blend of
    transforms is one plain matrix product and its use runs along long rows.
    """
    rotation, joints, rest_joints = placement
    shift = joints - rotate(rotation, rest_joints)
    transform = torch.cat((rotation, shift.unsqueeze(-1)), -1)  # [T, 24, 3, 4]
    blend = torch.einsum("tjac->tacj", transform).flatten(0, 2) @ weights_by_bone
    by_x, by_y, by_z, constant = blend.unflatten(0, (len(rotation), 3, 4)).unbind(
        2
    )  # each [T, 3, V]
    x, y, z = rest_vertices.unsqueeze(-3).unbind(-2)  # each [1, V] or [T, 1, V]
    return torch.addcmul(torch.addcmul(torch.addcmul(constant, by_x, x), by_y, y), by_z, z)
