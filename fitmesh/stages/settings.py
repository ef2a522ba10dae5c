"""Everything a run can be told, as the stages read it, and the job that every stage is given."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ccnet.confidence import ConfidenceFunction, confidence_function
from fitmesh.exports import Motion
from fitmesh.inputs import open_clip
from fitmesh.options.run import RunOptions
from fitmesh.stages.scene import SceneSettings
from fitmesh.ui.events import Reporter
from fitting.body.load import OPEN_BODY, find_body_file
from fitting.keypoints.weights import Weighting
from pose2d.base.caching import content_digest
from pose2d.base.errors import UserError
from pose2d.base.threads import Background, cores
from pose2d.detect.detector import DetectorOptions, PersonDetector, detector_class, load_detector
from pose2d.models.base import PoseModel
from pose2d.models.base import load as load_pose_model
from pose2d.tracking.identity import IdentityOptions
from pose2d.tracking.tracker import TrackerOptions
from pose2d.types import ConfidenceSource
from pose2d.video.frames import Clip, Span

T = TypeVar("T")
CAMERAS_FOLDER = "cameras"  # of the other cameras' files


@dataclass(frozen=True)
class TrackSettings:
    """Who to look for, and where."""

    detections: Path | None = None  # COCO-detections json; None: the embedded detector
    whole_image: bool = False  # one box around everything instead
    detector: str = RunOptions.detector
    detector_options: DetectorOptions = field(default_factory=lambda: detector_class(RunOptions.detector).defaults)
    tracker: TrackerOptions = field(default_factory=TrackerOptions)
    max_people: int | None = None  # only those seen in the most frames
    identity: IdentityOptions = field(default_factory=IdentityOptions)

    @property
    def search_options(self) -> DetectorOptions:
        """The tracker has a use for boxes too doubtful to start a person."""
        threshold = min(self.detector_options.score_threshold, self.tracker.doubtful_score)
        return replace(self.detector_options, score_threshold=threshold)


@dataclass(frozen=True)
class KeypointSettings:
    """Which network finds the keypoints, and where their confidence comes from."""

    pose_model: str = RunOptions.pose_model
    checkpoint: Path | None = None
    confidence: ConfidenceSource = "ccnet"
    ccnet: Path | None = None  # a calibration head other than the embedded one
    plugin: Path | None = None  # a file that registers `pose_model`
    hands: bool = True  # whether hands are looked for
    masks: bool = RunOptions.shape == "masks"  # whether outlines of people are looked for


@dataclass(frozen=True)
class FitSettings:
    """Which body, weighted how, in which scene."""

    body_model: Path | None = None  # file or folder; None: the open body
    weighting: Weighting = RunOptions.weighting  # type: ignore[assignment]
    init: str = RunOptions.init  # where the optimisation starts
    init_checkpoint: Path | None = None  # weights of an initialiser that ships none
    scene: SceneSettings = field(default_factory=SceneSettings)

    @property
    def body_file(self) -> Path:
        return OPEN_BODY if self.body_model is None else find_body_file(self.body_model, "neutral")


@dataclass(frozen=True)
class RigSettings:
    """The other cameras of a scene that several recorded."""

    videos: tuple[Path, ...]
    cameras: str  # a calibration file or folder, or "auto"
    sync: str = RunOptions.sync  # "auto", "start", or seconds with commas between

    @property
    def file(self) -> Path | None:
        """The calibration; None: found from the people."""
        return None if self.cameras == "auto" else Path(self.cameras)

    def offsets_s(self) -> list[float | None]:
        """What each camera's clock lacks to the first's, of all cameras; None: to be found."""
        count = 1 + len(self.videos)
        if self.sync in ("auto", "start"):
            return [0.0, *(None if self.sync == "auto" else 0.0 for _ in self.videos)]
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


@dataclass(frozen=True)
class RunSettings:
    """Everything a run can be told."""

    span: Span = field(default_factory=Span)
    tracks: TrackSettings = field(default_factory=TrackSettings)
    keypoints: KeypointSettings = field(default_factory=KeypointSettings)
    given_keypoints: Path | None = None  # instead of finding people and their keypoints
    keypoint_layout: str = RunOptions.keypoint_layout  # of given keypoints, where their number does not tell
    fit: FitSettings = field(default_factory=FitSettings)
    rig: RigSettings | None = None  # of several cameras
    exports: tuple[str, ...] = ()  # besides those that are always made
    bone_names: str = RunOptions.bone_names  # of the skeletons in glb, fbx and bvh
    motion: Motion = field(default_factory=Motion)  # of the exports of motion
    outputs: tuple[str, ...] = ()  # empty: everything; else the last stage and no more, with the exports
    device: str = "cpu"  # where the networks run; the same numbers come out
    threads: int | None = None  # None: as many as there are cores
    overwrite: bool = False  # make every file anew

    @property
    def only_people(self) -> bool:
        return bool(self.outputs) and "fit" not in self.outputs

    @property
    def workers(self) -> int:
        """Threads that run networks side by side; on another device one is enough to keep it busy."""
        return (self.threads or cores()) if self.device == "cpu" else 1


@dataclass(frozen=True)
class Networks:
    """What reads a crop: loaded once, in the background, while the first frames are decoded."""

    pose: PoseModel
    confidence: ConfidenceFunction


class Cached(Background[T]):
    """Stays in memory after its first user, for the next one."""

    def let_go(self) -> None:
        pass


@dataclass(frozen=True)
class NetworkLoader:
    """Loads what the settings name. One loader for several jobs of the same settings loads once."""

    settings: RunSettings
    background: type[Background[Any]] = Cached

    @cached_property
    def networks(self) -> Background[Networks]:
        return self.background(self._networks)

    @cached_property
    def detector(self) -> Background[PersonDetector]:
        tracks, device = self.settings.tracks, self.settings.device
        return self.background(lambda: load_detector(tracks.detector, tracks.search_options).to(device))

    def _networks(self) -> Networks:
        wanted = self.settings.keypoints
        model = load_pose_model(wanted.pose_model, wanted.checkpoint).to(self.settings.device)
        return Networks(model, confidence_function(wanted.confidence, wanted.pose_model, model, wanted.ccnet))


def camera_names(videos: Sequence[Path]) -> list[str]:
    """A name for each camera: its video's, with its folder's or a number before it where two are alike."""
    names = [path.stem for path in videos]
    if len(set(names)) < len(names):
        names = [f"{path.resolve().parent.name}_{path.stem}" for path in videos]
    if len(set(names)) < len(names):
        names = [f"{number}_{name}" for number, name in enumerate(names, 1)]
    return names


@dataclass(frozen=True)
class Job:
    """One run: what every stage is given. Stages read each other's files in `out`."""

    clip: Clip
    settings: RunSettings
    out: Path
    reporter: Reporter
    loader: NetworkLoader | None = None  # shared with other jobs; None: networks are let go when their stage is done

    @cached_property
    def cameras(self) -> list["Job"]:
        """Of the other cameras that recorded the scene, each in a folder of its own."""
        rig = self.settings.rig
        names = camera_names([self.clip.path, *rig.videos])[1:] if rig else []
        alone = replace(self.settings, rig=None)
        loader = self.loader or NetworkLoader(alone)
        return [
            Job(open_clip(video), alone, self.out / CAMERAS_FOLDER / name, self.reporter, loader)
            for name, video in zip(names, rig.videos if rig else (), strict=True)
        ]

    @cached_property
    def clip_digest(self) -> str:
        return content_digest(self.clip.files())

    @cached_property
    def _loads(self) -> NetworkLoader:
        return self.loader or NetworkLoader(self.settings, Background)

    @property
    def networks(self) -> Background[Networks]:
        return self._loads.networks

    @property
    def detector(self) -> Background[PersonDetector]:
        return self._loads.detector

    @cached_property
    def renderer(self) -> Background[None]:
        """Compiled, which takes seconds after installing, while the people are looked for."""

        def compiled() -> None:
            from fitting.render.draw import compile_renderer  # brings numba with it

            compile_renderer()

        return Background(compiled)
