"""Whether stated uncertainty holds, in the measures that others use: coverage, sharpness,
likelihood, ranking, ECE.

Errors are of joints relative to the pelvis, along the camera's axes; a stated deviation is the
scale of Student's t (`fitting.stated`). Hands are left out: nothing measures them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln
from scipy.stats import rankdata, spearmanr, t

from fitting.fits import TrackFit
from fitting.stated import COUNTED, KIND, KINDS, ONE_STD, level_factor, probability_within
from pose2d.base.columns import column
from pose2d.base.table import Table

LEVELS = (0.50, 0.68, 0.90, 0.95)
LIMITS_MM = (50.0, 100.0)  # of errors that are worth a warning
FRAME_LIMITS_MM = (50.0, 100.0, 150.0, 200.0, 300.0)  # of a frame's worst joint
BINS = 10  # of the reliability diagram, each with as many frames
ENOUGH = 200  # person-frames of a row that can be judged


@dataclass(frozen=True)
class Stated(Table):
    """Hold what a fit states of T frames."""

    std_mm: np.ndarray = column(
        (24, 3), "f", "of joints relative to the pelvis along x, y, z", unit="mm", fill=np.nan
    )
    widening: np.ndarray = column(
        (24, 3), "f", "95 % of errors are below so many deviations", fill=np.nan
    )
    observed: np.ndarray = column((24,), "b", "joints that keypoints show")
    worst_error_mm: np.ndarray = column(
        (), "f", "median of the largest joint error", unit="mm", fill=np.nan
    )

    @staticmethod
    def of(track: TrackFit, scene: bool = False) -> "Stated | None":
        """Return what a track states; None where its confidence is not calibrated."""
        std = track.fit.joint_std_relative_mm
        worst = track.worst_error_mm
        if std is None or worst is None:
            return None
        widening = level_factor(0.95, track.joint_observed, scene).astype(np.float32)
        return Stated(std.numpy(), widening, track.joint_observed, worst)


def figures(error_mm: np.ndarray, statement: Stated) -> dict[str, Any]:
    """Return all figures of errors [T, 24, 3] relative to the pelvis, beside what was stated of
    them.
    """
    error, std, widening = (
        values[:, COUNTED] for values in (error_mm, statement.std_mm, statement.widening)
    )
    length = np.linalg.norm(error, axis=-1)
    expected = np.linalg.norm(std, axis=-1)
    worst = length.max(1)
    return {
        "person_frames": len(error),
        **coverage(error, std, widening),
        "spearman": float(spearmanr(length.ravel(), expected.ravel())[0]),
        "spearman_frames": float(spearmanr(length.mean(1), expected.mean(1))[0]),
        "risk_coverage_mm": float(risk_coverage(length.ravel(), expected.ravel()).mean()),
        "best_risk_coverage_mm": float(risk_coverage(length.ravel(), length.ravel()).mean()),
        **{
            f"auc_{limit:.0f}_mm": roc_auc(length.ravel() > limit, expected.ravel())
            for limit in LIMITS_MM
        },
        "worst": {
            f"{limit:.0f}_mm": {
                "share": float((worst <= limit).mean()),
                "ece": calibration_error(
                    probability_within(statement.worst_error_mm, limit), worst <= limit
                ),
                "auc": roc_auc(worst > limit, statement.worst_error_mm),
            }
            for limit in FRAME_LIMITS_MM
        },
    }


def rows(error_mm: np.ndarray, statement: Stated) -> dict[str, dict[str, float]]:
    """Return the coverage of every row with enough person-frames: by visibility, axis and kind of
    joint.
    """
    observed = np.broadcast_to(statement.observed[..., None], error_mm.shape)
    kind = np.broadcast_to(KIND[:, None], error_mm.shape)
    along = np.broadcast_to(np.arange(3) == 2, error_mm.shape)
    masks = {
        "seen": observed,
        "hidden": ~observed,
        "across the line of sight": ~along,
        "along the line of sight": along,
    }
    masks |= {name: kind == number for number, name in enumerate(KINDS[:-1])}
    counts = np.isin(np.arange(24), COUNTED)[:, None]
    figures_by_row = {}
    for name, mask in masks.items():
        mask = mask & counts
        if mask.any((1, 2)).sum() >= ENOUGH:
            figures_by_row[name] = coverage(
                error_mm[mask], statement.std_mm[mask], statement.widening[mask]
            )
            figures_by_row[name]["person_frames"] = int(mask.any((1, 2)).sum())
    return figures_by_row


def coverage(error: np.ndarray, std: np.ndarray, widening: np.ndarray) -> dict[str, float]:
    """Return shares of errors inside intervals, the intervals' mean length, and -log likelihood in
    nats per number.
    """
    freedom = freedom_of(widening)
    scale = std / t.ppf((1 + ONE_STD) / 2, freedom)
    share = {}
    for level in LEVELS:
        half = scale * t.ppf((1 + level) / 2, freedom)
        share[f"inside_{100 * level:.0f}"] = float((np.abs(error) <= half).mean())
        share[f"interval_{100 * level:.0f}_mm"] = float(2 * half.mean())
    nats = (
        -gammaln((freedom + 1) / 2)
        + gammaln(freedom / 2)
        + np.log(np.pi * freedom) / 2
        + np.log(scale)
    )
    nats = nats + (freedom + 1) / 2 * np.log1p((error / scale) ** 2 / freedom)
    return share | {"nats": float(nats.mean())}


_FREEDOMS = np.geomspace(0.8, 1000, 200)
_WIDENINGS = t.ppf(0.975, _FREEDOMS) / t.ppf(
    (1 + ONE_STD) / 2, _FREEDOMS
)  # falls with the degrees of freedom


def freedom_of(widening: np.ndarray | float) -> np.ndarray:
    """Return the degrees of freedom of the t distribution whose 95 % interval has this length, in
    deviations.
    """
    return np.exp(np.interp(-np.asarray(widening, float), -_WIDENINGS, np.log(_FREEDOMS)))


def risk_coverage(error: np.ndarray, stated_std: np.ndarray) -> np.ndarray:
    """Return the mean error of the k joints that are stated to be best, for every k.

    The mean of this curve is its area.
    """
    return np.cumsum(error[np.argsort(stated_std, kind="stable")]) / np.arange(1, len(error) + 1)


def roc_auc(wrong: np.ndarray, stated_std: np.ndarray) -> float:
    """Return how often a wrong value is stated to be worse than a right one; NaN without either."""
    bad = int(wrong.sum())
    if bad in (0, len(wrong)):
        return math.nan
    return float(
        (rankdata(stated_std)[wrong].sum() - bad * (bad + 1) / 2) / (bad * (len(wrong) - bad))
    )


def calibration_error(probability: np.ndarray, right: np.ndarray) -> float:
    """Return the ECE: the mean distance of stated probability and share over BINS of equal size."""
    bins = np.array_split(np.argsort(probability, kind="stable"), BINS)
    return float(
        sum(abs((probability[members] - right[members]).sum()) for members in bins) / len(right)
    )


def text_rows(measured: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Describe the figures of `figures` in words."""
    shares = " / ".join(f"{100 * measured[f'inside_{100 * level:.0f}']:.0f}" for level in LEVELS)
    lengths = " / ".join(f"{measured[f'interval_{100 * level:.0f}_mm']:.0f}" for level in LEVELS)
    frames = measured["worst"].items()
    return [
        ("errors inside the 50 / 68 / 90 / 95 % interval, %", shares),
        ("mean length of these intervals, mm", lengths),
        ("-log likelihood, nats per axis", f"{measured['nats']:.2f}"),
        (
            "Spearman of stated and true error: joints, frames",
            f"{measured['spearman']:.2f}, {measured['spearman_frames']:.2f}",
        ),
        (
            "area under risk-coverage, mm (best possible)",
            f"{measured['risk_coverage_mm']:.0f} ({measured['best_risk_coverage_mm']:.0f})",
        ),
        (
            "ROC-AUC of joints off by more than 50, 100 mm",
            f"{measured['auc_50_mm']:.2f}, {measured['auc_100_mm']:.2f}",
        ),
        *(
            (
                f"no joint off by more than {limit.replace('_', ' ')}: frames, ECE, AUC",
                f"{100 * frame_figures['share']:.0f} %, {frame_figures['ece']:.3f}, {frame_figures['auc']:.2f}",
            )
            for limit, frame_figures in frames
        ),
    ]
