"""What a person looks like, nearly free: colours at five parts of the body, how surely two such
descriptions are one person's, and who is therefore the same person in another shot.

For torso, arms, thighs, shins and head, colours are read at points on the segments between
keypoints, which lie on the person and hardly ever on the background, as a box's colours do. A part
is described by the 20, 50 and 80 % quantiles of its L, a and b (CIELAB): they say mean and pattern,
and a lamp or an exposure moves them little.

Two descriptions are compared by a log-likelihood ratio, log p(difference | same person) - log
p(difference | two people of one video): 0 says nothing, 3 says 20 times likelier the same person,
and it may be added to any other log-likelihood. Both densities are Student's t with a covariance
for each part, fitted by bench/appearance.py.

`TrackPath` is one track in order of time."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise

import cv2
import numpy as np

from pose2d.base.table import Table, column, nested
from pose2d.skeletons import COCO17, Skeleton
from pose2d.types import Appearance, Detections

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


def unseen(count: int, dtype: type = np.float64) -> Appearance:
    """`count` people of whom nothing is seen."""
    return Appearance(
        np.zeros((count, len(PARTS), SIZE), dtype), np.zeros((count, len(PARTS)), dtype)
    )


def describe(
    rgb: np.ndarray, xy_px: np.ndarray, confidence: np.ndarray, skeleton: Skeleton = COCO17
) -> Appearance:
    """Appearance of N people with keypoints [N, K, 2] of confidence [N, K] in an RGB uint8 image
    [H, W, 3].
    """
    count = len(xy_px)
    if not count:
        return unseen(0)
    samples = _samples(skeleton)
    confidence = np.where(np.isfinite(xy_px).all(-1), confidence, 0.0)
    points = _points(samples, np.nan_to_num(xy_px))  # [N, S, 2]
    height, width = rgb.shape[:2]
    column, row = np.floor(points).astype(int).transpose(2, 0, 1)
    weight = np.einsum("sk,nk->ns", samples.share, confidence)
    weight[:, samples.rows[-1]] = confidence[:, list(samples.ears)].min(-1, keepdims=True)
    weight = weight * ((column >= 0) & (column < width) & (row >= 0) & (row < height))
    sampled = rgb[row.clip(0, height - 1), column.clip(0, width - 1)]
    lab = cv2.cvtColor(sampled.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)  # [N, S, 3]
    colours = np.stack([_quantiles(lab[:, rows], weight[:, rows]) for rows in samples.rows], 1)
    return Appearance(colours, np.stack([weight[:, rows].mean(1) for rows in samples.rows], 1))


def log_likelihood_ratio(a: Appearance, b: Appearance) -> np.ndarray:
    """`log_likelihood_ratio_of_pairs` of each of a [N] with each of b [M]: [N, M]."""
    rows = [log_likelihood_ratio_of_pairs(a.rows([row] * len(b)), b) for row in range(len(a))]
    return np.reshape(rows, (len(a), len(b)))


def log_likelihood_ratio_of_pairs(a: Appearance, b: Appearance) -> np.ndarray:
    """How much likelier a and b [M], row by row, are the same person than two people of one video:
    log, [M]. A part counts by the less certain of its two weights."""
    model = _model()
    d = np.einsum("mpi,pij->mpj", a.colours - b.colours, model.basis)
    same, other = (_log_t(d, variance) for variance in (model.within, model.total))
    return (model.scale * np.minimum(a.weight, b.weight) * (same - other)).sum(-1)


def overall(appearance: Appearance) -> Appearance:
    """The weighted mean over all rows, [1]."""
    weight = appearance.weight.sum(0, dtype=np.float64)
    seen = (appearance.weight > 0).any(1).sum()
    colours = (appearance.weight[..., None] * appearance.colours).sum(0, dtype=np.float64)
    return Appearance(
        (colours / np.maximum(weight, 1e-9)[:, None])[None], (weight / max(int(seen), 1))[None]
    )


def blend(mean: Appearance, seen: Appearance, memory: float = 0.9) -> Appearance:
    """The running mean of N people after each was seen again; a part that was not seen stays as it
    was.
    """
    old = memory * mean.weight
    new = (1 - memory) * seen.weight
    old = np.where(mean.weight > 0, old, 0.0)
    total = old + new
    share = np.divide(new, total, out=np.zeros_like(total), where=total > 0)[..., None]
    colours = (1 - share) * mean.colours + share * seen.colours
    return Appearance(colours, np.maximum(memory * mean.weight + (1 - memory) * seen.weight, 0.0))


@dataclass(frozen=True)
class _Model:
    basis: np.ndarray  # [P, D, D] turns a difference so that both covariances are diagonal
    within: np.ndarray  # [P, D] variances of the difference of one person's appearances
    total: np.ndarray  # [P, D] of two people's
    scale: np.ndarray  # [P] by how much the parts together say less than each alone


@cache
def _model() -> _Model:
    with np.load(str(files("pose2d") / "weights" / "appearance.npz")) as stored:
        return _Model(
            *(stored[name].astype(float) for name in ("basis", "within", "total", "scale"))
        )


def _log_t(d: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log density of Student's t in D dimensions at [..., P, D], without the constant that all
    share: [..., P].
    """
    distance2 = (d**2 / variance).sum(-1)
    return -0.5 * (FREEDOM + d.shape[-1]) * np.log1p(distance2 / FREEDOM) - 0.5 * np.log(
        variance
    ).sum(-1)


@dataclass(frozen=True)
class _Samples:
    """Where colours are read: a mean of keypoints, moved beside a limb, or by a share of the
    torso's length.
    """

    share: np.ndarray  # [S, K] of each keypoint
    along: np.ndarray  # [S, K] the limb's direction as a difference of keypoints
    beside: np.ndarray  # [S] how far beside it, in lengths of the torso
    ring: np.ndarray  # [S, 2] and how far in the image, in lengths of the torso
    torso: np.ndarray  # [K] shoulders less hips
    rows: tuple[slice, ...]  # of each part
    ears: tuple[int, int]


@cache
def _samples(skeleton: Skeleton) -> _Samples:
    def one(name: str) -> np.ndarray:
        return np.eye(skeleton.size)[skeleton.keypoints.index(name)]

    def pair(joint: str) -> tuple[np.ndarray, np.ndarray]:
        return one(f"left_{joint}"), one(f"right_{joint}")

    torso = np.mean(pair("shoulder"), 0) - np.mean(pair("hip"), 0)
    nothing = np.zeros(skeleton.size)
    still = np.zeros(2)
    parts: dict[str, list[tuple[np.ndarray, np.ndarray, float, np.ndarray]]] = {
        part: [] for part in PARTS
    }
    for down in np.linspace(0.1, 0.9, 8):
        for across in np.linspace(0.2, 0.8, 5):
            left, right = (
                (1 - down) * top + down * low
                for top, low in zip(pair("shoulder"), pair("hip"), strict=True)
            )
            parts["torso"].append(((1 - across) * left + across * right, nothing, 0.0, still))
    for part, limbs in _LIMBS.items():
        for first, last in limbs:
            for a, b in zip(pair(first), pair(last), strict=True):
                for share in np.linspace(0.15, 0.85, 6):
                    parts[part] += [
                        ((1 - share) * a + share * b, b - a, w, still)
                        for w in (-WIDTH / 2, 0, WIDTH / 2)
                    ]
    # Hair and face: two rings around the ears' middle, a quarter of a torso wide.
    for angle in np.linspace(0, 2 * np.pi, 8, endpoint=False):
        for radius in (0.06, 0.14):
            ring = radius * np.array([np.cos(angle), np.sin(angle)])
            parts["head"].append((np.mean(pair("ear"), 0) + 0.08 * torso, nothing, 0.0, ring))
    ends = np.cumsum([0, *(len(parts[part]) for part in PARTS)])
    share, along, beside, ring = (
        np.array(column) for column in zip(*(s for p in PARTS for s in parts[p]), strict=True)
    )
    ears = tuple(skeleton.keypoints.index(f"{side}_ear") for side in ("left", "right"))
    rows = tuple(slice(a, b) for a, b in pairwise(ends.tolist()))
    return _Samples(share, along, beside, ring, torso, rows, (ears[0], ears[1]))


def _points(samples: _Samples, xy_px: np.ndarray) -> np.ndarray:
    """Pixels [N, S, 2] at which the colours of keypoints [N, K, 2] are read."""
    length = np.linalg.norm(np.einsum("k,nkx->nx", samples.torso, xy_px), axis=-1)[:, None, None]
    along = np.einsum("sk,nkx->nsx", samples.along, xy_px)
    along = along / np.maximum(np.linalg.norm(along, axis=-1, keepdims=True), 1e-6)
    beside = samples.beside[:, None] * np.stack([-along[..., 1], along[..., 0]], -1)
    return np.einsum("sk,nkx->nsx", samples.share, xy_px) + length * (beside + samples.ring)


def _quantiles(lab: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted quantiles of colours [N, S, 3] with weights [N, S]: [N, 9]."""
    order = lab.argsort(1)
    ordered = np.take_along_axis(lab, order, 1)
    share = np.take_along_axis(np.broadcast_to(weight[..., None], lab.shape), order, 1).cumsum(1)
    share = share / np.maximum(share[:, -1:], 1e-9)
    rows = [
        np.take_along_axis(ordered, (share >= q - 1e-6).argmax(1)[:, None], 1)[:, 0]
        for q in QUANTILES
    ]
    return np.stack(rows, -1).reshape(len(lab), SIZE)


RELINK_RATIO = (
    4.0  # least log-likelihood ratio at which two tracks are one person; bench/identity.py
)


def relink(
    appearance: Appearance, first_s: np.ndarray, last_s: np.ndarray, least_ratio: float
) -> np.ndarray:
    """The same people in other shots, or after a long absence, by appearance alone: one number for
    each person, [N], from the appearance of N tracks and the times they begin and end. Tracks that
    are seen at the same time are different people. Of the others, the two groups most alike are
    joined first, by the mean ratio between their members, as long as that stays above
    `least_ratio`."""
    from scipy.cluster.hierarchy import fcluster, linkage  # a third of a second, needed only here

    if len(appearance) < 2:
        return np.arange(len(appearance))
    distance = -log_likelihood_ratio(appearance, appearance)
    distance[(first_s[:, None] <= last_s) & (first_s <= last_s[:, None])] = (
        1e9  # no mean with it is near
    )
    pairs = distance[np.triu_indices(len(appearance), 1)]
    return (
        fcluster(linkage(pairs - pairs.min(), "average"), -least_ratio - pairs.min(), "distance")
        - 1
    )


TORSO_SURE = 0.3  # confidence times presence from which a keypoint of the torso says where it is
EDGE = 0.03  # a box ending this near an edge, in image sides, is cut by it


@dataclass(frozen=True)
class TrackPath(Table):
    """One track: T detections of what is taken for one person, in order of time."""

    row: np.ndarray = column((), "i", "number of the detection among all")
    frame: np.ndarray = column((), "i", "frame number")
    time_s: np.ndarray = column((), "d", "strictly increasing", unit="s")
    centre_px: np.ndarray = column(
        (2,), "d", "of the torso, or of the box where that was not seen", unit="px"
    )
    place: np.ndarray = column(
        (3,), "d", "of the box: centre x and upper edge (legs are hidden first), log height"
    )
    body_px: np.ndarray = column((), "d", "the body's size: a box's diagonal", unit="px")
    inside: np.ndarray = column((), "b", "the box ends at no edge of the image")
    alone: np.ndarray = column(
        (), "b", "nobody else overlaps it, so that its appearance is surely its own"
    )
    appearance: Appearance = nested(Appearance, "weight 0 where nobody looked")


def track_path(
    seen: Detections, row: np.ndarray, image_wh: tuple[int, int], alone: np.ndarray
) -> TrackPath:
    """From the numbers `row` [T] of a track's detections, in order of time, among all N; alone [N].
    A box shrinks and moves when something hides the legs; the torso does not: its centre is used in
    every frame in which all its keypoints reach TORSO_SURE."""
    part = seen.picked(row)
    boxes = part.box_px
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    if part.keypoints is not None:
        names = part.keypoints.skeleton.keypoints
        xy_px = part.xy_px
        torso = [
            names.index(f"{side}_{joint}")
            for joint in ("shoulder", "hip")
            for side in ("left", "right")
        ]
        from_torso = (part.sure[:, torso] >= TORSO_SURE).all(1) & np.isfinite(xy_px[:, torso]).all(
            (1, 2)
        )
        centre = np.where(from_torso[:, None], np.nan_to_num(xy_px[:, torso]).mean(1), centre)
    height = np.maximum(boxes[:, 3] - boxes[:, 1], 1.0)
    return TrackPath(
        row=row,
        frame=part.frame,
        time_s=part.time_s,
        centre_px=centre,
        place=np.stack([(boxes[:, 0] + boxes[:, 2]) / 2, boxes[:, 1], np.log(height)], 1),
        body_px=body_sizes(part.time_s, boxes),
        inside=inside_image(boxes, image_wh),
        alone=alone[row],
        appearance=unseen(len(row)) if part.appearance is None else part.appearance,
    )


def rows_of_tracks(seen: Detections) -> dict[int, np.ndarray]:
    """Of every track its rows in order of time."""
    order = np.lexsort((seen.frame, seen.identity))
    parts = np.split(order, np.flatnonzero(np.diff(seen.identity[order])) + 1)
    return {
        int(seen.identity[rows[0]]): rows
        for rows in parts
        if len(rows) and seen.identity[rows[0]] >= 0
    }


def rows_of_frames(seen: Detections) -> list[np.ndarray]:
    """The rows of each frame that belong to a track, in order of time and track."""
    kept = np.flatnonzero(seen.identity >= 0)
    order = kept[np.lexsort((seen.identity[kept], seen.frame[kept]))]
    return [
        rows
        for rows in np.split(order, np.flatnonzero(np.diff(seen.frame[order])) + 1)
        if len(rows)
    ]


def inside_image(boxes_px: np.ndarray, image_wh: tuple[int, int]) -> np.ndarray:
    """Which boxes [N, 4] end at no edge of the image, [N]: nobody comes or goes there but behind
    something.
    """
    margin = EDGE * np.array(image_wh)
    return np.all(
        (boxes_px[:, :2] >= margin) & (boxes_px[:, 2:] <= np.array(image_wh) - margin), axis=1
    )


def body_sizes(time_s: np.ndarray, boxes_px: np.ndarray, near_s: float = 0.5) -> np.ndarray:
    """The body's size at each of T detections: the largest diagonal of a box within half a second
    either way, since half a person's box is not a smaller person. [T] pixels."""
    diagonal = np.linalg.norm(boxes_px[:, 2:] - boxes_px[:, :2], axis=-1)
    first = np.searchsorted(time_s, time_s - near_s)
    end = np.searchsorted(time_s, time_s + near_s, side="right")
    return np.maximum([diagonal[a:b].max() for a, b in zip(first, end, strict=True)], 1.0)
