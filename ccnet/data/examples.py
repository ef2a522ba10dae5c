"""Training batches: from the cache on disk, or from the network itself when the disk is too small for the cache."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ccnet.data.augment import Augment
from ccnet.data.datasets import AnnotatedPerson
from ccnet.data.observations import ObservationCache, Observations, Progress, ShardedRows, join, observe
from ccnet.heads.head import CalibrationHead
from ccnet.losses import Targets
from ccnet.recipes import Target, TrainingSettings
from pose2d.base.distributed import ProcessGroup
from pose2d.base.errors import UserError
from pose2d.models.base import PoseModel

SCALE_EXAMPLES = 20_000  # examples that set the scale of a head's inputs,
SCALE_BYTES = 500_000_000  # or as many as fit
STREAMED_SCALE_EXAMPLES = 512  # the same where each one is a run of the network


class Examples(ABC):
    """Batches in an order that depends on seed and epoch alone, so that training can resume at any step."""

    count: int  # examples in one epoch
    people: int  # different indices in Targets.index

    @abstractmethod
    def batch(self, epoch: int, number: int, size: int, group: ProcessGroup) -> tuple[Tensor, Targets]:
        """This process's share of one batch: the head's inputs, and the targets."""

    @abstractmethod
    def sample(self) -> Tensor:
        """Typical inputs of the head, [M, *input_shape]."""

    def batches(self, size: int) -> int:
        return max(self.count // size, 1)


def correctness(observations: Observations, target: Target) -> Tensor:
    """What a keypoint's confidence is trained to be on average, [N, K]."""
    return observations.oks if target == "oks" else observations.pck


class CachedExamples(Examples):
    """From observations on disk."""

    def __init__(self, caches: Sequence[ObservationCache], seed: int, target: Target = "oks") -> None:
        loaded = [cache.load() for cache in caches]
        self.observations = join([observations for observations, _ in loaded])
        self.inputs = ShardedRows([array for _, rows in loaded for array in rows.arrays])
        self.count = self.people = len(self.observations)
        self.seed, self.target = seed, target
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, int))

    def batch(self, epoch: int, number: int, size: int, group: ProcessGroup) -> tuple[Tensor, Targets]:
        if self._order[0] != epoch:
            self._order = (epoch, np.random.default_rng([self.seed, epoch]).permutation(self.count))
        index = self._order[1][number * size : (number + 1) * size][group.rank :: group.world_size]
        rows, o = torch.from_numpy(index), self.observations
        return self.inputs.take(index), Targets(
            correctness(o, self.target)[rows], o.present[rows], o.labelled[rows], o.error[rows], rows
        )

    def sample(self) -> Tensor:
        size = min(SCALE_EXAMPLES, self.count, max(SCALE_BYTES // (4 * self.inputs.arrays[0][0].size), 1))
        return self.inputs.take(np.sort(np.random.default_rng(self.seed).permutation(self.count)[:size]))


class StreamedExamples(Examples):
    """The network runs in every epoch, each time on differently augmented crops."""

    def __init__(
        self,
        model: PoseModel,
        head: CalibrationHead,
        people: Sequence[AnnotatedPerson],
        augment: Augment | None,
        seed: int,
        target: Target = "oks",
    ) -> None:
        self.model, self.head, self.augment, self.seed, self.target = model, head, augment, seed, target
        self.annotated = list(people)
        self.count = self.people = len(people)
        self._order: tuple[int, list[int]] = (-1, [])

    def batch(self, epoch: int, number: int, size: int, group: ProcessGroup) -> tuple[Tensor, Targets]:
        index = self._shuffled(epoch)[number * size : (number + 1) * size][group.rank :: group.world_size]
        o = self._observe(index, epoch)
        return o.inputs, Targets(correctness(o, self.target), o.present, o.labelled, o.error, torch.tensor(index))

    def sample(self) -> Tensor:
        return self._observe(self._shuffled(0)[:STREAMED_SCALE_EXAMPLES], 0).inputs

    def _observe(self, index: Sequence[int], epoch: int) -> Observations:
        people = [self.annotated[i] for i in index]
        return join(list(observe(self.model, self.head, people, self.augment, (self.seed, epoch))))

    def _shuffled(self, epoch: int) -> list[int]:
        """Images in random order, the people of one image together: each file is opened once."""
        if self._order[0] != epoch:
            groups = [list(g) for _, g in groupby(range(self.count), key=lambda i: self.annotated[i].image)]
            random = np.random.default_rng([self.seed, epoch])
            self._order = (epoch, [i for g in random.permutation(len(groups)) for i in groups[g]])
        return self._order[1]


def passes(settings: TrainingSettings) -> list[tuple[int, Augment | None]]:
    """Passes over the training people, by number: the crops as they are first, then the augmented ones."""
    plain: list[tuple[int, Augment | None]] = [(0, None)] if settings.plain_passes else []
    every = [*plain, *((1 + n, settings.augment) for n in range(settings.augmented_passes))]
    if not every:
        raise UserError("nothing to train on: ask for at least one pass, plain or augmented.")
    return every


def bytes_per_person(model: PoseModel, head: CalibrationHead, people: Sequence[AnnotatedPerson]) -> int:
    """What caching one person's crop takes on disk, measured on the first one."""
    (first,) = observe(model, head, people[:1])
    rest = sum(value.nbytes for name, value in vars(first).items() if name != "inputs")
    return 2 * first.inputs.numel() + rest


def make_examples(
    model: PoseModel,
    head: CalibrationHead,
    people: Sequence[AnnotatedPerson],
    settings: TrainingSettings,
    group: ProcessGroup,
    folder: Path,
    progress: Progress = lambda people: None,
) -> Examples:
    """Cached on disk if all passes fit into `settings.cache_bytes`, else streamed."""
    if not fits_on_disk(model, head, people, settings):
        augment = settings.augment if settings.augmented_passes else None
        return StreamedExamples(model, head, people, augment, settings.seed, settings.target)
    caches = observation_caches(model, head, people, settings, folder)
    for cache in caches:
        cache.fill(group.rank, group.world_size, progress)
    group.barrier()
    return CachedExamples(caches, settings.seed, settings.target)


def fits_on_disk(
    model: PoseModel, head: CalibrationHead, people: Sequence[AnnotatedPerson], settings: TrainingSettings
) -> bool:
    """Whether the features of all passes take no more than they may."""
    need = bytes_per_person(model, head, people) * len(people) * len(passes(settings))
    return need <= settings.cache_bytes


def observation_caches(
    model: PoseModel,
    head: CalibrationHead,
    people: Sequence[AnnotatedPerson],
    settings: TrainingSettings,
    folder: Path,
) -> list[ObservationCache]:
    """One for each pass."""
    return [
        ObservationCache(folder, model, head, people, augment, (settings.seed, number))
        for number, augment in passes(settings)
    ]
