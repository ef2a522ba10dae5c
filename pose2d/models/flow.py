"""What RLE learns beside the pose: the shape of the error's density, as a normalising flow, and the loss with it."""

import math

import torch
from torch import Tensor, nn

HIDDEN = 64
MASK = ((0.0, 1.0), (1.0, 0.0)) * 3  # which coordinate each coupling leaves as it is
COUPLINGS = len(MASK)


class Stored(nn.Module):
    """A linear layer whose weights are loaded and kept, but are no parameters: no prediction uses them."""

    weight: Tensor  # [outputs, inputs]
    bias: Tensor  # [outputs]

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(outputs, inputs))
        self.register_buffer("bias", torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


def _net(last: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        Stored(2, HIDDEN), nn.LeakyReLU(), Stored(HIDDEN, HIDDEN), nn.LeakyReLU(), Stored(HIDDEN, 2), last
    )


class Flow(nn.Module):
    """RealNVP in two dimensions (Dinh et al. 2017). Key names as in RLE's repository."""

    mask: Tensor  # [6, 2]

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor(MASK))
        self.t = nn.ModuleList(_net(nn.Identity()) for _ in range(COUPLINGS))
        self.s = nn.ModuleList(_net(nn.Tanh()) for _ in range(COUPLINGS))

    def log_prob(self, x: Tensor) -> Tensor:
        """Normalised errors [..., 2] -> log density [...]; the prior is a standard normal one."""
        log_det = torch.zeros_like(x[..., 0])
        for keep, scale, shift in zip(self.mask.flip(0), reversed(self.s), reversed(self.t), strict=True):
            kept = keep * x
            s, t = scale(kept) * (1 - keep), shift(kept) * (1 - keep)
            x = kept + (1 - keep) * (x - t) * torch.exp(-s)
            log_det = log_det - s.sum(-1)
        return log_det - 0.5 * x.square().sum(-1) - math.log(2 * math.pi)


def flow_nll(flow: Flow, xy: Tensor, sigma: Tensor, truth: Tensor) -> Tensor:
    """log sigma - log phi((xy - truth) / sigma), [N, K, 2]: what the flow adds to the loss."""
    return sigma.log() - flow.log_prob((xy - truth) / sigma)[..., None]


def rle_loss(flow: Flow, xy: Tensor, sigma: Tensor, truth: Tensor, weight: Tensor) -> Tensor:
    """Residual log-likelihood (Li et al. 2021, Eq. 9) of poses [N, K, 2], summed over keypoints, mean over N.

    The simple part of the density is a Laplace one with b = sqrt(2) sigma, as the official code has it.
    """
    laplace = (sigma * math.sqrt(2 * math.pi)).log() + (xy - truth).abs() / (math.sqrt(2) * sigma + 1e-9)
    return (weight[..., :1] * flow_nll(flow, xy, sigma, truth) + weight * laplace).sum() / len(xy)
