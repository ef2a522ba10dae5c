"""Fits that are kept between runs are the fits that were made."""

from pathlib import Path

import numpy as np
import torch

from eval3dpw.stated import Stated
from fitmesh.eval_3dpw.fits import PersonFit, read_fits, write_fits
from fitting.body import BodyParams
from pose2d.base.caching import CacheKey


def test_a_fit_that_was_written_is_read_back_whole_with_a_childs_size(tmp_path: Path) -> None:
    child = BodyParams(torch.rand(3, 24, 3), torch.rand(10), torch.rand(3, 3), torch.tensor([0.7]))
    adult = BodyParams(torch.rand(2, 24, 3), torch.rand(2, 10), torch.rand(2, 3))
    ones = np.ones((3, 24, 3), np.float32)
    stated = Stated(30 * ones, 2.5 * ones, ones[..., 0] > 0, 200 * ones[:, 0, 0])
    write_fits(
        tmp_path / "fits.npz",
        CacheKey("fits", {}, {}, ""),
        {0: PersonFit(child, stated), 4: PersonFit(adult)},
    )
    read = read_fits(tmp_path / "fits.npz")
    assert sorted(read) == [0, 4]
    assert read[4].stated is None
    assert read[0].stated is not None
    for name, value in stated.to_arrays().items():
        assert np.array_equal(read[0].stated.to_arrays()[name], value)
    for name in ("pose", "shape", "translation", "size"):
        assert torch.equal(getattr(read[0].params, name), getattr(child, name))
        assert torch.equal(getattr(read[4].params, name), getattr(adult, name))
