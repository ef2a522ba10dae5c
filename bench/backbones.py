"""Claim: SBL-R50 and HRNet-W32 cost no more than 5 % above the bare sum of their torch operators, on two threads.

Every operator that one forward pass runs is written down. Then rounds alternate: the forward pass as a whole, and the
same operators one by one on the same data, each timed by itself and nothing between them counted. Peak memory is
that of a process of its own for either: the network alone, and with the pass.

Time on the wall means nothing while other programs want the same cores. Then ask for processor time on one thread,
which they do not touch: --clock cpu --threads 1.

    python bench/backbones.py [--batch 8 --rounds 15 --threads 2 --models sbl-resnet50-256x192 hrnet-w32-256x192]
"""

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

import pose2d
from pose2d.models.base import PoseModel


@dataclass(frozen=True)
class Slot:
    """Stands for a tensor that an earlier operator made."""

    index: int


@dataclass(frozen=True)
class Step:
    """One operator of the pass."""

    operator: Callable
    inputs: list[Any]  # flat arguments, tensors made on the way replaced by their slots
    structure: Any  # how the flat arguments are nested
    outputs: list[int | None]  # the slot of each output that is a tensor
    done: list[int]  # slots that no later operator reads


class Recorder(TorchDispatchMode):
    """Writes down every operator of a forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.slots: dict[int, int] = {}
        self.alive: list[Tensor] = []  # keeps identities unique while recording
        self.steps: list[Step] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat, structure = tree_flatten((args, kwargs or {}))
        inputs = [Slot(self.slots[id(x)]) if id(x) in self.slots else x for x in flat]
        result = func(*args, **(kwargs or {}))
        outputs: list[int | None] = []
        for x in tree_flatten(result)[0]:
            if isinstance(x, Tensor) and id(x) not in self.slots:
                self.slots[id(x)] = len(self.alive)
                self.alive.append(x)
            outputs.append(self.slots.get(id(x)))
        self.steps.append(Step(func, inputs, structure, outputs, []))
        return result

    def tape(self) -> list[Step]:
        last = {}
        for number, step in enumerate(self.steps):
            for slot in [x.index for x in step.inputs if isinstance(x, Slot)] + [
                o for o in step.outputs if o is not None
            ]:
                last[slot] = number
        for slot, number in last.items():
            self.steps[number].done.append(slot)
        return self.steps


def record(model: PoseModel, crops: Tensor) -> list[Step]:
    recorder = Recorder()
    with recorder:
        forward(model, crops)
    return recorder.tape()


def forward(model: PoseModel, crops: Tensor) -> Tensor:
    """Crops -> heatmaps."""
    return model.maps(model.features(crops))


Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


def bare_seconds(tape: list[Step], clock: Clock) -> float:
    """The operators one after another, only they on the clock."""
    values: dict[int, Tensor] = {}
    total = 0.0
    for step in tape:
        flat = [values[x.index] if isinstance(x, Slot) else x for x in step.inputs]
        args, kwargs = tree_unflatten(flat, step.structure)
        start = clock()
        result = step.operator(*args, **kwargs)
        total += clock() - start
        for slot, x in zip(step.outputs, tree_flatten(result)[0], strict=True):
            if slot is not None:
                values[slot] = x
        for slot in step.done:
            values.pop(slot, None)
        del flat, args, kwargs, result
    return total


def forward_seconds(model: PoseModel, crops: Tensor, clock: Clock) -> float:
    start = clock()
    forward(model, crops)
    return clock() - start


def build(name: str) -> PoseModel:
    torch.manual_seed(0)
    return pose2d.card(name).build().eval().requires_grad_(False)


def crops_for(model: PoseModel, batch: int) -> Tensor:
    width, height = model.input_wh
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(0))


def peak_mb(name: str, batch: int, threads: int, with_pass: bool, answer: Any) -> None:
    torch.set_num_threads(threads)
    model = build(name)
    crops = crops_for(model, batch)
    if with_pass:
        with torch.inference_mode():
            forward(model, crops)
    answer.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def in_own_process(*arguments: Any) -> float:
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=peak_mb, args=(*arguments, answer))
    process.start()
    value = answer.get()
    process.join()
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--models", nargs="+", default=["sbl-resnet50-256x192", "hrnet-w32-256x192"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = CLOCKS[options.clock]

    table = Table(
        title=f"{options.batch} crops, {options.threads} threads, {options.clock} time, best of {options.rounds} rounds"
    )
    for heading in ("model", "operators", "bare sum", "forward", "forward / bare", "crops/s", "network", "with pass"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for name in options.models:
        model = build(name)
        crops = crops_for(model, options.batch)
        with torch.inference_mode():
            tape = record(model, crops)
            forward(model, crops)  # warm
            rounds = [(forward_seconds(model, crops, clock), bare_seconds(tape, clock)) for _ in range(options.rounds)]
        whole, bare = (min(times) for times in zip(*rounds, strict=True))
        memory = [in_own_process(name, options.batch, options.threads, with_pass) for with_pass in (False, True)]
        table.add_row(
            name, str(len(tape)), f"{1e3 * bare:.1f} ms", f"{1e3 * whole:.1f} ms", f"{whole / bare:.3f}",
            f"{options.batch / whole:.1f}", *(f"{value:.0f} MB" for value in memory),
        )  # fmt: skip
    Console(width=max(Console().width, 120)).print(table)


if __name__ == "__main__":
    main()
