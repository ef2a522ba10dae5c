"""Likely body shapes: prior, initial guess and evidence from outlines."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.solver.jacobian import Posed
from fitting.solver.terms.guess import DISTANCE_STD_FACTOR
from fitting.solver.terms.term import (
    NormalEquations,
    Term,
)


@dataclass(frozen=True)
class ShapeEvidence:
    """Evidence about a shape besides its keypoints: cost = shape . precision shape / 2 -
    information . shape.
    """

    precision: Tensor  # [S, S]
    information: Tensor  # [S]
    masks: int = 0  # that it comes from


@dataclass(frozen=True)
class LikelyShape(Term):
    """Pull the shape towards its prior of standard deviation 1 in every direction, its guess, and
    other evidence.
    """

    weight: float  # so many frames a track is worth (`fitting.optimise`)
    guess: Tensor  # [S], or [T, S] where each frame has its own
    guess_std: float
    precision: Tensor  # [S, S] of other evidence; zeros: there is none
    information: Tensor  # [S]
    readings: int = 0  # of the S numbers, the last are readings; of them no guess is known

    @classmethod
    def of(
        cls,
        weight: float,
        guess: Tensor,
        guess_std: float,
        evidence: ShapeEvidence | None,
        readings: int = 0,
    ) -> "LikelyShape":
        size = guess.shape[-1]
        if evidence is None or not size:  # a body with a fixed shape leaves nothing to estimate
            evidence = ShapeEvidence(guess.new_zeros(size, size), guess.new_zeros(size))
        missing = size - len(evidence.information)
        precision = torch.nn.functional.pad(evidence.precision, (0, missing, 0, missing))
        information = torch.nn.functional.pad(evidence.information, (0, missing))
        return cls(weight, guess, guess_std, precision, information, readings)

    @property
    def _guess_precision(self) -> Tensor:
        """Return the precision [S] of the guess."""
        precision = torch.full_like(self.information, 1 / self.guess_std**2)
        precision[len(precision) - self.readings :] = 0
        return precision

    def cost(self, posed: Posed) -> Tensor:
        shape = posed.state.shape
        squares = shape.square() + self._guess_precision * (shape - self.guess).square()
        return self.weight * (
            squares / 2 + shape * (shape @ self.precision / 2 - self.information)
        ).sum(-1)

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        shape = posed.state.shape
        per = self._guess_precision
        gradient = shape + per * (shape - self.guess) + shape @ self.precision - self.information
        matrix = torch.diag(1 + per) + self.precision
        equations.shape_gradient.add_(
            self.weight * gradient
        )  # [S], or [T, S] where each frame has its own
        equations.corner.add_(self.weight * matrix)

    def frames(self, index: Tensor | slice) -> "LikelyShape":
        return self if self.guess.ndim == 1 else replace(self, guess=self.guess[index])

    def in_doubt(self) -> "LikelyShape":
        return replace(self, guess_std=DISTANCE_STD_FACTOR * self.guess_std)
