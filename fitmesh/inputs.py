"""What a run is given to look at, opened before anything heavy is imported: a mistyped path is
answered at once.

Of many clips: which they are, the name of each one's folder, and the share of one machine among
many."""

import glob
import hashlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fitmesh.many import store
from fitmesh.options import ranges
from pose2d.base.errors import UserError
from pose2d.base.files import check_writable, open_regular, unfinished
from pose2d.base.json_files import read_json
from pose2d.video.frames import Clip
from pose2d.video.images import DEFAULT_RATE, SUFFIXES, ImageFolder
from pose2d.video.video_file import Video

if TYPE_CHECKING:
    from fitmesh.options.run import RunCommand

T = TypeVar("T")
_LIVE = re.compile(r"[0-9]+|/dev/video[0-9]+|(rtsps?|rtmps?|rtp|udp|srt|mms)://.*", re.IGNORECASE)
_SWITCHES = ("true", "false", "yes", "no", "on", "off")


def open_clip(path: str | Path, fps: float | None = None) -> Clip:
    """A folder of images, an image, or a video."""
    ranges.FPS.check("--fps", fps)
    check_recorded(str(path))
    if "://" in str(path):
        raise UserError(
            f"{path} is a URL, and files are read here: fetch it first, or use `fitmesh.run_many`."
        )
    path = Path(path)
    if path.is_dir():
        return ImageFolder(
            path, DEFAULT_RATE if fps is None else Fraction(fps).limit_denominator(100_000)
        )
    if fps is not None:
        raise UserError("--fps is for --images, a folder of them: a video knows its own rate.")
    return ImageFolder(path) if path.suffix.lower() in SUFFIXES else Video(path)


def check_recorded(text: str) -> None:
    """Refuse cameras and streams: a run reads its video several times."""
    if not _LIVE.fullmatch(text) or Path(text).is_file():
        return
    source = f"-f v4l2 -i /dev/video{text}" if text.isdecimal() else f"-i {text}"
    raise UserError(
        f"{text} is a live camera or stream, and a run reads its video several times: record it first, for instance "
        f"`ffmpeg {source} -t 60 clip.mp4`, and run on clip.mp4. A program gives its frames to fitmesh.run(frames=..)."
    )


def given_by_name(asked: "RunCommand") -> "RunCommand":
    """With the paths that stand alone where --video has them, whatever they are."""
    for text in asked.clip:
        if text.lower() in _SWITCHES and not Path(text).exists():
            raise UserError(
                f"{text!r} stands alone: options like --relink are given without a value, or left out."
            )
    for text in (*asked.clip, *asked.video):
        check_recorded(text)
    return replace(asked, video=(*asked.clip, *asked.video))


def open_given(asked: "RunCommand") -> tuple[Clip, tuple[str, ...]]:
    """The one of --video, --images and --image that was given, and the videos of the other cameras."""
    if asked.together:
        if len(asked.video) < 2 or asked.videos or asked.images or asked.image:
            raise UserError(
                "--together is of several cameras: give --video for each of them, two at least."
            )
        if len({Path(video).resolve() for video in asked.video}) < len(asked.video):
            raise UserError("--together: one video was given twice, and every camera has its own.")
    for text in asked.video[1:]:
        open_clip(text)  # a mistyped path is answered at once
    video = Path(asked.video[0]) if asked.video else None
    ways = (
        (
            "--video",
            video,
            False,
            "is a folder, not a video file. For a folder of images use --images.",
        ),
        (
            "--images",
            asked.images,
            True,
            "is not a folder. --images takes a folder of images; for one use --image.",
        ),
        (
            "--image",
            asked.image,
            False,
            "is a folder. --image takes one image; for a folder use --images.",
        ),
    )
    given = [(path, is_folder, words) for _, path, is_folder, words in ways if path is not None]
    if len(given) != 1:
        names = " and ".join(name for name, path, *_ in ways if path is not None)
        raise UserError(
            f"give a video, `fitmesh run clip.mp4`, or one of --video, --images and --image; got {names or 'none'}."
        )
    ((path, is_folder, words),) = given
    if path.is_dir() != is_folder and not asked.clip:
        raise UserError(f"{path} {words}")
    is_image = path == asked.image and asked.fps is None  # whatever its suffix
    return ImageFolder(path) if is_image else open_clip(path, asked.fps), asked.video[1:]


def folder_beside(clip: Path) -> Path:
    """dance.fitmesh beside dance.mp4; where that holds another clip's results, dance-2.fitmesh, and
    so on.
    """
    clip = clip.resolve()
    name = clip.name if clip.is_dir() else clip.stem
    for number in count(1):
        folder = clip.with_name(f"{name}{f'-{number}' if number > 1 else ''}.fitmesh")
        try:
            is_free = read_json(folder / "run.json").get("clip", "").value == str(
                clip
            )  # the clip's own
        except UserError:
            is_free = not folder.exists() or (
                folder.is_dir() and not any(folder.glob("[!.]*"))
            )  # nobody's
        if is_free:
            return folder
    raise AssertionError


@contextmanager
def spooled(frames: Iterable[np.ndarray], fps: float | None, out: Path) -> Iterator[Clip]:
    """Frames [H, W, 3] RGB uint8 as a clip: one at a time into a lossless H.264 file in a folder of
    `out`, which goes again with the block. A run reads its video several times, and memory does not
    hold one."""
    if fps is None:
        raise UserError("frames need fps: how many of them are shown in a second.")
    ranges.FPS.check("fps", fps)
    check_writable(out)
    with scratch_folder(".frames-", out) as folder:
        write_lossless(folder / "frames.mp4", frames, Fraction(fps).limit_denominator(100_000))
        yield Video(folder / "frames.mp4")


@contextmanager
def scratch_folder(prefix: str, inside: Path | None = None) -> Iterator[Path]:
    """A new one that goes again with the block; with the process too, if that has time."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir=inside, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        unfinished.add(folder)
        try:
            yield folder
        finally:
            unfinished.discard(folder)


def write_lossless(path: Path, frames: Iterable[np.ndarray], rate: Fraction) -> None:
    import av

    size: tuple[int, ...] | None = None
    with av.open(str(path), "w") as container:
        stream = container.add_stream(
            "libx264rgb", rate=rate, options={"crf": "0", "preset": "ultrafast"}
        )
        stream.pix_fmt = "rgb24"
        stream.time_base = 1 / rate
        for number, given in enumerate(frames):
            rgb = np.ascontiguousarray(given)
            if (
                rgb.ndim != 3
                or rgb.shape[2] != 3
                or rgb.dtype != np.uint8
                or size not in (None, rgb.shape)
            ):
                wanted = (
                    "[height, width, 3] in RGB, uint8"
                    if size is None
                    else f"{list(size)} as the first, uint8"
                )
                raise UserError(
                    f"frame {number} is {rgb.dtype} of {list(rgb.shape)}; expected {wanted}."
                )
            if size is None:
                size = rgb.shape
                stream.height, stream.width = size[:2]
            image = av.VideoFrame.from_ndarray(rgb, format="rgb24")
            image.pts = number
            image.time_base = 1 / rate
            container.mux(stream.encode(image))
        if size is None:
            raise UserError("there are no frames: expected at least one image.")
        container.mux(stream.encode(None))


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
    clips: list[ClipSource]
    twice: list[str]  # paths that were given more than once
    left_out: int  # files that a pattern matched in the folder of results itself


def is_url(text: str) -> bool:
    return _URL.match(text) is not None


def find_clips(video: Sequence[str], videos: Sequence[str], out: str) -> Found:
    """Of `--video` (each a clip) and `--videos` (each a pattern, a list in a .txt file, or a clip)."""
    given = list(video)
    left_out = 0
    root = Path(out).resolve()
    for text in videos:
        paths = _listed(text)
        if paths is None:
            matches = _matching(text)
            paths = matches
            if not is_url(out):
                paths = [
                    m for m in matches if is_url(m) or not Path(m).resolve().is_relative_to(root)
                ]
            left_out += len(matches) - len(paths)
            if not paths and matches:
                raise UserError(
                    f"--videos {text!r} matches nothing but results of an earlier run in --out."
                )
            if not paths:
                where = "" if is_url(text) or Path(text).is_absolute() else f" in {Path.cwd()}"
                how = "Check the pattern, and write it in quotes: '**/*.mp4'."
                raise UserError(f"no video matches --videos {text!r}{where}. {how}")
        given += paths
    sources: dict[str, str] = {}
    twice = []
    for text in given:
        key = text if is_url(text) else str(Path(text).resolve())
        if key in sources:
            twice.append(text)
        sources.setdefault(key, text)
    kept = list(sources.values())
    return Found(
        [ClipSource(name, source) for name, source in zip(names_of(kept), kept, strict=True)],
        twice,
        left_out,
    )


def _listed(text: str) -> list[str] | None:
    """The lines of a list; None: it is a pattern."""
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
    """Files that a pattern matches, in the order of their names."""
    if is_url(text):
        return store.matching(text)
    if Path(text).is_file():  # also when its name looks like a pattern
        return [text]
    if Path(text).is_dir():
        raise UserError(
            f"{text} is a folder. --videos takes a pattern: '{Path(text) / '*.mp4'}', in quotes."
        )
    return sorted({match for match in _expanded(text) if Path(match).is_file()})


def _expanded(pattern: str) -> Iterator[str]:
    """As `glob.glob`, but `**` follows no links to folders: two that lead to their own folder would
    not end.
    """
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
    """A folder name for each of several different sources: the file's name without its suffix.
    Clips that differ by their suffix alone keep it; others of the same name get the names of the
    folders above them, as many as it takes. Which name a clip has depends on the set of clips, not
    on their order."""
    paths = [
        PurePosixPath(_URL.sub("", source))
        if is_url(source)
        else PurePosixPath(Path(source).resolve().as_posix())
        for source in sources
    ]
    beside = Counter(str(path.parent / path.stem).casefold() for path in paths)
    stems = [
        path.stem.lstrip(".") or "clip" for path in paths
    ]  # neither "..", nor hidden as our own files are
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
        # Names that occur once stay; others become better ones. File systems may not tell capitals
        # apart.
        count = Counter(name.casefold() for name in names)
        told = [count[name.casefold()] == 1 and name.casefold() not in RESERVED for name in names]
        names = [name if told[n] else better(n, depth) for n, name in enumerate(names)]
    return names


def share_of(clips: Sequence[T], shard: str | None) -> list[T]:
    """Of the shard "3/20" every 20th, from the third; None: all."""
    match = re.fullmatch(
        r"\s*([0-9]{1,7})\s*/\s*([0-9]{1,7})\s*", "1/1" if shard is None else shard
    )
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(
            f"--shard must read like 3/20, the third of twenty parts; got {str(shard)[:40]!r}."
        )
    return list(clips[int(match[1]) - 1 :: int(match[2])])
