"""Compare what the image network states with the truth, or with marks in the image."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fitting.body import Body
from training.examples.lifter_examples import place_bodies
from training.image.batches import ImageBatch, RealBatch
from training.image.network import ImageLifterOutput, bone_slopes
from training.image.real_people import reprojection_loss
from training.lifter import WEIGHTS, Losses, losses, total_loss

SLOPE_WEIGHT = 0.5
CONTACT_WEIGHT = 0.3
FIT_WEIGHT = 0.5  # of bodies that were fitted to marks. Not tuned


class ImageLosses(NamedTuple):
    """The parts of the loss on rendered people."""

    body: Losses  # as the lifter's
    slope: Tensor  # -log likelihood of the slopes of bones, nats per bone
    contact: Tensor  # cross entropy of contacts, nats per contact; 0 where none are known

    def total(self) -> Tensor:
        """Return the weighted sum."""
        return total_loss(self.body) + SLOPE_WEIGHT * self.slope + CONTACT_WEIGHT * self.contact

    def figures(self) -> dict[str, float]:
        """Return every part as a number, by name."""
        parts = self.body._asdict() | {"slope": self.slope, "contact": self.contact}
        return {name: float(value.detach()) for name, value in parts.items()}


def image_losses(output: ImageLifterOutput, batch: ImageBatch, body: Body) -> ImageLosses:
    """Return the losses of a batch of rendered people."""
    counts = batch.examples.counts[:, 0]
    share = counts / counts.sum().clamp(min=1e-6)
    true_slopes = bone_slopes(batch.examples.joints_m[:, 0])
    slope = -output.slopes.log_likelihood(true_slopes).mean(-1)
    contact = torch.zeros(())
    if batch.contacts is not None:
        contact = F.binary_cross_entropy_with_logits(
            output.contact_logits, batch.contacts, weight=share[:, None], reduction="sum"
        )
        contact = contact / batch.contacts.shape[1]
    return ImageLosses(losses(output.body, batch.examples, body), (share * slope).sum(), contact)


def real_loss(output: ImageLifterOutput, batch: RealBatch, body: Body) -> Tensor:
    """Return how far bodies of real people are from annotators' marks in the image, and from bodies
    that were fitted to these, weighted.
    """
    placed = place_bodies(body, output.body.rotation[:, 0], output.body.shape[:, 0])
    box = batch.inputs.box
    pelvis_m = output.body.pelvis(box)[:, 0]
    alone = box._replace(
        to_camera=box.to_camera[:, 0], size=box.size[:, 0], visible=box.visible[:, 0]
    )
    error = reprojection_loss(placed, pelvis_m, alone, batch.marked_rays, batch.mark_weight)
    loss = WEIGHTS.image * error
    if batch.fits is None:
        return loss
    return loss + FIT_WEIGHT * total_loss(losses(output.body, batch.fits, body))
