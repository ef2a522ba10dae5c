"""Where training batches come from: from disk, or from the network itself when the disk is too small."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from ccnet.data.augment import Augment
from ccnet.data.cache import Rows
from ccnet.data.datasets import Person
from ccnet.data.observe import Observed, join, observe
from ccnet.data.processes import Crew
from ccnet.heads.head import Head
from ccnet.losses import Truth
from pose2d.models.base import PoseModel

PREPARE = 20_000  # examples looked at to set the scale of what is read; streaming looks at STREAM_PREPARE
STREAM_PREPARE = 512


class Examples(ABC):
    """Batches in an order that hangs on seed and epoch alone, so that training can go on where it was killed."""

    count: int  # examples in one epoch
    people: int  # different indices in Truth.index

    @abstractmethod
    def batch(self, epoch: int, number: int, size: int, crew: Crew) -> tuple[Tensor, Truth]:
        """This process's share of one batch: what the head reads, and the truth."""

    @abstractmethod
    def sample(self) -> Tensor:
        """Typical examples of what the head reads, [M, *read_shape]."""

    def batches(self, size: int) -> int:
        return max(self.count // size, 1)


class Kept(Examples):
    """Observations on disk."""

    def __init__(self, observed: Sequence[Observed], rows: Sequence[Rows], seed: int) -> None:
        self.observed = join(observed)
        self.rows = sum(rows[1:], rows[0])
        self.count = self.people = len(self.observed)
        self.seed = seed
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, int))

    def batch(self, epoch: int, number: int, size: int, crew: Crew) -> tuple[Tensor, Truth]:
        if self._order[0] != epoch:
            self._order = (epoch, np.random.default_rng([self.seed, epoch]).permutation(self.count))
        index = self._order[1][number * size : (number + 1) * size][crew.rank :: crew.world]
        picked = torch.from_numpy(index)
        o = self.observed
        return self.rows.take(index), Truth(o.oks[picked], o.present[picked], o.labelled[picked], picked)

    def sample(self) -> Tensor:
        size = min(PREPARE, self.count)
        return self.rows.take(np.sort(np.random.default_rng(self.seed).permutation(self.count)[:size]))


class Streamed(Examples):
    """The network runs anew in every epoch, each time on crops augmented differently."""

    def __init__(
        self,
        model: PoseModel,
        head: Head,
        people: Sequence[Person],
        augment: Augment | None,
        seed: int,
        device: torch.device,
    ) -> None:
        self.model, self.head, self.augment, self.seed, self.device = model, head, augment, seed, device
        self.crowd = list(people)
        self.count = self.people = len(people)
        self._order: tuple[int, list[int]] = (-1, [])

    def batch(self, epoch: int, number: int, size: int, crew: Crew) -> tuple[Tensor, Truth]:
        index = self._shuffled(epoch)[number * size : (number + 1) * size][crew.rank :: crew.world]
        observed = self._observe(index, epoch)
        return observed.read, observed.truth(torch.tensor(index))

    def sample(self) -> Tensor:
        return self._observe(self._shuffled(0)[:STREAM_PREPARE], 0).read

    def _observe(self, index: Sequence[int], epoch: int) -> Observed:
        people = [self.crowd[i] for i in index]
        return join(list(observe(self.model, self.head, people, self.augment, (self.seed, epoch))))

    def _shuffled(self, epoch: int) -> list[int]:
        """Images in random order, the people of one image together: each file is opened once."""
        if self._order[0] != epoch:
            groups = [list(g) for _, g in groupby(range(self.count), key=lambda i: self.crowd[i].image)]
            random = np.random.default_rng([self.seed, epoch])
            self._order = (epoch, [i for g in random.permutation(len(groups)) for i in groups[g]])
        return self._order[1]
