"""Where 3DPW keeps things: `sequenceFiles/{train,validation,test}/NAME.pkl` and `imageFiles/NAME/image_00000.jpg`."""

from collections.abc import Sequence as Ordered
from pathlib import Path

from pose2d.base.errors import UserError

HOW = (
    "Unpack sequenceFiles.zip and imageFiles.zip of virtualhumans.mpi-inf.mpg.de/3DPW into one folder and pass it, "
    "or make a set of the same layout with `fitmesh synth`."
)


def sequence_files(data: Path, split: str, names: Ordered[str] = ()) -> list[Path]:
    """The pickles of a split in the order of their names; of some sequences only, if names are given."""
    if not data.is_dir():
        raise UserError(f"there is no folder {data}. {HOW}")
    root = data / "sequenceFiles"
    if not root.is_dir():
        raise UserError(f"{data} has no folder sequenceFiles. {HOW}")
    here = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    if split not in here:
        raise UserError(f"{root} has no split {split!r}; it has {', '.join(here) or 'none'}. Choose --split. {HOW}")
    found = {path.stem: path for path in sorted((root / split).glob("*.pkl"))}
    if not found:
        raise UserError(f"{root / split} holds no .pkl file. {HOW}")
    unknown = [name for name in names if name not in found]
    if unknown:
        raise UserError(f"{root / split} has no sequence {', '.join(unknown)}; it has {', '.join(found)}.")
    return [path for name, path in found.items() if not names or name in names]


def image_path(data: Path, sequence: str, frame: int) -> Path:
    return data / "imageFiles" / sequence / f"image_{frame:05d}.jpg"


def image_numbers(data: Path, sequence: str) -> set[int]:
    """Frames that have an image."""
    folder = data / "imageFiles" / sequence
    numbers = (path.stem.removeprefix("image_") for path in folder.glob("image_*.jpg"))
    return {int(number) for number in numbers if number.isdecimal()}
