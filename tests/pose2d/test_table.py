"""A table is sliced, joined, spread and written by what its columns declare, once."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from pose2d.base.arrays import check_arrays
from pose2d.base.columns import column, nested
from pose2d.base.errors import UserError
from pose2d.base.table import Table


@dataclass(frozen=True)
class Spread(Table):
    TENSORS = True
    sigma: torch.Tensor = column(
        ("points", "components"), "f", "standard deviation", unit="px", low=0, fill=1
    )


@dataclass(frozen=True)
class Points(Table):
    frame: np.ndarray = column((), "i", "frame number", low=0)
    xy_px: np.ndarray = column(("points", 2), "f", "position", unit="px", fill=np.nan)
    score: np.ndarray | None = column(
        ("points",), "f", "of the network", optional=True, low=0, high=1
    )
    error: Spread | None = nested(Spread, "stated error", optional=True)
    network: str = "one"


def _lists(points: Points) -> dict[str, list[object]]:
    return {name: array.tolist() for name, array in points.to_arrays().items()}


def _points(rows: int, **more: object) -> Points:
    rng = np.random.default_rng(rows)
    return Points(np.arange(rows), rng.random((rows, 3, 2)), **more)  # type: ignore[arg-type]


def _with_error(rows: int) -> Points:
    return _points(rows, error=Spread(torch.rand(rows, 3, 2)), network="two")


@pytest.mark.parametrize(
    "index", [slice(1, 3), np.array([3, 0]), np.array([True, False, True, True])]
)
def test_rows_takes_the_same_rows_of_every_column(index: object) -> None:
    whole = _with_error(4)
    part = whole.rows(index)
    np.testing.assert_array_equal(part.frame, whole.frame[index])
    np.testing.assert_array_equal(part.xy_px, whole.xy_px[index])
    assert part.error is not None
    assert whole.error is not None
    assert torch.equal(part.error.sigma, whole.error.sigma[index])
    assert part.score is None
    assert part.network == "two"


def test_parts_joined_are_the_whole() -> None:
    whole = _with_error(5)
    joined = Points.concat([whole.rows(slice(0, 2)), whole.rows(slice(2, 5))])
    assert {k: v.tolist() for k, v in joined.to_arrays().items()} == {
        k: v.tolist() for k, v in whole.to_arrays().items()
    }


def test_scattered_rows_are_filled_with_what_their_column_says() -> None:
    spread = _with_error(2).scatter(np.array([1, 3]), 4)
    assert len(spread) == 4
    assert np.isnan(spread.xy_px[[0, 2]]).all()
    assert spread.error is not None
    assert (spread.error.sigma[[0, 2]] == 1).all()
    np.testing.assert_array_equal(spread.rows(np.array([1, 3])).xy_px, _with_error(2).xy_px)


def test_arrays_come_back_as_they_were_written() -> None:
    whole = _with_error(3)
    arrays = whole.to_arrays()
    assert set(arrays) == {"row_frame", "row_xy_px", "row_error_sigma"}
    check_arrays(arrays, Points.schema(), "x.npz", "a file")
    back = Points.from_arrays(arrays, network="two")
    assert back.score is None
    assert isinstance(back.error, Spread)
    assert isinstance(back.error.sigma, torch.Tensor)
    assert _lists(back) == _lists(whole)


def test_an_empty_table_has_the_columns_of_a_full_one() -> None:
    empty = Points.empty({"points": 3})
    assert len(empty) == 0
    assert empty.xy_px.shape == (0, 3, 2)
    np.testing.assert_array_equal(Points.concat([empty, _points(2)]).frame, [0, 1])


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        replace(_points(3), frame=np.arange(2))


def test_the_schema_refuses_what_a_column_does_not_allow() -> None:
    arrays = _points(2, score=np.array([[0, 0.5, 2.0]] * 2)).to_arrays()
    with pytest.raises(UserError, match=r"row_score has 2\.0, expected at most 1"):
        check_arrays(arrays, Points.schema(), "x.npz", "a file")
