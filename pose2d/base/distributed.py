"""Training and evaluation in one process, or in several started by torchrun."""

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
PATIENCE = timedelta(days=1)  # how long processes wait for the one that evaluates or writes files


@dataclass(frozen=True)
class ProcessGroup:
    """This process among all of a run."""

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
        several = list(tensors)
        flat = torch.cat([tensor.flatten() for tensor in several])
        dist.all_reduce(flat)
        for tensor, part in zip(several, flat.split([t.numel() for t in several]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """The items that this process does: every `world_size`-th."""
        return items[self.rank :: self.world_size]

    def gather(self, mine: Sequence[T]) -> list[T]:
        """The results of everybody's `share`, in the order of all items; the same list in every
        process.
        """
        if self.world_size == 1:
            return list(mine)
        parts: list[list[T]] = [[] for _ in range(self.world_size)]
        dist.all_gather_object(parts, list(mine))
        return [
            part[number] for number in range(len(parts[0])) for part in parts if number < len(part)
        ]


ALONE = ProcessGroup(0, 1, torch.device("cpu"))


def is_main_process() -> bool:
    """Whether this process is the one that prints and writes, before and after a `process_group`
    too.
    """
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def process_group(device: str | None = None) -> Iterator[ProcessGroup]:
    """From the environment variables of torchrun, or this process alone."""
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
    # Processes find each other's addresses in a place of its own for every attempt: torchrun keeps
    # one store while it starts workers again, and a new worker might read the address of one that
    # was killed, and wait for it.
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
