"""The paper's ablations: the size of CCNet, its input features, and how keypoints make a person."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ccnet
import pose2d
from ccnet.coco_ap.average_precision import evaluate
from ccnet.coco_ap.matching import detections
from ccnet.data.datasets import read_split, usual_split
from ccnet.metrics import calibration
from ccnet.paper.other_features import FEATURES
from ccnet.predicted_people import predict_split
from fitmesh.paper.cells import Cells, Found, GivenModel, PaperRequest
from fitmesh.paper.coco_tables import BIAS, COCO_COLUMNS, GAIN, coco_row
from fitmesh.paper.table import PaperTable, Row, figures
from pose2d.base.caching import content_digest
from pose2d.base.errors import UserError
from pose2d.base.threads import check_device, default_device
from pose2d.skeletons import COCO17

WIDTHS = (64, 256, 1024)  # of a hidden layer; the paper's head has none
COPY_RATE = 1e-4  # a trained trunk takes small steps
PRESENCE_WEIGHTS = (0.0, 0.2)  # lambda beside the paper's 0.02
THRESHOLDS = (0.1, 0.2, 0.3, 0.5)  # tau of Eq. 5

# [N, K] confidence, presence, true presence -> [N]
Aggregate = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def weighted_mean(s: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return sum(w s) / sum(w) over keypoints, [N, K] -> [N]; 0 where all weights are 0."""
    return (weight * s).sum(1) / np.maximum(weight.sum(1), 1e-6)


def mean_above(threshold: float) -> Aggregate:
    """Return the aggregation of Eq. 5: the mean over keypoints whose confidence is above tau."""
    return lambda s, v, true: weighted_mean(s, s > threshold)


AGGREGATIONS: Mapping[str, Aggregate] = {
    "sum(v s) / sum(v), the paper's": lambda s, v, true: weighted_mean(s, v),
    "true visibility as v": lambda s, v, true: weighted_mean(s, true),
    "mean of s": lambda s, v, true: s.mean(1),
    **{f"mean of s where s > {tau} (Eq. 5)": mean_above(tau) for tau in THRESHOLDS},
    "mean of s where v > 0.5": lambda s, v, true: weighted_mean(s, v > 0.5),
    "mean of v s": lambda s, v, true: (v * s).mean(1),
    "geometric mean of s": lambda s, v, true: np.exp(np.log(np.maximum(s, 1e-6)).mean(1)),
    "largest s": lambda s, v, true: s.max(1),
    "mean + largest, RLE's": lambda s, v, true: (s.mean(1) + s.max(1)) / 2,
}


def make_ablations(request: PaperRequest) -> PaperTable:
    """Compare heads trained by the recipe with one change each; no flip test."""
    cells = Cells(request, (COCO17,), trains=True)
    rows: list[Row] = []
    left_out: list[str] = []
    for model in cells.models:
        base, head = cells.trained(model, f"{request.recipe}-one-layer", head="paper")
        rows.append(coco_row((model.name, "", "raw confidence"), base, "raw"))
        rows.append(coco_row((model.name, "", "the recipe, one layer"), base, "ccnet"))
        for changed, value, label, settings in _changes():
            try:
                measured, _ = cells.trained(
                    model, f"{request.recipe}-{label}", head="paper", **settings
                )
            except UserError as error:
                left_out.append(f"{model.name}, {changed} {value}: {error}")
            else:
                rows.append(coco_row((model.name, changed, value), measured, "ccnet"))
        for source in ("raw", "ccnet"):
            path = request.out / "cells" / f"aggregation-{source}-{model.name}.json"
            settings = {"ways": list(AGGREGATIONS), "head": content_digest([head])}
            make = partial(aggregate_people, request, model, head, source)
            by_name = cells.cached(path, model, settings, __name__, make)
            rows += [
                Row((model.name, f"aggregation of {source}", name), figures(**values))
                for name, values in by_name.items()
            ]
        rows.append(coco_row((model.name, "", "oracle"), base, "oracle"))
    title = f"Ablations, {base['people']} people of {base['split']}, annotated boxes, no flip test"
    labels = ("network", "changed", "to")
    notes = (BIAS, GAIN)
    return PaperTable(title, labels, COCO_COLUMNS, tuple(rows), tuple(left_out), notes)


def _changes() -> list[tuple[str, str, str, dict[str, Any]]]:
    """Return what is changed, to what, the name of the cell, and the settings of each ablation."""
    changes: list[tuple[str, str, str, dict[str, Any]]] = [
        ("head size", f"hidden layer of {width}", f"width-{width}", {"head_width": width})
        for width in WIDTHS
    ]
    for weight in PRESENCE_WEIGHTS:
        changes.append(("lambda", f"{weight:g}", f"lambda-{weight:g}", {"presence_weight": weight}))
    for kind in FEATURES[1:]:
        rate = {"learning_rate": COPY_RATE} if kind == "copy" else {}
        changes.append(("features", kind, kind, {"features": kind, **rate}))
    return changes


def aggregate_people(
    request: PaperRequest, model: GivenModel, head_file: Path, source: str
) -> Found:
    """Return the figures that depend on the person's confidence, by the name of the aggregation."""
    device = request.device or default_device()
    check_device(device)
    network = pose2d.load(model.name, model.checkpoint).to(device)
    head = ccnet.load(head_file).to(device)
    split_name = request.test or usual_split("test", network.skeleton)
    split = read_split(request.data, split_name, network.skeleton)
    predictions = predict_split(network, head, split)
    keypoint = predictions.confidence[source].keypoint  # type: ignore[index]
    presence = predictions.confidence["ccnet"].presence
    true_presence = predictions.confidence["oracle"].presence
    by_name = {}
    for name, aggregate in AGGREGATIONS.items():
        score = aggregate(keypoint, presence, true_presence)
        ranked = detections(predictions.image, predictions.xy_px, score)
        ap = evaluate(split.truth, ranked, predictions.skeleton.oks_sigma)
        person = calibration(score, predictions.oks)
        by_name[name] = {
            "ap": 100 * ap.ap,
            "ar": 100 * ap.ar,
            "pearson_person": person["pearson"],
            "ause": person["ause"],
            "ece_person": person["ece"],
        }
    return by_name
