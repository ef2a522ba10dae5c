"""What every person detector offers, and the detectors by name."""

import difflib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from pose2d.base.errors import UserError
from pose2d.detect.detector import (
    Detections,
    Detector,
    DetectorInput,
    DetectorOptions,
    detector_inputs,
    non_maximum_suppression,
)


class PersonDetector(Protocol):
    """A network that finds people in what the `prepare` of its card made of an image."""

    options: DetectorOptions

    def find(self, inputs: Sequence[DetectorInput]) -> Detections: ...

    def detect(self, image: np.ndarray) -> Detections: ...


class CandidateDetector(nn.Module):
    """A detector whose network gives overlapping boxes at each size: the surest of them stay."""

    def __init__(
        self, options: DetectorOptions, prepare: Callable[[np.ndarray, DetectorOptions], list[DetectorInput]]
    ) -> None:
        super().__init__()
        self.options, self.prepare = options, prepare

    @abstractmethod
    def candidates(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """An input [1, 3, h, w] -> boxes [M, 4] in its pixels and scores [M]."""

    def detect(self, image: np.ndarray) -> Detections:
        """People in an RGB uint8 image [H, W, 3]."""
        return self.find(self.prepare(image, self.options))

    @torch.inference_mode()
    def find(self, inputs: Sequence[DetectorInput]) -> Detections:
        """People in one image, from its inputs at every size."""
        device = next(self.parameters()).device
        found = [self._in_image(one, *self.candidates(one.pixels.to(device))) for one in inputs]
        boxes, scores = (np.concatenate(parts) for parts in zip(*found, strict=True))
        keep = non_maximum_suppression(boxes, scores, self.options.nms_iou)[: self.options.most_people]
        return Detections(boxes[keep], scores[keep])

    def _in_image(self, one: DetectorInput, boxes: Tensor, scores: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The likely candidates that lie in the image: boxes [M, 4] in its pixels, scores [M]."""
        likely = scores >= self.options.score_threshold
        boxes_px = (boxes[likely].cpu().double().numpy() / one.scale).clip(0, np.array(one.image_wh * 2))
        real = (boxes_px[:, 2:] > boxes_px[:, :2]).all(1)
        return boxes_px[real], scores[likely].cpu().numpy()[real]


@dataclass(frozen=True)
class DetectorCard:
    """One name that `load_detector` knows."""

    name: str
    defaults: DetectorOptions
    prepare: Callable[
        [np.ndarray, DetectorOptions], list[DetectorInput]
    ]  # NumPy only: may run ahead, in another thread
    load: Callable[[DetectorOptions], PersonDetector]
    licence: str


def _cards() -> dict[str, DetectorCard]:
    from pose2d.detect import yolox

    cards = (
        DetectorCard(
            name="yolox-tiny",
            defaults=yolox.DEFAULTS,
            prepare=yolox.letterboxes,
            load=yolox.YoloxDetector,
            licence="Apache-2.0; training data partly for research",
        ),
        DetectorCard(
            name="multipose", defaults=DetectorOptions(), prepare=detector_inputs, load=Detector, licence="Apache-2.0"
        ),
    )
    return {card.name: card for card in cards}


def detector_names() -> list[str]:
    """Every detector, the default first."""
    return list(_cards())


def detector_card(name: str) -> DetectorCard:
    """What is known of one detector."""
    cards = _cards()
    if name not in cards:
        close = difflib.get_close_matches(name, cards, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise UserError(f"unknown detector {name!r}.{hint} There are {' and '.join(cards)}.")
    return cards[name]


def load_detector(name: str, options: DetectorOptions | None = None) -> PersonDetector:
    """The detector of that name with its embedded weights, and its own defaults where no options are given."""
    card = detector_card(name)
    return card.load(options or card.defaults)
