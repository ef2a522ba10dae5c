"""A hook of mkdocs: pages from outside docs/ become part of the site, and links to them lead there.

In the repository a page of docs/ links to `../bench/README.md` or `../THIRD_PARTY.md`, which GitHub
follows. The site holds only docs/, so those files are added as `project/..`, and links are
rewritten in both directions.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROJECT = {
    "README.md": "project/README.md",
    "bench/README.md": "project/bench.md",
    "THIRD_PARTY.md": "project/THIRD_PARTY.md",
    "CHANGELOG.md": "project/CHANGELOG.md",
    "CONTRIBUTING.md": "project/CONTRIBUTING.md",
    "SECURITY.md": "project/SECURITY.md",
}  # path in the repository -> path in the site
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def in_site(path: str) -> str | None:
    """Path in the repository -> path in the site; None for files that are not part of it."""
    return path.removeprefix("docs/") if path.startswith("docs/") else PROJECT.get(path)


def rewritten(markdown: str, repository_path: str, site_path: str) -> str:
    """Rewrite links from relative to a file of the repository to relative to its page in the site;
    others become plain text.
    """

    def replace(result: re.Match[str]) -> str:
        start = result[1]
        target = result[2]
        anchor = result[3] or ""
        end = result[4]
        if re.match(r"[a-z]+:", target):
            return result[0]
        present = posixpath.normpath(posixpath.join(posixpath.dirname(repository_path), target))
        page = in_site(present)
        if page is None:
            return "]"  # the text of the link stays in its brackets
        return start + posixpath.relpath(page, posixpath.dirname(site_path) or ".") + anchor + end

    return _LINK.sub(replace, markdown)


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path, page in PROJECT.items():
        content = rewritten((ROOT / path).read_text(encoding="utf-8"), path, page)
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    path = page.file.src_uri
    return markdown if path in PROJECT.values() else rewritten(markdown, f"docs/{path}", path)
