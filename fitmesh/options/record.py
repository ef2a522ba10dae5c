"""One record of options makes a command line (`command`) and a Python function (`function`).

    @dataclass(frozen=True)
    class Options:
        every: int = option(1, "Use every n-th frame only.", limits=ranges.EVERY)  # ... instead of 1: has to be given

Name, default, range and help stand there once. A number must lie in its Range (a number without one
is a mistake in the record, and says so when the program starts), a path or text must not be empty.
Mistakes are found before anything heavy is imported, on the command line as in a call of the
function. `read_config` reads the same options by name from a TOML file; the command line takes
precedence."""

import difflib
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from pose2d.base.errors import Range, UserError
from pose2d.base.files import open_regular

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


LONGEST_TEXT = 4096  # bytes of a path or a name: what Linux allows for a path
LONGEST_NAME = 255  # bytes of one part of a path
P = ParamSpec("P")
Record = TypeVar("Record")
T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """What a command line must know of a field besides its name, type and default."""

    help: str = ""
    panel: str | None = None  # of --help
    limits: Range | None = None  # of a number
    shown: str | bool | None = (
        None  # what help says of the default where the value says too little; False: nothing
    )
    name: str = ""  # on the command line, where the field has another
    flags: tuple[str, ...] = ()  # other spellings than --name
    commas: bool = False  # several texts, with commas between
    is_text: bool = False  # on the command line text, whatever a function takes
    is_place: bool = False  # a path, or the URL of something in object storage
    is_argument: bool = False  # given by its place, not by its name
    callback: Callable[..., Any] | None = (
        None  # called first of all, before other options are looked at
    )


def option(
    default: Any, help: str | Option = "", *more: Any, kw_only: Any = MISSING, **how: Any
) -> Any:
    """A field of a record that is an option, described by an Option or its fields."""
    about = help if isinstance(help, Option) else Option(help, *more, **how)
    default = MISSING if default is ... else default
    return field(default=default, kw_only=kw_only, metadata={"option": about})


def command(
    record: Callable[..., Record],
) -> Callable[[Callable[[Record], None]], Callable[..., None]]:
    """The command line of a function of a record."""

    def wrap(work: Callable[[Record], None]) -> Callable[..., None]:
        options = {about.name or of.name: (of, about, hint) for of, about, hint in _options(record)}
        parameters = [_parameter(name, *of) for name, of in options.items()]

        def call(**given: Any) -> None:
            values = {
                options[name][0].name: _value(*options[name][:2], value)
                for name, value in given.items()
            }
            work(check_ranges(record(**values)))

        call.__name__ = work.__name__
        call.__doc__ = work.__doc__
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        return call

    return wrap


def function(record: Callable[P, Record]) -> Callable[[Callable[[Record], T]], Callable[P, T]]:
    """The function whose arguments are the fields of a record, with the options' help in its
    docstring.
    """

    def wrap(work: Callable[[Record], T]) -> Callable[P, T]:
        hints = get_type_hints(record)
        signature = inspect.signature(record)
        signature = signature.replace(
            parameters=[p.replace(annotation=hints[p.name]) for p in signature.parameters.values()],
            return_annotation=get_type_hints(work)["return"],
        )

        def call(*values: P.args, **options: P.kwargs) -> T:
            try:
                signature.bind(*values, **options)
            except TypeError as error:
                raise TypeError(f"{work.__name__}() {error}") from None
            return work(check_ranges(record(*values, **options)))

        help_of = {of.name: about.help for of, about, _ in _options(record)}
        lines = [f"{name}: {help_of[name]}" for name in signature.parameters]
        call.__name__ = call.__qualname__ = work.__name__
        call.__module__ = work.__module__
        call.__doc__ = f"{inspect.getdoc(work)}\n\n" + "\n".join(lines)
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return wrap


def check_ranges(options: Record) -> Record:
    """The same again; UserError where a number is not in the Range of its field, or a path or text
    cannot be one.
    """
    for of, about, _ in _options(type(options)):
        name = f"--{(about.name or of.name).replace('_', '-')}"
        value = getattr(options, of.name)
        if about.limits is not None:
            about.limits.check(name, value)
        for text in value if isinstance(value, tuple) else (value,):
            if (
                isinstance(text, str | Path)
                and text != of.default
                and (problem := _text_problem(str(text)))
            ):
                raise UserError(f"{name} {problem}.")
    return options


def _text_problem(text: str) -> str:
    """Why nothing can have this name or path; empty where something can."""
    if not text.strip():
        return "is empty"
    if "\0" in text or len(os.fsencode(text)) >= LONGEST_TEXT:
        return f"is {text[:40]!r}.., which is no name"
    if "://" not in text and any(
        len(os.fsencode(part)) > LONGEST_NAME for part in Path(text).parts
    ):
        return f"is {text[:40]}..: a file name has at most {LONGEST_NAME} bytes"
    return ""


def shared(options: Any, record: type) -> dict[str, Any]:
    """The values of the fields that another record has too."""
    return {
        of.name: getattr(options, of.name) for of in fields(record) if hasattr(options, of.name)
    }


def _options(record: Any) -> Iterator[tuple["Field[Any]", Option, Any]]:
    """The fields that are options, with what is said of them and their type."""
    hints = get_type_hints(record)
    return (
        (f, f.metadata["option"], hints[f.name]) for f in fields(record) if "option" in f.metadata
    )


def _parameter(name: str, field: "Field[Any]", option: Option, hint: Any) -> inspect.Parameter:
    """As typer takes it."""
    kind, is_several = _kind(hint)
    kind = str if option.is_text or option.commas else kind
    is_several = is_several and not option.commas
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    if (default is None and option.is_text) or (default == () and option.commas):
        default = ""
    elif isinstance(default, tuple):
        default = ",".join(default) if option.commas else None
    typed = list[kind] | None if is_several else kind if default is not None else kind | None  # type: ignore[valid-type]
    if kind in (int, float) and option.limits is None:
        raise TypeError(f"option {field.name} is a number without a Range")
    about: dict[str, Any] = {"help": option.help or None}
    if option.is_place or kind is Path:
        about["parser"] = _place if option.is_place else Path
    if option.shown is not None:
        about["show_default"] = option.shown
    info: Any
    if option.is_argument:
        info = typer.Argument(**about)
    else:
        spelled = name.replace("_", "-")
        flags = option.flags or (
            f"--{spelled}/--no-{spelled}" if kind is bool and default is True else f"--{spelled}",
        )
        if kind is bool:
            about["metavar"] = ""  # a flag takes no value
        if option.callback is not None:
            about |= {"callback": option.callback, "is_eager": True}
        info = typer.Option(*flags, rich_help_panel=option.panel, **about)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[typed, info]
    )


def _value(field: "Field[Any]", option: Option, given: Any) -> Any:
    """From the command line into the record."""
    if given is None and field.default == ():  # typer has None for an option that was not repeated
        return ()
    if option.commas:
        return tuple(word.strip() for word in given.split(",") if word.strip())
    if isinstance(given, list):
        return tuple(given)
    return None if option.is_text and given == "" else given


def _kind(hint: Any) -> tuple[Any, bool]:
    """int of `int | None`, Path of `str | Path`; and whether there are several, as in tuple[str,
    ...].
    """
    if get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        hint = Path if Path in parts else parts[0]
    inner = get_args(hint)
    return (inner[0], True) if inner and get_origin(hint) is not None else (hint, False)


def _place(value: str) -> str:
    """A path, or the URL of something in object storage (s3://bucket/clip.mp4), as text."""
    return value


_place.__name__ = "PATH"  # shown by --help
MOST_BYTES = 1 << 20


def read_config(path: Path, options: Iterable[str], repeated: Iterable[str] = ()) -> dict[str, Any]:
    """Values by option name, with underscores. `options` are the names of a command's options, with
    underscores. repeated: those that may be given several times; their values are lists."""
    valid = set(options)
    several = set(repeated)
    try:
        with open_regular(path) as file:
            if path.stat().st_size > MOST_BYTES:
                raise UserError(
                    f"{path} is not a configuration: expected a TOML file of some lines."
                )
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
            hint = f"did you mean {near[0]}?" if near else f"choose {', '.join(sorted(valid))}."
            raise UserError(
                f"the configuration {path} has an unknown option {name!r}: {hint.replace('_', '-')}"
            )
        if isinstance(value, dict):
            raise UserError(
                f"the configuration {path} has a table [{name}]; expected one value, {name} = ..."
            )
        # As on the command line, where true is no number and 1.5 no whole one.
        each = [str(one) for one in value] if isinstance(value, list) else [str(value)]
        values[option] = each if option in several else ",".join(each)
    return values
