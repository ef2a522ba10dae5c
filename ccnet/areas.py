"""People's areas for the closed form, fitted to training people: the mean share of the crop that a
person fills, and one linear layer that predicts it from a network's features."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ccnet.closed_form import best_width, closed_form
from ccnet.data.datasets import AnnotatedPerson
from ccnet.data.observations import Observations, observe
from pose2d.models.base import PoseModel
from pose2d.types import ConfidenceSource

RIDGE = 1e-3  # relative to the mean variance of the features


@dataclass(frozen=True)
class AreaFit:
    """Areas as the closed form needs them, fitted to training people."""

    mean_share: float  # mean share of the crop that a person fills
    centre: Tensor  # [C] mean of the pooled features
    weight: Tensor  # [C] predicts the logarithm of the share
    mean_log_share: float
    # Width of the heatmaps' target in cells that fits best, for each closed form.
    width_cells: Mapping[ConfidenceSource, float]

    def share(self, features: Tensor) -> Tensor:
        """Predict the share of the crop that each person fills [N] from features."""
        centred = pooled(features).cpu().double() - self.centre
        log_share = centred @ self.weight + self.mean_log_share
        return log_share.exp().clamp(max=1)


def pooled(features: Tensor) -> Tensor:
    """Return one vector a person [N, C]: maps are averaged over cells, vectors of keypoints over
    keypoints.
    """
    plain = features.as_subclass(Tensor).float()
    return plain.mean({4: (2, 3), 3: (1,)}[plain.ndim]) if plain.ndim > 2 else plain


def fit_areas(
    model: PoseModel,
    people: Sequence[AnnotatedPerson],
    progress: Callable[[int], None] = lambda people: None,
) -> AreaFit:
    """Fit areas to these people, who are all in memory at once."""
    observed = observe(model, pooled, people, progress=progress)
    x = observed.features.double()
    log_share = observed.area_share.double().clamp_min(1e-6).log()
    centred = x - x.mean(0)
    covariance = centred.T @ centred / len(x)
    ridge = (RIDGE * covariance.diagonal().mean()).clamp_min(1e-12)
    regularized = covariance + ridge * torch.eye(len(covariance), dtype=x.dtype)
    correlation = centred.T @ (log_share - log_share.mean()) / len(x)
    weight = torch.linalg.solve(regularized, correlation)
    fit = AreaFit(float(observed.area_share.mean()), x.mean(0), weight, float(log_share.mean()), {})
    shares: dict[ConfidenceSource, Tensor | float] = {
        "closed-form": fit.mean_share,
        "closed-form-predicted": fit.share(x),
        "closed-form-annotated": observed.area_share,
    }
    widths = {name: fit_width(observed, share, model) for name, share in shares.items()}
    return replace(fit, width_cells=widths)


def fit_width(observed: Observations, share: Tensor | float, model: PoseModel) -> float:
    """Return the width of the heatmaps' target in cells that fits best, for people who fill this
    share [N] of their crops.
    """
    oks = torch.where(observed.labelled > 0, observed.oks.double(), torch.nan)
    area_px2 = observed.crop_area_px2 * share
    return best_width(
        lambda width: closed_form(observed, area_px2, model, width).numpy(), oks.numpy()
    )
