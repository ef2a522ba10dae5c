"""Solve the normal equations: a band over the frames, and the shape across all of them.

Acceleration couples a frame with the two before it, so a block Cholesky factorisation

    L_t L_t^T = H'_tt,    X_t = L_t^{-1} [H'_t,t+1  H_t,t+2]

takes time and memory linear in the number of frames. H' is what is left of H when the frames before
are eliminated, each of which takes X^T X from the two after it. Unknowns that touch every frame are
the arrow; they are solved by their Schur complement.
"""

import numpy as np
import torch
from torch import Tensor

from fitting.solver.terms.term import NormalEquations


class NotPositiveDefinite(ArithmeticError):
    """A factorisation failed: the matrix is singular to working precision."""


class BandFactor:
    """The Cholesky factor of a block-pentadiagonal matrix over frames, one frame a block: L_t and
    X_t.
    """

    def __init__(self, diagonal: Tensor, first_off: Tensor, second_off: Tensor) -> None:
        """Factorise a matrix with the blocks H[t, t] [T, d, d], H[t, t+1] [T-1, d, d] and H[t, t+2]
        [T-2, d, d].
        """
        from scipy.linalg import blas, lapack  # a quarter of a second, needed only here

        frames, d = diagonal.shape[:2]
        double = diagonal.dtype == torch.float64
        self._trsm, potrf = (blas.dtrsm, lapack.dpotrf) if double else (blas.strsm, lapack.spotrf)
        beside = diagonal.new_zeros(frames, d, 2 * d)  # what follows a frame
        beside[:-1, :, :d] = first_off
        beside[:-2, :, d:] = second_off
        self._lower = []
        self._beside = []
        # what the elimination of earlier frames subtracts from this frame and the next
        eliminated = np.zeros((2 * d, 2 * d), beside.numpy().dtype)
        for t, (block, after) in enumerate(zip(diagonal.numpy(), beside.numpy(), strict=True)):
            lower, failed = potrf(block - eliminated[:d, :d], lower=1)
            if failed:
                raise NotPositiveDefinite(f"the matrix is not positive definite at frame {t}")
            after[:, :d] -= eliminated[:d, d:]
            x = self._trsm(1.0, lower, after, lower=1)
            passed_on = x.T @ x
            passed_on[:d, :d] += eliminated[d:, d:]
            eliminated = passed_on
            self._lower.append(lower)
            self._beside.append(x)

    def solve(self, right: Tensor) -> Tensor:
        """Return H^-1 times right-hand sides [T, d, r]."""
        solved = right.clone().numpy()
        d = right.shape[1]
        eliminated = np.zeros((2 * d, right.shape[2]), solved.dtype)
        for t, (lower, x) in enumerate(zip(self._lower, self._beside, strict=True)):
            solved[t] = self._trsm(1.0, lower, solved[t] - eliminated[:d], lower=1)
            passed_on = x.T @ solved[t]
            passed_on[:d] += eliminated[d:]
            eliminated = passed_on
        after = np.zeros_like(eliminated)
        for t in range(len(solved) - 1, -1, -1):
            solved[t] = self._trsm(
                1.0, self._lower[t], solved[t] - self._beside[t] @ after, lower=1, trans_a=1
            )
            after = np.concatenate((solved[t], after[:d]))
        return torch.from_numpy(solved)

    def marginals(self) -> Tensor:
        """Return the diagonal blocks of H^-1, [T, d, d]: each frame's covariance with all others
        free. They are computed from the last frame to the first: C_t = L_t^-T (I + X_t C X_t^T)
        L_t^-1, with C the covariance of the two frames after it.
        """
        d = len(self._lower[0])
        out = np.empty((len(self._lower), d, d), self._lower[0].dtype)
        after = np.zeros((2 * d, 2 * d), out.dtype)
        for t in range(len(out) - 1, -1, -1):
            eye = np.eye(d, dtype=out.dtype)
            half = self._trsm(1.0, self._lower[t], eye, lower=1, trans_a=1)  # L^-T
            response = half @ self._beside[t]
            cross = -response @ after
            own = half @ half.T - cross @ response.T
            out[t] = (own + own.T) / 2
            after = np.block([[out[t], cross[:, :d]], [cross[:, :d].T, after[:d, :d]]])
        return torch.from_numpy(out)


def solve_coupled_frames(diagonal: Tensor, coupling: Tensor, right: Tensor) -> Tensor:
    """Return H^-1 b [T, d] for float64 blocks H[t, t] [T, d, d] and b [T, d], where each unknown
    touches only itself in the next frame: H[t, t+1] = diag(coupling [d]).

    The band of such a matrix is d wide. LAPACK solves it a tenth of the time of `BandFactor`, whose
    blocks beside the diagonal may be full.
    """
    from scipy.linalg import lapack

    frames, d = right.shape
    rows, columns = np.tril_indices(d)
    band = np.zeros((frames, d, d + 1))  # for each column of H, its numbers from the diagonal down
    band[:, columns, rows - columns] = diagonal.numpy()[:, rows, columns]
    band[:-1, :, d] = coupling.numpy()
    lower_band = band.reshape(frames * d, d + 1).T
    _, solved, failed = lapack.dpbsv(lower_band, right.numpy().reshape(-1), lower=1)
    if failed:
        raise NotPositiveDefinite(f"the matrix is not positive definite at frame {failed // d}")
    return torch.from_numpy(solved.reshape(frames, d))


class FrameFactor:
    """The Cholesky factors of frames that do not touch each other."""

    def __init__(self, diagonal: Tensor) -> None:
        self._lower, failed = torch.linalg.cholesky_ex(diagonal)
        if failed.any():
            raise NotPositiveDefinite(
                f"the matrix is not positive definite at frame {int(failed.nonzero()[0])}"
            )

    def solve(self, right: Tensor) -> Tensor:
        return torch.cholesky_solve(right, self._lower)

    def marginals(self) -> Tensor:
        return torch.cholesky_inverse(self._lower)


Factor = BandFactor | FrameFactor


def corner_factor(arrow: Tensor, corner: Tensor, response: Tensor, divisor: float = 1.0) -> Tensor:
    """Return the Cholesky factor of the Schur complement (C - A^T K) / divisor, for the response K
    = H^-1 A.
    """
    down = "tds,tdr->tsr" if corner.ndim == 3 else "tds,tdr->sr"
    lower, failed = torch.linalg.cholesky_ex(
        (corner - torch.einsum(down, arrow, response)) / divisor
    )
    if failed.any():
        raise NotPositiveDefinite("the shape is not determined")
    return lower


def solve_arrow(
    factor: Factor, arrow: Tensor, corner: Tensor, right: Tensor, right_corner: Tensor
) -> tuple[Tensor, Tensor]:
    """Solve [[H, A], [A^T, C]] [x, y] = [b, c] for the frames and what they share.

    arrow is [T, d, S]. With a corner [S, S] all frames share one y; with [T, S, S] each frame has
    its own. Returns x [T, d] and y [S] or [T, S].
    """
    solved = factor.solve(torch.cat((right.unsqueeze(-1), arrow), -1))
    without_shape = solved[..., 0]
    response = solved[..., 1:]
    shape_per_frame = corner.ndim == 3
    lower = corner_factor(arrow, corner, response)
    reduced = right_corner - torch.einsum(
        "tds,td->ts" if shape_per_frame else "tds,td->s", arrow, without_shape
    )
    y = torch.cholesky_solve(reduced.unsqueeze(-1), lower).squeeze(-1)
    x = without_shape - torch.einsum("tds,ts->td" if shape_per_frame else "tds,s->td", response, y)
    return x, y


def factorize(system: NormalEquations) -> Factor:
    return (
        BandFactor(system.matrix, *system.off_diagonals)
        if system.off_diagonals
        else FrameFactor(system.matrix)
    )
