"""The repository uses the field's own words: video, image, confidence, atomically."""

import re
import subprocess

from tests.docs.pages import ROOT

PLAIN = {
    r"films?|filmed|filming": "video, record",
    r"pictures?": "image",
    r"trust(?:s|ed|ing)?": "confidence, reliable",
    r"whole or not at all|whole, or not at all": "atomically",
    r"hears?|spoilt": "a plain verb",
}
ALLOWED = (
    "in35mm(?:film|format)",  # a metadata tag's own name
    "tests/docs/test_words.py",
)
FILES = ("*.py", "*.md", "*.toml", "*.js", "*.css", "*.html", "*.yml")


def test_pages_code_and_messages_use_plain_words() -> None:
    listed = subprocess.run(["git", "ls-files", *FILES], capture_output=True, text=True, cwd=ROOT, check=False).stdout
    found = []
    for name in listed.splitlines():
        path = ROOT / name
        if "/three/" in name or name in ALLOWED or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for words, better in PLAIN.items():
                match = re.search(rf"(?<![\w.])(?:{words})(?![\w(|])", line, re.IGNORECASE)
                if match and not any(allowed in line for allowed in ALLOWED):
                    found.append(f"{name}:{number}: {match[0]!r}, write: {better}")
    assert not found, "\n".join(found)
