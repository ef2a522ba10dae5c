"""Feet in contact with the floor are at its height, and no foot is below it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body import Body
from fitting.solver.jacobian import Posed
from fitting.solver.terms.contact import FEET
from fitting.solver.terms.term import NormalEquations, Term, geman_mcclure

FLOOR_STD_M = 0.03  # of a point in contact over the floor: soles, and the floor's own unevenness
BELOW_STD_M = 0.02  # of a point below the floor
FLOOR_SCALE = 3.0


def foot_lifts(body: Body) -> Tensor:
    """Return the heights [4] of FEET above the sole, in metres."""
    rest_pose = body(torch.zeros(1, 24, 3), vertices=True)
    assert rest_pose.vertices is not None
    return rest_pose.keypoints[0, FEET, 1] - rest_pose.vertices[0, :, 1].min()


@dataclass(frozen=True)
class Floor(Term):
    """Keep feet in contact with the floor on it, and all feet above it."""

    PER_FRAME = ("on_floor",)

    up: Tensor  # [3]
    floor_m: float
    lift: Tensor  # [4] metres over the floor where they touch it
    on_floor: Tensor | None = None  # [T, 4]
    std_m: float = FLOOR_STD_M

    def residuals(self, points_shot: Tensor) -> tuple[Tensor, Tensor]:
        """Return residuals [T, n] of points [T, n, 3] in the shot's axes, and their derivatives by
        the height [T, n].
        """
        height = points_shot @ self.up - self.floor_m - self.lift
        on_floor_root = torch.zeros_like(height) if self.on_floor is None else self.on_floor.sqrt()
        share = torch.where(
            height < 0, torch.full_like(height, 1 / BELOW_STD_M), on_floor_root / self.std_m
        )
        return share * height, share

    def cost(self, posed: Posed) -> Tensor:
        residual, _ = self.residuals(posed.points_shot(FEET))
        return geman_mcclure(residual.square(), FLOOR_SCALE**2)[0].sum(-1) / 2

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        residual, share = self.residuals(posed.points_shot(FEET))
        root_slope = geman_mcclure(residual.square(), FLOOR_SCALE**2)[1].sqrt()
        row = (root_slope * share).unsqueeze(-1) * self.up  # [t, n, 3]
        step, shape = (
            torch.einsum("tnc,tncd->tnd", row, part) for part in posed.point_jacobians_shot(FEET)
        )
        equations.add_rows(root_slope * residual, step, shape)

    def in_doubt(self) -> None:
        """Leave the term out: a floor estimated from the same keypoints may be wrong where they
        are.
        """
