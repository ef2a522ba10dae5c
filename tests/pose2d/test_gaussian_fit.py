"""The Gaussian around a peak is found again."""

import torch

from pose2d.decode import fit_gaussian, windows


def _hill(x0, y0, sx, sy, height=0.8, size=(40, 48)):
    y, x = torch.meshgrid(
        torch.arange(size[0]).double(), torch.arange(size[1]).double(), indexing="ij"
    )
    return height * torch.exp(-((x - x0) ** 2) / (2 * sx**2) - (y - y0) ** 2 / (2 * sy**2))


def test_a_gaussian_is_found_again_exactly():
    truth = torch.tensor(
        [[20.3, 10.6, 1.5, 2.5], [31.8, 25.1, 3.0, 1.2], [24.0, 12.0, 2.0, 2.0]]
    ).double()
    maps = torch.stack([_hill(*row) for row in truth])[None]
    sigma = fit_gaussian(maps, truth[None, :, :2].round().long())
    torch.testing.assert_close(sigma[0], truth[:, 2:], rtol=1e-4, atol=0)


def test_a_peak_at_the_border_keeps_its_width():
    maps = _hill(0.2, 39.0, 1.5, 2.0)[None, None]
    sigma = fit_gaussian(maps, torch.tensor([[[0, 39]]]))
    torch.testing.assert_close(sigma[0, 0], torch.tensor([1.5, 2.0]).double(), rtol=1e-3, atol=0)


def test_noise_moves_the_width_little():
    generator = torch.Generator().manual_seed(0)
    maps = _hill(20.3, 10.6, 2.0, 2.0)[None, None].repeat(200, 1, 1, 1)
    maps = maps + 0.02 * torch.randn(maps.shape, generator=generator, dtype=maps.dtype)
    sigma = fit_gaussian(maps, torch.tensor([[[20, 11]]]).repeat(200, 1, 1))
    assert (sigma - 2.0).abs().mean() < 0.1


def test_a_flat_or_empty_map_says_the_largest_width():
    maps = torch.stack([torch.zeros(9, 9), torch.full((9, 9), 0.3)])[None]
    sigma = fit_gaussian(maps, torch.tensor([[[4, 4], [4, 4]]]), largest_sigma=8.0)
    torch.testing.assert_close(sigma, torch.full((1, 2, 2), 8.0))


def test_windows_are_zero_outside_the_map():
    maps = torch.arange(12.0).reshape(1, 1, 3, 4) + 1
    cut = windows(maps, torch.tensor([[[0, 0]]]), 1)[0, 0]
    torch.testing.assert_close(cut, torch.tensor([[0.0, 0, 0], [0, 1, 2], [0, 5, 6]]))
