"""Compare what the image network states with the truth."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fitting.body import Body
from training.image.batches import ImageBatch
from training.image.network import FARTHEST_DEPTH_M, ImageLifterOutput, depth_bins_m
from training.lifter import Losses, losses, total_loss

DEPTH_SIGMA_M = 0.03  # width of the target distribution of depth
DEPTH_WEIGHT = 0.3
CONTACT_WEIGHT = 0.3


class ImageLosses(NamedTuple):
    """The parts of the loss."""

    body: Losses  # as the lifter's
    depth: Tensor  # cross entropy of depths, nats per joint
    contact: Tensor  # cross entropy of contacts, nats per contact; 0 where none are known

    def total(self) -> Tensor:
        """Return the weighted sum."""
        return total_loss(self.body) + DEPTH_WEIGHT * self.depth + CONTACT_WEIGHT * self.contact

    def figures(self) -> dict[str, float]:
        """Return every part as a number, by name."""
        parts = self.body._asdict() | {"depth": self.depth, "contact": self.contact}
        return {name: float(value.detach()) for name, value in parts.items()}


def image_losses(output: ImageLifterOutput, batch: ImageBatch, body: Body) -> ImageLosses:
    """Return the losses of a batch."""
    counts = batch.examples.counts[:, 0]
    share = counts / counts.sum().clamp(min=1e-6)
    depth_m = batch.examples.joints_m[:, 0, :, 2]
    target = depth_target(depth_m)
    depth = -(target * output.depth_logits.log_softmax(-1)).sum(-1).mean(-1)
    contact = torch.zeros(())
    if batch.contacts is not None:
        contact = F.binary_cross_entropy_with_logits(
            output.contact_logits, batch.contacts, weight=share[:, None], reduction="sum"
        )
        contact = contact / batch.contacts.shape[1]
    return ImageLosses(losses(output.body, batch.examples, body), (share * depth).sum(), contact)


def depth_target(depth_m: Tensor) -> Tensor:
    """Return narrow distributions [..., DEPTH_BINS] around true depths [...]."""
    depth_m = depth_m.clamp(-FARTHEST_DEPTH_M, FARTHEST_DEPTH_M)
    away = (depth_bins_m() - depth_m[..., None]) / DEPTH_SIGMA_M
    return (-0.5 * away.square()).softmax(-1)
