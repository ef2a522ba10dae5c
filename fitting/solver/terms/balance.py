"""The centre of mass of a standing person is above the feet."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.solver.jacobian import Posed
from fitting.solver.terms.contact import FEET
from fitting.solver.terms.term import NormalEquations, Term, charbonnier

# Of the centre of mass from the middle of the feet that carry it: half a foot's length, and more
# where a step is made. Not tuned: bench/world.py and bench/view_independence.py compare with and
# without.
BALANCE_STD_M = 0.05
BALANCE_SCALE = 1.0


# Shares of the body's mass (P. de Leva, J. Biomech. 1996, mean of women and men), each segment's at
# its centre between two joints: head, trunk in five parts, arms, hands, thighs, shanks, feet. By
# joint, left and right alike.
_MASS = {
    (0,): 0.118,
    (1, 2): 0.180,
    (3,): 0.080,
    (4, 5): 0.161,
    (6,): 0.078,
    (7, 8): 0.056,
    (9,): 0.100,
    (10, 11): 0.012,
    (12,): 0.055,
    (15,): 0.068,
    (16, 17): 0.022,
    (18, 19): 0.046,
    (20, 21): 0.014,
    (22, 23): 0.012,
}


def mass_shares() -> Tensor:
    """Return the weights [24] of the joints whose weighted mean is the centre of mass."""
    shares = torch.zeros(24)
    for joints, mass in _MASS.items():
        shares[list(joints)] = mass / len(joints)
    return shares / shares.sum()


@dataclass(frozen=True)
class Balance(Term):
    """Keep the centre of mass of a standing person over the feet: a straight body that leans by 20
    degrees falls over.
    """

    PER_FRAME = ("carries",)

    up: Tensor  # [3]
    carries: Tensor  # [T, 4] shares of the weight; less than 1 in all: less is known

    @property
    def known(self) -> Tensor:
        return self.carries.sum(-1)

    def horizontal(self, joints: Tensor, feet: Tensor) -> Tensor:
        """Return the centre of mass less the support, [T, 3] in stds, for points [T, 24, 3] and [T,
        4, 3] or for the derivatives of both [.., d]: it is linear in them.
        """
        centre = torch.einsum("j,tjc...->tc...", mass_shares().to(joints), joints)
        middle = torch.einsum(
            "tn,tnc...->tc...", self.carries / self.known.clamp(min=1e-6)[:, None], feet
        )
        away = centre - middle
        away = away - torch.einsum("i,j,tj...->ti...", self.up, self.up, away)
        return away * (self.known.sqrt() / BALANCE_STD_M).reshape(-1, *[1] * (away.ndim - 1))

    def loss(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        return charbonnier(residual.square().sum(-1), BALANCE_SCALE)

    def cost(self, posed: Posed) -> Tensor:
        residual = self.horizontal(posed.joints_shot, posed.points_shot(FEET))
        return self.loss(residual)[0] / 2

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        residual = self.horizontal(posed.joints_shot, posed.points_shot(FEET))
        root_slope = self.loss(residual)[1].sqrt()[:, None]
        joints = posed.joint_jacobians_shot
        feet = posed.point_jacobians_shot(FEET)
        step, shape = (
            self.horizontal(*parts) * root_slope[..., None]
            for parts in zip(joints, feet, strict=True)
        )
        equations.add_rows(root_slope * residual, step, shape)

    def in_doubt(self) -> None:
        """Leave the term out, as for the floor."""
