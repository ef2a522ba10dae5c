"""Model cards: the facts about a network that are known before it is built."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pose2d.models.base import PoseModel
from pose2d.skeletons import Skeleton


@dataclass(frozen=True)
class ModelCard:
    """A network that `pose2d.load` can build by name; `pose2d.register` adds one."""

    name: str
    build: Callable[[], PoseModel]  # the architecture, weights not yet loaded
    skeleton: Skeleton
    input_wh: tuple[int, int]  # width, height in pixels
    parameters: int = 0  # number of weights without normalisation statistics; 0: unknown
    licence: str = "your own"  # of the published weights
    source: str = "your own"  # where the checkpoint comes from, as text for people
    embedded: str | None = None  # file in pose2d/weights, if the weights ship with the package
    graph: str | None = None  # file in pose2d/graphs, if ONNX Runtime can compute its features


# Licence and source of checkpoints
MMPOSE = ("Apache-2.0", "open-mmlab/mmpose")
UNPUBLISHED = ("your own", "your own training: no checkpoint is published")
# Small networks that one processor core can train (docs/paper.md)
MINIATURE = ("your own", "your own training with training/train_mini.py")

Build = Callable[[tuple[int, int], Skeleton], PoseModel]


def sized_card(
    name: str, build: Build, skeleton: Skeleton, parameters: int, origin: tuple[str, str]
) -> ModelCard:
    """Return a card whose name states the crop's height and width, as in "hrnet-w32-256x192".

    origin: licence and source."""
    height, width = (int(side) for side in re.findall(r"(\d+)x(\d+)", name)[0])
    return ModelCard(
        name,
        partial(build, (width, height), skeleton),
        skeleton,
        (width, height),
        parameters,
        *origin,
    )
