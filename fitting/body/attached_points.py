"""Points that are weighted sums of terms on bones (`fitting.body.body` derives them)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body.kinematics import Placement
from fitting.body.rotations import rotate


@dataclass(frozen=True)
class AttachedPoints:
    """K points as E terms, each attached to one bone."""

    bone: Tensor  # [E] which of the 24 joints moves it
    coefficient: Tensor  # [E] c, share of the joint's position; sums to 1 over a point's terms
    offset: Tensor  # [E, 3] metres, m at zero shape, along the axes of the rest pose
    offset_shapedirs: Tensor  # [E, 3, S] metres per unit of shape
    # [E, 3, P] metres per unit of (R - I) of joints 1, 2, ..; None when all are zero
    offset_posedirs: Tensor | None
    gather: Tensor  # [K, E] ones and zeros: adds up a point's terms

    def moments(self, shape: Tensor, pose_feature: Tensor | None) -> Tensor:
        """Return m_e, [E, 3] for a shape [S] or [T, E, 3] for [T, S]; pose_feature [T, P] is R - I,
        flattened.
        """
        moment = self.offset + torch.einsum("ecs,...s->...ec", self.offset_shapedirs, shape)
        if self.offset_posedirs is None or pose_feature is None:
            return moment
        return moment + torch.einsum("ecp,tp->tec", self.offset_posedirs, pose_feature)

    def carried(self, placement: Placement, moments: Tensor) -> Tensor:
        """Return where bones carry the terms, c P + G m, [T, E, 3]."""
        turned = rotate(placement.rotation.index_select(1, self.bone), moments)
        joints = placement.joints.index_select(1, self.bone)
        return torch.addcmul(turned, self.coefficient.unsqueeze(-1), joints)

    def place(self, placement: Placement, moments: Tensor) -> Tensor:
        """Return the positions of the points, [T, K, 3] metres."""
        return self.gather @ self.carried(placement, moments)
