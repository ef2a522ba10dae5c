"""One set of predicted keypoints, the confidence of several sources in them, compared: AP, calibration, plots."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ccnet import plots
from ccnet.coco_ap.average_precision import PARTS, KeypointAP, bootstrap_ap, evaluate_wholebody, summarize
from ccnet.coco_ap.matching import match
from ccnet.coco_ap.people import Detections, GroundTruth, detections, ground_truth_from_coco
from ccnet.data.datasets import Split
from ccnet.metrics import Calibration, calibration, labelled_samples, reliability, sparsification
from ccnet.occlusion import OCCLUDED_KEYPOINT, OcclusionCurve
from ccnet.predictions import Predictions
from pose2d.base.resampling import Interval, interval
from pose2d.skeletons import WHOLEBODY133
from pose2d.types import ConfidenceSource


@dataclass(frozen=True)
class SourceFigures:
    """One source's figures."""

    ap: KeypointAP
    person: Calibration
    keypoint: Calibration | None  # None when boxes are not those of annotated people
    parts: Mapping[str, float]  # AP of each part of a skeleton that is scored in parts


@dataclass(frozen=True)
class ComparisonTable:
    """The figures of all sources on the same predictions."""

    rows: Mapping[ConfidenceSource, SourceFigures]
    intervals: Mapping[str, Interval]  # of AP differences against raw, and of the share of the gap that is closed

    def as_dict(self) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for name, row in self.rows.items():
            ap = {k: v for k, v in asdict(row.ap).items() if k not in ("precision", "recall")}
            rows[name] = {**ap, "person": asdict(row.person), "parts": dict(row.parts)}
            rows[name]["keypoint"] = asdict(row.keypoint) if row.keypoint else None
        return {"sources": rows, "intervals": {name: asdict(i) for name, i in self.intervals.items()}}

    def as_rich(self, title: str) -> Table:
        """One column per source: it fits a narrow terminal."""
        shown = Table(title=title, header_style="bold")
        shown.add_column("")
        for name in self.rows:
            shown.add_column(name, justify="right")
        for label, values in self._lines().items():
            shown.add_row(label, *values)
        return shown

    def as_markdown(self) -> str:
        lines = [["", *self.rows], ["---", *("---:" for _ in self.rows)]]
        lines += [[label, *values] for label, values in self._lines().items()]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def _lines(self) -> dict[str, list[str]]:
        rows = list(self.rows.values())
        sizes = {"AP": "ap", "AP50": "ap50", "AP75": "ap75", "APM": "ap_medium", "APL": "ap_large", "AR": "ar"}
        lines = {label: [f"{getattr(row.ap, field):.4f}" for row in rows] for label, field in sizes.items()}
        for part in rows[0].parts:
            lines[f"AP {part}"] = [f"{row.parts[part]:.4f}" for row in rows]
        lines["AP gap closed"] = [self._percent(self.intervals.get(f"{name} gap closed")) for name in self.rows]
        for label, figure, digits in (("Pearson", "pearson", 3), ("ECE", "ece", 3), ("AUSE", "ause", 2)):
            lines[f"{label}, person"] = [f"{getattr(row.person, figure):.{digits}f}" for row in rows]
            if rows[0].keypoint is not None:
                lines[f"{label}, keypoint"] = [f"{getattr(row.keypoint, figure):.{digits}f}" for row in rows]
        return lines

    @staticmethod
    def _percent(share: Interval | None) -> str:
        return f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]" if share else ""


def compare_sources(split: Split, predictions: Predictions, resamples: int = 1000) -> ComparisonTable:
    """Figures of every source, with paired bootstrap intervals over images."""
    truth = ground_truth_from_coco(split.dataset, predictions.skeleton.size)
    matches = {
        name: match(truth, _ranked(predictions, name), predictions.skeleton.oks_sigma)
        for name in predictions.confidence
    }
    rows = {}
    annotated = not np.isnan(predictions.keypoint_oks).all()
    for name, confidence in predictions.confidence.items():
        rows[name] = SourceFigures(
            ap=summarize(matches[name]),
            person=calibration(confidence.person(predictions.box_score), predictions.oks),
            keypoint=calibration(confidence.keypoint, predictions.keypoint_oks) if annotated else None,
            parts=_parts(truth, predictions, name) if predictions.skeleton == WHOLEBODY133 else {},
        )
    ap = bootstrap_ap({str(name): found for name, found in matches.items()}, resamples)
    intervals = {}
    for name in predictions.confidence:
        if name in ("closed-form", "ccnet"):
            intervals[f"{name} - raw"] = interval(ap[name] - ap["raw"])
            gap = ap["oracle"] - ap["raw"]
            if gap[0] > 0:
                share = (ap[name] - ap["raw"]) / np.where(gap > 0, gap, np.nan)
                intervals[f"{name} gap closed"] = interval(share)
    return ComparisonTable(rows, intervals)


def _ranked(predictions: Predictions, name: ConfidenceSource) -> Detections:
    score = predictions.oks if name == "oracle" else predictions.confidence[name].person(predictions.box_score)
    return detections(predictions.image, predictions.xy_px, score)


def _parts(truth: GroundTruth, predictions: Predictions, name: ConfidenceSource) -> dict[str, float]:
    """AP of each part, every part ranked by its own confidence."""
    slices = {part: PARTS[part] for part, _, _ in predictions.skeleton.parts}
    scores = {part: predictions.confidence[name].person(predictions.box_score, cut) for part, cut in slices.items()}
    found = evaluate_wholebody(truth, _ranked(predictions, name), scores)
    return {part: getattr(found, part).ap for part in slices}


def draw_plots(folder: Path, split: Split, predictions: Predictions) -> None:
    """Reliability, precision-recall, confidence against OKS, sparsification: one image each."""
    truth = ground_truth_from_coco(split.dataset, predictions.skeleton.size)
    compared: tuple[ConfidenceSource, ...] = ("raw", "closed-form", "ccnet")
    drawn = [name for name in compared if name in predictions.confidence]
    person = {
        n: labelled_samples(predictions.confidence[n].person(predictions.box_score), predictions.oks) for n in drawn
    }
    levels: dict[str, dict[ConfidenceSource, tuple[np.ndarray, np.ndarray]]] = {"person": person}
    if not np.isnan(predictions.keypoint_oks).all():
        each = {n: labelled_samples(predictions.confidence[n].keypoint, predictions.keypoint_oks) for n in drawn}
        levels = {"keypoint": each, **levels}
    bins = {level: {str(n): reliability(*s) for n, s in found.items()} for level, found in levels.items()}
    plots.reliability_diagram(folder / "reliability.png", bins)
    ends: tuple[ConfidenceSource, ...] = (*drawn, "oracle")
    sigmas = predictions.skeleton.oks_sigma
    ranked = {str(n): summarize(match(truth, _ranked(predictions, n), sigmas)) for n in ends}
    plots.precision_recall(folder / "precision_recall.png", ranked)
    level, found = next(iter(levels.items()))
    plots.confidence_vs_oks(folder / "confidence_vs_oks.png", {str(n): s for n, s in found.items()}, level)
    curves = {str(name): sparsification(*samples) for name, samples in person.items()}
    plots.sparsification_curve(folder / "sparsification.png", curves)


def draw_occlusion(folder: Path, found: Mapping[str, OcclusionCurve]) -> dict[str, Any]:
    """Plot the occlusion test, if anybody's wrist could be hidden; its figures for metrics.json."""
    if not found:
        return {}
    plots.occlusion_curve_plot(folder / "occlusion.png", found, OCCLUDED_KEYPOINT)
    first = next(iter(found.values()))
    return {
        "keypoint": OCCLUDED_KEYPOINT,
        "people": first.samples,
        "patch_side_per_person_size": first.size.tolist(),
        "oks": first.oks.tolist(),
        "confidence": {name: curve.confidence.tolist() for name, curve in found.items()},
    }
