"""Read JSON files with access that checks types on the way.

`read_json` is the only reader of JSON files in the project:

    annotations = read_json(path, "Expected a COCO file.").item("annotations").items()
    box = next(annotations).item("bbox").finite_numbers(4)

The second line raises UserError("x.json: annotations[0].bbox has 3 numbers; expected 4. Expected a
COCO file.") where the file is wrong."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pose2d.base.errors import UserError
from pose2d.base.files import open_regular
from pose2d.base.limits import JSON_GROWTH, MOST_JSON_BYTES, most_bytes, size_text

WHOLE = 2**53  # every reader of JSON keeps integers up to this size exactly
_JSON_KINDS = {
    type(None): "null",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


@dataclass(frozen=True)
class Json:
    """A value of a JSON file that knows its place in the file, for messages."""

    value: Any
    path: Path
    where: str = ""  # "annotations[3].bbox"
    expected: str = ""  # what the file should be; the end of every message

    def refuse(self, problem: str) -> UserError:
        """Return the error to raise for a problem with this value."""
        place = f"{self.path}: {self.where}" if self.where else f"{self.path}"
        return UserError(f"{place} {problem}. {self.expected}".rstrip(), file=self.path)

    def _checked(self, kind: type, what: str) -> Any:
        """Return the value, or raise an error that says it is not `what`."""
        if not isinstance(self.value, kind):
            raise self.refuse(f"is {_JSON_KINDS[type(self.value)]}, not {what}")
        return self.value

    def _inner(self, value: Any, step: str) -> "Json":
        return Json(value, self.path, (self.where + step).removeprefix("."), self.expected)

    def __contains__(self, name: str) -> bool:
        return isinstance(self.value, dict) and name in self.value

    def object(self) -> dict[str, Any]:
        """Return the value, which must be an object."""
        return self._checked(dict, "an object")

    def item(self, name: str) -> "Json":
        """Return an entry of an object, which must exist."""
        if name not in self.object():
            raise self.refuse(f'has no "{name}"')
        return self._inner(self.value[name], f".{name}")

    def get(self, name: str, default: Any) -> "Json":
        """Return an entry of an object, or the default where it is absent or null."""
        value = self.object().get(name)
        return self._inner(default if value is None else value, f".{name}")

    def items(self) -> Iterator["Json"]:
        """Yield the entries of a list."""
        values = self._checked(list, "a list")
        return (self._inner(value, f"[{index}]") for index, value in enumerate(values))

    def text(self) -> str:
        """Return the value, which must be text that is not empty."""
        if self.value == "":
            raise self.refuse("is empty")
        return self._checked(str, "text")

    def number(self, low: float = -math.inf, high: float = math.inf) -> float:
        """Return the value as a finite float within the limits."""
        if type(self.value) not in (int, float):
            raise self.refuse(f"is {_JSON_KINDS[type(self.value)]}, not a number")
        try:
            value = float(self.value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise self.refuse("is not finite")
        if not low <= value <= high:
            limits = f"{low:g} to {high:g}"
            if low == -math.inf:
                limits = f"at most {high:g}"
            elif high == math.inf:
                limits = f"{low:g} or more"
            raise self.refuse(f"is {value:g}; expected {limits}")
        return value

    def integer(self, low: int = -WHOLE, high: int = WHOLE) -> int:
        """Return the value as an integer within the limits; 3.0 is accepted."""
        value = self.number(low, high)
        if value != round(value):
            raise self.refuse(f"is {value:g}, not a whole number")
        return int(self.value)

    def numbers(self, *counts: int) -> np.ndarray:
        """Return a list of numbers as float64; they may be NaN or infinite.

        The length must be one of `counts`; any length is accepted without counts."""
        values = self._checked(list, "a list of numbers")
        if counts and len(values) not in counts:
            expected = " or ".join(map(str, counts))
            raise self.refuse(f"has {len(values)} numbers; expected {expected}")
        if wrong_types := set(map(type, values)) - {int, float}:
            raise self.refuse(f"holds {_JSON_KINDS[wrong_types.pop()]} where a number should be")
        try:
            return np.array(values, np.float64)
        except OverflowError:
            raise self.refuse("holds a number that is too large") from None

    def finite_numbers(self, *counts: int) -> np.ndarray:
        """Return a list of finite numbers, see `numbers`."""
        values = self.numbers(*counts)
        if not np.isfinite(values).all():
            raise self.refuse("holds a number that is not finite")
        return values


def read_json(path: str | Path, expected: str = "") -> Json:
    """Read a JSON file; `expected` says what it should be and ends every message about it."""
    path = Path(path)
    try:
        with open_regular(path) as file:
            size = path.stat().st_size
            cap = most_bytes(MOST_JSON_BYTES * JSON_GROWTH) // JSON_GROWTH
            if size > cap:
                raise UserError(
                    f"{path} has {size_text(size)}; with the free memory at most {size_text(cap)} "
                    "can be read.",
                    file=path,
                )
            text = file.read(cap).decode("utf-8-sig")
            return Json(json.loads(text), path, expected=expected)
    except OSError as error:
        problem = f"cannot read {path}: {error.strerror or error}"
    except RecursionError:
        problem = f"{path} is nested too deeply to be read"
    except MemoryError:
        problem = f"there is not enough memory to read {path} ({size_text(size)})"
    except ValueError as error:  # also UnicodeDecodeError, and numbers of too many digits
        problem = f"{path} is not JSON ({str(error).splitlines()[0][:200]}): it may be cut off"
    raise UserError(f"{problem}. {expected}".rstrip(), file=path)


def plain_value(value: Any) -> Any:
    """Convert to what JSON can hold: NaN and infinity become null, paths become text."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(content) for content in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
