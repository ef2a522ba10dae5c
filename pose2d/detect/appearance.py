"""What a person looks like, nearly free: colours at five parts of the body, and how surely two looks are one person's.

For torso, arms, thighs, shins and head, colours are read at points on the segments between keypoints, which lie on the
person and hardly ever on the background, as a box's colours do. A part is described by the 20, 50 and 80 % quantiles
of its L, a and b (CIELAB): they say mean and pattern, and a lamp or an exposure moves them little.

Two descriptions are compared by a log-likelihood ratio, log p(difference | same person) - log p(difference | two
people of one video): 0 says nothing, 3 says 20 times likelier the same person, and it may be added to any other
log-likelihood. Both densities are Student's t with a covariance for each part, fitted by bench/appearance.py.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import cv2
import numpy as np

from pose2d.skeletons import COCO17, Skeleton

PARTS = ("torso", "arms", "thighs", "shins", "head")
QUANTILES = (0.2, 0.5, 0.8)
SIZE = 3 * len(QUANTILES)  # numbers a part
FREEDOM = 5.0  # degrees of Student's t: colours have outliers, wherever a keypoint misses the body
WIDTH = 0.12  # how far beside a limb's middle colours are read, in lengths of the torso

_LIMBS = {
    "arms": (("shoulder", "elbow"), ("elbow", "wrist")),
    "thighs": (("hip", "knee"),),
    "shins": (("knee", "ankle"),),
}


@dataclass(frozen=True)
class Appearances:
    """What N people look like."""

    colours: np.ndarray  # [N, 5, 9] for each part the quantiles of L (0..100), of a and of b, lowest first
    weight: np.ndarray  # [N, 5] in 0..1: confidence of the keypoints that the part was read at; 0: not seen

    def __len__(self) -> int:
        return len(self.weight)

    def __getitem__(self, index: np.ndarray | slice | list[int]) -> "Appearances":
        return Appearances(self.colours[index], self.weight[index])


def unseen(count: int) -> Appearances:
    """`count` people of whom nothing is seen."""
    return Appearances(np.zeros((count, len(PARTS), SIZE)), np.zeros((count, len(PARTS))))


def describe(rgb: np.ndarray, xy_px: np.ndarray, confidence: np.ndarray, skeleton: Skeleton = COCO17) -> Appearances:
    """Appearances of N people with keypoints [N, K, 2] of confidence [N, K] in an RGB uint8 image [H, W, 3]."""
    count = len(xy_px)
    if not count:
        return unseen(0)
    confidence = np.where(np.isfinite(xy_px).all(-1), confidence, 0.0)
    xy_px = np.nan_to_num(xy_px)
    height, width = rgb.shape[:2]
    colours, weights = np.zeros((count, len(PARTS), SIZE)), np.zeros((count, len(PARTS)))
    for part, name in enumerate(PARTS):
        points, weight = _points(name, xy_px, confidence, skeleton)  # [N, S, 2], [N, S]
        column, row = np.floor(points).astype(int).transpose(2, 0, 1)
        weight = weight * ((column >= 0) & (column < width) & (row >= 0) & (row < height))
        sampled = rgb[row.clip(0, height - 1), column.clip(0, width - 1)]
        lab = cv2.cvtColor(sampled.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)  # [N, S, 3]
        colours[:, part] = _quantiles(lab, weight)
        weights[:, part] = weight.mean(1)
    return Appearances(colours, weights)


def log_likelihood_ratio(a: Appearances, b: Appearances) -> np.ndarray:
    """How much likelier each of a [N] and each of b [M] are the same person than two people of one video: log, [N, M].

    A part counts by the less certain of its two weights.
    """
    model = _model()
    difference = a.colours[:, None] - b.colours[None]  # [N, M, P, D]
    d = np.einsum("nmpi,pij->nmpj", difference, model.basis)
    same, other = (_log_t(d, variance) for variance in (model.within, model.total))
    weight = np.minimum(a.weight[:, None], b.weight[None])
    return (model.scale * weight * (same - other)).sum(-1)


def blend(mean: Appearances, seen: Appearances, memory: float = 0.9) -> Appearances:
    """The running mean of N people after each was seen again; a part that was not seen stays as it was."""
    old, new = memory * mean.weight, (1 - memory) * seen.weight
    old = np.where(mean.weight > 0, old, 0.0)
    total = old + new
    share = np.divide(new, total, out=np.zeros_like(total), where=total > 0)[..., None]
    colours = (1 - share) * mean.colours + share * seen.colours
    return Appearances(colours, np.maximum(memory * mean.weight + (1 - memory) * seen.weight, 0.0))


@dataclass(frozen=True)
class _Model:
    basis: np.ndarray  # [P, D, D] turns a difference so that both covariances are diagonal
    within: np.ndarray  # [P, D] variances of the difference of one person's appearances
    total: np.ndarray  # [P, D] of two people's
    scale: np.ndarray  # [P] by how much the parts together say less than each alone


@cache
def _model() -> _Model:
    with np.load(str(files("pose2d") / "weights" / "appearance.npz")) as stored:
        return _Model(*(stored[name].astype(float) for name in ("basis", "within", "total", "scale")))


def _log_t(d: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log density of Student's t in D dimensions at [..., P, D], without the constant that all share: [..., P]."""
    distance2 = (d**2 / variance).sum(-1)
    return -0.5 * (FREEDOM + d.shape[-1]) * np.log1p(distance2 / FREEDOM) - 0.5 * np.log(variance).sum(-1)


def _points(part: str, xy_px: np.ndarray, confidence: np.ndarray, skeleton: Skeleton) -> tuple[np.ndarray, np.ndarray]:
    """Where a part's colours are read, [N, S, 2] pixels, and how surely that is on it, [N, S]."""

    def at(name: str) -> tuple[np.ndarray, np.ndarray]:
        index = skeleton.keypoints.index(name)
        return xy_px[:, index], confidence[:, index]

    torso = [at(f"{side}_{joint}") for side, joint in _CORNERS]
    corners, certain = np.stack([xy for xy, _ in torso], 1), np.stack([c for _, c in torso], 1)
    length = np.linalg.norm(corners[:, :2].mean(1) - corners[:, 2:].mean(1), axis=-1)  # [N]
    if part == "torso":
        across, down = (grid.ravel() for grid in np.meshgrid(np.linspace(0.2, 0.8, 5), np.linspace(0.1, 0.9, 8)))
        share = np.stack([(1 - across) * (1 - down), across * (1 - down), (1 - across) * down, across * down])
        return np.einsum("cs,ncx->nsx", share, corners), np.einsum("cs,nc->ns", share, certain)
    if part == "head":
        # Hair and face: around the ears' middle, a quarter of a torso wide.
        ears = [at("left_ear"), at("right_ear")]
        middle = (ears[0][0] + ears[1][0]) / 2
        up = corners[:, :2].mean(1) - corners[:, 2:].mean(1)
        angle = np.linspace(0, 2 * np.pi, 8, endpoint=False)
        ring = np.concatenate([r * np.stack([np.cos(angle), np.sin(angle)], 1) for r in (0.06, 0.14)])
        points = middle[:, None] + 0.08 * up[:, None] + length[:, None, None] * ring
        return points, np.repeat(np.minimum(ears[0][1], ears[1][1])[:, None], len(ring), 1)
    points, weights = [], []
    for side in ("left", "right"):
        for first, last in _LIMBS[part]:
            (a, confidence_a), (b, confidence_b) = at(f"{side}_{first}"), at(f"{side}_{last}")
            along = b - a
            beside = np.stack([-along[:, 1], along[:, 0]], 1)
            beside /= np.maximum(np.linalg.norm(beside, axis=-1, keepdims=True), 1e-6)
            for share in np.linspace(0.15, 0.85, 6):
                for offset in (-WIDTH / 2, 0.0, WIDTH / 2):
                    points.append(a + share * along + offset * length[:, None] * beside)
                    weights.append((1 - share) * confidence_a + share * confidence_b)
    return np.stack(points, 1), np.stack(weights, 1)


_CORNERS = (("left", "shoulder"), ("right", "shoulder"), ("left", "hip"), ("right", "hip"))


def _quantiles(lab: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted quantiles of colours [N, S, 3] with weights [N, S]: [N, 9]."""
    order = lab.argsort(1)
    ordered = np.take_along_axis(lab, order, 1)
    share = np.take_along_axis(np.broadcast_to(weight[..., None], lab.shape), order, 1).cumsum(1)
    share = share / np.maximum(share[:, -1:], 1e-9)
    rows = [np.take_along_axis(ordered, (share >= q - 1e-9).argmax(1)[:, None], 1)[:, 0] for q in QUANTILES]
    return np.stack(rows, -1).reshape(len(lab), SIZE)
