"""Fits that are kept between runs are the fits that were made."""

from dataclasses import fields
from pathlib import Path

import torch

from fitmesh.eval_3dpw.fits import read_fits, write_fits
from fitting.body import BodyParams
from pose2d.base.caching import CacheKey


def test_a_fit_that_was_written_is_read_back_whole_with_a_childs_size(tmp_path: Path) -> None:
    child = BodyParams(torch.rand(3, 24, 3), torch.rand(10), torch.rand(3, 3), torch.tensor([0.7]))
    adult = BodyParams(torch.rand(2, 24, 3), torch.rand(2, 10), torch.rand(2, 3))
    write_fits(tmp_path / "fits.npz", CacheKey("fits", {}, {}, ""), {0: child, 4: adult})
    read = read_fits(tmp_path / "fits.npz")
    assert sorted(read) == [0, 4]
    for number, written in ((0, child), (4, adult)):
        for entry in fields(BodyParams):
            found, wanted = getattr(read[number], entry.name), getattr(written, entry.name)
            assert found is wanted is None or torch.equal(found, wanted)
