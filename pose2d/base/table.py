"""One record for everything that has a row per frame or per detection.

A subclass declares its columns once, each with what it holds:

    @dataclass(frozen=True)
    class Boxes(Table):
        frame: np.ndarray = column((), "i", "frame number")
        box_px: np.ndarray = column((4,), "f", "x1, y1, x2, y2", unit="px", fill=np.nan)
        score: np.ndarray | None = column((), "f", "of the detector", low=0, high=1, optional=True)
        detector: str = "yolox-tiny"  # no column: the same for all rows

From that follow `rows`, `concat`, `scatter` and `empty`, the arrays of a file (`to_arrays`,
`from_arrays`) and the check of arrays that come from outside (`schema`). A column holds a NumPy
array or a tensor, another Table, or None where it is optional. A value with one dimension fewer
than its column is the same for all rows: one shape for all frames."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from pose2d.base.arrays import Array
from pose2d.base.errors import UserError
from pose2d.base.scratch import has_scratch, release_scratch, scratch_array


class UnevenColumns(UserError, ValueError):
    """Columns of one table that differ in length."""


_DTYPES = {
    "f": np.float32,
    "d": np.float64,
    "i": np.int64,
    "b": np.bool_,
    "U": np.str_,
}  # what an empty column is
Rows = TypeVar("Rows", bound="Table")


@dataclass(frozen=True)
class Column(Array):
    """What one column of a table holds; `shape` is that of one row, and kind "d" are numbers in
    double precision.
    """

    meaning: str = ""  # for the documentation
    unit: str = ""
    fill: Any = 0  # what a row holds that nothing is known of
    nested: "type[Table] | None" = None  # the column is a table itself
    each: str = (
        ""  # in files there is no entry a row but one a table of many, such as each of the "people"
    )
    in_files: bool = True  # False: files do not hold it, it follows from others
    flat: bool = False  # of a nested table: in files its columns have no name before theirs

    def inner(self, name: str) -> str:
        """What stands before the names of a nested table's columns."""
        return "" if self.flat else f"{name}_"


def column(
    shape: tuple[int | str, ...],
    kind: str,
    meaning: str,
    *,
    default: Callable[[], Any] | None = None,
    **how: Any,
) -> Any:
    """A column of a `Table`; default: makes its value where none is given; `how`: the other fields
    of `Column`.
    """
    stated = Column(kind, shape, meaning=meaning, **how)
    if default is not None:
        return field(default_factory=default, metadata={"column": stated})
    return field(default=None if stated.optional else MISSING, metadata={"column": stated})


def nested(
    table: "type[Table]", meaning: str, *, optional: bool = False, flat: bool = False
) -> Any:
    """A column that is a table; in files its columns stand beside the others, with the column's
    name before theirs unless `flat`."""
    return column((), "", meaning, nested=table, optional=optional, flat=flat)


def shared() -> Any:
    """What is no column and has no default, after columns."""
    return field()


# rows whose intermediate results are in memory together, where a table may be of any length
BLOCK = 2000


def blocks(length: int) -> list[slice]:
    """All rows, BLOCK at a time; at least one block, which may be empty."""
    return [slice(first, min(first + BLOCK, length)) for first in range(0, max(length, 1), BLOCK)]


@dataclass(frozen=True)
class Table:
    """Columns of one length, and what is the same for all rows."""

    PREFIX: ClassVar[str] = "row_"  # of the columns' names in files
    TENSORS: ClassVar[bool] = False  # whether columns are read from files as tensors

    def __post_init__(self) -> None:
        lengths = {name: len(value) for name, value in self._columns()}
        if len(set(lengths.values())) > 1:
            each = ", ".join(f"{name} has {length} rows" for name, length in lengths.items())
            raise UnevenColumns(f"{type(self).__name__} has columns of different lengths: {each}.")

    def __len__(self) -> int:
        return next((len(value) for _, value in self._columns()), 0)

    def __bool__(self) -> bool:
        return True  # a table without rows is still there

    def rows(self: Rows, index: Any) -> Rows:
        """Some of the rows: a slice, numbers or truth values."""
        return self._changed(lambda _, value: value[index])

    def picked(self: Rows, index: np.ndarray) -> Rows:
        """As `rows` of numbers; of a long table on disk, where there is a place for it
        (`scratch_for`).
        """
        return joined((self.rows(index[some]) for some in blocks(len(index))), len(index))

    @classmethod
    def concat(cls: type[Rows], parts: Sequence[Rows]) -> Rows:
        """Rows one after the other; what is no column is the first one's."""
        made = {}
        for f, c in column_fields(cls):
            values = [getattr(part, f.name) for part in parts]
            first = values[0]
            if c.each or first is None:
                continue
            if not all(
                _is_shared(value, c) and (value is first or np.array_equal(value, first))
                for value in values
            ):
                made[f.name] = _joined(
                    [_of_rows(value, c, len(p)) for value, p in zip(values, parts, strict=True)]
                )
        return replace(parts[0], **made)

    def along(self: Rows, side: str, change: Callable[[Any, Column], Any]) -> Rows:
        """With change(value, column) for the columns whose rows begin with this side, those of
        nested tables too.
        """
        return self._changed(lambda c, value: change(value, c) if c.shape[:1] == (side,) else value)

    def put(self: Rows, index: Any, part: Rows) -> Rows:
        """With the rows at `index` replaced by those of `part`."""
        return self._changed(lambda _, value, new: _put(value, index, new), part)

    def scatter(self: Rows, index: Any, length: int) -> Rows:
        """A table of `length` rows with these at `index`, and each column's `fill` elsewhere."""

        def spread(c: Column, value: Any) -> Any:
            shape = (length, *value.shape[1:])
            is_array = isinstance(value, np.ndarray)
            whole = (
                np.full(shape, c.fill, value.dtype) if is_array else value.new_full(shape, c.fill)
            )
            return _put(whole, index, value)

        return self._changed(spread)

    def _changed(self: Rows, change: Callable[..., Any], *others: Rows) -> Rows:
        """With change(column, value, the others' values ..) for every column that has a value for
        each row, those of nested tables too."""
        made: dict[str, Any] = {}
        columns = {f.name: c for f, c in column_fields(type(self))}
        for name, value in self._columns():
            more = [getattr(other, name) for other in others]
            is_table = isinstance(value, Table)
            made[name] = (
                value._changed(change, *more) if is_table else change(columns[name], value, *more)
            )
        return replace(self, **made)

    @classmethod
    def empty(cls: type[Rows], lengths: Mapping[str, int] | None = None, **shared: Any) -> Rows:
        """No rows. `lengths`: of named sides; `shared`: what is no column. Optional columns are
        left out.
        """
        made: dict[str, Any] = {}
        for f, c in column_fields(cls):
            if not c.optional:
                made[f.name] = (
                    c.nested.empty(lengths) if c.nested else _no_rows(c, lengths or {}, cls.TENSORS)
                )
        return cls(**made, **shared)

    def to_arrays(self, prefix: str | None = None) -> dict[str, np.ndarray]:
        """The columns as a file holds them."""
        prefix = self.PREFIX if prefix is None else prefix
        columns = {f.name: c for f, c in column_fields(type(self))}
        arrays: dict[str, np.ndarray] = {}
        for name, value in self._columns():
            if isinstance(value, Table):
                arrays |= value.to_arrays(prefix + columns[name].inner(name))
            elif columns[name].in_files:
                arrays[prefix + name] = np.asarray(value)
        return arrays

    @classmethod
    def from_arrays(
        cls: type[Rows], arrays: Mapping[str, Any], prefix: str | None = None, **shared: Any
    ) -> Rows:
        """From arrays that `schema` describes, checked before; optional columns that are not there
        are None. shared: what is no column."""
        prefix = cls.PREFIX if prefix is None else prefix
        made: dict[str, Any] = {}
        for f, c in column_fields(cls):
            if c.nested is not None:
                inner = prefix + c.inner(f.name)
                if all(
                    name in arrays
                    for name, array in c.nested.schema(inner).items()
                    if not array.optional
                ):
                    made[f.name] = c.nested.from_arrays(arrays, inner)
            elif prefix + f.name in arrays:
                value = _typed(arrays[prefix + f.name], c)
                made[f.name] = _tensor(value) if cls.TENSORS else value
        return cls(**made, **shared)

    @classmethod
    def schema(
        cls, prefix: str | None = None, rows: str = "rows", optional: bool = False
    ) -> dict[str, Column]:
        """What arrays of this table must look like, for `check_arrays`; those of nested tables too."""
        prefix = cls.PREFIX if prefix is None else prefix
        wanted: dict[str, Column] = {}
        for f, c in column_fields(cls):
            if c.nested is not None:
                wanted |= c.nested.schema(prefix + c.inner(f.name), rows, optional or c.optional)
            elif c.in_files:
                stated = replace(
                    c, shape=(c.each or rows, *c.shape), optional=optional or c.optional
                )
                wanted[("" if c.each else prefix) + f.name] = stated
        return wanted

    # A table whose values are single ones, with one dimension fewer than their columns, is one row:
    # `Shot`, `Event`.

    @classmethod
    def stack(cls: type[Rows], rows: Sequence[Rows]) -> Rows:
        """One table of single rows; None becomes the column's `fill`."""
        made = {
            f.name: _stacked(c, [getattr(row, f.name) for row in rows])
            for f, c in column_fields(cls)
        }
        return cls(**made)

    def each(self: Rows) -> "list[Rows]":
        """Every row by itself."""
        return [
            replace(self, **{name: _single(value[n]) for name, value in self._columns()})
            for n in range(len(self))
        ]

    @classmethod
    def to_groups(
        cls, parts: Sequence[Rows], lengths: Mapping[str, int] | None = None
    ) -> dict[str, np.ndarray]:
        """Several tables in one file: rows one after the other, `first_row` [parts + 1], and what
        each has once.
        """
        once = {}
        no_rows = {}
        for f, c in column_fields(cls):
            if c.each:
                once[f.name] = _stacked(c, [getattr(part, f.name) for part in parts], lengths)
            elif c.in_files and not c.optional:
                no_rows[cls.PREFIX + f.name] = _no_rows(c, lengths or {}, False)
        first = np.cumsum([0, *map(len, parts)])
        pieces = (part.rows(some) for part in parts for some in blocks(len(part)))
        rows = joined(pieces, int(first[-1])).to_arrays() if parts else no_rows
        return {**once, "first_row": first, **rows}

    @classmethod
    def from_groups(
        cls: type[Rows], arrays: Mapping[str, np.ndarray], **missing: Any
    ) -> list[Rows]:
        """What `to_groups` made, checked before; missing: columns [rows] that files do not hold."""
        first = arrays["first_row"].tolist()
        parts = []
        for number in range(len(first) - 1):
            rows = slice(first[number], first[number + 1])
            made = {
                f.name: _single(arrays[f.name][number])
                if c.each
                else _typed(arrays[cls.PREFIX + f.name][rows], c)
                for f, c in column_fields(cls)
                if c.in_files and (f.name if c.each else cls.PREFIX + f.name) in arrays
            }
            parts.append(cls(**made, **{name: value[rows] for name, value in missing.items()}))
        return parts

    def _columns(self) -> Iterator[tuple[str, Any]]:
        """Name and content of the columns that are there with a value for each row."""
        for f, c in column_fields(type(self)):
            if (value := getattr(self, f.name)) is not None and not _is_shared(value, c):
                yield f.name, value


def joined(parts: Iterable[Rows], length: int) -> Rows:
    """As `Table.concat` of parts with `length` rows in all, which share the same values: one of
    them is in memory at a time, and the whole is on disk where there is a place for it
    (`scratch_for`)."""
    whole, at = None, 0

    def place(_: Column, value: Any) -> Any:
        made = scratch_array((length, *value.shape[1:]), np.asarray(value[:0]).dtype)
        return made if isinstance(value, np.ndarray) else _tensor(made)

    def fill(_: Column, made: Any, value: Any) -> Any:
        assert made.dtype == value.dtype
        made[at : at + len(value)] = value
        return made

    for part in parts:
        whole = part._changed(place) if whole is None else whole
        whole._changed(fill, part)
        at += len(part)
        release_scratch()
    assert whole is not None
    return whole


def stored(table: Rows) -> Rows:
    """The same on disk, where there is a place for it."""
    return table.picked(np.arange(len(table))) if has_scratch() else table


_COLUMNS: dict[type, tuple[tuple[Field[Any], Column], ...]] = {}


def column_fields(table: type[Table]) -> tuple[tuple[Field[Any], Column], ...]:
    """The fields that are columns, with what each holds."""
    if table not in _COLUMNS:
        _COLUMNS[table] = tuple(
            (f, f.metadata["column"]) for f in fields(table) if "column" in f.metadata
        )
    return _COLUMNS[table]


def _is_shared(value: Any, stated: Column) -> bool:
    """The same for all rows."""
    return not isinstance(value, Table) and np.ndim(value) <= len(stated.shape)


def _single(value: Any) -> Any:
    """One number or text as Python has it; arrays stay."""
    return value.item() if np.ndim(value) == 0 else value


def _stacked(
    stated: Column, values: Sequence[Any], lengths: Mapping[str, int] | None = None
) -> np.ndarray:
    if not values:
        return np.asarray(_no_rows(stated, lengths or {}, False))
    nothing = np.full([side for side in stated.shape if isinstance(side, int)], stated.fill)
    filled = [nothing if value is None else value for value in values]
    return np.array(filled, _DTYPES[stated.kind])


def _of_rows(value: Any, stated: Column, rows: int) -> Any:
    """A value for each row, though it is the same for all."""
    if not _is_shared(value, stated):
        return value
    shape = (rows, *value.shape)
    return np.broadcast_to(value, shape) if isinstance(value, np.ndarray) else value.expand(shape)


def _joined(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, Table):
        return type(first).concat(values)
    if isinstance(first, np.ndarray):
        return np.concatenate(values)
    import torch

    return torch.cat(values)


def _put(whole: Any, index: Any, value: Any) -> Any:
    changed = whole.copy() if isinstance(whole, np.ndarray) else whole.clone()
    changed[index] = value
    return changed


def _no_rows(stated: Column, lengths: Mapping[str, int], tensors: bool) -> Any:
    shape = (0, *(lengths.get(side, 0) if isinstance(side, str) else side for side in stated.shape))
    value: np.ndarray = np.zeros(shape, _DTYPES[stated.kind])
    return _tensor(value) if tensors else value


def _typed(value: np.ndarray, stated: Column) -> np.ndarray:
    """Numbers as they are, unless they are of a kind that only counts as the column's: whole ones,
    or half floats.
    """
    wanted = np.dtype(_DTYPES[stated.kind])
    fits = value.dtype.kind == wanted.kind and (
        value.dtype.kind != "f" or value.dtype.itemsize >= 4
    )
    return value if fits else value.astype(wanted)


def _tensor(value: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(value)
