"""Select many clips: which files, a folder name for each, and the share of one machine."""

import glob
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from fitmesh.many import store
from pose2d.base.errors import OptionError, UserError
from pose2d.base.files import open_regular, real_path

T = TypeVar("T")
LIST_SUFFIX = ".txt"
MOST_LIST_BYTES = 64 << 20  # a million paths
RESERVED = frozenset({"summary.csv", "index.html"})  # files in the folder above the clips'
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@dataclass(frozen=True)
class ClipSource:
    """Name one clip and the folder for its results."""

    name: str
    source: str  # path or URL


@dataclass(frozen=True)
class ClipSelection:
    """Hold the clips that options select."""

    clips: list[ClipSource]
    twice: list[str]  # paths that were given more than once
    left_out: int  # files that a pattern matched in the folder of results itself


def is_url(text: str) -> bool:
    """Return whether a text is a URL, such as s3://bucket/clip.mp4."""
    return _URL.match(text) is not None


def find_clips(video: Sequence[str], videos: Sequence[str], out: str) -> ClipSelection:
    """Return the clips of --video and --videos, without results of earlier runs in `out`.

    Each of --videos is a pattern, a .txt file with a list, or a clip.
    """
    texts = list(video)
    left_out = 0
    root = real_path(out)
    for text in videos:
        paths = _read_list(text)
        if paths is None:
            matches = _matching(text)
            paths = matches
            if not is_url(out):
                paths = [m for m in matches if is_url(m) or not real_path(m).is_relative_to(root)]
            left_out += len(matches) - len(paths)
            if not paths and matches:
                raise OptionError(
                    f"--videos {text!r} matches only results of an earlier run in --out."
                )
            if not paths:
                where = "" if is_url(text) or Path(text).is_absolute() else f" in {Path.cwd()}"
                how = "Check the pattern, and write it in quotes: '**/*.mp4'."
                raise OptionError(f"no video matches --videos {text!r}{where}. {how}")
        texts += paths
    sources: dict[str, str] = {}
    twice = []
    for text in texts:
        key = text if is_url(text) else str(real_path(text))
        if key in sources:
            twice.append(text)
        sources.setdefault(key, text)
    unique = list(sources.values())
    return ClipSelection(
        [
            ClipSource(name, source)
            for name, source in zip(folder_names(unique), unique, strict=True)
        ],
        twice,
        left_out,
    )


def _read_list(text: str) -> list[str] | None:
    """Return the lines of a list of videos; None if the text is a pattern."""
    if not text.lower().endswith(LIST_SUFFIX) or glob.has_magic(text):
        return None
    try:
        if is_url(text):
            raw = store.read_bytes(text)
        else:
            with open_regular(text) as file:
                raw = file.read(MOST_LIST_BYTES + 1)
        if len(raw) > MOST_LIST_BYTES:
            raise UserError(f"{text} is too large for a list of videos: expected one path a line.")
        lines = [line.strip() for line in raw.decode("utf-8-sig").splitlines()]
    except OSError as error:
        raise UserError(
            f"cannot read the list of videos {text}: {error.strerror or error}."
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{text} is not a list of videos: expected text with one path a line."
        ) from error
    paths = [line for line in lines if line and not line.startswith("#")]
    if "\0" in "".join(paths):
        raise UserError(
            f"{text} is not a list of videos: it holds NUL characters, which no path has."
        )
    if not paths:
        raise UserError(f"the list of videos {text} is empty: expected one path a line.")
    return paths


def _matching(text: str) -> list[str]:
    """Return the files that match a pattern, sorted by name."""
    if is_url(text):
        return store.matching(text)
    if Path(text).is_file():  # also when its name looks like a pattern
        return [text]
    if Path(text).is_dir():
        raise UserError(
            f"{text} is a folder: pass a quoted pattern to --videos, '{Path(text) / '*.mp4'}'."
        )
    return sorted({match for match in _expand(text) if Path(match).is_file()})


def _expand(pattern: str) -> Iterator[str]:
    """Yield what `glob.glob` does, but let `**` follow no links, which may be circular."""
    parts = Path(pattern).parts
    if "**" not in parts:
        yield from glob.glob(pattern)
        return
    position = parts.index("**")
    for root in glob.glob(str(Path(*parts[:position]))):
        for folder, inner, _ in os.walk(root):
            inner[:] = [name for name in inner if not name.startswith(".")]
            yield from _expand(str(Path(glob.escape(folder), *(parts[position + 1 :] or "*"))))


def folder_names(sources: Sequence[str]) -> list[str]:
    """Return a different folder name for each source: the file's name without its suffix.

    Clips that differ only by their suffix keep it; others of the same name get the names of as many
    folders above them as needed. Names depend on the set of clips, not on their order.
    """
    paths = [
        PurePosixPath(_URL.sub("", source))
        if is_url(source)
        else PurePosixPath(real_path(source).as_posix())
        for source in sources
    ]
    beside = Counter(str(path.parent / path.stem).casefold() for path in paths)
    # A name is neither ".." nor hidden, as our own files are.
    stems = [path.stem.lstrip(".") or "clip" for path in paths]
    plain = [
        f"{stem}-{path.suffix[1:]}" if beside[str(path.parent / path.stem).casefold()] > 1 else stem
        for stem, path in zip(stems, paths, strict=True)
    ]
    longest = max((len(path.parts) for path in paths), default=1)

    def longer_name(n: int, depth: int) -> str:
        """Return a name with `depth` folders above the clip; with a digest as the last resort."""
        if depth == longest:
            digest = hashlib.sha256(sources[n].encode("utf-8", "surrogateescape")).hexdigest()
            return f"{plain[n]}-{digest[:8]}"
        above = [part.lstrip(".") for part in paths[n].parts[:-1] if part.strip("/.")]
        return "-".join([*above[-depth:], plain[n]])

    names = list(plain)
    for depth in range(1, longest + 1):
        # Names that occur once stay. File systems may not distinguish capitals.
        occurrences = Counter(name.casefold() for name in names)
        for n, name in enumerate(list(names)):
            folded = name.casefold()
            if occurrences[folded] > 1 or folded in RESERVED:
                names[n] = longer_name(n, depth)
    return names


def share_of(clips: Sequence[T], shard: str | None) -> list[T]:
    """Return the clips of a shard: "3/20" is every 20th from the third; None: all."""
    match = re.fullmatch(
        r"\s*([0-9]{1,7})\s*/\s*([0-9]{1,7})\s*", "1/1" if shard is None else shard
    )
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise OptionError(f"--shard must read like 3/20, part 3 of 20; got {str(shard)[:40]!r}.")
    return list(clips[int(match[1]) - 1 :: int(match[2])])
