"""`obj/person_N/frame_NNNNNN.obj`: the exact mesh of every person in every frame, in the scene frame, metres."""

from pathlib import Path

import numpy as np

from fitmesh.exports.scene import MeshSequence, scene_frame
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from pose2d.base.files import atomic_folder

FOLDER = "obj"


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
    face_lines = ("f %d %d %d\n" * len(faces)) % tuple(faces.ravel().tolist())
    vertex_lines = "v %.4f %.4f %.4f\n" * len(result.body.v_template)
    total = sum(len(person) for person in result.people)
    with progress.stage("obj", total, "meshes") as tick, atomic_folder(out / FOLDER) as folder:
        for person in result.people:
            person_folder = folder / f"person_{person.identity}"
            person_folder.mkdir()
            meshes = MeshSequence(result, person)
            for row, frame in enumerate(person.frame.tolist()):
                (vertices_m,) = scene.points(meshes.vertices_m(row)[None].astype(np.float64), np.array([frame]))
                header = f"# fitmesh person {person.identity} frame {frame}, metres, y up\no person_{person.identity}\n"
                text = header + vertex_lines % tuple(np.ravel(vertices_m).tolist()) + face_lines
                (person_folder / f"frame_{frame:06d}.obj").write_text(text)
                tick(1)
