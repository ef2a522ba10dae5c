"""People with known truth: noise as stated, at one moment and over time."""

import torch

from bench.lib.simulation import Noise, correlated_noise


def draws(noise: Noise, frames: int = 90) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.stack(
        [correlated_noise(frames, generator, noise, 30.0) for _ in range(60)]
    )  # [n, T, 17, 2]


def test_noise_is_as_large_as_stated_whatever_its_memory() -> None:
    for noise in (
        Noise(),
        Noise(constant_share=0.0),
        Noise(memory_s=0.0),
        Noise(constant_share=0.9),
    ):
        assert abs(float(draws(noise).square().mean()) - 1) < 0.1


def test_noise_is_forgotten_at_the_stated_rate_and_a_share_never() -> None:
    errors = draws(Noise(constant_share=0.4, memory_s=0.2))
    alike = {
        lag: float((errors[:, lag:] * errors[:, : len(errors[0]) - lag]).mean()) for lag in (6, 60)
    }
    assert abs(alike[6] - (0.4 + 0.6 * 0.3679)) < 0.06  # six frames are 0.2 s
    assert abs(alike[60] - 0.4) < 0.06


def test_without_memory_every_frame_is_drawn_anew() -> None:
    errors = draws(Noise(constant_share=0.0, memory_s=0.0))
    assert abs(float((errors[:, 1:] * errors[:, :-1]).mean())) < 0.02
