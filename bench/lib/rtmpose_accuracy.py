"""What moves RTMPose's accuracy on real COCO images: crop scale, sub-bin decoding, flip test,
detector and its options.

    python bench/coco_accuracy.py --model rtmpose-s-halpe26

Of Halpe's 26 keypoints COCO annotates the first 17. RTMPose was trained on train2017, from which
the holdout comes: val2017 alone says how good it is, the holdout only which way of reading it is
better.
"""

import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import ccnet
from bench.lib.coco_people import Box, PeopleSet, average_precision, oks, read_set
from ccnet.heads.head import CalibrationHead
from pose2d import crops
from pose2d.crops import estimate_people
from pose2d.detect.boxes import Boxes, iou, non_maximum_suppression
from pose2d.detect.detector import DetectorOptions, load_detector
from pose2d.models import rtmpose
from pose2d.models.rtmpose import RTMPose
from pose2d.types import Prediction

NAME = "rtmpose-s-halpe26"
BATCH = 16
COCO = 17
SIZES = (256, 416, 640)  # longer side of what YOLOX-tiny gets
LEAST_SCORE = 0.05
# detector sizes and the lowest score of a box
CHOICES = (
    *(((416,), threshold) for threshold in (0.05, 0.1, 0.2, 0.3)),
    *((sizes, 0.1) for sizes in ((256,), (640,), (256, 416), (416, 640), (256, 640))),
)


class Bench:
    """RTMPose on one set."""

    def __init__(self, truth: PeopleSet, model: RTMPose) -> None:
        self.truth, self.model = truth, model

    def features(
        self, boxes: list[Box], scale: float, antialias: bool, mirror: bool = False
    ) -> tuple[Tensor, np.ndarray]:
        """Tokens [N, 26, 256] of every box, and the affine maps [N, 2, 3] from image to crop."""
        parts = [
            crops.crop_boxes(
                self.truth.images[i],
                box[None],
                self.model.input_wh,
                scale,
                self.model.crop,
                antialias,
            )
            for i, box in boxes
        ]
        pixels = torch.cat([part for part, _ in parts])
        pixels = pixels.flip(-1) if mirror else pixels
        tokens = [self.model.features(self.model.normalize(part)) for part in pixels.split(BATCH)]
        return torch.cat(tokens), np.concatenate([affine for _, affine in parts])

    def placed(self, result: Prediction, affine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keypoints [N, 17, 2] in the image and raw confidence [N, 17]."""
        xy = crops.move(crops.invert(affine), result.xy_px.double())
        return xy.numpy()[:, :COCO], result.score.numpy()[:, :COCO]

    def annotated(
        self, table: Table, scale: float, antialias: bool, refinements: tuple[str, ...], flip: bool
    ) -> None:
        plain, affine = self.features(self.truth.boxes, scale, antialias)
        mirrored = (
            self.features(self.truth.boxes, scale, antialias, mirror=True)[0] if flip else None
        )
        radius = rtmpose.MEAN_RADIUS
        for refinement in refinements:
            rtmpose.MEAN_RADIUS = (
                radius if refinement == "mean" else 0.0
            )  # "none": the highest bin itself
            rows = [("no", self.model.predict(plain))]
            if mirrored is not None:
                rows.append(("yes", self.model.predict_flip(plain, mirrored)))
            for flipped, result in rows:
                xy, confidence = self.placed(result, affine)
                similarity = oks(self.truth, xy)
                stats = 100 * average_precision(
                    self.truth, self.truth.boxes, xy, confidence.mean(1)
                )
                oracle = 100 * average_precision(self.truth, self.truth.boxes, xy, similarity)[0]
                figures = (*stats[[0, 1, 2, 5]], oracle, 100 * similarity.mean())
                words = (
                    self.truth.name,
                    f"{scale:g}",
                    "yes" if antialias else "no",
                    flipped,
                    refinement,
                )
                _add(table, *words, *(f"{value:.2f}" for value in figures))
        rtmpose.MEAN_RADIUS = radius

    def detected(self, table: Table, head: CalibrationHead) -> None:
        """Each image is looked at once in each size, and the network reads each box once, whichever size
        proposes it.
        """
        detector = load_detector("yolox-tiny")
        nms_iou = detector.options.nms_iou
        observed: dict[int, dict[int, Boxes]] = {}  # by size and image id
        cpu_ms: dict[int, float] = {}
        for size in SIZES:
            detector.options = DetectorOptions(size, LEAST_SCORE, nms_iou)
            begin = time.process_time()
            observed[size] = {
                image_id: detector.detect(image) for image_id, image in self.truth.images.items()
            }
            cpu_ms[size] = 1000 * (time.process_time() - begin) / len(self.truth.images)
        chosen = [
            {i: _together(observed, sizes, i, least, nms_iou) for i in self.truth.images}
            for sizes, least in CHOICES
        ]
        boxes = {
            image_id: np.unique(
                np.concatenate([boxes_of_size[image_id].boxes_px for boxes_of_size in chosen]),
                axis=0,
            )
            for image_id in self.truth.images
        }
        read = {
            image_id: self._read(image_id, image_boxes, head)
            for image_id, image_boxes in boxes.items()
        }
        for (sizes, least), selected_boxes in zip(CHOICES, chosen, strict=True):
            rows = [
                (image_id, int(np.flatnonzero((boxes[image_id] == box).all(1))[0]))
                for image_id, people in selected_boxes.items()
                for box in people.boxes_px
            ]
            box_score = np.concatenate([people.scores for people in selected_boxes.values()])
            xy, raw, confidence, presence = (
                np.stack([read[image_id][part][row] for image_id, row in rows]) for part in range(4)
            )
            named = [(image_id, boxes[image_id][row]) for image_id, row in rows]
            ways = (raw.mean(1), _mean_above(raw), (presence * confidence).sum(1) / presence.sum(1))
            by_way = [
                100 * average_precision(self.truth, named, xy, box_score * way)[[0, 5]]
                for way in ways
            ]
            figures = (
                *recalls(self.truth, selected_boxes),
                len(rows) / len(selected_boxes),
                *(ap for ap, _ in by_way),
                by_way[2][1],
            )
            words = (self.truth.name, " + ".join(map(str, sizes)), f"{least:g}")
            _add(
                table,
                *words,
                *(f"{value:.1f}" for value in figures),
                f"{sum(cpu_ms[size] for size in sizes):.0f}",
            )

    def _read(
        self, image_id: int, boxes_px: np.ndarray, head: CalibrationHead
    ) -> tuple[np.ndarray, ...]:
        """Keypoints [N, 17, 2], raw score, CCNet's confidence and presence [N, 17] of people in
        boxes [N, 4].
        """
        _, result = estimate_people(
            self.model, [self.truth.images[image_id]] * len(boxes_px), boxes_px
        )
        confidence, presence = head(result.features)
        return tuple(
            values.double().numpy()[:, :COCO]
            for values in (result.xy_px, result.score, confidence, presence)
        )


def _together(
    observed: dict[int, dict[int, Boxes]],
    sizes: tuple[int, ...],
    image_id: int,
    least: float,
    nms_iou: float,
) -> Boxes:
    """What a detector with these sizes and this threshold says of an image."""
    boxes = np.concatenate([observed[size][image_id].boxes_px for size in sizes])
    scores = np.concatenate([observed[size][image_id].scores for size in sizes])
    boxes = boxes[scores >= least]
    scores = scores[scores >= least]
    keep = non_maximum_suppression(boxes, scores, nms_iou)
    return Boxes(boxes[keep], scores[keep])


def recalls(truth: PeopleSet, boxes_by_image: dict[int, Boxes]) -> tuple[float, float, float]:
    """Percent of annotated people with a box at IoU 0.5: all, those under 96 px tall, the others."""
    hit = np.array(
        [
            len(boxes_by_image[i]) > 0 and iou(boxes_by_image[i].boxes_px, box[None]).max() >= 0.5
            for i, box in truth.boxes
        ],
        float,
    )
    small = np.array([box[3] - box[1] < 96 for _, box in truth.boxes])
    return 100 * hit.mean(), 100 * hit[small].mean(), 100 * hit[~small].mean()


def _mean_above(confidence: np.ndarray, threshold: float = 0.2) -> np.ndarray:
    """The mean over keypoints above the threshold, [N]: how the published evaluations score a
    person.
    """
    counts = confidence > threshold
    return np.where(counts, confidence, 0).sum(1) / np.maximum(counts.sum(1), 1)


def _add(table: Table, *cells: str) -> None:
    table.add_row(*cells)
    print("  ".join(cells), flush=True)  # a long run shows where it is


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def main(model: RTMPose, data: Path, sets: list[str], parts: list[str]) -> None:
    figures = ("AP", "AP50", "AP75", "AR")
    annotated = _table(
        "RTMPose, annotated boxes",
        "set",
        "box x",
        "antialias",
        "flip",
        "decoding",
        *figures,
        "oracle",
        "OKS",
    )
    people = (
        "recall",
        "under 96 px",
        "taller",
        "boxes",
        "AP, mean",
        "AP, mean > 0.2",
        "AP, CCNet",
        "AR, CCNet",
    )
    detected = _table(
        "RTMPose, detected boxes", "set", "detector sizes", "threshold", *people, "CPU ms"
    )
    head = ccnet.load(NAME)
    with torch.inference_mode():
        for name in sets:
            bench = Bench(read_set(data, name), model)
            if "crops" in parts:
                for scale in (1.1, 1.4):
                    bench.annotated(annotated, scale, True, ("mean",), flip=False)
                bench.annotated(annotated, 1.25, False, ("none",), flip=True)
                bench.annotated(annotated, 1.25, True, ("none", "mean"), flip=True)
            if "detector" in parts:
                bench.detected(detected, head)
    for table in (annotated, detected):
        if table.row_count:
            Console(width=150).print(table)
