"""Load a body: the embedded open one, or one from an SMPL, SMPL-H or SMPL-X file."""

from functools import lru_cache
from pathlib import Path

from fitting.body.body import Body
from fitting.body.body_files import find_body_file, read_arrays
from fitting.body.open_body import OPEN_BODY, open_body
from fitting.body.smpl import smpl_body
from pose2d.base.embedded import check_embedded
from pose2d.base.errors import UserError
from pose2d.base.threads import single_thread


def load_body(path: str | Path | None = None, gender: str = "neutral") -> Body:
    """Load the embedded open body, or the body in an SMPL / SMPL-H / SMPL-X file.

    path: None, a file (.pkl, .npz), or a folder that holds files under their usual names. gender:
    "neutral", "male" or "female"; selects the file in a folder. The open body is the same for all.
    """
    if gender not in ("neutral", "male", "female"):
        raise UserError(f"unknown gender {gender!r}: choose neutral, male or female.")
    path = find_body_file(OPEN_BODY if path is None else Path(path), gender)
    if path == OPEN_BODY:
        check_embedded(path)
    status = path.stat()
    return _read_body(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)  # a run asks for its body at every step, and bodies are immutable
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
            f"{path} is not a body file, or it is damaged ({type(error).__name__}: {reason}).",
            file=path,
        ) from error
