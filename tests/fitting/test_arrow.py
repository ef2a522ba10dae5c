"""The banded solver against dense linear algebra."""

import pytest
import torch

from fitting.solver.arrow import (
    BandFactor,
    FrameFactor,
    NotPositiveDefinite,
    solve_arrow,
    solve_coupled_frames,
)

DOUBLE = torch.float64


def band(frames: int, d: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Blocks of a random positive definite block-pentadiagonal matrix, and the matrix itself."""
    g = torch.Generator().manual_seed(seed)
    blocks = torch.zeros(frames, d, frames, d, dtype=DOUBLE)
    for t in range(frames):
        for u in range(t, min(t + 3, frames)):
            blocks[t, :, u] = torch.randn(d, d, generator=g, dtype=DOUBLE)
            blocks[u, :, t] = blocks[t, :, u].T
    dense = blocks.reshape(frames * d, frames * d)
    dense = (dense + dense.T) / 2 + 12 * d * torch.eye(frames * d, dtype=DOUBLE)
    blocks = dense.reshape(frames, d, frames, d)
    diagonal = torch.stack([blocks[t, :, t] for t in range(frames)])
    one = torch.stack([blocks[t, :, t + 1] for t in range(frames - 1)])
    two = torch.stack([blocks[t, :, t + 2] for t in range(frames - 2)])
    return diagonal, one, two, dense


@pytest.mark.parametrize("frames", [3, 4, 5, 8, 11])
def test_it_solves_what_a_dense_solver_solves(frames) -> None:
    diagonal, one, two, dense = band(frames, 5)
    right = torch.randn(frames, 5, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    found = BandFactor(diagonal, one, two).solve(right)
    torch.testing.assert_close(
        found.reshape(-1, 3), torch.linalg.solve(dense, right.reshape(-1, 3))
    )


@pytest.mark.parametrize("frames", [3, 4, 9])
def test_marginals_are_the_blocks_of_the_dense_inverse(frames) -> None:
    diagonal, one, two, dense = band(frames, 4)
    inverse = torch.linalg.inv(dense).reshape(frames, 4, frames, 4)
    exact = torch.stack([inverse[t, :, t] for t in range(frames)])
    torch.testing.assert_close(BandFactor(diagonal, one, two).marginals(), exact)


@pytest.mark.parametrize("frames", [1, 2, 7])
def test_frames_that_touch_by_their_own_unknowns_are_solved_as_a_dense_solver_does(frames) -> None:
    generator = torch.Generator().manual_seed(frames)
    d = 5
    root = torch.randn(frames, d, d, dtype=DOUBLE, generator=generator)
    diagonal = root @ root.mT + 4 * torch.eye(d, dtype=DOUBLE)
    coupling = -torch.rand(d, dtype=DOUBLE, generator=generator)
    right = torch.randn(frames, d, dtype=DOUBLE, generator=generator)
    dense = torch.block_diag(*diagonal)
    for t in range(frames - 1):
        here = slice(t * d, t * d + d)
        after = slice(t * d + d, t * d + 2 * d)
        dense[here, after] = torch.diag(coupling)
        dense[after, here] = torch.diag(coupling)
    found = solve_coupled_frames(diagonal, coupling, right)
    torch.testing.assert_close(found.reshape(-1), torch.linalg.solve(dense, right.reshape(-1)))
    with pytest.raises(NotPositiveDefinite):
        solve_coupled_frames(-diagonal, coupling, right)


def test_float32_is_kept_and_close() -> None:
    diagonal, one, two, dense = band(6, 4)
    right = torch.randn(6, 4, 1, dtype=DOUBLE)
    found = BandFactor(diagonal.float(), one.float(), two.float()).solve(right.float())
    assert found.dtype == torch.float32
    exact = torch.linalg.solve(dense, right.reshape(-1, 1)).reshape(6, 4, 1)
    torch.testing.assert_close(found.double(), exact, atol=1e-6, rtol=1e-4)


def test_an_indefinite_matrix_is_refused() -> None:
    diagonal, one, two, _ = band(6, 4)
    diagonal[4] -= 100 * torch.eye(4, dtype=DOUBLE)
    with pytest.raises(NotPositiveDefinite):
        BandFactor(diagonal, one, two)
    with pytest.raises(NotPositiveDefinite):
        FrameFactor(diagonal)


@pytest.mark.parametrize("coupled", [True, False])
def test_the_shared_arrow_is_solved_with_the_frames(coupled) -> None:
    frames = 7
    d = 4
    s = 3
    g = torch.Generator().manual_seed(3)
    diagonal, one, two, dense = band(frames, d)
    if not coupled:
        dense = torch.block_diag(*diagonal)
    arrow = torch.randn(frames, d, s, dtype=DOUBLE, generator=g)
    corner = 50 * torch.eye(s, dtype=DOUBLE)
    b = torch.randn(frames, d, dtype=DOUBLE, generator=g)
    c = torch.randn(s, dtype=DOUBLE, generator=g)
    factor = BandFactor(diagonal, one, two) if coupled else FrameFactor(diagonal)
    x, y = solve_arrow(factor, arrow, corner, b, c)
    flat = arrow.reshape(-1, s)
    whole = torch.cat((torch.cat((dense, flat), 1), torch.cat((flat.T, corner), 1)))
    exact = torch.linalg.solve(whole, torch.cat((b.flatten(), c)))
    torch.testing.assert_close(torch.cat((x.flatten(), y)), exact)


def test_frames_with_shapes_of_their_own_are_solved_each_for_itself() -> None:
    g = torch.Generator().manual_seed(4)
    diagonal, _, _, _ = band(5, 4)
    arrow = torch.randn(5, 4, 2, dtype=DOUBLE, generator=g)
    corner = 50 * torch.eye(2, dtype=DOUBLE).repeat(5, 1, 1)
    b = torch.randn(5, 4, dtype=DOUBLE, generator=g)
    c = torch.randn(5, 2, dtype=DOUBLE, generator=g)
    x, y = solve_arrow(FrameFactor(diagonal), arrow, corner, b, c)
    for t in range(5):
        whole = torch.cat(
            (torch.cat((diagonal[t], arrow[t]), 1), torch.cat((arrow[t].T, corner[t]), 1))
        )
        torch.testing.assert_close(
            torch.cat((x[t], y[t])), torch.linalg.solve(whole, torch.cat((b[t], c[t])))
        )
