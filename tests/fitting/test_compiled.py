"""The renderer is compiled once, by its first drawing, and also where nothing can be kept on disk."""

import os
import subprocess
import sys

import numba
import numpy as np
import pytest

from fitting.camera import Camera
from fitting.render import Mesh, render
from fitting.render.compiled import compiled
from tests.fitting.shapes import sphere

_DRAWS = """
import numpy as np
from fitting.camera import Camera
from fitting.render import Mesh, paint, raster, render, shading
from tests.fitting.shapes import sphere

vertices, faces = sphere((0, 0, 3), 1.0)
colours = np.full(vertices.shape, 0.5)
for size, colour in (((64, 48), colours), ((640, 480), (0.1, 0.2, 0.3)), ((8, 8), None)):
    camera = Camera.default(size)
    render([Mesh(vertices, faces, colour, 3), Mesh(vertices.astype(np.float32), faces)], camera)
for module in (raster, paint, shading):
    for name, thing in vars(module).items():
        if hasattr(thing, "signatures") and thing.__module__ == module.__name__:
            print(name, len(thing.signatures))
"""


def test_after_the_first_no_drawing_compiles_again() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _DRAWS], capture_output=True, text=True, check=True
    )
    counts = dict(line.split() for line in ended.stdout.splitlines())
    assert {"_blend", "_visibility", "_outline_visibility", "_vertex_normals", "_soften"} <= set(
        counts
    )
    assert {name: count for name, count in counts.items() if count not in "01"} == {}


def test_the_renderer_works_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def njit(**options: bool):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: (options, function)

    monkeypatch.setattr(numba, "njit", njit)
    options, function = compiled(len)
    assert options == {"nogil": True}
    assert function is len


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path) -> None:
    kept = []
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", _DRAWS],
            check=True,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        )
        kept.append({path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")})
    assert kept[0]
    assert kept[1] == kept[0]


def test_only_a_part_of_the_image_is_painted_where_the_mesh_is() -> None:
    vertices, faces = sphere((1.0, 0.6, 4), 0.4)
    camera = Camera.from_focal(60.0, (80, 60))
    image = render([Mesh(vertices, faces)], camera, np.full((60, 80, 3), 7, np.uint8))
    rows, columns = np.nonzero((image != 7).any(-1))
    assert abs(columns.mean() - (40 + 15)) < 1
    assert abs(rows.mean() - (30 + 9)) < 1
