"""Train the lifter:

    python -m training.lifter --clips clips_30fps.npz --poses poses_5fps.npz --crops crops.npz --out lifter.npz

Windows with simulated errors are made on the fly and never seen twice; rendered people, read by the 2D
network with its own errors, are drawn from `--crops`. The same seed gives the same weights
on the same machine; a training that was stopped goes on from its checkpoint (beside --out) with the
same result as one that was not."""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.load import load_body
from fitting.camera.pinhole import NEAREST_KEYPOINT_M
from fitting.init.lifter_network import (
    LOG_STD_RANGE,
    Lifter,
    LifterOutput,
    load_lifter,
    save_lifter,
)
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from training.examples.crop_examples import Crops, draw_crop_examples, join_crops, load_crops
from training.examples.lifter_examples import Examples, draw_examples, place_bodies
from training.motion.bank import Bank, bank
from training.motion.sources import HELD_OUT, add_arguments, load_motions

LEAVES = (10, 11, 22, 23)  # toes and hands: no keypoint tells of them
LEAF_WEIGHT = 0.1


class Losses(NamedTuple):
    joints: Tensor  # metres, mean distance from the pelvis
    rotation: Tensor  # Frobenius distance, mean over joints
    image: Tensor  # boxes, mean distance of the keypoints' images
    place: Tensor  # |log depth| and, in boxes, the pelvis's distance in the image
    shape: Tensor  # squared
    velocity: Tensor  # metres a second
    nll: Tensor  # -log likelihood of the errors under the stated deviations, per joint


WEIGHTS = Losses(*map(torch.tensor, (10.0, 0.25, 3.0, 1.0, 0.1, 0.04, 0.05)))


def losses(output: LifterOutput, truth: Examples, body: Body) -> Losses:
    joints, keypoints, _ = place_bodies(body, output.rotation, output.shape)
    counts = truth.counts / truth.counts.sum().clamp(min=1)

    def mean(values: Tensor) -> Tensor:
        return (counts * values.reshape(*counts.shape, -1).mean(-1)).sum()

    weight = torch.ones(24)
    weight[list(LEAVES)] = LEAF_WEIGHT
    squared = (output.rotation - truth.rotation).square().sum((-1, -2))  # 8 sin^2(angle / 2)
    # Not squared: knees bend one way only, and from the front it cannot be told by how much. The mean
    # of what is possible is a bent knee, the median a straight one.
    distance = (squared + 1e-8).sqrt()
    size = truth.inputs.box.size
    pelvis = output.pelvis(truth.inputs.box)
    image_error = _image(keypoints + pelvis[:, :, None], size) - _image(
        truth.keypoints_m + truth.pelvis_m[:, :, None], size
    )
    offset = output.offset - _image(truth.pelvis_m, size[..., None]).squeeze(2)
    depth = (pelvis[..., 2].log() - truth.pelvis_m[..., 2].log()).abs()
    step_s = (truth.time_s[:, 1:] - truth.time_s[:, :-1])[..., None, None]
    away = joints - truth.joints_m
    pair_counts = (counts[:, 1:] * counts[:, :-1]).sqrt()
    velocity = _length((away[:, 1:] - away[:, :-1]) / step_s).mean(-1)
    log_rotation, log_depth_std = (
        s.clamp(*LOG_STD_RANGE) for s in (output.log_rotation_std, output.log_depth_std)
    )
    nll_rotation = 3 * log_rotation + squared.detach() / 4 * (-2 * log_rotation).exp()
    nll_depth = log_depth_std + depth.detach().square() / 2 * (-2 * log_depth_std).exp()
    return Losses(
        joints=mean(_length(away)),
        rotation=mean(distance * weight),
        image=mean(_length(image_error).clamp(max=2.0)),
        place=mean(depth) + mean(_length(offset)),
        shape=mean((output.shape - truth.shape[:, None]).square()),
        velocity=(pair_counts * velocity).sum(),
        nll=mean(nll_rotation) + mean(nll_depth),
    )


def total_loss(parts: Losses) -> Tensor:
    return torch.stack([weight * part for weight, part in zip(WEIGHTS, parts, strict=True)]).sum()


def _image(points: Tensor, size: Tensor) -> Tensor:
    """Project points [B, T, K, 3] (or [B, T, 3]) to boxes [B, T, K, 2] from the turned camera's
    centre.
    """
    points = points if points.ndim == 4 else points[:, :, None]
    return (
        points[..., :2]
        / points[..., 2:].clamp(min=NEAREST_KEYPOINT_M)
        / size.reshape(*points.shape[:2], 1, 1)
    )


def _length(vector: Tensor) -> Tensor:
    return (vector.square().sum(-1) + 1e-8).sqrt()


HELD_OUT_SEED = 77
KEEP_EVERY = 500  # steps between checkpoints
# of the steps at an even rate of learning; until then a training can still be made longer or
# shorter
LEVEL = 0.4


@dataclass(frozen=True)
class TrainingSettings:
    steps: int = 16_000
    batch: int = 96  # windows with simulated errors
    crops: int = 512  # rendered people in every step, if there are any
    rate: float = 6e-4  # of learning, at its highest
    warmup: int = 400  # steps
    decay: float = 0.01  # of weights
    clip: float = 1.0  # longest gradient
    memory: float = 0.9995  # of the running mean of weights, which is what is kept
    seed: int = 0


@dataclass
class Training:
    network: Lifter
    mean: dict[str, Tensor]  # running mean of the weights
    optimiser: torch.optim.AdamW
    step: int = 0

    @staticmethod
    def begin(settings: TrainingSettings, start: dict[str, Tensor] | None = None) -> "Training":
        """Start from random weights, or from those of `start`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            network = Lifter()
        if start is not None:
            network.load_state_dict(start)
        many = [p for p in network.parameters() if p.ndim > 1]
        few = [p for p in network.parameters() if p.ndim <= 1]  # biases and norms do not decay
        groups = [
            {"params": many, "weight_decay": settings.decay},
            {"params": few, "weight_decay": 0.0},
        ]
        optimiser = torch.optim.AdamW(groups, lr=settings.rate)
        return Training(network, {k: v.clone() for k, v in network.state_dict().items()}, optimiser)

    def save(self, path: Path, settings: TrainingSettings) -> None:
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
    def resume(path: Path, settings: TrainingSettings) -> "Training":
        content = torch.load(path, weights_only=True)
        before = content["settings"]
        current = asdict(settings)
        step = content["step"]
        level = step <= LEVEL * min(before["steps"], settings.steps)
        if before != current and not (level and {**before, "steps": settings.steps} == current):
            raise UserError(
                f"{path} belongs to a training with other settings: remove it, or write --out elsewhere."
            )
        training = Training.begin(settings)
        training.network.load_state_dict(content["network"])
        training.optimiser.load_state_dict(content["optimiser"])
        training.mean = content["mean"]
        training.step = step
        return training

    def advance(
        self, banks: list[Bank], crops: Crops | None, body: Body, settings: TrainingSettings
    ) -> float:
        """Take one step; its random numbers come from the seed and the step's number alone."""
        generator = torch.Generator().manual_seed((settings.seed << 32) + self.step)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.step, settings)
        loss = total_loss(
            losses_of(self.network, draw_examples(banks, body, settings.batch, generator), body)
        )
        if crops is not None:
            loss = loss + total_loss(
                losses_of(
                    self.network, draw_crop_examples(crops, body, settings.crops, generator), body
                )
            )
        self.optimiser.zero_grad()
        loss.backward()
        size = torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        if bool(
            torch.isfinite(size)
        ):  # one impossible example in a million must not end a training
            self.optimiser.step()
        self.step += 1
        memory = min(settings.memory, self.step / (self.step + 10))
        for name, value in self.network.state_dict().items():
            self.mean[name].lerp_(value, 1 - memory)
        return float(loss.detach())


def learning_rate(step: int, settings: TrainingSettings) -> float:
    """Return the rate: up in a line, level, and in the last part down along a cosine."""
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    level = LEVEL * settings.steps
    done = max(step - level, 0) / (settings.steps - level)
    return settings.rate * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)


def losses_of(network: Lifter, batch: Examples, body: Body) -> Losses:
    return losses(network(batch.inputs.features, batch.time_s, batch.attends), batch, body)


def train(
    learned: list[Bank],
    held_out: list[Bank],
    crops: Crops | None,
    body: Body,
    out: Path,
    settings: TrainingSettings,
    start: dict[str, Tensor] | None,
    say: Callable[[str], None],
) -> Training:
    """Train to the end, from the checkpoint if there is one; `out` is written at every checkpoint.
    Losses are measured on examples of the banks that were kept for it."""
    checkpoint = out.with_suffix(".checkpoint.pt")
    training = (
        Training.resume(checkpoint, settings)
        if checkpoint.is_file()
        else Training.begin(settings, start)
    )
    measured = draw_examples(held_out, body, 256, torch.Generator().manual_seed(HELD_OUT_SEED))
    began = time.monotonic()
    first = training.step
    mean_loss = math.nan
    say(
        f"step {training.step} of {settings.steps}, {sum(p.numel() for p in training.network.parameters()):,} weights"
    )
    while training.step < settings.steps:
        loss = training.advance(learned, crops, body, settings)
        if math.isfinite(loss):
            mean_loss = loss if math.isnan(mean_loss) else mean_loss + (loss - mean_loss) / 100
        else:
            say(f"step {training.step}: the loss is not finite; passed over")
        if training.step % 100 == 0:
            seconds_per_step = (time.monotonic() - began) / (training.step - first)
            left = seconds_per_step * (settings.steps - training.step)
            say(
                f"step {training.step}: loss {mean_loss:.3f}, {seconds_per_step:.3f} s a step, {left / 60:.1f} min left"
            )
        if training.step % KEEP_EVERY == 0 or training.step == settings.steps:
            training.save(checkpoint, settings)
            save_lifter(training.mean, out)
            network = Lifter()
            network.load_state_dict(training.mean)
            with torch.inference_mode():
                measured_losses = losses_of(network.eval(), measured, body)._asdict()
            numbers = ", ".join(
                f"{name} {float(value):.4f}" for name, value in measured_losses.items()
            )
            say(f"step {training.step}: held out: {numbers}")
    return training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--out", type=Path, required=True, help="weights to write (.npz)")
    parser.add_argument(
        "--crops", type=Path, nargs="*", default=[], help="shards of training.rendered_crops (.npz)"
    )
    parser.add_argument(
        "--start", type=Path, help="weights to begin with (.npz) instead of random ones"
    )
    parser.add_argument("--steps", type=int, default=TrainingSettings.steps)
    parser.add_argument("--seed", type=int, default=TrainingSettings.seed)
    options = parser.parse_args()
    body = load_body()
    motions = load_motions(options, body)
    settings = TrainingSettings(steps=options.steps, seed=options.seed)
    start = None if options.start is None else load_lifter(options.start).state_dict()
    learned = [bank(motion, body, motion.learned) for motion in motions.values()]
    measured = [motions[name] for name in HELD_OUT]
    held_out = [bank(motion, body, motion.held_out & ~motion.left_out) for motion in measured]

    def say(line: str) -> None:
        print(time.strftime("%H:%M:%S"), line, flush=True)

    crops = join_crops([load_crops(path) for path in options.crops]) if options.crops else None
    train(learned, held_out, crops, body, options.out, settings, start, say)


if __name__ == "__main__":
    main()
