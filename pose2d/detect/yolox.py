"""YOLOX-tiny (Ge et al. 2021), the default detector: CSPDarknet, a feature pyramid both ways, and
one head per level.

The weights are OpenMMLab's, trained on COCO and Human-Art. Of their 80 classes only the person's is
used."""

import math

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pose2d.base.embedded import check_embedded
from pose2d.base.errors import UserError
from pose2d.detect.detector import DetectorOptions, PersonDetector
from pose2d.models.checkpoints import WEIGHTS, build_empty, read_state
from pose2d.models.convolutions import Conv, CSPLayer, OnnxNetwork, SpatialPyramid

STRIDES = (8, 16, 32)  # input pixels per cell of the three levels
# Channels of the backbone at each level: CSPDarknet's 256, 512 and 1024 times 0.375.
WIDTHS = (96, 192, 384)
HIDDEN = 96  # channels in the heads
CELLS = 32  # both sides of an input are multiples of this
GREY = 114  # fills the input beside the image
YOLOX_WEIGHTS = "yolox_tiny_humanart_fp16.npz"
YOLOX_GRAPH = "yolox_tiny.onnx"


class Darknet(nn.Module):
    """Backbone: images [N, 3, H, W], BGR 0..255 -> maps of 96, 192 and 384 channels at strides 8,
    16 and 32.
    """

    def __init__(self) -> None:
        super().__init__()
        # The original gathers 2x2 pixels into channels and convolves 3x3: the same sums as 6x6 at
        # every other pixel.
        self.stem = Conv(3, 24, 6, 2)
        self.stage1 = nn.Sequential(Conv(24, 48, 3, 2), CSPLayer(48, 48, 1, True))
        self.stage2 = nn.Sequential(Conv(48, 96, 3, 2), CSPLayer(96, 96, 3, True))
        self.stage3 = nn.Sequential(Conv(96, 192, 3, 2), CSPLayer(192, 192, 3, True))
        self.stage4 = nn.Sequential(
            Conv(192, 384, 3, 2), SpatialPyramid(384), CSPLayer(384, 384, 1, False)
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.stage1(self.stem(images.contiguous(memory_format=torch.channels_last)))
        fine = self.stage2(x)
        middle = self.stage3(fine)
        return fine, middle, self.stage4(middle)


class Pyramid(nn.Module):
    """Neck: passes coarse maps down to fine ones, then fine maps up to coarse ones; each level ends
    with 96 channels.
    """

    def __init__(self) -> None:
        super().__init__()
        fine, middle, coarse = WIDTHS
        self.reduce_coarse = Conv(coarse, middle)
        self.down_middle = CSPLayer(2 * middle, middle, 1, False)
        self.reduce_middle = Conv(middle, fine)
        self.down_fine = CSPLayer(2 * fine, fine, 1, False)
        self.stride_fine = Conv(fine, fine, 3, 2)
        self.up_middle = CSPLayer(2 * fine, middle, 1, False)
        self.stride_middle = Conv(middle, middle, 3, 2)
        self.up_coarse = CSPLayer(2 * middle, coarse, 1, False)
        self.out = nn.ModuleList(Conv(width, HIDDEN) for width in WIDTHS)

    def forward(self, fine: Tensor, middle: Tensor, coarse: Tensor) -> list[Tensor]:
        coarse_in = self.reduce_coarse(coarse)
        coarse_up = F.interpolate(coarse_in, scale_factor=2, mode="nearest")
        middle_in = self.reduce_middle(self.down_middle(torch.cat([coarse_up, middle], 1)))
        middle_up = F.interpolate(middle_in, scale_factor=2, mode="nearest")
        fine = self.down_fine(torch.cat([middle_up, fine], 1))
        middle = self.up_middle(torch.cat([self.stride_fine(fine), middle_in], 1))
        coarse = self.up_coarse(torch.cat([self.stride_middle(middle), coarse_in], 1))
        return [layer(x) for layer, x in zip(self.out, (fine, middle, coarse), strict=True)]


class LevelHead(nn.Module):
    """Head of one level: for each cell whether there is a person, whether there is any object, and
    its box.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cls_convs = nn.Sequential(Conv(HIDDEN, HIDDEN, 3), Conv(HIDDEN, HIDDEN, 3))
        self.reg_convs = nn.Sequential(Conv(HIDDEN, HIDDEN, 3), Conv(HIDDEN, HIDDEN, 3))
        self.cls = Conv(HIDDEN, 1, activation="none")
        self.reg = Conv(HIDDEN, 4, activation="none")
        self.obj = Conv(HIDDEN, 1, activation="none")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores [N, h * w] in [0, 1] and raw boxes [N, h * w, 4] of a map [N, 96, h, w]."""
        boxes = self.reg_convs(x)
        score = self.cls(self.cls_convs(x)).sigmoid() * self.obj(boxes).sigmoid()
        return score.flatten(1), self.reg(boxes).flatten(2).transpose(1, 2)


class YOLOX(nn.Module):
    """The network: images [N, 3, H, W] (BGR 0..255, sides multiples of 32) -> candidate boxes and
    scores, before suppression.
    """

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Darknet()
        self.neck = Pyramid()
        self.heads = nn.ModuleList(LevelHead() for _ in STRIDES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes [N, M, 4] (x1, y1, x2, y2 in input pixels) and scores [N, M], one for each
        cell of each level.
        """
        has_channels = images.ndim == 4 and images.shape[1] == 3
        if not has_channels or any(side % CELLS for side in images.shape[2:]):
            raise UserError(
                f"images must be [N, 3, H, W] with sides in multiples of {CELLS}, "
                f"got {list(images.shape)}."
            )
        boxes = []
        scores = []
        levels = self.neck(*self.backbone(images))
        for level, head, stride in zip(levels, self.heads, STRIDES, strict=True):
            score, raw = head(level)
            rows, columns = (
                torch.arange(side, device=level.device, dtype=level.dtype)
                for side in level.shape[2:]
            )
            y, x = torch.meshgrid(rows, columns, indexing="ij")
            middle = raw[..., :2] + torch.stack([x.flatten(), y.flatten()], -1)
            half = raw[..., 2:].exp() / 2
            boxes.append(torch.cat([middle - half, middle + half], -1) * stride)
            scores.append(score)
        return torch.cat(boxes, 1), torch.cat(scores, 1)


def load_yolox() -> YOLOX:
    """Return the network with its embedded weights."""
    model = build_empty(YOLOX)
    model.load_state_dict(read_state(check_embedded(WEIGHTS / YOLOX_WEIGHTS)))
    return model.eval().requires_grad_(False)


def _resize(image: np.ndarray, size_wh: tuple[int, int]) -> np.ndarray:
    """Return the image at another size. A pixel of a smaller image is the mean of those it covers;
    halving first takes half the time.
    """
    while image.shape[1] >= 2 * size_wh[0] and image.shape[0] >= 2 * size_wh[1]:
        half_wh = (image.shape[1] // 2, image.shape[0] // 2)
        image = cv2.resize(image, half_wh, interpolation=cv2.INTER_AREA)
    shrinks = image.shape[1] >= size_wh[0]
    return cv2.resize(image, size_wh, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


class YoloxTiny(PersonDetector):
    """YOLOX-tiny with its embedded weights."""

    # Size and overlap as published.
    defaults = DetectorOptions(long_side=416, score_threshold=0.1, nms_iou=0.65)
    licence = "Apache-2.0; training data partly for research"

    def __init__(self, options: DetectorOptions | None = None) -> None:
        super().__init__(options)
        self.net = load_yolox()
        self._onnx = OnnxNetwork(YOLOX_GRAPH, self.net.state_dict())

    @staticmethod
    def prepare(image: np.ndarray, long_side: int) -> tuple[np.ndarray, float]:
        """Return the image in the top left corner of an input whose sides are multiples of 32, and
        its scale. The published pipeline pads to a square; less padding takes less time and finds
        the same people.
        """
        height, width = image.shape[:2]
        scale = long_side / max(height, width)
        small_w, small_h = (max(1, min(long_side, round(side * scale))) for side in (width, height))
        small = _resize(image, (small_w, small_h))
        padded_h = math.ceil(small_h / CELLS) * CELLS
        padded_w = math.ceil(small_w / CELLS) * CELLS
        padded = np.full([1, 3, padded_h, padded_w], GREY, np.float32)
        padded[0, :, :small_h, :small_w] = small.transpose(2, 0, 1)[::-1]  # blue first, 0..255
        return padded, scale

    def candidates(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        on_cpu = pixels.device.type == "cpu"
        boxes, scores = self._onnx(pixels) if on_cpu else self.net(pixels)
        return boxes[0], scores[0]
