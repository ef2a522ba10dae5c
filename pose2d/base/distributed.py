"""Share training and evaluation among processes started by torchrun, or run in one process."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from pose2d.base.threads import check_device, default_device

T = TypeVar("T")
PATIENCE = timedelta(days=1)  # how long processes wait while one evaluates or writes files


@dataclass(frozen=True)
class ProcessGroup:
    """This process among all processes of a run."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for every process."""
        if self.world_size > 1:
            dist.barrier()

    def all_reduce(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over processes, in one message."""
        if self.world_size == 1:
            return
        tensors = list(tensors)
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat)
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Return the items that this process handles: every `world_size`-th."""
        return items[self.rank :: self.world_size]

    def gather(self, results: Sequence[T]) -> list[T]:
        """Collect the results of every process's `share`, in the order of all items.

        Every process gets the same list."""
        if self.world_size == 1:
            return list(results)
        parts: list[list[T]] = [[] for _ in range(self.world_size)]
        dist.all_gather_object(parts, list(results))
        return [
            part[number] for number in range(len(parts[0])) for part in parts if number < len(part)
        ]


ALONE = ProcessGroup(0, 1, torch.device("cpu"))


def is_main_process() -> bool:
    """Tell whether this process prints and writes files, also outside a `process_group`."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def process_group(device: str | None = None) -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started, or run alone without its variables."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = default_device(local) if device is None else device
    check_device(device)
    if world_size == 1:
        yield ProcessGroup(0, 1, torch.device(device))
        return
    if device.startswith("cuda"):
        torch.cuda.set_device(torch.device(device))
    backend = "nccl" if device.startswith("cuda") else "gloo"
    # Give every attempt its own prefix in the store. torchrun keeps one store while it restarts
    # workers, and a new worker could read the address of a killed one and wait for it.
    store, _, _ = next(rendezvous("env://", timeout=PATIENCE))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"attempt {attempt} of {world_size} processes", store)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world_size, timeout=PATIENCE
    )
    try:
        yield ProcessGroup(rank, world_size, torch.device(device))
    finally:
        dist.destroy_process_group()
