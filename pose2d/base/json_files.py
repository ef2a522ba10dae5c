"""JSON from files: the one reader, and access that checks types on the way.

annotations = read_json(path, "Expected a COCO file.").item("annotations").items()
box = annotations[0].item("bbox").numbers(4)        # UserError: "x.json: annotations[0].bbox has 3 numbers .."
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pose2d.base.errors import UserError
from pose2d.base.files import JSON_GROWTH, MOST_JSON_BYTES, most_bytes, open_regular, size_text

WHOLE = 2**53  # the largest whole number that every reader of JSON keeps exactly


@dataclass(frozen=True)
class Json:
    """A value of a JSON file that knows where it stands."""

    value: Any
    path: Path
    where: str = ""  # "annotations[3].bbox"
    expected: str = ""  # what the file should be; ends every message

    def refuse(self, problem: str) -> UserError:
        """The error to raise."""
        place = f"{self.path}: {self.where}" if self.where else f"{self.path}"
        return UserError(f"{place} {problem}. {self.expected}".rstrip())

    def __contains__(self, name: str) -> bool:
        return isinstance(self.value, Mapping) and name in self.value

    def item(self, name: str) -> "Json":
        """An entry of an object."""
        if not isinstance(self.value, Mapping):
            raise self.refuse(f"is {_kind(self.value)}, not an object")
        if name not in self.value:
            raise self.refuse(f'has no "{name}"')
        return Json(self.value[name], self.path, f"{self.where}.{name}" if self.where else name, self.expected)

    def get(self, name: str, default: Any) -> "Json":
        """The same, or the default where it is absent or null."""
        if not isinstance(self.value, Mapping):
            raise self.refuse(f"is {_kind(self.value)}, not an object")
        if self.value.get(name) is None:
            return Json(default, self.path, f"{self.where}.{name}" if self.where else name, self.expected)
        return self.item(name)

    def items(self) -> Iterator["Json"]:
        """The entries of a list."""
        if not isinstance(self.value, list):
            raise self.refuse(f"is {_kind(self.value)}, not a list")
        return (Json(v, self.path, f"{self.where}[{n}]", self.expected) for n, v in enumerate(self.value))

    def object(self) -> Mapping[str, Any]:
        if not isinstance(self.value, Mapping):
            raise self.refuse(f"is {_kind(self.value)}, not an object")
        return self.value

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            raise self.refuse(f"is {_kind(self.value)}, not text" if self.value != "" else "is empty")
        return self.value

    def number(self, low: float = -math.inf, high: float = math.inf) -> float:
        """Finite, and within the limits."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.refuse(f"is {_kind(self.value)}, not a number")
        try:
            value = float(self.value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise self.refuse("is not finite")
        if not low <= value <= high:
            raise self.refuse(f"is {value:g}; expected {_limits(low, high)}")
        return value

    def integer(self, low: int = -WHOLE, high: int = WHOLE) -> int:
        """A whole number within the limits; 3.0 is one, too."""
        value = self.number(low, high)
        if value != round(value):
            raise self.refuse(f"is {value:g}, not a whole number")
        return int(self.value)

    def numbers(self, *counts: int) -> np.ndarray:
        """A list of so many numbers (any of the counts; none given: any), float64. They may be NaN or infinite."""
        if not isinstance(self.value, list):
            raise self.refuse(f"is {_kind(self.value)}, not a list of numbers")
        if counts and len(self.value) not in counts:
            raise self.refuse(f"has {len(self.value)} numbers; expected {' or '.join(map(str, counts))}")
        if not all(type(value) in (int, float) for value in self.value):
            wrong = next(value for value in self.value if type(value) not in (int, float))
            raise self.refuse(f"holds {_kind(wrong)} where a number should be")
        try:
            return np.array(self.value, np.float64)
        except OverflowError:
            raise self.refuse("holds a number that is too large") from None

    def finite_numbers(self, *counts: int) -> np.ndarray:
        values = self.numbers(*counts)
        if not np.isfinite(values).all():
            raise self.refuse("holds a number that is not finite")
        return values


def read_json(path: str | Path, expected: str = "") -> Json:
    """`expected` says what the file should be; it ends every message about it."""
    path = Path(path)
    try:
        if path.is_dir():
            raise UserError(f"{path} is a folder, not a JSON file. {expected}".rstrip())
        with open_regular(path) as file:
            size, cap = path.stat().st_size, most_bytes(MOST_JSON_BYTES * JSON_GROWTH) // JSON_GROWTH
            if size > cap:
                raise UserError(
                    f"{path} has {size_text(size)}; with the memory at hand at most {size_text(cap)} can be read."
                )
            content = file.read(cap)
        return Json(json.loads(content.decode("utf-8-sig")), path, expected=expected)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}. {expected}".rstrip()) from error
    except RecursionError as error:
        raise UserError(f"{path} is nested too deeply to be read. {expected}".rstrip()) from error
    except MemoryError as error:
        raise UserError(f"there is not enough memory to read {path} ({size_text(path.stat().st_size)}).") from error
    except ValueError as error:  # also UnicodeDecodeError, and numbers of too many digits
        reason = str(error).splitlines()[0][:200]
        raise UserError(f"{path} is not JSON ({reason}): it may be cut off. {expected}".rstrip()) from error


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a truth value", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def _limits(low: float, high: float) -> str:
    if math.isinf(high):
        return f"{low:g} or more"
    return f"at most {high:g}" if math.isinf(low) else f"{low:g} to {high:g}"


def plain_value(value: Any) -> Any:
    """What JSON can hold: NaN and infinity become null, paths text."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(content) for content in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
