"""How a crop's colours become a network's input. Checkpoints disagree, and a wrong order costs several AP."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Normalization:
    """(crop / 255 - mean) / std, per channel in the network's own order."""

    mean: tuple[float, float, float]  # per input channel, on a scale of 0..1
    std: tuple[float, float, float]
    bgr: bool = False  # the network takes blue first

    def __call__(self, crops: Tensor) -> Tensor:
        """RGB crops [N, 3, H, W], 0..255, uint8 or float -> the network's input, float."""
        x = crops if torch.is_floating_point(crops) else crops.float()
        if self.bgr:
            x = x.flip(1)
        mean = torch.tensor(self.mean, dtype=x.dtype, device=x.device).view(3, 1, 1)
        std = torch.tensor(self.std, dtype=x.dtype, device=x.device).view(3, 1, 1)
        return torch.addcmul(-mean / std, x, 1 / (255 * std))


_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET_RGB = Normalization(_MEAN, _STD)
# The official Simple Baselines read images with OpenCV and never turned them round: blue gets red's mean.
IMAGENET_BGR = Normalization(_MEAN, _STD, bgr=True)
# Official RLE: a mean of its own, and nothing scaled.
RLE_RGB = Normalization((0.406, 0.457, 0.480), (1.0, 1.0, 1.0))
