"""Where people are: detectors behind one interface, or boxes that were given.

The default is YOLOX-tiny (Ge et al. 2021): CSPDarknet, a feature pyramid both ways, and one head
per level. The weights are OpenMMLab's, trained on COCO and Human-Art; of their 80 classes only the
person's is kept."""

import difflib
from abc import abstractmethod
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import ClassVar

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pose2d import crops
from pose2d.base.errors import UserError
from pose2d.base.json_files import read_json
from pose2d.models.checkpoints import WEIGHTS, read_state, unfilled
from pose2d.models.convolutions import Conv, CSPLayer, OnnxNetwork, SpatialPyramid

COCO_PERSON = 1  # category of a person in COCO's files
FARTHEST_PX = 1e7  # of a box that was given: no image is so large


@dataclass(frozen=True)
class Boxes:
    """People found in one image, highest score first."""

    boxes_px: np.ndarray  # [N, 4] x1, y1, x2, y2 in the image
    scores: np.ndarray  # [N] in [0, 1]

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True)
class DetectorOptions:
    """Every choice a detector leaves open; each has its own defaults. bench/coco_accuracy.py shows
    what they cost.
    """

    long_side: int = 512  # pixels the image's longer side is resized to, a multiple of 32
    score_threshold: float = 0.2  # higher: fewer boxes, more of them right
    nms_iou: float = (
        0.6  # of two boxes that overlap more than this, the one with the higher score stays
    )
    most_people: int = 100  # MultiPose: candidates at each size

    def __post_init__(self) -> None:
        if self.long_side < 32 or self.long_side % 32:
            raise UserError(
                f"the detector's size must be a positive multiple of 32, got {self.long_side}."
            )


class PersonDetector(nn.Module):
    """What every detector offers. Names: `load_detector`."""

    defaults: ClassVar[DetectorOptions]
    licence: ClassVar[str]  # of the weights

    def __init__(self, options: DetectorOptions | None = None) -> None:
        super().__init__()
        self.options = options or self.defaults

    @staticmethod
    @abstractmethod
    def prepare(image: np.ndarray, long_side: int) -> tuple[np.ndarray, float]:
        """An RGB uint8 image [H, W, 3] at one size: what `candidates` takes, [1, 3, h, w], and how
        many of its pixels make a pixel of the image."""

    @abstractmethod
    def candidates(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """One input [1, 3, h, w] -> boxes [M, 4] in its pixels, which may overlap, and scores [M]."""

    @torch.inference_mode()
    def detect(self, image: np.ndarray) -> Boxes:
        """People in an RGB uint8 image [H, W, 3]."""
        crops.check_image(image)
        pixels, scale = self.prepare(image, self.options.long_side)
        boxes, scores = self.candidates(torch.from_numpy(pixels).to(next(self.parameters()).device))
        likely = scores >= self.options.score_threshold
        boxes_px = (boxes[likely].cpu().double().numpy() / scale).clip(
            0, np.array(image.shape[1::-1] * 2)
        )
        inside = (boxes_px[:, 2:] > boxes_px[:, :2]).all(1)
        boxes_px = boxes_px[inside]
        score = scores[likely].cpu().numpy()[inside]
        keep = non_maximum_suppression(boxes_px, score, self.options.nms_iou)
        return Boxes(boxes_px[keep], score[keep])


DETECTORS = {
    "yolox-tiny": ("detector", "YoloxTiny"),
    "multipose": ("multipose", "MultiPose"),
}  # the default first


def detector_class(name: str) -> type[PersonDetector]:
    """The detector of that name: its `defaults` and its `licence`, without its weights."""
    if name not in DETECTORS:
        close = difflib.get_close_matches(name, DETECTORS, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise UserError(f"unknown detector {name!r}.{hint} There are {' and '.join(DETECTORS)}.")
    module, class_name = DETECTORS[name]
    return getattr(import_module(f"pose2d.detect.{module}"), class_name)


def load_detector(name: str, options: DetectorOptions | None = None) -> PersonDetector:
    """The detector of that name with its embedded weights, and its own defaults where no options
    are given.
    """
    return detector_class(name)(options)


def intersection(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Area that every box of a [N, 4] shares with every box of b [M, 4]: [N, M]."""
    first = np.maximum(a[:, None, :2], b[:, :2])
    last = np.minimum(a[:, None, 2:], b[:, 2:])
    return np.asarray((last - first).clip(0).prod(-1))


def iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of every box of a [N, 4] with every box of b [M, 4]: [N, M]."""
    both = intersection(a, b)
    area_a, area_b = ((boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (a, b))
    return both / np.maximum(area_a[:, None] + area_b - both, 1e-12)


def non_maximum_suppression(boxes: np.ndarray, scores: np.ndarray, limit: float) -> np.ndarray:
    """Indices to keep, highest score first: a box goes when it overlaps a kept one by more than
    `limit`.
    """
    order = np.argsort(-scores, kind="stable")
    overlap = iou(boxes, boxes)
    keep: list[int] = []
    for index in order:
        if not (overlap[index, keep] > limit).any():
            keep.append(int(index))
    return np.array(keep, int)


def whole_image(image: np.ndarray) -> Boxes:
    """One box around everything, for an image that is already a crop of one person."""
    height, width = image.shape[:2]
    return Boxes(np.array([[0.0, 0.0, width, height]]), np.ones(1))


def read_detections(path: str | Path) -> dict[int, Boxes]:
    """Person boxes by image id, from a COCO-detections json: [{image_id, category_id, bbox: [x, y,
    w, h], score}].
    """
    content = read_json(
        path,
        "Expected a list of detections in COCO's results format: image_id, bbox [x, y, w, h], score.",
    )
    rows: dict[int, list[tuple[float, ...]]] = {}
    for entry in content.items():
        if entry.get("category_id", COCO_PERSON).integer() != COCO_PERSON:
            continue
        x, y, w, h = entry.item("bbox").finite_numbers(4).tolist()
        if max(map(abs, (x, y, w, h))) > FARTHEST_PX:
            raise entry.item("bbox").refuse("is farther away than any image is large")
        try:
            crops.check_boxes(np.array([[x, y, x + w, y + h]]))
        except UserError as error:
            raise entry.item("bbox").refuse(f"is no box ({error})") from error
        people = rows.setdefault(entry.item("image_id").integer(), [])
        people.append((x, y, x + w, y + h, entry.get("score", 1.0).number()))
    best_first = {
        image: np.array(sorted(people, key=lambda row: -row[4])) for image, people in rows.items()
    }
    return {image: Boxes(people[:, :4], people[:, 4]) for image, people in best_first.items()}


STRIDES = (8, 16, 32)  # input pixels per cell of the three levels
WIDTHS = (
    96,
    192,
    384,
)  # channels of the backbone at each level (CSPDarknet's 256, 512, 1024 times 0.375)
HIDDEN = 96  # channels in the heads
CELLS = 32  # both sides of an input are multiples of this
GREY = 114  # what lies beside the image in the input
YOLOX_WEIGHTS, YOLOX_GRAPH = "yolox_tiny_humanart_fp16.npz", "yolox_tiny.onnx"


class Darknet(nn.Module):
    """Images [N, 3, H, W], BGR 0..255 -> maps of 96, 192 and 384 channels at strides 8, 16 and 32."""

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
    """Coarse maps inform fine ones, then fine ones inform coarse ones; each level ends with 96
    channels.
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
        middle_in = self.reduce_middle(
            self.down_middle(
                torch.cat([F.interpolate(coarse_in, scale_factor=2, mode="nearest"), middle], 1)
            )
        )
        fine = self.down_fine(
            torch.cat([F.interpolate(middle_in, scale_factor=2, mode="nearest"), fine], 1)
        )
        middle = self.up_middle(torch.cat([self.stride_fine(fine), middle_in], 1))
        coarse = self.up_coarse(torch.cat([self.stride_middle(middle), coarse_in], 1))
        return [layer(x) for layer, x in zip(self.out, (fine, middle, coarse), strict=True)]


class LevelHead(nn.Module):
    """What one level says of its cells: is there a person, is there anything, and where does its
    box reach.
    """

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
    """Images [N, 3, H, W] (BGR 0..255, sides multiples of 32) -> candidate boxes and scores, before
    suppression.
    """

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Darknet()
        self.neck = Pyramid()
        self.heads = nn.ModuleList(LevelHead() for _ in STRIDES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes [N, M, 4] (x1, y1, x2, y2 in input pixels) and scores [N, M], one for each cell of
        each level.
        """
        if (
            images.ndim != 4
            or images.shape[1] != 3
            or images.shape[2] % CELLS
            or images.shape[3] % CELLS
        ):
            raise UserError(
                f"images must be [N, 3, H, W] with sides in multiples of {CELLS}, got {list(images.shape)}."
            )
        boxes = []
        scores = []
        for x, head, stride in zip(
            self.neck(*self.backbone(images)), self.heads, STRIDES, strict=True
        ):
            score, raw = head(x)
            rows, columns = (
                torch.arange(side, device=x.device, dtype=x.dtype) for side in x.shape[2:]
            )
            y, x0 = torch.meshgrid(rows, columns, indexing="ij")
            middle = raw[..., :2] + torch.stack([x0.flatten(), y.flatten()], -1)
            half = raw[..., 2:].exp() / 2
            boxes.append(torch.cat([middle - half, middle + half], -1) * stride)
            scores.append(score)
        return torch.cat(boxes, 1), torch.cat(scores, 1)


def load_yolox() -> YOLOX:
    """The network with its embedded weights."""
    model = unfilled(YOLOX)
    model.load_state_dict(read_state(WEIGHTS / YOLOX_WEIGHTS))
    return model.eval().requires_grad_(False)


def _resized(image: np.ndarray, size_wh: tuple[int, int]) -> np.ndarray:
    """Each pixel of a smaller image is the mean of those it covers. Halving first takes half the
    time.
    """
    while image.shape[1] >= 2 * size_wh[0] and image.shape[0] >= 2 * size_wh[1]:
        image = cv2.resize(
            image, (image.shape[1] // 2, image.shape[0] // 2), interpolation=cv2.INTER_AREA
        )
    shrinks = image.shape[1] >= size_wh[0]
    return cv2.resize(image, size_wh, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


class YoloxTiny(PersonDetector):
    """YOLOX-tiny with its embedded weights."""

    defaults = DetectorOptions(
        long_side=416, score_threshold=0.1, nms_iou=0.65
    )  # size and overlap as published
    licence = "Apache-2.0; training data partly for research"

    def __init__(self, options: DetectorOptions | None = None) -> None:
        super().__init__(options)
        self.net = load_yolox()
        self._onnx = OnnxNetwork(YOLOX_GRAPH, self.net.state_dict())

    @staticmethod
    def prepare(image: np.ndarray, long_side: int) -> tuple[np.ndarray, float]:
        """The image in the top left corner of the input, whose sides are multiples of 32. The
        published pipeline fills a square; less grey beside the image costs less time and finds the
        same people."""
        height, width = image.shape[:2]
        scale = long_side / max(height, width)
        small_w, small_h = (max(1, min(long_side, round(side * scale))) for side in (width, height))
        small = _resized(image, (small_w, small_h))
        padded = np.full(
            [1, 3, -(-small_h // CELLS) * CELLS, -(-small_w // CELLS) * CELLS], GREY, np.float32
        )
        padded[0, :, :small_h, :small_w] = small.transpose(2, 0, 1)[::-1]  # blue first, 0..255
        return padded, scale

    def candidates(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        on_cpu = pixels.device.type == "cpu"
        boxes, scores = self._onnx(pixels) if on_cpu else self.net(pixels)
        return boxes[0], scores[0]
