"""How well identities hold over a video: IDF1, identity switches and HOTA, from true and found
boxes.

IDF1 (Ristani et al. 2016): boxes explained by the best one-to-one pairing of whole true and found
tracks. Switches (CLEAR MOT, Bernardin and Stiefelhagen 2008): how often a true person's found
identity changes. HOTA (Luiten et al. 2021): geometric mean of detection and association accuracy,
averaged over 19 thresholds of overlap. All equal those of TrackEval 1.3.0 to the last digit on
random tracks (tests/bench).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from pose2d.detect.boxes import iou

OVERLAP = 0.5  # least IoU of a match, for IDF1 and switches
ALPHAS = np.arange(0.05, 0.99, 0.05)
_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class FrameBoxes:
    """The boxes of one frame."""

    identity: np.ndarray  # [N] whole numbers from 0, each at most once
    boxes_px: np.ndarray  # [N, 4] x1, y1, x2, y2


@dataclass(frozen=True)
class IdentityScores:
    """Figures of one or more videos."""

    idf1: float
    switches: int
    hota: float
    detection_accuracy: float
    association_accuracy: float
    false_tracks: int  # found identities most of whose boxes are on no person
    missed: float  # share of true boxes that no found box is on


def identity_scores(truth: Sequence[FrameBoxes], tracked: Sequence[FrameBoxes]) -> IdentityScores:
    """Compare frame by frame; identities of `truth` and `found` are numbered independently."""
    overlaps = [
        iou(t.boxes_px.reshape(-1, 4), f.boxes_px.reshape(-1, 4))
        for t, f in zip(truth, tracked, strict=True)
    ]
    people = 1 + max((int(t.identity.max()) for t in truth if len(t.identity)), default=-1)
    tracks = 1 + max((int(f.identity.max()) for f in tracked if len(f.identity)), default=-1)
    true_count = np.zeros(people)
    found_count = np.zeros(tracks)
    together = np.zeros((people, tracks))
    potential = np.zeros((people, tracks))
    on_somebody = np.zeros(tracks)
    missed = 0
    for t, f, overlap in zip(truth, tracked, overlaps, strict=True):
        true_count[t.identity] += 1
        found_count[f.identity] += 1
        if not overlap.size:
            missed += len(t.identity)
            continue
        pairs = np.ix_(t.identity, f.identity)
        together[pairs] += overlap >= OVERLAP
        denominator = overlap.sum(0)[None] + overlap.sum(1)[:, None] - overlap
        potential[pairs] += np.where(denominator > _EPS, overlap / np.maximum(denominator, _EPS), 0)
        on_somebody[f.identity] += (overlap >= OVERLAP).any(0)
        missed += int((~(overlap >= OVERLAP).any(1)).sum())
    hota, detection, association = _hota(
        truth, tracked, overlaps, true_count, found_count, potential
    )
    return IdentityScores(
        idf1=_idf1(true_count, found_count, together),
        switches=_switches(truth, tracked, overlaps),
        hota=hota,
        detection_accuracy=detection,
        association_accuracy=association,
        false_tracks=int(((found_count > 0) & (on_somebody < 0.5 * found_count)).sum()),
        missed=missed / max(1.0, float(true_count.sum())),
    )


def _idf1(true_count: np.ndarray, found_count: np.ndarray, together: np.ndarray) -> float:
    """2 IDTP / (boxes of both), with the pairing of tracks that has the most boxes in common."""
    rows, columns = linear_sum_assignment(-together)
    pair = true_count.sum() + found_count.sum()
    return float(2 * together[rows, columns].sum() / pair) if pair else 1.0


def _switches(
    truth: Sequence[FrameBoxes], tracked: Sequence[FrameBoxes], overlaps: list[np.ndarray]
) -> int:
    """Matches that held in the frame before are kept where they can be; a switch is a match with
    another identity than a person's last one, however long ago."""
    last: dict[int, int] = {}
    previous: dict[int, int] = {}
    switches = 0
    for t, f, overlap in zip(truth, tracked, overlaps, strict=True):
        last_identity = np.array(
            [[previous.get(int(a)) == int(b) for b in f.identity] for a in t.identity], bool
        )
        score = np.where(
            overlap >= OVERLAP - _EPS, 1000.0 * last_identity.reshape(overlap.shape) + overlap, 0.0
        )
        rows, columns = linear_sum_assignment(-score)
        previous = {
            int(t.identity[r]): int(f.identity[c])
            for r, c in zip(rows, columns, strict=True)
            if score[r, c] > _EPS
        }
        switches += sum(
            last.get(person, identity) != identity for person, identity in previous.items()
        )
        last |= previous
    return switches


def _hota(
    truth: Sequence[FrameBoxes],
    tracked: Sequence[FrameBoxes],
    overlaps: list[np.ndarray],
    true_count: np.ndarray,
    found_count: np.ndarray,
    potential: np.ndarray,
) -> tuple[float, float, float]:
    """HOTA, DetA and AssA, each a mean over the thresholds."""
    alignment = potential / np.maximum(true_count[:, None] + found_count - potential, _EPS)
    matches = np.zeros((len(ALPHAS), *potential.shape))
    for t, f, overlap in zip(truth, tracked, overlaps, strict=True):
        rows, columns = linear_sum_assignment(-alignment[np.ix_(t.identity, f.identity)] * overlap)
        for a, alpha in enumerate(ALPHAS):
            hit = overlap[rows, columns] >= alpha - _EPS
            matches[a, t.identity[rows[hit]], f.identity[columns[hit]]] += 1
    hits = matches.sum((1, 2))
    detection = hits / np.maximum(true_count.sum() + found_count.sum() - hits, 1)
    shared = matches / np.maximum(true_count[:, None] + found_count - matches, 1)
    association = (matches * shared).sum((1, 2)) / np.maximum(hits, 1)
    return (
        float(np.sqrt(detection * association).mean()),
        float(detection.mean()),
        float(association.mean()),
    )
