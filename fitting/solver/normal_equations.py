"""The Gauss-Newton system at a state: gradient and matrix, frame by frame, coupled over time in a track."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.solver.problem import Problem
from fitting.solver.terms.term import Blocks
from fitting.solver.unknowns import State


@dataclass(frozen=True)
class NormalEquations:
    """Half the cost's second-order model: cost(x + d) ~ cost + g . d + d . H d / 2."""

    gradient: Tensor  # [T, 63]
    matrix: Tensor  # [T, 63, 63]
    arrow: Tensor  # [T, 63, S] step against shape
    shape_gradient: Tensor  # [S], or [T, S] when each frame has its own shape
    corner: Tensor  # [S, S] or [T, S, S]
    # [T - 1, 63, 63] frame t against t + 1 and [T - 2, 63, 63] against t + 2; None: frames are not coupled
    off_diagonals: tuple[Tensor, ...] | None

    def double(self) -> "NormalEquations":
        """The same in float64."""
        whole = {name: value.double() for name, value in vars(self).items() if isinstance(value, Tensor)}
        off = self.off_diagonals and tuple(value.double() for value in self.off_diagonals)
        return replace(self, **whole, off_diagonals=off)

    def damped(self, damping: Tensor) -> "NormalEquations":
        """Marquardt's: diagonals grow by a share, [] or one per frame [T]."""
        matrix, corner = self.matrix.clone(), self.corner.clone()
        for square in (matrix, corner):
            square.diagonal(dim1=-2, dim2=-1).mul_(1 + damping[..., None])
        return replace(self, matrix=matrix, corner=corner)


def normal_equations(problem: Problem, state: State) -> NormalEquations:
    """Set the system up, a bounded number of frames at a time."""
    windows = []
    shape_gradient, corner = torch.zeros(()), torch.zeros(())
    for part, window in problem.windows(state):
        blocks = Blocks(window)
        for term in part.terms:
            term.add(window, blocks)
        windows.append(blocks.parts())
        shape_gradient, corner = shape_gradient + blocks.shared_gradient, corner + blocks.shared_corner
    columns = [list(column) for column in zip(*windows, strict=True)]
    windows.clear()

    def joined(part: list[Tensor]) -> Tensor:
        whole = part[0] if len(part) == 1 else torch.cat(part)
        part.clear()  # a long track's blocks are large: not twice in memory
        return whole

    gradient, matrix, arrow, of_shape, of_corner, *off = (joined(part) for part in columns)
    if state.shared_shape:
        of_shape, of_corner = of_shape.sum(0) + shape_gradient, of_corner.sum(0) + corner
    return NormalEquations(gradient, matrix, arrow, of_shape, of_corner, tuple(off) or None)
