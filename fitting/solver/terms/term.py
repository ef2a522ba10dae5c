"""A term of the cost: what it is made from (`Window`), and what it adds to the normal equations (`Blocks`).

A new term is one file here, a frozen dataclass with its data, `cost` and `add`, and one line in the list of
`fitting.optimise.terms_of`. Costs are in natural units: half a sum of squares is a negative log-likelihood, up to a
constant. A robust residual enters the equations with the slope of its loss (iteratively reweighted least squares).
`tests/fitting/test_terms.py` compares the derivatives of every term with differences of its cost."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar, Self

import torch
from torch import Tensor

from fitting.solver.unknowns import STEP_SIZE, BodyJacobian, Geometry, State

SECOND_DIFFERENCE = (1.0, -2.0, 1.0)
FARTHEST = 2  # frames that one difference may reach over: the matrix has so many off-diagonals


@dataclass(frozen=True)
class Window:
    """Frames of a track at a state, and where their bodies are; derivatives are made once, when first asked for.

    Only the rows `inner` get their equations from this window: the others are neighbours that differences reach to.
    """

    jacobian: BodyJacobian
    state: State  # [t]
    geometry: Geometry  # [t] in each frame's camera
    inner: slice
    first: int  # number of the first inner frame in the track
    frames: int  # of the whole track
    fps: float | None  # frames per second; None: frames do not touch each other
    segment: Tensor | None = None  # [t] frames with the same number follow each other; None: all do
    world_rotation: Tensor | None = None  # [t, 3, 3] from each frame's camera to the shot's axes; None: all the same

    @property
    def keypoints(self) -> Tensor:
        """[t, 26, 3] metres in each frame's camera."""
        return self.geometry.keypoints

    def to_shot(self, vectors: Tensor) -> Tensor:
        """Vectors [t, n, 3] of each frame's camera, or their derivatives [t, n, 3, d], in axes that do not turn."""
        if self.world_rotation is None:
            return vectors
        return torch.einsum("tij,tnj...->tni...", self.world_rotation, vectors)

    @cached_property
    def joints_shot(self) -> Tensor:
        """[t, 24, 3] metres in the shot's axes."""
        return self.to_shot(self.geometry.joints)

    @cached_property
    def joint_shape_jacobian(self) -> Tensor:
        """[t, 24, 3, S] in each frame's camera."""
        return self.jacobian.joint_shape_jacobian(self.geometry)

    @cached_property
    def joint_jacobians_shot(self) -> tuple[Tensor, Tensor]:
        """Of the joints by the step [t, 24, 3, 63] and by the shape [t, 24, 3, S], in the shot's axes."""
        step = self.jacobian.joint_step_jacobian(self.geometry)
        return self.to_shot(step), self.to_shot(self.joint_shape_jacobian)

    def points_shot(self, points: tuple[int, ...]) -> Tensor:
        """[t, n, 3] some keypoints in the shot's axes."""
        return self.to_shot(self.keypoints[:, points])

    @cached_property
    def _point_jacobians(self) -> dict[tuple[int, ...], tuple[Tensor, Tensor]]:
        return {}

    def point_jacobians_shot(self, points: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Of some keypoints by the step [t, n, 3, 63] and by the shape [t, n, 3, S], in the shot's axes."""
        made = self._point_jacobians
        if points not in made:
            step = self.jacobian.some_keypoints_step_jacobian(self.geometry, points)
            shape = self.jacobian.some_keypoints_shape_jacobian(self.geometry, self.joint_shape_jacobian, points)
            made[points] = self.to_shot(step), self.to_shot(shape)
        return made[points]

    def follows(self, order: int) -> Tensor | float:
        """[t - order, 1] 1 where a difference of this order stays within a segment, 0 where the person was away."""
        if self.segment is None:
            return 1.0
        return (self.segment[order:] == self.segment[:-order]).to(self.state.theta.dtype)[:, None]

    def begin(self, order: int) -> slice:
        """The differences of this order that begin at an inner frame."""
        begin = self.inner.start
        return slice(begin, max(begin, min(self.inner.stop, begin + self.frames - order - self.first)))


class Blocks:
    """The equations of a window's inner frames: cost(x + d) ~ cost + g . d + d . H d / 2. Terms add to them."""

    def __init__(self, window: Window) -> None:
        self.window = window
        n, size = window.inner.stop - window.inner.start, window.jacobian.shape_size
        new = window.geometry.keypoints.new_zeros
        self.gradient = new(n, STEP_SIZE)
        self.matrix = new(n, STEP_SIZE, STEP_SIZE)
        self.arrow = new(n, STEP_SIZE, size)  # step against shape
        self.shape_gradient = new(n, size)
        self.corner = new(n, size, size)
        # Frame t against t + 1 and t + 2; None: nothing yet.
        self.off_diagonals: list[Tensor | None] = [None] * FARTHEST
        # Of a shape that all frames share, counted once in a track.
        self.shared_gradient, self.shared_corner = new(size), new(size, size)

    def add_rows(self, residual: Tensor, step: Tensor, shape: Tensor) -> None:
        """Residuals [t, n] within frames, and their derivatives [t, n, 63] and [t, n, S]."""
        inner = self.window.inner
        x, a, r = step[inner].mT, shape[inner], residual[inner].unsqueeze(-1)
        self.gradient += (x @ r).squeeze(-1)
        self.matrix += x @ x.mT
        self.arrow += x @ a
        self.shape_gradient += (a.mT @ r).squeeze(-1)
        self.corner += a.mT @ a

    def add_block(self, columns: slice, gradient: Tensor, matrix: Tensor) -> None:
        """What concerns some numbers of the step only: gradient [t, k] and matrix [t, k, k]."""
        self.gradient[:, columns] += gradient[self.window.inner]
        self.matrix[:, columns, columns] += matrix[self.window.inner]

    def add_diagonal(self, columns: slice, gradient: Tensor, diagonal: Tensor) -> None:
        """The same where each number stands by itself: diagonal [t, k] or [k]."""
        inner = self.window.inner
        self.gradient[:, columns] += gradient[inner]
        self.matrix.diagonal(dim1=-2, dim2=-1)[:, columns] += diagonal if diagonal.ndim == 1 else diagonal[inner]

    def add_shape(self, gradient: Tensor, matrix: Tensor) -> None:
        """What concerns the shape only: gradient [S], or [t, S] where each frame has its own; matrix [S, S]."""
        if gradient.ndim == 2:
            self.shape_gradient += gradient[self.window.inner]
            self.corner += matrix
        elif self.window.first == 0:
            self.shared_gradient += gradient
            self.shared_corner += matrix

    def add_difference(
        self, stencil: Sequence[float], residual: Tensor, weight: Tensor, step: Tensor, shape: Tensor
    ) -> None:
        """Differences over time, r_t = sum_k c_k x_{t+k}, each number with a weight: residual, weight [t - order, n].

        step: dx/dstep [t, n, 63], X_t. shape: dr/dshape [t - order, n, S], D_t. A difference makes blocks
        c_j c_k X_{t+j}^T w X_{t+k}, hence off-diagonals, and c_k X_{t+k}^T w D_t of the arrow.
        """
        inner, begin = self.window.inner, self.window.begin(len(stencil) - 1)
        x = step[inner].mT
        self.gradient += torch.einsum("tdn,tn->td", x, _transposed(stencil, weight * residual)[inner])
        self.arrow += x @ _transposed(stencil, weight.unsqueeze(-1) * shape)[inner]
        self.matrix += x @ (_products(stencil, weight, 0)[inner].unsqueeze(-1) * step[inner])
        for lag in range(1, len(stencil)):
            rows = self.window.begin(lag)
            after = step[rows.start + lag : rows.stop + lag]
            off = x[: len(after)] @ (_products(stencil, weight, lag)[rows].unsqueeze(-1) * after)
            self._add_off_diagonal(lag, off)
        part = weight[begin].unsqueeze(-1) * shape[begin]
        self.shape_gradient[: len(part)] += torch.einsum("tns,tn->ts", part, residual[begin])
        self.corner[: len(part)] += part.mT @ shape[begin]

    def add_diagonal_difference(
        self, stencil: Sequence[float], residual: Tensor, weight: Tensor, columns: slice, scale: Tensor
    ) -> None:
        """The same for x_t = scale times some numbers of the step, [k]; the shape does not move them."""
        inner = self.window.inner
        self.gradient[:, columns] += _transposed(stencil, weight * residual)[inner] * scale
        own = _products(stencil, weight, 0)[inner] * scale**2
        self.matrix.diagonal(dim1=-2, dim2=-1)[:, columns] += own
        for lag in range(1, len(stencil)):
            off = _products(stencil, weight, lag)[self.window.begin(lag)] * scale**2
            self._off_diagonal(lag).diagonal(dim1=-2, dim2=-1)[:, columns] += off

    def _add_off_diagonal(self, lag: int, value: Tensor) -> None:
        """`value` is not used by anybody else."""
        there = self.off_diagonals[lag - 1]
        self.off_diagonals[lag - 1] = value if there is None else there.add_(value)

    def _off_diagonal(self, lag: int) -> Tensor:
        rows = self.window.begin(lag)
        there = self.off_diagonals[lag - 1]
        if there is None:
            there = self.off_diagonals[lag - 1] = self.matrix.new_zeros(rows.stop - rows.start, STEP_SIZE, STEP_SIZE)
        return there

    def parts(self) -> tuple[Tensor, ...]:
        """gradient, matrix, arrow, shape_gradient, corner and, where frames touch each other, the off-diagonals."""
        parts = self.gradient, self.matrix, self.arrow, self.shape_gradient, self.corner
        if self.window.fps is None:
            return parts
        return *parts, *(self._off_diagonal(lag) for lag in range(1, FARTHEST + 1))


def _transposed(stencil: Sequence[float], values: Tensor) -> Tensor:
    """The transpose of the difference: [t - order, ...] -> [t, ...]."""
    order = len(stencil) - 1
    out = values.new_zeros(len(values) + order, *values.shape[1:])
    for k, c in enumerate(stencil):
        out[k : len(out) - order + k] += c * values
    return out


def _products(stencil: Sequence[float], weight: Tensor, lag: int) -> Tensor:
    """Weights of differences [t - order, n] -> of the products of frames t and t + lag, [t - lag, n]."""
    order = len(stencil) - 1
    out = weight.new_zeros(len(weight) + order - lag, weight.shape[1])
    for k in range(order - lag + 1):
        out[k : k + len(weight)] += stencil[k] * stencil[k + lag] * weight
    return out


@dataclass(frozen=True)
class Term:
    """Something that pulls. Fields named in PER_FRAME have a row per frame; they are cut with the frames."""

    PER_FRAME: ClassVar[tuple[str, ...]] = ()

    def cost(self, window: Window) -> Tensor:
        """Of each frame by itself [t], or of all together [], where frames touch each other or share what it is of."""
        raise NotImplementedError

    def add(self, window: Window, blocks: Blocks) -> None:
        """The gradient of `cost`, and its Gauss-Newton matrix."""
        raise NotImplementedError

    def in_doubt(self) -> "Term | None":
        """The term as it counts where a fit states how far it may be off (`solver.uncertainty`); None: not at all."""
        return self

    def frames(self, index: Tensor | slice) -> Self:
        """Of some of the frames."""
        given = {name: value for name in self.PER_FRAME if (value := getattr(self, name)) is not None}
        return replace(self, **{name: value[index] for name, value in given.items()})

    def to(self, dtype: torch.dtype) -> Self:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return replace(self, **{name: value.to(dtype) for name, value in values.items() if hasattr(value, "to")})


def geman_mcclure(squared: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """rho(e) = e c^2 / (c^2 + e) of a squared residual e, and its slope (c^2 / (c^2 + e))^2."""
    share = scale / (scale + squared)
    return squared * share, share.square()


def charbonnier(squared: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """rho(e) = 2 c^2 (sqrt(1 + e / c^2) - 1) of a squared residual e, square near zero and a cone far out; its slope.

    For motion: mostly people move evenly, and then somebody lands from a jump.
    """
    root = (1 + squared / scale**2).sqrt()
    return 2 * squared / (root + 1), 1 / root  # the same, without the difference of nearly equal numbers
