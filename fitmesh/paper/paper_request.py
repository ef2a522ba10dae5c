"""What `fitmesh paper` is asked for, checked before any work is done."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import ccnet
import pose2d
from fitting.init import regressors
from pose2d.base.caching import content_digest, weights_digest
from pose2d.base.errors import UserError
from pose2d.skeletons import Skeleton


@dataclass(frozen=True)
class GivenModel:
    """A pose network, its weights and its calibration head."""

    name: str
    checkpoint: Path | None = None  # None: embedded
    head: str | None = None  # file, or the name of an embedded head; None: to be trained

    @cached_property
    def weights(self) -> str:
        """For cache keys: a digest, of embedded weights too, since another release may embed others."""
        if self.checkpoint is not None:
            return content_digest([self.checkpoint])
        return weights_digest(pose2d.load(self.name).state_dict())


@dataclass(frozen=True)
class PaperRequest:
    """Which data, which networks, which folders."""

    data: Path
    out: Path
    models: tuple[GivenModel, ...]
    starts: Mapping[str, Path]  # checkpoints of body regressors, by name (spin, cliff-hr48, ..)
    train: tuple[str, ...] = ()  # splits to train heads on; empty: what published networks are trained on
    test: str | None = None  # split to report on; None: what published figures are reported on
    recipe: str = "paper"  # of heads that are trained here
    flip_test: bool = True
    body_model: Path | None = None  # for 3DPW
    regressor: Path | None = None  # for 3DPW
    every: int = 1  # use every n-th frame of 3DPW
    device: str | None = None
    threads: int | None = None

    def of(self, skeletons: tuple[Skeleton, ...]) -> list[GivenModel]:
        """The networks with these keypoints."""
        return [model for model in self.models if pose2d.card(model.name).skeleton in skeletons]


def given_models(
    names: tuple[str, ...], checkpoints: tuple[str, ...], heads: tuple[str, ...]
) -> tuple[tuple[GivenModel, ...], dict[str, Path]]:
    """From NAME and NAME=FILE: pose networks, and checkpoints of body regressors by name."""
    files = {name: Path(file) for name, file in map(_pair, checkpoints)}
    head_of = dict(map(_pair, heads))
    for path in (*files.values(), *map(Path, head_of.values())):
        if not path.exists():
            raise UserError(f"no file at {path}.")
    starts = {name: files.pop(name) for name in list(files) if name in regressors.NAMES}
    models = []
    for name in dict.fromkeys((*names, *files)):
        card = pose2d.card(name)
        if name not in files and card.embedded is None:
            raise UserError(f"{name} ships no weights: pass --checkpoint {name}=FILE, from {card.source}.")
        embedded = name if name not in files and name in ccnet.embedded() else None
        models.append(GivenModel(name, files.get(name), head_of.pop(name, embedded)))
    if head_of:
        raise UserError(f"--head names {next(iter(head_of))}, but no --model or --checkpoint does.")
    return tuple(models), starts


def _pair(text: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    if not (name and equals and file):
        raise UserError(f"{text!r} is not NAME=FILE, for example sbl-resnet50-256x192=pose_resnet_50_256x192.pth.tar.")
    return name, file
