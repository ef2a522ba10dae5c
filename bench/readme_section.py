"""Sections of bench/README.md that a bench writes itself, between marks that carry its name."""

from pathlib import Path

from pose2d.base.files import atomic_file

PAGE = Path(__file__).with_name("README.md")


def write_section(name: str, text: str) -> None:
    """Between the marks of bench/NAME.py, or at the end."""
    begin, end = f"<!-- {name}: written by bench/{name}.py -->", f"<!-- end of {name} -->"
    page = PAGE.read_text()
    section = f"{begin}\n{text}\n{end}"
    if begin in page:
        page = page[: page.index(begin)] + section + page[page.index(end) + len(end) :]
    else:
        page = f"{page.rstrip()}\n\n{section}\n"
    with atomic_file(PAGE) as temporary:
        temporary.write_text(page)
