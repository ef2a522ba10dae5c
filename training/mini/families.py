"""What differs between the families: how each starts from Simple Baselines' weights, and its
loss.
"""

import math

import torch
from torch import Tensor, nn

import pose2d
from pose2d.decode import soft_argmax
from pose2d.models.base import Normalization, PoseModel
from pose2d.models.rle import MIDDLE, RLE
from pose2d.models.sbl import IPR, SimpleBaseline

from .batches import Batch

NAMES = {family: f"{family}-r18-128x96" for family in ("sbl", "ipr", "rle")}
TARGET_CELLS = 1.5  # sigma of the Gaussians that Simple Baselines learns, in cells of its map
CELL_PX = 4  # crop pixels per cell of the map
SHARPEN = 15.0  # a heatmap between 0 and 1 times this has a softmax that looks at its peak


def new_model(family: str, start: SimpleBaseline | None) -> PoseModel:
    """Random first weights, or those of a trained Simple Baseline as far as the networks are the
    same.
    """
    model = pose2d.card(NAMES[family]).build()
    for module in model.modules():
        if isinstance(module, nn.ConvTranspose2d):
            nn.init.normal_(module.weight, std=0.02)
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    if isinstance(model, SimpleBaseline):
        final_layer = model.get_submodule("final_layer")
        for name, parameter in final_layer.named_parameters():
            if name == "weight":
                nn.init.normal_(parameter, std=0.001)
            else:
                nn.init.zeros_(parameter)
    if isinstance(model, RLE):
        model.flow = Flow()  # learns with the network; nothing reads it from the checkpoint
    if start is None:
        return model
    trunk = {
        key: value
        for key, value in start.state_dict().items()
        if not key.startswith(("deconv", "final"))
    }
    if isinstance(model, IPR):
        model.backbone.load_state_dict(
            _other_colours(trunk, start.normalization, model.normalization)
        )
        model.head.features[:-1].load_state_dict(start.deconv_layers.state_dict())
        last = {key: SHARPEN * value for key, value in start.final_layer.state_dict().items()}
        model.head.features[-1].load_state_dict(last)
    elif isinstance(model, RLE):
        model.preact.load_state_dict(
            _other_colours(trunk, start.normalization, model.normalization)
        )
    return model


def _other_colours(
    trunk: dict[str, Tensor], old: Normalization, new: Normalization
) -> dict[str, Tensor]:
    """Return the trunk for crops under another normalisation: the first convolution answers the
    same, but for a constant.
    """
    weight = trunk["conv1.weight"]
    weight = weight / torch.tensor(old.std)[:, None, None]
    weight = weight.flip(1) if old.bgr != new.bgr else weight
    return {**trunk, "conv1.weight": weight * torch.tensor(new.std)[:, None, None]}


class Flow(nn.Module):
    """RealNVP in two dimensions (Dinh et al. 2017). Key names as in RLE's repository. It starts as
    the identity.
    """

    mask: Tensor  # [6, 2] which coordinate each coupling leaves as it is

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor(((0.0, 1.0), (1.0, 0.0)) * 3))
        self.t, self.s = (
            nn.ModuleList(
                nn.Sequential(
                    nn.Linear(2, hidden),
                    nn.LeakyReLU(),
                    nn.Linear(hidden, hidden),
                    nn.LeakyReLU(),
                    nn.Linear(hidden, 2),
                    last(),
                )
                for _ in self.mask
            )
            for last in (nn.Identity, nn.Tanh)
        )
        for net in (*self.s, *self.t):
            nn.init.zeros_(net[4].weight)
            for layer in (net[0], net[2], net[4]):
                nn.init.zeros_(layer.bias)


def loss(model: PoseModel, batch: Batch) -> Tensor:
    """Return the family's own loss, mean over people.

    The network runs in half precision, the loss does not.
    """
    inputs = model.normalize(batch.crops).contiguous(memory_format=torch.channels_last)
    if isinstance(model, SimpleBaseline):
        with torch.autocast("cpu", torch.bfloat16):
            maps = model.maps(model.deconv_layers(model.stages(inputs)[-1]))
        return _heatmap_loss(maps.float(), batch)
    if isinstance(model, IPR):
        with torch.autocast("cpu", torch.bfloat16):
            features = model.features(inputs)
        maps = model.maps(features.float())
        xy = soft_argmax(maps)[0] * model.cell_px(maps)
        error = (xy - batch.xy_px).abs().sum(-1) / model.input_wh[1]
        return (batch.weight * error).sum() / len(inputs)
    if isinstance(model, RLE):
        with torch.autocast("cpu", torch.bfloat16):
            features = model.features(inputs)
        xy, sigma = model.coordinates(features.float())
        truth = batch.xy_px / torch.tensor(model.input_wh) - MIDDLE
        flow = model.flow
        assert isinstance(flow, Flow)
        return rle_loss(flow, xy, sigma, truth, batch.weight[..., None].expand_as(xy))
    raise TypeError(type(model).__name__)


def log_prob(flow: Flow, x: Tensor) -> Tensor:
    """Normalised errors [..., 2] -> log density [...]; the prior is a standard normal one."""
    log_det = torch.zeros_like(x[..., 0])
    for keep, scale, shift in zip(
        flow.mask.flip(0), reversed(flow.s), reversed(flow.t), strict=True
    ):
        passed = keep * x
        s = scale(passed) * (1 - keep)
        t = shift(passed) * (1 - keep)
        x = passed + (1 - keep) * (x - t) * torch.exp(-s)
        log_det = log_det - s.sum(-1)
    return log_det - 0.5 * x.square().sum(-1) - math.log(2 * math.pi)


def flow_nll(flow: Flow, xy: Tensor, sigma: Tensor, truth: Tensor) -> Tensor:
    """log sigma - log phi((xy - truth) / sigma), [N, K, 2]: what the flow adds to the loss."""
    return sigma.log() - log_prob(flow, (xy - truth) / sigma)[..., None]


def rle_loss(flow: Flow, xy: Tensor, sigma: Tensor, truth: Tensor, weight: Tensor) -> Tensor:
    """Residual log-likelihood (Li et al. 2021, Eq. 9) of poses [N, K, 2], summed over keypoints,
    mean over N. The simple part of the density is a Laplace one with b = sqrt(2) sigma, as the
    official code has it."""
    laplace = (sigma * math.sqrt(2 * math.pi)).log() + (xy - truth).abs() / (
        math.sqrt(2) * sigma + 1e-9
    )
    return (weight[..., :1] * flow_nll(flow, xy, sigma, truth) + weight * laplace).sum() / len(xy)


def _heatmap_loss(maps: Tensor, batch: Batch) -> Tensor:
    """Half the squared difference from a Gaussian around each keypoint, summed over cells and
    weighted keypoints.
    """
    height, width = maps.shape[-2:]  # at half size wider than the crop: the trunk rounds up
    x, y = (batch.xy_px / CELL_PX).unbind(-1)
    across = torch.exp(-(torch.arange(width) - x[..., None]).square() / (2 * TARGET_CELLS**2))
    down = torch.exp(-(torch.arange(height) - y[..., None]).square() / (2 * TARGET_CELLS**2))
    error = (maps - down[..., :, None] * across[..., None, :]).square().sum((2, 3))
    return 0.5 * (batch.weight * error).sum() / len(maps)
