"""Stage 3: keypoints and trust -> a body per person and frame, in `fit.npz`."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fitting
from fitmesh.progress import Reporter
from fitmesh.result import FIT_FILE, SCHEMA_VERSION
from fitmesh.stages import keypoints, tracks
from fitmesh.stages import regressors as regress
from fitting.body.folder import find_body_file
from fitting.body.load import OPEN_BODY
from fitting.fit import INITIALISERS
from fitting.keypoints.joint_observed import supported_joints
from fitting.keypoints.observed import body_keypoints
from fitting.keypoints.side_swap import untangled
from fitting.keypoints.weights import WEIGHTINGS, Weighting
from fitting.long_track import fit_track, seen_frames
from pose2d.base.caching import CacheKey, content_digest, npz_is_current, write_npz
from pose2d.base.errors import UserError
from pose2d.base.threads import single_thread
from pose2d.io.clip import Clip, Span
from pose2d.skeletons import COCO17
from pose2d.types import Keypoints

FILE = FIT_FILE
KEYPOINTS = 17  # COCO's, with which every set that can be fitted begins


@dataclass(frozen=True)
class FitSettings:
    """Which body, seen through which lens, pulled how."""

    body_model: Path | None = None  # file or folder; None: the open body
    weighting: Weighting = "precision"
    init: str = "none"  # what the search starts from
    init_checkpoint: Path | None = None  # weights of an initialiser that ships none
    focal_px: float | None = None
    fov_deg: float | None = None  # across the image's width

    def __post_init__(self) -> None:
        if self.focal_px is not None and self.fov_deg is not None:
            raise UserError("--focal and --fov say the same thing in two ways: give one of them.")

    def check(self, size: tuple[int, int]) -> None:
        """Refuse now what would be refused after the keypoints were read."""
        self.camera(size)
        fitting.load_body(self.body_file)
        if self.weighting not in WEIGHTINGS:
            raise UserError(f"unknown --weighting {self.weighting!r}: choose {', '.join(WEIGHTINGS)}.")
        known = ("none", *INITIALISERS, *regress.NAMES)
        if self.init not in known:
            raise UserError(f"unknown --init {self.init!r}: choose {', '.join(known)}.")
        if self.reads_pixels:
            if self.init_checkpoint is None:
                raise UserError(f"--init {self.init} ships no weights: pass --init-checkpoint (docs/initialisers.md).")
            regress.load(self.init, self.init_checkpoint)
        elif self.init_checkpoint is not None:
            raise UserError(f"--init-checkpoint has no effect with --init {self.init}: leave one of them out.")

    @property
    def reads_pixels(self) -> bool:
        return self.init in regress.NAMES

    @property
    def body_file(self) -> Path:
        return OPEN_BODY if self.body_model is None else find_body_file(self.body_model, "neutral")

    def camera(self, size: tuple[int, int]) -> fitting.Camera:
        """For images of (width, height) pixels; CLIFF's focal length, the diagonal, when none is known."""
        if self.focal_px is not None:
            return fitting.Camera.from_focal(self.focal_px, size)
        if self.fov_deg is not None:
            return fitting.Camera.from_field_of_view(self.fov_deg, size, across="width")
        return fitting.Camera.default(size)


@dataclass(frozen=True)
class _Seen:
    """A person's rows of `keypoints.npz`, spread over every frame looked at from the first to the last."""

    identity: int
    frames: np.ndarray  # [T] frame numbers
    known: Keypoints  # presence 0 and pixels NaN in frames without a detection
    swapped: np.ndarray  # [T, 17] where sides were put back
    raw: np.ndarray  # [T, 17]
    boxes_px: np.ndarray  # [T, 4], NaN in frames without a detection


def best_init() -> str:
    """The embedded initialiser, where there is one."""
    return "lifter" if "lifter" in INITIALISERS else "none"


def cache_key(clip_digest: str, keypoints_key: CacheKey, settings: FitSettings) -> CacheKey:
    inputs = {
        "keypoints": keypoints_key.digest,
        "body": content_digest([settings.body_file]),
        "prior": content_digest([OPEN_BODY.with_name("pose_prior.npz")]),
    }
    if settings.init == "lifter":
        inputs["init"] = content_digest([OPEN_BODY.with_name("lifter.npz")])
    if settings.init_checkpoint is not None:
        inputs |= {"clip": clip_digest, "init": content_digest([settings.init_checkpoint])}
    return CacheKey(
        stage="fit",
        settings={
            "schema": SCHEMA_VERSION,
            "weighting": settings.weighting,
            "init": settings.init,
            "focal_px": settings.focal_px,
            "fov_deg": settings.fov_deg,
        },
        inputs=inputs,
    )


def make(
    clip: Clip,
    span: Span,
    tracks_file: Path,
    keypoints_file: Path,
    path: Path,
    key: CacheKey,
    settings: FitSettings,
    reporter: Reporter,
) -> None:
    """Fit everyone in `keypoints_file` and write the bodies. Only some initialisers look at the clip."""
    known, read = tracks.read(tracks_file), keypoints.read(keypoints_file)
    camera = settings.camera((known.width_px, known.height_px))
    body = fitting.load_body(settings.body_file)
    fps = _frames_per_second(known)
    everyone = [_spread(read, identity, known.frames, fps) for identity in read.people]
    for person in everyone:
        if not bool(seen_frames(person.known, settings.weighting).any()):
            reporter.warn(f"person {person.identity} never shows enough trusted keypoints at once: no body is fitted.")
    everyone = [p for p in everyone if bool(seen_frames(p.known, settings.weighting).any())]
    starts: Mapping[int, str | fitting.BodyParams] = {person.identity: settings.init for person in everyone}
    if settings.reads_pixels and settings.init_checkpoint is not None:
        network = regress.load(settings.init, settings.init_checkpoint)
        boxes = {person.identity: (person.frames, person.boxes_px) for person in everyone}
        starts = regress.guesses(network, clip, span, camera, boxes, reporter)
    rows: list[Mapping[str, Any]] = []
    with reporter.stage("fit", sum(len(person.frames) for person in everyone)) as tick, single_thread():
        for person in everyone:
            found = fit_track(person.known, camera, body, starts[person.identity], settings.weighting, fps)
            rows.append(_rows(person, found, camera, body))
            tick(len(person.frames))
    write_npz(
        path,
        key,
        {
            "schema_version": SCHEMA_VERSION,
            "body": body.name if settings.body_model is None else settings.body_file.name,
            "body_path": "" if settings.body_model is None else str(settings.body_file.resolve()),
            "body_digest": key.inputs["body"],
            "weighting": settings.weighting,
            "init": settings.init,
            "source": read.source,
            "pose_model": read.pose_model,
            "width_px": known.width_px,
            "height_px": known.height_px,
            "rate": [known.rate.numerator, known.rate.denominator],
            "frame": known.frames,
            "time_s": known.time_s,
            "focal_px": np.array(camera.focal_px),
            "center_px": np.array(camera.center_px),
            "first_row": np.cumsum([0, *(len(r["row_frame"]) for r in rows)]),
            **_joined(rows),
        },
    )


matches = npz_is_current


def _frames_per_second(known: tracks.TracksFile) -> float:
    """Of the frames looked at, which `--every` makes fewer."""
    every = int(np.diff(known.frames).min()) if len(known.frames) > 1 else 1
    return float(known.rate / Fraction(every))


def _spread(read: keypoints.KeypointsFile, identity: int, looked_at: np.ndarray, fps: float) -> _Seen:
    here, person = read.frames[identity], read.people[identity]
    frames = looked_at[(looked_at >= here[0]) & (looked_at <= here[-1])]
    at = np.searchsorted(frames, here)

    def over_all(values: np.ndarray, gap: float) -> np.ndarray:
        spread = np.full((len(frames), *values.shape[1:]), gap, np.float32)
        spread[at] = values
        return spread

    def tensor(values: torch.Tensor, gap: float) -> torch.Tensor:
        return torch.from_numpy(over_all(values.numpy(), gap))

    known = Keypoints(
        xy_px=tensor(person.xy_px, np.nan),
        confidence=tensor(person.confidence, 0),
        presence=tensor(person.presence, 0),
        source=person.source,
        area_px2=None if person.area_px2 is None else tensor(person.area_px2, np.nan),
        skeleton=person.skeleton,
    )
    known, swapped = untangled(body_keypoints(known), fps)
    raw = over_all(read.raw[identity], 0)[:, :KEYPOINTS]
    return _Seen(
        identity=identity,
        frames=frames,
        known=known,
        swapped=swapped,
        raw=np.where(swapped, raw[:, COCO17.flip_order], raw),
        boxes_px=over_all(read.boxes_px[identity], np.nan),
    )


def _rows(person: _Seen, fit: fitting.Fit, camera: fitting.Camera, body: fitting.Body) -> Mapping[str, Any]:
    """The arrays of `fit.npz` for one person."""
    seen = fit.observed.numpy()
    xy_px = person.known.xy_px.numpy()
    detected = np.isfinite(person.boxes_px).all(1)
    return {
        "identity": person.identity,
        "shape": fit.params.shape.numpy(),
        "stopped": fit.stopped,
        "row_frame": person.frames,
        "row_observed": seen,
        "row_converged": fit.converged.numpy(),
        "row_pose_rad": fit.params.pose.numpy(),
        "row_translation_m": fit.params.translation.numpy(),
        "row_joints_m": body.at(fit.params).joints.numpy(),
        "row_joint_std_mm": _spread_mm(fit.joint_std_mm, seen),
        "row_joint_std_relative_mm": _spread_mm(fit.joint_std_relative_mm, seen),
        "row_joint_observed": supported_joints(person.known, camera.size) & seen[:, None],
        "row_keypoints_px": np.where(detected[:, None, None], xy_px, np.nan).astype(np.float32),
        "row_swapped": person.swapped,
        "row_confidence": person.known.confidence.numpy(),
        "row_presence": person.known.presence.numpy(),
        "row_raw": person.raw,
        "row_used": fit.used.numpy(),
        "row_reprojection_px": fit.reprojection_px.numpy(),
        "row_box_px": person.boxes_px,
    }


def _spread_mm(std_mm: torch.Tensor | None, seen: np.ndarray) -> np.ndarray:
    """[T, 24, 3] along x, y, z -> [T, 24], the length of the error to expect; NaN where nothing is known."""
    if std_mm is None:
        return np.full((len(seen), 24), np.nan, np.float32)
    return std_mm.norm(dim=-1).numpy().astype(np.float32)


def _joined(rows: list[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Everyone's rows one after the other; with nobody, arrays of the right shape without rows."""
    if not rows:
        return _nobody()
    joined: dict[str, np.ndarray] = {
        "identity": np.array([r["identity"] for r in rows], np.int64),
        "shape": np.stack([r["shape"] for r in rows]),
        "stopped": np.array([r["stopped"] for r in rows], np.str_),
    }
    return joined | {name: np.concatenate([r[name] for r in rows]) for name in rows[0] if name.startswith("row_")}


def _nobody() -> dict[str, np.ndarray]:
    sizes: dict[str, tuple[int, ...]] = {
        "shape": (10,),
        "row_pose_rad": (24, 3),
        "row_translation_m": (3,),
        "row_joints_m": (24, 3),
        "row_joint_std_mm": (24,),
        "row_joint_std_relative_mm": (24,),
        "row_keypoints_px": (17, 2),
        "row_confidence": (17,),
        "row_presence": (17,),
        "row_raw": (17,),
        "row_reprojection_px": (17,),
        "row_box_px": (4,),
    }
    truths: dict[str, tuple[int, ...]] = {
        "row_observed": (),
        "row_converged": (),
        "row_joint_observed": (24,),
        "row_used": (17,),
        "row_swapped": (17,),
    }
    return {
        "identity": np.zeros(0, np.int64),
        "stopped": np.zeros(0, "<U1"),
        "row_frame": np.zeros(0, np.int64),
        **{name: np.zeros((0, *size), np.float32) for name, size in sizes.items()},
        **{name: np.zeros((0, *size), np.bool_) for name, size in truths.items()},
    }
