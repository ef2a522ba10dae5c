"""YOLOX-tiny (Ge et al. 2021) as a person detector: CSPDarknet, a feature pyramid both ways, and one head per level.

The weights are OpenMMLab's, trained on COCO and Human-Art; of their 80 classes only the person's is kept.
"""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pose2d import crops
from pose2d.base.errors import UserError
from pose2d.detect.detector import DetectorInput, DetectorOptions, PersonDetector
from pose2d.models.base import compare, read_state
from pose2d.models.convolutions import Conv, CSPLayer, DarknetBlock, OnnxNetwork, SpatialPyramid, onnx_convolutions

STRIDES = (8, 16, 32)  # input pixels per cell of the three levels
WIDTHS = (96, 192, 384)  # channels of the backbone at each level (CSPDarknet's 256, 512, 1024 times 0.375)
HIDDEN = 96  # channels in the heads
CELLS = 32  # both sides of an input are multiples of this
GREY = 114  # what lies beside the image in the input
WEIGHTS = "yolox_tiny_humanart_fp16.npz"
GRAPH = "yolox_tiny.onnx"


def _layer(inputs: int, outputs: int, blocks: int, residual: bool) -> CSPLayer:
    return CSPLayer(inputs, outputs, blocks, residual, DarknetBlock, attention=False)


class Darknet(nn.Module):
    """Images [N, 3, H, W], BGR 0..255 -> maps of 96, 192 and 384 channels at strides 8, 16 and 32."""

    def __init__(self) -> None:
        super().__init__()
        # The original gathers 2x2 pixels into channels and convolves 3x3: the same sums as 6x6 at every other pixel.
        self.stem = Conv(3, 24, 6, 2)
        self.stage1 = nn.Sequential(Conv(24, 48, 3, 2), _layer(48, 48, 1, True))
        self.stage2 = nn.Sequential(Conv(48, 96, 3, 2), _layer(96, 96, 3, True))
        self.stage3 = nn.Sequential(Conv(96, 192, 3, 2), _layer(192, 192, 3, True))
        self.stage4 = nn.Sequential(Conv(192, 384, 3, 2), SpatialPyramid(384), _layer(384, 384, 1, False))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.stage1(self.stem(images.contiguous(memory_format=torch.channels_last)))
        fine = self.stage2(x)
        middle = self.stage3(fine)
        return fine, middle, self.stage4(middle)


class Pyramid(nn.Module):
    """Coarse maps inform fine ones, then fine ones inform coarse ones; each level ends with 96 channels."""

    def __init__(self) -> None:
        super().__init__()
        fine, middle, coarse = WIDTHS
        self.reduce_coarse = Conv(coarse, middle)
        self.down_middle = _layer(2 * middle, middle, 1, False)
        self.reduce_middle = Conv(middle, fine)
        self.down_fine = _layer(2 * fine, fine, 1, False)
        self.stride_fine = Conv(fine, fine, 3, 2)
        self.up_middle = _layer(2 * fine, middle, 1, False)
        self.stride_middle = Conv(middle, middle, 3, 2)
        self.up_coarse = _layer(2 * middle, coarse, 1, False)
        self.out = nn.ModuleList(Conv(width, HIDDEN) for width in WIDTHS)

    def forward(self, fine: Tensor, middle: Tensor, coarse: Tensor) -> list[Tensor]:
        coarse_in = self.reduce_coarse(coarse)
        middle_in = self.reduce_middle(self.down_middle(torch.cat([_twice(coarse_in), middle], 1)))
        fine = self.down_fine(torch.cat([_twice(middle_in), fine], 1))
        middle = self.up_middle(torch.cat([self.stride_fine(fine), middle_in], 1))
        coarse = self.up_coarse(torch.cat([self.stride_middle(middle), coarse_in], 1))
        return [layer(x) for layer, x in zip(self.out, (fine, middle, coarse), strict=True)]


def _twice(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="nearest")


class LevelHead(nn.Module):
    """What one level says of its cells: is there a person, is there anything, and where does its box reach."""

    def __init__(self) -> None:
        super().__init__()
        self.cls_convs = nn.Sequential(Conv(HIDDEN, HIDDEN, 3), Conv(HIDDEN, HIDDEN, 3))
        self.reg_convs = nn.Sequential(Conv(HIDDEN, HIDDEN, 3), Conv(HIDDEN, HIDDEN, 3))
        self.cls = Conv(HIDDEN, 1, activation="none")
        self.reg = Conv(HIDDEN, 4, activation="none")
        self.obj = Conv(HIDDEN, 1, activation="none")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map [N, 96, h, w] -> scores [N, h * w] in [0, 1] and raw boxes [N, h * w, 4]."""
        boxes = self.reg_convs(x)
        score = self.cls(self.cls_convs(x)).sigmoid() * self.obj(boxes).sigmoid()
        return score.flatten(1), self.reg(boxes).flatten(2).transpose(1, 2)


class YOLOX(nn.Module):
    """Images [N, 3, H, W] (BGR 0..255, sides multiples of 32) -> candidate boxes and scores, before suppression."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Darknet()
        self.neck = Pyramid()
        self.heads = nn.ModuleList(LevelHead() for _ in STRIDES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes [N, M, 4] (x1, y1, x2, y2 in input pixels) and scores [N, M], one for each cell of each level."""
        if images.ndim != 4 or images.shape[1] != 3 or images.shape[2] % CELLS or images.shape[3] % CELLS:
            raise UserError(
                f"images must be [N, 3, H, W] with sides in multiples of {CELLS}, got {list(images.shape)}."
            )
        boxes, scores = [], []
        for x, head, stride in zip(self.neck(*self.backbone(images)), self.heads, STRIDES, strict=True):
            score, raw = head(x)
            rows, columns = (torch.arange(side, device=x.device, dtype=x.dtype) for side in x.shape[2:])
            y, x0 = torch.meshgrid(rows, columns, indexing="ij")
            middle = raw[..., :2] + torch.stack([x0.flatten(), y.flatten()], -1)
            half = raw[..., 2:].exp() / 2
            boxes.append(torch.cat([middle - half, middle + half], -1) * stride)
            scores.append(score)
        return torch.cat(boxes, 1), torch.cat(scores, 1)

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The embedded weights as they are, or those of the published ONNX file under this module's names."""
        if not any(key.startswith("Conv.") for key in state):
            return dict(state)
        converted = onnx_convolutions(state, _onnx_order())
        if "backbone.stem.weight" in converted and tuple(converted["backbone.stem.weight"].shape[1:]) == (12, 3, 3):
            # Channels of the original: column of the 2x2 field, then row, then colour.
            gathered = converted["backbone.stem.weight"].unflatten(1, (2, 2, 3))  # [24, dx, dy, c, ky, kx]
            converted["backbone.stem.weight"] = gathered.permute(0, 3, 4, 2, 5, 1).reshape(-1, 3, 6, 6)
        return {key: value[:1] if ".cls." in key else value for key, value in converted.items()}


def _onnx_order() -> list[str]:
    """This module's convolutions in the order in which a walk from the export's outputs meets theirs."""
    with torch.device("meta"):
        names = [name for name, layer in YOLOX().named_modules() if isinstance(layer, nn.Conv2d)]

    def of(*parts: str) -> list[str]:
        return [name for part in parts for name in names if name == part or name.startswith(f"{part}.")]

    order = of("backbone", "neck.reduce_coarse", "neck.down_middle", "neck.reduce_middle", "neck.down_fine")
    before = [[], ["neck.stride_fine", "neck.up_middle"], ["neck.stride_middle", "neck.up_coarse"]]
    for level, upwards in enumerate(before):
        order += of(*upwards, f"neck.out.{level}", f"heads.{level}.reg_convs", f"heads.{level}.reg")
    for level in range(len(STRIDES)):
        order += of(f"heads.{level}.cls_convs", f"heads.{level}.cls")
    return order + [f"heads.{level}.obj" for level in range(len(STRIDES))]


def load_yolox(weights: str | Path | None = None) -> YOLOX:
    """The network with its embedded weights, or with those of the published ONNX file."""
    path = Path(str(files("pose2d") / "weights" / WEIGHTS)) if weights is None else Path(weights)
    with torch.device("meta"):
        model = YOLOX()
    model._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))
    state = model.convert(read_state(path))
    mismatch = compare(model.state_dict(), state)
    if mismatch:
        raise UserError(f"{path} does not fit YOLOX-tiny: {mismatch}.")
    model.load_state_dict(state)
    return model.eval().requires_grad_(False)


def _resized(image: np.ndarray, size_wh: tuple[int, int]) -> np.ndarray:
    """Each pixel of a smaller image is the mean of those it covers. Halving first takes half the time."""
    while image.shape[1] >= 2 * size_wh[0] and image.shape[0] >= 2 * size_wh[1]:
        image = cv2.resize(image, (image.shape[1] // 2, image.shape[0] // 2), interpolation=cv2.INTER_AREA)
    shrinks = image.shape[1] >= size_wh[0]
    return cv2.resize(image, size_wh, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


class YoloxTiny(PersonDetector):
    """YOLOX-tiny with its embedded weights."""

    defaults = DetectorOptions(long_side=416, score_threshold=0.1, nms_iou=0.65)  # size and overlap as published
    licence = "Apache-2.0; training data partly for research"

    def __init__(self, options: DetectorOptions | None = None) -> None:
        super().__init__(options)
        self.net = load_yolox()
        self._onnx = OnnxNetwork(GRAPH, self.net.state_dict())

    @staticmethod
    def prepare(image: np.ndarray, options: DetectorOptions) -> list[DetectorInput]:
        """The image in the top left corner of each input, whose sides are multiples of 32.

        The published pipeline fills a square; less grey beside the image costs less time and finds the same people.
        """
        crops.check_image(image)
        height, width = image.shape[:2]
        inputs = []
        for long_side in options.long_sides:
            scale = long_side / max(height, width)
            small_w, small_h = (max(1, min(long_side, round(side * scale))) for side in (width, height))
            small = _resized(image, (small_w, small_h))
            padded = np.full([1, 3, -(-small_h // CELLS) * CELLS, -(-small_w // CELLS) * CELLS], GREY, np.float32)
            for channel in range(3):  # blue first, 0..255
                padded[0, channel, :small_h, :small_w] = small[:, :, 2 - channel]
            inputs.append(DetectorInput(torch.from_numpy(padded), scale, (width, height)))
        return inputs

    def candidates(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        on_cpu = pixels.device.type == "cpu"
        boxes, scores = self._onnx(pixels) if on_cpu else self.net(pixels)
        return boxes[0], scores[0]
