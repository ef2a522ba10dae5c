"""Claim: a heatmap's width says more of its error than its height; a trained head says more than either.

One run of the network, one set of keypoints, and the expected OKS l^2 / (sigma^2 + l^2) with sigma from each heatmap's
fitted Gaussian or from its peak, and l from the mean, the predicted or the true area. Predicted areas come from one
linear layer. That layer, the mean and the width of the heatmaps' target are fitted on training people.

    python bench/closed_form.py --data COCO [--split val2017] [--train train2017] [--model movenet-thunder ...]
"""

import argparse
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import ccnet
import pose2d
from ccnet.closed_form import best_width, confidence_from_peak, confidence_from_spread, image_px_per_cell
from ccnet.coco_ap.average_precision import summarize
from ccnet.coco_ap.matching import match
from ccnet.coco_ap.people import detections, ground_truth_from_coco
from ccnet.data.datasets import read_split
from ccnet.data.observations import Observations, join, observe
from ccnet.heads.head import CalibrationHead
from ccnet.metrics import calibration
from pose2d.base.threads import use_threads
from pose2d.models.base import PoseModel

SPREADS = ("Gaussian fit", "peak")
AREAS = ("mean", "predicted", "true")


class PooledInputs(CalibrationHead):
    """Pooled features for the area, then the inputs of a calibration head."""

    def __init__(self, head: CalibrationHead) -> None:
        super().__init__(head.feature_shape, head.keypoints, head.channels)
        self.head = head

    def inputs(self, features: Tensor) -> Tensor:
        pooled = features.as_subclass(Tensor).mean((2, 3))
        return torch.cat([pooled, self.head.inputs(features).flatten(1)], 1)

    def logits(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError


AreaModel = Callable[[Tensor], Tensor]  # pooled features [N, C] -> share of the crop that is person [N]


def fit_area(vectors: Tensor, share: Tensor, ridge: float = 1e-3) -> AreaModel:
    """Ridge regression of the log share on pooled features [N, C]; `ridge` is relative to their mean variance."""
    x, y = vectors.double(), share.double().log()
    centred, y_mean = x - x.mean(0), y.mean()
    covariance = centred.T @ centred / len(x)
    pull = ridge * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=x.dtype)
    weight = torch.linalg.solve(covariance + pull, centred.T @ (y - y_mean) / len(x))
    return lambda new: ((new.double() - x.mean(0)) @ weight + y_mean).exp().clamp(max=1)


def confidence(
    spread: str, observed: Observations, area_px2: np.ndarray, model: PoseModel
) -> Callable[[float], np.ndarray]:
    """Target width in cells -> expected OKS [N, K]."""
    px_per_cell = image_px_per_cell(observed.crop_area_px2, model).double()
    l2 = torch.from_numpy(area_px2[:, None] * model.skeleton.oks_variance)
    if spread == "peak":
        return lambda width: confidence_from_peak(observed.score.double(), width, px_per_cell, l2).numpy()
    return lambda width: confidence_from_spread(observed.sigma_px.double(), width * px_per_cell, l2).numpy()


def areas(observed: Observations, channels: int, mean: float, head: AreaModel) -> dict[str, np.ndarray]:
    """[N] each, in image pixels^2."""
    crop = observed.crop_area_px2.double().numpy()
    predicted = head(observed.inputs[:, :channels]).numpy()
    shares = (np.full(len(crop), mean), predicted, observed.area_share.double().numpy())
    return {name: crop * share for name, share in zip(AREAS, shares, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="val2017")
    parser.add_argument("--train", default="train2017")
    parser.add_argument("--fit-people", type=int, default=1500, help="training people the fits rest on")
    parser.add_argument("--model", action="append", help="default: every model with an embedded head")
    parser.add_argument("--threads", type=int)
    chosen = parser.parse_args()
    use_threads(chosen.threads)
    for name in chosen.model or ccnet.embedded():
        compare(name, chosen)


def compare(name: str, chosen: argparse.Namespace) -> None:
    model, calibrated = pose2d.load(name), ccnet.load(name)
    reader, channels = PooledInputs(calibrated), model.feature_shape[0]
    split = read_split(chosen.data, chosen.split, model.skeleton)
    taught = read_split(chosen.data, chosen.train, model.skeleton).people
    picked = np.unique(np.linspace(0, len(taught) - 1, chosen.fit_people).astype(int))
    fitted = join(list(observe(model, reader, [taught[i] for i in picked])))
    tested = join(list(observe(model, reader, split.people)))
    mean = float(fitted.area_share.mean())
    head = fit_area(fitted.inputs[:, :channels], fitted.area_share)
    fitted_areas, tested_areas = (areas(observed, channels, mean, head) for observed in (fitted, tested))
    every = np.ones(tuple(tested.score.shape))
    rows: dict[str, tuple[np.ndarray, np.ndarray]] = {
        "constant": (every, every),
        "raw": (tested.score.double().numpy(), every),
    }
    for spread in SPREADS:
        for area in AREAS:
            width = best_width(confidence(spread, fitted, fitted_areas[area], model), fitted.labelled_oks)
            rows[f"{spread}, {area} area"] = (confidence(spread, tested, tested_areas[area], model)(width), every)
    with torch.inference_mode():
        values, presence = calibrated.calibrate(tested.inputs[:, channels:])
    rows["ccnet"] = (values.double().numpy(), presence.double().numpy())
    truth = tested.labelled_oks
    rows["oracle"] = (np.nan_to_num(truth), (~np.isnan(truth)).astype(float))
    people = ground_truth_from_coco(split.dataset, model.skeleton.size)
    image = np.array([person.image_id for person in split.people])
    shown = Table(title=f"{name} on {split.name}, {len(split.people)} people, annotated boxes", header_style="bold")
    for column in ("confidence", "AP", "r person", "r keypoint", "ECE keypoint"):
        shown.add_column(column, justify="left" if column == "confidence" else "right")
    person_oks = np.nanmean(truth, 1)
    for label, (values, weight) in rows.items():
        person = (values * weight).sum(1) / np.maximum(weight.sum(1), 1e-6)
        found = match(people, detections(image, tested.xy_px.double().numpy(), person), model.skeleton.oks_sigma)
        each, whole = calibration(values, truth), calibration(person, person_oks)
        figures = (f"{whole.pearson:.3f}", f"{each.pearson:.3f}", f"{each.ece:.3f}")
        shown.add_row(label, f"{100 * summarize(found).ap:.1f}", *figures)
    console = Console()
    console.print(shown)
    share = head(tested.inputs[:, :channels]).log() - tested.area_share.double().log()
    spread_of = {"predicted": float(share.std()), "mean": float((tested.area_share.log() - np.log(mean)).std())}
    console.print("spread of log area error: " + ", ".join(f"{k} {v:.2f}" for k, v in spread_of.items()))
    console.print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB\n")


if __name__ == "__main__":
    main()
