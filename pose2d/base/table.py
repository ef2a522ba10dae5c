"""A record for everything that has a row per frame or per detection.

A subclass declares its columns once, each with what it holds:

    @dataclass(frozen=True)
    class Boxes(Table):
        frame: np.ndarray = column((), "i", "frame number")
        box_px: np.ndarray = column((4,), "f", "x1, y1, x2, y2", unit="px", fill=np.nan)
        score: np.ndarray | None = column((), "f", "of the detector", low=0, high=1, optional=True)
        detector: str = "yolox-tiny"  # not a column: the same for all rows

The declaration provides `rows`, `concat`, `scatter` and `empty`, the arrays of a file (`to_arrays`,
`from_arrays`) and the check of arrays that come from outside (`schema`). A column holds a NumPy
array or a tensor, another Table, or None where it is optional. A value with one dimension fewer
than its column is the same for all rows, such as one body shape for all frames."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from pose2d.base.columns import (
    Column,
    cast_to_column,
    empty_array,
    is_shared,
    repeat_shared,
    replace_rows,
    stack_values,
    to_python,
    to_tensor,
)
from pose2d.base.errors import UserError
from pose2d.base.scratch import has_scratch, release_scratch, scratch_array

Rows = TypeVar("Rows", bound="Table")


class UnevenColumns(UserError, ValueError):
    """Columns of one table differ in length."""


# Rows whose intermediate results are in memory together, for tables of any length.
BLOCK = 2000


def blocks(length: int) -> list[slice]:
    """Return slices of BLOCK rows that cover a table; at least one, which may be empty."""
    return [slice(first, min(first + BLOCK, length)) for first in range(0, max(length, 1), BLOCK)]


@dataclass(frozen=True)
class Table:
    """Columns of one length, and fields that are the same for all rows."""

    PREFIX: ClassVar[str] = "row_"  # of the columns' names in files
    TENSORS: ClassVar[bool] = False  # whether columns are read from files as tensors

    def __post_init__(self) -> None:
        lengths = {name: len(value) for name, value in self._columns()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {length} rows" for name, length in lengths.items())
            raise UnevenColumns(
                f"{type(self).__name__} has columns of different lengths: {listed}."
            )

    def __len__(self) -> int:
        return next((len(value) for _, value in self._columns()), 0)

    def __bool__(self) -> bool:
        return True  # unlike a list, a table without rows is not "nothing"

    def rows(self: Rows, index: Any) -> Rows:
        """Return the rows at `index`: a slice, row numbers or a boolean mask."""
        return self._map(lambda _, value: value[index])

    def pick(self: Rows, index: np.ndarray) -> Rows:
        """Return the rows at these numbers, on disk where `scratch_for` is active."""
        parts = (self.rows(index[block]) for block in blocks(len(index)))
        return join_rows(parts, len(index))

    @classmethod
    def concat(cls: type[Rows], parts: Sequence[Rows]) -> Rows:
        """Concatenate rows; fields that are not columns are taken from the first part."""
        columns: dict[str, Any] = {}
        for name, described in column_fields(cls):
            values = [getattr(part, name) for part in parts]
            first = values[0]
            if described.each or first is None:
                continue
            if _is_same_for_all_rows(values, described):
                continue
            per_row = [
                repeat_shared(value, described, len(part))
                for value, part in zip(values, parts, strict=True)
            ]
            columns[name] = _concatenate(per_row)
        return replace(parts[0], **columns)

    def along(self: Rows, side: str, change: Callable[[Any, Column], Any]) -> Rows:
        """Apply change(value, column) to the columns whose row shape begins with `side`.

        Columns of nested tables are included."""
        return self._map(
            lambda described, value: (
                change(value, described) if described.shape[:1] == (side,) else value
            )
        )

    def put(self: Rows, index: Any, part: Rows) -> Rows:
        """Return the table with the rows at `index` replaced by those of `part`."""
        return self._map(lambda _, value, new: replace_rows(value, index, new), part)

    def scatter(self: Rows, index: Any, length: int) -> Rows:
        """Return a table of `length` rows: these at `index`, each column's `fill` elsewhere."""

        def spread(described: Column, value: Any) -> Any:
            shape = (length, *value.shape[1:])
            if isinstance(value, np.ndarray):
                filled = np.full(shape, described.fill, value.dtype)
            else:
                filled = value.new_full(shape, described.fill)
            return replace_rows(filled, index, value)

        return self._map(spread)

    def _map(self: Rows, change: Callable[..., Any], *others: Rows) -> Rows:
        """Apply change(column, value, values of the others ..) to every column with a value per row.

        Columns of nested tables are included."""
        changed: dict[str, Any] = {}
        columns = dict(column_fields(type(self)))
        for name, value in self._columns():
            other_values = [getattr(other, name) for other in others]
            if isinstance(value, Table):
                changed[name] = value._map(change, *other_values)
            else:
                changed[name] = change(columns[name], value, *other_values)
        return replace(self, **changed)

    @classmethod
    def empty(cls: type[Rows], lengths: Mapping[str, int] | None = None, **shared: Any) -> Rows:
        """Return a table without rows, optional columns left out.

        `lengths` gives the named sides of row shapes; `shared` are the fields that are not columns.
        """
        columns: dict[str, Any] = {}
        for name, described in column_fields(cls):
            if described.optional:
                continue
            if described.nested:
                columns[name] = described.nested.empty(lengths)
            else:
                array = empty_array(described, lengths or {})
                columns[name] = to_tensor(array) if cls.TENSORS else array
        return cls(**columns, **shared)

    def to_arrays(self, prefix: str | None = None) -> dict[str, np.ndarray]:
        """Return the columns as a file holds them, by prefixed name."""
        prefix = self.PREFIX if prefix is None else prefix
        columns = dict(column_fields(type(self)))
        arrays: dict[str, np.ndarray] = {}
        for name, value in self._columns():
            if isinstance(value, Table):
                arrays |= value.to_arrays(prefix + columns[name].inner_prefix(name))
            elif columns[name].in_files:
                arrays[prefix + name] = np.asarray(value)
        return arrays

    @classmethod
    def from_arrays(
        cls: type[Rows], arrays: Mapping[str, Any], prefix: str | None = None, **shared: Any
    ) -> Rows:
        """Make a table of arrays that were checked against `schema`.

        Optional columns that the arrays lack are None; `shared` are the fields that are not columns.
        """
        prefix = cls.PREFIX if prefix is None else prefix
        columns: dict[str, Any] = {}
        for name, described in column_fields(cls):
            if described.nested is not None:
                inner = prefix + described.inner_prefix(name)
                schema = described.nested.schema(inner)
                required = [key for key, array in schema.items() if not array.optional]
                if all(key in arrays for key in required):
                    columns[name] = described.nested.from_arrays(arrays, inner)
            elif prefix + name in arrays:
                value = cast_to_column(arrays[prefix + name], described)
                columns[name] = to_tensor(value) if cls.TENSORS else value
        return cls(**columns, **shared)

    @classmethod
    def schema(
        cls, prefix: str | None = None, rows: str = "rows", optional: bool = False
    ) -> dict[str, Column]:
        """Return what arrays of this table must look like, for `check_arrays`.

        Columns of nested tables are included."""
        prefix = cls.PREFIX if prefix is None else prefix
        wanted: dict[str, Column] = {}
        for name, described in column_fields(cls):
            is_optional = optional or described.optional
            if described.nested is not None:
                inner = prefix + described.inner_prefix(name)
                wanted |= described.nested.schema(inner, rows, is_optional)
            elif described.in_files:
                key = name if described.each else prefix + name
                shape = (described.each or rows, *described.shape)
                wanted[key] = replace(described, shape=shape, optional=is_optional)
        return wanted

    # A table can also stand for one row (`Shot`, `Event`): its values are single ones, with one
    # dimension fewer than their columns.

    @classmethod
    def stack(cls: type[Rows], rows: Sequence[Rows]) -> Rows:
        """Return one table of single rows; None becomes the column's `fill`."""
        columns = {
            name: stack_values(described, [getattr(row, name) for row in rows])
            for name, described in column_fields(cls)
        }
        return cls(**columns)

    def each(self: Rows) -> "list[Rows]":
        """Return every row as a table of single values."""
        return [
            replace(self, **{name: to_python(value[row]) for name, value in self._columns()})
            for row in range(len(self))
        ]

    @classmethod
    def to_groups(
        cls, parts: Sequence[Rows], lengths: Mapping[str, int] | None = None
    ) -> dict[str, np.ndarray]:
        """Return several tables as the arrays of one file.

        The rows stand one after the other, beside `first_row` [parts + 1] and the values that each
        table has once."""
        once = {}
        without_rows = {}
        for name, described in column_fields(cls):
            if described.each:
                values = [getattr(part, name) for part in parts]
                once[name] = stack_values(described, values, lengths)
            elif described.in_files and not described.optional:
                without_rows[cls.PREFIX + name] = empty_array(described, lengths or {})
        first_row = np.cumsum([0, *map(len, parts)])
        pieces = (part.rows(block) for part in parts for block in blocks(len(part)))
        rows = join_rows(pieces, int(first_row[-1])).to_arrays() if parts else without_rows
        return {**once, "first_row": first_row, **rows}

    @classmethod
    def from_groups(
        cls: type[Rows], arrays: Mapping[str, np.ndarray], **missing: Any
    ) -> list[Rows]:
        """Return the tables that `to_groups` wrote, from checked arrays.

        `missing` are columns [rows] that files do not hold."""
        first_row = arrays["first_row"].tolist()
        parts = []
        for number in range(len(first_row) - 1):
            rows = slice(first_row[number], first_row[number + 1])
            columns = {name: value[rows] for name, value in missing.items()}
            for name, described in column_fields(cls):
                key = name if described.each else cls.PREFIX + name
                if not described.in_files or key not in arrays:
                    continue
                if described.each:
                    columns[name] = to_python(arrays[key][number])
                else:
                    columns[name] = cast_to_column(arrays[key][rows], described)
            parts.append(cls(**columns))
        return parts

    def _columns(self) -> Iterator[tuple[str, Any]]:
        """Yield name and value of the columns that are present with a value per row."""
        for name, described in column_fields(type(self)):
            value = getattr(self, name)
            if value is not None and not is_shared(value, described):
                yield name, value


def join_rows(parts: Iterable[Rows], length: int) -> Rows:
    """Concatenate parts that have `length` rows in all and share the other values.

    Unlike `Table.concat`, only one part is in memory at a time, and the result is on disk where
    `scratch_for` is active."""
    table = None
    position = 0

    def allocate(_: Column, value: Any) -> Any:
        dtype = np.asarray(value[:0]).dtype
        array = scratch_array((length, *value.shape[1:]), dtype)
        return array if isinstance(value, np.ndarray) else to_tensor(array)

    def copy_part(_: Column, target: Any, value: Any) -> Any:
        assert target.dtype == value.dtype
        target[position : position + len(value)] = value
        return target

    for part in parts:
        table = part._map(allocate) if table is None else table
        table._map(copy_part, part)
        position += len(part)
        release_scratch()
    assert table is not None
    return table


def store_on_disk(table: Rows) -> Rows:
    """Return the table with its columns on disk where `scratch_for` is active."""
    return table.pick(np.arange(len(table))) if has_scratch() else table


_COLUMNS: dict[type, tuple[tuple[str, Column], ...]] = {}


def column_fields(table: type[Table]) -> tuple[tuple[str, Column], ...]:
    """Return name and declaration of the columns of a table class."""
    if table not in _COLUMNS:
        declared: tuple[Field[Any], ...] = fields(table)
        _COLUMNS[table] = tuple(
            (field.name, field.metadata["column"])
            for field in declared
            if "column" in field.metadata
        )
    return _COLUMNS[table]


def _is_same_for_all_rows(values: Sequence[Any], described: Column) -> bool:
    """Tell whether every part shares one value among its rows, and all parts the same one."""
    first = values[0]
    return all(
        is_shared(value, described) and (value is first or np.array_equal(value, first))
        for value in values
    )


def _concatenate(values: list[Any]) -> Any:
    """Concatenate the values of one column: tables, arrays or tensors."""
    first = values[0]
    if isinstance(first, Table):
        return type(first).concat(values)
    if isinstance(first, np.ndarray):
        return np.concatenate(values)
    import torch

    return torch.cat(values)
