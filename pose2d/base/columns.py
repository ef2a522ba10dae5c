"""Declare the columns of a `Table`, and convert the values of one column.

A value is a NumPy array or a tensor [rows, *shape]. A value with one dimension fewer is the same
for all rows, such as one body shape for all frames."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any

import numpy as np

from pose2d.base.arrays import Array

DTYPES = {"f": np.float32, "d": np.float64, "i": np.int64, "b": np.bool_, "U": np.str_}


@dataclass(frozen=True)
class Column(Array):
    """What one column of a table holds.

    `shape` is the shape of one row; kind "d" stands for numbers in double precision."""

    meaning: str = ""  # for the documentation
    unit: str = ""
    fill: Any = 0  # value of rows that nothing is known of
    nested: type[Any] | None = None  # the Table class, where the column is a table itself
    # Files hold one entry per table instead of one per row, along this side (such as "people").
    each: str = ""
    in_files: bool = True  # False: files do not hold it, since it follows from other columns
    flat: bool = False  # of a nested table: in files, its columns get no prefix

    def inner_prefix(self, name: str) -> str:
        """Return the prefix of a nested table's column names in files."""
        return "" if self.flat else f"{name}_"


def column(
    shape: tuple[int | str, ...],
    kind: str,
    meaning: str,
    *,
    default: Callable[[], Any] | None = None,
    **properties: Any,
) -> Any:
    """Declare a column of a `Table`.

    `default` makes the value where none is passed; `properties` are the other fields of `Column`.
    """
    described = Column(kind, shape, meaning=meaning, **properties)
    metadata = {"column": described}
    if default is not None:
        return field(default_factory=default, metadata=metadata)
    return field(default=None if described.optional else MISSING, metadata=metadata)


def nested(table: type[Any], meaning: str, *, optional: bool = False, flat: bool = False) -> Any:
    """Declare a column that is a table itself.

    In files its columns stand beside the others, prefixed with the column's name unless `flat`."""
    return column((), "", meaning, nested=table, optional=optional, flat=flat)


def shared() -> Any:
    """Declare a field after the columns that is not a column and has no default."""
    return field()


def is_shared(value: Any, described: Column) -> bool:
    """Tell whether a column's value is the same for all rows."""
    return described.nested is None and np.ndim(value) <= len(described.shape)


def repeat_shared(value: Any, described: Column, rows: int) -> Any:
    """Return a column's value with one entry per row, repeated where all rows share it."""
    if described.nested is not None or not is_shared(value, described):
        return value
    shape = (rows, *value.shape)
    return np.broadcast_to(value, shape) if isinstance(value, np.ndarray) else value.expand(shape)


def to_python(value: Any) -> Any:
    """Return a single number or text as a Python object; arrays stay as they are."""
    return value.item() if np.ndim(value) == 0 else value


def stack_values(
    described: Column, values: Sequence[Any], lengths: Mapping[str, int] | None = None
) -> np.ndarray:
    """Stack values of single rows to a column [rows, *shape]; None becomes the column's `fill`.

    `lengths` gives the named sides of the shape where there is no value to take them from."""
    if not values:
        return empty_array(described, lengths or {})
    missing = np.full([side for side in described.shape if isinstance(side, int)], described.fill)
    filled = [missing if value is None else value for value in values]
    return np.array(filled, DTYPES[described.kind])


def replace_rows(value: Any, index: Any, part: Any) -> Any:
    """Return a copy of `value` with `part` at the rows `index`."""
    changed = value.copy() if isinstance(value, np.ndarray) else value.clone()
    changed[index] = part
    return changed


def empty_array(described: Column, lengths: Mapping[str, int]) -> np.ndarray:
    """Return a column without rows; `lengths` gives the named sides of its shape."""
    sides = [lengths.get(side, 0) if isinstance(side, str) else side for side in described.shape]
    return np.zeros((0, *sides), DTYPES[described.kind])


def cast_to_column(value: np.ndarray, described: Column) -> np.ndarray:
    """Cast integers or half floats to the column's type; keep every other precision as it is."""
    wanted = np.dtype(DTYPES[described.kind])
    is_half_float = value.dtype.kind == "f" and value.dtype.itemsize < 4
    if value.dtype.kind == wanted.kind and not is_half_float:
        return value
    return value.astype(wanted)


def to_tensor(value: np.ndarray) -> Any:
    """Return a tensor that shares the memory of an array."""
    import torch

    return torch.from_numpy(value)
