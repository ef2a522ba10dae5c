"""Matrices, lists and numbers of OpenCV's yaml, read line by line.

OpenCV writes a dialect that YAML parsers refuse ("%YAML:1.0" and the tag "!!opencv-matrix"). What a
calibration needs of it is small:

    name: 1280                          a number
    name: [1., 2.]                      numbers, on one line or several
    name: !!opencv-matrix               numbers of the `data` below it; also without the tag
       rows: 3
       data: [ .. ]
    name:                               a block of lists
       - [1., 2., 3.]

Every line is looked at once, so that time is linear in the size of the text.
"""

from collections.abc import Mapping

MOST_NUMBERS = 1000  # of a file


def parse_opencv_yaml(text: str) -> Mapping[str, list[float]]:
    """Return numbers by name; raises ValueError that says what is wrong, with the line."""
    values: dict[str, list[float]] = {}
    parent = ""  # name of the last line without indentation
    name = ""  # whose numbers are being read
    is_open = False  # a list goes on in the next line
    total = 0
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#", 1)[0].rstrip()
        stripped = content.strip()
        if not stripped or stripped.startswith(("%", "---", "...")):
            continue
        if not is_open and not stripped.startswith("- "):
            key, colon, stripped = stripped.partition(":")
            if not colon:
                raise ValueError(f"line {number} has no name")
            key = key.strip().strip("\"'")
            is_indented = content[0].isspace()
            if not is_indented:
                parent = key
            name = parent if is_indented and key == "data" else key
            if is_indented and key in ("rows", "cols", "dt"):
                continue
            if name in values and not (is_indented and key == "data"):
                raise ValueError(f"line {number} has {name[:40]!r} for the second time")
            values[name] = []
        for token in stripped.replace("[", " [ ").replace("]", " ] ").replace(",", " ").split():
            if token == "[":
                is_open = True
            elif token == "]":
                is_open = False
            elif _is_number(token):
                total += 1
                if total > MOST_NUMBERS:
                    raise ValueError(f"more than {MOST_NUMBERS} numbers")
                values.setdefault(name, []).append(float(token))
    return {name: numbers for name, numbers in values.items() if numbers}


def _is_number(token: str) -> bool:
    """Say whether a token is a number in ASCII digits; words such as `d` or `inf` are not."""
    if len(token) > 60 or token[-1] not in "0123456789.":
        return False
    try:
        float(token)
    except ValueError:
        return False
    return "_" not in token and token.isascii()
