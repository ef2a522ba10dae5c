"""A fitting problem: one body, its frames, and the terms that pull on it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from fitting.keypoints.usable import LEAST_KEYPOINTS
from fitting.solver.jacobian import BodyJacobian, Posed
from fitting.solver.terms.reprojection import Reprojection
from fitting.solver.terms.term import NormalEquations, Term
from fitting.solver.unknowns import State

Kind = TypeVar("Kind", bound=Term)


@dataclass(frozen=True)
class Problem:
    """T frames of one person, or T people in a frame each."""

    jacobian: BodyJacobian
    terms: tuple[Term, ...]  # everything that pulls; the keypoints among them
    fps: float | None = (
        None  # frames per second of a track of more than FARTHEST frames; None: they do not touch
    )
    segment: Tensor | None = (
        None  # [T] frames with the same number follow each other; None: all frames do
    )
    world_rotation: Tensor | None = (
        None  # [T, 3, 3] from each frame's camera to axes that do not turn; None: the same
    )

    def __len__(self) -> int:
        return len(self.keypoints.weight)

    @property
    def keypoints(self) -> Reprojection:
        """Return the reprojection term of the camera in whose frame the body is."""
        return self.term(Reprojection)

    @property
    def views(self) -> list[Reprojection]:
        """Return the reprojection terms of all cameras."""
        return [term for term in self.terms if isinstance(term, Reprojection)]

    @property
    def without_tails(self) -> "Problem":
        """Return the problem with one Gaussian for every keypoint
        (`Reprojection.without_tails`).
        """
        return replace(
            self,
            terms=tuple(t.without_tails if isinstance(t, Reprojection) else t for t in self.terms),
        )

    def term(self, kind: type[Kind]) -> Kind:
        """Return the first term of this kind."""
        return next(term for term in self.terms if isinstance(term, kind))

    def frames(self, index: Tensor | slice) -> "Problem":
        """Return the problem restricted to these frames."""
        return replace(
            self,
            terms=tuple(term.frames(index) for term in self.terms),
            segment=None if self.segment is None else self.segment[index],
            world_rotation=None if self.world_rotation is None else self.world_rotation[index],
        )

    def to(self, dtype: torch.dtype) -> "Problem":
        known = self.jacobian
        jacobian = BodyJacobian(known.body.to(dtype=dtype), known.body_directions, known.reads)
        turn = None if self.world_rotation is None else self.world_rotation.to(dtype)
        return replace(
            self,
            jacobian=jacobian,
            terms=tuple(term.to(dtype) for term in self.terms),
            world_rotation=turn,
        )

    def posed(self, state: State) -> Posed:
        """Return these frames as the terms read them."""
        return Posed(self.jacobian, state, self.fps, self.segment, self.world_rotation)


def visible_to_several(views: Sequence[Reprojection]) -> Tensor:
    """Return the frames [T] in which more than one camera shows enough of the body to be fitted."""
    return torch.stack([view.used.sum(-1) >= LEAST_KEYPOINTS for view in views]).sum(0) > 1


def costs(problem: Problem, state: State) -> tuple[Tensor, Tensor]:
    """Return -log posterior up to a constant: of each frame [T], infinite for a body behind the
    camera, and in total [].
    """
    posed = problem.posed(state)
    per_frame = state.theta.new_zeros(len(state))
    shared = per_frame.new_zeros((), dtype=torch.float64)
    for term in problem.terms:
        cost = term.cost(posed)
        if cost.ndim:
            per_frame = per_frame + cost
        else:
            shared = shared + cost.double()
    per_frame = torch.where(torch.isfinite(per_frame), per_frame, torch.inf)
    return per_frame, per_frame.double().sum() + shared


def normal_equations(problem: Problem, state: State) -> NormalEquations:
    """Build the Gauss-Newton system at a state."""
    posed = problem.posed(state)
    equations = NormalEquations.zeros(posed)
    for term in problem.terms:
        term.add(posed, equations)
    return equations
