"""Options that say something of single people, by their numbers."""

import re
from typing import Any

from pose2d.base.errors import OptionError

_ENTRY = re.compile(r"([0-9]{1,9}):([\w-]{1,40})")  # a name becomes a file's name


def parse_names(text: Any) -> dict[int, str]:
    """Return names by identity from `1:Anna,2:Ben`; OptionError if they cannot be read."""
    names: dict[int, str] = {}
    for part in text.split(",") if isinstance(text, str) else ():
        match = _ENTRY.fullmatch(part.strip())
        if match is None:
            raise OptionError(
                "--names must be numbers of people with names of letters, digits, - and _, such as "
                f"1:Anna,2:Ben; got {part[:60]!r}.",
                option="--names",
            )
        names[int(match[1])] = match[2]
    lower = [name.lower() for name in names.values()]  # some file systems know no capitals
    if len(set(lower)) < len(lower) or any(name.startswith("person_") for name in lower):
        raise OptionError(
            f"--names must be different from each other and from person_N; got {text!r}.",
            option="--names",
        )
    return names
