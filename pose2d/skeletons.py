"""Skeletons: the names of keypoints, their mirror images, and how precisely people annotate them.

`oks_sigma` is the standard deviation of human annotators relative to the square root of the
person's area; OKS uses l_k^2 = (2 sigma_k)^2 * area."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True)
class Skeleton:
    """A set of K keypoints, in the order of the arrays that hold them."""

    name: str
    keypoints: tuple[str, ...]  # [K]
    flip_pairs: tuple[tuple[int, int], ...]  # indices that trade places in a mirror image
    edges: tuple[tuple[int, int], ...]  # bones, for drawing
    oks_sigma: tuple[float, ...]  # [K]
    # (part, first, end): parts of the body that are scored separately, as WholeBody does
    parts: tuple[tuple[str, int, int], ...] = ()

    @property
    def size(self) -> int:
        return len(self.keypoints)

    @property
    def flip_order(self) -> list[int]:
        """Return the index that each keypoint of a mirrored image comes from, [K]."""
        order = list(range(self.size))
        for a, b in self.flip_pairs:
            order[a], order[b] = b, a
        return order

    @property
    def oks_variance(self) -> np.ndarray:
        """Return (2 sigma_k)^2, [K]; times the person's area it is l_k^2 in pixels^2."""
        return (2 * np.asarray(self.oks_sigma)) ** 2


def _numbers(text: str) -> tuple[float, ...]:
    """Parse numbers separated by spaces, to keep long tables readable."""
    return tuple(map(float, text.split()))


def _pairs(first: range, second: range) -> tuple[tuple[int, int], ...]:
    """Pair the indices of two ranges of one length."""
    return tuple(zip(first, second, strict=True))


def _chain(*points: int) -> tuple[tuple[int, int], ...]:
    """Connect each point with the next one."""
    return tuple(pairwise(points))


COCO17 = Skeleton(
    name="coco17",
    keypoints=(
        "nose",
        "left_eye",
        "right_eye",
        "left_ear",
        "right_ear",
        "left_shoulder",
        "right_shoulder",
        "left_elbow",
        "right_elbow",
        "left_wrist",
        "right_wrist",
        "left_hip",
        "right_hip",
        "left_knee",
        "right_knee",
        "left_ankle",
        "right_ankle",
    ),
    flip_pairs=_pairs(range(1, 16, 2), range(2, 17, 2)),
    edges=(
        *_chain(3, 1, 0, 2, 4),
        *_chain(9, 7, 5, 6, 8, 10),
        (5, 11),
        (6, 12),
        (11, 12),
        *_chain(11, 13, 15),
        *_chain(12, 14, 16),
    ),
    oks_sigma=_numbers(
        "0.026 0.025 0.025 0.035 0.035 0.079 0.079 0.072 0.072 0.062 0.062 0.107 "
        "0.107 0.087 0.087 0.089 0.089"
    ),
)

# MPII publishes no sigmas. COCO's are taken joint by joint; pelvis from the hips, thorax from the
# shoulders, neck and head top from the nose.
MPII16 = Skeleton(
    name="mpii16",
    keypoints=(
        "right_ankle",
        "right_knee",
        "right_hip",
        "left_hip",
        "left_knee",
        "left_ankle",
        "pelvis",
        "thorax",
        "upper_neck",
        "head_top",
        "right_wrist",
        "right_elbow",
        "right_shoulder",
        "left_shoulder",
        "left_elbow",
        "left_wrist",
    ),
    flip_pairs=((0, 5), (1, 4), (2, 3), (10, 15), (11, 14), (12, 13)),
    edges=(
        *_chain(0, 1, 2, 6, 3, 4, 5),
        *_chain(6, 7, 8, 9),
        *_chain(10, 11, 12, 7, 13, 14, 15),
    ),
    oks_sigma=_numbers(
        "0.089 0.087 0.107 0.107 0.087 0.089 0.107 0.079 0.026 0.026 0.062 0.072 "
        "0.079 0.079 0.072 0.062"
    ),
)

_FOOT_SIGMA = (0.068, 0.066, 0.066, 0.092, 0.094, 0.094)
_FACE_SIGMA = _numbers(
    "0.042 0.043 0.044 0.043 0.040 0.035 0.031 0.025 0.020 0.023 0.029 0.032 "
    "0.037 0.038 0.043 0.041 0.045 0.013 0.012 0.011 0.011 0.012 0.012 0.011 "
    "0.011 0.013 0.015 0.009 0.007 0.007 0.007 0.012 0.009 0.008 0.016 0.010 "
    "0.017 0.011 0.009 0.011 0.009 0.007 0.013 0.008 0.011 0.012 0.010 0.034 "
    "0.008 0.008 0.009 0.008 0.008 0.007 0.010 0.008 0.009 0.009 0.009 0.007 "
    "0.007 0.008 0.011 0.008 0.008 0.008 0.010 0.008"
)
_HAND_SIGMA = _numbers(
    "0.029 0.022 0.035 0.037 0.047 0.026 0.025 0.024 0.035 0.018 0.024 0.022 "
    "0.026 0.017 0.021 0.021 0.032 0.020 0.019 0.022 0.031"
)

_FOOT = 17
_FACE = 23
_LEFT_HAND = 91
_RIGHT_HAND = 112
# The 68 face points of the iBUG scheme: chin line, brows, lower nose, eyes, lips.
_FACE_MIRROR = (
    *((i, 16 - i) for i in range(8)),
    *((17 + i, 26 - i) for i in range(5)),
    (31, 35),
    (32, 34),
    (36, 45),
    (37, 44),
    (38, 43),
    (39, 42),
    (40, 47),
    (41, 46),
    (48, 54),
    (49, 53),
    (50, 52),
    (55, 59),
    (56, 58),
    (60, 64),
    (61, 63),
    (65, 67),
)
_FACE_LINES = (
    *_chain(*range(17)),
    *_chain(*range(17, 22)),
    *_chain(*range(22, 27)),
    *_chain(*range(27, 31)),
    *_chain(*range(31, 36)),
    *_chain(*range(36, 42), 36),
    *_chain(*range(42, 48), 42),
    *_chain(*range(48, 60), 48),
    *_chain(*range(60, 68), 60),
)


def _hand_edges(wrist: int) -> tuple[tuple[int, int], ...]:
    """Connect the wrist with the four points of every finger, which follow it."""
    fingers = (_chain(wrist, *range(wrist + 1 + 4 * f, wrist + 5 + 4 * f)) for f in range(5))
    return tuple(edge for finger in fingers for edge in finger)


WHOLEBODY133 = Skeleton(
    name="wholebody133",
    keypoints=(
        *COCO17.keypoints,
        *(
            f"{side}_{point}"
            for side in ("left", "right")
            for point in ("big_toe", "small_toe", "heel")
        ),
        *(f"face_{i}" for i in range(68)),
        *(f"{side}_hand_{i}" for side in ("left", "right") for i in range(21)),
    ),
    flip_pairs=(
        *COCO17.flip_pairs,
        *_pairs(range(17, 20), range(20, 23)),
        *((_FACE + a, _FACE + b) for a, b in _FACE_MIRROR),
        *_pairs(range(_LEFT_HAND, _RIGHT_HAND), range(_RIGHT_HAND, 133)),
    ),
    edges=(
        *COCO17.edges,
        (15, 17),
        (15, 18),
        (15, 19),
        (16, 20),
        (16, 21),
        (16, 22),
        *((_FACE + a, _FACE + b) for a, b in _FACE_LINES),
        (9, _LEFT_HAND),
        *_hand_edges(_LEFT_HAND),
        (10, _RIGHT_HAND),
        *_hand_edges(_RIGHT_HAND),
    ),
    oks_sigma=(*COCO17.oks_sigma, *_FOOT_SIGMA, *_FACE_SIGMA, *_HAND_SIGMA, *_HAND_SIGMA),
    parts=(
        ("body", 0, _FOOT),
        ("foot", _FOOT, _FACE),
        ("face", _FACE, _LEFT_HAND),
        ("lefthand", _LEFT_HAND, _RIGHT_HAND),
        ("righthand", _RIGHT_HAND, 133),
    ),
)

# Halpe's 26: COCO's 17, three points of the body's axis, and the feet.
HALPE26 = Skeleton(
    name="halpe26",
    keypoints=(
        *COCO17.keypoints,
        "head_top",
        "neck",
        "pelvis",
        "left_big_toe",
        "right_big_toe",
        "left_small_toe",
        "right_small_toe",
        "left_heel",
        "right_heel",
    ),
    flip_pairs=(*COCO17.flip_pairs, (20, 21), (22, 23), (24, 25)),
    edges=(
        *COCO17.edges,
        *_chain(17, 18, 19),
        (15, 20),
        (15, 22),
        (15, 24),
        (16, 21),
        (16, 23),
        (16, 25),
    ),
    oks_sigma=(*COCO17.oks_sigma, 0.026, 0.026, 0.066, *(0.079,) * 6),
)

BY_NAME = {skeleton.name: skeleton for skeleton in (COCO17, HALPE26, MPII16, WHOLEBODY133)}
