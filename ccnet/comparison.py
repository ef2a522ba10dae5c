"""One set of predicted keypoints, the confidence of several sources in them, compared: AP, calibration, plots."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from rich.table import Table

from ccnet.coco_ap.average_precision import (
    PARTS,
    Evaluate,
    KeypointAP,
    bootstrap_ap,
    evaluate,
    evaluate_by_pycocotools,
    evaluate_wholebody,
)
from ccnet.coco_ap.matching import Detections, GroundTruth, detections, ground_truth_from_coco, match
from ccnet.data.datasets import PCKh, Split, mean_of_counted, mpii_groups
from ccnet.metrics import Calibration, calibration, keypoint_map, labelled_samples, reliability, sparsification
from ccnet.occlusion import OCCLUDED_KEYPOINT, OcclusionCurve
from ccnet.predicted_people import Predictions
from pose2d.base.errors import UserError
from pose2d.base.resampling import Interval, interval
from pose2d.skeletons import WHOLEBODY133
from pose2d.types import ConfidenceSource


@dataclass(frozen=True)
class SourceFigures:
    ap: KeypointAP
    person: Calibration
    keypoint: Calibration | None  # None when boxes are not those of annotated people
    keypoint_map: float | None  # AP with each labelled keypoint as a detection of its own; None as above
    parts: Mapping[str, float]  # AP of each part of a skeleton that is scored in parts, by the part's own confidence
    parts_by_person: Mapping[str, float]  # the same parts, all ranked by the confidence of the whole person
    pck_person: Calibration | None  # MPII: against the share of keypoints that PCKh@0.5 calls right, not against OKS
    pck_keypoint: Calibration | None  # MPII: against 1 where PCKh@0.5 calls a keypoint right, else 0


@dataclass(frozen=True)
class ComparisonTable:
    """The figures of all sources on the same predictions."""

    rows: Mapping[ConfidenceSource, SourceFigures]
    intervals: Mapping[str, Interval]  # of AP differences against raw, and of the share of the gap that is closed
    pckh: tuple[PCKh, ...] = ()  # MPII: does not depend on confidence

    def as_dict(self) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for name, row in self.rows.items():
            of = asdict(row)
            ap = {k: v for k, v in of.pop("ap").items() if k not in ("precision", "recall")}
            for level in ("pck_person", "pck_keypoint"):
                if of[level] is not None:
                    of[level] = {"mean_pck" if k == "mean_oks" else k: v for k, v in of[level].items()}
            only_where_known = ("parts_by_person", "pck_person", "pck_keypoint")
            rows[name] = {**ap, **{k: v for k, v in of.items() if v or k not in only_where_known}}
        found_pckh = {f"{one.threshold:g}": mpii_groups(one) for one in self.pckh}
        intervals = {name: asdict(i) for name, i in self.intervals.items()}
        return {"sources": rows, "intervals": intervals, **({"pckh": found_pckh} if found_pckh else {})}

    def as_rich(self, title: str) -> list[Table]:
        """One column per source: it fits a narrow terminal. Beside it PCKh, and the parts of the whole body."""
        shown = Table(title=title, header_style="bold")
        shown.add_column("")
        for name in self.rows:
            shown.add_column(name, justify="right")
        for label, values in self._lines().items():
            shown.add_row(label, *values)
        tables = [shown]
        if self.pckh:
            shown = Table(title="PCKh, % (SimpleBaseline and HRNet print @0.11 as @0.1)", header_style="bold")
            for column in ("", *mpii_groups(self.pckh[0])):
                shown.add_column(column, justify="right" if column else "left")
            for one in self.pckh:
                shown.add_row(f"@{one.threshold:g}", *(f"{value:.1f}" for value in mpii_groups(one).values()))
            tables.append(shown)
        if next(iter(self.rows.values())).parts:  # ranked by one score a person, and by the part's own
            shown = Table(title="AP of the parts (hand: mean of left and right)", header_style="bold")
            for column in ("ranked by", *PAPER_PARTS):
                shown.add_column(column, justify="left" if column == "ranked by" else "right")
            for name, row in self.rows.items():
                for score, parts in (("person", row.parts_by_person), ("part", row.parts)):
                    shown.add_row(f"{name}, by {score}", *(f"{parts[part]:.4f}" for part in PAPER_PARTS))
            tables.append(shown)
        return tables

    def as_markdown(self) -> str:
        lines = [["", *self.rows], ["---", *("---:" for _ in self.rows)]]
        lines += [[label, *values] for label, values in self._lines().items()]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def _lines(self) -> dict[str, list[str]]:
        rows = list(self.rows.values())
        sizes = {"AP": "ap", "AP50": "ap50", "AP75": "ap75", "APM": "ap_medium", "APL": "ap_large", "AR": "ar"}
        lines = {label: [f"{getattr(row.ap, field):.4f}" for row in rows] for label, field in sizes.items()}
        shares = [self.intervals.get(f"{name} gap closed") for name in self.rows]
        lines["AP gap closed"] = [f"{s.value:.0%} [{s.low:.0%}, {s.high:.0%}]" if s else "" for s in shares]
        if rows[0].keypoint_map is not None:
            lines["mAP, keypoint"] = [f"{row.keypoint_map:.4f}" for row in rows]
        for against, levels in (("", ("person", "keypoint")), (" over PCK", ("pck_person", "pck_keypoint"))):
            for label, figure, digits in (("Pearson", "pearson", 3), ("ECE", "ece", 3), ("AUSE", "ause", 2)):
                for level in levels:  # none of a level that has no figures
                    found = [getattr(row, level) for row in rows if getattr(row, level) is not None]
                    if found:
                        shown = [f"{getattr(one, figure):.{digits}f}" for one in found]
                        lines[f"{label}{against}, {level.removeprefix('pck_')}"] = shown
        return lines


PAPER_PARTS = ("body", "foot", "face", "hand", "wholebody")
EVALUATORS = ("ours", "pycocotools")


def evaluator(name: str) -> Evaluate:
    """One of EVALUATORS: ours, or the reference, which is slower and gives the same numbers."""
    if name not in EVALUATORS:
        raise UserError(f"unknown evaluator {name!r}: choose one of {', '.join(EVALUATORS)}.")
    return evaluate if name == "ours" else evaluate_by_pycocotools


def compare_sources(
    split: Split, predictions: Predictions, resamples: int = 1000, evaluate: Evaluate = evaluate
) -> ComparisonTable:
    """Figures of every source, with paired bootstrap intervals over images (ours with any evaluator)."""
    truth = ground_truth_from_coco(split.dataset, predictions.skeleton.size)
    sigmas = predictions.skeleton.oks_sigma
    ranked = {name: _ranked(predictions, name) for name in predictions.confidence}
    rows = {}
    annotated, in_parts = not np.isnan(predictions.keypoint_oks).all(), predictions.skeleton == WHOLEBODY133
    for name, ranking in ranked.items():
        confidence, correct, keypoint_oks = predictions.confidence[name], predictions.correct, predictions.keypoint_oks
        person = confidence.person(predictions.box_score)
        by_part = {p: confidence.person(predictions.box_score, PARTS[p]) for p, _, _ in predictions.skeleton.parts}
        rows[name] = SourceFigures(
            ap=evaluate(truth, ranking, sigmas),
            person=calibration(person, predictions.oks),
            keypoint=calibration(confidence.keypoint, keypoint_oks) if annotated else None,
            keypoint_map=keypoint_map(confidence.keypoint, keypoint_oks) if annotated else None,
            parts=_parts(truth, ranking, evaluate, by_part) if in_parts else {},
            parts_by_person=_parts(truth, ranking, evaluate, {}) if in_parts else {},
            pck_person=None if correct is None else calibration(person, mean_of_counted(correct)),
            pck_keypoint=None if correct is None else calibration(confidence.keypoint, correct),
        )
    ap = bootstrap_ap({str(name): match(truth, ranking, sigmas) for name, ranking in ranked.items()}, resamples)
    intervals = {}
    for name in predictions.confidence:
        if name not in ("ones", "raw", "oracle"):
            intervals[f"{name} - raw"] = interval(ap[name] - ap["raw"])
            gap = ap["oracle"] - ap["raw"]
            if gap[0] > 0:
                share = (ap[name] - ap["raw"]) / np.where(gap > 0, gap, np.nan)
                intervals[f"{name} gap closed"] = interval(share)
    return ComparisonTable(rows, intervals, predictions.pckh)


def _ranked(predictions: Predictions, name: ConfidenceSource) -> Detections:
    score = predictions.oks if name == "oracle" else predictions.confidence[name].person(predictions.box_score)
    return detections(predictions.image, predictions.xy_px, score)


def _parts(
    truth: GroundTruth, ranked: Detections, evaluate: Evaluate, part_scores: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """AP of each part of the whole body, ranked by `part_scores`, or by the confidence of the person without them."""
    parts = {part: figures.ap for part, figures in evaluate_wholebody(truth, ranked, part_scores, evaluate).items()}
    hands = [ap for ap in (parts["lefthand"], parts["righthand"]) if ap >= 0]  # -1: nobody has this hand labelled
    return {**parts, "hand": float(np.mean(hands)) if hands else -1.0}


def check_plots() -> ModuleType:
    """The module that draws, or a UserError where matplotlib is missing; asked for before the work begins."""
    try:
        from ccnet import plots
    except ImportError as error:
        raise UserError(f'plots need matplotlib ({error}): pip install "fitmesh[plots]"') from error
    return plots


def draw_plots(folder: Path, split: Split, predictions: Predictions) -> None:
    """Reliability, precision-recall, confidence against OKS, sparsification: one image each."""
    plots = check_plots()
    truth = ground_truth_from_coco(split.dataset, predictions.skeleton.size)
    compared: tuple[ConfidenceSource, ...] = ("raw", "raw-heatmap", "closed-form", "ccnet")
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
    ranked = {str(n): evaluate(truth, _ranked(predictions, n), sigmas) for n in ends}
    plots.precision_recall(folder / "precision_recall.png", ranked)
    level, found = next(iter(levels.items()))
    plots.confidence_vs_oks(folder / "confidence_vs_oks.png", {str(n): s for n, s in found.items()}, level)
    curves = {str(name): sparsification(*samples) for name, samples in person.items()}
    plots.sparsification_curve(folder / "sparsification.png", curves)


def draw_occlusion(folder: Path, curves: Mapping[str, OcclusionCurve]) -> dict[str, Any]:
    """Plot the occlusion test, if anybody's wrist could be hidden; its figures for metrics.json."""
    if not curves:
        return {}
    check_plots().occlusion_curve_plot(folder / "occlusion.png", curves, OCCLUDED_KEYPOINT)
    first = next(iter(curves.values()))
    return {
        "keypoint": OCCLUDED_KEYPOINT, "people": first.samples, "patch_side_per_person_size": first.size.tolist(),
        "oks": first.oks.tolist(), "confidence": {name: curve.confidence.tolist() for name, curve in curves.items()},
    }  # fmt: skip
