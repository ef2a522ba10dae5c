"""What a number may be: the same limits for an option of a command and for an argument of a function."""

import math
from dataclasses import dataclass

from pose2d.base.errors import UserError


@dataclass(frozen=True)
class Range:
    """Finite numbers from `low` to `high`, both included."""

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
