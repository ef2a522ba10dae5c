"""The paper's analysis as functions: expected OKS and expected confidence of one keypoint.

The true place of a keypoint is uncertain, p ~ N(mu, sigma^2 I); the network predicts a place at the
distance `offset` from mu. `l` is the scale of OKS (Eq. 7), `target_width` the width of a heatmap's
Gaussian target. All lengths are in one unit. Equations are counted as in arXiv 2311.17105; "Supp."
is its supplement. Every function takes floats or arrays that broadcast."""

from typing import Any

import numpy as np

Values = Any  # float or array


def expected_oks(sigma: Values, l: Values, offset: Values = 0.0) -> Values:  # noqa: E741
    """Return E[OKS] of a prediction off the mean by `offset` (Eq. 11)."""
    variance = np.square(sigma) + np.square(l)
    return np.square(l) / variance * np.exp(-np.square(offset) / (2 * variance))


def best_expected_oks(sigma: Values, l: Values) -> Values:  # noqa: E741
    """Return E[OKS] of a perfect prediction, l^2 / (sigma^2 + l^2) (Eq. 12)."""
    return expected_oks(sigma, l)


def heatmap_variance(sigma: Values, target_width: Values) -> Values:
    """Return the variance of the heatmap that minimises the squared error, sigma^2 + w^2."""
    return np.square(sigma) + np.square(target_width)


def heatmap_confidence(sigma: Values, target_width: Values) -> Values:
    """Return the maximum of the optimal heatmap, w^2 / (sigma^2 + w^2) (Eq. 17)."""
    return np.square(target_width) / heatmap_variance(sigma, target_width)


def regression_confidence(sigma: Values) -> Values:
    """Return RLE's confidence 1 - sigma of a perfect prediction (Eq. 19)."""
    return 1 - np.asarray(sigma)


def imperfect_regression_sigma(sigma: Values, offset: Values) -> Values:
    """Return the sigma that maximises the Gaussian likelihood of a prediction off the mean,
    sqrt(sigma^2 + offset^2 / 2) (Supp., imperfect regression).
    """
    return np.sqrt(np.square(sigma) + np.square(offset) / 2)


def imperfect_regression_confidence(sigma: Values, offset: Values) -> Values:
    """Return RLE's confidence of a prediction off the mean (Supp., imperfect regression)."""
    return 1 - imperfect_regression_sigma(sigma, offset)


def imperfect_heatmap_variance(sigma: Values, target_width: Values, offset: Values) -> Values:
    """Return the variance of the Gaussian heatmap, centred off the mean, with the least squared
    error: sqrt(v^2 + offset^4 / 4) + offset^2 / 2 with v = sigma^2 + w^2 (Supp., imperfect
    detection).
    """
    variance = heatmap_variance(sigma, target_width)
    squared = np.square(offset)
    return np.sqrt(np.square(variance) + np.square(squared) / 4) + squared / 2


def imperfect_heatmap_confidence(
    sigma: Values, target_width: Values, offset: Values, as_printed: bool = False
) -> Values:
    """Return the height of that heatmap, 2 w^2 / (v + v') exp(-offset^2 / (2 (v + v'))), with v'
    its variance (Supp., imperfect detection).

    The last line of the paper's derivation leaves the exponential out, although the line for the
    optimal height has it; `as_printed` returns that value, which is too high.
    """
    total = heatmap_variance(sigma, target_width)
    total = total + imperfect_heatmap_variance(sigma, target_width, offset)
    height = 2 * np.square(target_width) / total
    return height if as_printed else height * np.exp(-np.square(offset) / (2 * total))


def laplace_scale(sigma: Values) -> Values:
    """Return the scale b = sqrt(2 / pi) sigma that maximises the likelihood of a Laplace model when
    the error is Gaussian (Supp., misspecification).
    """
    return np.sqrt(2 / np.pi) * np.asarray(sigma)


def laplace_confidence(sigma: Values) -> Values:
    """Return the confidence 1 - b of the Laplace model (Supp., misspecification)."""
    return 1 - laplace_scale(sigma)


def mean_average_precision(confidence: np.ndarray, oks: np.ndarray) -> float:
    """Return the paper's mAP (Eq. 9): the mean over COCO's thresholds of precision at every right
    person, over all N people, without an envelope or a grid of recalls.
    """
    order = np.argsort(-np.asarray(confidence), kind="stable")
    right = np.asarray(oks)[order] > np.linspace(0.5, 0.95, 10)[:, None]
    precision = np.cumsum(right, 1) / np.arange(1, right.shape[1] + 1)
    return float((right * precision).sum(1).mean() / right.shape[1])


def mean_average_recall(oks: np.ndarray) -> float:
    """Return the paper's mAR (Eq. 8), which does not depend on confidence."""
    return float((np.asarray(oks) > np.linspace(0.5, 0.95, 10)[:, None]).mean())
