"""How far an answer is from the truth, each part in its own unit and as a mean over the frames that count."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from fitting.body import Body
from fitting.init.lifter.network import LOG_RANGE, Answer
from fitting.lifter_training.examples import Examples, placed

LEAVES = (10, 11, 22, 23)  # toes and hands: no keypoint tells of them
LEAF_WEIGHT = 0.1


@dataclass(frozen=True)
class Losses:
    joints: Tensor  # metres, mean distance from the pelvis
    rotation: Tensor  # squared Frobenius distance, mean over joints
    image: Tensor  # boxes, mean distance of the keypoints' images
    place: Tensor  # |log depth| and, in boxes, the pelvis's distance in the image
    shape: Tensor  # squared
    velocity: Tensor  # metres a second
    doubt: Tensor  # -log likelihood of the errors under the stated spreads, a joint


WEIGHTS = Losses(*map(torch.tensor, (10.0, 0.5, 3.0, 1.0, 0.1, 0.04, 0.05)))


def losses(answer: Answer, truth: Examples, body: Body) -> Losses:
    joints, keypoints, _ = placed(body, answer.rotation, answer.shape)
    counts = truth.counts / truth.counts.sum().clamp(min=1)

    def mean(values: Tensor) -> Tensor:
        return (counts * values.reshape(*counts.shape, -1).mean(-1)).sum()

    weight = torch.ones(24)
    weight[list(LEAVES)] = LEAF_WEIGHT
    squared = (answer.rotation - truth.rotation).square().sum((-1, -2))  # 8 sin^2(angle / 2)
    size = truth.inputs.box.size
    pelvis = answer.pelvis(truth.inputs.box)
    seen = _image(keypoints + pelvis[:, :, None], size) - _image(truth.keypoints_m + truth.pelvis_m[:, :, None], size)
    offset = answer.offset - _image(truth.pelvis_m, size[..., None]).squeeze(2)
    depth = (pelvis[..., 2].log() - truth.pelvis_m[..., 2].log()).abs()
    step_s = (truth.time_s[:, 1:] - truth.time_s[:, :-1])[..., None, None]
    away = joints - truth.joints_m
    both = (counts[:, 1:] * counts[:, :-1]).sqrt()
    velocity = _length((away[:, 1:] - away[:, :-1]) / step_s).mean(-1)
    log_turn, log_depth = answer.log_turn_rad.clamp(*LOG_RANGE), answer.log_depth.clamp(*LOG_RANGE)
    doubt_turn = 3 * log_turn + squared.detach() / 4 * (-2 * log_turn).exp()
    doubt_depth = log_depth + depth.detach().square() / 2 * (-2 * log_depth).exp()
    return Losses(
        joints=mean(_length(away)),
        rotation=mean(squared * weight),
        image=mean(_length(seen).clamp(max=2.0)),
        place=mean(depth) + mean(_length(offset)),
        shape=mean((answer.shape - truth.shape[:, None]).square()),
        velocity=(both * velocity).sum(),
        doubt=mean(doubt_turn) + mean(doubt_depth),
    )


def total(parts: Losses) -> Tensor:
    return torch.stack([getattr(WEIGHTS, entry.name) * getattr(parts, entry.name) for entry in fields(Losses)]).sum()


def _image(points: Tensor, size: Tensor) -> Tensor:
    """Points [B, T, K, 3] (or [B, T, 3]) -> boxes [B, T, K, 2] from the middle of the turned camera's image."""
    points = points if points.ndim == 4 else points[:, :, None]
    return points[..., :2] / points[..., 2:].clamp(min=0.1) / size.reshape(*points.shape[:2], 1, 1)


def _length(vector: Tensor) -> Tensor:
    return (vector.square().sum(-1) + 1e-8).sqrt()
