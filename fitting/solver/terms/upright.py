"""Bodies do not lean towards or away from the camera."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.solver.jacobian import Posed
from fitting.solver.terms.term import (
    NormalEquations,
    Term,
    geman_mcclure,
)

LEAN_SCALE = 3.0  # stds at which a lean counts half of its square: people do lie down. Not tuned


@dataclass(frozen=True)
class Upright(Term):
    """Keep bodies from leaning towards or away from the camera.

    Seen from the front, a body that leans towards or away from the camera looks like a slightly
    shorter one that does not, so noise alone would make people lean. The sine of the lean is the
    body's up axis along the direction away from the camera: the optical axis, or its horizontal
    part where gravity is known.
    """

    PER_FRAME = ("axis",)

    axis: Tensor  # [T, 3] unit, away from the camera, in each frame's camera
    std_rad: float

    def residual(self, root: Tensor) -> Tensor:
        """Return the lean of bodies turned by root [T, 3, 3], in stds [T]."""
        return (root[:, :, 1] * self.axis).sum(-1) / self.std_rad

    def cost(self, posed: Posed) -> Tensor:
        squared = self.residual(posed.state.root).square()
        return geman_mcclure(squared, LEAN_SCALE**2)[0] / 2

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        residual = self.residual(posed.state.root)
        _, slope = geman_mcclure(residual.square(), LEAN_SCALE**2)
        # a turn w moves the up axis by w x up, and axis . (w x up) = w . (up x axis)
        up = posed.state.root[:, :, 1]
        row = torch.linalg.cross(up, self.axis) / self.std_rad
        matrix = slope[:, None, None] * row[:, :, None] * row[:, None]
        equations.add_block(slice(3), (slope * residual)[:, None] * row, matrix)


def optical_axis(like: Tensor) -> Tensor:
    """Return the direction away from the camera, [T, 3], for as many frames as `like` [T,
    ...] has.
    """
    return like.new_tensor([0.0, 0.0, 1.0]).expand(len(like), 3)
