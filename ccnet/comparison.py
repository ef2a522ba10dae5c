"""Compare the confidence of several sources on the same predicted keypoints: AP, calibration,
plots."""

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
from ccnet.metrics import (
    calibration,
    keypoint_map,
    keypoint_mar,
    labelled_samples,
    reliability,
    sparsification,
)
from ccnet.predicted_people import Predictions, SourceConfidence
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
    # against what PCKh@0.5 and PCKh@0.1 call right ("pck_person", "pck_keypoint", "pck01_person",
    # "pck01_keypoint").
    figures: Mapping[ConfidenceSource, Mapping[str, Any]]
    # AP differences against raw, and the share of the gap to the oracle that is closed.
    intervals: Mapping[str, Interval]
    # MPII: percent by threshold and group; does not depend on confidence.
    pckh: Mapping[str, Mapping[str, float]]
    head_sizes: str  # MPII: where the head sizes of PCKh come from
    # What was measured: model, weights, head, boxes, versions.
    about: Mapping[str, Any] = field(default_factory=dict)
    # Empty if the test was not requested, or if no wrist is in view.
    occlusion: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the content of metrics.json."""
        content = {
            **self.about,
            "split": self.split,
            "people": self.people,
            "sources": self.figures,
            "intervals": {name: asdict(interval) for name, interval in self.intervals.items()},
        }
        for name in ("pckh", "head_sizes", "occlusion"):
            if value := getattr(self, name):
                content[name] = value
        return content

    def as_rich(self, title: str) -> list[Table]:
        """Return the table with one column per source, which fits a narrow terminal; then PCKh and
        the parts of the whole body, if there are any.
        """
        tables = [rich_table(title, ["", *self.figures], self.lines())]
        if self.pckh:
            lines = [
                [f"@{threshold}", *(f"{value:.1f}" for value in groups.values())]
                for threshold, groups in self.pckh.items()
            ]
            title = "PCKh, % (SimpleBaseline and HRNet print @0.11 as @0.1)"
            tables.append(rich_table(title, ["", *self.pckh["0.5"]], lines))
        if self.figures["raw"]["parts"]:  # ranked by one score a person, and by the part's own
            lines = [
                [f"{name}, by {score}", *(f"{parts[part]:.4f}" for part in PAPER_PARTS)]
                for name, source in self.figures.items()
                for score, parts in (
                    ("person", source["parts_by_person"]),
                    ("part", source["parts"]),
                )
            ]
            title = "AP of the parts (hand: mean of left and right)"
            tables.append(rich_table(title, ["ranked by", *PAPER_PARTS], lines))
        return tables

    def lines(self) -> list[list[str]]:
        """Return rows of text: a label and the figure of every source."""
        sources = list(self.figures.values())
        sizes = {
            "AP": "ap",
            "AP50": "ap50",
            "AP75": "ap75",
            "APM": "ap_medium",
            "APL": "ap_large",
            "AR": "ar",
        }
        lines = [
            [label, *(f"{source[name]:.4f}" for source in sources)] for label, name in sizes.items()
        ]
        shares = [self.intervals.get(f"{name} gap closed") for name in self.figures]
        closed = [
            f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]" if share else ""
            for share in shares
        ]
        lines.append(["AP gap closed", *closed])
        if sources[0]["keypoint_map"] is not None:
            lines.append(["mAP, keypoint", *(f"{s['keypoint_map']:.4f}" for s in sources)])
            lines.append(["mAR, keypoint", *(f"{s['keypoint_mar']:.4f}" for s in sources)])
        for against, levels in (
            ("", ("person", "keypoint")),
            (" over PCK", ("pck_person", "pck_keypoint")),
            (" over PCK.1", ("pck01_person", "pck01_keypoint")),
        ):
            for label, figure, digits in (
                ("Pearson", "pearson", 3),
                ("ECE", "ece", 3),
                ("AUSE", "ause", 2),
            ):
                for level in levels:
                    if sources[0].get(level):
                        name = f"{label}{against}, {level.split('_')[-1]}"
                        values = [f"{s[level][figure]:.{digits}f}" for s in sources]
                        lines.append([name, *values])
        return lines


def rich_table(
    title: str, header: Sequence[str], lines: Iterable[Sequence[str]], labels: int = 1
) -> Table:
    """Return a table; the first `labels` columns are aligned left, figures right."""
    table = Table(title=title, header_style="bold")
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number < labels else "right")
    for line in lines:
        table.add_row(*line)
    return table


PAPER_PARTS = ("body", "foot", "face", "hand", "wholebody")


def compare_sources(
    split: Split, predictions: Predictions, resamples: int = 1000, evaluate: Evaluate = evaluate
) -> Evaluation:
    """Return the figures of every source with paired bootstrap intervals over images.

    Intervals come from our evaluator, whichever one is chosen.
    """
    truth = split.truth
    sigmas = predictions.skeleton.oks_sigma
    ap = {}
    figures = {}
    matches = {}
    for name, confidence in predictions.confidence.items():
        person = confidence.person(predictions.box_score)
        score = predictions.oks if name == "oracle" else person
        ranking = detections(predictions.image, predictions.xy_px, score)
        matches[str(name)] = match(truth, ranking, sigmas)
        ap[name] = evaluate(truth, ranking, sigmas)
        figures[name] = {
            **{number: getattr(ap[name], number) for number in (*TEN_NUMBERS, "exact_ap")},
            **_calibration_figures(predictions, confidence, person),
            **_part_figures(truth, ranking, predictions, confidence, evaluate),
        }
    intervals = _paired_intervals(bootstrap_ap(matches, resamples))
    people = len(split.people)
    return Evaluation(
        split.name, people, ap, figures, intervals, predictions.pckh, split.head_sizes
    )


def _calibration_figures(
    predictions: Predictions, confidence: SourceConfidence, person: np.ndarray
) -> dict[str, Any]:
    """Return the calibration of one source for people and keypoints; for MPII also against PCKh."""
    keypoint_oks = predictions.keypoint_oks
    has_keypoint_oks = not np.isnan(keypoint_oks).all()
    figures: dict[str, Any] = {
        "person": calibration(person, predictions.oks),
        "keypoint": None,
        "keypoint_map": None,
        "keypoint_mar": None,
    }
    if has_keypoint_oks:
        figures["keypoint"] = calibration(confidence.keypoint, keypoint_oks)
        figures["keypoint_map"] = keypoint_map(confidence.keypoint, keypoint_oks)
        figures["keypoint_mar"] = keypoint_mar(keypoint_oks)
    for threshold, right in predictions.correct.items():
        level = "pck" if threshold == 0.5 else "pck01"
        with np.errstate(invalid="ignore"):  # NaN for people without a keypoint that PCKh counts
            share_right = np.nansum(right, 1) / (~np.isnan(right)).sum(1)
        figures[f"{level}_person"] = calibration(person, share_right, "pck")
        figures[f"{level}_keypoint"] = calibration(confidence.keypoint, right, "pck")
    return figures


def _part_figures(
    truth: GroundTruth,
    ranking: Detections,
    predictions: Predictions,
    confidence: SourceConfidence,
    evaluate: Evaluate,
) -> dict[str, Any]:
    """Return the AP of the parts of the whole body; empty for other skeletons."""
    if predictions.skeleton != WHOLEBODY133:
        return {"parts": {}}
    part_scores = {
        part: confidence.person(predictions.box_score, PARTS[part])
        for part, _, _ in predictions.skeleton.parts
    }
    return {
        "parts": _part_ap(truth, ranking, evaluate, part_scores),
        "parts_by_person": _part_ap(truth, ranking, evaluate, {}),
    }


def _paired_intervals(resampled: Mapping[str, np.ndarray]) -> dict[str, Interval]:
    """Return intervals of each source's AP gain over raw, and of the share of the gap to the oracle
    that it closes.
    """
    intervals = {}
    gap = resampled["oracle"] - resampled["raw"]
    for name, ap in resampled.items():
        if name in ("ones", "raw", "oracle"):
            continue
        gain = ap - resampled["raw"]
        intervals[f"{name} - raw"] = interval(gain)
        if gap[0] > 0:
            intervals[f"{name} gap closed"] = interval(gain / np.where(gap > 0, gap, np.nan))
    return intervals


def _part_ap(
    truth: GroundTruth,
    ranked: Detections,
    evaluate: Evaluate,
    part_scores: Mapping[str, np.ndarray],
) -> dict[str, float]:
    """Return the AP of each part, ranked by `part_scores`, else by the confidence in the person."""
    parts = {
        part: figures.ap
        for part, figures in evaluate_wholebody(truth, ranked, part_scores, evaluate).items()
    }
    # -1 marks a part that is not labelled in any person.
    hands = [ap for ap in (parts["lefthand"], parts["righthand"]) if ap >= 0]
    return {**parts, "hand": float(np.mean(hands)) if hands else -1.0}


def check_plots() -> ModuleType:
    """Return the module that draws plots. Raises UserError if matplotlib is missing, so call it
    before the work begins.
    """
    try:
        from ccnet import plots
    except ImportError as error:
        raise UserError(f'plots need matplotlib ({error}): pip install "fitmesh[plots]"') from error
    return plots


def draw_plots(folder: Path, predictions: Predictions, evaluation: Evaluation) -> None:
    """Draw reliability, precision-recall, confidence against OKS and sparsification, one image
    each.
    """
    plots = check_plots()
    confidence = predictions.confidence
    sources: tuple[ConfidenceSource, ...] = ("raw", "raw-heatmap", "closed-form", "ccnet")
    drawn = [name for name in sources if name in confidence]
    person = {
        name: labelled_samples(confidence[name].person(predictions.box_score), predictions.oks)
        for name in drawn
    }
    levels = {"person": person}
    if not np.isnan(predictions.keypoint_oks).all():
        keypoint = {
            name: labelled_samples(confidence[name].keypoint, predictions.keypoint_oks)
            for name in drawn
        }
        levels = {"keypoint": keypoint, **levels}
    bins = {
        level: {name: reliability(*sample) for name, sample in samples.items()}
        for level, samples in levels.items()
    }
    plots.reliability_diagram(folder / "reliability.png", bins)
    ap = {name: evaluation.ap[name] for name in (*drawn, "oracle")}
    plots.precision_recall(folder / "precision_recall.png", ap)
    level, samples = next(iter(levels.items()))
    plots.confidence_vs_oks(folder / "confidence_vs_oks.png", samples, level)
    curves = {name: sparsification(*sample) for name, sample in person.items()}
    plots.sparsification_curve(folder / "sparsification.png", curves)
