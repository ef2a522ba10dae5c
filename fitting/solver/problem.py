"""One fitting problem: whose body, in which frames, and the terms that pull on it; its cost and its equations."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from fitting.solver.terms.reprojection import Reprojection
from fitting.solver.terms.term import FARTHEST, Blocks, Term, Window
from fitting.solver.unknowns import BodyJacobian, Geometry, State

CHUNK = 512  # frames handled at a time: bounds memory on long tracks
Kind = TypeVar("Kind", bound=Term)


@dataclass(frozen=True)
class Problem:
    """T frames of one person, or T people in a frame each."""

    jacobian: BodyJacobian
    terms: tuple[Term, ...]  # everything that pulls; the keypoints among them
    fps: float | None = None  # frames per second of a track; None: independent frames
    segment: Tensor | None = None  # [T] frames with the same number follow each other; None: all frames do
    world_rotation: Tensor | None = None  # [T, 3, 3] from each frame's camera to axes that do not turn; None: the same

    def __len__(self) -> int:
        return len(self.seen.weight)

    @property
    def seen(self) -> Reprojection:
        """The keypoints."""
        return self.term(Reprojection)

    def term(self, kind: type[Kind]) -> Kind:
        """The first term of this kind."""
        return next(term for term in self.terms if isinstance(term, kind))

    def having(self, changed: Term) -> "Problem":
        """With a term instead of those of its kind."""
        return replace(self, terms=tuple(changed if type(term) is type(changed) else term for term in self.terms))

    def frames(self, index: Tensor | slice) -> "Problem":
        """The problem of some frames alone."""
        return replace(
            self,
            terms=tuple(term.frames(index) for term in self.terms),
            segment=None if self.segment is None else self.segment[index],
            world_rotation=None if self.world_rotation is None else self.world_rotation[index],
        )

    def to(self, dtype: torch.dtype) -> "Problem":
        jacobian = BodyJacobian(self.jacobian.body.to(dtype=dtype), self.jacobian.shape_size)
        turn = None if self.world_rotation is None else self.world_rotation.to(dtype)
        return replace(self, jacobian=jacobian, terms=tuple(term.to(dtype) for term in self.terms), world_rotation=turn)

    def window(self, state: State, geometry: Geometry, inner: slice, first: int, frames: int) -> Window:
        """This problem's frames as its terms see them; `inner` begins at frame `first` of `frames` in the track."""
        fps = self.fps if frames > FARTHEST else None
        return Window(self.jacobian, state, geometry, inner, first, frames, fps, self.segment, self.world_rotation)

    def windows(self, state: State) -> Iterator[tuple["Problem", Window]]:
        """A bounded number of frames at a time, with the neighbours that differences reach to."""
        count = len(state)
        halo = FARTHEST if self.fps is not None and count > FARTHEST else 0
        for first in range(0, count, CHUNK):
            last = min(first + CHUNK, count)
            low, high = max(first - halo, 0), min(last + halo, count)
            part, wide = self.frames(slice(low, high)), state.frames(slice(low, high))
            yield part, part.window(wide, self.jacobian.place(wide), slice(first - low, last - low), first, count)


def costs(problem: Problem, state: State) -> tuple[Tensor, Tensor]:
    """-log posterior up to a constant: each frame's own [T], infinite for a body behind the camera; and in total []."""
    geometry = Geometry.joined(
        [
            problem.jacobian.place(state.frames(slice(first, first + CHUNK)), derivatives=False)
            for first in range(0, len(state), CHUNK)
        ]
    )
    whole = problem.window(state, geometry, slice(0, len(state)), 0, len(state))
    each = state.theta.new_zeros(len(state))
    together = each.new_zeros((), dtype=torch.float64)
    for term in problem.terms:
        cost = term.cost(whole)
        if cost.ndim:
            each = each + cost
        else:
            together = together + cost.double()
    each = torch.where(torch.isfinite(each), each, torch.inf)
    return each, each.double().sum() + together


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
    """The Gauss-Newton system at a state, set up a bounded number of frames at a time."""
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
