"""Links, anchors and images of the documentation lead somewhere, and every page says for whom it
is.
"""

import re
import subprocess
from functools import cache
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import ROOT, page_names, read_page

READER = "**For**"  # how the first paragraph of a page in docs/ begins
# A source file in a code span, as `fitting/shot.py` or `shot.py`; `*` and `{..}` are patterns.
SOURCE_FILE = re.compile(r"(?<![\w/.*}-])(?:\w[\w-]*/)*\w[\w-]*\.(?:py|js|sh|ipynb)(?![\w(])")
EXAMPLE_NAMES = {"FILE.py", "my_network.py"}  # names that stand for a file of the reader's own
# Files of SPIN, CLIFF, GMR and Poseur that the pages tell the reader to use.
OTHER_PROJECTS = {"fetch_data.sh", "prepare_data.sh", "smplx_to_robot.py", "model_split.py"}
ANIMATION_LIMIT_BYTES = (
    3_000_000  # what a visitor should have to load before the first screen is there
)


@pytest.mark.parametrize("name", page_names())
def test_every_link_leads_to_a_file_and_a_heading_that_exist(name: str) -> None:
    broken = []
    for line, target in read_page(name).links:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        path = (ROOT / name).parent / unquote(parts.path) if parts.path else ROOT / name
        if not path.exists() or ROOT not in path.resolve().parents:
            broken.append(f"line {line}: {target} does not exist")
        elif parts.fragment and path.suffix == ".md":
            other = path.resolve().relative_to(ROOT).as_posix()
            if unquote(parts.fragment) not in read_page(other).anchors:
                broken.append(f"line {line}: {target}: no such heading in {other}")
    assert not broken, f"{name}: " + "; ".join(broken)


@pytest.mark.parametrize("name", [name for name in page_names() if name.startswith("docs/")])
def test_every_page_says_at_its_top_for_whom_and_for_what_it_is(name: str) -> None:
    lines = [
        line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    assert lines[0].startswith("# "), f"{name} does not begin with a title"
    assert lines[1].startswith(READER), (
        f"{name}: the line after the title should begin with {READER} and name the reader"
    )


@cache
def repository_files() -> tuple[str, ...]:
    """Return the paths of all files that git tracks or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return tuple(name for name in listed.stdout.splitlines() if (ROOT / name).is_file())


@pytest.mark.parametrize("name", [name for name in page_names() if name != "CHANGELOG.md"])
def test_every_source_file_that_a_page_names_exists(name: str) -> None:
    missing = []
    for line, text in read_page(name).spans:
        for path in SOURCE_FILE.findall(text):
            exists = any(
                known == path or known.endswith(f"/{path}") for known in repository_files()
            )
            if not exists and path not in EXAMPLE_NAMES | OTHER_PROJECTS:
                missing.append(f"line {line}: {path}")
    assert not missing, f"{name} names files that do not exist: " + "; ".join(missing)


def test_the_index_lists_every_page() -> None:
    listed = {target.split("#")[0] for _, target in read_page("docs/README.md").links}
    pages = {PurePosixPath(name).name for name in page_names() if name.startswith("docs/")} - {
        "README.md"
    }
    assert not pages - listed, f"docs/README.md does not mention {sorted(pages - listed)}"


def test_the_first_animation_is_small_enough_for_a_first_screen() -> None:
    first = next(target for _, target in read_page("README.md").links)
    assert first.endswith("docs/img/park.gif")
    assert (ROOT / "docs" / "img" / "park.gif").stat().st_size < ANIMATION_LIMIT_BYTES


def test_no_image_is_left_that_no_page_shows() -> None:
    shown = {
        PurePosixPath(urlsplit(target).path).name
        for name in page_names()
        for _, target in read_page(name).links
    }
    kept = {path.name for path in (ROOT / "docs" / "img").iterdir()}
    assert not kept - shown, f"docs/img has images that no page shows: {sorted(kept - shown)}"
