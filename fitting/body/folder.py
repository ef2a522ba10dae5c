"""Which file in a folder is the wanted body."""

import re
from pathlib import Path

from pose2d.base.errors import UserError

# Each family's usual file names, most usual first; {G} is the gender as that name writes it.
_NAMES = {
    "SMPL": (
        r"SMPL_{G}\.(pkl|npz)",
        r"basicModel_{g}_lbs_10_207_0_v\d\.\d\.\d\.pkl",
    ),
    "SMPL-H": (
        r"SMPLH_{G}\.(npz|pkl)",
        r"{G}/model\.(npz|pkl)",
    ),
    "SMPL-X": (
        r"SMPLX_{G}\.(npz|pkl)",
        r"SMPLX_{G}_2020\.npz",
    ),
}
_DEEPEST = 3  # folders below the given one: models/smplh/male/model.npz
WHERE = (
    "SMPL: SMPL_NEUTRAL.pkl or basicModel_neutral_lbs_10_207_0_v1.0.0.pkl from smpl.is.tue.mpg.de; "
    "SMPL-H: SMPLH_NEUTRAL.npz or neutral/model.npz from mano.is.tue.mpg.de; "
    "SMPL-X: SMPLX_NEUTRAL.npz from smpl-x.is.tue.mpg.de (likewise MALE and FEMALE); "
    "each after registration there. Without a path the embedded open body is used."
)


def find_body_file(path: Path, gender: str) -> Path:
    """`path` itself if it is a file, else the file for that gender in it: SMPL before SMPL-H before SMPL-X."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise UserError(f"there is no body file or folder {path}. Expected {WHERE}")
    found = sorted(entry for depth in range(_DEEPEST + 1) for entry in path.glob("*/" * depth + "*") if entry.is_file())
    for patterns in _NAMES.values():
        for pattern in patterns:
            for entry in found:
                if _matches(pattern, entry, path, gender):
                    return entry
    others = [entry for entry in found for g in ("neutral", "male", "female") if _is_body(entry, path, g)]
    if others:
        raise UserError(
            f"{path} has no body file for gender {gender!r}; it has "
            f"{', '.join(str(entry.relative_to(path)) for entry in others)}. Choose another gender or add the file."
        )
    raise UserError(f"{path} holds no body file under a usual name. Expected {WHERE}")


def _is_body(entry: Path, folder: Path, gender: str) -> bool:
    return any(_matches(pattern, entry, folder, gender) for patterns in _NAMES.values() for pattern in patterns)


def _matches(pattern: str, entry: Path, folder: Path, gender: str) -> bool:
    short = gender if gender == "neutral" else gender[0]
    pattern = pattern.replace("{G}", gender).replace("{g}", f"({short}|{gender})")
    # The folder's own name counts too: its path may end in smplh/male.
    return (
        re.search(rf"(^|/){pattern}$", f"{folder.resolve().name}/{entry.relative_to(folder).as_posix()}", re.I)
        is not None
    )
