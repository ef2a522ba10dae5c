"""Links, anchors and images of the documentation lead somewhere, and every page says for whom it
is.
"""

from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import ROOT, page_names, read_page

READER = "**For**"  # how the first paragraph of a page in docs/ begins
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
