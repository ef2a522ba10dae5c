"""Define `Result`: what `fitmesh run` found, as `fitmesh.load("out/")` returns it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import fitting
from fitmesh.person import Person, Shot, View
from pose2d.base.caching import content_digest
from pose2d.base.errors import UserError
from pose2d.events import Event

FIT_FILE = "fit.npz"
OVERLAY_FILE = "overlay.mp4"
RUN_FILE = "run.json"
EDITS_FILE = "tracks_edits.json"  # written by `fitmesh tracks`


@dataclass(frozen=True)
class Result:
    """Hold everything that a run found in a clip. Numbers are float32 unless they count."""

    folder: Path  # where it was read from
    people: list[Person]  # by rising identity
    shots: list[Shot]  # in order of time; at least one
    camera: "fitting.Camera"  # of the whole image, in the first frame
    frames: np.ndarray  # [F] numbers of the frames looked at
    time_s: np.ndarray  # [F] when each is shown
    focal_px: np.ndarray  # [F] along x; lenses differ by shot and may zoom
    world_from_camera: np.ndarray  # [F, 4, 4] metres; NaN in shots whose gravity is not known
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
    events: list[Event] = field(default_factory=list)  # in order of time
    views: list[View] = field(
        default_factory=list
    )  # of several cameras, this one first; empty: there is one

    @property
    def size(self) -> tuple[int, int]:
        """Return the width and height of the images in pixels."""
        return self.camera.size

    @property
    def overlay_path(self) -> Path:
        return self.folder / OVERLAY_FILE

    @cached_property
    def body(self) -> "fitting.Body":
        """Return the body that was fitted; it is loaded on first use."""
        if self.body_path is None:
            return fitting.load_body()
        if not self.body_path.is_file():
            raise UserError(
                f"the body file {self.body_path} does not exist any more: restore it, or run again.",
                file=self.body_path,
            )
        if content_digest([self.body_path]) != self.body_digest:
            raise UserError(
                f"{self.body_path} has changed since the fit: restore it, or run again.",
                file=self.body_path,
            )
        return fitting.load_body(self.body_path)

    def person(self, identity: int) -> Person:
        """Return the person with this number."""
        for person in self.people:
            if person.identity == identity:
                return person
        names = ", ".join(str(person.identity) for person in self.people)
        raise UserError(
            f"there is no person {identity} in {self.folder}: there are {names or 'none'}."
        )

    def name_of(self, person: Person) -> str:
        """Return a person's name in files and scenes: as `--names` has it, or person_N."""
        return self._names.get(person.identity, f"person_{person.identity}")

    @cached_property
    def _names(self) -> dict[int, str]:
        from fitmesh.options.people import parse_names

        try:
            return parse_names(self.settings.get("names"))
        except UserError:
            return {}  # run.json is damaged

    def camera_at(self, frame: int) -> "fitting.Camera":
        """Return the camera of one frame number."""
        row = int(np.searchsorted(self.frames, frame))
        if row == len(self.frames) or self.frames[row] != frame:
            raise UserError(f"frame {frame} is not among the frames of {self.folder}.")
        x, y = self.camera.focal_px
        focal = float(self.focal_px[row])
        return replace(self.camera, focal_px=(focal, focal * y / x))

    def shot_at(self, frame: int) -> int:
        """Return the index in `shots` of the shot that a frame number belongs to."""
        return (
            int(np.searchsorted([shot.first_frame for shot in self.shots], frame, side="right")) - 1
        )

    def params(
        self, person: Person, rows: slice | np.ndarray = slice(None)
    ) -> "fitting.BodyParams":
        """Return the body parameters of some rows of a person, as tensors."""
        import torch

        return fitting.BodyParams(
            torch.from_numpy(person.pose_rad[rows]),
            torch.from_numpy(person.shape),
            torch.from_numpy(person.translation_m[rows]),
            torch.tensor(person.size, dtype=torch.float32),
            None if person.hand_pose_rad is None else torch.from_numpy(person.hand_pose_rad[rows]),
            None if np.isnan(person.reading).any() else torch.from_numpy(person.reading),
        )

    def world_std_mm(self, person: Person) -> np.ndarray:
        """Return the expected error [T, 24] in the world frame, mm: that in the camera frame
        combined with gravity's; NaN where one of them is not known.
        """
        lean = (
            np.radians(self.shots[person.shot].up_std_deg)
            if person.world_from_camera is not None
            else np.nan
        )
        return np.hypot(person.joint_std_mm, 1000 * lean * np.linalg.norm(person.joints_m, axis=-1))

    def segments_m(self, person: Person) -> dict[str, tuple[float, float]]:
        """Return the lengths of limbs from joint to joint, each with its standard deviation (NaN:
        unknown), metres.
        """
        from fitting.body.kinematics import SEGMENTS

        covariance = self.params(person).shape.new_tensor(person.shape_covariance)
        lengths, stds = self.body.segments_m(person.shape, list(SEGMENTS.values()), covariance)
        pairs = zip(person.size * lengths, person.size * stds, strict=True)
        return {name: (float(a), float(b)) for name, (a, b) in zip(SEGMENTS, pairs, strict=True)}

    def girths_m(self, person: Person) -> dict[str, tuple[float, float]]:
        """Return the girths of chest, waist, hip and thigh without clothes, metres.

        Each has its standard deviation; NaN: unknown.
        """
        from fitting.body.body import GIRTHS

        covariance = self.params(person).shape.new_tensor(person.shape_covariance)
        lengths, stds = self.body.girths_m(person.shape, covariance)
        return {
            name: (person.size * a, person.size * b)
            for name, a, b in zip(GIRTHS, lengths, stds, strict=True)
        }

    def vertex_std_mm(self, person: Person) -> np.ndarray:
        """Return [V] the standard deviation of each vertex at rest due to the shape, mm; NaN: unknown.

        Without masks girth is only guessed from bones.
        """
        covariance = person.shape_covariance.astype(np.float64)
        directions = self.body.shapedirs[..., : len(covariance)].double().numpy()
        variance = np.einsum("vcs,sr,vcr->v", directions, covariance, directions)
        return 1000 * person.size * np.sqrt(variance.clip(0))

    def vertices(self, person: Person, row: int) -> np.ndarray:
        """Return the mesh [V, 3] of one row, metres in the camera frame; `body.faces` has the faces."""
        posed = self.body.at(self.params(person, np.array([row])), vertices=True)
        assert posed.vertices is not None
        return posed.vertices[0].numpy()
