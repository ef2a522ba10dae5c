"""Losses of a calibration head.

Each takes the head's logits [N, K, C] (channel 0: confidence, 1: presence, 2: where a loss needs
it, log-variance) and the targets, and returns one number per person: summed over keypoints, so that
the weight of the presence term means the same for every skeleton. The trainer averages over
people."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ccnet.heads.head import person_confidence
from ccnet.heads.mixture import CHANNELS, distribution_of
from ccnet.heads.simcc import SimCCDistributionHead

PRESENCE_WEIGHT = 2e-2  # of the presence term against the confidence term, as in the paper


@dataclass(frozen=True)
class Targets:
    """What the head should predict for a batch of people."""

    # [N, K] OKS of each predicted keypoint, or another correctness in [0, 1]; any value if not
    # labelled
    oks: Tensor
    present: Tensor  # [N, K] 1 if labelled and inside the crop, else 0
    labelled: Tensor  # [N, K] 1 if labelled, else 0
    # [N, K, 2] of each predicted keypoint along x and y, in units of l; any value if not labelled
    error: Tensor
    index: Tensor  # [N] which person of the training set this is

    @property
    def person_oks(self) -> Tensor:
        """Return COCO's OKS, the mean over labelled keypoints, [N]."""
        return (self.oks * self.labelled).sum(1) / self.labelled.sum(1).clamp_min(1)


Loss = Callable[[Tensor, Targets], Tensor]  # logits [N, K, C], targets -> [N]


def presence_loss(logits: Tensor, targets: Targets, weight: float = PRESENCE_WEIGHT) -> Tensor:
    """Return the weighted binary cross-entropy of presence, [N]."""
    error = F.binary_cross_entropy_with_logits(logits[..., 1], targets.present, reduction="none")
    return weight * error.sum(1)


def keypoint_loss(
    logits: Tensor,
    targets: Targets,
    kind: str = "mse",
    person_weight: float = 0.0,
    presence_weight: float = PRESENCE_WEIGHT,
) -> Tensor:
    """Return the loss of confidence, where a keypoint is present, and of presence (Eq. 20 to 22), [N].

    mse: squared error, whose minimum is the expected OKS.
    cross-entropy: against the OKS as a soft target; its minimum is the expected OKS too.
    aleatoric: squared error with a learned log-variance u, e^-u (s - s')^2 / 2 + u / 2.
    likelihood: of the error along both axes, for heads that predict its distribution.
    `person_weight` times the squared error of the person's confidence is added.
    `presence_weight` is lambda; it is 1 for `likelihood`.
    """
    error = (logits[..., 0].sigmoid() - targets.oks).square()
    if kind == "cross-entropy":
        error = F.binary_cross_entropy_with_logits(logits[..., 0], targets.oks, reduction="none")
    elif kind == "aleatoric":
        log_variance = logits[..., 2]
        error = 0.5 * torch.exp(-log_variance) * error + 0.5 * log_variance
    elif kind == "likelihood":
        error = -distribution_of(logits).log_likelihood(targets.error)
        presence_weight = 1.0
    loss = (targets.present * error).sum(1) + presence_loss(logits, targets, presence_weight)
    if person_weight:
        person = person_confidence(logits[..., 0].sigmoid(), logits[..., 1].sigmoid())
        loss = loss + person_weight * (person - targets.person_oks).square()
    return loss


class SoapLoss(nn.Module):
    """Average precision of the ranking of people (Qi et al. 2021); a person is right above an OKS.

    For a right person i, precision at its rank is p_i / a_i, where a_i counts all people ranked
    above it and p_i the right ones, both through a squared hinge and as moving averages over
    batches. The gradient of -p/a is taken with the averages held fixed. Only the order of people is
    learnt, so the confidence is not calibrated.
    """

    right: Tensor  # [P, T] moving average of p_i
    all: Tensor  # [P, T] moving average of a_i

    THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)  # of OKS
    MARGIN = 0.2  # of the hinge
    MEMORY = 0.9  # of the moving averages

    def __init__(self, people: int, presence_weight: float = PRESENCE_WEIGHT) -> None:
        super().__init__()
        self.presence_weight = presence_weight
        self.register_buffer("right", torch.zeros(people, len(self.THRESHOLDS)))
        self.register_buffer("all", torch.zeros(people, len(self.THRESHOLDS)))

    def forward(self, logits: Tensor, targets: Targets) -> Tensor:
        """Return one number per person [N] with the gradients of the batch's surrogate loss."""
        confidence = person_confidence(logits[..., 0].sigmoid(), logits[..., 1].sigmoid())
        # [i, j]: how far j is ranked above i
        above = F.relu(self.MARGIN + confidence - confidence[:, None]).square()
        thresholds = torch.tensor(self.THRESHOLDS, device=logits.device)
        positive = (targets.person_oks[:, None] > thresholds).float()  # [N, T]
        right = above @ positive / len(above)  # [N, T]
        everyone = above.sum(1, keepdim=True).expand_as(right) / len(above)
        with torch.no_grad():
            old_right = self.right[targets.index]
            old_all = self.all[targets.index]
            fresh = old_all == 0
            p = torch.where(fresh, right, self.MEMORY * old_right + (1 - self.MEMORY) * right)
            a = torch.where(fresh, everyone, self.MEMORY * old_all + (1 - self.MEMORY) * everyone)
            self.right[targets.index] = p
            self.all[targets.index] = a
            a = a.clamp_min(1e-6)
        surrogate = (p * everyone - a * right) / a.square()  # gradient of -p/a by the quotient rule
        count = positive.sum(0).clamp_min(1)
        per_person = (positive * surrogate / count).mean(1) * len(above)
        return per_person + presence_loss(logits, targets, self.presence_weight)


# An ensemble is five heads trained by mse.
NAMES = ("mse", "cross-entropy", "aleatoric", "likelihood", "soap", "ensemble")


def default(head: str) -> str:
    """Return the loss that suits a kind of head."""
    return "likelihood" if head == SimCCDistributionHead.kind else "mse"


def channels(name: str) -> int:
    """Return the number of logits per keypoint that a loss needs."""
    return {"aleatoric": 3, "likelihood": CHANNELS}.get(name, 2)
