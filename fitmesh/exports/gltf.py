"""The glTF 2.0 binary container: arrays become accessors, everything else is JSON."""

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pose2d.base.files import atomic_file

_COMPONENT = {"<f4": 5126, "<u4": 5125, "<u2": 5123, "|u1": 5121}
_TYPE: dict[tuple[int, ...], str] = {(): "SCALAR", (3,): "VEC3", (4,): "VEC4", (4, 4): "MAT4"}
ARRAY_BUFFER, ELEMENT_ARRAY_BUFFER = 34962, 34963
_ALIGNMENT = 4
_MAGIC, _VERSION, _JSON, _BINARY = b"glTF", 2, b"JSON", b"BIN\0"


@dataclass
class Gltf:
    """A scene under construction. Entries refer to each other by number: `add` returns the number of its entry."""

    extras: dict[str, Any]
    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _chunks: list[bytes] = field(default_factory=list)
    _size: int = 0

    def add(self, kind: str, entry: dict[str, Any]) -> int:
        """Append to nodes, meshes, skins, ..; glTF forbids empty lists, so one is made with its first entry."""
        entries = self.lists.setdefault(kind, [])
        entries.append(entry)
        return len(entries) - 1

    def array(
        self, values: np.ndarray, target: int | None = None, *, limits: bool = False, normalized: bool = False
    ) -> int:
        """An accessor for [N], [N, 3], [N, 4] or [N, 4, 4] (columns first) numbers. `limits` states min and max;
        `normalized`: the largest whole number stands for 1."""
        values = np.ascontiguousarray(values)
        start = self._append(values.tobytes())
        view: dict[str, Any] = {"buffer": 0, "byteOffset": start, "byteLength": values.nbytes}
        if target is not None:
            view["target"] = target
        accessor: dict[str, Any] = {
            "bufferView": self.add("bufferViews", view),
            "componentType": _COMPONENT[values.dtype.str],
            "count": len(values),
            "type": _TYPE[values.shape[1:]],
        }
        if normalized:
            accessor["normalized"] = True
        if limits:
            flat = values.reshape(len(values), -1)
            accessor["min"], accessor["max"] = flat.min(0).tolist(), flat.max(0).tolist()
        return self.add("accessors", accessor)

    def write(self, path: Path, roots: list[int], generator: str) -> None:
        """One .glb whose scene has the nodes `roots` at its top."""
        document: dict[str, Any] = {
            "asset": {"version": "2.0", "generator": generator, "extras": self.extras},
            "scene": 0,
            "scenes": [{"name": "fitmesh", "nodes": roots}],
            **self.lists,
        }
        if self._size:
            document["buffers"] = [{"byteLength": self._size}]
        text = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        chunks = struct.pack("<I4s", len(text), _JSON), text
        binary = (struct.pack("<I4s", self._size, _BINARY), *self._chunks) if self._size else ()
        total = 12 + sum(map(len, (*chunks, *binary)))
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            file.write(struct.pack("<4sII", _MAGIC, _VERSION, total))
            file.writelines((*chunks, *binary))

    def _append(self, content: bytes) -> int:
        start = self._size
        padded = content + b"\0" * (-len(content) % _ALIGNMENT)
        self._chunks.append(padded)
        self._size += len(padded)
        return start


class Animation:
    """The one animation of a scene, with one time axis for everybody."""

    def __init__(self, gltf: Gltf) -> None:
        self._gltf = gltf
        self._samplers: list[dict[str, Any]] = []
        self._channels: list[dict[str, Any]] = []

    def times(self, time_s: np.ndarray) -> int:
        return self._gltf.array(time_s.astype("<f4"), limits=True)

    def move(self, node: int, path: str, times: int, values: np.ndarray, interpolation: str = "LINEAR") -> None:
        output = self._gltf.array(values.astype("<f4"))
        self._samplers.append({"input": times, "output": output, "interpolation": interpolation})
        self._channels.append({"sampler": len(self._samplers) - 1, "target": {"node": node, "path": path}})

    def finish(self) -> None:
        if self._channels:
            self._gltf.add("animations", {"name": "motion", "samplers": self._samplers, "channels": self._channels})


def one_hemisphere(xyzw: np.ndarray) -> np.ndarray:
    """[T, 4] with the sign of each quaternion nearest to the one before: players interpolate the numbers."""
    flipped = (xyzw[1:] * xyzw[:-1]).sum(-1) < 0
    sign = np.cumprod(np.where(flipped, -1.0, 1.0))
    return np.concatenate([xyzw[:1], xyzw[1:] * sign[:, None]])
