"""A stated distribution of errors: what follows from it agrees with errors that are drawn from it."""

import math

import pytest
import torch

from pose2d.types import ErrorDistribution

RATIOS = [None, 0.0, 1.2, -2.5]


def mixture(log_ratio: float | None) -> ErrorDistribution:
    weight, sigma = (torch.tensor(values).double() for values in ([0.6, 0.3, 0.1], [0.2, 0.8, 4.0]))
    return ErrorDistribution(
        weight, sigma, None if log_ratio is None else torch.tensor(log_ratio).double()
    )


def drawn(stated: ErrorDistribution, count: int = 400_000) -> torch.Tensor:
    """Errors [N, 2]."""
    generator = torch.Generator().manual_seed(0)
    component = torch.multinomial(stated.weight, count, replacement=True, generator=generator)
    return (
        torch.randn(count, 2, generator=generator, dtype=torch.float64)
        * stated.axis_sigma[component]
    )


@pytest.mark.parametrize("log_ratio", RATIOS)
def test_the_expected_oks_is_the_mean_over_the_distribution(log_ratio: float | None) -> None:
    stated = mixture(log_ratio)
    oks = torch.exp(-drawn(stated).square().sum(-1) / 2)
    assert float(oks.mean()) == pytest.approx(float(stated.expected_oks()), abs=3e-3)


@pytest.mark.parametrize("log_ratio", RATIOS)
def test_so_many_errors_lie_under_a_quantile_as_it_says(log_ratio: float | None) -> None:
    stated = mixture(log_ratio)
    distance2 = drawn(stated).square().sum(-1)
    for share in (0.1, 0.5, 0.9, 0.97):
        assert float(stated.cdf(distance2.quantile(share))) == pytest.approx(share, abs=4e-3)
    assert float(stated.cdf(torch.tensor(0.0).double())) == 0
    assert float(stated.cdf(torch.tensor(1e9).double())) == pytest.approx(1)


@pytest.mark.parametrize("log_ratio", RATIOS)
def test_the_density_integrates_to_one(log_ratio: float | None) -> None:
    stated = mixture(log_ratio)
    # On a grid of sinh(t), fine where the core is and wide enough for the tails.
    t = torch.linspace(-5.5, 5.5, 801, dtype=torch.float64)
    x = t.sinh() / 2
    step = t.cosh() / 2
    error = torch.stack(torch.meshgrid(x, x, indexing="ij"), -1)
    density = stated.log_likelihood(error).exp() * step[:, None] * step
    assert float(torch.trapezoid(torch.trapezoid(density, t), t)) == pytest.approx(1, abs=1e-4)


def test_the_ratio_is_that_of_x_to_y_and_its_mean_stays() -> None:
    stated = mixture(1.2)
    x, y = stated.axis_sigma.unbind(-1)
    torch.testing.assert_close((x / y).log(), torch.full((3,), 1.2).double())
    torch.testing.assert_close((x * y).sqrt(), stated.sigma)
    along_x, along_y = (
        stated.log_likelihood(torch.tensor(error).double()) for error in ([0.5, 0.0], [0.0, 0.5])
    )
    assert float(along_x) > float(along_y)


def test_a_mirrored_error_is_as_likely() -> None:
    stated = mixture(0.7)
    error = torch.tensor([0.4, -0.9]).double()
    mirrored = error * torch.tensor([-1.0, 1.0]).double()
    torch.testing.assert_close(stated.log_likelihood(error), stated.log_likelihood(mirrored))


def test_without_a_ratio_it_is_isotropic_in_closed_form() -> None:
    stated = mixture(None)
    distance2 = torch.tensor(1.7).double()
    radial = (stated.weight * -torch.expm1(-distance2 / 2 / stated.sigma.square())).sum()
    torch.testing.assert_close(stated.cdf(distance2), radial)
    torch.testing.assert_close(
        stated.expected_oks(), (stated.weight / (1 + stated.sigma.square())).sum()
    )
    error = torch.tensor([math.sqrt(1.7), 0.0]).double()
    density = (
        stated.weight
        / (2 * math.pi * stated.sigma**2)
        * torch.exp(-distance2 / 2 / stated.sigma**2)
    ).sum()
    torch.testing.assert_close(stated.log_likelihood(error).exp(), density)
