"""README.md with absolute links, for a release: PyPI shows no image and follows no link that is
relative.

    python tools/absolute_links.py https://HOST/OWNER/fitmesh v0.2.0

Changes README.md in place: images to URL/raw/TAG/.., other links to URL/blob/TAG/.., which GitHub
and GitLab serve. Run it in the release's own checkout, build, and do not commit the result.
"""

import argparse
import re
from pathlib import Path

from pose2d.base.files import atomic_file

README = Path(__file__).resolve().parents[1] / "README.md"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def absolute(markdown: str, url: str, tag: str) -> str:
    """Relative links of a Markdown text at the repository's root -> absolute ones; anchors of the
    page itself stay.
    """

    def replace(result: re.Match[str]) -> str:
        image = result[1]
        text = absolute(result[2], url, tag)
        target = result[3]
        if re.match(r"[a-z]+:|#", target):
            return f"{image}[{text}]({target})"
        return f"{image}[{text}]({url.rstrip('/')}/{'raw' if image else 'blob'}/{tag}/{target})"

    return _LINK.sub(replace, markdown)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", help="public address of the repository")
    parser.add_argument("tag", help="of the release")
    arguments = parser.parse_args()
    text = absolute(README.read_text(encoding="utf-8"), arguments.url, arguments.tag)
    with atomic_file(README) as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
