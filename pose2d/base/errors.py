"""The exception for mistakes that the user can fix, ranges of numbers, and lazy public names."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any


class UserError(Exception):
    """A mistake in the input. The message says what is wrong, what was expected and what to do.

    Commands print it without a traceback and exit with code 2."""


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports its public names on first use.

    `modules` maps each name to the module that defines it."""

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return find, lambda: sorted(modules)


@dataclass(frozen=True)
class Range:
    """Limits of an option or argument: finite numbers from `low` to `high`, both included."""

    low: float
    high: float
    multiple: int | None = None  # only multiples of this number

    def problem(self, value: float) -> str:
        """Say why a number is not in the range; empty if it is."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"is {value!r}, not a number"
        if isinstance(value, float) and not math.isfinite(value):
            return f"is {value}, not a finite number"
        if not self.low <= value <= self.high:
            return f"is {format_number(value)}, not {self}"
        if self.multiple is not None and value % self.multiple:
            return f"is {format_number(value)}, not a multiple of {self.multiple}"
        return ""

    def check(self, name: str, value: float | None) -> None:
        """Raise UserError if a number is not in the range; None is accepted."""
        if value is not None and (problem := self.problem(value)):
            raise UserError(f"{name} {problem}.")

    def __str__(self) -> str:
        return f"between {format_number(self.low)} and {format_number(self.high)}"


def format_number(value: float) -> str:
    """Format a number in a few characters: large integers as a power of ten."""
    if isinstance(value, int) and abs(value) >= 10**9:
        return f"about {'-' if value < 0 else ''}10^{int(abs(value).bit_length() * math.log10(2))}"
    return str(value) if isinstance(value, int) else f"{value:g}"
