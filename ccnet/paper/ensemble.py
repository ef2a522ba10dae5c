"""Several heads trained from different first weights (deep ensembles), for the paper's comparison
of losses."""

from typing import cast

import torch
from torch import Tensor, nn

from ccnet.heads.head import CalibrationHead


class Ensemble(CalibrationHead):
    """Several heads that differ in their first weights; their probabilities are averaged."""

    kind = "ensemble"

    def __init__(self, members: list[CalibrationHead]) -> None:
        super().__init__(members[0].feature_shape, members[0].keypoints, members[0].channels)
        self.members = nn.ModuleList(members)

    @property
    def heads(self) -> list[CalibrationHead]:
        return cast(list[CalibrationHead], list(self.members))

    def inputs(self, features: Tensor) -> Tensor:
        return self.heads[0].inputs(features)

    def fit_scale(self, inputs: Tensor) -> None:
        for head in self.heads:
            head.fit_scale(inputs)

    def logits(self, inputs: Tensor) -> Tensor:
        """Return the logits of the mean probability."""
        mean = torch.stack([head.logits(inputs).sigmoid() for head in self.heads]).mean(0)
        return torch.logit(mean.clamp(1e-6, 1 - 1e-6))
