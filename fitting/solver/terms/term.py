"""A term of the cost: what it is made from (`solver.unknowns.Posed`), and what it adds to the
normal equations.

A new term is one file here, a frozen dataclass with its data, `cost` and `add`, and one line in the
list of `fitting.problem_setup.terms_of`. Costs are in natural units: half a sum of squares is a
negative log-likelihood, up to a constant. A robust residual enters the equations with the slope of
its loss (iteratively reweighted least squares). `tests/fitting/test_terms.py` compares the
derivatives of every term with differences of its cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from fitting.solver.jacobian import Posed
from fitting.solver.unknowns import STEP_SIZE

SECOND_DIFFERENCE = (1.0, -2.0, 1.0)
FARTHEST = 2  # frames that one difference may reach over: the matrix has so many off-diagonals


@dataclass(frozen=True)
class NormalEquations:
    """Half the second-order model of the cost: cost(x + d) ~ cost + g . d + d . H d / 2. Terms add
    to it in place.
    """

    gradient: Tensor  # [T, 63]
    matrix: Tensor  # [T, 63, 63]
    arrow: Tensor  # [T, 63, S] step against shape
    shape_gradient: Tensor  # [S], or [T, S] when each frame has its own shape
    corner: Tensor  # [S, S] or [T, S, S]
    # [T - 1, 63, 63] frame t against t + 1 and [T - 2, 63, 63] against t + 2; none: frames are not
    # coupled
    off_diagonals: tuple[Tensor, ...] = ()

    @staticmethod
    def zeros(posed: Posed) -> "NormalEquations":
        frames = len(posed.state)
        shape = posed.state.shape
        new = posed.keypoints.new_zeros
        lags = range(1, FARTHEST + 1) if posed.fps is not None else ()
        return NormalEquations(
            new(frames, STEP_SIZE),
            new(frames, STEP_SIZE, STEP_SIZE),
            new(frames, STEP_SIZE, shape.shape[-1]),
            new(shape.shape),
            new(*shape.shape, shape.shape[-1]),
            tuple(new(frames - lag, STEP_SIZE, STEP_SIZE) for lag in lags),
        )

    def double(self) -> "NormalEquations":
        """Return the equations in float64."""
        in_float64 = {
            name: value.double() for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(
            self, **in_float64, off_diagonals=tuple(value.double() for value in self.off_diagonals)
        )

    def damped(self, damping: Tensor) -> "NormalEquations":
        """Return the equations with Marquardt's damping: diagonals grow by a share, [] or one per
        frame [T].
        """
        matrix = self.matrix.clone()
        corner = self.corner.clone()
        for square in (matrix, corner):
            square.diagonal(dim1=-2, dim2=-1).mul_(1 + damping[..., None])
        return replace(self, matrix=matrix, corner=corner)

    def add_rows(self, residual: Tensor, step: Tensor, shape: Tensor) -> None:
        """Add residuals [T, n] within frames, given their derivatives [T, n, 63] and [T, n, S]."""
        x = step.mT
        r = residual.unsqueeze(-1)
        self.gradient.add_((x @ r).squeeze(-1))
        self.matrix.add_(x @ step)
        self.arrow.add_(x @ shape)
        if self.corner.ndim == 2:  # one shape for all frames
            shape = shape.flatten(0, 1)
            r = r.flatten(0, 1)
        self.shape_gradient.add_((shape.mT @ r).squeeze(-1))
        self.corner.add_(shape.mT @ shape)

    def add_block(self, columns: slice, gradient: Tensor, matrix: Tensor) -> None:
        """Add a gradient [T, k] and a matrix [T, k, k] for some columns of the step."""
        self.gradient[:, columns] += gradient
        self.matrix[:, columns, columns] += matrix

    def add_diagonal(self, columns: slice, gradient: Tensor, diagonal: Tensor) -> None:
        """Add a gradient [T, k] and a diagonal [T, k] or [k] for some columns of the step."""
        self.gradient[:, columns] += gradient
        self.matrix.diagonal(dim1=-2, dim2=-1)[:, columns] += diagonal

    def add_difference(
        self,
        stencil: Sequence[float],
        residual: Tensor,
        weight: Tensor,
        step: Tensor,
        shape: Tensor,
    ) -> None:
        """Add differences over time, r_t = sum_k c_k x_{t+k}, with a weight for each number.

        residual and weight are [T - order, n]. step: dx/dstep [T, n, 63], X_t. shape: dr/dshape [T
        - order, n, S], D_t. A difference makes blocks c_j c_k X_{t+j}^T w X_{t+k}, hence
        off-diagonals, and c_k X_{t+k}^T w D_t of the arrow.
        """
        x = step.mT
        pulled = weight.unsqueeze(-1) * shape
        self.gradient.add_(torch.einsum("tdn,tn->td", x, _transposed(stencil, weight * residual)))
        self.arrow.add_(x @ _transposed(stencil, pulled))
        for lag, blocks in enumerate((self.matrix, *self.off_diagonals[: len(stencil) - 1])):
            blocks.add_(
                x[: len(blocks)] @ (_products(stencil, weight, lag).unsqueeze(-1) * step[lag:])
            )
        self.shape_gradient.add_(torch.einsum("tns,tn->s", pulled, residual))
        self.corner.add_(pulled.flatten(0, 1).mT @ shape.flatten(0, 1))

    def add_diagonal_difference(
        self,
        stencil: Sequence[float],
        residual: Tensor,
        weight: Tensor,
        columns: slice,
        scale: Tensor,
    ) -> None:
        """Add differences of x_t = scale [k] times some columns of the step, which the shape does
        not move.
        """
        self.gradient[:, columns] += _transposed(stencil, weight * residual) * scale
        for lag, blocks in enumerate((self.matrix, *self.off_diagonals)):
            blocks.diagonal(dim1=-2, dim2=-1)[:, columns] += (
                _products(stencil, weight, lag) * scale**2
            )


def _transposed(stencil: Sequence[float], values: Tensor) -> Tensor:
    """Apply the transpose of the difference: [T - order, ...] -> [T, ...]."""
    order = len(stencil) - 1
    out = values.new_zeros(len(values) + order, *values.shape[1:])
    for k, c in enumerate(stencil):
        out[k : len(out) - order + k] += c * values
    return out


def _products(stencil: Sequence[float], weight: Tensor, lag: int) -> Tensor:
    """Return the weights of the products of frames t and t + lag, [T - lag, n], for weights of
    differences [T - order, n].
    """
    order = len(stencil) - 1
    out = weight.new_zeros(len(weight) + order - lag, weight.shape[1])
    for k in range(order - lag + 1):
        out[k : k + len(weight)] += stencil[k] * stencil[k + lag] * weight
    return out


@dataclass(frozen=True)
class Term:
    """A residual with its cost and derivatives. Fields named in PER_FRAME have a row per frame."""

    PER_FRAME: ClassVar[tuple[str, ...]] = ()

    def cost(self, posed: Posed) -> Tensor:
        """Return the cost of each frame [T], or of all frames together [] where a residual couples
        frames or concerns what they share.
        """
        raise NotImplementedError

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        """Add the gradient of `cost` and its Gauss-Newton matrix."""
        raise NotImplementedError

    def in_doubt(self) -> "Term | None":
        """Return the term as it counts when uncertainty is estimated (`joint_deviations`), or None
        to leave it out.
        """
        return self

    def frames(self, index: Tensor | slice) -> Self:
        """Return the term for these frames."""
        per_frame = {
            name: value for name in self.PER_FRAME if (value := getattr(self, name)) is not None
        }
        return replace(self, **{name: value[index] for name, value in per_frame.items()})

    def to(self, dtype: torch.dtype) -> Self:
        """Return the term with its real numbers in another precision."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        real = {
            n: v
            for n, v in values.items()
            if hasattr(v, "to") and getattr(v, "dtype", None) != torch.int64
        }
        return replace(self, **{name: value.to(dtype) for name, value in real.items()})


def geman_mcclure(squared: Tensor, scale: Tensor | float) -> tuple[Tensor, Tensor]:
    """Return rho(e) = e c^2 / (c^2 + e) of a squared residual e, and its slope (c^2 / (c^2
    + e))^2.
    """
    share = scale / (scale + squared)
    return squared * share, share.square()


def charbonnier(squared: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return rho(e) = 2 c^2 (sqrt(1 + e / c^2) - 1) of a squared residual e, and its slope.

    It is quadratic near zero and a cone far out. For motion: people mostly move evenly, and then
    land from a jump.
    """
    root = (1 + squared / scale**2).sqrt()
    rho = 2 * squared / (root + 1)  # the same, without the difference of nearly equal numbers
    return rho, 1 / root
