"""What a fit of everyone in a shot is made from and returns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fitting.body import BodyParams
from fitting.camera import Camera
from fitting.camera.focal import FocalEstimate
from fitting.fits import DEFAULTS, FitOptions, InitialGuess, OtherView, TrackFit
from fitting.keypoints.usable import TooFewKeypoints
from fitting.scene.ground_problem import GivenGround, GroundEstimate
from pose2d.types import HandKeypoints, Keypoints, Outlines
from pose2d.video.camera_motion.motion import CameraMotion

Verdict = Literal["used", "softened", "dropped", "not known"]


@dataclass(frozen=True)
class ShotPerson:
    """One person's keypoints in a shot, and what is known of the person."""

    identity: int
    keypoints: Keypoints  # [N]
    frame: np.ndarray  # [N] increasing frame numbers
    init: str | BodyParams | InitialGuess = "lifter"
    height_m: float | None = None  # None: not known
    hands: HandKeypoints | None = None  # [N]; None: hands were not looked for
    outlines: Outlines | None = None  # of some of the N rows
    weight_kg: float | None = None  # None: not known
    # With several cameras: rows without gaps, NaN where this camera does not show the person, and
    # what the other cameras show.
    other_views: tuple[OtherView, ...] = ()

    @property
    def has_outlines(self) -> bool:
        return self.outlines is not None and len(self.outlines) > 0


def ignore_progress(frames: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class SceneOptions:
    """How everyone is fitted, and what is looked for besides the bodies."""

    ground: bool = True  # gravity, floor, sizes and contacts; without, everyone is fitted alone
    user_ground: GivenGround = field(default_factory=GivenGround)  # what the user states of them
    fit: FitOptions = DEFAULTS  # of every person
    progress: Callable[[int], None] = ignore_progress  # called with numbers of fitted frames


@dataclass(frozen=True)
class SceneDecision:
    """Whether one person is fitted within the scene."""

    verdict: Verdict
    misfit: float  # mean reprojection error with the scene divided by that without it


@dataclass(frozen=True)
class ShotFit:
    """Everyone in a shot, and the scene. Dictionaries are by identity."""

    people: dict[int, TrackFit]  # camera frame, metres, with the person's size, and contacts
    left_out: dict[int, TooFewKeypoints]  # who never shows enough to be fitted, and what is missing
    camera: Camera  # of the first frame
    focal: FocalEstimate  # of the first frame
    motion: CameraMotion | None  # under that focal length; None: was not looked for
    ground: GroundEstimate | None  # None: not known
    reason: str  # what the ground rests on, or why it is not known
    decisions: dict[int, SceneDecision] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # where what the user states contradicts the images
    masks: dict[int, int] = field(default_factory=dict)  # how many the shape was estimated from

    def uses_scene(self, identity: int) -> bool:
        """Return whether this person was fitted within the scene."""
        decision = self.decisions.get(identity)
        if self.ground is None or decision is None:
            return False
        return decision.verdict in ("used", "softened")

    @property
    def verdict(self) -> Verdict:
        """Return whether the scene as a whole was used."""
        if self.ground is None:
            return "dropped" if self.decisions else "not known"
        used_by_all = all(decision.verdict == "used" for decision in self.decisions.values())
        return "used" if used_by_all else "softened"
