"""`obj/person_N/frame_NNNNNN.obj`: the exact mesh of every person in every frame, in the scene frame, metres.
Frames keep the numbers they have in the video."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from fitmesh.exports.scene import SceneFrame
from fitmesh.result import Person, Result
from fitting import Body


def write(result: Result, scene: SceneFrame, path: Path, person: Person, rows: slice) -> None:
    vertices_m = scene.points(result.vertices(person, rows.start)[None].astype(np.float64), person.frame[rows])
    name, frame = f"person_{person.identity}", person.frame[rows.start]
    vertex_lines = ("v %.4f %.4f %.4f\n" * vertices_m.shape[1]) % tuple(vertices_m.ravel().tolist())
    header = f"# fitmesh person {person.identity} frame {frame}, metres, y up\no {name}\n"
    path.write_text(header + vertex_lines + _face_lines(result.body))


@lru_cache(maxsize=1)
def _face_lines(body: Body) -> str:
    faces = (body.faces.numpy() + 1).astype(int)  # OBJ counts from 1
    return ("f %d %d %d\n" * len(faces)) % tuple(faces.ravel().tolist())
