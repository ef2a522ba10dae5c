"""The paper's ablations: the size of the head, what it reads, and how keypoints' confidence becomes the person's."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import ccnet
import pose2d
from ccnet.coco_ap.average_precision import summarize
from ccnet.coco_ap.evaluated_people import detections, ground_truth_from_coco
from ccnet.coco_ap.matching import match
from ccnet.data.datasets import read_split, usual_split
from ccnet.metrics import calibration
from ccnet.other_features import FEATURES
from ccnet.predicted_people import predict_split
from fitmesh.paper.cells import Cells, Found
from fitmesh.paper.coco_tables import BIAS, COCO_COLUMNS, coco_figures
from fitmesh.paper.paper_request import GivenModel, PaperRequest
from fitmesh.paper.paper_table import PaperTable, Row, figures
from pose2d.base.caching import content_digest
from pose2d.base.errors import UserError
from pose2d.base.threads import check_device, default_device
from pose2d.skeletons import COCO17

WIDTHS = (0, 64, 256, 1024)  # of a hidden layer; 0: the paper's one layer
COPY_RATE = 1e-4  # a trained trunk takes small steps

# [N, K] confidence, [N, K] presence -> [N]
AGGREGATIONS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "sum(v s) / sum(v), the paper's": lambda s, v: (v * s).sum(1) / np.maximum(v.sum(1), 1e-6),
    "mean of s": lambda s, v: s.mean(1),
    "mean of s where v > 0.5": lambda s, v: np.where(v > 0.5, s, 0).sum(1) / np.maximum((v > 0.5).sum(1), 1),
    "mean of v s": lambda s, v: (v * s).mean(1),
    "geometric mean of s": lambda s, v: np.exp(np.log(np.maximum(s, 1e-6)).mean(1)),
    "largest s": lambda s, v: s.max(1),
    "mean + largest, RLE's": lambda s, v: (s.mean(1) + s.max(1)) / 2,
}


def ablations(request: PaperRequest) -> PaperTable:
    """Heads trained by the recipe but for one thing; no flip test."""
    cells = Cells(request, (COCO17,), trains=True)
    rows, left_out = [], []
    for model in cells.models:
        base, head = cells.trained(model, f"{request.recipe}-one-layer", head="paper")
        rows.append(_row(model, "", "raw confidence", base, "raw"))
        rows.append(_row(model, "", "the recipe, one layer", base))
        for width in WIDTHS[1:]:
            found, _ = cells.trained(model, f"{request.recipe}-width-{width}", head="paper", head_width=width)
            rows.append(_row(model, "head size", f"hidden layer of {width}", found))
        for kind in FEATURES[1:]:
            rate = {"learning_rate": COPY_RATE} if kind == "copy" else {}
            try:
                found, _ = cells.trained(model, f"{request.recipe}-{kind}", head="paper", features=kind, **rate)
            except UserError as error:
                left_out.append(f"{model.name}, {kind} features: {error}")
                continue
            rows.append(_row(model, "features", kind, found))
        rows += _aggregations(cells, model, head)
        rows.append(_row(model, "", "oracle", base, "oracle"))
    title = f"Ablations, {base['people']} people of {base['split']}, annotated boxes, no flip test"
    columns = ("network", "changed", "to")
    return PaperTable("ablations", title, columns, COCO_COLUMNS, tuple(rows), tuple(left_out), (BIAS,))


def _row(model: GivenModel, what: str, value: str, found: Found, source: str = "ccnet") -> Row:
    return Row((model.name, what, value), coco_figures(found["sources"][source]), {})


def _aggregations(cells: Cells, model: GivenModel, head_file: Path) -> list[Row]:
    """The head's confidence in keypoints put together in several ways."""
    found = cells.cached(
        cells.request.out / "cells" / f"aggregation-{model.name}.json",
        {"ways": list(AGGREGATIONS)},
        {"weights": model.weights, "head": content_digest([head_file]), "annotations": cells.annotations(model)},
        __name__,
        lambda: _measure_aggregations(cells.request, model, head_file),
    )
    return [Row((model.name, "aggregation", name), figures(**of), {}) for name, of in found.items()]


def _measure_aggregations(request: PaperRequest, model: GivenModel, head_file: Path) -> Found:
    """By name: the figures of COCO_COLUMNS that depend on the person's confidence."""
    device = request.device or default_device()
    check_device(device)
    network, head = pose2d.load(model.name, model.checkpoint).to(device), ccnet.load(head_file).to(device)
    split = read_split(request.data, request.test or usual_split("test", network.skeleton), network.skeleton)
    predictions = predict_split(network, head, split)
    truth = ground_truth_from_coco(split.dataset, predictions.skeleton.size)
    stated = predictions.confidence["ccnet"]
    found = {}
    for name, aggregate in AGGREGATIONS.items():
        score = aggregate(stated.keypoint, stated.presence)
        ranked = detections(predictions.image, predictions.xy_px, score)
        ap = summarize(match(truth, ranked, predictions.skeleton.oks_sigma))
        person = calibration(score, predictions.oks)
        found[name] = {
            "ap": 100 * ap.ap, "ar": 100 * ap.ar,
            "pearson_person": person.pearson, "ause": person.ause, "ece_person": person.ece,
        }  # fmt: skip
    return found
