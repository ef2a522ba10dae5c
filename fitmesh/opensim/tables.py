"""OpenSim's tables (mot, sto): writing and reading."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pose2d.base.errors import UserError

_LARGEST_BYTES = 1 << 30


def write_table(path: Path, time_s: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
    """Write a table with the header of OpenSim's Storage: time in seconds, angles in degrees."""
    lines = [
        path.name,
        "version=1",
        f"nRows={len(time_s)}",
        f"nColumns={1 + len(columns)}",
        "inDegrees=yes",
        "endheader",
        "\t".join(["time", *columns]),
    ]
    for row in zip(time_s.tolist(), *(column.tolist() for column in columns.values()), strict=True):
        lines.append("\t".join([f"{row[0]:.6f}", *(f"{value:.5f}" for value in row[1:])]))
    path.write_text("\n".join(lines) + "\n")


def read_table(path: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the times [T] and the columns [T] of a table by name."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise ValueError("the file is larger than 1 GB")
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        begin = [line.strip() for line in lines].index("endheader") + 1
        names = lines[begin].split("\t")
        values = np.array([line.split() for line in lines[begin + 1 :] if line.strip()], float)
        if values.ndim != 2 or values.shape[1] != len(names) or names[0] != "time":
            raise ValueError("its columns do not match its names")
    except (OSError, ValueError, IndexError) as error:
        raise UserError(
            f"{path} must be a table of OpenSim (.mot or .sto): {error}.", file=path
        ) from None
    return values[:, 0], dict(zip(names[1:], values[:, 1:].T, strict=True))
