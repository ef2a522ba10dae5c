"""From valid bytes, JSON or arrays to wrong ones, all drawn from a seed, so that a case can be
repeated by its name.
"""

import copy
import io
import json
import struct
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

STRANGE: tuple[Any, ...] = (
    None,
    True,
    "x",
    "",
    -1,
    1e30,
    float("inf"),
    float("nan"),
    [],
    {},
    [[]],
    10**400,
    "\ud800",
)


def damaged_bytes(
    data: bytes, rng: np.random.Generator, flips: int = 8
) -> Iterator[tuple[str, bytes]]:
    """Cut short, a few bytes changed, nothing, noise, something else."""
    yield "empty", b""
    yield "zeros", bytes(len(data[:4096]))
    yield "noise", rng.bytes(min(len(data), 4096))
    yield "text", b"hello\n"
    for share in (0.01, 0.3, 0.7, 0.99):
        yield f"cut to {share:.0%}", data[: int(share * len(data))]
    for number in range(flips):
        changed = bytearray(data)
        for place in rng.integers(0, len(data), 4):
            changed[place] ^= int(rng.integers(1, 256))
        yield f"4 bytes changed, {number}", bytes(changed)
    yield "twice", data + data
    yield "shifted", b"\0" + data


def damaged_json(
    value: Any, rng: np.random.Generator, count: int = 24
) -> Iterator[tuple[str, bytes]]:
    """Yield JSON with entries replaced or taken out at any depth, and text that is no JSON."""
    places = list(_places(value))
    for number in range(count):
        place = places[int(rng.integers(len(places)))]
        strange = STRANGE[number % len(STRANGE)]
        changed = copy.deepcopy(value)
        _set(changed, place, strange)
        json_path = "".join(f"[{step!r}]" for step in place)
        yield f"{json_path} = {str(strange)[:12]}", json.dumps(changed).encode()
    for number in range(count // 4):
        place = places[int(rng.integers(1, len(places)))]
        changed = copy.deepcopy(value)
        _remove(changed, place)
        yield f"without {place}, {number}", json.dumps(changed).encode()
    text = json.dumps(value).encode()
    yield "deep list", b"[" * 100_000
    yield "deep object", b'{"a":' * 100_000
    yield "digits", b"[" + b"9" * 10_000 + b"]"
    yield "utf-16", text.decode().encode("utf-16")
    yield "null", b"null"
    yield "a number", b"3"
    yield "a list", b"[]"
    yield "an object", b"{}"
    yield "a list of lists", b"[[[]]]"
    yield from damaged_bytes(text, rng, 4)


def damaged_npz(
    arrays: dict[str, np.ndarray], rng: np.random.Generator
) -> Iterator[tuple[str, bytes, bool]]:
    """Name, bytes, and whether it must be refused: an array is missing, or of another shape or
    kind.
    """
    data = npz_bytes(arrays)
    for name, content in damaged_bytes(data, rng, 16):
        yield name, content, name in ("empty", "zeros", "noise", "text") or name.startswith("cut")
    for name, value in arrays.items():
        remaining = {key: second for key, second in arrays.items() if key != name}
        yield f"without {name}", npz_bytes(remaining), True
        yield (
            f"{name} as text",
            npz_bytes({**remaining, name: np.full(value.shape or (1, 1), "x")}),
            value.dtype.kind != "U",
        )
        yield (
            f"{name} with one axis more",
            npz_bytes({**remaining, name: value[None, ..., None]}),
            True,
        )
        if value.ndim and len(value) > 1 and value.dtype.kind in "fiu":
            yield f"{name} one shorter", npz_bytes({**remaining, name: value[:-1]}), False
        if value.dtype.kind == "f" and value.size:
            for number in (np.nan, np.inf, 1e30, -1e30):
                wrong = value.copy()
                wrong.flat[int(rng.integers(wrong.size))] = number
                yield f"{name} with {number}", npz_bytes({**remaining, name: wrong}), False
        if value.dtype.kind in "iu" and value.size:
            for full in (-1, 2**62):
                wrong = value.astype(np.int64)
                wrong.flat[int(rng.integers(wrong.size))] = full
                yield f"{name} with {full}", npz_bytes({**remaining, name: wrong}), False
    first = next(iter(arrays))
    remaining = {key: value for key, value in arrays.items() if key != first}
    for title, header in HEADERS.items():
        yield (
            f"{first} whose header says {title}",
            _with_member(remaining, first, npy_header(header) + b"\0" * 64),
            True,
        )
    yield f"{first} of zeros, 8 GB", _bomb(remaining, first), True
    yield "an .npy", _npy(next(iter(arrays.values()))), True
    yield "an empty archive", npz_bytes({}), True
    yield f"{first} encrypted", _encrypted(data), True


HEADERS = {
    "128 TiB": "{'descr': '<f8', 'fortran_order': False, 'shape': (17592186044416,)}",
    "a negative size": "{'descr': '<f8', 'fortran_order': False, 'shape': (-8,)}",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (8,)}",
    "a record": "{'descr': [('a', '<f4'), ('b', '<f4')], 'fortran_order': False, 'shape': (8,)}",
    "no type": "{'descr': 'zz', 'fortran_order': False, 'shape': (8,)}",
    "code": "__import__('os').system('true')",
    "40 axes": "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1, " * 40 + ")}",
    "overflow": "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296)}",
}


def npz_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def npy_header(text: str) -> bytes:
    padded = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded


def _npy(value: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, value)
    return stream.getvalue()


def _with_member(arrays: dict[str, np.ndarray], name: str, content: bytes) -> bytes:
    stream = io.BytesIO(npz_bytes(arrays))
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


def _bomb(arrays: dict[str, np.ndarray], name: str) -> bytes:
    """Return 64 MB of zeros whose directory entry claims 8 GB; a real bomb would take a minute to
    make.
    """
    header = npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000,)}")
    data = bytearray(_with_member(arrays, name, header + bytes(64 << 20)))
    place = data.rfind(b"PK\x01\x02")
    struct.pack_into("<I", data, place + 24, 0xFFFFFFF0)
    return bytes(data)


def _encrypted(data: bytes) -> bytes:
    changed = bytearray(data)
    place = changed.find(b"PK\x01\x02")
    while place >= 0:
        changed[place + 8] |= 1
        place = changed.find(b"PK\x01\x02", place + 4)
    return bytes(changed)


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _places(inner, (*above, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:3]):
            yield from _places(inner, (*above, number))


def _set(value: Any, place: tuple[Any, ...], new: Any) -> None:
    if not place:
        if isinstance(value, dict | list):
            value.clear()
        return
    for step in place[:-1]:
        value = value[step]
    value[place[-1]] = new


def _remove(value: Any, place: tuple[Any, ...]) -> None:
    for step in place[:-1]:
        value = value[step]
    del value[place[-1]]
