"""The frame of fitmesh's pages: style, script, and what they may load."""

from html import escape
from pathlib import Path

_HERE = Path(__file__).parent
# Only the overlay beside the page may be loaded, even if a file name in the page contains markup.
_POLICY = (
    "default-src 'none'; media-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
)


def styled_page(title: str, content: str) -> str:
    """Return a whole page around its content. It needs no other file and no server."""
    css = (_HERE / "report.css").read_text(encoding="utf-8")
    script = (_HERE / "report.js").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title><style>{css}</style></head>"
        f"<body><main>{content}</main><script>{script}</script></body></html>\n"
    )
