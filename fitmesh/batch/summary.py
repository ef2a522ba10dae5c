"""`summary.csv` and `index.html` over all clips of a run, also over those that other machines do."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from fitmesh.batch.clips import ClipSource, is_url
from fitmesh.batch.page import page
from fitmesh.batch.status import ClipStatus
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.folder_lock import folder_lock

CSV_FILE, PAGE_FILE = "summary.csv", "index.html"
COLUMNS = (
    "clip", "folder", "state", "people", "frames", "seconds", "cpu_seconds", "memory_mb", "warnings", "error", "worker",
)  # fmt: skip
PATIENCE_S = 120.0  # for others who write the same two files


def write_summary(clips: Sequence[ClipSource], known: Mapping[str, ClipStatus], out: str) -> list[ClipStatus]:
    """Both files, from what this run knows (by name) and, for the rest, from what is in the clips' folders."""
    if is_url(out):
        from fitmesh.batch import store

        found = [known.get(clip.name) or store.read_status(f"{out}/{clip.name}") or _waiting(clip) for clip in clips]
        store.put(table(found).encode("utf-8", "replace"), f"{out}/{CSV_FILE}")
        store.put(page(found).encode("utf-8", "replace"), f"{out}/{PAGE_FILE}")
        return found
    folder = Path(out)
    with folder_lock(folder, PATIENCE_S):  # of several machines the last one to write has seen what all have done
        found = [known.get(clip.name) or ClipStatus.read(folder / clip.name) or _waiting(clip) for clip in clips]
        for name, text in ((CSV_FILE, table(found)), (PAGE_FILE, page(found))):
            with atomic_file(folder / name) as temporary:
                temporary.write_text(text, encoding="utf-8", errors="replace")
    return found


def _waiting(clip: ClipSource) -> ClipStatus:
    return ClipStatus(clip.name, clip.source, "waiting", worker="")


def table(statuses: Sequence[ClipStatus]) -> str:
    """One row a clip."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for s in statuses:
        rows.writerow(
            [
                s.source, s.name, s.state, s.people, s.frames, s.seconds, s.cpu_s, s.peak_mb or "",
                " | ".join(s.warnings), s.error, s.worker,
            ]
        )  # fmt: skip
    return text.getvalue()


def check_out(out: str) -> None:
    """Before anything else: can results be written there at all?"""
    if is_url(out):
        from fitmesh.batch import store

        store.put(b"", f"{out}/.fitmesh_probe")
        store.remove(f"{out}/.fitmesh_probe")
        return
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file. --out takes a folder for the results.")
    with folder_lock(folder, PATIENCE_S):
        pass
