"""Limits on what a file from outside may take in memory, and sizes in words.

Sizes are checked against these limits, the bytes of the file and the free memory before anything is
allocated: a header can claim any size."""

import math
import os
import re
from contextlib import suppress
from pathlib import Path

MOST_ARRAY_BYTES = 4 << 30  # all arrays of one file; an hour of ten people takes a third of it
MOST_ON_DISK = 64 << 30  # all arrays of one file, where they lie on disk
# COCO-WholeBody's annotations, the largest JSON file in common use, have 0.8 GB.
MOST_JSON_BYTES = 2 << 30
JSON_GROWTH = 10  # Python objects take about ten times the bytes of the text they are parsed from
MOST_PIXELS = 100_000_000  # of one image or frame: 300 MB, of which a few are in memory at once
FREE_SHARE = 0.5  # share of the free memory that one file may take


def most_bytes(cap: int) -> int:
    """Return `cap`, or half of the memory that this process can still allocate if that is less.

    The machine, the container and `ulimit -v` are considered."""
    free = [cap / FREE_SHARE]
    with suppress(AttributeError, OSError, ValueError):  # not on Windows
        free.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError):
        available = re.findall(r"MemAvailable:\s*(\d+)", Path("/proc/meminfo").read_text("ascii"))
        free += [1024 * int(kilobytes) for kilobytes in available]
    # A control group limits containers and the jobs of clusters; "max" (a ValueError): no limit.
    with suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text("ascii"))
        free.append(limit - int(Path("/sys/fs/cgroup/memory.current").read_text("ascii")))
    with suppress(ImportError, OSError, ValueError):
        import resource

        if (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
            free.append(limit - pages * resource.getpagesize())
    return max(0, int(FREE_SHARE * min(free)))


def size_text(count: float) -> str:
    """Format a number of bytes with a unit, such as "1.2 MB"."""
    if count < 1000:
        return f"{count:.0f} bytes"
    power = min(4, int(math.log10(count) / 3))
    return f"{count / 1000**power:.3g} {' kMGT'[power]}B"
