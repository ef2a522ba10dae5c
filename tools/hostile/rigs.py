"""Calibration files of two cameras, right and hostile."""

import json
from collections.abc import Iterator
from typing import Any

NAMES = ("a", "b")
SIZES = ((160, 120), (160, 120))
_MATRIX = "!!opencv-matrix\n   rows: 3\n   cols: 3\n   dt: d\n   data: "
YAML = (
    f"%YAML:1.0\n---\nM1: {_MATRIX}[ 900., 0., 80., 0., 900., 60., 0., 0., 1. ]\n"
    f"M2: {_MATRIX}[ 900., 0., 80., 0., 900., 60.,\n       0., 0., 1. ]\n"
    f"R: {_MATRIX}[ 1., 0., 0., 0., 1., 0., 0., 0., 1. ]\nT: [ 1., 0., 0. ]\n"
)
# Values of a quantity that no camera has.
ODD_VALUES: tuple[Any, ...] = (
    0,
    -1,
    10**400,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    "x",
    None,
    True,
    [],
    {},
    [[]],
    [0, 0],
    [-160, -120],
    [10**400] * 2,
    [1e300] * 3,
    [1e-300] * 3,
    [float("nan")] * 3,
    [1e308] * 9,
    [[1, 2], [3]],
    ["1", "2", "3"],
)


def cameras() -> list[dict[str, Any]]:
    """Return two cameras as json calibrations state them."""
    camera = {
        "name": "a",
        "size": [160.0, 120.0],
        "matrix": [[900.0, 0.0, 80.0], [0.0, 900.0, 60.0], [0.0, 0.0, 1.0]],
        "distortions": [0.1, 0.0, 0.0, 0.0],
        "rotation": [0.1, 0.2, 0.3],
        "translation": [0.0, 0.0, 4.0],
    }
    return [camera, {**camera, "name": "b", "translation": [1.0, 0.0, 4.0]}]


def toml() -> str:
    """Return the same cameras as Pose2Sim's toml."""
    return "".join(
        f"[{camera['name']}]\n" + "".join(f"{key} = {value!r}\n" for key, value in camera.items())
        for camera in cameras()
    )


def odd_rigs() -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of files that take long, overflow or mislead readers."""
    first, second = cameras()
    for quantity in first:
        for number, value in enumerate(ODD_VALUES):
            content = {"cameras": [{**first, quantity: value}, second]}
            yield f"{quantity}_{number}.json", json.dumps(content).encode()
    right = toml()
    texts = {
        "digits.toml": right.replace("900.0", "9" * 4400, 1),
        "dotted.toml": ".".join(["a"] * 20_000) + " = 1",
        "dotted_table.toml": "[" + ".".join(["a"] * 20_000) + "]",
        "tables.toml": "[[a]]\n" * 40_000,
        "nested.toml": "a = " + "[" * 100_000,
        "newlines.yml": "\n" * 2_000_000,
        "brackets.yml": "a: " + "[" * 250_000,
        "open_lists.yml": "a: [\n" * 40_000,
        "spaces.yml": "a: !!opencv-matrix\n" + " " * 200_000 + "data: [",
        "aliases.yml": "b0: &b0 [x, x]\n"
        + "".join(f"b{n}: &b{n} [*b{n - 1}, *b{n - 1}]\n" for n in range(1, 30)),
        "deep.json": "[" * 200_000,
        "huge.json": json.dumps(cameras()) + " " * (1 << 20),
    }
    yield from ((name, text.encode()) for name, text in texts.items())
