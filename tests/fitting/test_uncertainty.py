"""Stated deviations behave as deviations do, and hold on truth."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import fitting
from fitting.solver.levenberg_marquardt import (
    UNMODELLED_SIZE,
    costs,
    joint_deviations,
    log_evidence,
    normal_equations,
    solve_frames,
)
from fitting.solver.terms.priors import DISTANCE_STD_FACTOR, Guess, LikelyPose, LikelyShape
from fitting.solver.terms.scene import Balance, Contact, Floor
from fitting.training.motion_capture import load_motion
from fitting.training.simulation import Noise, scene
from tests.fitting.solver_problems import dense, some_problem


def test_sharper_keypoints_mean_smaller_deviations() -> None:
    problem, state = some_problem(4, True)
    seen = problem.seen
    sharp = problem.having(replace(seen, weight=seen.weight * 100, robust=seen.robust * 1e6))
    blunt = problem.having(replace(seen, robust=seen.robust * 1e6))
    assert (
        joint_deviations(sharp, state).camera_frame_m.mean()
        < 0.9 * joint_deviations(blunt, state).camera_frame_m.mean()
    )


def test_the_deviation_is_that_of_the_dense_posterior() -> None:
    """Against an inverse of the whole matrix, for frames with shapes of their own."""
    problem, state = some_problem(3, False)
    problem = problem.having(replace(problem.term(LikelyShape), weight=1.0))  # as frames by themselves have it
    guess, shape = problem.term(Guess), problem.term(LikelyShape)
    doubted = problem.having(replace(guess, translation_std_m=DISTANCE_STD_FACTOR * guess.translation_std_m))
    doubted = doubted.having(replace(shape, guess_std=DISTANCE_STD_FACTOR * shape.guess_std))
    doubted = doubted.having(LikelyPose(problem.term(LikelyPose).prior.single_gaussian()))
    scene = Floor | Contact | Balance
    doubted = replace(doubted, terms=tuple(term for term in doubted.terms if not isinstance(term, scene)))
    system = normal_equations(doubted, state)
    geometry = problem.jacobian.place(state)
    step_jacobian, shape_jacobian = (
        problem.jacobian.joint_step_jacobian(geometry),
        problem.jacobian.joint_shape_jacobian(geometry),
    )
    found = joint_deviations(problem, state)
    for t in range(3):
        top = torch.cat((system.matrix[t], system.arrow[t]), 1)
        whole = torch.cat((top, torch.cat((system.arrow[t].T, system.corner[t]), 1)))
        slope = torch.cat((step_jacobian[t], shape_jacobian[t]), -1)
        variance = torch.einsum("jcd,de,jce->jc", slope, torch.linalg.inv(whole), slope)
        unmodelled = (UNMODELLED_SIZE * geometry.joints[t]).square()
        torch.testing.assert_close(found.camera_frame_m[t], (variance + unmodelled).sqrt())


def test_the_pelvis_is_certain_relative_to_itself() -> None:
    problem, state = some_problem(4, True)
    assert joint_deviations(problem, state).relative_m[:, 0].max() < 1e-9


def test_the_evidence_of_a_gaussian_is_its_integral() -> None:
    """A pose prior times a guess: the integral over the pose is the density of their difference."""
    problem, state = some_problem(3, False)
    prior = problem.term(LikelyPose).prior.single_gaussian()
    guess = problem.term(Guess)
    guess = replace(guess, root=state.root, translation=state.translation)  # their integral is known
    unseen = replace(problem.seen, weight=torch.zeros_like(problem.seen.weight))
    gaussian = replace(problem, terms=(unseen, LikelyPose(prior), guess, LikelyShape()))
    covariance = torch.linalg.inv(prior.precision[0])
    expected = 0.0
    for t in range(3):
        std = torch.cat((guess.root_std_rad[t].expand(3), guess.pose_std_rad[t], guess.translation_std_m[t].expand(3)))
        both = torch.distributions.MultivariateNormal(
            prior.mean[0], covariance + torch.diag(guess.pose_std_rad[t].square())
        )
        expected += float(both.log_prob(guess.pose[t])) + float((std * math.sqrt(2 * math.pi)).log().sum())
        expected += 5 * math.log(2 * math.pi)  # ten numbers of shape, each of integral sqrt(2 pi)
    found = solve_frames(gaussian, replace(state, shape=torch.zeros_like(state.shape)), 50, 1e-12).state
    assert log_evidence(gaussian, found) == pytest.approx(expected, abs=1e-6)


def test_the_evidence_of_a_track_has_the_determinant_of_the_dense_matrix() -> None:
    problem, state = some_problem(5, True)
    system = normal_equations(problem, state)
    whole = dense(system)
    _, total = costs(problem, state)
    expected = -total - torch.logdet(whole) / 2 + len(whole) * math.log(2 * math.pi) / 2
    assert log_evidence(problem, state) == pytest.approx(float(expected), abs=1e-6)


def test_intervals_hold_on_motion_nothing_was_learned_from(shared) -> None:
    """A small part of bench/uncertainty.py, so with wider margins: 12 clips of 20 frames."""
    body = fitting.load_body()
    motion = load_motion(shared / "data" / "cmu" / "clips_30fps.npz", body, 30.0)
    generator = torch.Generator().manual_seed(0)
    ratios = []
    for clip in np.flatnonzero(motion.held_out)[::3]:
        truth = scene(motion, int(clip), body, generator, Noise(outliers=0.0), frames=20)
        found = fitting.fit(truth.keypoints, truth.camera, body)
        assert found.joint_std_mm is not None
        away = 1000 * (body.at(found.params).joints - body.at(truth.truth).joints)
        ratios.append((away / found.joint_std_mm).abs())
    ratio = torch.cat(ratios)
    assert 0.5 < (ratio < 1).float().mean() < 0.86
    assert 0.85 < (ratio < 1.96).float().mean() <= 0.995
