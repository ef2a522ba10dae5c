"""How much of its crop a person fills: the area that OKS needs, where none is annotated."""

import torch
from torch import Tensor, nn


class AreaHead(nn.Module):
    """One linear layer on a network's pooled features: log of (person's area / crop's area)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Features [N, C, h, w], [N, K, C] or [N, C] -> share of the crop that is person, in (0, 1], [N]."""
        return self.linear(pooled(features))[:, 0].exp().clamp(max=1)


def pooled(features: Tensor) -> Tensor:
    """A network's features -> one vector per crop [N, C]: means over the map, or over per-keypoint vectors."""
    if features.ndim == 4:
        return features.mean((2, 3))
    return features.mean(1) if features.ndim == 3 else features


def mean_share(area_px2: Tensor, crop_area_px2: Tensor) -> Tensor:
    """Mean over a data set of the share of its crop a person fills: the closed form's "mean area"."""
    return (area_px2 / crop_area_px2).mean()


def fit_area_head(vectors: Tensor, share: Tensor, ridge: float = 1e-3) -> AreaHead:
    """The head whose log share is least-squares best on pooled features [N, C] and true shares [N].

    `ridge` is relative to the features' mean variance: a small pull that keeps unused channels at zero.
    """
    x, y = vectors.double(), share.double().log()
    x_mean, y_mean = x.mean(0), y.mean()
    covariance = torch.einsum("nc,nd->cd", x - x_mean, x - x_mean) / len(x)
    with_target = torch.einsum("nc,n->c", x - x_mean, y - y_mean) / len(x)
    size = len(covariance)
    pull = ridge * covariance.diagonal().mean().clamp_min(1e-12) * torch.eye(size, dtype=x.dtype, device=x.device)
    weight = torch.linalg.solve(covariance + pull, with_target)
    head = AreaHead(size).to(vectors.device)
    with torch.no_grad():
        head.linear.weight.copy_(weight[None])
        head.linear.bias.copy_((y_mean - weight @ x_mean)[None])
    return head
