"""Read TOML text of unknown origin in time linear in its size.

Python's parser takes quadratic time for keys of many dotted parts, recurses for nested brackets and
raises ValueError for numbers of thousands of digits. Text is checked for these before it is parsed.
"""

import sys
from pathlib import Path
from typing import Any

from pose2d.base.errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_DOTS = 200  # on a line: of a dotted key, or decimal points of a matrix
MOST_NESTING = 20  # of brackets


def parse_toml(text: str, path: Path, expected: str = "") -> dict[str, Any]:
    """Return the content of TOML text, or raise UserError with the file's name.

    expected: what the file should be, the end of the message.
    """
    problem = _find_costly_part(text)
    if problem is None:
        try:
            return tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
            problem = (str(error).splitlines() or ["nested too deeply"])[0][:200]
    raise UserError(f"{path} is not TOML: {problem}. {expected}".rstrip(), file=path)


def _find_costly_part(text: str) -> str | None:
    """Return in words what would take the parser long; None: nothing."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MOST_DOTS:
            return f"line {number} has more than {MOST_DOTS} dots"
    depth = 0
    for character in text:
        if character in "[{":
            depth += 1
            if depth > MOST_NESTING:
                return f"brackets are nested more than {MOST_NESTING} deep"
        elif character in "]}":
            depth = max(depth - 1, 0)
    return None
