"""The training loop: small crops, then whole ones, a cosine schedule for each; a checkpoint after
each epoch.
"""

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from pose2d.base.files import atomic_file
from pose2d.base.threads import prefetch
from pose2d.models.base import PoseModel

from .batches import batches
from .families import loss
from .people import CroppedPeople

WARM_UP = 200  # steps over which the learning rate rises
CLIP = 5.0  # largest norm of a gradient, in multiples of its running mean


@dataclass(frozen=True)
class Plan:
    """How one family is trained."""

    small_epochs: (
        int  # at half the input's size, a quarter of the time; only for a network of convolutions
    )
    epochs: int  # at the input's size
    learning_rate: float
    batch: int = 32
    weight_decay: float = 1e-2
    seed: int = 0


def train(model: PoseModel, people: CroppedPeople, plan: Plan, checkpoint: Path) -> None:
    """AdamW. Resumes after the last whole epoch, if `checkpoint` is of the same plan."""
    model.train()
    nn.Module.to(model, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(
        model.parameters(), plan.learning_rate, weight_decay=plan.weight_decay
    )
    sizes = _sizes(model, plan)
    per_epoch = len(people) // plan.batch
    run = {**asdict(plan), "people": len(people)}
    done = _resume(checkpoint, run, model, optimizer)
    norm = 0.0
    for epoch in range(done, len(sizes)):
        started = time.process_time()
        total = 0.0
        # within this size's cosine
        first = epoch - sizes.index(sizes[epoch])
        count = sizes.count(sizes[epoch])
        order = batches(people, plan.batch, sizes[epoch], model.input_wh, (plan.seed, epoch))
        for number, batch in enumerate(prefetch(order, depth=2)):
            rate = plan.learning_rate * schedule(first * per_epoch + number, count * per_epoch)
            for group in optimizer.param_groups:
                group["lr"] = rate
            value = loss(model, batch)
            optimizer.zero_grad()
            value.backward()
            length = float(
                torch.nn.utils.clip_grad_norm_(
                    model.parameters(), CLIP * norm if norm else math.inf
                )
            )
            norm = 0.95 * norm + 0.05 * min(length, CLIP * norm) if norm else length
            optimizer.step()
            total += float(value.detach())
            if number % 50 == 49:
                print(
                    f"  step {number + 1} of {per_epoch}: loss {total / (number + 1):.3f}",
                    flush=True,
                )
        width, height = sizes[epoch]
        minutes = (time.process_time() - started) / 60
        print(
            f"epoch {epoch + 1} of {len(sizes)} at {height}x{width}: loss {total / per_epoch:.3f}, "
            f"{minutes:.1f} core-minutes",
            flush=True,
        )
        _save(checkpoint, run, model, optimizer, epoch + 1)


def schedule(step: int, steps: int) -> float:
    """Share of the learning rate: up in a line, down in a cosine."""
    rise = min((step + 1) / min(WARM_UP, max(steps // 10, 1)), 1.0)
    return rise * 0.5 * (1 + math.cos(math.pi * step / steps))


def _sizes(model: PoseModel, plan: Plan) -> list[tuple[int, int]]:
    """Return the crop size of each epoch."""
    width, height = model.input_wh
    return [(width // 2, height // 2)] * plan.small_epochs + [(width, height)] * plan.epochs


def _save(
    path: Path,
    run: dict[str, float],
    model: PoseModel,
    optimizer: torch.optim.Optimizer,
    epochs: int,
) -> None:
    state = {
        "run": run,
        "epochs": epochs,
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    with atomic_file(path) as temporary:
        torch.save(state, temporary)


def _resume(
    path: Path, run: dict[str, float], model: PoseModel, optimizer: torch.optim.Optimizer
) -> int:
    """Epochs done before; 0 where there is no checkpoint of this run."""
    if not path.is_file():
        return 0
    state = torch.load(path, weights_only=True)
    if state["run"] != run:
        return 0
    model.load_state_dict(state["state_dict"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epochs"])
