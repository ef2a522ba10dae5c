"""Data-parallel training: one process, or several started by torchrun."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from pose2d.base.devices import check_device


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


@contextmanager
def process_group(device: str | None = None) -> Iterator[ProcessGroup]:
    """From the environment variables of torchrun, or this process alone."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device is None:
        device = f"cuda:{local % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"
    check_device(device)
    if world_size == 1:
        yield ProcessGroup(0, 1, torch.device(device))
        return
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield ProcessGroup(rank, world_size, torch.device(device))
    finally:
        dist.destroy_process_group()
