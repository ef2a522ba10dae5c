"""A TOML file with a command's options by name; the command line takes precedence."""

import difflib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pose2d.base.errors import UserError
from pose2d.base.files import open_regular

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_BYTES = 1 << 20


def read_config(path: Path, options: Iterable[str], repeated: Iterable[str] = ()) -> dict[str, Any]:
    """Values by option name, with underscores. `options` are the names of a command's options, with underscores.

    repeated: those that may be given several times; their values are lists.
    """
    valid, several = set(options), set(repeated)
    try:
        with open_regular(path) as file:
            if path.stat().st_size > MOST_BYTES:
                raise UserError(f"{path} is not a configuration: expected a TOML file of some lines.")
            given = tomllib.load(file)
    except OSError as error:
        raise UserError(f"cannot read the configuration {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = (str(error).splitlines() or ["nested too deeply"])[0][:200]
        raise UserError(f"the configuration {path} is not TOML: {reason}.") from error
    values: dict[str, Any] = {}
    for name, value in given.items():
        option = name.replace("-", "_")
        if option not in valid:
            near = difflib.get_close_matches(option, valid, 1)
            hint = f"did you mean {near[0].replace('_', '-')}?" if near else f"choose {_listed(valid)}."
            raise UserError(f"the configuration {path} has an unknown option {name!r}: {hint}")
        if isinstance(value, dict):
            raise UserError(f"the configuration {path} has a table [{name}]; expected one value, {name} = ...")
        if option in several:
            values[option] = value if isinstance(value, list) else [value]
        else:
            values[option] = ",".join(map(str, value)) if isinstance(value, list) else value
    return values


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(name.replace("_", "-") for name in names))
