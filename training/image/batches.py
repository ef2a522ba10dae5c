"""Draw batches of rendered crops: pixels, keypoints with a real network's habits, and truth."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.body import Body
from fitting.init.lifter_inputs import Inputs, Observation, make_inputs
from pose2d.models.base import PoseModel
from pose2d.skeletons import HALPE26
from training.crops.shards import Shard
from training.examples.crop_examples import Crops, crop_examples, mirror_keypoints
from training.examples.lifter_examples import Examples
from training.image.habits import draw_lowering, lower_hips
from training.image.real_people import PseudoTruth, RealShard
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
    """B rendered people with their keypoints and truth."""

    points: Tensor  # [B, 26, 2] keypoints in the crop, from -1 to 1 along each axis
    examples: Examples  # windows of one frame
    contacts: Tensor | None  # [B, 12]; None where the shard states none

    @property
    def features(self) -> Tensor:
        """Return what the lifter reads, [B, FEATURES]."""
        return self.examples.inputs.features[:, 0]


@dataclass(frozen=True)
class RealBatch:
    """B real people with their keypoints and annotators' marks."""

    points: Tensor  # [B, 26, 2] keypoints in the crop, from -1 to 1 along each axis
    inputs: Inputs  # windows of one frame
    marked_rays: Tensor  # [B, 17, 2] on the plane z = 1
    mark_weight: Tensor  # [B, 17] 0: not annotated
    fits: Examples | None  # windows of one frame, which count where the fit is good

    @property
    def features(self) -> Tensor:
        """Return what the lifter reads, [B, FEATURES]."""
        return self.inputs.features[:, 0]


@dataclass(frozen=True)
class Draw:
    """Which B crops of a shard are learned from, and how they are changed."""

    rows: Tensor  # [B]
    flip: Tensor  # [B] bool: mirrored
    low: Tensor  # [B] by how much of the thigh hips are read low
    gain: Tensor  # [B, 1, 1, 1] of brightness
    shift: Tensor  # [B, 1, 1, 1] of brightness, 0..255


def draw_crops(available: int, count: int, as_is: bool, generator: torch.Generator) -> Draw:
    """Draw crops at random: half of them mirrored, hips lowered, brightness changed.

    as_is: leave the pixels as they are, for maps that are kept on disk.
    """
    rows = torch.randint(available, (count,), generator=generator)
    flip = torch.rand(count, generator=generator) < 0.5
    low = draw_lowering(count, generator)
    gain = 1 + BRIGHTNESS * (2 * torch.rand(count, 1, 1, 1, generator=generator) - 1)
    shift = 255 * BRIGHTNESS * (torch.rand(count, 1, 1, 1, generator=generator) - 0.5)
    if as_is:
        return Draw(rows, torch.zeros_like(flip), low, torch.ones_like(gain), 0 * shift)
    return Draw(rows, flip, low, gain, shift)


def unchanged(rows: Tensor) -> Draw:
    """Return the crops of rows [B] as they are, for measuring."""
    zero = torch.zeros(len(rows))
    one = torch.ones(len(rows), 1, 1, 1)
    return Draw(rows, zero.bool(), zero, one, 0 * one)


def crop_inputs(shard: Shard | RealShard, draw: Draw, model: PoseModel) -> Tensor:
    """Return crops [B, 3, H, W] as the 2D network reads them."""
    pixels = shard.pixels(draw.rows)
    pixels = (pixels.float() * draw.gain + draw.shift).clamp(0, 255).byte()
    return model.normalize(torch.where(draw.flip[:, None, None, None], pixels.flip(-1), pixels))


def rendered_batch(shard: Shard, draw: Draw, model: PoseModel, body: Body) -> ImageBatch:
    """Return rendered people with their truth."""
    keypoints = Observation(*(column[draw.rows] for column in shard.crops.keypoints))
    keypoints, points_px = lower_hips(keypoints, shard.keypoints_px[draw.rows], draw.low)
    contacts = shard.contacts
    if contacts is not None:
        contacts = contacts[draw.rows]
        mirrored = contacts[:, list(CONTACTS_MIRRORED)]
        contacts = torch.where(draw.flip[:, None], mirrored, contacts)
    examples = crop_examples(shard.crops, keypoints, draw.rows, draw.flip, body)
    return ImageBatch(points_in_crop(points_px, draw.flip, model), examples, contacts)


def real_batch(
    shard: RealShard, draw: Draw, model: PoseModel, body: Body, fits: PseudoTruth | None = None
) -> RealBatch:
    """Return real people; their hips are as they were read, since the habit is in them.

    fits: bodies that were fitted to everyone in the shard.
    """
    assert shard.marked_rays is not None
    assert shard.mark_weight is not None
    keypoints = Observation(*(column[draw.rows] for column in shard.keypoints))
    marks = shard.marked_rays[draw.rows]
    weight = shard.mark_weight[draw.rows]
    sides = HALPE26.flip_order[: marks.shape[1]]
    flip = draw.flip
    keypoints = Observation(
        *(
            torch.where(flip.view(-1, *[1] * (own.ndim - 1)), mirrored, own)[:, None]
            for own, mirrored in zip(keypoints, mirror_keypoints(keypoints), strict=True)
        )
    )
    mirrored_marks = marks[:, sides] * torch.tensor([-1.0, 1.0])
    marks = torch.where(flip[:, None, None], mirrored_marks, marks)
    weight = torch.where(flip[:, None], weight[:, sides], weight)
    points = points_in_crop(shard.keypoints_px[draw.rows], flip, model)
    examples = None
    if fits is not None:
        everyone = Crops(shard.keypoints, fits.turn, fits.shape, fits.pelvis_m)
        read = Observation(*(column[draw.rows] for column in shard.keypoints))
        examples = crop_examples(everyone, read, draw.rows, flip, body)
        examples = replace(examples, counts=examples.counts * fits.is_good[draw.rows][:, None])
    return RealBatch(points, make_inputs(keypoints), marks, weight, examples)


def points_in_crop(points_px: Tensor, flip: Tensor, model: PoseModel) -> Tensor:
    """Return keypoints [B, 26, 2] from -1 to 1, mirrored where flip [B] is true."""
    width, height = model.input_wh
    mirrored_px = points_px[:, HALPE26.flip_order]
    mirrored_px = torch.stack((width - 1 - mirrored_px[..., 0], mirrored_px[..., 1]), -1)
    points_px = torch.where(flip[:, None, None], mirrored_px, points_px)
    points = (points_px + 0.5) / torch.tensor((width, height)) * 2 - 1
    return points.clamp(-1.5, 1.5)
