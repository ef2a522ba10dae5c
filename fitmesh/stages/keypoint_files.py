"""Keypoints that another program found: fitmesh's own npz, COCO's json, OpenPose's json. docs/run.md shows each."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from pose2d.base.caching import content_digest, read_npz
from pose2d.base.errors import UserError
from pose2d.oks import AREA_OF_BOX
from pose2d.skeletons import BY_NAME, COCO17
from pose2d.types import ConfidenceSource

COUNT = COCO17.size
# Where OpenPose keeps COCO's keypoints, by how many it has.
OPENPOSE = {
    25: (0, 16, 15, 18, 17, 5, 2, 6, 3, 7, 4, 12, 9, 13, 10, 14, 11),
    18: (0, 15, 14, 17, 16, 5, 2, 6, 3, 7, 4, 11, 8, 12, 9, 13, 10),
}
SEEN = 0.05  # confidence from which a keypoint helps to say where the person is
MARGIN = 0.1  # a person reaches so far beyond the keypoints, as a share of their extent


@dataclass(frozen=True)
class GivenKeypoints:
    """N people, each in some frame."""

    frame: np.ndarray  # [N] frame numbers from 0
    identity: np.ndarray | None  # [N]; None: who is who is not said
    box_px: np.ndarray  # [N, 4] x1, y1, x2, y2
    area_px2: np.ndarray  # [N]
    xy_px: np.ndarray  # [N, 17, 2]
    raw: np.ndarray  # [N, 17] the network's own confidence
    confidence: np.ndarray  # [N, 17]
    presence: np.ndarray  # [N, 17]
    source: ConfidenceSource
    pose_model: str  # who found them


def files_of(path: Path) -> list[Path]:
    """The files that `path` stands for: itself, or what OpenPose leaves in a folder."""
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*_keypoints.json"))
    if not found:
        raise UserError(f"{path} holds no file that ends in _keypoints.json, as OpenPose writes one per frame.")
    return found


def digest(path: Path) -> str:
    return content_digest(files_of(path))


def read_given(path: Path) -> GivenKeypoints:
    if path.suffix.lower() == ".npz":
        return _from_npz(path)
    files = files_of(path)
    people: list[_Sighting] = []
    for number, file in enumerate(files):
        content = _json(file)
        if isinstance(content, Mapping) and "people" in content:
            people += _openpose(content, file, _frame_number(file) if len(files) > 1 else 0)
        elif number == 0 and len(files) == 1:
            people += _coco(content, file)
        else:
            raise UserError(f'{file} has no "people": expected a file as OpenPose writes it.')
    return _given(people, path)


@dataclass(frozen=True)
class _Sighting:
    frame: int
    identity: int | None
    points: np.ndarray  # [17, 3] x, y, confidence


def _coco(content: Any, file: Path) -> list[_Sighting]:
    entries = content.get("annotations") if isinstance(content, Mapping) else content
    if not isinstance(entries, list):
        raise UserError(
            f'{file} is no list of keypoint results, no COCO data set with "annotations", and has no "people" as '
            "OpenPose's files have."
        )
    labelled = isinstance(content, Mapping)  # there the third number says: 0 not labelled, 1 hidden, 2 visible
    found = []
    for number, entry in enumerate(entries):
        try:
            points = _points(entry["keypoints"], {COUNT: range(COUNT), 133: range(COUNT)})
            if labelled:
                points[:, 2] = points[:, 2] > 0
            identity = entry.get("track_id")
            found.append(_Sighting(int(entry["image_id"]), None if identity is None else int(identity), points))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"{file}: entry {number} is no keypoint result ({error!r}). Expected image_id (the frame's number "
                "from 0), keypoints [x, y, confidence, ...] of COCO's 17, and, where it is known, track_id."
            ) from error
    return found


def _openpose(content: Mapping[str, Any], file: Path, frame: int) -> list[_Sighting]:
    found = []
    for number, person in enumerate(content["people"]):
        try:
            points = _points(person["pose_keypoints_2d"], OPENPOSE)
            identity = next(iter(person.get("person_id", [-1])), -1)
            found.append(_Sighting(frame, int(identity) if int(identity) >= 0 else None, points))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"{file}: person {number} is not as OpenPose writes it ({error!r}). Expected pose_keypoints_2d of the "
                "BODY_25 or the COCO model."
            ) from error
    return found


def _points(numbers: Any, orders: Mapping[int, Iterable[int]]) -> np.ndarray:
    """[17, 3] in COCO's order, of a flat list x, y, confidence, ..."""
    points = np.array(numbers, np.float64).reshape(-1, 3)
    if len(points) not in orders:
        raise ValueError(f"{len(points)} keypoints; expected {' or '.join(map(str, orders))}")
    return points[list(orders[len(points)])]


def _given(people: list[_Sighting], path: Path) -> GivenKeypoints:
    points = np.stack([person.points for person in people]) if people else np.zeros((0, COUNT, 3))
    known = np.isfinite(points).all(-1)
    if (points[known][:, 2] < 0).any():
        raise UserError(f"{path} has confidences below 0; expected 0 to 1.")
    confidence = np.where(known, points[..., 2].clip(0, 1), 0)
    somewhere = np.flatnonzero((confidence >= SEEN).sum(1))
    people = [people[row] for row in somewhere]
    points, confidence = points[somewhere], confidence[somewhere]
    seen = confidence >= SEEN
    identities = [person.identity for person in people]
    if None in identities and any(identity is not None for identity in identities):
        raise UserError(f"{path} says of some people who they are and of others not: give all an identity, or none.")
    named = bool(identities) and None not in identities
    low = np.where(seen[..., None], points[..., :2], np.inf).min(1, initial=np.inf)
    high = np.where(seen[..., None], points[..., :2], -np.inf).max(1, initial=-np.inf)
    edge = MARGIN * (high - low).max(1, keepdims=True, initial=1)
    box = np.concatenate([low - edge, high + edge], 1)
    frames = np.array([person.frame for person in people], np.int64)
    if named:
        _once_each(frames, np.array(identities, np.int64), path)
    return GivenKeypoints(
        frame=frames,
        identity=np.array(identities, np.int64) if named else None,
        box_px=box,
        area_px2=AREA_OF_BOX * (box[:, 2:] - box[:, :2]).prod(1),
        xy_px=points[..., :2].astype(np.float32),
        raw=confidence.astype(np.float32),
        confidence=confidence.astype(np.float32),
        presence=np.ones(confidence.shape, np.float32),
        source="raw",
        pose_model=path.name,
    )


def _once_each(frames: np.ndarray, identities: np.ndarray, path: Path) -> None:
    pairs, count = np.unique(np.stack([frames, identities], 1), axis=0, return_counts=True)
    if (count > 1).any():
        frame, identity = pairs[count > 1][0]
        raise UserError(f"{path} has person {identity} twice in frame {frame}.")


def _from_npz(path: Path) -> GivenKeypoints:
    arrays = read_npz(path)
    missing = {"identity", "first_row", "row_frame", "row_xy_px", "row_confidence", "row_presence", "skeleton"} - set(
        arrays
    )
    if missing:
        raise UserError(f"{path} is not a keypoints.npz of fitmesh: it lacks {', '.join(sorted(missing))}.")
    skeleton = BY_NAME[str(arrays["skeleton"])]
    if skeleton.keypoints[:COUNT] != COCO17.keypoints:
        raise UserError(f"{path} has keypoints of {skeleton.name}; expected COCO's 17 or a set that begins with them.")
    return GivenKeypoints(
        frame=arrays["row_frame"],
        identity=np.repeat(arrays["identity"], np.diff(arrays["first_row"])),
        box_px=arrays["row_box_px"],
        area_px2=arrays["row_area_px2"],
        xy_px=arrays["row_xy_px"][:, :COUNT],
        raw=arrays["row_raw"][:, :COUNT],
        confidence=arrays["row_confidence"][:, :COUNT],
        presence=arrays["row_presence"][:, :COUNT],
        source=cast(ConfidenceSource, str(arrays["source"])),
        pose_model=str(arrays["pose_model"]),
    )


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}.") from error
    except ValueError as error:
        raise UserError(f"{file} is not json: {error}.") from error


def _frame_number(file: Path) -> int:
    match = re.search(r"(\d+)_keypoints\.json$", file.name)
    if match is None:
        raise UserError(f"{file} does not tell its frame: expected a name that ends in a number and _keypoints.json.")
    return int(match[1])
