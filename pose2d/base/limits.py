"""How much memory input from outside may take: sizes that a file's header states are checked first."""

import os
from pathlib import Path

MOST_ARRAY_BYTES = 4 << 30  # of all arrays of one file; an hour of ten people is a third of it
MOST_JSON_BYTES = 2 << 30  # COCO-WholeBody's annotations, the largest file anyone passes, have 0.8 GB
JSON_GROWTH = 10  # Python objects take about so many times the bytes of the text they were read from
MOST_PIXELS = 100_000_000  # of one image or frame: 300 MB, of which some are in memory at once
FREE_SHARE = 0.5  # of the memory that is free, one file may take so much


def free_memory_bytes() -> int | None:
    """What this process could still allocate; None where the system does not say."""
    found = [value for value in (_physical(), _container(), _process_limit()) if value is not None]
    return max(0, min(found)) if found else None


def most_bytes(cap: int) -> int:
    """`cap`, or less on a machine or in a container with little memory."""
    free = free_memory_bytes()
    return cap if free is None else min(cap, int(FREE_SHARE * free))


def size_text(count: float) -> str:
    """Bytes as a person reads them."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def _physical() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None


def _container() -> int | None:
    """Of a control group (Docker, a cluster's job)."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text("ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text("ascii").strip()
        return int(limit) - int(used)
    except (OSError, ValueError):  # no such group, or "max"
        return None


def _process_limit() -> int | None:
    """Of `ulimit -v`."""
    try:
        import resource

        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        if soft == resource.RLIM_INFINITY:
            return None
        return soft - int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return None
