"""The functions of the paper's analysis against numerical integration and minimisation."""

import numpy as np
import pytest
from scipy.optimize import minimize

from ccnet.paper import theory

GRID = np.linspace(-30, 30, 601)
X, Y = np.meshgrid(GRID, GRID, indexing="ij")
CELL = (GRID[1] - GRID[0]) ** 2
EXACT = {"xatol": 1e-8, "fatol": 1e-14}
CASES = [(0.5, 2.0, 0.0), (1.0, 2.0, 1.0), (2.5, 2.0, 3.0), (3.0, 1.0, 0.5)]


def gaussian(sigma: float, x0: float = 0.0) -> np.ndarray:
    return np.exp(-((X - x0) ** 2 + Y**2) / (2 * sigma**2)) / (2 * np.pi * sigma**2)


@pytest.mark.parametrize(("sigma", "length", "offset"), CASES)
def test_expected_oks_is_the_integral_over_true_places(sigma, length, offset):
    oks = np.exp(-((X - offset) ** 2 + Y**2) / (2 * length**2))
    integral = (gaussian(sigma) * oks).sum() * CELL
    assert theory.expected_oks(sigma, length, offset) == pytest.approx(integral, rel=1e-6)
    if offset == 0:
        assert theory.best_expected_oks(sigma, length) == pytest.approx(integral, rel=1e-6)


@pytest.mark.parametrize(("sigma", "width", "offset"), CASES)
def test_the_optimal_heatmap_is_the_blurred_target(sigma, width, offset):
    """By convolution: the mean over true places of a Gaussian of height 1."""
    at_mean = (gaussian(sigma) * np.exp(-(X**2 + Y**2) / (2 * width**2))).sum() * CELL
    assert theory.heatmap_confidence(sigma, width) == pytest.approx(at_mean, rel=1e-6)


@pytest.mark.parametrize(("sigma", "width", "offset"), CASES)
def test_an_imperfect_heatmap_minimises_the_squared_error(sigma, width, offset):
    variance = theory.heatmap_variance(sigma, width)
    blurred = width**2 / variance * np.exp(-(X**2 + Y**2) / (2 * variance))

    def loss(log_parameters: np.ndarray) -> float:
        height, wide = np.exp(log_parameters)
        heatmap = height * np.exp(-((X - offset) ** 2 + Y**2) / (2 * wide))
        return float(((heatmap - blurred) ** 2).sum() * CELL)

    found = minimize(loss, np.log([0.5, variance]), method="Nelder-Mead", options=EXACT)
    height, wide = np.exp(found.x)
    assert theory.imperfect_heatmap_variance(sigma, width, offset) == pytest.approx(wide, rel=1e-4)
    confidence = theory.imperfect_heatmap_confidence(sigma, width, offset)
    assert confidence == pytest.approx(height, rel=1e-4)
    printed = theory.imperfect_heatmap_confidence(sigma, width, offset, as_printed=True)
    assert printed >= confidence
    if offset:
        assert printed > 1.005 * height  # the exponential that the last line leaves out
        assert confidence < theory.heatmap_confidence(sigma, width)


@pytest.mark.parametrize(("sigma", "width", "offset"), CASES)
def test_the_regressed_sigma_maximises_the_likelihood(sigma, width, offset):
    density = gaussian(sigma)
    squared = (X - offset) ** 2 + Y**2

    def loss(log_sigma: np.ndarray) -> float:
        s2 = np.exp(2 * log_sigma[0])
        return float((density * (np.log(s2) + squared / (2 * s2))).sum() * CELL)

    found = minimize(loss, [0.0], method="Nelder-Mead", options=EXACT)
    expected = theory.imperfect_regression_sigma(sigma, offset)
    assert expected == pytest.approx(np.exp(found.x[0]), rel=1e-5)
    assert theory.imperfect_regression_confidence(sigma, offset) == pytest.approx(1 - expected)
    mean_l1 = (density * (abs(X) + abs(Y))).sum() * CELL
    confidence = theory.regression_confidence(sigma)
    assert confidence == pytest.approx(1 - np.sqrt(np.pi / 8) * mean_l1, abs=5e-3)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_the_laplace_scale_maximises_the_likelihood_of_a_wrong_model(sigma):
    density = gaussian(sigma)
    l1 = abs(X) + abs(Y)

    def loss(log_scale: np.ndarray) -> float:
        scale = np.exp(log_scale[0])
        return float((density * (2 * np.log(scale) + l1 / scale)).sum() * CELL)

    found = minimize(loss, [0.0], method="Nelder-Mead", options=EXACT)
    assert theory.laplace_scale(sigma) == pytest.approx(np.exp(found.x[0]), rel=5e-3)
    assert theory.laplace_confidence(sigma) > theory.regression_confidence(sigma)


def test_the_papers_map_needs_the_right_order_and_mar_does_not():
    oks = np.random.default_rng(0).random(200)
    mar = theory.mean_average_recall(oks)
    assert theory.mean_average_precision(oks, oks) == pytest.approx(mar)
    assert theory.mean_average_precision(-oks, oks) < mar
