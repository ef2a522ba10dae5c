"""Draw random tensors of one shape from a generator."""

import math

import torch
from torch import Tensor


class Random:
    """Random numbers of a generator, of one shape unless another is given."""

    def __init__(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> None:
        self.generator, self.shape = generator, shape

    def even(self, low: float, high: float, shape: tuple[int, ...] | None = None) -> Tensor:
        return low + (high - low) * torch.rand(
            self.shape if shape is None else shape, generator=self.generator
        )

    def scale(self, low: float, high: float) -> Tensor:
        """Draw numbers that are even in the logarithm."""
        return self.even(math.log(low), math.log(high)).exp()

    def normal(self, shape: tuple[int, ...] | None = None) -> Tensor:
        return torch.randn(self.shape if shape is None else shape, generator=self.generator)

    def chance(self, share: float | Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        return self.even(0, 1, shape) < share
