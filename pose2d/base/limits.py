"""Limits on what a file from outside may take in memory, and sizes in words.

Sizes are checked against these limits, the bytes of the file and the free memory before anything is
allocated: a header can claim any size."""

import math
import os
import re
from contextlib import suppress
from pathlib import Path

MOST_ARRAY_BYTES = 4 << 30  # of all arrays of one file; an hour of ten people is a third of it
MOST_ON_DISK = 64 << 30  # the same where they lie on disk
MOST_JSON_BYTES = (
    2 << 30
)  # COCO-WholeBody's annotations, the largest file anyone passes, have 0.8 GB
JSON_GROWTH = (
    10  # Python objects take about so many times the bytes of the text they were read from
)
MOST_PIXELS = 100_000_000  # of one image or frame: 300 MB, of which some are in memory at once
FREE_SHARE = 0.5  # of the memory that is free, one file may take so much


def most_bytes(cap: int) -> int:
    """`cap`, or less where this process can allocate little: on a small machine, in a container, by
    `ulimit -v`.
    """
    free = [cap / FREE_SHARE]
    with suppress(AttributeError, OSError, ValueError):  # not on Windows
        free.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError):
        available = re.findall(r"MemAvailable:\s*(\d+)", Path("/proc/meminfo").read_text("ascii"))
        free += [1024 * int(count) for count in available]
    with suppress(
        OSError, ValueError
    ):  # of a control group (Docker, a cluster's job), where there is one: not "max"
        limit, used = (
            int(Path(f"/sys/fs/cgroup/memory.{name}").read_text("ascii"))
            for name in ("max", "current")
        )
        free.append(limit - used)
    with suppress(ImportError, OSError, ValueError):
        import resource

        if (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
            free.append(limit - pages * resource.getpagesize())
    return max(0, int(FREE_SHARE * min(free)))


def size_text(count: float) -> str:
    """Bytes as a person reads them."""
    if count < 1000:
        return f"{count:.0f} bytes"
    power = min(4, int(math.log10(count) / 3))
    return f"{count / 1000**power:.3g} {' kMGT'[power]}B"
