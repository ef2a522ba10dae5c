"""`obj/person_N/frame_NNNNNN.obj`: the exact mesh of every person in every frame, in the scene frame, metres."""

from pathlib import Path

import numpy as np

from fitmesh.exports.folders import atomic_folder
from fitmesh.exports.motion import scene_frame
from fitmesh.progress import Reporter
from fitmesh.result import Result

FOLDER = "obj"
_AT_ONCE = 16  # frames skinned together


def files(result: Result) -> list[str]:
    return [
        f"{FOLDER}/person_{person.identity}/frame_{frame:06d}.obj"
        for person in result.people
        for frame in person.frame.tolist()
    ]


def write(result: Result, out: Path, progress: Reporter) -> None:
    """One file per person and frame; frames keep the numbers they have in the video."""
    scene = scene_frame(result)
    faces = (result.body.faces.numpy() + 1).astype(int)  # OBJ counts from 1
    tail = ("f %d %d %d\n" * len(faces)) % tuple(faces.ravel().tolist())
    form = "v %.4f %.4f %.4f\n" * len(result.body.v_template)
    total = sum(len(person) for person in result.people)
    with progress.stage("obj", total, "meshes") as tick, atomic_folder(out / FOLDER) as folder:
        for person in result.people:
            place = folder / f"person_{person.identity}"
            place.mkdir()
            for first in range(0, len(person), _AT_ONCE):
                rows = slice(first, first + _AT_ONCE)
                meshes = result.body.at(result.params(person, rows), vertices=True).vertices
                assert meshes is not None
                for frame, mesh in zip(person.frame[rows].tolist(), scene.points(meshes.double().numpy()), strict=True):
                    header = (
                        f"# fitmesh person {person.identity} frame {frame}, metres, y up\no person_{person.identity}\n"
                    )
                    text = header + form % tuple(np.ravel(mesh).tolist()) + tail
                    (place / f"frame_{frame:06d}.obj").write_text(text)
                    tick(1)
