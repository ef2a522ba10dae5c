"""Which camera of a calibration recorded which video, by their names."""

import re
from collections.abc import Sequence
from pathlib import Path

from pose2d.base.errors import OptionError, UserError

_NUMBER = re.compile(r"[0-9]+")


def normalise_name(name: str) -> str:
    """Return a name in small letters and digits, numbers without leading zeros.

    `Cam_01`, `cam01` and `cam-1` are the same.
    """
    letters = "".join(character for character in name.casefold() if character.isalnum())
    return _NUMBER.sub(lambda match: match[0].lstrip("0") or "0", letters)


def match_videos(
    cameras: Sequence[str], videos: Sequence[str], stated: Sequence[str], path: Path
) -> tuple[list[int], list[str]]:
    """Return the number of each video's camera, and notes on how they were matched.

    stated: the camera of each video (`--camera-names`). Without it, all videos are matched by equal
    names, by normalised names, by a camera's name within the video's, or by order where there are
    as many cameras as videos; in this order. path: the calibration, for messages.
    """
    if stated:
        return _match_stated(cameras, videos, stated, path), []
    normal_cameras = [normalise_name(name) for name in cameras]
    normal_videos = [normalise_name(name) for name in videos]
    for numbers in (
        [_find_only(cameras, name) for name in videos],
        [_find_only(normal_cameras, name) for name in normal_videos],
        [_find_within(normal_cameras, name) for name in normal_videos],
    ):
        matched = [number for number in numbers if number is not None]
        if len(matched) == len(videos) == len(set(matched)):
            return matched, []
    if len(cameras) == len(videos):
        pairs = ", ".join(f"{v} is {c}" for v, c in zip(videos, cameras, strict=True))
        return list(range(len(cameras))), [f"cameras in the order of the file: {pairs}"]
    raise UserError(
        f"{path} has {len(cameras)} cameras ({_listed(cameras)}) for {len(videos)} videos "
        f"({_listed(videos)}), and their names do not match: give as many videos as cameras, name "
        "the videos like the cameras, or state the camera of each video with --camera-names.",
        file=path,
    )


def _match_stated(
    cameras: Sequence[str], videos: Sequence[str], stated: Sequence[str], path: Path
) -> list[int]:
    """Return the numbers of the cameras that the user states for the videos."""
    option = "--camera-names"
    if len(stated) != len(videos):
        raise OptionError(
            f"{option} must have {len(videos)} names, one for each video ({_listed(videos)}); got "
            f"{len(stated)} ({_listed(stated)}).",
            option=option,
        )
    normal = [normalise_name(name) for name in cameras]
    numbers = []
    for name in stated:
        number = _find_only(cameras, name)
        if number is None:
            number = _find_only(normal, normalise_name(name))
        if number is None:
            raise OptionError(
                f"{option}: {path} has no single camera {name!r}; its cameras are "
                f"{_listed(cameras)}.",
                option=option,
            )
        numbers.append(number)
    if len(set(numbers)) < len(numbers):
        raise OptionError(
            f"{option} must name different cameras; got {_listed(stated)}.", option=option
        )
    return numbers


def _find_only(names: Sequence[str], name: str) -> int | None:
    """Return the place of a name that occurs once."""
    return names.index(name) if names.count(name) == 1 else None


def _find_within(cameras: Sequence[str], video: str) -> int | None:
    """Return the only camera whose name is part of a video's; cam1 is no part of cam12."""
    within = [number for number, name in enumerate(cameras) if name and _is_part(name, video)]
    return within[0] if len(within) == 1 else None


def _is_part(name: str, video: str) -> bool:
    """Say whether a name is part of another without dividing a number."""
    before = "(?<![0-9])" if name[0].isdigit() else ""
    after = "(?![0-9])" if name[-1].isdigit() else ""
    return re.search(before + re.escape(name) + after, video) is not None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name[:60] for name in names[:16]) + (" .." if len(names) > 16 else "")
