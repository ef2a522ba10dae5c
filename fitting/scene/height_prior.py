"""Say how tall people are before their place is known: adults and some children, by their heads."""

import math

import numpy as np

SMALLEST_M = 0.7  # below stand no people, on their own feet
ADULT_M, ADULT_SIGMA_M = 1.70, 0.09
# Share of people who are no adults where the head was seen over many frames, and elsewhere: with
# 0.25 everywhere, 8 of 65 adults in single real images came out 0.87 to 1.13 m tall. Children come
# in groups: where another person of the shot has a child's head, the share is the third one.
CHILDREN, CHILDREN_UNSEEN, CHILDREN_IN_COMPANY = 0.1, 0.01, 0.3
CHILD_M = 1.15
CHILD_LOG_SIGMA = 0.3
CHILD_BELOW_M = 1.4  # people whose head says that they are smaller are no adults
# Neck to crown measures 0.20 m at 18 months and 0.22 m in adults (head heights of published growth
# charts and of the body model), so its share of what is below tells the height. The share is the
# lower quartile over a track, because bodies that bend look short. Of 28 adults in the choosing
# half of bench/facts.py it is 0.18 in the median, 1.15 times the body model's, and scatters by 0.07
# (log) upwards; heads that nod or are seen from behind look small, which tells little.
HEAD_M = 0.182
HEAD_GROWTH = 0.0225
ANKLE_SHARE = 0.957
HEAD_LOG_SIGMA = 0.07
HEAD_BIAS = 0.13
SMALL_HEAD = 4.0  # deviations from which on a small head says little more. Not tuned


def heavy_tailed(residual: np.ndarray | float, scale: float = 2.0) -> np.ndarray:
    """Return a residual whose square grows like a logarithm beyond `scale` (Cauchy's loss)."""
    r = np.clip(np.asarray(residual, float), -1e100, 1e100)
    return np.sign(r) * scale * np.sqrt(np.log1p((r / scale) ** 2))


def head_share(height_m: np.ndarray) -> np.ndarray:
    """Neck to crown over ankle to neck, as a pose network reads them of standing people of these
    heights.
    """
    head = HEAD_M + HEAD_GROWTH * height_m
    return (1 + HEAD_BIAS) * head / (ANKLE_SHARE * height_m - head)


def child_probability(shares: np.ndarray) -> np.ndarray:
    """Return the prior probability [P] that each person of a shot is a child, by whether the heads
    are seen (shares [P], NaN: not seen) and whether another person's head is a child's.
    """
    is_seen = np.isfinite(shares)
    alone = np.where(is_seen, CHILDREN, CHILDREN_UNSEEN)
    child_heads = _likely_heights_m(shares, alone) < CHILD_BELOW_M
    has_company = child_heads.sum() - child_heads > 0
    return np.where(is_seen & has_company, CHILDREN_IN_COMPANY, alone)


def height_cost(log_height: np.ndarray, shares: np.ndarray, children: np.ndarray) -> np.ndarray:
    """Return -log probability of heights, given the heads' shares (NaN: not seen) and the prior
    probability of children.
    """
    height = np.exp(np.clip(log_height, math.log(0.5), math.log(4.0)))
    adult = np.log((1 - children) / ADULT_SIGMA_M) - ((height - ADULT_M) / ADULT_SIGMA_M) ** 2 / 2
    child = (
        np.log(children / (CHILD_M * CHILD_LOG_SIGMA))
        - (np.log(height / CHILD_M) / CHILD_LOG_SIGMA) ** 2 / 2
        - (np.maximum(height - ADULT_M, 0.0) / ADULT_SIGMA_M) ** 2 / 2  # no child is a giant
    )
    head = np.log(np.where(np.isfinite(shares), shares, 1.0) / head_share(height)) / HEAD_LOG_SIGMA
    head = np.where(
        np.isfinite(shares), np.where(head < 0, heavy_tailed(head, SMALL_HEAD), head), 0.0
    )
    outside = (log_height - np.log(height)) / CHILD_LOG_SIGMA
    return head**2 / 2 + outside**2 / 2 - np.logaddexp(adult, child)


_HEIGHTS_LOG = np.log(np.linspace(SMALLEST_M, 2.1, 141))


def _likely_heights_m(shares: np.ndarray, children: np.ndarray) -> np.ndarray:
    costs = height_cost(_HEIGHTS_LOG[:, None], shares[None], children[None])
    return np.exp(_HEIGHTS_LOG[costs.argmin(0)])


def likely_heights_m(shares: np.ndarray) -> np.ndarray:
    """Return the most likely height [P] of the people of a shot, whose heads have these shares
    (NaN: not seen).
    """
    return _likely_heights_m(shares, child_probability(shares))


def has_child_head(shares: np.ndarray) -> np.ndarray:
    """Return for the people of a shot whether the head with this share [P] (NaN: not seen) is a
    child's: [P] bool.
    """
    return likely_heights_m(shares) < CHILD_BELOW_M
