"""Read the data set one sequence at a time, and list what is left out with its reason."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from eval3dpw import sequences as truth
from eval3dpw.sequences import TruthTrack
from fitmesh.eval_3dpw.eval_settings import EvalSettings
from fitting.camera import Camera
from pose2d.base.caching import content_digest
from pose2d.base.errors import UserError
from pose2d.video.images import read_image

NO_CAMERA = "no valid camera"
NO_IMAGE = "image missing"
BROKEN_IMAGE = "image unreadable"
NOT_EVERY = "not asked for (--every)"
NO_PREDICTION = "no prediction"


@dataclass(frozen=True)
class Skipped:
    """Person-frames that were left out, or a whole sequence."""

    sequence: str
    why: str
    frames: int | None  # person-frames; None if the file could not be read
    whole: bool = False  # whether this is a whole sequence


def summary(skipped: Iterable[Skipped]) -> list[tuple[str, int, int]]:
    """Return reasons with the person-frames and whole sequences left out, most frames first."""
    frames = Counter[str]()
    wholes = Counter[str]()
    for entry in skipped:
        frames[entry.why] += entry.frames or 0
        wholes[entry.why] += entry.whole
    rows = [(why, frames[why], wholes[why]) for why in frames]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


@dataclass(frozen=True)
class EvalSequence:
    """A sequence with the person-frames to evaluate: the camera is known and the image exists."""

    name: str
    tracks: tuple[TruthTrack, ...]
    images: Path  # the folder that holds imageFiles
    camera: Camera
    digest: str  # of the file that the truth comes from

    def image(self, frame: int) -> Path:
        """Return the path of a frame's image."""
        return truth.image_path(self.images, self.name, frame)


def eval_sequences(settings: EvalSettings, skipped: list[Skipped]) -> Iterator[EvalSequence]:
    """Yield every usable sequence, read when needed; all else is added to `skipped`."""
    root = _image_root(settings.data)
    for name, (path, read) in _sources(settings).items():
        frames = None
        try:
            everyone, intrinsics = read()
            frames = sum(map(len, everyone))
            if not any(track.camera_valid.any() for track in everyone):
                raise UserError("no frame has a valid camera")
            usable = [_usable_frames(track, settings, root, skipped) for track in everyone]
            if tracks := tuple(track for track in usable if len(track)):
                yield EvalSequence(
                    name, tracks, root, _camera(root, tracks, intrinsics), content_digest([path])
                )
        except UserError as error:
            skipped.append(Skipped(name, str(error), frames, whole=True))


def sequence_count(settings: EvalSettings) -> int:
    """Return the number of sequences in the data set, usable or not."""
    return len(_sources(settings))


# All people in a sequence, and the intrinsics if they are known.
Content = tuple[Sequence[TruthTrack], np.ndarray | None]


def _read_pickle(path: Path) -> Content:
    sequence = truth.read_sequence(path)
    return sequence.people, sequence.intrinsics


def _spin_content(tracks: list[TruthTrack]) -> Content:
    return tracks, None


def _sources(settings: EvalSettings) -> dict[str, tuple[Path, Callable[[], Content]]]:
    """Return by sequence name the file of its truth and a function that reads it."""
    if settings.data.suffix != ".npz":
        files = truth.sequence_files(settings.data, settings.split, settings.sequences)
        return {path.stem: (path, partial(_read_pickle, path)) for path in files}
    by_name: dict[str, list[TruthTrack]] = {}
    for track in truth.read_spin_npz(settings.data):
        by_name.setdefault(track.sequence, []).append(track)
    if unknown := [name for name in settings.sequences if name not in by_name]:
        raise UserError(
            f"{settings.data} has no sequence {', '.join(unknown)}; it has {', '.join(by_name)}.",
            file=settings.data,
        )
    names = settings.sequences or by_name
    return {
        name: (settings.data, partial(_spin_content, by_name[name]))
        for name in by_name
        if name in names
    }


def _image_root(data: Path) -> Path:
    """Return the folder that holds imageFiles: 3DPW's, or one beside or above SPIN's file."""
    if data.suffix != ".npz":
        return data
    root = next(
        (folder for folder in data.resolve().parents[:3] if (folder / "imageFiles").is_dir()), None
    )
    if root is None:
        raise UserError(
            f"there is no folder imageFiles beside {data}. Put the file into 3DPW's folder."
        )
    return root


def _usable_frames(
    track: TruthTrack, settings: EvalSettings, root: Path, skipped: list[Skipped]
) -> TruthTrack:
    """Return the track without the frames that cannot be evaluated."""

    def leave_out(keep: np.ndarray, why: str) -> None:
        nonlocal track
        if not keep.all():
            skipped.append(Skipped(track.sequence, why, int((~keep).sum())))
            track = track.rows(keep)

    leave_out(track.camera_valid, NO_CAMERA)
    leave_out(track.frame % settings.every == 0, NOT_EVERY)
    if settings.needs_images:
        numbers = truth.image_numbers(root, track.sequence)
        has_image = np.array([int(number) in numbers for number in track.frame], bool)
        leave_out(has_image, NO_IMAGE)
    return track


def _camera(root: Path, tracks: Sequence[TruthTrack], intrinsics: np.ndarray | None) -> Camera:
    """Return the sequence's camera. Its size is that of an image, or without images twice the
    principal point.
    """
    size = None
    for number in tracks[0].frame[:10]:
        with suppress(UserError):
            path = truth.image_path(root, tracks[0].sequence, int(number))
            height, width = read_image(path).shape[:2]
            size = (width, height)
            break
    if intrinsics is None:
        if size is None:
            raise UserError("no image could be read")
        return Camera.default(size)
    try:
        size = size or (max(1, round(2 * intrinsics[0, 2])), max(1, round(2 * intrinsics[1, 2])))
        return Camera.from_intrinsics(intrinsics, size)
    except (UserError, ValueError, OverflowError) as error:
        raise UserError("no valid camera intrinsics") from error
