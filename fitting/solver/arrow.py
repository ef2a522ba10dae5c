"""Solve the normal equations of a track: frames in a band, the shape across all of them.

Acceleration couples a frame with the two before it. Two frames together make one block, so blocks couple with their
neighbours only, and a block Cholesky factorisation

    L_i L_i^T = D_i - X_{i-1}^T X_{i-1},    X_i = L_i^{-1} E_i^T

(E_i couples block i + 1 to block i) takes time and memory linear in the number of frames. Unknowns that touch every
frame are the arrow; they are solved by their Schur complement.
"""

import numpy as np
import torch
from torch import Tensor


class NotPositiveDefinite(ArithmeticError):
    """A factorisation failed: the matrix is singular to working precision."""


class BandFactor:
    """The Cholesky factor of a block-pentadiagonal matrix over frames, one frame a block."""

    def __init__(self, diagonal: Tensor, first_off: Tensor, second_off: Tensor) -> None:
        """Blocks H[t, t] [T, d, d], H[t, t+1] [T-1, d, d], H[t, t+2] [T-2, d, d]."""
        self.frames, self.size = diagonal.shape[:2]
        self._diagonal, self._upper = _in_pairs(diagonal, first_off, second_off)
        from scipy.linalg import blas, lapack  # a quarter of a second, needed only here

        double = diagonal.dtype == torch.float64
        self._potrf = lapack.dpotrf if double else lapack.spotrf
        self._trsm, self._syrk = (blas.dtrsm, blas.dsyrk) if double else (blas.strsm, blas.ssyrk)
        self._factorise()

    def _factorise(self) -> None:
        # LAPACK wants columns first; the transpose of a C array is that without a copy, and D is symmetric.
        for i in range(len(self._diagonal)):
            block = self._diagonal[i].T
            if i:
                block = self._syrk(-1.0, self._upper[i - 1], beta=1.0, c=block, trans=1, lower=1, overwrite_c=1)
            _, failed = self._potrf(block, lower=1, overwrite_a=1, clean=0)
            if failed:
                raise NotPositiveDefinite(f"the matrix is not positive definite at frame {2 * i}")
            if i + 1 < len(self._diagonal):
                self._trsm(1.0, block, self._upper[i], lower=1, overwrite_b=1)

    def solve(self, right: Tensor) -> Tensor:
        """H^-1 times right sides [T, d, r]."""
        count = len(self._diagonal)
        padded = torch.zeros(2 * count, *right.shape[1:], dtype=right.dtype)
        padded[: self.frames] = right
        y = padded.reshape(count, 2 * self.size, -1).numpy()
        done: list[np.ndarray] = []
        for i in range(count):
            part = np.asfortranarray(y[i])
            if i:
                part -= self._upper[i - 1].T @ done[-1]
            done.append(self._trsm(1.0, self._diagonal[i].T, part, lower=1, overwrite_b=1))
        for i in range(count - 1, -1, -1):
            part = done[i]
            if i + 1 < count:
                part -= self._upper[i] @ done[i + 1]
            done[i] = self._trsm(1.0, self._diagonal[i].T, part, lower=1, trans_a=1, overwrite_b=1)
        return torch.from_numpy(np.stack(done).reshape(2 * count, self.size, -1)[: self.frames])

    def log_det(self) -> float:
        """log det H."""
        return 2 * float(np.log(np.diagonal(self._diagonal, axis1=1, axis2=2)).sum())

    def marginals(self) -> Tensor:
        """The diagonal blocks of H^-1, [T, d, d]: each frame's covariance with all others free.

        C_i = L_i^{-T} (I + X_i C_{i+1} X_i^T) L_i^{-1}, from the last block to the first.
        """
        count, both = len(self._diagonal), 2 * self.size
        out = np.empty((2 * count, self.size, self.size), self._diagonal.dtype)
        after: np.ndarray | None = None
        for i in range(count - 1, -1, -1):
            lower = self._diagonal[i].T
            inner = np.eye(both, dtype=out.dtype, order="F")
            if after is not None:
                inner += self._upper[i] @ after @ self._upper[i].T
            half = self._trsm(1.0, lower, inner, lower=1, trans_a=1)
            after = self._trsm(1.0, lower, half, lower=1, side=1)
            after = (after + after.T) / 2
            out[2 * i], out[2 * i + 1] = after[: self.size, : self.size], after[self.size :, self.size :]
        return torch.from_numpy(out[: self.frames])


def _in_pairs(diagonal: Tensor, first_off: Tensor, second_off: Tensor) -> tuple[np.ndarray, list[np.ndarray]]:
    """Blocks of two frames: D [n, 2d, 2d], and the couplings E^T of a block with the next, columns first."""
    frames, d = diagonal.shape[:2]
    count = (frames + 1) // 2
    paired = torch.zeros(count, 2, d, 2, d, dtype=diagonal.dtype)
    paired[:, 0, :, 0] = diagonal[0::2]
    paired[: frames // 2, 1, :, 1] = diagonal[1::2]
    if frames % 2:
        paired[-1, 1, :, 1] = torch.eye(d, dtype=diagonal.dtype)  # an unconnected frame fills the last pair
    paired[: frames // 2, 0, :, 1] = first_off[0::2]
    paired[: frames // 2, 1, :, 0] = first_off[0::2].mT
    lower = torch.zeros(count - 1, 2, d, 2, d, dtype=diagonal.dtype)  # rows of the next block, columns of this one
    if count > 1:
        lower[:, 0, :, 0] = second_off[0::2][: count - 1].mT
        lower[:, 0, :, 1] = first_off[1::2][: count - 1].mT
        odd = second_off[1::2]
        lower[: len(odd), 1, :, 1] = odd.mT
    # Seen column by column, what is below the diagonal is what is above it.
    upper = [block.T for block in lower.reshape(count - 1, 2 * d, 2 * d).numpy()]
    return paired.reshape(count, 2 * d, 2 * d).numpy(), upper


class FrameFactor:
    """The Cholesky factors of frames that do not touch each other."""

    def __init__(self, diagonal: Tensor) -> None:
        self._lower, failed = torch.linalg.cholesky_ex(diagonal)
        if failed.any():
            raise NotPositiveDefinite(f"the matrix is not positive definite at frame {int(failed.nonzero()[0])}")

    def solve(self, right: Tensor) -> Tensor:
        return torch.cholesky_solve(right, self._lower)

    def log_det(self) -> float:
        return 2 * float(self._lower.diagonal(dim1=-2, dim2=-1).log().sum())

    def marginals(self) -> Tensor:
        return torch.cholesky_inverse(self._lower)


Factor = BandFactor | FrameFactor


def shape_factor(factor: Factor, arrow: Tensor, corner: Tensor, divisor: float = 1.0) -> tuple[Tensor, Tensor]:
    """K = H^-1 A [T, d, S], and the Cholesky factor of what is left of the corner, (C - A^T K) / divisor."""
    response = factor.solve(arrow)
    return response, _corner_factor(arrow, corner, response, divisor)


def _corner_factor(arrow: Tensor, corner: Tensor, response: Tensor, divisor: float = 1.0) -> Tensor:
    down = "tds,tdr->tsr" if corner.ndim == 3 else "tds,tdr->sr"
    lower, failed = torch.linalg.cholesky_ex((corner - torch.einsum(down, arrow, response)) / divisor)
    if failed.any():
        raise NotPositiveDefinite("the shape is not determined")
    return lower


def solve_arrow(
    factor: Factor, arrow: Tensor, corner: Tensor, right: Tensor, right_corner: Tensor
) -> tuple[Tensor, Tensor]:
    """[[H, A], [A^T, C]] [x, y] = [b, c] for frames [T, d] and what they share.

    arrow [T, d, S]; with corner [S, S] the shared part is one for all frames, with [T, S, S] each frame has its own.
    Returns x [T, d] and y [S] or [T, S].
    """
    solved = factor.solve(torch.cat((right.unsqueeze(-1), arrow), -1))
    plain, through = solved[..., 0], solved[..., 1:]
    own = corner.ndim == 3
    lower = _corner_factor(arrow, corner, through)
    rest = right_corner - torch.einsum("tds,td->ts" if own else "tds,td->s", arrow, plain)
    y = torch.cholesky_solve(rest.unsqueeze(-1), lower).squeeze(-1)
    x = plain - torch.einsum("tds,ts->td" if own else "tds,s->td", through, y)
    return x, y
