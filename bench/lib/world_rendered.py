"""Rendered worlds (`fitmesh synth --scenes world`) read as truth, and what `fitmesh run` finds in
their images.
"""

from pathlib import Path

import numpy as np
import torch

import fitmesh
from bench.lib.world_metrics import PersonEstimate, ShotEstimate
from bench.lib.world_scenes import PersonTruth, ShotTruth
from eval3dpw.captured.feet import feet_over_sole_m
from eval3dpw.sequences import image_path
from fitmesh.person import Person
from fitmesh.result import Result
from fitting.body import Body, BodyParams
from fitting.camera import Camera
from pose2d.base.errors import UserError

LEAST_OVERLAP = 0.3  # mean IoU of boxes from which a track is taken for a person


def read_truth(root: Path) -> list[ShotTruth]:
    """Every sequence of the set."""
    paths = sorted((root / "synthFiles").glob("world_*.npz"))
    if not paths:
        raise UserError(
            f"{root} holds no rendered worlds: make some with `fitmesh synth --scenes world --out {root}`."
        )
    return [_read(path) for path in paths]


def _read(path: Path) -> ShotTruth:
    with np.load(path) as file:
        rows = {name: file[name] for name in file.files}
    people = [
        PersonTruth(
            clip="",
            size=float(rows["size"][n]),
            height_m=float(rows["height_m"][n]),
            joints_m=rows["joints_m"][n].astype(float),
            keypoints_m=rows["halpe_m"][n].astype(float),
            standing=rows["contact"][n],
            still=rows["still"][n],
            keypoints=None,
        )
        for n in range(len(rows["identity"]))
    ]
    size = (int(rows["size_px"][0]), int(rows["size_px"][1]))
    camera = Camera.from_focal(float(rows["shot_focal_px"][0]), size)
    kind = str(rows["kind"])
    camera_kind = str(rows["shot_camera"][0])
    return ShotTruth(
        path.stem,
        kind,
        camera_kind,
        people,
        camera,
        rows["camera_from_world"],
        float(rows["fps"]),
        (0, 0),  # type: ignore[arg-type]
    )


def boxes(root: Path, name: str) -> np.ndarray:
    """[P, T, 4] the true boxes."""
    with np.load(root / "synthFiles" / f"{name}.npz") as file:
        return np.asarray(file["boxes_px"])


def run(root: Path, shot: ShotTruth, out: Path, floor: str, focal_px: float | None) -> Result:
    """The whole of `fitmesh run` on the images; keypoints are kept in `out` between columns."""
    folder = image_path(root, shot.name, 0).parent
    return fitmesh.run(folder, out / shot.name, fps=shot.fps, floor=floor, focal_px=focal_px)


def estimate(
    result: Result, shot: ShotTruth, true_boxes: np.ndarray, body: Body, looked: bool
) -> ShotEstimate:
    """looked: whether the camera's motion is a part of the answer."""
    first_shot = result.shots[0]
    matched = _matched(result.people, true_boxes)
    known_parts = result.world_from_camera[:, :3, :3]
    turns = (
        looked
        and first_shot.camera in ("rotating", "moving")
        and bool(np.isfinite(known_parts).all())
    )
    return ShotEstimate(
        people=[None if person is None else _person(person, body) for person in matched],
        up_cam=first_shot.up_cam,
        camera_height_m=first_shot.camera_height_m,
        focal_px=first_shot.focal_px,
        kind=first_shot.camera if looked else None,
        first_from_camera=known_parts[0].T @ known_parts if turns else None,
    )


def _matched(people: list[Person], true_boxes: np.ndarray) -> list[Person | None]:
    """Return whose track covers each true person best: the longest overlap counts."""
    results: list[Person | None] = []
    for box in true_boxes:
        scores = [
            float(np.nan_to_num(_iou(person.box_px, box[person.frame])).sum()) for person in people
        ]
        best = int(np.argmax(scores)) if scores else -1
        results.append(
            people[best]
            if best >= 0 and scores[best] > LEAST_OVERLAP * len(people[best].frame)
            else None
        )
    return results


def _iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    low = np.maximum(a[:, :2], b[:, :2])
    high = np.minimum(a[:, 2:], b[:, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=1)
    areas = [np.prod(np.maximum(box[:, 2:] - box[:, :2], 0), axis=1) for box in (a, b)]
    return np.asarray(shared / np.maximum(areas[0] + areas[1] - shared, 1e-6))


def _person(person: Person, body: Body) -> PersonEstimate:
    pose, shape, move = (
        torch.from_numpy(np.asarray(v))
        for v in (person.pose_rad, person.shape, person.translation_m)
    )
    posed = body.at(BodyParams(pose, shape, move, torch.tensor(float(person.size))))
    contact = np.nan_to_num(person.contact)
    return PersonEstimate(
        rows=person.frame,
        joints_cam_m=posed.joints.double().numpy(),
        keypoints_cam_m=posed.keypoints.double().numpy(),
        over_sole_m=person.size * feet_over_sole_m(body, shape),
        height_m=float(person.height_m),
        contact=contact if contact.any() else None,
    )
