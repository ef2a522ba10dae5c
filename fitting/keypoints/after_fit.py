"""How far each keypoint can be relied on once the body is known.

A head reads one image. A fit has seen the whole track and knows how bodies move, so a keypoint far from the body's own
is likely to be wrong: the weights of its stated mixture follow by Bayes' rule,

    w_m'  ~  w_m N(r; 0, KEPT s_m^2 + BODY^2)^POWER,        r = (keypoint - body) / l.

The fit follows a keypoint in part, so only KEPT of an error's variance is left in r; BODY is the body's own error;
POWER is below 1 because frames and keypoints are not independent. The three were chosen on a rendered validation set,
by the correlation with the true OKS. Neighbouring frames alone say nothing: at a hidden keypoint the network's error
moves along with the body (bench/README.md, "Hidden keypoints").

`widened` gives the wide components more weight where somebody else stands in front (`keypoints.hidden`).
"""

from dataclasses import replace

import torch
from torch import Tensor

from fitting.keypoints.weights import keypoint_area
from pose2d.oks import l_squared
from pose2d.types import Keypoints

KEPT, BODY, POWER = 0.5, 0.2, 0.5


def confidence_after_fit(keypoints: Keypoints, body_px: Tensor) -> Keypoints:
    """Keypoints [T, K] with weights and confidence after a fit whose own keypoints are at `body_px` [T, K, 2].

    Keypoints without a stated distribution, or where the body's are not finite, stay as they are.
    """
    weight, sigma = keypoints.error_weight, keypoints.error_sigma
    if weight is None or sigma is None:
        return keypoints
    area = keypoint_area(keypoints, keypoints.confidence * keypoints.presence > 0)
    squared = (keypoints.xy_px - body_px).square().sum(-1) / l_squared(area, keypoints.skeleton)
    variance = KEPT * sigma.square() + BODY**2
    logs = weight.clamp_min(1e-9).log() + POWER * (-squared[..., None] / 2 / variance - variance.log())
    known = torch.isfinite(squared) & (keypoints.presence > 0)
    after = torch.where(known[..., None], logs.softmax(-1), weight)
    confidence = torch.where(known, (after / (1 + sigma.square())).sum(-1), keypoints.confidence)
    return replace(keypoints, error_weight=after, confidence=confidence)


def widened(keypoints: Keypoints, tilt: Tensor) -> Keypoints:
    """Keypoints [T, K] whose mixtures' weights are multiplied by sigma^tilt, tilt [T, K]; 0 changes nothing.

    Keypoints without a stated distribution stay as they are.
    """
    weight, sigma = keypoints.error_weight, keypoints.error_sigma
    if weight is None or sigma is None:
        return keypoints
    wider = (weight.clamp_min(1e-9).log() + tilt[..., None] * sigma.log()).softmax(-1)
    changed = (tilt != 0) & (keypoints.presence > 0)
    after = torch.where(changed[..., None], wider, weight)
    confidence = torch.where(changed, (after / (1 + sigma.square())).sum(-1), keypoints.confidence)
    return replace(keypoints, error_weight=after, confidence=confidence)
