"""The data set, one sequence at a time; what is left out is listed with its reason."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eval3dpw import sequences as truth
from eval3dpw.sequences import TruthTrack
from fitmesh.eval_3dpw.eval_settings import EvalSettings
from fitting.camera import Camera
from pose2d.base.caching import content_digest
from pose2d.base.errors import UserError
from pose2d.video.frames import read_image

NO_CAMERA = "no valid camera"
NO_IMAGE = "image missing"
BROKEN_IMAGE = "image unreadable"
NOT_EVERY = "not asked for (--every)"
NO_PREDICTION = "no prediction"


@dataclass(frozen=True)
class Skipped:
    """Person-frames, or a whole sequence."""

    sequence: str
    why: str
    frames: int | None  # person-frames; None: nobody knows, the file could not be read
    whole: bool = False  # the whole sequence


def summary(skipped: Iterable[Skipped]) -> list[tuple[str, int, int]]:
    """Reasons with person-frames and whole sequences left out, most frames first."""
    frames, wholes = Counter[str](), Counter[str]()
    for one in skipped:
        frames[one.why] += one.frames or 0
        wholes[one.why] += one.whole
    return sorted(((why, frames[why], wholes[why]) for why in frames), key=lambda row: (-row[1], row[0]))


@dataclass(frozen=True)
class EvalSequence:
    """A sequence with the person-frames that can be worked on: camera known, image there, asked for."""

    name: str
    tracks: tuple[TruthTrack, ...]
    images: Path  # the folder that holds imageFiles
    camera: Camera
    digest: str  # of the file that the truth comes from

    def image(self, frame: int) -> Path:
        return truth.image_path(self.images, self.name, frame)


def eval_sequences(settings: EvalSettings, skipped: list[Skipped]) -> Iterator[EvalSequence]:
    """Every sequence that can be used, read when it is its turn; what cannot is added to `skipped`."""
    if settings.data.suffix == ".npz":
        yield from _from_npz(settings, skipped)
        return
    for path in truth.sequence_files(settings.data, settings.split, settings.sequences):
        try:
            sequence = truth.read_sequence(path)
            tracks = truth.tracks_of(sequence)
            frames = sum(len(track) for track in tracks)
            if not any(track.camera_valid.any() for track in tracks):
                raise _Unusable("no frame has a valid camera", frames)
            kept = [_usable(track, settings, settings.data, skipped) for track in tracks]
            tracks = [track for track in kept if len(track)]
            if tracks:
                camera = _camera(settings.data, sequence.name, tracks, sequence.intrinsics, frames)
                yield EvalSequence(sequence.name, tuple(tracks), settings.data, camera, content_digest([path]))
        except _Unusable as reason:
            skipped.append(Skipped(path.stem, str(reason), reason.frames, whole=True))
        except UserError as error:
            skipped.append(Skipped(path.stem, str(error), None, whole=True))


def sequence_count(settings: EvalSettings) -> int:
    if settings.data.suffix == ".npz":
        return len({track.sequence for track in truth.read_spin_npz(settings.data)})
    return len(truth.sequence_files(settings.data, settings.split, settings.sequences))


class _Unusable(Exception):
    def __init__(self, why: str, frames: int) -> None:
        super().__init__(why)
        self.frames = frames


def _from_npz(settings: EvalSettings, skipped: list[Skipped]) -> Iterator[EvalSequence]:
    by_name: dict[str, list[TruthTrack]] = {}
    for track in truth.read_spin_npz(settings.data):
        by_name.setdefault(track.sequence, []).append(track)
    if unknown := [name for name in settings.sequences if name not in by_name]:
        raise UserError(f"{settings.data} has no sequence {', '.join(unknown)}; it has {', '.join(by_name)}.")
    around = settings.data.resolve().parents[:3]  # beside the file or above it
    root = next((folder for folder in around if (folder / "imageFiles").is_dir()), None)
    if root is None:
        raise UserError(f"there is no folder imageFiles beside {settings.data}. Put the file into 3DPW's folder.")
    digest = content_digest([settings.data])
    for name, everyone in by_name.items():
        if settings.sequences and name not in settings.sequences:
            continue
        kept = [_usable(track, settings, root, skipped) for track in everyone]
        tracks = [track for track in kept if len(track)]
        if tracks:
            try:
                yield EvalSequence(name, tuple(tracks), root, _camera(root, name, tracks, None, 0), digest)
            except _Unusable as reason:
                skipped.append(Skipped(name, str(reason), sum(map(len, tracks)), whole=True))


def _usable(track: TruthTrack, settings: EvalSettings, root: Path, skipped: list[Skipped]) -> TruthTrack:
    def leave_out(keep: np.ndarray, why: str) -> None:
        nonlocal track
        if not keep.all():
            skipped.append(Skipped(track.sequence, why, int((~keep).sum())))
            track = track.rows(keep)

    leave_out(track.camera_valid, NO_CAMERA)
    leave_out(track.frame % settings.every == 0, NOT_EVERY)
    if settings.needs_images:
        there = truth.image_numbers(root, track.sequence)
        leave_out(np.array([int(number) in there for number in track.frame], bool), NO_IMAGE)
    return track


def _camera(root: Path, name: str, tracks: list[TruthTrack], intrinsics: np.ndarray | None, frames: int) -> Camera:
    """The sequence's camera; its size is that of an image, or twice the principal point where there is none."""
    size = None
    for number in tracks[0].frame[:10]:
        try:
            height, width = read_image(truth.image_path(root, name, int(number))).shape[:2]
            size = (width, height)
            break
        except UserError:
            continue
    if intrinsics is None:
        if size is None:
            raise _Unusable("no image could be read", frames)
        return Camera.default(size)
    try:
        size = size or (max(1, round(2 * intrinsics[0, 2])), max(1, round(2 * intrinsics[1, 2])))
        return Camera.from_intrinsics(intrinsics, size)
    except (UserError, ValueError, OverflowError) as error:
        raise _Unusable("no valid camera intrinsics", frames) from error
