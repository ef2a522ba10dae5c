"""What a person looks like, at little cost: colours at five parts of the body, and how likely two
such descriptions are of the same person.

For torso, arms, thighs, shins and head, colours are read at points on the segments between
keypoints. These lie on the person, while a box also contains background. A part is described by the
20, 50 and 80 % quantiles of its L, a and b (CIELAB), which capture mean and pattern and change
little with lighting and exposure.

Two descriptions are compared by a log-likelihood ratio, log p(difference | same person) - log
p(difference | two people of one video). 0 says nothing, 3 says 20 times likelier the same person,
and it may be added to any other log-likelihood. Both densities are Student's t with a covariance
for each part, fitted by bench/tuning/appearance.py."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np

from pose2d.base.embedded import check_embedded
from pose2d.skeletons import COCO17, Skeleton
from pose2d.types import Appearance

PARTS = ("torso", "arms", "thighs", "shins", "head")
QUANTILES = (0.2, 0.5, 0.8)
SIZE = 3 * len(QUANTILES)  # numbers a part
# Degrees of freedom of Student's t: colours have outliers where a keypoint misses the body.
FREEDOM = 5.0
WIDTH = 0.12  # how far beside a limb's middle colours are read, in lengths of the torso

_LIMBS = {
    "arms": (("shoulder", "elbow"), ("elbow", "wrist")),
    "thighs": (("hip", "knee"),),
    "shins": (("knee", "ankle"),),
}


def no_appearance(count: int, dtype: type = np.float64) -> Appearance:
    """Return the appearance of `count` people whose colours were not read: all weights are 0."""
    colours: np.ndarray = np.zeros((count, len(PARTS), SIZE), dtype)
    return Appearance(colours, np.zeros((count, len(PARTS)), dtype))


def describe(
    rgb: np.ndarray, xy_px: np.ndarray, confidence: np.ndarray, skeleton: Skeleton = COCO17
) -> Appearance:
    """Return the appearance of N people with keypoints [N, K, 2] of confidence [N, K] in an RGB
    uint8 image [H, W, 3].
    """
    count = len(xy_px)
    if not count:
        return no_appearance(0)
    samples = _samples(skeleton)
    confidence = np.where(np.isfinite(xy_px).all(-1), confidence, 0.0)
    points = _points(samples, np.nan_to_num(xy_px))  # [N, S, 2]
    height, width = rgb.shape[:2]
    column, row = np.floor(points).astype(int).transpose(2, 0, 1)
    weight = np.einsum("sk,nk->ns", samples.share, confidence)
    weight[:, samples.rows[-1]] = confidence[:, list(samples.ears)].min(-1, keepdims=True)
    is_inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    weight = weight * is_inside
    sampled = rgb[row.clip(0, height - 1), column.clip(0, width - 1)]
    lab = cv2.cvtColor(sampled.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)  # [N, S, 3]
    colours = np.stack([_quantiles(lab[:, rows], weight[:, rows]) for rows in samples.rows], 1)
    return Appearance(colours, np.stack([weight[:, rows].mean(1) for rows in samples.rows], 1))


def log_likelihood_ratio(a: Appearance, b: Appearance) -> np.ndarray:
    """Return `log_likelihood_ratio_of_pairs` of each of a [N] with each of b [M]: [N, M]."""
    rows = [log_likelihood_ratio_of_pairs(a.rows([row] * len(b)), b) for row in range(len(a))]
    return np.reshape(rows, (len(a), len(b)))


def log_likelihood_ratio_of_pairs(a: Appearance, b: Appearance) -> np.ndarray:
    """Return how much likelier a and b [M], row by row, are the same person than two people of one
    video, as a logarithm [M]. A part counts by the smaller of its two weights.
    """
    model = _model()
    d = np.einsum("mpi,pij->mpj", a.colours - b.colours, model.basis)
    log_ratio = _log_student_t(d, model.within) - _log_student_t(d, model.total)
    return (model.scale * np.minimum(a.weight, b.weight) * log_ratio).sum(-1)


def overall(appearance: Appearance) -> Appearance:
    """Return the weighted mean over all rows, [1]."""
    weight = appearance.weight.sum(0, dtype=np.float64)
    rows_with_weight = int((appearance.weight > 0).any(1).sum())
    colours = (appearance.weight[..., None] * appearance.colours).sum(0, dtype=np.float64)
    mean_colours = colours / np.maximum(weight, 1e-9)[:, None]
    mean_weight = weight / max(rows_with_weight, 1)
    return Appearance(mean_colours[None], mean_weight[None])


def blend(mean: Appearance, newest: Appearance, memory: float = 0.9) -> Appearance:
    """Return the running mean of N people's appearance after one more observation of each; a part
    with weight 0 in `newest` keeps its colours.
    """
    old_weight = np.where(mean.weight > 0, memory * mean.weight, 0.0)
    new_weight = (1 - memory) * newest.weight
    total = old_weight + new_weight
    share = np.divide(new_weight, total, out=np.zeros_like(total), where=total > 0)[..., None]
    colours = (1 - share) * mean.colours + share * newest.colours
    return Appearance(colours, np.maximum(memory * mean.weight + new_weight, 0.0))


@dataclass(frozen=True)
class _Model:
    """Distributions of colour differences, for P parts of D numbers."""

    basis: np.ndarray  # [P, D, D] turns a difference so that both covariances are diagonal
    within: np.ndarray  # [P, D] variances of differences between appearances of one person
    total: np.ndarray  # [P, D] variances of differences between two people
    scale: np.ndarray  # [P] weight of a part: parts are correlated, so together they say less


@cache
def _model() -> _Model:
    with np.load(
        check_embedded(Path(str(files("pose2d") / "weights" / "appearance.npz")))
    ) as stored:
        names = ("basis", "within", "total", "scale")
        return _Model(*(stored[name].astype(float) for name in names))


def _log_student_t(d: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return the log density of Student's t in D dimensions at [..., P, D], without its constant:
    [..., P].
    """
    distance2 = (d**2 / variance).sum(-1)
    log_det = np.log(variance).sum(-1)
    return -0.5 * (FREEDOM + d.shape[-1]) * np.log1p(distance2 / FREEDOM) - 0.5 * log_det


@dataclass(frozen=True)
class _Samples:
    """The S points at which colours are read: each is a weighted mean of the K keypoints, moved
    sideways from a limb or by a fixed offset.
    """

    share: np.ndarray  # [S, K] weight of each keypoint
    along: np.ndarray  # [S, K] the limb's direction as a difference of keypoints
    beside: np.ndarray  # [S] offset sideways from the limb, in lengths of the torso
    ring: np.ndarray  # [S, 2] offset in the image, in lengths of the torso
    torso: np.ndarray  # [K] shoulders less hips
    rows: tuple[slice, ...]  # the points of each part
    ears: tuple[int, int]  # their keypoints


@cache
def _samples(skeleton: Skeleton) -> _Samples:
    """Lay out the points for a skeleton."""

    def one_hot(name: str) -> np.ndarray:
        return np.eye(skeleton.size)[skeleton.keypoints.index(name)]

    def pair(joint: str) -> tuple[np.ndarray, np.ndarray]:
        return one_hot(f"left_{joint}"), one_hot(f"right_{joint}")

    torso = np.mean(pair("shoulder"), 0) - np.mean(pair("hip"), 0)
    no_limb = np.zeros(skeleton.size)
    no_offset = np.zeros(2)
    # For each part the share, along, beside and ring of its points.
    parts: dict[str, list[tuple[np.ndarray, np.ndarray, float, np.ndarray]]] = {
        part: [] for part in PARTS
    }
    for down in np.linspace(0.1, 0.9, 8):
        left, right = (
            (1 - down) * shoulder + down * hip
            for shoulder, hip in zip(pair("shoulder"), pair("hip"), strict=True)
        )
        for across in np.linspace(0.2, 0.8, 5):
            share = (1 - across) * left + across * right
            parts["torso"].append((share, no_limb, 0.0, no_offset))
    for part, limbs in _LIMBS.items():
        for first, last in limbs:
            for a, b in zip(pair(first), pair(last), strict=True):
                for fraction in np.linspace(0.15, 0.85, 6):
                    share = (1 - fraction) * a + fraction * b
                    for beside in (-WIDTH / 2, 0.0, WIDTH / 2):
                        parts[part].append((share, b - a, beside, no_offset))
    # Hair and face: two rings around the ears' middle, a quarter of a torso wide.
    for angle in np.linspace(0, 2 * np.pi, 8, endpoint=False):
        for radius in (0.06, 0.14):
            ring = radius * np.array([np.cos(angle), np.sin(angle)])
            parts["head"].append((np.mean(pair("ear"), 0) + 0.08 * torso, no_limb, 0.0, ring))
    points = [point for part in PARTS for point in parts[part]]
    ends = np.cumsum([0, *(len(parts[part]) for part in PARTS)])
    left_ear, right_ear = (skeleton.keypoints.index(f"{side}_ear") for side in ("left", "right"))
    return _Samples(
        share=np.array([point[0] for point in points]),
        along=np.array([point[1] for point in points]),
        beside=np.array([point[2] for point in points]),
        ring=np.array([point[3] for point in points]),
        torso=torso,
        rows=tuple(slice(a, b) for a, b in pairwise(ends.tolist())),
        ears=(left_ear, right_ear),
    )


def _points(samples: _Samples, xy_px: np.ndarray) -> np.ndarray:
    """Return the pixels [N, S, 2] at which the colours of keypoints [N, K, 2] are read."""
    length = np.linalg.norm(np.einsum("k,nkx->nx", samples.torso, xy_px), axis=-1)[:, None, None]
    along = np.einsum("sk,nkx->nsx", samples.along, xy_px)
    along = along / np.maximum(np.linalg.norm(along, axis=-1, keepdims=True), 1e-6)
    beside = samples.beside[:, None] * np.stack([-along[..., 1], along[..., 0]], -1)
    return np.einsum("sk,nkx->nsx", samples.share, xy_px) + length * (beside + samples.ring)


def _quantiles(lab: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return weighted quantiles [N, 9] of colours [N, S, 3] with weights [N, S]."""
    order = lab.argsort(1)
    ordered = np.take_along_axis(lab, order, 1)
    share = np.take_along_axis(np.broadcast_to(weight[..., None], lab.shape), order, 1).cumsum(1)
    share = share / np.maximum(share[:, -1:], 1e-9)
    quantiles = []
    for q in QUANTILES:
        first_above = (share >= q - 1e-6).argmax(1)[:, None]
        quantiles.append(np.take_along_axis(ordered, first_above, 1)[:, 0])
    return np.stack(quantiles, -1).reshape(len(lab), SIZE)
