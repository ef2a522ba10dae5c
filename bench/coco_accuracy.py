"""What moves the accuracy of the embedded 2D models on real COCO pictures: crop, flip test, decoding, boxes.

    python bench/coco_accuracy.py --data ../shared/data/coco

Every row is COCO's keypoint AP (pycocotools) over all pictures of a set. The score of a person is the mean of the
network's own confidence over its keypoints, times the box's score where the boxes are detected. `oracle` is the AP
if that score were the true OKS: what calibration could win; `OKS` is the mean over people.
The holdout decides the defaults; val2017 is only reported.
"""

import argparse
import contextlib
import io
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from rich.console import Console
from rich.table import Table
from torch import Tensor

import pose2d
from pose2d import crops
from pose2d.detector import Detections, Detector, DetectorOptions, iou
from pose2d.gaussian_fit import fit_gaussian
from pose2d.models.movenet import SinglePose
from pose2d.models.movenet_decode import NEARNESS, View
from pose2d.models.movenet_features import MoveNetFeatures
from pose2d.models.movenet_network import STRIDE, cells_of
from pose2d.types import Prediction

SETS = {
    "val2017": ("person_keypoints_val2017.json", "val2017"),
    "holdout": ("person_keypoints_train2017_256_holdout.json", "train2017_256"),
}
Box = tuple[int, np.ndarray]  # image id; x1, y1, x2, y2


@dataclass(frozen=True)
class PeopleSet:
    """Pictures with annotated people, decoded once."""

    name: str
    coco: COCO
    pictures: dict[int, np.ndarray]  # RGB by image id
    people: list[dict]  # annotations with at least one keypoint
    boxes: list[Box]  # of `people`


def quiet() -> contextlib.redirect_stdout:
    return contextlib.redirect_stdout(io.StringIO())


def read_set(data: Path, name: str) -> PeopleSet:
    annotations, folder = SETS[name]
    with quiet():
        coco = COCO(str(data / "annotations" / annotations))
    pictures = {}
    for image in coco.imgs.values():
        picture = cv2.imread(str(data / "images" / folder / image["file_name"]), cv2.IMREAD_COLOR)[:, :, ::-1]
        size = (image["width"], image["height"])
        if picture.shape[1::-1] != size:  # stored squashed
            picture = cv2.resize(np.ascontiguousarray(picture), size, interpolation=cv2.INTER_LINEAR)
        pictures[image["id"]] = np.ascontiguousarray(picture)
    people = [a for a in coco.anns.values() if a["num_keypoints"] > 0 and not a["iscrowd"]]
    people.sort(key=lambda person: person["image_id"])
    return PeopleSet(name, coco, pictures, people, [(p["image_id"], corners(p["bbox"])) for p in people])


def corners(xywh: list[float]) -> np.ndarray:
    x, y, w, h = xywh
    return np.array([x, y, x + w, y + h])


# Crops ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cropping:
    """How boxes become crops."""

    scale: float
    shown: str = "box on grey"  # or "box on black", "whole square"
    antialias: bool = True

    def __str__(self) -> str:
        return f"x{self.scale:<4g} {self.shown:12s} {'antialiased' if self.antialias else 'plain'}"

    def cut(self, picture: np.ndarray, boxes: np.ndarray, side: int) -> tuple[Tensor, np.ndarray]:
        if self.shown == "whole square":  # what the published demo feeds
            affine = crops.affines(boxes, (side, side), self.scale, "sbl")
            return crops.cut(picture, affine, (side, side), self.antialias), affine
        pixels, affine = crops.crop_boxes(picture, boxes, (side, side), self.scale, "square", self.antialias)
        if self.shown == "box on black":
            grey = (pixels == crops.GREY).all(1, keepdim=True)
            pixels = pixels.masked_fill(grey, 0)
        return pixels, affine


def cut_all(pictures: dict[int, np.ndarray], boxes: list[Box], how: Cropping, side: int) -> tuple[Tensor, np.ndarray]:
    parts = [how.cut(pictures[image], box[None], side) for image, box in boxes]
    return torch.cat([pixels for pixels, _ in parts]), np.concatenate([affine for _, affine in parts])


# Decoding ------------------------------------------------------------------------------------------------------


def decode_published(view: View) -> Prediction:
    """The published graph: distances from cell corners, the offset of the one best cell, no half pixel."""
    h, w = view.heat.shape[2:]
    y, x = torch.arange(h)[:, None], torch.arange(w)
    middle = 1 / (torch.hypot(x - w / 2, y - h / 2) + NEARNESS)
    expected = view.expected(cells_of((view.centre * middle).flatten(2).argmax(2), w))
    distance = torch.hypot(x - expected[..., 0, None, None], y - expected[..., 1, None, None])
    return _at(view, (view.heat / (distance + NEARNESS)).flatten(2).argmax(2), lambda cells: _offset(view, cells))


def decode_peak(view: View) -> Prediction:
    """No person prior: each heatmap's highest cell."""
    return _at(view, view.heat.flatten(2).argmax(2), lambda cells: _offset(view, cells) - 0.5 / STRIDE)


def decode_gaussian(view: View) -> Prediction:
    """No person prior; the centre of a Gaussian fitted around each heatmap's highest cell."""
    half = 0.5 - 0.5 / STRIDE
    return _at(view, view.heat.flatten(2).argmax(2), lambda cells: fit_gaussian(view.heat, cells).centre_cells + half)


def _offset(view: View, cells: Tensor) -> Tensor:
    return view.votes(cells[:, :, None])[:, :, 0]


def _at(view: View, index: Tensor, place: Callable[[Tensor], Tensor]) -> Prediction:
    score = view.heat.flatten(2).gather(2, index[..., None])[..., 0]
    return Prediction(place(cells_of(index, view.heat.shape[-1])) * STRIDE, score)


# Evaluation ----------------------------------------------------------------------------------------------------


def average_precision(truth: PeopleSet, boxes: list[Box], xy: np.ndarray, score: np.ndarray) -> np.ndarray:
    """COCO's ten keypoint figures: AP, AP50, AP75, APm, APl, AR, ..."""
    ones = np.ones((xy.shape[1], 1))
    results = [
        {"image_id": image, "category_id": 1, "keypoints": np.hstack([k, ones]).ravel().tolist(), "score": float(s)}
        for (image, _), k, s in zip(boxes, xy, score, strict=True)
    ]
    with quiet():
        evaluation = COCOeval(truth.coco, truth.coco.loadRes(results), "keypoints")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats


def oks(truth: PeopleSet, xy: np.ndarray) -> np.ndarray:
    """OKS of each annotated person, [N]."""
    keypoints = np.array([person["keypoints"] for person in truth.people], float).reshape(-1, 17, 3)
    area = np.array([person["area"] for person in truth.people])
    distance2 = ((xy - keypoints[..., :2]) ** 2).sum(-1)
    similarity = np.exp(-distance2 / (2 * pose2d.COCO17.oks_variance * area[:, None]))
    return np.where(keypoints[..., 2] > 0, similarity, np.nan).mean(1, where=keypoints[..., 2] > 0)


class Bench:
    """One model on one set; features are computed once per way of cropping."""

    def __init__(self, truth: PeopleSet, model: SinglePose) -> None:
        self.truth, self.model = truth, model
        self.kept: dict[tuple[Cropping, bool], Tensor] = {}

    def features(self, how: Cropping, boxes: list[Box], mirror: bool) -> Iterator[Tensor]:
        pixels, _ = cut_all(self.truth.pictures, boxes, how, self.model.input_wh[0])
        for part in pixels.split(32):
            yield self.model.features(self.model.normalize(part.flip(-1) if mirror else part))

    def kept_features(self, how: Cropping, mirror: bool) -> Tensor:
        """The trunk maps of the annotated boxes (all else follows from them), kept for the next row."""
        if (how, mirror) not in self.kept:
            parts = self.features(how, self.truth.boxes, mirror)
            self.kept[how, mirror] = torch.cat([part.trunk for part in parts])  # type: ignore[attr-defined]
        return self.kept[how, mirror]

    def forget(self) -> None:
        self.kept.clear()

    def predictions(self, how: Cropping, flip: bool, decode: str) -> tuple[np.ndarray, np.ndarray]:
        """Keypoints [N, 17, 2] in the picture, confidence [N, 17]."""
        hidden = self.model.net.head("kpt_heatmap").hidden
        other = {"published": decode_published, "peak": decode_peak, "gaussian": decode_gaussian}
        found = []
        for number, trunk in enumerate(self.kept_features(how, False).split(32)):
            features = MoveNetFeatures.join(hidden(trunk), trunk)
            if flip:
                mirrored = self.kept_features(how, True)[32 * number : 32 * number + 32]
                found.append(self.model.predict_flip(features, MoveNetFeatures.join(hidden(mirrored), mirrored)))
            elif decode == "ours":
                found.append(self.model.predict(features))
            else:
                found.append(other[decode](self.model._view(features)))
        side = self.model.input_wh[0]
        boxes = np.array([box for _, box in self.truth.boxes])
        back = crops.invert(crops.affines(boxes, (side, side), how.scale, "square"))
        xy = crops.move(back, torch.cat([f.xy_px for f in found]).double())
        return xy.numpy(), torch.cat([f.score for f in found]).numpy()

    def row(self, table: Table, how: Cropping, flip: bool = False, decode: str = "ours", note: str = "") -> None:
        xy, confidence = self.predictions(how, flip, decode)
        similarity = oks(self.truth, xy)
        stats = average_precision(self.truth, self.truth.boxes, xy, confidence.mean(1)) * 100
        oracle = average_precision(self.truth, self.truth.boxes, xy, similarity)[0] * 100
        figures = (*stats[[0, 1, 2, 5]], oracle, similarity.mean() * 100)
        cells = (self.truth.name, str(how), "yes" if flip else "no", decode, *(f"{v:.1f}" for v in figures), note)
        table.add_row(*cells)
        print("  ".join(cells), flush=True)  # long runs show where they are

    def with_detected_boxes(self, table: Table, options: DetectorOptions) -> None:
        detector = Detector(options)
        begin = time.process_time()
        found = {image: detector.detect(picture) for image, picture in self.truth.pictures.items()}
        seconds = (time.process_time() - begin) / len(found)
        boxes = [(image, box) for image, people in found.items() for box in people.boxes_px]
        box_score = np.concatenate([people.scores for people in found.values()])
        how = Cropping(self.model.box_scale)
        parts = [self.model.predict(part) for part in self.features(how, boxes, False)]
        affine = crops.affines(np.array([box for _, box in boxes]), self.model.input_wh, how.scale, "square")
        xy = crops.move(crops.invert(affine), torch.cat([part.xy_px for part in parts]).double()).numpy()
        mean = torch.cat([part.score for part in parts]).mean(1).numpy()
        stats = average_precision(self.truth, boxes, xy, box_score * mean) * 100
        recall = recalls(self.truth, found)
        cells = (
            self.truth.name, " + ".join(map(str, options.long_sides)), f"{options.score_threshold:g}",
            *(f"{100 * r:.1f}" for r in recall), f"{len(boxes) / len(found):.1f}",
            *(f"{v:.1f}" for v in stats[[0, 1, 2, 5]]), f"{1000 * seconds:.0f}",
        )  # fmt: skip
        table.add_row(*cells)
        print("  ".join(cells), flush=True)


def recalls(truth: PeopleSet, found: dict[int, Detections]) -> tuple[float, float, float]:
    """The share of annotated people with a box at IoU 0.5: all, those under 96 px tall, the others."""
    hit = np.array(
        [len(found[image]) > 0 and iou(found[image].boxes_px, box[None]).max() >= 0.5 for image, box in truth.boxes]
    )
    small = np.array([box[3] - box[1] < 96 for _, box in truth.boxes])
    return hit.mean(), hit[small].mean(), hit[~small].mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared/data/coco")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--model", default="movenet-thunder", choices=["movenet-thunder", "movenet-lightning"])
    parser.add_argument("--parts", nargs="+", choices=["crops", "decoding", "detector"], default=None)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    parts = options.parts or ["crops", "decoding", "detector"]
    console = Console(width=160)
    model = pose2d.load(options.model)
    keypoints = Table(title=f"{options.model}, annotated boxes", header_style="bold")
    for heading in ("set", "crop", "flip", "decoding", "AP", "AP50", "AP75", "AR", "oracle", "OKS", ""):
        keypoints.add_column(heading, justify="right" if heading in ("AP", "AP50", "AP75", "AR") else "left")
    detected = Table(title=f"{options.model}, detected boxes", header_style="bold")
    for heading in (
        "set", "sizes", "threshold", "recall", "under 96 px", "taller", "boxes", "AP", "AP50", "AP75", "AR", "CPU ms",
    ):  # fmt: skip
        detected.add_column(heading, justify="left" if heading == "set" else "right")
    with torch.inference_mode():
        for name in options.sets:
            bench = Bench(read_set(options.data, name), model)
            if "crops" in parts:
                measure_crops(bench, keypoints)
            if "decoding" in parts:
                measure_decoding(bench, keypoints)
            if "detector" in parts:
                for size, second in ((256, None), (384, None), (512, None), (640, None), (256, 384), (256, 512)):
                    bench.with_detected_boxes(detected, DetectorOptions(size, second, score_threshold=0.1))
    for table in (keypoints, detected):
        if table.row_count:
            console.print(table)
    console.print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def measure_crops(bench: Bench, table: Table) -> None:
    for scale in (1.0, 1.1, 1.2, 1.25, 1.5):
        for antialias in (True, False):
            for flip in (False, True):
                bench.row(table, Cropping(scale, antialias=antialias), flip)
            bench.forget()
        for shown in ("whole square", "box on black"):
            bench.row(table, Cropping(scale, shown))
            bench.forget()
    bench.row(table, Cropping(1.25, "whole square", False), decode="published", note="where this began")
    bench.forget()


def measure_decoding(bench: Bench, table: Table) -> None:
    for shown in ("box on grey", "whole square"):
        for decode in ("ours", "published", "peak", "gaussian"):
            bench.row(table, Cropping(bench.model.box_scale, shown), decode=decode)
        bench.forget()


if __name__ == "__main__":
    main()
