"""Large tables lie on disk while a file is made: the same numbers, little memory, and nothing left
behind.
"""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from pose2d.base import scratch
from pose2d.base.caching import CacheKey, read_npz, write_npz
from pose2d.base.columns import column, nested
from pose2d.base.table import Table, blocks, join_rows, store_on_disk
from pose2d.types import ErrorDistribution

ROWS = 25_000
KEY = CacheKey("test", {}, {}, "")


@dataclass(frozen=True)
class Rows(Table):
    number: np.ndarray = column((), "i", "its number")
    wide: np.ndarray = column((200,), "f", "many numbers")
    error: ErrorDistribution = nested(ErrorDistribution, "tensors")


def some(first: int, end: int) -> Rows:
    number = np.arange(first, end)
    wide = np.repeat(number[:, None], 200, 1).astype(np.float32)
    weight = torch.from_numpy(wide[:, :12]).reshape(-1, 4, 3)
    return Rows(number, wide, ErrorDistribution(weight, 2 * weight))


def resident_mb() -> float:
    return float(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def test_a_table_on_disk_is_the_table(tmp_path: Path) -> None:
    whole = some(0, 9000)
    with scratch.scratch_for(tmp_path / "fit.npz"):
        there = store_on_disk(whole)
        picked = whole.pick(np.arange(8999, 0, -2))
        parts = join_rows((some(part.start, part.stop) for part in blocks(9000)), 9000)
        assert list(tmp_path.iterdir()) == []  # its files have no names
    for one in (there, parts):
        np.testing.assert_array_equal(one.wide, whole.wide)
        assert torch.equal(one.error.sigma, whole.error.sigma)
    np.testing.assert_array_equal(picked.number, whole.number[:0:-2])
    assert store_on_disk(whole) is whole  # without a place for it


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process holds")
def test_a_long_table_takes_no_memory_and_is_written_and_read_without_any(tmp_path: Path) -> None:
    some(0, 3000)
    with scratch.scratch_for(tmp_path / "fit.npz"):
        before = resident_mb()
        table = join_rows((some(part.start, part.stop) for part in blocks(ROWS)), ROWS)  # 24 MB
        assert resident_mb() < before + 8
        write_npz(tmp_path / "fit.npz", KEY, table.to_arrays())
        arrays = read_npz(tmp_path / "fit.npz")
        assert resident_mb() < before + 12
        assert float(arrays["row_wide"][-1, -1]) == ROWS - 1
        assert float(table.wide[:, 3].sum(dtype=np.float64)) == ROWS * (ROWS - 1) / 2  # still there


def test_where_nothing_can_be_mapped_tables_stay_in_memory(tmp_path: Path) -> None:
    with scratch.scratch_for(tmp_path / "no" / "folder" / "fit.npz"):
        assert float(store_on_disk(some(0, 5000)).wide[-1, 0]) == 4999


def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; import os, numpy as np; from pose2d.base import scratch\n"
        f"with scratch.scratch_for(Path({str(tmp_path)!r}) / 'fit.npz'):\n"
        "    scratch.scratch_array((3_000_000,), np.dtype(float))[:] = 1\n"
        f"    os.kill(os.getpid(), {int(signal.SIGKILL)})"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode
        == -signal.SIGKILL
    )
    assert list(tmp_path.iterdir()) == []
