"""Load a body: the embedded open one, or one from an SMPL, SMPL-H or SMPL-X file."""

from functools import lru_cache
from pathlib import Path

from fitting.body.body import Body
from fitting.body.body_files import find_body_file, read_arrays
from fitting.body.open_body import OPEN_BODY, open_body
from fitting.body.smpl import smpl_body
from pose2d.base.errors import UserError
from pose2d.base.threads import single_thread


def load_body(path: str | Path | None = None, gender: str = "neutral") -> Body:
    """The embedded open body, or the body in an SMPL / SMPL-H / SMPL-X file.

    path: None, a file (.pkl, .npz), or a folder that holds files under their usual names. gender:
    "neutral", "male" or "female"; which file of a folder to take. The open body is one for all.
    """
    if gender not in ("neutral", "male", "female"):
        raise UserError(f"unknown gender {gender!r}: choose neutral, male or female.")
    path = find_body_file(OPEN_BODY if path is None else Path(path), gender)
    about = path.stat()
    return _read_body(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=1)  # a run asks for its body at every step; nobody changes one
@single_thread()
def _read_body(path: Path, mtime_ns: int, size: int) -> Body:
    arrays = read_arrays(path)
    try:
        if "J_regressor_coco17" in arrays:
            return open_body(arrays, path)
        return smpl_body(arrays, path)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        reason = (str(error).splitlines() or [""])[0][:200]
        raise UserError(
            f"{path} is not a body file, or it is damaged ({type(error).__name__}: {reason})."
        ) from error
