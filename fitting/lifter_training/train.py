"""Train the lifter:

    python -m fitting.lifter_training.train --clips clips_30fps.npz --poses poses_5fps.npz --out lifter.npz

Examples are made on the fly and never seen twice. The same seed gives the same weights on the same machine; a training
that was stopped goes on from its checkpoint (beside --out) with the same result as one that was not.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.load import load_body
from fitting.init.lifter.network import Lifter
from fitting.init.lifter.weights import save_lifter
from fitting.lifter_training.cmu import load_motion
from fitting.lifter_training.examples import Examples, examples
from fitting.lifter_training.losses import Losses, losses, total
from fitting.lifter_training.motion_bank import Bank, bank
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

HELD_OUT_SEED = 77
KEEP_EVERY = 500  # steps between checkpoints
LEVEL = 0.4  # of the steps at an even rate of learning; until then a training can still be made longer or shorter


@dataclass(frozen=True)
class Settings:
    """What decides the weights."""

    steps: int = 16_500
    batch: int = 128  # windows
    rate: float = 1e-3  # of learning, at its highest
    warmup: int = 400  # steps
    decay: float = 0.01  # of weights
    clip: float = 1.0  # longest gradient
    memory: float = 0.9995  # of the running mean of weights, which is what is kept
    seed: int = 0


@dataclass
class Training:
    """Where a training stands."""

    network: Lifter
    mean: dict[str, Tensor]  # running mean of the weights
    optimiser: torch.optim.AdamW
    step: int = 0

    @staticmethod
    def begin(settings: Settings) -> "Training":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            network = Lifter()
        many = [p for p in network.parameters() if p.ndim > 1]
        few = [p for p in network.parameters() if p.ndim <= 1]  # biases and norms do not decay
        groups = [{"params": many, "weight_decay": settings.decay}, {"params": few, "weight_decay": 0.0}]
        optimiser = torch.optim.AdamW(groups, lr=settings.rate)
        return Training(network, {k: v.clone() for k, v in network.state_dict().items()}, optimiser)

    def save(self, path: Path, settings: Settings) -> None:
        content = {
            "network": self.network.state_dict(),
            "mean": self.mean,
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            "settings": asdict(settings),
        }
        with atomic_file(path) as temporary:
            torch.save(content, temporary)

    @staticmethod
    def resume(path: Path, settings: Settings) -> "Training":
        content = torch.load(path, weights_only=True)
        before, now, step = content["settings"], asdict(settings), content["step"]
        level = step <= LEVEL * min(before["steps"], settings.steps)
        if before != now and not (level and {**before, "steps": settings.steps} == now):
            raise UserError(f"{path} belongs to a training with other settings: remove it, or write --out elsewhere.")
        training = Training.begin(settings)
        training.network.load_state_dict(content["network"])
        training.optimiser.load_state_dict(content["optimiser"])
        training.mean, training.step = content["mean"], step
        return training

    def advance(self, banks: list[Bank], body: Body, settings: Settings) -> float:
        """One step; its random numbers come from the seed and the step's number alone."""
        generator = torch.Generator().manual_seed((settings.seed << 32) + self.step)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.step, settings)
        loss = total(losses_of(self.network, examples(banks, body, settings.batch, generator), body))
        self.optimiser.zero_grad()
        loss.backward()
        size = torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        if bool(torch.isfinite(size)):  # one impossible example in a million must not end a training
            self.optimiser.step()
        self.step += 1
        memory = min(settings.memory, self.step / (self.step + 10))
        for name, value in self.network.state_dict().items():
            self.mean[name].lerp_(value, 1 - memory)
        return float(loss.detach())


def learning_rate(step: int, settings: Settings) -> float:
    """Up in a line, level, and in the last part down along a cosine."""
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    level = LEVEL * settings.steps
    done = max(step - level, 0) / (settings.steps - level)
    return settings.rate * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)


def losses_of(network: Lifter, given: Examples, body: Body) -> Losses:
    return losses(network(given.inputs.features, given.time_s, given.listens), given, body)


@torch.inference_mode()
def held_out_losses(weights: dict[str, Tensor], kept: Examples, body: Body) -> str:
    network = Lifter()
    network.load_state_dict(weights)
    found = losses_of(network.eval(), kept, body)
    return ", ".join(f"{name} {float(value):.4f}" for name, value in vars(found).items())


def train(
    banks: list[Bank], kept: list[Bank], body: Body, out: Path, settings: Settings, say: Callable[[str], None]
) -> Training:
    """Train to the end, from the checkpoint if there is one; `out` is written at every checkpoint."""
    checkpoint = out.with_suffix(".checkpoint.pt")
    training = Training.resume(checkpoint, settings) if checkpoint.is_file() else Training.begin(settings)
    measured = examples(kept, body, 256, torch.Generator().manual_seed(HELD_OUT_SEED))
    began, first, mean_loss = time.monotonic(), training.step, math.nan
    say(f"step {training.step} of {settings.steps}, {sum(p.numel() for p in training.network.parameters()):,} weights")
    while training.step < settings.steps:
        loss = training.advance(banks, body, settings)
        if math.isfinite(loss):
            mean_loss = loss if math.isnan(mean_loss) else mean_loss + (loss - mean_loss) / 100
        else:
            say(f"step {training.step}: the loss is not finite; passed over")
        if training.step % 100 == 0:
            each = (time.monotonic() - began) / (training.step - first)
            left = each * (settings.steps - training.step)
            say(f"step {training.step}: loss {mean_loss:.3f}, {each:.3f} s a step, {left / 60:.1f} min left")
        if training.step % KEEP_EVERY == 0 or training.step == settings.steps:
            training.save(checkpoint, settings)
            save_lifter(training.mean, out)
            say(f"step {training.step}: held out: {held_out_losses(training.mean, measured, body)}")
    return training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=Path, required=True, help="CMU motion at 30 frames a second (.npz)")
    parser.add_argument("--poses", type=Path, required=True, help="CMU poses at 5 frames a second (.npz)")
    parser.add_argument("--out", type=Path, required=True, help="weights to write (.npz)")
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--seed", type=int, default=Settings.seed)
    given = parser.parse_args()
    body = load_body()
    motions = (load_motion(given.clips, body, 30.0), load_motion(given.poses, body, 5.0, given.clips))
    settings = Settings(steps=given.steps, seed=given.seed)
    learned, kept = ([bank(motion, body, held_out) for motion in motions] for held_out in (False, True))
    train(learned, kept, body, given.out, settings, lambda line: print(time.strftime("%H:%M:%S"), line, flush=True))


if __name__ == "__main__":
    main()
