"""Which clips a run is asked for, the name of each one's folder, and the share of one machine among many."""

import glob
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pose2d.base.errors import UserError
from pose2d.base.files import open_regular

LIST_SUFFIX = ".txt"
MOST_LIST_BYTES = 64 << 20  # a million paths
RESERVED = frozenset({"summary.csv", "index.html"})  # files in the folder above the clips'
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@dataclass(frozen=True)
class ClipSource:
    """One clip and the name of the folder for its results."""

    name: str
    source: str  # path or URL


@dataclass(frozen=True)
class Found:
    """Every clip that was asked for, once."""

    clips: list[ClipSource]
    twice: list[str]  # paths that were given more than once
    left_out: int  # files that a pattern matched in the folder of results itself


def is_url(text: str) -> bool:
    return _URL.match(text) is not None


def find_clips(video: Sequence[str], videos: Sequence[str], out: str) -> Found:
    """Of `--video` (each a clip) and `--videos` (each a pattern, a list in a .txt file, or a clip)."""
    given, left_out, root = list(video), 0, Path(out).resolve()
    for text in videos:
        found = _listed(text)
        if found is None:
            matches = _matching(text)
            found = matches
            if not is_url(out):
                found = [m for m in matches if is_url(m) or not Path(m).resolve().is_relative_to(root)]
            left_out += len(matches) - len(found)
            if not found and matches:
                raise UserError(f"--videos {text!r} matches nothing but results of an earlier run in --out.")
            if not found:
                where = "" if is_url(text) or Path(text).is_absolute() else f" in {Path.cwd()}"
                how = "Check the pattern, and write it in quotes: '**/*.mp4'."
                raise UserError(f"no video matches --videos {text!r}{where}. {how}")
        given += found
    sources: dict[str, str] = {}
    twice = []
    for text in given:
        key = text if is_url(text) else str(Path(text).resolve())
        if key in sources:
            twice.append(text)
        sources.setdefault(key, text)
    kept = list(sources.values())
    return Found([ClipSource(name, source) for name, source in zip(names_of(kept), kept, strict=True)], twice, left_out)


def _listed(text: str) -> list[str] | None:
    """The lines of a list; None: it is a pattern."""
    if not text.lower().endswith(LIST_SUFFIX) or glob.has_magic(text):
        return None
    try:
        if is_url(text):
            from fitmesh.many.store import read_bytes

            raw = read_bytes(text)
        else:
            with open_regular(text) as file:
                raw = file.read(MOST_LIST_BYTES + 1)
        if len(raw) > MOST_LIST_BYTES:
            raise UserError(f"{text} is too large for a list of videos: expected one path a line.")
        lines = [line.strip() for line in raw.decode("utf-8-sig").splitlines()]
    except OSError as error:
        raise UserError(f"cannot read the list of videos {text}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{text} is not a list of videos: expected text with one path a line.") from error
    paths = [line for line in lines if line and not line.startswith("#")]
    if "\0" in "".join(paths):
        raise UserError(f"{text} is not a list of videos: it holds NUL characters, which no path has.")
    if not paths:
        raise UserError(f"the list of videos {text} is empty: expected one path a line.")
    return paths


def _matching(text: str) -> list[str]:
    """Files that a pattern matches, in the order of their names."""
    if is_url(text):
        from fitmesh.many.store import matching

        return matching(text)
    if Path(text).is_file():  # also when its name looks like a pattern
        return [text]
    if Path(text).is_dir():
        raise UserError(f"{text} is a folder. --videos takes a pattern: '{Path(text) / '*.mp4'}', in quotes.")
    return sorted({match for match in _expanded(text) if Path(match).is_file()})


def _expanded(pattern: str) -> Iterator[str]:
    """As `glob.glob`, but `**` follows no links to folders: two that lead to their own folder would not end."""
    parts = Path(pattern).parts
    if "**" not in parts:
        yield from glob.glob(pattern)
        return
    at = parts.index("**")
    for root in glob.glob(str(Path(*parts[:at]))):
        for folder, inner, _ in os.walk(root):
            inner[:] = [name for name in inner if not name.startswith(".")]
            yield from _expanded(str(Path(glob.escape(folder), *(parts[at + 1 :] or "*"))))


def names_of(sources: Sequence[str]) -> list[str]:
    """A folder name for each of several different sources: the file's name without its suffix. Clips that differ by
    their suffix alone keep it; others of the same name get the names of the folders above them, as many as it takes.
    Which name a clip has depends on the set of clips, not on their order."""
    paths = [
        PurePosixPath(_URL.sub("", source)) if is_url(source) else PurePosixPath(Path(source).resolve().as_posix())
        for source in sources
    ]
    beside = Counter(str(path.parent / path.stem).casefold() for path in paths)
    stems = [path.stem.lstrip(".") or "clip" for path in paths]  # neither "..", nor hidden as our own files are
    plain = [
        f"{stem}-{path.suffix[1:]}" if beside[str(path.parent / path.stem).casefold()] > 1 else stem
        for stem, path in zip(stems, paths, strict=True)
    ]
    longest = max((len(path.parts) for path in paths), default=1)

    def better(n: int, depth: int) -> str:
        """With the names of that many folders above; in the end with a digest."""
        if depth == longest:
            return f"{plain[n]}-{hashlib.sha256(sources[n].encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
        above = [part.lstrip(".") for part in paths[n].parts[:-1] if part.strip("/.")]
        return "-".join([*above[-depth:], plain[n]])

    names = plain
    for depth in range(1, longest + 1):
        # Names that occur once stay; others become better ones. File systems may not tell capitals apart.
        count = Counter(name.casefold() for name in names)
        told = [count[name.casefold()] == 1 and name.casefold() not in RESERVED for name in names]
        names = [name if told[n] else better(n, depth) for n, name in enumerate(names)]
    return names


@dataclass(frozen=True)
class Shard:
    """One part of several."""

    number: int  # from 1
    of: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        match = re.fullmatch(r"\s*([0-9]{1,7})\s*/\s*([0-9]{1,7})\s*", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise UserError(f"--shard must read like 3/20, the third of twenty parts; got {text[:40]!r}.")
        return cls(int(match[1]), int(match[2]))

    def numbers(self, count: int) -> range:
        """Which of `count` things are in it: every `of`-th."""
        return range(self.number - 1, count, self.of)

    def share(self, clips: Sequence[ClipSource]) -> list[ClipSource]:
        return [clips[number] for number in self.numbers(len(clips))]


WHOLE = Shard(1, 1)
