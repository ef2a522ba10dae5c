"""Train a calibration head on a frozen network's features: settings, examples and steps."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ccnet import losses
from ccnet.data.augment import Augment
from ccnet.data.datasets import AnnotatedPerson
from ccnet.data.observations import Observations, augmented, observe, observe_cached, take
from ccnet.heads.head import CalibrationHead
from ccnet.heads.kinds import build
from ccnet.heads.simcc import SimCCDistributionHead
from ccnet.losses import Loss, SoapLoss, Targets, keypoint_loss
from pose2d.base.distributed import ProcessGroup
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.models.base import PoseModel

Target = Literal["oks", "pck"]
TARGETS: tuple[Target, ...] = ("oks", "pck")


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of one training run. Equal settings and data give equal weights.

    Epochs, decay, `person_weight` and the passes were chosen on the holdout of train2017
    (docs/train-ccnet.md).
    """

    head: str = "peaks"  # "": what fits the network best; "paper": one layer that fits it
    head_width: int = 0  # of a hidden layer before the head's last one; 0: none, as in the paper
    features: str = "penultimate"  # what the head reads (ccnet/paper/other_features.py)
    loss: str = "mse"
    # What the confidence means: expected OKS, or for MPII the probability of PCKh@0.5.
    target: Target = "oks"
    epochs: int = 8
    learning_rate: float = 1e-3
    decay_at: tuple[float, ...] = (0.6, 0.85)  # shares of all steps after which the rate falls
    decay: float = 0.2  # by this factor
    weight_decay: float = 1e-3
    batch: int = 128
    person_weight: float = 3.0  # of the squared error of the person's confidence
    presence_weight: float = losses.PRESENCE_WEIGHT  # lambda; `likelihood` does not use it
    seed: int = 0
    plain_passes: int = 1  # over the crops as they are (0 or 1)
    augmented_passes: int = 1  # over randomly augmented crops, each time differently
    augment: Augment = field(default_factory=Augment)
    cache_bytes: int = 20 * 10**9  # if features take more, the network runs in every epoch

    def __post_init__(self) -> None:
        for name, allowed in (("loss", ("", *losses.NAMES)), ("target", TARGETS)):
            value = getattr(self, name)
            if value not in allowed:
                choices = ", ".join(filter(None, allowed))
                raise UserError(f"unknown {name} {value!r}: choose one of {choices}.")

    def rate(self, done: float) -> float:
        """Return the learning rate after a share of all steps."""
        return self.learning_rate * self.decay ** sum(done >= share for share in self.decay_at)


# The paper's recipe: one layer on the features, two epochs of Adam with one step of decay, crops
# without augmentation, the keypoints' loss alone. The paper does not give learning rate and batch.
PAPER = TrainingSettings(
    head="paper",
    loss="",
    epochs=2,
    decay_at=(0.5,),
    decay=0.1,
    weight_decay=0.0,
    batch=32,
    person_weight=0.0,
    augmented_passes=0,
)
RECIPES = {"fitmesh": TrainingSettings(head="", loss=""), "paper": PAPER}
# Examples that set the scale of a head's inputs: this many, or as many as fit into the bytes.
SCALE_EXAMPLES = 20_000
SCALE_BYTES = 500_000_000
STREAMED_SCALE_EXAMPLES = 512  # if the network runs for each example


@dataclass
class Examples:
    """Training examples in an order that depends on seed and epoch alone, so that training can
    resume at any step.
    """

    settings: TrainingSettings
    observed: Callable[[np.ndarray, int], Observations]  # numbers of examples, and the epoch
    groups: Sequence[Sequence[int]] | np.ndarray  # examples that stay together when shuffled
    sampled: int  # examples in a sample
    streamed: bool  # whether the network runs for each example
    _order: tuple[int, np.ndarray] = (-1, np.zeros(0, int))  # epoch, and the order in it

    @cached_property
    def count(self) -> int:
        """Return the number of examples in one epoch."""
        return sum(map(len, self.groups))

    def order(self, epoch: int) -> np.ndarray:
        """Return the numbers of all examples in random order."""
        if self._order[0] != epoch:
            random = np.random.default_rng([self.settings.seed, epoch])
            shuffled = random.permutation(len(self.groups))
            self._order = epoch, np.array([i for group in shuffled for i in self.groups[group]])
        return self._order[1]

    def sample(self) -> Observations:
        """Return typical examples."""
        return self.observed(np.sort(self.order(0)[: self.sampled]), 0)

    def batch(
        self, epoch: int, number: int, size: int, group: ProcessGroup
    ) -> tuple[Tensor, Targets]:
        """Return this process's share of one batch: the head's inputs, and the targets."""
        batch = self.order(epoch)[number * size : (number + 1) * size]
        index = batch[group.rank :: group.world_size]
        observed = self.observed(index, epoch)
        correct = observed.oks if self.settings.target == "oks" else observed.pck
        targets = Targets(
            correct, observed.present, observed.labelled, observed.error, torch.from_numpy(index)
        )
        return observed.features, targets

    def batches(self, size: int) -> int:
        """Return the number of batches in one epoch."""
        return max(self.count // size, 1)


def passes(settings: TrainingSettings) -> list[tuple[int, Augment | None]]:
    """Return the passes over the training people by number: plain crops first, then augmented."""
    plain: list[tuple[int, Augment | None]] = [(0, None)] if settings.plain_passes else []
    random = [(1 + number, settings.augment) for number in range(settings.augmented_passes)]
    if not plain and not random:
        raise UserError("nothing to train on: ask for at least one pass, plain or augmented.")
    return [*plain, *random]


def bytes_per_person(
    model: PoseModel, head: CalibrationHead, people: Sequence[AnnotatedPerson]
) -> int:
    """Return the bytes on disk that the cache of one person takes, measured on the first one."""
    arrays = observe(model, head.inputs, people[:1]).to_arrays()
    total = sum(array.nbytes for array in arrays.values())
    return total - arrays["row_features"].nbytes // 2  # features are stored in half precision


def make_examples(
    model: PoseModel,
    head: CalibrationHead,
    people: Sequence[AnnotatedPerson],
    settings: TrainingSettings,
    group: ProcessGroup,
    folder: Path,
    progress: Callable[[int], None] = lambda people: None,
) -> Examples:
    """Return the examples, cached on disk if all passes fit into `settings.cache_bytes`. Otherwise
    they are streamed: the network runs in every epoch, each time on differently augmented crops.
    """
    every = passes(settings)
    if bytes_per_person(model, head, people) * len(people) * len(every) > settings.cache_bytes:
        crop = augmented(settings.augment if settings.augmented_passes else None)

        def streamed(index: np.ndarray, epoch: int) -> Observations:
            return observe(
                model, head.inputs, [people[i] for i in index], crop, (settings.seed, epoch)
            )

        # The people of one image stay together, so each file is opened once.
        groups = [list(g) for _, g in groupby(range(len(people)), key=lambda i: people[i].image)]
        return Examples(settings, streamed, groups, STREAMED_SCALE_EXAMPLES, streamed=True)

    loaded = [
        observe_cached(
            folder, model, head, people, augment, (settings.seed, number), group, progress
        )
        for number, augment in every
    ]
    without_features = Observations.concat([observations for observations, _ in loaded])
    features = [array for _, arrays in loaded for array in arrays]

    def cached(index: np.ndarray, epoch: int) -> Observations:
        return replace(without_features.rows(index), features=take(features, index))

    sampled = min(SCALE_EXAMPLES, max(SCALE_BYTES // (4 * features[0][0].size), 1))
    one_by_one = np.arange(len(without_features))[:, None]
    return Examples(settings, cached, one_by_one, sampled, streamed=False)


MEMBERS = 5  # of an ensemble
SAVE_EVERY = 100  # steps
Progress = Callable[[int, float], None]  # steps just done, and the loss of the last one


def new_head(model: PoseModel, settings: TrainingSettings, name: str = "") -> CalibrationHead:
    """Return the untrained head of these settings for the model `name`. Its first weights depend on
    the seed alone.
    """
    if (settings.loss == "likelihood") != (settings.head == SimCCDistributionHead.kind):
        raise UserError(
            f"loss {settings.loss!r} does not fit head {settings.head!r}: the head "
            f"{SimCCDistributionHead.kind!r} is trained by 'likelihood', and only this head."
        )
    torch.manual_seed(settings.seed)
    members = MEMBERS if settings.loss == "ensemble" else 1
    return build(
        model,
        settings.head,
        losses.channels(settings.loss),
        members,
        width=settings.head_width,
        card=name,
    )


def train(
    head: CalibrationHead,
    examples: Examples,
    settings: TrainingSettings,
    group: ProcessGroup,
    checkpoint: Path,
    progress: Progress = lambda steps, loss: None,
) -> None:
    """Train with AdamW and step decay over `settings.epochs`.

    Resumes from `checkpoint` if it exists and belongs to the same run. Every step has its own
    random seed, so a run that was killed and continued ends in the same bytes. Several processes
    share each batch and sum their gradients: the same steps as one process makes, up to rounding
    and dropout.
    """
    head.to(group.device).train()
    loss: Loss = partial(
        keypoint_loss,
        kind=settings.loss,
        person_weight=settings.person_weight,
        presence_weight=settings.presence_weight,
    )
    optimizer = torch.optim.AdamW(
        head.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
    )
    state: dict[str, Any] = {"head": head, "optimizer": optimizer}  # what a checkpoint holds
    if settings.loss == "soap":
        loss = state["loss"] = SoapLoss(examples.count, settings.presence_weight).to(group.device)
    per_epoch = examples.batches(settings.batch)
    steps = settings.epochs * per_epoch
    run = {"settings": asdict(settings), "examples": examples.count, "world_size": group.world_size}
    done = _resume(checkpoint, run, state)
    if done == 0:
        head.fit_scale(examples.sample().features.to(group.device))
    else:
        progress(done, math.nan)
    for step in range(done, steps):
        torch.manual_seed((settings.seed * steps + step) * group.world_size + group.rank)
        for parameters in optimizer.param_groups:
            parameters["lr"] = settings.rate(step / steps)
        inputs, targets = examples.batch(step // per_epoch, step % per_epoch, settings.batch, group)
        targets = Targets(*(value.to(group.device) for value in vars(targets).values()))
        inputs = inputs.to(group.device)
        per_person = torch.stack(
            [loss(member.logits(inputs), targets) for member in head.heads]
        ).sum(0)
        total = per_person.sum() / min(settings.batch, examples.count)
        optimizer.zero_grad()
        total.backward()
        group.all_reduce(
            parameter.grad for parameter in head.parameters() if parameter.grad is not None
        )
        optimizer.step()
        progress(1, float(total.detach()))
        if group.is_main and (step + 1) % SAVE_EVERY == 0 and step + 1 < steps:
            content = {name: part.state_dict() for name, part in state.items()}
            with atomic_file(checkpoint) as temporary:
                torch.save(
                    {"run": json.dumps(run, sort_keys=True), "step": step + 1, **content}, temporary
                )
    head.eval()


def _resume(path: Path, run: Mapping[str, Any], state: Mapping[str, Any]) -> int:
    """Restore the state from a checkpoint of this run and return the number of steps done; 0 if
    there is none.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content["run"] != json.dumps(run, sort_keys=True):
            return 0
    except Exception:  # missing or damaged: the run starts from the beginning
        return 0
    for name, part in state.items():
        part.load_state_dict(content[name])
    return int(content["step"])
