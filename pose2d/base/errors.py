"""Define the exceptions for mistakes that a user can fix, ranges of numbers, and lazy imports.

Every package imports this module, so it imports nothing heavy itself.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any


class UserError(Exception):
    """Report a mistake in the input: the message names the thing, what was expected and what to do.

    Commands print the message and exit with code 2, without a traceback. `code` tells programs what
    kind of mistake it is; `file` and `option` name what is wrong, where that is one thing.
    """

    code = "input"

    def __init__(
        self, message: str = "", *, file: str | Path | None = None, option: str | None = None
    ) -> None:
        super().__init__(message)
        self.file = None if file is None else str(file)
        self.option = option

    def facts(self) -> dict[str, str | None]:
        """Return the message and its fields, as `--json` prints them."""
        return {"text": str(self), "code": self.code, "file": self.file, "option": self.option}


class OptionError(UserError):
    """Report a wrong or contradictory option, named by `option`.

    Without an explicit name, it is the first `--name` of the message.
    """

    code = "option"

    def __init__(self, message: str = "", *, option: str | None = None) -> None:
        flag = re.search(r"--([a-z][a-z0-9-]*)", message)
        name = flag[1].replace("-", "_") if option is None and flag else option
        super().__init__(message, option=name)


class DataError(UserError):
    """Report readable input that does not contain enough to work on."""

    code = "data"


class ResourceError(UserError):
    """Report that memory, disk space, a device or an optional package is missing."""

    code = "resource"


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that imports its public names on first use.

    modules: the module of each public name.
    """

    def import_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return import_name, lambda: sorted(modules)


@dataclass(frozen=True)
class Range:
    """Hold the limits of a finite number, both included."""

    low: float
    high: float
    multiple: int | None = None  # the number must be divisible by this

    def problem(self, value: float) -> str:
        """Return what is wrong with a number; empty if it is in the range."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"must be a number {self}; got {value!r}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"must be a finite number {self}; got {value}"
        if not self.low <= value <= self.high:
            return f"must be {self}; got {format_number(value)}"
        if self.multiple is not None and value % self.multiple:
            return f"must be a multiple of {self.multiple}; got {format_number(value)}"
        return ""

    def check(self, name: str, value: float | None) -> None:
        """Raise OptionError if a number is given and is not in the range."""
        if value is None:
            return
        problem = self.problem(value)
        if problem:
            raise OptionError(f"{name} {problem}.", option=name.lstrip("-").replace("-", "_"))

    def __str__(self) -> str:
        return f"between {format_number(self.low)} and {format_number(self.high)}"


def format_number(value: float) -> str:
    """Format a number in a few characters: 1e+30 instead of thirty zeros."""
    if isinstance(value, int) and abs(value) >= 10**9:
        sign = "-" if value < 0 else ""
        exponent = int(abs(value).bit_length() * math.log10(2))
        return f"about {sign}10^{exponent}"
    if isinstance(value, int):
        return str(value)
    return f"{value:g}"
