"""Whether a person keeps the scene: fitted with it against without, judged by the keypoints.

Gravity, floor and contacts are hypotheses. Terms of the solver let go of single contacts that keypoints contradict;
here the whole is judged. Where keypoints are hardly worse explained with the scene, it is used. Where they are, some of
them are left out of both fits, and the scene stays when it predicts these as well; else it is softened, and dropped
when that does not help either.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fitting.keypoints.weights import PRESENT
from fitting.track import PreparedTrack, TrackFit

Verdict = Literal["used", "softened", "dropped", "not known"]

# Mean distance to the keypoints with the scene over that without: below, nobody sees a difference; above, fits with it
# were visibly worse (bench/scene_evidence.py). Predictions of keypoints left out may be worse by chance alone.
DOUBTFUL, DAMAGED, PREDICTED = 1.10, 1.15, 1.02
HIDDEN_EVERY, HIDDEN_S = 4, 0.4  # one of so many keypoints is left out for so long


@dataclass(frozen=True)
class Judged:
    """One person's scene."""

    verdict: Verdict
    misfit: float  # mean distance to the keypoints with the scene over that without; NaN: not compared
    predicted: float = float("nan")  # the same of keypoints left out of both fits; NaN: not compared


def misfit_ratio(scene: TrackFit, alone: TrackFit) -> float:
    """Of the keypoints that count in both."""
    a, b = scene.fit.reprojection_px.numpy(), alone.fit.reprojection_px.numpy()
    both = np.isfinite(a) & np.isfinite(b)
    return float(a[both].mean() / max(b[both].mean(), 1e-6)) if both.any() else 1.0


def with_some_left_out(prepared: PreparedTrack, fps: float) -> tuple[PreparedTrack, Tensor]:
    """Keypoints of which every fourth is hidden for a while, by turns; and which [T, K]."""
    points = prepared.keypoints
    frames, count = points.presence.shape
    block = torch.arange(frames) // max(1, round(HIDDEN_S * fps))
    hidden = (block[:, None] + torch.arange(count)) % HIDDEN_EVERY == 0
    hidden &= points.presence >= PRESENT
    kept = replace(points, presence=points.presence.masked_fill(hidden, 0.0))
    return replace(prepared, keypoints=kept), hidden


def prediction_ratio(scene_px: Tensor, alone_px: Tensor, xy_px: Tensor, hidden: Tensor) -> float:
    """Distances of keypoints left out [T, K] from where two fits put them, one over the other; medians of keypoints
    that are plainly wrong do not count."""
    with_scene, without = ((px - xy_px).norm(dim=-1)[hidden] for px in (scene_px, alone_px))
    usable = torch.isfinite(with_scene) & torch.isfinite(without)
    if not bool(usable.any()):
        return 1.0
    far = 5 * without[usable].median().clamp(min=1.0)
    return float(with_scene[usable].clamp(max=far).mean() / without[usable].clamp(max=far).mean().clamp(min=1e-6))
