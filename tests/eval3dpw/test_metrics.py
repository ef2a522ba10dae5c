"""Errors in millimetres: exact truth, and the reference's Procrustes."""

import pytest
import torch

from eval3dpw.scoring import acceleration_error_mm, mpjpe_mm, mve_mm, pa_mpjpe_mm, procrustes
from fitting.body.rotations import nearest_rotation
from tests.references import answers


@pytest.fixture
def points() -> torch.Tensor:
    return torch.randn(5, 14, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_procrustes_equals_the_reference() -> None:
    reference = answers("conventions")
    a, b, hat, error = (
        torch.from_numpy(reference[name]) for name in ("pa_a", "pa_b", "pa_hat", "pa_err")
    )
    torch.testing.assert_close(procrustes(a, b), hat, atol=1e-10, rtol=0)
    torch.testing.assert_close(pa_mpjpe_mm(a, b), 1000 * error, atol=1e-6, rtol=0)


def test_a_similarity_is_undone_exactly(points) -> None:
    turn = nearest_rotation(torch.randn(5, 3, 3, dtype=torch.float64))
    moved = 0.7 * points @ turn.mT + torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    assert pa_mpjpe_mm(points, moved).max() < 1e-9


def test_a_mirror_image_is_not_undone(points) -> None:
    mirrored = points * torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    assert pa_mpjpe_mm(points, mirrored).min() > 100


def test_a_shift_of_the_whole_body_is_no_joint_error(points) -> None:
    moved = points + 0.5
    assert mpjpe_mm(points, moved, points[:, 0], moved[:, 0]).max() < 1e-9
    assert mve_mm(points, moved, points[:, 0], moved[:, 0]).max() < 1e-9


def test_one_joint_off_by_14_mm_is_1_mm_on_the_mean_of_14(points) -> None:
    moved = points.clone()
    moved[:, 3, 2] += 0.014
    torch.testing.assert_close(
        mpjpe_mm(moved, points, moved[:, 0], points[:, 0]), torch.ones(5, dtype=torch.float64)
    )


def test_steady_motion_has_no_acceleration_error_and_a_jerk_has_its_own(points) -> None:
    drift = torch.arange(5, dtype=torch.float64)[:, None, None] * 0.1
    assert acceleration_error_mm(points + drift, points).max() < 1e-9
    jerk = points.clone()
    jerk[2, :, 0] += 0.001
    expected = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(acceleration_error_mm(jerk, points), expected)
