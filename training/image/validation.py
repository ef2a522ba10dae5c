"""Measure the image network, and the lifter that it corrects, on people it never learned from.

Rendered people of other subjects have exact bodies. Real people in videos have the twelve joints
that several cameras measured.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from eval3dpw.scoring import pa_mpjpe_mm
from fitting.body import Body
from fitting.init.lifter_inputs import Observation, make_inputs
from fitting.init.lifter_network import LifterOutput
from pose2d.models.base import PoseModel
from training.crops.shards import Shard
from training.examples.lifter_examples import place_bodies
from training.image.batches import crop_inputs, points_in_crop, rendered_batch, unchanged
from training.image.network import BONES, LIMBS, ImageLifter, bone_slopes
from training.image.real_people import MEASURED, RealShard

BATCH = 50
CLEAR_SLOPE = 0.3  # limbs less than 17 degrees out of the image plane have no clear sign
# Limbs among the measured joints, in the order of BONES: thighs, shins, upper arms, forearms.
MEASURED_LIMBS = ((6, 8), (7, 9), (8, 10), (9, 11), (0, 2), (1, 3), (2, 4), (3, 5))
MEASURED_HIPS = slice(6, 8)
assert len(MEASURED_LIMBS) == len(BONES[LIMBS])


def validate(
    network: ImageLifter, shards: Sequence[Shard], model: PoseModel, body: Body, most: int
) -> dict[str, float]:
    """Return figures on rendered people; those of the lifter alone begin with "lifter"."""
    parts: dict[str, list[Tensor]] = {}
    network.eval()
    with torch.inference_mode():
        for shard in shards:
            for rows in torch.arange(min(len(shard), most)).split(BATCH):
                draw = unchanged(rows)
                batch = rendered_batch(shard, draw, model, body)
                early = network.early_features(crop_inputs(shard, draw, model))
                output = network(early, batch.features, batch.points)
                truth = batch.examples.joints_m[:, 0]
                true_slopes = bone_slopes(truth)[:, LIMBS]
                for prefix, answer in (("", output.body), ("lifter ", output.base)):
                    joints = place_bodies(body, answer.rotation, answer.shape).joints[:, 0]
                    figures = _of_joints(joints, truth)
                    figures |= _of_slopes(bone_slopes(joints)[:, LIMBS], true_slopes)
                    _collect(parts, prefix, figures)
                nats = -output.slopes.log_likelihood(bone_slopes(truth))[:, LIMBS].mean(1)
                stated = (output.slopes.expected()[:, LIMBS] - true_slopes).abs().mean(1)
                _collect(parts, "", {"slope nats": nats, "stated slope": stated})
                if batch.contacts is not None:
                    right = (output.contact_logits > 0) == (batch.contacts > 0.5)
                    _collect(parts, "", {"contacts right": right.float().mean(1)})
    network.train()
    return {name: float(torch.cat(values).nanmean()) for name, values in parts.items()}


def validate_measured(
    network: ImageLifter, shard: RealShard, model: PoseModel, body: Body
) -> dict[str, float]:
    """Return figures on real people with measured joints; names begin with "real"."""
    assert shard.points_m is not None
    parts: dict[str, list[Tensor]] = {}
    network.eval()
    with torch.inference_mode():
        for rows in torch.arange(len(shard)).split(BATCH):
            draw = unchanged(rows)
            keypoints = Observation(*(column[rows][:, None] for column in shard.keypoints))
            inputs = make_inputs(keypoints)
            points = points_in_crop(shard.keypoints_px[rows], draw.flip, model)
            early = network.early_features(crop_inputs(shard, draw, model))
            output = network(early, inputs.features[:, 0], points)
            truth = torch.einsum("bki,bij->bkj", shard.points_m[rows], inputs.box.to_camera[:, 0])
            true_slopes = _limb_slopes(truth)
            for prefix, answer in (("real ", output.body), ("real lifter ", output.base)):
                found = _measured_points(answer, body)
                figures = _of_joints(_from_hips(found), _from_hips(truth))
                figures |= _of_slopes(_limb_slopes(found), true_slopes)
                _collect(parts, prefix, figures)
            stated = (output.slopes.expected()[:, LIMBS] - true_slopes).abs().mean(1)
            _collect(parts, "real ", {"stated slope": stated})
    network.train()
    return {name: float(torch.cat(values).nanmean()) for name, values in parts.items()}


def _collect(parts: dict[str, list[Tensor]], prefix: str, figures: dict[str, Tensor]) -> None:
    for name, values in figures.items():
        parts.setdefault(prefix + name, []).append(values)


def _of_joints(joints: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """Return errors [B] of root-relative joints [B, J, 3]."""
    return {
        "MPJPE mm": 1000 * (joints - truth).norm(dim=-1).mean(1),
        "PA-MPJPE mm": pa_mpjpe_mm(joints, truth),
        "depth mm": 1000 * (joints - truth)[..., 2].abs().mean(1),
    }


def _of_slopes(slopes: Tensor, true_slopes: Tensor) -> dict[str, Tensor]:
    """Return the error of slopes [B, limbs], and the share [B] whose right end is in front."""
    clear = true_slopes.abs() > CLEAR_SLOPE
    right = (slopes.sign() == true_slopes.sign()).float()
    return {
        "slope": (slopes - true_slopes).abs().mean(1),
        "signs right": torch.where(clear, right, torch.nan).nanmean(1),
    }


def _measured_points(answer: LifterOutput, body: Body) -> Tensor:
    """Return the body's keypoints [B, 12, 3] at the places that were measured."""
    return place_bodies(body, answer.rotation, answer.shape).keypoints[:, 0, MEASURED]


def _from_hips(points: Tensor) -> Tensor:
    return points - points[:, MEASURED_HIPS].mean(1, keepdim=True)


def _limb_slopes(points: Tensor) -> Tensor:
    """Return the slopes [B, 8] of limbs of measured joints [B, 12, 3]."""
    starts, ends = zip(*MEASURED_LIMBS, strict=True)
    bone = points[:, list(ends)] - points[:, list(starts)]
    return bone[..., 2] / bone.norm(dim=-1).clamp(min=1e-6)
