"""One process, or several started by torchrun that act as one."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Crew:
    """Which of how many processes this is, and where it computes."""

    rank: int
    world: int
    device: torch.device

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        """Until every process is here."""
        if self.world > 1:
            dist.barrier()

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over processes: one message for all of them."""
        if self.world == 1:
            return
        several = list(tensors)
        flat = torch.cat([tensor.flatten() for tensor in several])
        dist.all_reduce(flat)
        for tensor, part in zip(several, flat.split([t.numel() for t in several]), strict=True):
            tensor.copy_(part.view_as(tensor))


@contextmanager
def crew(device: str | None = None) -> Iterator[Crew]:
    """This process among those torchrun started (its environment variables say so), or alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device is None:
        device = f"cuda:{local % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"
    if world == 1:
        yield Crew(0, 1, torch.device(device))
        return
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield Crew(rank, world, torch.device(device))
    finally:
        dist.destroy_process_group()
