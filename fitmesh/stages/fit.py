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
from fitting.body.load import OPEN_BODY, find_body_file
from fitting.init import regressors
from fitting.keypoints.observed import TooFewKeypoints
from fitting.keypoints.weights import WEIGHTINGS, Weighting
from fitting.optimise import INITIALISERS
from fitting.track import TrackFit, fit_track
from pose2d.base.caching import CacheKey, content_digest, npz_is_current, write_npz
from pose2d.base.errors import UserError
from pose2d.io.clip import Clip, Span
from pose2d.skeletons import COCO17

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
        known = ("none", *INITIALISERS, *regressors.NAMES)
        if self.init not in known:
            raise UserError(f"unknown --init {self.init!r}: choose {', '.join(known)}.")
        if self.reads_pixels:
            if self.init_checkpoint is None:
                raise UserError(f"--init {self.init} ships no weights: pass --init-checkpoint (docs/initialisers.md).")
            regressors.load(self.init, self.init_checkpoint)
        elif self.init_checkpoint is not None:
            raise UserError(f"--init-checkpoint has no effect with --init {self.init}: leave one of them out.")

    @property
    def reads_pixels(self) -> bool:
        return self.init in regressors.NAMES

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
    starts: Mapping[int, str | fitting.BodyParams] = dict.fromkeys(read.people, settings.init)
    if settings.reads_pixels and settings.init_checkpoint is not None:
        network = regressors.load(settings.init, settings.init_checkpoint)
        boxes = {identity: (read.frames[identity], read.boxes_px[identity]) for identity in read.people}
        starts = regress.guesses(network, clip, span, camera, boxes, reporter)
    rows: list[Mapping[str, Any]] = []
    with reporter.stage("fit", sum(len(read.frames[identity]) for identity in read.people)) as tick:
        for identity, person in read.people.items():
            here = read.frames[identity]
            try:
                found = fit_track(
                    person, here, camera, body, starts[identity], settings.weighting, fps=fps, every=_every(known)
                )
            except TooFewKeypoints:
                reporter.warn(f"person {identity} never shows enough trusted keypoints at once: no body is fitted.")
            else:
                rows.append(_rows(identity, found, read, body))
            tick(len(here))
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


def _every(known: tracks.TracksFile) -> int:
    return int(np.diff(known.frames).min()) if len(known.frames) > 1 else 1


def _frames_per_second(known: tracks.TracksFile) -> float:
    """Of the frames looked at, which `--every` makes fewer."""
    return float(known.rate / Fraction(_every(known)))


def _rows(identity: int, found: TrackFit, read: keypoints.KeypointsFile, body: fitting.Body) -> Mapping[str, Any]:
    """The arrays of `fit.npz` for one person."""
    fit, at = found.fit, found.rows(read.frames[identity])

    def on_grid(values: np.ndarray, gap: float) -> np.ndarray:
        spread = np.full((len(found.frame), *values.shape[1:]), gap, np.float32)
        spread[at] = values
        return spread

    raw = on_grid(read.raw[identity], 0)[:, :KEYPOINTS]
    return {
        "identity": identity,
        "shape": fit.params.shape.numpy(),
        "stopped": fit.stopped,
        "row_frame": found.frame,
        "row_observed": fit.observed.numpy(),
        "row_converged": fit.converged.numpy(),
        "row_pose_rad": fit.params.pose.numpy(),
        "row_translation_m": fit.params.translation.numpy(),
        "row_joints_m": body.at(fit.params).joints.numpy(),
        "row_joint_std_mm": _spread_mm(fit.joint_std_mm, fit.observed.numpy()),
        "row_joint_std_relative_mm": _spread_mm(fit.joint_std_relative_mm, fit.observed.numpy()),
        "row_joint_observed": found.joint_observed,
        "row_keypoints_px": found.keypoints.xy_px.numpy(),
        "row_swapped": found.swapped,
        "row_confidence": found.keypoints.confidence.numpy(),
        "row_presence": found.keypoints.presence.numpy(),
        "row_raw": np.where(found.swapped, raw[:, COCO17.flip_order], raw),
        "row_used": fit.used.numpy(),
        "row_reprojection_px": fit.reprojection_px.numpy(),
        "row_box_px": on_grid(read.boxes_px[identity], np.nan),
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
