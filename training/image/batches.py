"""Draw batches of rendered crops: pixels, keypoints with a real network's habits, and truth."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body import Body
from fitting.init.lifter_inputs import Observation
from pose2d.models.base import PoseModel
from pose2d.skeletons import HALPE26
from training.crops.shards import Shard
from training.examples.crop_examples import crop_examples
from training.examples.lifter_examples import Examples
from training.image.habits import draw_lowering, lower_hips
from training.motion.surface_points import SIDES, TOUCHED

BRIGHTNESS = 0.25  # largest relative change of a crop's brightness and contrast
# In the mirror image the hands and the feet trade places.
CONTACTS_MIRRORED = (
    *range(len(TOUCHED), 2 * len(TOUCHED)),
    *range(len(TOUCHED)),
    2 * len(TOUCHED) + 1,
    2 * len(TOUCHED),
)
assert len(CONTACTS_MIRRORED) == len(SIDES) * (len(TOUCHED) + 1)


@dataclass(frozen=True)
class ImageBatch:
    """B crops with their keypoints and truth."""

    crops: Tensor  # [B, 3, H, W] normalised as the 2D network reads them
    points: Tensor  # [B, 26, 2] keypoints in the crop, from -1 to 1 along each axis
    examples: Examples  # windows of one frame
    contacts: Tensor | None  # [B, 12]; None where the shard states none


def draw_batch(
    shard: Shard, model: PoseModel, body: Body, count: int, generator: torch.Generator
) -> ImageBatch:
    """Draw crops at random: half of them mirrored, hips lowered, brightness changed."""
    rows = torch.randint(len(shard), (count,), generator=generator)
    flip = torch.rand(count, generator=generator) < 0.5
    low = draw_lowering(count, generator)
    gain = 1 + BRIGHTNESS * (2 * torch.rand(count, 1, 1, 1, generator=generator) - 1)
    shift = 255 * BRIGHTNESS * (torch.rand(count, 1, 1, 1, generator=generator) - 0.5)
    pixels = (shard.pixels(rows).float() * gain + shift).clamp(0, 255).byte()
    return make_batch(shard, rows, flip, low, pixels, model, body)


def fixed_batch(shard: Shard, rows: Tensor, model: PoseModel, body: Body) -> ImageBatch:
    """Return the crops of rows [B] as they are, for measuring."""
    flip = torch.zeros(len(rows), dtype=torch.bool)
    return make_batch(shard, rows, flip, torch.zeros(len(rows)), shard.pixels(rows), model, body)


def make_batch(
    shard: Shard,
    rows: Tensor,
    flip: Tensor,
    low: Tensor,
    pixels: Tensor,
    model: PoseModel,
    body: Body,
) -> ImageBatch:
    """Return crops mirrored where flip [B] is true, with hips lowered by shares [B] of the thigh."""
    observed = Observation(*(column[rows] for column in shard.crops.keypoints))
    observed, points_px = lower_hips(observed, shard.keypoints_px[rows], low)
    width, height = model.input_wh
    mirrored_px = points_px[:, HALPE26.flip_order]
    mirrored_px = torch.stack((width - 1 - mirrored_px[..., 0], mirrored_px[..., 1]), -1)
    points_px = torch.where(flip[:, None, None], mirrored_px, points_px)
    points = (points_px + 0.5) / torch.tensor((width, height)) * 2 - 1
    pixels = torch.where(flip[:, None, None, None], pixels.flip(-1), pixels)
    contacts = shard.contacts
    if contacts is not None:
        contacts = contacts[rows]
        contacts = torch.where(flip[:, None], contacts[:, list(CONTACTS_MIRRORED)], contacts)
    examples = crop_examples(shard.crops, observed, rows, flip, body)
    return ImageBatch(model.normalize(pixels), points.clamp(-1.5, 1.5), examples, contacts)
