"""What options may be. One mechanism for all commands:

    every: Annotated[int, typer.Option(help="..."), Range(1, 10**6)] = 1

`checked` gives every option of a command its check: a number must lie in its Range (a number without one is a mistake
in the command, and says so when the program starts), a path or text must not be empty. Mistakes are found while the
command line is read, before anything heavy is imported.
"""

import inspect
import os
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer

from pose2d.base.ranges import Range

LONGEST_TEXT = 4096  # bytes of a path or a name: what Linux allows for a path
LONGEST_NAME = 255  # bytes of one part of a path


class NumberParser:
    """A number of a Range."""

    def __init__(self, kind: type, limits: Range) -> None:
        self.kind, self.limits = kind, limits
        self.__name__ = "INTEGER" if kind is int else "FLOAT"  # shown by --help

    def __call__(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise typer.BadParameter(f"{value!r} is not a number.")
        try:
            number = self.kind(value)
            if self.kind is int and isinstance(value, float) and number != value:
                raise ValueError
        except (ValueError, OverflowError):
            what = "a whole number" if self.kind is int else "a number"
            raise typer.BadParameter(f"{str(value)[:80]!r} is not {what}.") from None
        if problem := self.limits.problem(number):
            raise typer.BadParameter(f"it {problem}.")
        return number


class TextParser:
    """Text that is not empty."""

    __name__ = "TEXT"

    def __call__(self, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise typer.BadParameter(f"{value!r} is not text.")
        text = str(value)
        if not text.strip():
            raise typer.BadParameter("it is empty.")
        if "\0" in text or "\n" in text or len(text) > LONGEST_TEXT:
            raise typer.BadParameter(f"{text[:40]!r} is not a name.")
        return text


class PathParser:
    """A path that could be one: not empty, and short enough for a file system."""

    __name__ = "PATH"

    def __call__(self, value: Any) -> Path:
        if not isinstance(value, str | Path):
            raise typer.BadParameter(f"{value!r} is not a path.")
        text = str(value)
        if not text.strip():
            raise typer.BadParameter("it is empty; expected a path.")
        if "\0" in text:
            raise typer.BadParameter("a path cannot hold the character 0.")
        size = max(len(os.fsencode(part)) for part in Path(text).parts or (text,))
        if size > LONGEST_NAME or len(os.fsencode(text)) >= LONGEST_TEXT:
            raise typer.BadParameter(f"{text[:40]}... is too long: a file name has at most {LONGEST_NAME} bytes.")
        return Path(text)


class PlaceParser:
    """A path, or the URL of something in object storage (s3://bucket/clip.mp4), as text."""

    __name__ = "PATH"

    def __call__(self, value: Any) -> str:
        if isinstance(value, str) and "://" in value:
            return TextParser()(value)
        return str(PathParser()(value))


def checked(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same command, every option of which has its check."""
    # By the signature: get_type_hints of Python 3.10 wraps the type of an option whose default is None once more.
    for name, parameter in inspect.signature(command).parameters.items():
        hint = parameter.annotation
        if get_origin(hint) is not Annotated:
            continue
        option = next((extra for extra in hint.__metadata__ if isinstance(extra, typer.models.ParameterInfo)), None)
        if option is None or option.parser is not None:
            continue
        kind = _kind(hint.__origin__)
        if kind in (int, float):
            limits = next((extra for extra in hint.__metadata__ if isinstance(extra, Range)), None)
            if limits is None:
                raise TypeError(f"option {name} of {command.__name__} is a number without a Range")
            option.parser = NumberParser(kind, limits)
        elif kind is Path:
            option.parser = PathParser()
        elif kind is str and not _may_be_empty(command, name):
            option.parser = TextParser()
    return command


def _kind(hint: Any) -> Any:
    """int of `int | None`, str of `list[str] | None`."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    return get_args(hint)[0] if get_origin(hint) is list else hint


def _may_be_empty(command: Callable[..., Any], name: str) -> bool:
    return inspect.signature(command).parameters[name].default == ""
