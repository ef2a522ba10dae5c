"""Make a command line (`command`) and a Python function (`function`) from one record of options.

    @dataclass(frozen=True)
    class Options:
        every: int = option(1, "Use every n-th frame only.", limits=ranges.EVERY)

Name, default, range and help are written once; a default of `...` makes an option required. Numbers
must have a Range, paths and texts must not be empty. Values are checked before anything heavy is
imported. `read_config` reads the same options from a TOML file.
"""

import difflib
import inspect
import os
import re
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from pose2d.base.errors import OptionError, Range, UserError
from pose2d.base.files import open_regular
from pose2d.base.toml_files import parse_toml

LONGEST_TEXT_BYTES = 4096  # of a path or a name: what Linux allows for a path
LONGEST_NAME_BYTES = 255  # of one part of a path
LARGEST_CONFIG_BYTES = 1 << 20
P = ParamSpec("P")
Record = TypeVar("Record")
T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """Describe an option beyond the name, type and default of its field."""

    help: str = ""
    panel: str | None = None  # heading in --help
    limits: Range | None = None  # of a number
    # Text that --help shows as the default, where the value says too little; False: nothing.
    shown: str | bool | None = None
    name: str = ""  # on the command line, if it differs from the field's
    flags: tuple[str, ...] = ()  # spellings instead of --name
    commas: bool = False  # several texts, separated by commas
    is_text: bool = False  # text on the command line, whatever type the function takes
    is_place: bool = False  # a path, or the URL of an object in storage
    is_argument: bool = False  # positional
    callback: Callable[..., Any] | None = None  # runs before other options are read

    def flag(self, field_name: str) -> str:
        """Return the spelling on the command line, such as `--detector-size`."""
        return "--" + (self.name or field_name).replace("_", "-")


def option(
    default: Any, help: str | Option = "", *more: Any, kw_only: Any = MISSING, **details: Any
) -> Any:
    """Declare a field of a record that is an option, by an Option or by the fields of one."""
    description = help if isinstance(help, Option) else Option(help, *more, **details)
    default = MISSING if default is ... else default
    return field(default=default, kw_only=kw_only, metadata={"option": description})


def command(
    record: Callable[..., Record],
) -> Callable[[Callable[[Record], None]], Callable[..., None]]:
    """Turn a function of a record into a command whose options are the record's fields."""

    def wrap(work: Callable[[Record], None]) -> Callable[..., None]:
        by_name = {
            description.name or entry.name: (entry, description, hint)
            for entry, description, hint in _options(record)
        }
        parameters = [_parameter(name, *parts) for name, parts in by_name.items()]

        def call(**arguments: Any) -> None:
            values = {}
            for name, argument in arguments.items():
                entry, description, _ = by_name[name]
                values[entry.name] = _record_value(entry, description, argument)
            work(check_ranges(record(**values)))

        call.__name__ = work.__name__
        call.__doc__ = work.__doc__
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        return call

    return wrap


def function(record: Callable[P, Record]) -> Callable[[Callable[[Record], T]], Callable[P, T]]:
    """Turn a function of a record into one whose arguments are the record's fields.

    Its docstring lists the options' help, and its errors name arguments instead of flags.
    """

    def wrap(work: Callable[[Record], T]) -> Callable[P, T]:
        hints = get_type_hints(record)
        signature = inspect.signature(record)
        signature = signature.replace(
            parameters=[p.replace(annotation=hints[p.name]) for p in signature.parameters.values()],
            return_annotation=get_type_hints(work)["return"],
        )
        argument_of_flag = {
            description.flag(entry.name): entry.name for entry, description, _ in _options(record)
        }

        def call(*values: P.args, **options: P.kwargs) -> T:
            try:
                signature.bind(*values, **options)
            except TypeError as error:
                raise TypeError(f"{work.__name__}() {error}") from None
            try:
                return work(check_ranges(record(*values, **options)))
            except UserError as error:
                _name_arguments(error, argument_of_flag)
                raise

        help_of = {entry.name: description.help for entry, description, _ in _options(record)}
        lines = [f"{name}: {help_of[name]}" for name in signature.parameters]
        call.__name__ = call.__qualname__ = work.__name__
        call.__module__ = work.__module__
        call.__doc__ = f"{inspect.getdoc(work)}\n\n" + "\n".join(lines)
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return wrap


def _name_arguments(error: UserError, argument_of_flag: dict[str, str]) -> None:
    """Replace flags (`--end`) in an error by the function's arguments (`end_s`)."""

    def replace(flag: re.Match[str]) -> str:
        return argument_of_flag.get(flag[0], flag[0])

    error.args = (re.sub(r"(?<!\w)--[a-z][a-z0-9-]*", replace, str(error)), *error.args[1:])
    if error.option is not None:
        flag = "--" + error.option.replace("_", "-")
        error.option = argument_of_flag.get(flag, error.option)


def check_ranges(options: Record) -> Record:
    """Return the options if their numbers are in range and their paths and texts can be used.

    Raises OptionError otherwise.
    """
    for entry, description, _ in _options(type(options)):
        flag = description.flag(entry.name)
        value = getattr(options, entry.name)
        if description.limits is not None:
            description.limits.check(flag, value)
        for text in value if isinstance(value, tuple) else (value,):
            if not isinstance(text, str | Path) or text == entry.default:
                continue
            problem = _text_problem(str(text))
            if problem:
                raise OptionError(f"{flag} {problem}.")
    return options


def _text_problem(text: str) -> str:
    """Return why a text cannot be a name or a path; empty if it can."""
    if not text.strip():
        return "is empty"
    if "\0" in text or len(os.fsencode(text)) >= LONGEST_TEXT_BYTES:
        return f"must be a name or a path; got {text[:40]!r}.."
    parts = () if "://" in text else Path(text).parts
    if any(len(os.fsencode(part)) > LONGEST_NAME_BYTES for part in parts):
        return f"is {text[:40]}..: a file name has at most {LONGEST_NAME_BYTES} bytes"
    return ""


def shared(options: Any, record: type) -> dict[str, Any]:
    """Return the values of the fields that another record has too."""
    names = [entry.name for entry in fields(record)]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


def _options(record: Any) -> Iterator[tuple["Field[Any]", Option, Any]]:
    """Yield the fields that are options, with their descriptions and types."""
    hints = get_type_hints(record)
    for entry in fields(record):
        if "option" in entry.metadata:
            yield entry, entry.metadata["option"], hints[entry.name]


def _parameter(name: str, entry: "Field[Any]", option: Option, hint: Any) -> inspect.Parameter:
    """Return an option in the form that typer reads."""
    kind, is_repeated = _kind(hint)
    if option.is_text or option.commas:
        kind = str
    if option.commas:
        is_repeated = False
    if kind in (int, float) and option.limits is None:
        raise TypeError(f"option {entry.name} is a number without a Range")
    default = _command_default(entry, option)
    annotation: Any = kind if default is not None else kind | None
    if is_repeated:
        annotation = list[kind] | None  # type: ignore[valid-type]
    details: dict[str, Any] = {"help": option.help or None}
    if option.is_place or kind is Path:
        details["parser"] = _place if option.is_place else Path
    if option.shown is not None:
        details["show_default"] = option.shown
    info: Any
    if option.is_argument:
        info = typer.Argument(**details)
    else:
        spelled = name.replace("_", "-")
        flags = option.flags or (f"--{spelled}",)
        if not option.flags and kind is bool and default is True:
            flags = (f"--{spelled}/--no-{spelled}",)
        if kind is bool:
            details["metavar"] = ""  # a flag takes no value
        if option.callback is not None:
            details |= {"callback": option.callback, "is_eager": True}
        info = typer.Option(*flags, rich_help_panel=option.panel, **details)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[annotation, info],
    )


def _command_default(entry: "Field[Any]", option: Option) -> Any:
    """Return the default of an option as typer expects it."""
    if entry.default is MISSING:
        return inspect.Parameter.empty
    if (entry.default is None and option.is_text) or (entry.default == () and option.commas):
        return ""
    if isinstance(entry.default, tuple):
        return ",".join(entry.default) if option.commas else None
    return entry.default


def _record_value(entry: "Field[Any]", option: Option, argument: Any) -> Any:
    """Convert a value of the command line to that of the record."""
    if argument is None and entry.default == ():  # typer's value of an option that is not given
        return ()
    if option.commas:
        return tuple(word.strip() for word in argument.split(",") if word.strip())
    if isinstance(argument, list):
        return tuple(argument)
    return None if option.is_text and argument == "" else argument


def _kind(hint: Any) -> tuple[Any, bool]:
    """Return int for `int | None` and Path for `str | Path`, and whether a type is repeated."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        hint = Path if Path in parts else parts[0]
    inner = get_args(hint)
    return (inner[0], True) if inner and get_origin(hint) is not None else (hint, False)


def _place(value: str) -> str:
    """Return a path or a URL (s3://bucket/clip.mp4) as text."""
    return value


_place.__name__ = "PATH"  # shown by --help


def read_config(path: Path, options: Iterable[str], repeated: Iterable[str] = ()) -> dict[str, Any]:
    """Read the values of options from a TOML file, by option name with underscores.

    options: the names of a command's options. repeated: those whose values are lists.
    """
    valid = set(options)
    lists = set(repeated)
    values: dict[str, Any] = {}
    for name, value in _read_toml(path).items():
        option = name.replace("-", "_")
        if option not in valid:
            near = difflib.get_close_matches(option, valid, 1)
            hint = f"did you mean {near[0]}?" if near else f"choose {', '.join(sorted(valid))}."
            raise UserError(
                f"the configuration {path} has an unknown option {name!r}: "
                + hint.replace("_", "-"),
                file=path,
                option=option,
            )
        if isinstance(value, dict):
            raise UserError(
                f"the configuration {path} has a table [{name}]; expected one value, {name} = ...",
                file=path,
                option=option,
            )
        # Texts, as on the command line, so that `true` is no number and 1.5 no whole number.
        texts = [str(item) for item in value] if isinstance(value, list) else [str(value)]
        values[option] = texts if option in lists else ",".join(texts)
    return values


def _read_toml(path: Path) -> dict[str, Any]:
    """Parse a small TOML file; UserError says what is wrong with it."""
    try:
        with open_regular(path) as file:
            if path.stat().st_size > LARGEST_CONFIG_BYTES:
                raise UserError(
                    f"{path} is not a configuration: expected a TOML file of some lines.", file=path
                )
            return parse_toml(file.read().decode(), path)
    except OSError as error:
        raise UserError(
            f"cannot read the configuration {path}: {error.strerror}.", file=path
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not TOML: it is no UTF-8 text.", file=path) from error
