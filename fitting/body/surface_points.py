"""Points that ride on the skeleton: keypoints without a mesh.

A skinned vertex with weights w_j goes to sum_j w_j (P_j + G_j (x - J_j)), and a keypoint is a weighted sum of
such vertices and of joints. Both sums can be taken once, before any pose is known: keypoint k is then exactly

    q_k = sum_e [ c_e P_j(e) + G_j(e) m_e ]
    m_e = offset_e + offset_by_shape_e . shape + offset_by_pose_e . (R - I)

over a few terms e, each tied to one bone j(e), however many vertices its definition names. The moments m_e are
linear in the shape, so derivatives have closed forms. For a small world-frame rotation w of joint i, every term
on a bone at or below i turns about P_i,

    dq_k = w x sum_{e: j(e) at or below i} [ c_e P_j + G_j m_e - c_e P_i ],

`kinematics.tree().path` says which bones those are, and

    dq_k / dshape = sum_e [ c_e dP_j / dshape + G_j offset_by_shape_e ].

`offset_by_pose` is None for a body without pose correctives, such as the embedded one. Where it exists the
rotations also enter through m_e; that part of the derivative is G_j offset_by_pose_e . dR.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body.kinematics import Placement, turn


@dataclass(frozen=True)
class RiddenPoints:
    """K points as E terms, each tied to one bone."""

    point: Tensor  # [E] which point a term belongs to, non-decreasing
    bone: Tensor  # [E] which of the 24 joints carries it
    coefficient: Tensor  # [E] c, share of the joint's position; sums to 1 over a point's terms
    offset: Tensor  # [E, 3] metres, m at zero shape, along the axes of the rest pose
    offset_by_shape: Tensor  # [E, 3, S] metres per unit of shape
    offset_by_pose: Tensor | None  # [E, 3, P] metres per unit of (R - I) of joints 1, 2, ..; None when all zero
    gather: Tensor  # [K, E] ones and zeros: adds up a point's terms

    def moments(self, shape: Tensor, pose_feature: Tensor | None) -> Tensor:
        """m_e, [E, 3] for a shape [S] or [T, E, 3] for [T, S]; pose_feature [T, P] is R - I, flattened."""
        moment = self.offset + torch.einsum("ecs,...s->...ec", self.offset_by_shape, shape)
        if self.offset_by_pose is None or pose_feature is None:
            return moment
        return moment + torch.einsum("ecp,tp->tec", self.offset_by_pose, pose_feature)

    def place(self, placement: Placement, moments: Tensor) -> Tensor:
        """Where the points are, [T, K, 3] metres."""
        turned = turn(placement.rotation.index_select(1, self.bone), moments)
        carried = placement.joints.index_select(1, self.bone)
        return self.gather @ torch.addcmul(turned, self.coefficient.unsqueeze(-1), carried)


def ride(
    joint_part: Tensor,  # [K, 24] weights on the posed joints
    vertex_part: Tensor,  # [K, V] weights on the posed vertices; a row of both sums to 1
    template: Tensor,  # [V, 3] metres
    shapedirs: Tensor,  # [V, 3, S]
    posedirs: Tensor | None,  # [V, 3, P]
    weights: Tensor,  # [V, 24] skinning weights
    rest_joints: Tensor,  # [24, 3] metres at zero shape
    rest_joints_by_shape: Tensor,  # [24, 3, S]
) -> RiddenPoints:
    """Take the sums over vertices once: points as weighted sums of vertices -> terms on bones."""
    used = (vertex_part != 0).any(0).nonzero().squeeze(1)
    share = torch.einsum("kv,vj->kvj", vertex_part[:, used], weights[used])  # of point k: vertex v on bone j
    on_bone = share.sum(1)
    point, bone = ((joint_part != 0) | (on_bone != 0)).nonzero(as_tuple=True)
    share = share[point, :, bone]  # [E, v]
    riding = on_bone[point, bone]

    # sum_v share (x_v - J): a moment about the bone's own joint.
    offset = share @ template[used] - riding[:, None] * rest_joints[bone]
    by_shape = torch.einsum("ev,vcs->ecs", share, shapedirs[used])
    by_shape = by_shape - riding[:, None, None] * rest_joints_by_shape[bone]
    by_pose = None if posedirs is None else torch.einsum("ev,vcp->ecp", share, posedirs[used])
    gather = (torch.arange(len(joint_part), device=point.device)[:, None] == point).to(template.dtype)
    coefficient = joint_part[point, bone] + riding
    return RiddenPoints(point, bone, coefficient, offset, by_shape, by_pose, gather)
