"""Measure the image network on rendered people of subjects that it never learned from."""

from collections.abc import Sequence

import torch
from torch import Tensor

from eval3dpw.scoring import pa_mpjpe_mm
from fitting.body import Body
from fitting.body.kinematics import PARENTS
from pose2d.models.base import PoseModel
from training.crops.shards import Shard
from training.examples.lifter_examples import place_bodies
from training.image.batches import fixed_batch
from training.image.network import ImageLifter, ImageLifterOutput

BATCH = 64
LIMBS = (4, 5, 7, 8, 18, 19, 20, 21)  # knees, ankles, elbows, wrists: ends of limb bones
CLEAR_DEPTH_M = 0.05  # bones whose ends are nearer in depth have no clear sign


def validate(
    network: ImageLifter, shards: Sequence[Shard], model: PoseModel, body: Body, most: int
) -> dict[str, float]:
    """Return errors in millimetres, shares of right depth signs and of right contacts."""
    network.eval()
    parts: dict[str, list[Tensor]] = {}
    with torch.inference_mode():
        for shard in shards:
            for rows in torch.arange(min(len(shard), most)).split(BATCH):
                batch = fixed_batch(shard, rows, model, body)
                early = network.early_features(batch.crops)
                features = batch.examples.inputs.features[:, 0]
                output = network(early, features, batch.points)
                joints = batch.examples.joints_m[:, 0]
                for name, values in _compare(output, joints, body).items():
                    parts.setdefault(name, []).append(values)
                if batch.contacts is not None:
                    right = (output.contact_logits > 0) == (batch.contacts > 0.5)
                    parts.setdefault("contacts right", []).append(right.float().mean(1))
    network.train()
    return {name: float(torch.cat(values).nanmean()) for name, values in parts.items()}


def _compare(output: ImageLifterOutput, true_joints_m: Tensor, body: Body) -> dict[str, Tensor]:
    """Return figures [B] of joints [B, 24, 3] from the pelvis."""
    joints = place_bodies(body, output.body.rotation, output.body.shape).joints[:, 0]
    ends = list(LIMBS)
    starts = [PARENTS[joint] for joint in LIMBS]
    true_depth = true_joints_m[..., 2]
    bone = joints[:, ends, 2] - joints[:, starts, 2]
    true_bone = true_depth[:, ends] - true_depth[:, starts]
    clear = true_bone.abs() > CLEAR_DEPTH_M
    right = torch.where(clear, (bone.sign() == true_bone.sign()).float(), torch.nan)
    stated = output.depth_m()
    return {
        "MPJPE mm": 1000 * (joints - true_joints_m).norm(dim=-1).mean(1),
        "PA-MPJPE mm": pa_mpjpe_mm(joints, true_joints_m),
        "depth of limbs mm": 1000 * (bone - true_bone).abs().mean(1),
        "depth signs right": right.nanmean(1),
        "stated depth mm": 1000 * (stated - true_depth).abs().mean(1),
    }
