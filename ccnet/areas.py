"""The person's area for the closed form, read from a network's features by one linear layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ccnet.confidence import best_width, closed_form
from ccnet.data.datasets import AnnotatedPerson
from ccnet.data.observations import Observations, join, observe
from ccnet.heads.head import CalibrationHead
from pose2d.models.base import PoseModel

MOST_PEOPLE = 1500  # spread evenly over the training people
RIDGE = 1e-3  # relative to the mean variance of the features


@dataclass(frozen=True)
class AreaFit:
    """What the closed form needs, measured on training people."""

    mean_share: float  # of its crop that a person fills
    centre: Tensor  # [C] mean of the pooled features
    weight: Tensor  # [C] of the logarithm of the share
    mean_log_share: float
    width_with_mean: float  # cells: width of the heatmaps' target that fits best with the mean share
    width_with_predicted: float  # with predicted areas
    width_with_annotated: float  # with annotated areas

    def share(self, features: Tensor) -> Tensor:
        """Share of its crop that each person fills [N], from features [N, *feature_shape]."""
        return ((pooled(features).cpu().double() - self.centre) @ self.weight + self.mean_log_share).exp().clamp(max=1)


def pooled(features: Tensor) -> Tensor:
    """One vector a person [N, C]: maps averaged over cells, one vector a keypoint over keypoints."""
    plain = features.as_subclass(Tensor).float()
    return plain.mean({4: (2, 3), 3: (1,)}[plain.ndim]) if plain.ndim > 2 else plain


def fit_areas(
    model: PoseModel, people: Sequence[AnnotatedPerson], progress: Callable[[int], None] = lambda people: None
) -> AreaFit:
    """On these people (`people_to_fit` chooses some)."""
    reader = _PooledFeatures(model.feature_shape, model.skeleton.size, 0)
    o = join(observe(model, reader, people), progress)
    x, log_share = o.inputs.double(), o.area_share.double().clamp_min(1e-6).log()
    centred = x - x.mean(0)
    covariance = centred.T @ centred / len(x)
    pull = (RIDGE * covariance.diagonal().mean()).clamp_min(1e-12) * torch.eye(len(covariance), dtype=x.dtype)
    weight = torch.linalg.solve(covariance + pull, centred.T @ (log_share - log_share.mean()) / len(x))
    mean_share, mean_log_share = float(o.area_share.mean()), float(log_share.mean())
    predicted = ((x - x.mean(0)) @ weight + mean_log_share).exp().clamp(max=1)
    widths = [fit_width(o, share, model) for share in (mean_share, predicted, o.area_share)]
    return AreaFit(mean_share, x.mean(0), weight, mean_log_share, *widths)


def fit_width(o: Observations, share: Tensor | float, model: PoseModel) -> float:
    """The width of the heatmaps' target in cells that fits best people who fill this share [N] of their crops."""
    crop_px2, area_px2 = o.crop_area_px2.double(), (o.crop_area_px2 * share).double()
    score, sigma_px = o.score.double(), o.sigma_px.double()
    return best_width(lambda w: closed_form(score, sigma_px, crop_px2, area_px2, model, w).numpy(), o.labelled_oks)


def people_to_fit(people: Sequence[AnnotatedPerson]) -> list[AnnotatedPerson]:
    """At most MOST_PEOPLE, evenly spread."""
    return [people[i] for i in np.unique(np.linspace(0, len(people) - 1, MOST_PEOPLE).astype(int))]


class _PooledFeatures(CalibrationHead):
    """Keeps the pooled features of each crop; nothing in it is trained."""

    kind = "pooled"

    def inputs(self, features: Tensor) -> Tensor:
        return pooled(features)

    def logits(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError
