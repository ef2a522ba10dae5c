"""What the frozen network says is worked out once and kept on disk, in shards that survive a kill."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccnet.data.augment import Augment
from ccnet.data.datasets import Person
from ccnet.data.observe import Observed, join, observe
from ccnet.heads.head import Head
from pose2d.base.files import atomic_file
from pose2d.models.base import PoseModel

SHARD = 512  # people per file: what a kill can cost
HALF_MAX = 65504.0  # the largest half-precision number


@dataclass(frozen=True)
class Pass:
    """Once over the people, each crop augmented in its own way (or not at all)."""

    number: int
    augment: Augment | None


def fingerprint(state: Mapping[str, Tensor]) -> str:
    """A short name for these weights: equal for equal numbers, whatever file they came from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return digest.hexdigest()[:16]


class Store:
    """The observations of one pass over some people, one file per SHARD of them, under a folder named by content."""

    def __init__(self, folder: Path, people: Sequence[Person], what: Mapping[str, Any]) -> None:
        ids = hashlib.sha256(np.array([person.id for person in people]).tobytes()).hexdigest()[:16]
        self.what = {**what, "people": ids, "count": len(people)}
        key = hashlib.sha256(json.dumps(self.what, sort_keys=True, default=str).encode()).hexdigest()[:16]
        self.folder, self.people = folder / key, people

    def _shards(self) -> list[int]:
        return list(range(0, len(self.people), SHARD))

    def _read_file(self, first: int) -> Path:
        return self.folder / f"{first:07d}.npy"

    def _rest_file(self, first: int) -> Path:
        return self.folder / f"{first:07d}.npz"

    def fill(
        self,
        model: PoseModel,
        head: Head,
        one_pass: Pass,
        seed: int,
        device: torch.device,
        rank: int = 0,
        world: int = 1,
        progress: Callable[[int], None] = lambda people: None,
    ) -> None:
        """Work out what is missing; with several processes each does its share."""
        for number, first in enumerate(self._shards()):
            people = self.people[first : first + SHARD]
            if number % world != rank:
                continue
            if self._read_file(first).is_file():
                progress(len(people))
                continue
            parts = []
            for part in observe(model, head, people, one_pass.augment, (seed, one_pass.number)):
                parts.append(part)
                progress(len(part))
            self._write(first, join(parts))
        if rank == 0:
            with atomic_file(self.folder / "what.json") as path:
                path.write_text(json.dumps(self.what, indent=1, default=str))

    def _write(self, first: int, observed: Observed) -> None:
        names = [f.name for f in fields(Observed) if f.name != "read"]
        with atomic_file(self._rest_file(first)) as path:
            np.savez(path, **{name: getattr(observed, name).numpy() for name in names})
        with atomic_file(self._read_file(first)) as path:  # last: its presence says that the shard is whole
            np.save(path, observed.read.clamp(-HALF_MAX, HALF_MAX).half().numpy())

    def load(self) -> tuple[Observed, "Rows"]:
        """All but `read` in memory, and `read` left on disk."""
        rests, reads = [], []
        for first in self._shards():
            with np.load(self._rest_file(first), allow_pickle=False) as file:
                rests.append({name: torch.from_numpy(file[name]) for name in file.files})
            reads.append(np.load(self._read_file(first), mmap_mode="r"))
        rest = {name: torch.cat([part[name] for part in rests]) for name in rests[0]}
        count = len(rest["oks"])
        return Observed(read=torch.zeros(count, 0), **rest), Rows(reads)


class Rows:
    """Rows of several arrays on disk as if they were one."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self.arrays = list(arrays)
        self.start = np.cumsum([0, *(len(array) for array in self.arrays)])

    def __len__(self) -> int:
        return int(self.start[-1])

    def __add__(self, other: "Rows") -> "Rows":
        return Rows([*self.arrays, *other.arrays])

    def take(self, index: np.ndarray) -> Tensor:
        """Rows [M, ...] in single precision."""
        out = np.empty((len(index), *self.arrays[0].shape[1:]), np.float32)
        which = np.searchsorted(self.start, index, side="right") - 1
        for number in np.unique(which):
            rows = which == number
            out[rows] = self.arrays[number][index[rows] - self.start[number]]
        return torch.from_numpy(out)

    def batches(self, size: int = 4096) -> Iterator[Tensor]:
        for first in range(0, len(self), size):
            yield self.take(np.arange(first, min(first + size, len(self))))
