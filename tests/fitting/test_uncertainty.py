"""Stated deviations behave as deviations do, and hold on truth."""

from dataclasses import replace

import numpy as np
import torch

import fitting
from bench.lib.simulation import Noise, scene
from eval3dpw.captured.motion import load_motion
from fitting.solver.problem import normal_equations
from fitting.solver.terms.balance import Balance
from fitting.solver.terms.contact import Contact
from fitting.solver.terms.floor import Floor
from fitting.solver.terms.guess import DISTANCE_STD_FACTOR, Guess
from fitting.solver.terms.pose_prior import LikelyPose
from fitting.solver.terms.shape import LikelyShape
from fitting.solver.uncertainty import UNMODELLED_SIZE, joint_deviations
from tests.fitting.solver_problems import having, some_problem


def test_sharper_keypoints_mean_smaller_deviations() -> None:
    problem, state = some_problem(4, True)
    seen = problem.keypoints
    sharp = having(problem, replace(seen, weight=seen.weight * 100, robust=seen.robust * 1e6))
    blunt = having(problem, replace(seen, robust=seen.robust * 1e6))
    assert (
        joint_deviations(sharp, state).camera_frame_m.mean()
        < 0.9 * joint_deviations(blunt, state).camera_frame_m.mean()
    )


def test_the_deviation_is_that_of_the_dense_posterior() -> None:
    """Against an inverse of the whole matrix, for frames with shapes of their own."""
    problem, state = some_problem(3, False)
    problem = having(
        problem, replace(problem.term(LikelyShape), weight=1.0)
    )  # as frames by themselves have it
    guess = problem.term(Guess)
    shape = problem.term(LikelyShape)
    doubted = having(
        problem, replace(guess, translation_std_m=DISTANCE_STD_FACTOR * guess.translation_std_m)
    )
    doubted = having(doubted, replace(shape, guess_std=DISTANCE_STD_FACTOR * shape.guess_std))
    doubted = having(doubted, LikelyPose(problem.term(LikelyPose).prior.single_gaussian()))
    scene = Floor | Contact | Balance
    doubted = replace(
        doubted, terms=tuple(term for term in doubted.terms if not isinstance(term, scene))
    )
    system = normal_equations(doubted, state)
    posed = problem.posed(state)
    step_jacobian = posed.joint_step_jacobian
    shape_jacobian = posed.joint_shape_jacobian
    found = joint_deviations(problem, state)
    for t in range(3):
        top = torch.cat((system.matrix[t], system.arrow[t]), 1)
        whole = torch.cat((top, torch.cat((system.arrow[t].T, system.corner[t]), 1)))
        slope = torch.cat((step_jacobian[t], shape_jacobian[t]), -1)
        variance = torch.einsum("jcd,de,jce->jc", slope, torch.linalg.inv(whole), slope)
        unmodelled = (UNMODELLED_SIZE * posed.joints[t]).square()
        torch.testing.assert_close(found.camera_frame_m[t], (variance + unmodelled).sqrt())


def test_the_pelvis_is_certain_relative_to_itself() -> None:
    problem, state = some_problem(4, True)
    assert joint_deviations(problem, state).relative_m[:, 0].max() < 1e-9


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
