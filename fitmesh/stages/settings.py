"""The settings of a run as the stages read them, and the job that every stage gets."""

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ccnet.confidence import ConfidenceFunction, confidence_function
from fitmesh.exports import Motion
from fitmesh.inputs import open_clip
from fitmesh.many.sources import folder_names
from fitmesh.options import ranges
from fitmesh.options.run import RunOptions
from fitmesh.stages.scene import AUTO, OFF, Lens, lens_of
from fitmesh.ui.events import Reporter
from fitting.body.body_files import find_body_file
from fitting.body.open_body import OPEN_BODY
from fitting.keypoints.weights import Weighting
from pose2d.base.caching import content_digest
from pose2d.base.errors import OptionError
from pose2d.base.threads import cores
from pose2d.detect.detector import DetectorOptions, PersonDetector, detector_class, load_detector
from pose2d.hands import network as hand_network
from pose2d.models.base import PoseModel
from pose2d.models.loading import load as load_pose_model
from pose2d.tracking.identity import IdentityOptions
from pose2d.tracking.tracker import TrackerOptions
from pose2d.types import ConfidenceSource
from pose2d.video.frames import Clip, Span

CAMERAS_FOLDER = "cameras"  # of the other cameras' files
# Option, expected form, least and most.
HEIGHT = ("height", "metres for all people (1.82) or identity:metres (2:1.25)", 0.4, 2.6)
_FOR_PERSON = re.compile(r"(?:([1-9][0-9]{0,8}):)?([^:]+)")  # 2:1.25 or 1.82
WEIGHT = ("weight", "kilograms for all people (82) or identity:kilograms (2:24)", 4.0, 300.0)


@dataclass(frozen=True, kw_only=True)
class RunSettings(RunOptions):
    """The options of a run with paths as `Path` and with defaults that depend on others resolved."""

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
        lens_options = {
            "--focal": self.focal_px,
            "--fov": self.fov_deg,
            "--intrinsics": self.intrinsics,
        }
        conflicting = [option for option, value in lens_options.items() if value is not None]
        if len(conflicting) > 1:
            ways = {2: "two", 3: "three"}[len(conflicting)]
            raise OptionError(
                f"{' and '.join(conflicting)} say the same thing in {ways} ways: give one of them."
            )
        self.heights()  # refuses what cannot be read
        self.weights()

    @property
    def span(self) -> Span:
        return Span(self.start_s, self.end_s, self.every)

    @property
    def detector_options(self) -> DetectorOptions:
        defaults = detector_class(self.detector).defaults
        if self.detector_size is None:
            return defaults
        return replace(defaults, long_side=self.detector_size)

    @property
    def tracker(self) -> TrackerOptions:
        defaults = TrackerOptions()
        start_score = min(self.min_score, defaults.start_score)
        return replace(defaults, sure_score=self.min_score, start_score=start_score)

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
        """Return body heights in metres by identity; None applies to everyone else."""
        return _parse_by_person(self.height_m, *HEIGHT)

    def weights(self) -> dict[int | None, float]:
        """Return body weights in kilograms by identity; None applies to everyone else."""
        return _parse_by_person(self.weight_kg, *WEIGHT)

    @property
    def rig_file(self) -> Path | None:
        """Return the calibration of several cameras; None: cameras are placed by the people."""
        return None if self.cameras in (None, AUTO) else Path(self.cameras)

    @property
    def camera_name_list(self) -> list[str]:
        """Return the calibration's name of each video's camera; empty: not stated."""
        return [] if self.camera_names is None else self.camera_names.split(",")

    def offsets_s(self) -> list[float | None]:
        """Return the offset of each camera's clock to the first's; None: to be found."""
        count = 1 + len(self.videos)
        if self.sync in (AUTO, "start"):
            return [0.0, *(None if self.sync == AUTO else 0.0 for _ in self.videos)]
        try:
            starts_s = [float(text) for text in self.sync.split(",")]
        except ValueError:
            starts_s = []
        if len(starts_s) != count or any(map(ranges.SYNC_S.problem, starts_s)):
            raise OptionError(
                f"--sync must be auto, start or {count} comma-separated times in seconds, "
                f"{ranges.SYNC_S} (0,0.35: the second camera started 0.35 s after the first); got "
                f"{self.sync[:80]!r}."
            )
        return [seconds - starts_s[0] for seconds in starts_s]

    @property
    def motion(self) -> Motion:
        """Return how exports of motion resample, smooth and select frames."""
        return Motion(
            self.export_fps,
            self.smooth,
            self.filter,
            self.in_place,
            self.keep_reliable,
            self.reliable_mm,
            self.plant_feet,
        )

    @property
    def only_people(self) -> bool:
        return bool(self.outputs) and "fit" not in self.outputs

    @property
    def workers(self) -> int:
        """Return the number of threads that run networks; one keeps another device busy."""
        return (self.threads or cores()) if self.device == "cpu" else 1


def _parse_by_person(
    text: str, name: str, words: str, low: float, high: float
) -> dict[int | None, float]:
    """Return numbers by identity from `1.82,2:1.25`; None applies to everyone else."""
    by_identity: dict[int | None, float] = {}
    for part in (item.strip() for item in text.split(",")):
        if not part:
            continue
        match = _FOR_PERSON.fullmatch(part)
        value = _to_number(match[2]) if match else math.nan
        if match is None or not low <= value <= high:
            raise OptionError(
                f"--{name} must be {words}, between {low} and {high}, with commas between several "
                f"(identities count from 1); got {part[:80]!r}."
            )
        identity = int(match[1]) if match[1] else None
        if identity in by_identity:
            raise OptionError(f"--{name} states the same person twice: {text[:80]!r}.")
        by_identity[identity] = value
    return by_identity


def _to_number(text: str) -> float:
    """Return the number that text states, NaN if it states none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class NetworkLoader:
    """Loads the networks that the settings name, once for all jobs."""

    settings: RunSettings

    @cached_property
    def networks(self) -> tuple[PoseModel, ConfidenceFunction]:
        """Return the pose network and the function that gives its keypoints confidence."""
        settings = self.settings
        model = load_pose_model(settings.pose_model, settings.checkpoint).to(settings.device)
        confidence = confidence_function(
            settings.confidence, settings.pose_model, model, settings.ccnet
        )
        return model, confidence

    @cached_property
    def detector(self) -> PersonDetector:
        settings = self.settings
        options = settings.detector_options
        # The tracker also uses boxes whose score is too low to start a person.
        threshold = min(options.score_threshold, settings.tracker.doubtful_score)
        options = replace(options, score_threshold=threshold)
        return load_detector(settings.detector, options).to(settings.device)

    def release(self) -> None:
        """Forget the networks, so that their memory is free; they are loaded again when asked for."""
        for name in ("networks", "detector"):
            vars(self).pop(name, None)
        hand_network.cache_clear()


@dataclass(frozen=True)
class Job:
    """One run, the argument of every stage. Stages read each other's files in `out`."""

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
        """Return the jobs of the other cameras of the scene, each in a folder of its own."""
        videos = self.settings.videos
        settings = replace(self.settings, videos=())
        names = folder_names([str(self.clip.path), *map(str, videos)])[1:]
        folder = self.out / CAMERAS_FOLDER
        return [
            Job(open_clip(video), settings, folder / name, self.reporter, self.loader)
            for name, video in zip(names, videos, strict=True)
        ]

    @cached_property
    def lens(self) -> Lens:
        """Return what is known of the lens before the fit."""
        settings = self.settings
        info = self.clip.info
        return lens_of(
            self.clip.files()[0],
            (info.width_px, info.height_px),
            settings.focal_px,
            settings.fov_deg,
            settings.intrinsics,
        )

    @cached_property
    def clip_digest(self) -> str:
        return content_digest(self.clip.files())
