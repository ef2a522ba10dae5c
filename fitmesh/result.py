"""What `fitmesh run` found, read back: `fitmesh.load("out/")`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import fitting
from fitting.thresholds import OBSERVED_CONFIDENCE
from pose2d.base.caching import content_digest, read_npz
from pose2d.base.errors import UserError

SCHEMA_VERSION = 2
FIT_FILE, OVERLAY_FILE, RUN_FILE = "fit.npz", "overlay.mp4", "run.json"


@dataclass(frozen=True)
class Person:
    """One identity over the T frames in which the person is there: seen, or filled in over at most half a second.

    `frame` may have gaps: no row means that the person is absent.
    Camera frame: x right, y down, z forward. Pixels: x right, y down, (0, 0) is the centre of the top left pixel.
    Keypoints in Halpe-26's order (COCO's 17 first), joints in SMPL's (`fitting.body.kinematics`).
    """

    identity: int
    frame: np.ndarray  # [T] frame numbers in the clip
    time_s: np.ndarray  # [T] when each is shown
    observed: np.ndarray  # [T] bool; false: too little was seen, filled in from the frames around
    pose_rad: np.ndarray  # [T, 24, 3] axis-angle, each joint relative to its parent; joint 0 turns the body
    translation_m: np.ndarray  # [T, 3] added to every point, camera frame
    shape: np.ndarray  # [S] standard deviations, one shape for all frames
    joints_m: np.ndarray  # [T, 24, 3] camera frame
    joint_std_mm: np.ndarray  # [T, 24] error to expect (length of the standard deviations along x, y, z); NaN: unknown
    joint_std_relative_mm: np.ndarray  # [T, 24] the same relative to the pelvis
    joint_observed: np.ndarray  # [T, 24] bool; a confident keypoint lies at the joint or farther out on its limb
    keypoints_px: np.ndarray  # [T, 26, 2] as the 2D network saw them, NaN in frames without a detection
    swapped: np.ndarray  # [T, 26] bool; the network had called it by the name of the other side
    confidence: np.ndarray  # [T, 26] in 0..1, from `Result.source`
    presence: np.ndarray  # [T, 26] probability that the keypoint is in the image
    raw: np.ndarray  # [T, 26] the 2D network's own confidence
    used: np.ndarray  # [T, 26] bool, keypoints that pulled on the body
    reprojection_px: np.ndarray  # [T, 26] distance of the body's keypoint to the seen one, NaN where it did not pull
    box_px: np.ndarray  # [T, 4] x1, y1, x2, y2, NaN in frames without a detection
    converged: np.ndarray  # [T] bool
    stopped: str  # why the search ended

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def confident(self) -> np.ndarray:
        """[T, 26] bool: keypoints that pulled and whose confidence times presence is at least OBSERVED_CONFIDENCE."""
        return self.used & (self.confidence * self.presence >= OBSERVED_CONFIDENCE)


@dataclass(frozen=True)
class Result:
    """Everyone in a clip. Numbers are float32 unless they count something."""

    folder: Path  # where it was read from
    people: list[Person]  # by rising identity
    camera: fitting.Camera  # of the whole image
    frames: np.ndarray  # [F] numbers of the frames looked at
    time_s: np.ndarray  # [F] when each is shown
    rate: Fraction  # frames per second of the clip
    body_name: str  # "open", or the name of the body file
    body_path: Path | None  # None: the open body that ships with fitmesh
    body_digest: str  # SHA-256 of the body file
    weighting: str  # how confidence became weight
    init: str  # what the search started from
    source: str  # where confidence comes from: ccnet, closed-form, raw or ones
    pose_model: str  # the 2D network
    clip_path: Path | None  # the video, image or folder of images, if the folder knows it
    settings: Mapping[str, Any]  # the run's options by name
    timings_s: Mapping[str, float]  # seconds per stage, of the run that made it

    @property
    def size(self) -> tuple[int, int]:
        """Width, height of the images in pixels."""
        return self.camera.size

    @property
    def overlay_path(self) -> Path:
        return self.folder / OVERLAY_FILE

    @cached_property
    def body(self) -> fitting.Body:
        """The body that was fitted; read when first asked for."""
        if self.body_path is None:
            return fitting.load_body()
        if not self.body_path.is_file():
            raise UserError(f"the body file {self.body_path} is no longer there: put it back, or run again.")
        if content_digest([self.body_path]) != self.body_digest:
            raise UserError(f"{self.body_path} is not the body that was fitted any more: put it back, or run again.")
        return fitting.load_body(self.body_path)

    def person(self, identity: int) -> Person:
        for person in self.people:
            if person.identity == identity:
                return person
        names = ", ".join(str(person.identity) for person in self.people)
        raise UserError(f"there is no person {identity} in {self.folder}: there are {names or 'none'}.")

    def params(self, person: Person, rows: slice | np.ndarray = slice(None)) -> fitting.BodyParams:
        """Of some rows of a person, as tensors."""
        import torch

        return fitting.BodyParams(
            torch.from_numpy(person.pose_rad[rows]),
            torch.from_numpy(person.shape),
            torch.from_numpy(person.translation_m[rows]),
        )

    def vertices(self, person: Person, row: int) -> np.ndarray:
        """The mesh [V, 3] in metres, camera frame, of one row; faces are `body.faces`."""
        posed = self.body.at(self.params(person, slice(row, row + 1) if row != -1 else slice(row, None)), vertices=True)
        assert posed.vertices is not None
        return posed.vertices[0].numpy()


def load(folder: str | Path) -> Result:
    """What a run left in `folder`."""
    folder = Path(folder)
    if folder.is_file() and folder.name == FIT_FILE:
        folder = folder.parent
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder of results. Give the --out folder of `fitmesh run`.")
    arrays = read_npz(folder / FIT_FILE)
    version = int(arrays.get("schema_version", 0))
    if version != SCHEMA_VERSION:
        raise UserError(
            f"{folder / FIT_FILE} has schema {version}, and this fitmesh reads {SCHEMA_VERSION}: "
            "make it anew with `fitmesh run`."
        )
    about = _about(folder)
    body_path = str(arrays["body_path"])
    return Result(
        folder=folder,
        people=_people(arrays),
        camera=fitting.Camera(
            (float(arrays["focal_px"][0]), float(arrays["focal_px"][1])),
            (float(arrays["center_px"][0]), float(arrays["center_px"][1])),
            (int(arrays["width_px"]), int(arrays["height_px"])),
        ),
        frames=arrays["frame"],
        time_s=arrays["time_s"],
        rate=Fraction(*map(int, arrays["rate"])),
        body_name=str(arrays["body"]),
        body_path=Path(body_path) if body_path else None,
        body_digest=str(arrays["body_digest"]),
        weighting=str(arrays["weighting"]),
        init=str(arrays["init"]),
        source=str(arrays["source"]),
        pose_model=str(arrays["pose_model"]),
        clip_path=Path(about["clip"]) if about.get("clip") else None,
        settings=about.get("settings", {}),
        timings_s=about.get("timings_s", {}),
    )


def _people(arrays: Mapping[str, np.ndarray]) -> list[Person]:
    first = arrays["first_row"]
    times = dict(zip(arrays["frame"].tolist(), arrays["time_s"].tolist(), strict=True))
    people = []
    for number, (a, b) in enumerate(pairwise(first.tolist())):
        rows = {name.removeprefix("row_"): arrays[name][a:b] for name in arrays if name.startswith("row_")}
        people.append(
            Person(
                identity=int(arrays["identity"][number]),
                time_s=np.array([times[frame] for frame in rows["frame"].tolist()]),
                shape=arrays["shape"][number],
                stopped=str(arrays["stopped"][number]),
                **rows,
            )
        )
    return people


def _about(folder: Path) -> Mapping[str, Any]:
    """What the run said of itself; the fit can be read without it."""
    try:
        return json.loads((folder / RUN_FILE).read_text())
    except (OSError, ValueError):
        return {}
