"""What moves the accuracy of the embedded 2D models on real COCO images: crop, flip test, decoding,
boxes.

    python bench/coco_accuracy.py --data ../shared/data/coco

Every row is COCO's keypoint AP (pycocotools) over all images of a set. The score of a person is the
mean of the network's own confidence over its keypoints, times the box's score where the boxes are
detected. `oracle` is the AP if that score were the true OKS: what calibration could win; `OKS` is
the mean over people. The holdout decides the defaults; val2017 is only reported.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pose2d
from bench.lib import rtmpose_accuracy
from bench.lib.claim import Console, claim
from bench.lib.coco_people import (
    SETS,
    Box,
    Cropping,
    PeopleSet,
    average_precision,
    cut_all,
    oks,
    read_set,
)
from pose2d import crops
from pose2d.decode import fit_gaussian
from pose2d.detect.boxes import Boxes, iou
from pose2d.detect.detector import DetectorOptions
from pose2d.detect.multipose import MultiPose
from pose2d.models.movenet import NEARNESS, STRIDE, HeadMaps, SinglePose, cells_of
from pose2d.models.rtmpose import RTMPose
from pose2d.models.trunk import FeaturesWithTrunk
from pose2d.types import Prediction

BATCH = 32

# Decoding
# ------------------------------------------------------------------------------------------------------


def decode_published(view: HeadMaps) -> Prediction:
    """The published graph: distances from cell corners, the offset of the one best cell, no half
    pixel.
    """
    h, w = view.heat.shape[2:]
    y = torch.arange(h)[:, None]
    x = torch.arange(w)
    middle = 1 / (torch.hypot(x - w / 2, y - h / 2) + NEARNESS)
    expected = view.expected(cells_of((view.centre * middle).flatten(2).argmax(2), w))
    distance = torch.hypot(x - expected[..., 0, None, None], y - expected[..., 1, None, None])
    return _at(
        view,
        (view.heat / (distance + NEARNESS)).flatten(2).argmax(2),
        lambda cells: _offset(view, cells),
    )


def decode_peak(view: HeadMaps) -> Prediction:
    """No person prior: each heatmap's highest cell."""
    return _at(
        view, view.heat.flatten(2).argmax(2), lambda cells: _offset(view, cells) - 0.5 / STRIDE
    )


def decode_gaussian(view: HeadMaps) -> Prediction:
    """No person prior; the centre of a Gaussian fitted around each heatmap's highest cell."""
    half = 0.5 - 0.5 / STRIDE
    return _at(
        view,
        view.heat.flatten(2).argmax(2),
        lambda cells: fit_gaussian(view.heat, cells).centre_cells + half,
    )


def _offset(view: HeadMaps, cells: Tensor) -> Tensor:
    return view.votes(cells[:, :, None])[:, :, 0]


def _at(view: HeadMaps, index: Tensor, place: Callable[[Tensor], Tensor]) -> Prediction:
    score = view.heat.flatten(2).gather(2, index[..., None])[..., 0]
    return Prediction(place(cells_of(index, view.heat.shape[-1])) * STRIDE, score)


OTHER_DECODING = {
    "published": decode_published,
    "highest cell": decode_peak,
    "Gaussian fit": decode_gaussian,
}


# Rows
# ----------------------------------------------------------------------------------------------------------


class Bench:
    """One model on one set."""

    def __init__(self, truth: PeopleSet, model: SinglePose) -> None:
        self.truth, self.model = truth, model

    def measure(
        self,
        table: Table,
        mode: Cropping,
        decodings: tuple[str, ...] = ("ours",),
        flip: bool = False,
    ) -> None:
        """A row for every way of decoding the same crops, and one with the flip test."""
        trunks = self._trunks(mode, self.truth.boxes)
        for decoding in decodings:
            self._row(
                table, mode, "no", decoding, [self._decoded(trunk, decoding) for trunk in trunks]
            )
        if flip:
            pairs = zip(trunks, self._trunks(mode, self.truth.boxes, mirror=True), strict=True)
            results = [
                self.model.predict_flip(self._features(a), self._features(b)) for a, b in pairs
            ]
            self._row(table, mode, "yes", "ours", results)

    def measure_detected(self, table: Table, options: DetectorOptions) -> None:
        """A row for boxes that the detector finds."""
        detector = MultiPose(options)
        mode = Cropping(self.model.box_scale)
        begin = time.process_time()
        boxes_by_image = {
            image_id: detector.detect(image) for image_id, image in self.truth.images.items()
        }
        seconds = (time.process_time() - begin) / len(boxes_by_image)
        boxes = [
            (image_id, box)
            for image_id, people in boxes_by_image.items()
            for box in people.boxes_px
        ]
        box_score = np.concatenate([people.scores for people in boxes_by_image.values()])
        xy, confidence = self._placed(
            mode, boxes, [self._decoded(t, "ours") for t in self._trunks(mode, boxes)]
        )
        stats = average_precision(self.truth, boxes, xy, box_score * confidence.mean(1)) * 100
        recall = [100 * share for share in recalls(self.truth, boxes_by_image)]
        figures = (*recall, len(boxes) / len(boxes_by_image), *stats[[0, 1, 2, 5]])
        _add(
            table,
            self.truth.name,
            str(options.long_side),
            *(f"{v:.1f}" for v in figures),
            f"{1000 * seconds:.0f}",
        )

    def _trunks(self, mode: Cropping, boxes: list[Box], mirror: bool = False) -> list[Tensor]:
        """The maps from which all heads speak, in batches: every decoding can start from them."""
        return [features.trunk for features in self._looks(mode, boxes, mirror)]  # type: ignore[attr-defined]

    def _looks(self, mode: Cropping, boxes: list[Box], mirror: bool) -> Iterator[Tensor]:
        pixels, _ = cut_all(self.truth.images, boxes, mode, self.model.input_wh[0])
        for part in pixels.split(BATCH):
            yield self.model.features(self.model.normalize(part.flip(-1) if mirror else part))

    def _features(self, trunk: Tensor) -> FeaturesWithTrunk:
        return FeaturesWithTrunk.join(self.model.net.head("kpt_heatmap").hidden(trunk), trunk)

    def _decoded(self, trunk: Tensor, decoding: str) -> Prediction:
        if decoding == "ours":
            return self.model.predict(self._features(trunk))
        return OTHER_DECODING[decoding](HeadMaps(self.model.net, self._features(trunk), trunk))

    def _placed(
        self, mode: Cropping, boxes: list[Box], result: list[Prediction]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Keypoints [N, 17, 2] in the image, confidence [N, 17]."""
        affine = crops.affines(
            np.array([box for _, box in boxes]), self.model.input_wh, mode.scale, "square"
        )
        xy = crops.move(crops.invert(affine), torch.cat([f.xy_px for f in result]).double())
        return xy.numpy(), torch.cat([f.score for f in result]).numpy()

    def _row(
        self, table: Table, mode: Cropping, flip: str, decoding: str, result: list[Prediction]
    ) -> None:
        xy, confidence = self._placed(mode, self.truth.boxes, result)
        similarity = oks(self.truth, xy)
        stats = average_precision(self.truth, self.truth.boxes, xy, confidence.mean(1)) * 100
        oracle = average_precision(self.truth, self.truth.boxes, xy, similarity)[0] * 100
        figures = (*stats[[0, 1, 2, 5]], oracle, similarity.mean() * 100)
        crop = (f"{mode.scale:g}", mode.shown, "yes" if mode.antialias else "no", flip, decoding)
        _add(table, self.truth.name, *crop, *(f"{v:.1f}" for v in figures))


def _add(table: Table, *cells: str) -> None:
    table.add_row(*cells)
    print("  ".join(cells), flush=True)  # a long run shows where it is


def recalls(truth: PeopleSet, boxes_by_image: dict[int, Boxes]) -> tuple[float, float, float]:
    """The share of annotated people with a box at IoU 0.5: all, those under 96 px tall, the others."""
    hit = np.array(
        [
            len(boxes_by_image[image_id]) > 0
            and iou(boxes_by_image[image_id].boxes_px, box[None]).max() >= 0.5
            for image_id, box in truth.boxes
        ]
    )
    small = np.array([box[3] - box[1] < 96 for _, box in truth.boxes])
    return hit.mean(), hit[small].mean(), hit[~small].mean()


def measure_crops(bench: Bench, table: Table) -> None:
    default = bench.model.box_scale
    bench.measure(
        table, Cropping(1.25, "whole square", antialias=False), ("published",)
    )  # where this began
    for scale in (1.0, 1.1, 1.25, 1.5):
        bench.measure(table, Cropping(scale))
    bench.measure(table, Cropping(default, "box on black"))
    bench.measure(table, Cropping(default, antialias=False))
    bench.measure(table, Cropping(default, "whole square"), ("ours", "highest cell"))
    bench.measure(table, Cropping(default), ("ours", *OTHER_DECODING), flip=True)


def measure_detector(bench: Bench, table: Table) -> None:
    for size in (384, 512):
        bench.measure_detected(table, DetectorOptions(size))


def _table(title: str, words: tuple[str, ...], figures: tuple[str, ...]) -> Table:
    table = Table(title=title, header_style="bold")
    for heading in words:
        table.add_column(heading)
    for heading in figures:
        table.add_column(heading, justify="right")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared/data/coco"
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument(
        "--model",
        default="movenet-thunder",
        choices=["movenet-thunder", "movenet-lightning", "rtmpose-s-halpe26"],
    )
    parser.add_argument(
        "--checkpoint", type=Path, help="weights other than the embedded ones (RTMPose)"
    )
    parser.add_argument(
        "--parts", nargs="+", choices=["crops", "detector"], default=["crops", "detector"]
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = pose2d.load(options.model, options.checkpoint)
    if isinstance(model, RTMPose):
        rtmpose_accuracy.main(model, options.data, options.sets, options.parts)
        return
    assert isinstance(model, SinglePose)
    annotated = _table(
        f"{options.model}, annotated boxes",
        ("set", "box x", "shown", "antialias", "flip", "decoding"),
        ("AP", "AP50", "AP75", "AR", "oracle", "OKS"),
    )
    detected = _table(
        f"{options.model}, detected boxes",
        ("set", "detector sizes"),
        ("recall", "under 96 px", "taller", "boxes", "AP", "AP50", "AP75", "AR", "detector CPU ms"),
    )
    with torch.inference_mode():
        for name in options.sets:
            bench = Bench(read_set(options.data, name), model)
            if "crops" in options.parts:
                measure_crops(bench, annotated)
            if "detector" in options.parts:
                measure_detector(bench, detected)
    console = Console(width=140)
    for table in (annotated, detected):
        if table.row_count:
            console.print(table)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    claim(main)
