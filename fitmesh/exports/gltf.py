"""glTF 2.0's binary container: arrays become accessors, everything else is JSON."""

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fitmesh.version import __version__
from pose2d.base.files import atomic_file

# Numbers and names of the glTF 2.0 specification.
ARRAY_BUFFER = 34962
ELEMENT_ARRAY_BUFFER = 34963
_COMPONENT = {"<f4": 5126, "<u4": 5125, "<u2": 5123, "|u1": 5121}
_TYPE: dict[tuple[int, ...], str] = {(): "SCALAR", (3,): "VEC3", (4,): "VEC4", (4, 4): "MAT4"}
_ALIGNMENT = 4
_MAGIC = b"glTF"
_VERSION = 2
_HEADER_BYTES = 12
_JSON = b"JSON"
_BINARY = b"BIN\0"


@dataclass
class Gltf:
    """A scene under construction. Entries refer to each other by number: `add` returns the number
    of its entry.
    """

    extras: dict[str, Any]
    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _samplers: list[dict[str, Any]] = field(default_factory=list)  # of the one animation
    _channels: list[dict[str, Any]] = field(default_factory=list)
    _chunks: list[bytes] = field(default_factory=list)
    _size: int = 0

    def add(self, kind: str, entry: dict[str, Any]) -> int:
        """Append an entry to nodes, meshes, skins, .. and return its number. glTF forbids empty
        lists, so a list begins with its first entry.
        """
        entries = self.lists.setdefault(kind, [])
        entries.append(entry)
        return len(entries) - 1

    def array(
        self,
        values: np.ndarray,
        target: int | None = None,
        *,
        limits: bool = False,
        normalized: bool = False,
    ) -> int:
        """Add [N], [N, 3], [N, 4] or [N, 4, 4] (columns first) numbers and return the number of
        their accessor. limits: state min and max; normalized: the largest whole number stands for
        1.
        """
        values = np.ascontiguousarray(values)
        view: dict[str, Any] = {"buffer": 0, "byteOffset": self._size, "byteLength": values.nbytes}
        self._chunks.append(values.tobytes() + b"\0" * (-values.nbytes % _ALIGNMENT))
        self._size += len(self._chunks[-1])
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
            accessor["min"] = flat.min(0).tolist()
            accessor["max"] = flat.max(0).tolist()
        return self.add("accessors", accessor)

    def times(self, time_s: np.ndarray) -> int:
        """Add times [T] of an animation and return the number of their accessor."""
        return self.array(time_s.astype("<f4"), limits=True)

    def move(
        self, node: int, path: str, times: int, values: np.ndarray, interpolation: str = "LINEAR"
    ) -> None:
        """Add a channel to the animation: the values [T, ...] of a node's property at `times`."""
        output = self.array(values.astype("<f4"))
        self._samplers.append({"input": times, "output": output, "interpolation": interpolation})
        self._channels.append(
            {"sampler": len(self._samplers) - 1, "target": {"node": node, "path": path}}
        )

    def write(self, path: Path, roots: list[int]) -> None:
        """Write a .glb whose scene has the nodes `roots` at its top."""
        if self._channels:
            channels = {"samplers": self._samplers, "channels": self._channels}
            self.add("animations", {"name": "motion", **channels})
        generator = f"fitmesh {__version__}"
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
        chunks = [struct.pack("<I4s", len(text), _JSON), text]
        if self._size:
            chunks += [struct.pack("<I4s", self._size, _BINARY), *self._chunks]
        total = _HEADER_BYTES + sum(map(len, chunks))
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            file.write(struct.pack("<4sII", _MAGIC, _VERSION, total))
            file.writelines(chunks)
