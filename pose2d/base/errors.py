"""What everything else imports: the one exception that means "the user can fix this", limits of
numbers, lazy names.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any


class UserError(Exception):
    """A mistake in what was given. The message names the thing, what was expected, and what to do.
    Commands print it as one sentence and leave with exit code 2; no traceback."""


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose public names live in `modules` (name ->
    module).
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return find, lambda: sorted(modules)


@dataclass(frozen=True)
class Range:
    """Finite numbers from `low` to `high`, both included: limits of an option or of an argument."""

    low: float
    high: float
    multiple: int | None = None  # of this number only

    def problem(self, value: float) -> str:
        """Why a number is not in it; empty when it is."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"is {value!r}, not a number"
        if isinstance(value, float) and not math.isfinite(value):
            return f"is {value}, not a finite number"
        if not self.low <= value <= self.high:
            return f"is {shown(value)}, not {self}"
        if self.multiple is not None and value % self.multiple:
            return f"is {shown(value)}, not a multiple of {self.multiple}"
        return ""

    def check(self, name: str, value: float | None) -> None:
        """Raise UserError where a number that was given is not in it."""
        if value is not None and (problem := self.problem(value)):
            raise UserError(f"{name} {problem}.")

    def __str__(self) -> str:
        return f"between {shown(self.low)} and {shown(self.high)}"


def shown(value: float) -> str:
    """Short: 1e+30, not thirty zeros."""
    if isinstance(value, int) and abs(value) >= 10**9:
        return f"about {'-' if value < 0 else ''}10^{int(abs(value).bit_length() * math.log10(2))}"
    return str(value) if isinstance(value, int) else f"{value:g}"
