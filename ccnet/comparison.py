"""One set of predicted keypoints, the confidence of several sources in them, compared: AP,
calibration, plots.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from rich.table import Table

from ccnet.coco_ap.average_precision import (
    PARTS,
    TEN_NUMBERS,
    Evaluate,
    KeypointAP,
    bootstrap_ap,
    evaluate,
    evaluate_wholebody,
)
from ccnet.coco_ap.matching import Detections, GroundTruth, detections, match
from ccnet.data.datasets import Split
from ccnet.metrics import calibration, keypoint_map, labelled_samples, reliability, sparsification
from ccnet.predicted_people import Predictions
from pose2d.base.errors import UserError
from pose2d.base.resampling import Interval, interval
from pose2d.skeletons import WHOLEBODY133
from pose2d.types import ConfidenceSource


@dataclass(frozen=True)
class Evaluation:
    """The figures of all confidence sources on the same predictions of a split."""

    split: str
    people: int
    ap: Mapping[ConfidenceSource, KeypointAP]
    # By source, in the form of metrics.json: COCO's ten numbers and `exact_ap`; `calibration` of
    # people ("person") and, None when boxes are not those of annotated people, of keypoints
    # ("keypoint"), with AP of labelled keypoints as detections of their own ("keypoint_map"). Of a
    # skeleton that is scored in parts AP of each part, ranked by the part's own confidence
    # ("parts") and by the person's ("parts_by_person"). MPII: calibration not against OKS but
    # against what PCKh@0.5 calls right ("pck_person", "pck_keypoint").
    figures: Mapping[ConfidenceSource, Mapping[str, Any]]
    intervals: Mapping[
        str, Interval
    ]  # of AP differences against raw, and of the share of the gap that is closed
    pckh: Mapping[
        str, Mapping[str, float]
    ]  # MPII: percent by threshold and group; does not depend on confidence
    head_sizes: str  # MPII: where the head sizes of PCKh come from
    about: Mapping[str, Any] = field(
        default_factory=dict
    )  # what was measured: model, weights, head, boxes, versions
    occlusion: Mapping[str, Any] = field(
        default_factory=dict
    )  # empty: not asked for, or nobody's wrist is in view

    def as_dict(self) -> dict[str, Any]:
        """The content of metrics.json."""
        intervals = {name: asdict(i) for name, i in self.intervals.items()}
        figures = {
            "split": self.split,
            "people": self.people,
            "sources": self.figures,
            "intervals": intervals,
        }
        more = {"pckh": self.pckh, "head_sizes": self.head_sizes, "occlusion": self.occlusion}
        return {**self.about, **figures, **{name: value for name, value in more.items() if value}}

    def as_rich(self, title: str) -> list[Table]:
        """One column per source: it fits a narrow terminal. Beside it PCKh, and the parts of the
        whole body.
        """
        tables = [rich_table(title, ["", *self.figures], self.lines())]
        if self.pckh:
            lines = [
                [f"@{at}", *(f"{value:.1f}" for value in of.values())]
                for at, of in self.pckh.items()
            ]
            title = "PCKh, % (SimpleBaseline and HRNet print @0.11 as @0.1)"
            tables.append(rich_table(title, ["", *self.pckh["0.5"]], lines))
        if self.figures["raw"]["parts"]:  # ranked by one score a person, and by the part's own
            lines = [
                [f"{name}, by {score}", *(f"{parts[part]:.4f}" for part in PAPER_PARTS)]
                for name, of in self.figures.items()
                for score, parts in (("person", of["parts_by_person"]), ("part", of["parts"]))
            ]
            title = "AP of the parts (hand: mean of left and right)"
            tables.append(rich_table(title, ["ranked by", *PAPER_PARTS], lines))
        return tables

    def lines(self) -> list[list[str]]:
        """A label and the figure of every source."""
        rows = list(self.figures.values())
        sizes = {
            "AP": "ap",
            "AP50": "ap50",
            "AP75": "ap75",
            "APM": "ap_medium",
            "APL": "ap_large",
            "AR": "ar",
        }
        lines = [[label, *(f"{of[name]:.4f}" for of in rows)] for label, name in sizes.items()]
        shares = [self.intervals.get(f"{name} gap closed") for name in self.figures]
        closed = [f"{s.value:.0%} [{s.low:.0%}, {s.high:.0%}]" if s else "" for s in shares]
        lines.append(["AP gap closed", *closed])
        if rows[0]["keypoint_map"] is not None:
            lines.append(["mAP, keypoint", *(f"{of['keypoint_map']:.4f}" for of in rows)])
        for against, levels in (
            ("", ("person", "keypoint")),
            (" over PCK", ("pck_person", "pck_keypoint")),
        ):
            for label, figure, digits in (
                ("Pearson", "pearson", 3),
                ("ECE", "ece", 3),
                ("AUSE", "ause", 2),
            ):
                for level in levels:
                    if rows[0].get(level):
                        name = f"{label}{against}, {level.removeprefix('pck_')}"
                        lines.append([name, *(f"{of[level][figure]:.{digits}f}" for of in rows)])
        return lines


def rich_table(
    title: str, header: Sequence[str], lines: Iterable[Sequence[str]], labels: int = 1
) -> Table:
    """The first columns, which are labels, to the left; figures to the right."""
    shown = Table(title=title, header_style="bold")
    for number, name in enumerate(header):
        shown.add_column(name, justify="left" if number < labels else "right")
    for line in lines:
        shown.add_row(*line)
    return shown


PAPER_PARTS = ("body", "foot", "face", "hand", "wholebody")


def compare_sources(
    split: Split, predictions: Predictions, resamples: int = 1000, evaluate: Evaluate = evaluate
) -> Evaluation:
    """Figures of every source, with paired bootstrap intervals over images (ours with any
    evaluator).
    """
    truth = split.truth
    sigmas = predictions.skeleton.oks_sigma
    keypoint_oks = predictions.keypoint_oks
    right = predictions.correct
    annotated = not np.isnan(keypoint_oks).all()
    in_parts = predictions.skeleton == WHOLEBODY133
    ap = {}
    figures = {}
    matches = {}
    for name, confidence in predictions.confidence.items():
        person = confidence.person(predictions.box_score)
        ranking = detections(
            predictions.image, predictions.xy_px, predictions.oks if name == "oracle" else person
        )
        matches[str(name)] = match(truth, ranking, sigmas)
        ap[name] = evaluate(truth, ranking, sigmas)
        figures[name] = of = {
            **{number: getattr(ap[name], number) for number in (*TEN_NUMBERS, "exact_ap")},
            "person": calibration(person, predictions.oks),
            "keypoint": calibration(confidence.keypoint, keypoint_oks) if annotated else None,
            "keypoint_map": keypoint_map(confidence.keypoint, keypoint_oks) if annotated else None,
            "parts": {},
        }
        if in_parts:
            by_part = {
                p: confidence.person(predictions.box_score, PARTS[p])
                for p, _, _ in predictions.skeleton.parts
            }
            of["parts"] = _parts(truth, ranking, evaluate, by_part)
            of["parts_by_person"] = _parts(truth, ranking, evaluate, {})
        if right is not None:
            with np.errstate(invalid="ignore"):  # NaN of a person of whom PCKh counts nothing
                share_right = np.nansum(right, 1) / (~np.isnan(right)).sum(1)
            of["pck_person"] = calibration(person, share_right, "pck")
            of["pck_keypoint"] = calibration(confidence.keypoint, right, "pck")
    resampled = bootstrap_ap(matches, resamples)
    intervals = {}
    for name in predictions.confidence:
        if name not in ("ones", "raw", "oracle"):
            gained, gap = (resampled[better] - resampled["raw"] for better in (name, "oracle"))
            intervals[f"{name} - raw"] = interval(gained)
            if gap[0] > 0:
                intervals[f"{name} gap closed"] = interval(gained / np.where(gap > 0, gap, np.nan))
    people = len(split.people)
    return Evaluation(
        split.name, people, ap, figures, intervals, predictions.pckh, split.head_sizes
    )


def _parts(
    truth: GroundTruth,
    ranked: Detections,
    evaluate: Evaluate,
    part_scores: Mapping[str, np.ndarray],
) -> dict[str, float]:
    """AP of each part of the whole body, ranked by `part_scores`, or by the confidence of the
    person without them.
    """
    parts = {
        part: figures.ap
        for part, figures in evaluate_wholebody(truth, ranked, part_scores, evaluate).items()
    }
    hands = [
        ap for ap in (parts["lefthand"], parts["righthand"]) if ap >= 0
    ]  # -1: nobody has this hand labelled
    return {**parts, "hand": float(np.mean(hands)) if hands else -1.0}


def check_plots() -> ModuleType:
    """The module that draws, or a UserError where matplotlib is missing; asked for before the work
    begins.
    """
    try:
        from ccnet import plots
    except ImportError as error:
        raise UserError(f'plots need matplotlib ({error}): pip install "fitmesh[plots]"') from error
    return plots


def draw_plots(folder: Path, predictions: Predictions, evaluation: Evaluation) -> None:
    """Reliability, precision-recall, confidence against OKS, sparsification: one image each."""
    plots = check_plots()
    stated = predictions.confidence
    compared: tuple[ConfidenceSource, ...] = (
        "raw",
        "raw-heatmap",
        "closed-form",
        "ccnet",
        "oracle",
    )
    *drawn, oracle = [name for name in compared if name in stated]
    person = {
        n: labelled_samples(stated[n].person(predictions.box_score), predictions.oks) for n in drawn
    }
    levels = {"person": person}
    if not np.isnan(predictions.keypoint_oks).all():
        each = {n: labelled_samples(stated[n].keypoint, predictions.keypoint_oks) for n in drawn}
        levels = {"keypoint": each, **levels}
    bins = {
        level: {n: reliability(*s) for n, s in samples.items()} for level, samples in levels.items()
    }
    plots.reliability_diagram(folder / "reliability.png", bins)
    ap = {n: evaluation.ap[n] for n in (*drawn, oracle)}
    plots.precision_recall(folder / "precision_recall.png", ap)
    level, samples = next(iter(levels.items()))
    plots.confidence_vs_oks(folder / "confidence_vs_oks.png", samples, level)
    plots.sparsification_curve(
        folder / "sparsification.png", {n: sparsification(*s) for n, s in person.items()}
    )
