"""The pages of the documentation, and what is in them: code blocks, code spans, links, headings."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
_COMMENT = re.compile(r"<!--\s*not run:\s*(.*?)\s*-->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One block of code, fenced or indented."""

    page: str  # path from the root of the repository
    line: int  # of its first line of code, from 1
    language: str
    code: str
    not_run: str | None  # the reason, from the comment `<!-- not run: REASON -->` in front of it


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: str  # from the root of the repository
    blocks: tuple[Block, ...]
    spans: tuple[tuple[int, str], ...]  # line and text of inline code
    links: tuple[tuple[int, str], ...]  # line and target of links and images
    anchors: frozenset[str]  # of its headings, as GitHub names them


def page_names() -> list[str]:
    """Everything that a user reads."""
    names = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "bench" / "README.md",
        ROOT / "tools" / "README.md",
    ]
    return sorted(path.relative_to(ROOT).as_posix() for path in names)


@cache
def read_page(name: str) -> Page:
    text = (ROOT / name).read_text(encoding="utf-8")
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    blocks = []
    spans = []
    links = []
    anchors = []
    reason: str | None = None
    for number, token in enumerate(tokens):
        line = token.map[0] + 1 if token.map else 0
        if token.type in ("fence", "code_block"):
            blocks.append(Block(name, line + 1, token.info.strip().lower(), token.content, reason))
        if token.type == "html_block" and (found := _COMMENT.search(token.content)):
            reason = found[1]
        elif token.type not in ("list_item_open", "bullet_list_open"):
            reason = None
        if token.type == "heading_open":
            anchors.append(_slug(tokens[number + 1]))
        if token.type == "inline":
            for part in token.children or []:
                if part.type == "code_inline":
                    spans.append((line, part.content))
                target = part.attrGet("href") if part.type == "link_open" else part.attrGet("src")
                if part.type in ("link_open", "image") and target:
                    links.append((line, str(target)))
    return Page(name, tuple(blocks), tuple(spans), tuple(links), _unique(anchors))


def _slug(heading: Token) -> str:
    """The anchor of a heading: lower case, punctuation dropped, spaces to hyphens."""
    text = "".join(
        part.content for part in heading.children or [] if part.type in ("text", "code_inline")
    )
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def _unique(slugs: list[str]) -> frozenset[str]:
    """A heading that repeats gets a number."""
    seen: dict[str, int] = {}
    found = []
    for slug in slugs:
        found.append(f"{slug}-{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    return frozenset(found)
