"""The pose prior: its density, its least-squares form, and the files it comes from."""

import math
import pickle

import numpy as np
import pytest
import scipy.stats
import torch

from eval3dpw.captured.motion import load_motion
from fitting import load_prior
from fitting.body.load import load_body
from fitting.solver.terms.pose_prior import GAUSSIAN, Mixture, prior_from_mixture
from fitting.solver.unknowns import BODY_JOINTS
from pose2d.base.errors import UserError


def made_up_mixture(count: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(count, 69, 69)) * 0.1
    covariances = roots @ roots.transpose(0, 2, 1) + 0.05 * np.eye(69)
    weights = rng.random(count) + 0.5
    return weights / weights.sum(), rng.normal(size=(count, 69)) * 0.3, covariances


def made_up_prior(count: int = 3, freedom: float = math.inf):
    return prior_from_mixture(Mixture(*made_up_mixture(count), freedom), np.ones(24), np.ones(57))


def test_the_density_is_the_mixtures_marginal_density() -> None:
    weights, means, covariances = made_up_mixture()
    columns = [3 * (j - 1) + a for j in BODY_JOINTS for a in range(3)]
    x = np.random.default_rng(1).normal(size=57) * 0.3
    total = 0.0
    for w, mean, covariance in zip(weights, means, covariances, strict=True):
        c = covariance[np.ix_(columns, columns)]
        away = x - mean[columns]
        _, log_det = np.linalg.slogdet(c)
        total += w * math.exp(
            -0.5 * (away @ np.linalg.solve(c, away) + log_det + 57 * math.log(2 * math.pi))
        )
    ours = made_up_prior().log_likelihood(torch.tensor(x, dtype=torch.float32)[None])
    assert float(ours) == pytest.approx(math.log(total), abs=2e-3)


def test_half_the_squared_residual_plus_the_constant_is_the_energy() -> None:
    prior = made_up_prior()
    pose = 0.3 * torch.randn(5, 57, generator=torch.Generator().manual_seed(0))
    energy, nearest = prior.energy(pose)
    residual = torch.einsum("tij,tj->ti", prior.factor[nearest], pose - prior.mean[nearest])
    torch.testing.assert_close(residual.square().sum(-1) / 2 + prior.constant[nearest], energy)


def test_a_students_density_is_scipys() -> None:
    _weights, means, covariances = made_up_mixture(1)
    columns = [3 * (j - 1) + a for j in BODY_JOINTS for a in range(3)]
    x = np.random.default_rng(1).normal(size=(4, 57))
    exact = scipy.stats.multivariate_t(
        means[0][columns], covariances[0][np.ix_(columns, columns)], df=7
    ).logpdf(x)
    ours = made_up_prior(1, 7.0).log_likelihood(torch.tensor(x, dtype=torch.float32))
    np.testing.assert_allclose(ours.numpy(), exact, atol=5e-3)


def test_a_students_gradient_is_its_precision_times_its_pull_and_falls_far_away() -> None:
    prior = made_up_prior(1, 20.0)
    pose = (
        prior.mean + 0.3 * torch.randn(5, 57, generator=torch.Generator().manual_seed(0))
    ).requires_grad_()
    energy, nearest = prior.energy(pose)
    (gradient,) = torch.autograd.grad(energy.sum(), pose)
    pull = prior.pull(pose, nearest)
    expected = pull[:, None] * torch.einsum(
        "tij,tj->ti", prior.precision[nearest], pose - prior.mean[nearest]
    )
    torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-3)
    far = prior.pull(prior.mean + 5 * (pose - prior.mean), nearest)
    assert (far < 0.2 * pull).all()
    torch.testing.assert_close(made_up_prior(1).pull(pose, nearest), torch.ones(5))


def test_the_energy_is_that_of_the_nearest_component() -> None:
    prior = made_up_prior()
    for m in range(3):
        energy, nearest = prior.energy(prior.mean[m : m + 1])
        assert int(nearest) == m
        torch.testing.assert_close(energy[0], prior.constant[m])


def test_the_embedded_prior_is_likelier_than_one_gaussian_on_subjects_it_never_saw(shared) -> None:
    motion = load_motion(shared / "data" / "cmu" / "clips_30fps.npz", load_body(), 30.0)
    pose = motion.pose[torch.from_numpy(motion.frames_of(motion.held_out))][::10][
        :, BODY_JOINTS
    ].flatten(1)
    prior = load_prior()
    assert (
        prior.log_likelihood(pose).mean() > prior.single_gaussian().log_likelihood(pose).mean() + 5
    )


def test_as_one_gaussian_it_has_the_mixtures_mean_and_covariance() -> None:
    prior = made_up_prior()
    one = prior.single_gaussian()
    generator = torch.Generator().manual_seed(0)
    pick = torch.multinomial(
        torch.from_numpy(made_up_mixture()[0]), 60_000, replacement=True, generator=generator
    )
    white = torch.randn(60_000, 57, 1, generator=generator)
    samples = (
        torch.linalg.solve_triangular(prior.factor[pick], white, upper=True).squeeze(-1)
        + prior.mean[pick]
    )
    torch.testing.assert_close(samples.mean(0), one.mean[0], atol=0.03, rtol=0)
    torch.testing.assert_close(
        samples.T.cov(), torch.linalg.inv(one.precision[0]), atol=0.05, rtol=0
    )
    assert one.mean.shape == (1, 57)


def test_smplifys_mixture_loads(tmp_path) -> None:
    weights, means, covariances = made_up_mixture(8)
    path = tmp_path / "gmm_08.pkl"
    path.write_bytes(
        pickle.dumps({"weights": weights, "means": means, "covars": covariances}, protocol=2)
    )
    found = load_prior(path)
    assert found.mean.shape == (8, 57)
    torch.testing.assert_close(found.mean, made_up_prior(8).mean)
    assert found.freedom == GAUSSIAN


def test_another_pickle_is_refused_in_words(tmp_path) -> None:
    path = tmp_path / "other.pkl"
    path.write_bytes(pickle.dumps({"weights": np.ones(3)}))
    with pytest.raises(UserError, match="pose prior"):
        load_prior(path)
