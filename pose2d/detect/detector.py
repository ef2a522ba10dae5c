"""Person detectors behind one interface, by name."""

import difflib
from abc import abstractmethod
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from pose2d import crops
from pose2d.base.errors import OptionError, UserError
from pose2d.detect.boxes import Boxes, non_maximum_suppression


@dataclass(frozen=True)
class DetectorOptions:
    """Options of a detector. Every detector has its own defaults; bench/coco_accuracy.py measures
    what they cost.
    """

    long_side: int = 512  # pixels the image's longer side is resized to, a multiple of 32
    score_threshold: float = 0.2  # higher: fewer boxes, more of them right
    # Of two boxes that overlap by more than this, only the one with the higher score is kept.
    nms_iou: float = 0.6
    most_people: int = 100  # MultiPose: candidates at each size

    def __post_init__(self) -> None:
        if self.long_side < 32 or self.long_side % 32:
            raise UserError(
                f"the detector's size must be a positive multiple of 32, got {self.long_side}."
            )


class PersonDetector(nn.Module):
    """What every detector offers; `load_detector` makes one by name."""

    defaults: ClassVar[DetectorOptions]
    licence: ClassVar[str]  # of the weights

    def __init__(self, options: DetectorOptions | None = None) -> None:
        super().__init__()
        self.options = options or self.defaults

    @staticmethod
    @abstractmethod
    def prepare(image: np.ndarray, long_side: int) -> tuple[np.ndarray, float]:
        """Return the network's input [1, 3, h, w] for an RGB uint8 image [H, W, 3], and the size of
        an image pixel in input pixels.
        """

    @abstractmethod
    def candidates(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes [M, 4] in pixels of an input [1, 3, h, w], which may overlap, and scores
        [M].
        """

    @torch.inference_mode()
    def detect(self, image: np.ndarray) -> Boxes:
        """Return the people in an RGB uint8 image [H, W, 3]."""
        crops.check_image(image)
        pixels, scale = self.prepare(image, self.options.long_side)
        device = next(self.parameters()).device
        boxes, scores = self.candidates(torch.from_numpy(pixels).to(device))
        likely = scores >= self.options.score_threshold
        boxes_px = boxes[likely].cpu().double().numpy() / scale
        boxes_px = boxes_px.clip(0, np.array(image.shape[1::-1] * 2))
        is_inside = (boxes_px[:, 2:] > boxes_px[:, :2]).all(1)
        boxes_px = boxes_px[is_inside]
        score = scores[likely].cpu().numpy()[is_inside]
        keep = non_maximum_suppression(boxes_px, score, self.options.nms_iou)
        return Boxes(boxes_px[keep], score[keep])


# Module and class of each detector, the default first.
DETECTORS = {
    "yolox-tiny": ("yolox", "YoloxTiny"),
    "multipose": ("multipose", "MultiPose"),
}


def detector_class(name: str) -> type[PersonDetector]:
    """Return the class of a detector with its `defaults` and `licence`, without loading weights."""
    if name not in DETECTORS:
        close = difflib.get_close_matches(name, DETECTORS, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        choices = " or ".join(DETECTORS)
        raise OptionError(f"--detector must be {choices}; got {name!r}.{hint}")
    module, class_name = DETECTORS[name]
    return getattr(import_module(f"pose2d.detect.{module}"), class_name)


def load_detector(name: str, options: DetectorOptions | None = None) -> PersonDetector:
    """Return a detector with its embedded weights; options default to the detector's own."""
    return detector_class(name)(options)
