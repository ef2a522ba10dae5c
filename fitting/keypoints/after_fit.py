"""Update the stated error distribution of keypoints once the body is known.

A head reads one image. A fit has read the whole track and knows how bodies move, so a keypoint far
from the body's own is likely to be wrong. The weights of its stated mixture follow by Bayes' rule,

    w_m'  ~  w_m N(r; 0, KEPT s_m^2 + BODY^2)^POWER,        r = (keypoint - body) / l,

with s_m of each axis. The fit follows a keypoint in part, so only KEPT of an error's variance is
left in r; BODY is the body's own error; POWER is below 1 because frames and keypoints are not
independent. The three were chosen on a rendered validation set, by the correlation with the true
OKS. Neighbouring frames alone say nothing: at a hidden keypoint the network's error moves along
with the body (bench/README.md, "Hidden keypoints").
"""

from dataclasses import replace

import torch
from torch import Tensor

from fitting.keypoints.weights import keypoint_area
from pose2d.types import (
    Keypoints,
    l_squared,
)

KEPT = 0.5
BODY = 0.2
POWER = 0.5


def update_confidence(keypoints: Keypoints, body_px: Tensor) -> Keypoints:
    """Return keypoints [T, K] with mixture weights and confidence updated by a fit whose own
    keypoints are at `body_px` [T, K, 2].

    Keypoints without a stated distribution, or where the body's are not finite, stay as they are.
    """
    error = keypoints.error
    if error is None:
        return keypoints
    area = keypoint_area(keypoints, keypoints.confidence * keypoints.presence > 0)
    l2 = l_squared(area, keypoints.skeleton)
    squared = (keypoints.xy_px - body_px).square() / l2[..., None]  # [T, K, 2]
    variance = KEPT * error.axis_sigma.square() + BODY**2  # [T, K, M, 2]
    log_density = -(squared[..., None, :] / variance + variance.log()).sum(-1) / 2
    logs = error.weight.clamp_min(1e-9).log() + POWER * log_density
    return _reweight(keypoints, logs, torch.isfinite(squared).all(-1))


def inflate_variance(keypoints: Keypoints, inflation: Tensor) -> Keypoints:
    """Return keypoints [T, K] whose mixture weights are multiplied by sigma^inflation, [T, K]; 0
    changes nothing.

    Keypoints without a stated distribution stay as they are.
    """
    error = keypoints.error
    if error is None:
        return keypoints
    logs = error.weight.clamp_min(1e-9).log() + inflation[..., None] * error.sigma.log()
    return _reweight(keypoints, logs, inflation != 0)


def _reweight(keypoints: Keypoints, logs: Tensor, changed: Tensor) -> Keypoints:
    """Return keypoints with the weights softmax(logs) [T, K, M] and the confidence that follows,
    where changed [T, K] and present.
    """
    changed = changed & (keypoints.presence > 0)
    assert keypoints.error is not None
    error = replace(
        keypoints.error,
        weight=torch.where(changed[..., None], logs.softmax(-1), keypoints.error.weight),
    )
    return replace(
        keypoints,
        error=error,
        confidence=torch.where(changed, error.expected_oks(), keypoints.confidence),
    )
