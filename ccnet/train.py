"""Training of a calibration head on a frozen network's features."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ccnet import losses
from ccnet.confidence import build
from ccnet.data.observations import Examples
from ccnet.heads.head import CalibrationHead, SimCCDistributionHead
from ccnet.losses import Loss, SoapLoss, Targets
from ccnet.recipes import TrainingSettings
from pose2d.base.distributed import ProcessGroup
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.models.base import PoseModel

MEMBERS = 5  # of an ensemble
SAVE_EVERY = 100  # steps
Progress = Callable[[int, int, float], None]  # step, of how many, loss


def new_head(model: PoseModel, settings: TrainingSettings, name: str = "") -> CalibrationHead:
    """The untrained head of these settings for a model of that name; its first weights depend on the seed alone."""
    if settings.loss not in losses.NAMES:
        raise UserError(f"unknown loss {settings.loss!r}: choose one of {', '.join(losses.NAMES)}.")
    if (settings.loss == "likelihood") != (settings.head == SimCCDistributionHead.kind):
        raise UserError(
            f"loss {settings.loss!r} does not fit head {settings.head!r}: `likelihood` trains the head that states a "
            f"distribution, {SimCCDistributionHead.kind!r}, and no other loss does."
        )
    torch.manual_seed(settings.seed)
    members = MEMBERS if settings.loss == "ensemble" else 1
    return build(model, settings.head, losses.channels(settings.loss), members, width=settings.head_width, card=name)


def train(
    head: CalibrationHead, examples: Examples, settings: TrainingSettings, group: ProcessGroup, checkpoint: Path,
    progress: Progress = lambda step, steps, loss: None,
) -> None:  # fmt: skip
    """AdamW with step decay over `settings.epochs`. Resumes from `checkpoint` if it is there and of the same run. Every
    step has its own random seed, so a run that was killed and continued ends in the same bytes. Several processes share
    each batch and sum their gradients: the same steps as one process would make, up to rounding and to which units
    dropout picks."""
    head.to(group.device).train()
    loss: Loss = losses.BY_NAME.get(settings.loss, losses.mse)
    if settings.loss == "soap":
        loss = SoapLoss(examples.count).to(group.device)
    elif settings.person_weight:
        loss = losses.with_person_term(loss, settings.person_weight)
    optimizer = torch.optim.AdamW(head.parameters(), settings.learning_rate, weight_decay=settings.weight_decay)
    per_epoch = examples.batches(settings.batch)
    steps = settings.epochs * per_epoch
    run = {"settings": asdict(settings), "examples": examples.count, "world_size": group.world_size}
    state: dict[str, Any] = {
        "head": head,
        "optimizer": optimizer,
        **({"loss": loss} if settings.loss == "soap" else {}),
    }
    done = _resume(checkpoint, run, state)
    if done == 0:
        head.fit_scale(examples.sample().features.to(group.device))
    for step in range(done, steps):
        torch.manual_seed((settings.seed * steps + step) * group.world_size + group.rank)
        for parameters in optimizer.param_groups:
            parameters["lr"] = settings.rate(step / steps)
        inputs, targets = examples.batch(step // per_epoch, step % per_epoch, settings.batch, group)
        targets = Targets(*(value.to(group.device) for value in vars(targets).values()))
        inputs = inputs.to(group.device)
        per_person = torch.stack([loss(logits, targets) for logits in head.member_logits(inputs)]).sum(0)
        total = per_person.sum() / min(settings.batch, examples.count)
        optimizer.zero_grad()
        total.backward()
        group.all_reduce(parameter.grad for parameter in head.parameters() if parameter.grad is not None)
        optimizer.step()
        progress(step + 1, steps, float(total.detach()))
        if group.is_main and (step + 1) % SAVE_EVERY == 0 and step + 1 < steps:
            content = {name: part.state_dict() for name, part in state.items()}
            with atomic_file(checkpoint) as temporary:
                torch.save({"run": json.dumps(run, sort_keys=True), "step": step + 1, **content}, temporary)
    head.eval()


def _resume(path: Path, run: Mapping[str, Any], state: Mapping[str, Any]) -> int:
    """Steps already done, with everything as it was then: 0 if there is no checkpoint of this very run."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content["run"] != json.dumps(run, sort_keys=True):
            return 0
    except Exception:  # none, or damaged: the run starts anew
        return 0
    for name, part in state.items():
        part.load_state_dict(content[name])
    return int(content["step"])
