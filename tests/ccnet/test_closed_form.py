"""The closed form against simulated errors, and heatmaps made the way networks are taught to make
them.
"""

import numpy as np
import pytest
import torch

from ccnet.closed_form import best_width, heatmap_confidence
from pose2d.decode import fit_gaussian, peaks
from pose2d.skeletons import COCO17
from pose2d.types import (
    expected_oks,
    expected_oks_per_axis,
    keypoint_oks,
    l_squared,
    sigma_px,
    variance_from_expected_oks,
)


@pytest.mark.parametrize(("sigma", "l2"), [(1.0, 1.0), (5.0, 9.0), (2.0, 400.0)])
def test_expected_oks_is_the_mean_over_gaussian_errors(sigma: float, l2: float) -> None:
    error = np.random.default_rng(0).normal(0, sigma, (1_000_000, 2))
    simulated = keypoint_oks((error**2).sum(1), np.asarray(l2)).mean()
    assert expected_oks(np.asarray(sigma**2), np.asarray(l2)) == pytest.approx(simulated, abs=2e-3)


def test_expected_oks_of_unequal_axes_is_the_mean_over_gaussian_errors() -> None:
    sigma = np.array([2.0, 7.0])
    error = np.random.default_rng(0).normal(0, 1, (1_000_000, 2)) * sigma
    simulated = keypoint_oks((error**2).sum(1), np.asarray(16.0)).mean()
    assert expected_oks_per_axis(sigma, np.asarray(16.0)) == pytest.approx(simulated, abs=2e-3)


def test_equal_axes_are_the_isotropic_case() -> None:
    sigma = torch.rand(5, 17, dtype=torch.double) * 10
    l2 = torch.rand(5, 17, dtype=torch.double) * 100
    torch.testing.assert_close(
        expected_oks_per_axis(torch.stack([sigma, sigma], -1), l2), expected_oks(sigma**2, l2)
    )


def test_variance_and_expected_oks_are_inverse() -> None:
    l2 = l_squared(torch.tensor([1000.0, 5000.0], dtype=torch.double), COCO17)
    variance = torch.rand(2, 17, dtype=torch.double) * 50
    torch.testing.assert_close(variance_from_expected_oks(expected_oks(variance, l2), l2), variance)
    torch.testing.assert_close(sigma_px(expected_oks(variance, l2), l2) ** 2, variance)
    assert torch.isinf(variance_from_expected_oks(torch.zeros(()), torch.ones(())))


def test_arrays_and_tensors_agree() -> None:
    area = np.array([900.0, 1234.5])
    from_array = l_squared(area, COCO17)
    np.testing.assert_allclose(
        from_array, l_squared(torch.from_numpy(area), COCO17).numpy(), rtol=1e-15
    )
    assert from_array[0, 0] == pytest.approx((2 * 0.026) ** 2 * 900)


def _blurred_maps(
    sigma_cells: float, target: float = 2.0, height: int = 64, width: int = 48
) -> torch.Tensor:
    """What a heatmap network converges to: the mean of its Gaussian targets over where the keypoint
    may be.
    """
    y, x = torch.meshgrid(
        torch.arange(height).double(), torch.arange(width).double(), indexing="ij"
    )
    variance = sigma_cells**2 + target**2
    hill = torch.exp(-((x - 20.3) ** 2 + (y - 31.7) ** 2) / (2 * variance)) * target**2 / variance
    return hill[None, None]


def _width(maps: torch.Tensor) -> torch.Tensor:
    """Of the Gaussian fitted around each peak, [N, K, 2] cells."""
    return fit_gaussian(maps, peaks(maps)[0])


def test_a_blurred_target_is_what_uncertain_keypoints_average_to() -> None:
    rng = np.random.default_rng(0)
    y, x = np.meshgrid(np.arange(64), np.arange(48), indexing="ij")
    centres = np.array([20.3, 31.7]) + rng.normal(0, 1.5, (20_000, 2))
    mean = np.zeros((64, 48))
    for cx, cy in centres:
        mean += np.exp(-((x - cx) ** 2) / 8)[0] * np.exp(-((y - cy) ** 2) / 8)[:, :1]
    np.testing.assert_allclose(mean / len(centres), _blurred_maps(1.5)[0, 0].numpy(), atol=0.01)


@pytest.mark.parametrize("sigma", [0.5, 1.5, 3.0])
def test_width_and_peak_of_a_heatmap_give_the_error_back(sigma: float) -> None:
    maps = _blurred_maps(sigma)
    assert (_width(maps) ** 2 - 2.0**2).mean().item() == pytest.approx(sigma**2, rel=1e-3)
    peak = torch.tensor([[2.0**2 / (sigma**2 + 2.0**2)]], dtype=torch.double)
    one = torch.ones(1, 1, dtype=torch.double)
    confidence = heatmap_confidence(
        peak, None, 2.0, one[0], one
    ).item()  # l^2 / (sigma^2 + l^2) of l = 1
    assert 1 / confidence - 1 == pytest.approx(sigma**2, rel=1e-9)


def test_a_hill_narrower_than_the_target_is_taken_as_certain() -> None:
    narrow = _blurred_maps(0.0, target=1.5)
    one = torch.ones(1)
    assert heatmap_confidence(one[:, None], _width(narrow), 2.0, one, torch.ones(1, 1)).item() == 1
    assert heatmap_confidence(torch.tensor([[1.3]]), None, 2.0, one, torch.ones(1, 1)).item() == 1
    assert (
        heatmap_confidence(torch.tensor([[-0.1, 0.0]]), None, 2.0, one, torch.ones(1, 2)) > 0
    ).all()


def test_width_peak_and_sigma_say_the_same_confidence_in_any_crop_scale() -> None:
    sigma_cells, l2_cells = 1.5, 6.0
    expected = l2_cells / (sigma_cells**2 + l2_cells)
    for scale in (0.5, 4.0):
        frame_px_per_cell = torch.tensor([scale], dtype=torch.double)
        l2_px2 = torch.tensor([[l2_cells * scale**2]], dtype=torch.double)
        peak = torch.tensor([[4 / (sigma_cells**2 + 4)]], dtype=torch.double)
        width_px = _width(_blurred_maps(sigma_cells)) * scale
        by_width = heatmap_confidence(peak, width_px, 2.0, frame_px_per_cell, l2_px2)
        by_peak = heatmap_confidence(peak, None, 2.0, frame_px_per_cell, l2_px2)
        # 4 crop pixels to a cell
        sigma_crop_px = torch.full((1, 1, 2), sigma_cells * 4, dtype=torch.double)
        hill_px = (sigma_cells**2 + 2.0**2) ** 0.5 * frame_px_per_cell[:, None, None].expand(
            -1, 1, 2
        )
        by_spread = heatmap_confidence(peak, hill_px, 2.0, frame_px_per_cell, l2_px2)
        by_sigma = expected_oks_per_axis(sigma_crop_px * frame_px_per_cell / 4, l2_px2)
        assert by_width.item() == pytest.approx(expected, rel=1e-3)
        assert by_peak.item() == pytest.approx(expected, rel=1e-9)
        assert by_spread.item() == pytest.approx(expected, rel=1e-6)
        assert by_sigma.item() == pytest.approx(expected, rel=1e-9)


def test_an_unknown_target_width_is_found_from_true_oks() -> None:
    rng = np.random.default_rng(0)
    people = 4000
    keypoints = 4
    width = 2.5
    scale = rng.uniform(0.5, 6, (people, 1))
    l2 = rng.uniform(2, 80, (people, keypoints)) * scale**2
    peak = rng.uniform(0.1, 0.95, (people, keypoints))

    def confidence_at(cells: float) -> np.ndarray:
        return l2 / (l2 + cells**2 * (1 / peak - 1) * scale**2)

    noisy = np.clip(confidence_at(width) + rng.normal(0, 0.05, peak.shape), 0, 1)
    noisy[rng.random(peak.shape) < 0.3] = np.nan
    assert best_width(confidence_at, noisy) == pytest.approx(width, rel=0.05)
