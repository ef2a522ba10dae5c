"""One set of predicted keypoints, several opinions on how far to trust them, side by side."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table as RichTable
from torch import Tensor

from ccnet import plots
from ccnet.closed_form_source import closed_form
from ccnet.coco_ap.bootstrap import bootstrap_ap
from ccnet.coco_ap.evaluator import KeypointAP, summarize
from ccnet.coco_ap.matched_oks import matched_oks
from ccnet.coco_ap.matching import match
from ccnet.data.datasets import Split
from ccnet.data.observe import Observed
from ccnet.data.people import GroundTruth, detections, ground_truth_from_coco
from ccnet.data.wholebody import evaluate_wholebody
from ccnet.heads.files import about_of
from ccnet.heads.head import Head
from ccnet.metrics import Calibration, calibration, labelled_samples, reliability, sparsification
from pose2d.base.resampling import Interval, interval
from pose2d.models.base import PoseModel
from pose2d.skeletons import WHOLEBODY133, Skeleton
from pose2d.types import ConfidenceSource

SOURCES: tuple[ConfidenceSource, ...] = ("ones", "raw", "closed-form", "ccnet", "oracle")


@dataclass(frozen=True)
class Trust:
    """What one source says."""

    keypoint: np.ndarray  # [N, K]
    presence: np.ndarray  # [N, K] weight of each keypoint in the person's confidence

    def person(self, box_score: np.ndarray, part: slice = slice(None)) -> np.ndarray:
        """Confidence in each person (or a part of it), times that in its box, [N]."""
        weight = np.maximum(self.presence[:, part].sum(1), 1e-6)
        return box_score * (self.presence[:, part] * self.keypoint[:, part]).sum(1) / weight


@dataclass(frozen=True)
class Answers:
    """Predicted people, and what each source says of them."""

    skeleton: Skeleton
    image: np.ndarray  # [N] id of the image
    xy_px: np.ndarray  # [N, K, 2] image pixels
    box_score: np.ndarray  # [N] 1 for annotated boxes
    trust: Mapping[ConfidenceSource, Trust]
    oks: np.ndarray  # [N] of the person the box belongs to, or of the most similar one in the image
    keypoint_oks: np.ndarray  # [N, K] NaN where not labelled, or where nobody knows whose the box is


def trust_of(
    score: Tensor,
    closed: Tensor,
    calibrated: tuple[Tensor, Tensor] | None,
    keypoint_oks: np.ndarray,  # [N, K]
    oks: np.ndarray,  # [N]
) -> dict[ConfidenceSource, Trust]:
    """Every source's opinion. Without presence of its own a source counts every keypoint alike."""
    every = np.ones(tuple(score.shape))
    trust: dict[ConfidenceSource, Trust] = {
        "ones": Trust(every, every),
        "raw": Trust(score.double().numpy(), every),
        "closed-form": Trust(closed.double().numpy(), every),
    }
    if calibrated is not None:
        confidence, presence = (value.double().cpu().numpy() for value in calibrated)
        trust["ccnet"] = Trust(confidence, presence)
    labelled = ~np.isnan(keypoint_oks)
    known = np.where(labelled.any(1, keepdims=True), np.nan_to_num(keypoint_oks), oks[:, None])
    trust["oracle"] = Trust(known, np.where(labelled.any(1, keepdims=True), labelled, 1.0))
    return trust


def answers_of(split: Split, observed: Observed, head: Head | None, model: PoseModel) -> Answers:
    """The people of a split in their annotated boxes."""
    keypoints = np.stack([person.keypoints for person in split.people])
    area = np.array([person.area_px2 for person in split.people])
    xy_px = observed.xy_px.double().numpy()
    sigmas = model.skeleton.oks_sigma
    oks, each = matched_oks(xy_px, keypoints[..., :2], keypoints[..., 2] > 0, area, sigmas)
    about = about_of(head) if head is not None else None
    with torch.inference_mode():
        closed = closed_form(observed.score, observed.sigma_px, observed.crop_area_px2, model, about)
        device = next(head.parameters()).device if head is not None else None
        calibrated = head.judge(observed.read.to(device)) if head is not None else None
    return Answers(
        skeleton=model.skeleton,
        image=np.array([person.image_id for person in split.people]),
        xy_px=xy_px,
        box_score=np.ones(len(oks)),
        trust=trust_of(observed.score, closed, calibrated, each, oks),
        oks=oks,
        keypoint_oks=each,
    )


@dataclass(frozen=True)
class Row:
    """One source's figures."""

    ap: KeypointAP
    person: Calibration
    keypoint: Calibration | None  # None when boxes are not those of annotated people
    parts: Mapping[str, float]  # AP of each part of a skeleton that is scored in parts


@dataclass(frozen=True)
class Table:
    """All sources on the same predictions."""

    rows: Mapping[ConfidenceSource, Row]
    intervals: Mapping[str, Interval]  # of AP differences against raw, and of the share of the gap that is closed

    def as_dict(self) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for name, row in self.rows.items():
            ap = {k: v for k, v in asdict(row.ap).items() if k not in ("precision", "recall")}
            rows[name] = {**ap, "person": asdict(row.person), "parts": dict(row.parts)}
            rows[name]["keypoint"] = asdict(row.keypoint) if row.keypoint else None
        return {"sources": rows, "intervals": {name: asdict(i) for name, i in self.intervals.items()}}

    def as_rich(self, title: str) -> RichTable:
        """One column per source: it fits a narrow terminal."""
        shown = RichTable(title=title, header_style="bold")
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


def table(split: Split, answers: Answers, resamples: int = 1000) -> Table:
    """Figures of every source, with paired bootstrap intervals over images."""
    truth = ground_truth_from_coco(split.dataset, answers.skeleton.size)
    matches = {name: match(truth, _ranked(answers, name), answers.skeleton.oks_sigma) for name in answers.trust}
    rows = {}
    for name, trust in answers.trust.items():
        known = not np.isnan(answers.keypoint_oks).all()
        rows[name] = Row(
            ap=summarize(matches[name]),
            person=calibration(trust.person(answers.box_score), answers.oks),
            keypoint=calibration(trust.keypoint, answers.keypoint_oks) if known else None,
            parts=_parts(truth, answers, name) if answers.skeleton == WHOLEBODY133 else {},
        )
    ap = bootstrap_ap({str(name): found for name, found in matches.items()}, resamples)
    intervals = {}
    for name in answers.trust:
        if name in ("closed-form", "ccnet"):
            intervals[f"{name} - raw"] = interval(ap[name] - ap["raw"])
            gap = ap["oracle"] - ap["raw"]
            if gap[0] > 0:
                share = (ap[name] - ap["raw"]) / np.where(gap > 0, gap, np.nan)
                intervals[f"{name} gap closed"] = interval(share)
    return Table(rows, intervals)


def _ranked(answers: Answers, name: ConfidenceSource) -> Any:
    score = answers.oks if name == "oracle" else answers.trust[name].person(answers.box_score)
    return detections(answers.image, answers.xy_px, score)


def _parts(truth: GroundTruth, answers: Answers, name: ConfidenceSource) -> dict[str, float]:
    """AP of each part, every part ranked by its own confidence."""
    slices = {part: slice(first, end) for part, first, end in answers.skeleton.parts}
    scores = {part: answers.trust[name].person(answers.box_score, cut) for part, cut in slices.items()}
    found = evaluate_wholebody(truth, _ranked(answers, name), scores)
    return {part: getattr(found, part).ap for part in slices}


def draw(folder: Path, split: Split, answers: Answers) -> None:
    """Reliability, precision-recall, confidence against OKS, sparsification: one image each."""
    truth = ground_truth_from_coco(split.dataset, answers.skeleton.size)
    compared: tuple[ConfidenceSource, ...] = ("raw", "closed-form", "ccnet")
    drawn = [name for name in compared if name in answers.trust]
    person = {n: labelled_samples(answers.trust[n].person(answers.box_score), answers.oks) for n in drawn}
    levels: dict[str, dict[ConfidenceSource, tuple[np.ndarray, np.ndarray]]] = {"person": person}
    if not np.isnan(answers.keypoint_oks).all():
        each = {n: labelled_samples(answers.trust[n].keypoint, answers.keypoint_oks) for n in drawn}
        levels = {"keypoint": each, **levels}
    bins = {level: {str(n): reliability(*s) for n, s in found.items()} for level, found in levels.items()}
    plots.reliability_diagram(folder / "reliability.png", bins)
    ends: tuple[ConfidenceSource, ...] = (*drawn, "oracle")
    sigmas = answers.skeleton.oks_sigma
    ranked = {str(n): summarize(match(truth, _ranked(answers, n), sigmas)) for n in ends}
    plots.precision_recall(folder / "precision_recall.png", ranked)
    level, found = next(iter(levels.items()))
    plots.confidence_vs_oks(folder / "confidence_vs_oks.png", {str(n): s for n, s in found.items()}, level)
    curves = {str(name): sparsification(*samples) for name, samples in person.items()}
    plots.sparsification_curve(folder / "sparsification.png", curves)
