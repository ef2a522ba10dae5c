"""The repository uses the field's own words: video, image, confidence, atomically."""

import re
import subprocess

from tests.docs.pages import ROOT

# What is not written, and what to write instead.
PLAIN = {
    "films?|filmed|filming": "video, record",
    "pictures?": "image",
    "trust(?:s|ed|ing)?": "confidence, reliable",
    "whole,? or not at all": "atomically",
    "hears?|spoilt": "a plain verb",
}
FILES = ("*.py", "*.md", "*.toml", "*.js", "*.css", "*.html", "*.yml")
LEFT_OUT = ("/three/", "tests/docs/test_words.py")
_WORDS = re.compile(rf"(?<![\w.(:])(?:{'|'.join(PLAIN)})(?![\w(|])", re.IGNORECASE)


def test_pages_code_and_messages_use_plain_words() -> None:
    listed = subprocess.run(
        ["git", "ls-files", *FILES], capture_output=True, text=True, cwd=ROOT, check=False
    ).stdout
    found = []
    for name in listed.splitlines():
        if any(part in name for part in LEFT_OUT) or not (ROOT / name).is_file():
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        for match in _WORDS.finditer(text):
            better = next(
                instead
                for words, instead in PLAIN.items()
                if re.fullmatch(words, match[0], re.IGNORECASE)
            )
            found.append(
                f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}, write: {better}"
            )
    assert not found, "\n".join(found)
