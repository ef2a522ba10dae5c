"""Everything a run can be told, as the stages read it, and the job that every stage is given."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ccnet.confidence import ConfidenceFunction, confidence_function
from fitmesh.exports import Motion
from fitmesh.inputs import names_of, open_clip
from fitmesh.options.run import RunOptions
from fitmesh.stages.scene import AUTO, OFF, Lens, lens_of
from fitmesh.ui.events import Reporter
from fitting.body.body_files import find_body_file
from fitting.body.open_body import OPEN_BODY
from fitting.keypoints.weights import Weighting
from pose2d.base.caching import content_digest
from pose2d.base.errors import UserError
from pose2d.base.threads import cores
from pose2d.detect.detector import DetectorOptions, PersonDetector, detector_class, load_detector
from pose2d.models.base import PoseModel
from pose2d.models.loading import load as load_pose_model
from pose2d.tracking.identity import IdentityOptions
from pose2d.tracking.tracker import TrackerOptions
from pose2d.types import ConfidenceSource
from pose2d.video.frames import Clip, Span

CAMERAS_FOLDER = "cameras"  # of the other cameras' files
HEIGHT = (
    "height",
    "metres for everybody (1.82) or identity:metres (2:1.25)",
    0.4,
    2.6,
)  # of people, least and most
WEIGHT = ("weight", "kilograms for everybody (82) or identity:kilograms (2:24)", 4.0, 300.0)


@dataclass(frozen=True, kw_only=True)
class RunSettings(RunOptions):
    """The options of a run: paths are paths, what was left open is decided, and what stages make of
    them.
    """

    detections: Path | None = None
    checkpoint: Path | None = None
    plugin: Path | None = None
    ccnet: Path | None = None
    keypoints: Path | None = None
    body_model: Path | None = None
    init_checkpoint: Path | None = None
    intrinsics: Path | None = None
    floor: str = AUTO
    height_m: str = ""  # as on the command line
    weight_kg: str = ""
    exports: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    confidence: ConfidenceSource = "ccnet"
    weighting: Weighting = RunOptions.weighting  # type: ignore[assignment]
    device: str = "cpu"  # where the networks run; the same numbers come out
    videos: tuple[Path, ...] = ()  # of the other cameras of a scene that several recorded

    def __post_init__(self) -> None:
        given = [
            n
            for n, v in (
                ("--focal", self.focal_px),
                ("--fov", self.fov_deg),
                ("--intrinsics", self.intrinsics),
            )
            if v is not None
        ]
        if len(given) > 1:
            ways = {2: "two", 3: "three"}[len(given)]
            raise UserError(
                f"{' and '.join(given)} say the same thing in {ways} ways: give one of them."
            )
        self.heights()  # refuses what cannot be read
        self.weights()

    @property
    def span(self) -> Span:
        return Span(self.start_s, self.end_s, self.every)

    @property
    def detector_options(self) -> DetectorOptions:
        usual = detector_class(self.detector).defaults
        return usual if self.detector_size is None else replace(usual, long_side=self.detector_size)

    @property
    def tracker(self) -> TrackerOptions:
        usual = TrackerOptions()
        return replace(
            usual, sure_score=self.min_score, start_score=min(self.min_score, usual.start_score)
        )

    @property
    def identity(self) -> IdentityOptions:
        return IdentityOptions(relink=self.relink)

    @property
    def body_file(self) -> Path:
        return OPEN_BODY if self.body_model is None else find_body_file(self.body_model, "neutral")

    @property
    def floor_file(self) -> Path | None:
        return None if self.floor in (OFF, AUTO) else Path(self.floor)

    def heights(self) -> dict[int | None, float]:
        """Metres by identity; None: everybody else's."""
        return _of_people(self.height_m, *HEIGHT)

    def weights(self) -> dict[int | None, float]:
        """Kilograms, likewise."""
        return _of_people(self.weight_kg, *WEIGHT)

    @property
    def rig_file(self) -> Path | None:
        """The calibration of several cameras; None: found from the people."""
        return None if self.cameras in (None, AUTO) else Path(self.cameras)

    def offsets_s(self) -> list[float | None]:
        """What each camera's clock lacks to the first's, of all cameras; None: to be found."""
        count = 1 + len(self.videos)
        if self.sync in (AUTO, "start"):
            return [0.0, *(None if self.sync == AUTO else 0.0 for _ in self.videos)]
        try:
            stated = [float(text) for text in self.sync.split(",")]
        except ValueError:
            stated = []
        if len(stated) != count or not all(map(math.isfinite, stated)):
            raise UserError(
                f"--sync {self.sync!r} is none: give auto, start, or a second for each of the {count} cameras with "
                "commas between (0,0.35: the second started 0.35 s after the first)."
            )
        return [seconds - stated[0] for seconds in stated]

    @property
    def motion(self) -> Motion:
        """Of the exports of motion."""
        return Motion(
            self.export_fps, self.smooth, self.in_place, self.keep_reliable, self.reliable_mm
        )

    @property
    def only_people(self) -> bool:
        return bool(self.outputs) and "fit" not in self.outputs

    @property
    def workers(self) -> int:
        """Threads that run networks side by side; on another device one is enough to keep it busy."""
        return (self.threads or cores()) if self.device == "cpu" else 1


def _of_people(
    given: str, name: str, words: str, low: float, high: float
) -> dict[int | None, float]:
    """By identity; None: everybody else's."""
    by_identity: dict[int | None, float] = {}
    for part in (text.strip() for text in given.split(",")):
        if not part:
            continue
        who, _, number = part.rpartition(":")
        try:
            identity = int(who) if who else None
            value = float(number)
        except ValueError:
            identity = None
            value = math.nan
        if not low <= value <= high:
            raise UserError(
                f"--{name} {part!r} is no {name}: give {words}, between {low} and {high}, commas between several."
            )
        by_identity[identity] = value
    return by_identity


@dataclass(frozen=True)
class NetworkLoader:
    """Loads what the settings name, once for all jobs of them."""

    settings: RunSettings

    @cached_property
    def networks(self) -> tuple[PoseModel, ConfidenceFunction]:
        """What reads a crop."""
        wanted = self.settings
        model = load_pose_model(wanted.pose_model, wanted.checkpoint).to(wanted.device)
        return model, confidence_function(wanted.confidence, wanted.pose_model, model, wanted.ccnet)

    @cached_property
    def detector(self) -> PersonDetector:
        settings = self.settings
        options = self.settings.detector_options
        # The tracker has a use for boxes too doubtful to start a person.
        options = replace(
            options, score_threshold=min(options.score_threshold, settings.tracker.doubtful_score)
        )
        return load_detector(settings.detector, options).to(settings.device)


@dataclass(frozen=True)
class Job:
    """One run: what every stage is given. Stages read each other's files in `out`."""

    clip: Clip
    settings: RunSettings
    out: Path
    reporter: Reporter
    shared_loader: NetworkLoader | None = None  # with other jobs of the same settings

    @cached_property
    def loader(self) -> NetworkLoader:
        return self.shared_loader or NetworkLoader(self.settings)

    @cached_property
    def cameras(self) -> list["Job"]:
        """Of the other cameras that recorded the scene, each in a folder of its own."""
        videos = self.settings.videos
        alone = replace(self.settings, videos=())
        return [
            Job(
                open_clip(video),
                alone,
                self.out / CAMERAS_FOLDER / name,
                self.reporter,
                self.loader,
            )
            for name, video in zip(
                names_of([str(self.clip.path), *map(str, videos)])[1:], videos, strict=True
            )
        ]

    @cached_property
    def lens(self) -> Lens:
        """Before anybody was fitted."""
        told = self.settings
        info = self.clip.info
        size = (info.width_px, info.height_px)
        return lens_of(self.clip.files()[0], size, told.focal_px, told.fov_deg, told.intrinsics)

    @cached_property
    def clip_digest(self) -> str:
        return content_digest(self.clip.files())
