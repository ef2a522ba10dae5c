"""Start and fit one person's body from keypoints, by the functions that `fitmesh run` calls."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from eval3dpw.stated import Stated
from fitmesh.eval_3dpw.eval_settings import FPS, EvalSettings, Row
from fitmesh.eval_3dpw.keypoints import PersonKeypoints
from fitmesh.eval_3dpw.sequences import EvalSequence
from fitting.body import Body, BodyParams
from fitting.body.open_body import OPEN_BODY
from fitting.camera.focal import focal_from_user
from fitting.fits import FitOptions, InitialGuess, with_default_errors
from fitting.grid import nearest
from fitting.optimise import fit_frames
from fitting.problem_setup import initial_guess
from fitting.shot import SceneOptions, ShotPerson, fit_shot
from fitting.stated import TABLE
from fitting.track import prepare_track
from pose2d.base.caching import CacheKey, code_digest, content_digest, read_npz, write_npz
from pose2d.base.errors import UserError
from pose2d.types import ConfidenceSource
from pose2d.video.images import read_image


@dataclass(frozen=True)
class PersonFit:
    """A person's T frames under one row."""

    params: BodyParams  # [T]
    stated: Stated | None = None  # [T]; None if the row's confidence is not calibrated


@dataclass(frozen=True)
class Start:
    """The initial guess of one person's fits."""

    frame: np.ndarray  # [G] frame numbers: a grid without gaps, or single frames
    guess: InitialGuess  # [G]

    def params(self, frame: np.ndarray) -> BodyParams:
        """Return the parameters at the nearest frame of the grid."""
        return self.guess.params.rows(nearest(self.frame, frame))


def start_person(
    person: PersonKeypoints,
    sequence: EvalSequence,
    body: Body,
    source: ConfidenceSource,
    settings: EvalSettings,
    network: Any = None,
) -> Start:
    """Return the initial guess. With `network`, a regressor, it comes from images; otherwise
    `settings.init` reads keypoints with the confidence of `source`.
    """
    frame = _detected_frames(person)
    camera = sequence.camera
    init = settings.init
    every = settings.every
    if network is not None:
        from fitting.init.regressors import initialise_track  # slow to import

        images = (read_image(sequence.image(number)) for number in frame.tolist())
        regressed = initialise_track(network, images, person.boxes_px[person.detected], camera)
        return Start(frame, with_default_errors(regressed))
    keypoints = person.keypoints(source)
    if settings.single_frames:
        return Start(frame, initial_guess(init, keypoints, [camera], body, None))
    guess = prepare_track(keypoints, frame, camera, body, init, fps=FPS / every, every=every).guess
    return Start(np.arange(frame[0], frame[-1] + 1, every), guess)


def fit_person(
    person: PersonKeypoints,
    sequence: EvalSequence,
    body: Body,
    start: Start | str,
    row: Row,
    settings: EvalSettings,
) -> PersonFit:
    """Return one row's fit at the person's T frames.

    start: a start that rows share, or an initialiser's name, as in `run`. Frames before the first
    and after the last that shows the person take the parameters of that one. Raises UserError if
    there is nothing to fit.
    """
    keypoints = person.keypoints(row.source)
    frame = _detected_frames(person)
    assert keypoints.area_px2 is not None
    # Sigmas are proportional to sqrt(area).
    keypoints = replace(keypoints, area_px2=keypoints.area_px2 * row.sigma_scale**2)
    options = FitOptions(row.weighting, row.gate, robust_sigmas=row.robust_sigmas)
    if settings.single_frames:
        finite = torch.isfinite(keypoints.xy_px).all(-1)
        keypoints = replace(
            keypoints, xy_px=torch.nan_to_num(keypoints.xy_px), presence=keypoints.presence * finite
        )
        init = start if isinstance(start, str) else start.guess.rows(nearest(start.frame, frame))
        params = fit_frames(keypoints, sequence.camera, body, init, options).params
        return PersonFit(params.rows(nearest(frame, person.frame)))
    init = start if isinstance(start, str) else start.guess
    camera = sequence.camera
    focal = focal_from_user(camera.mean_focal_px, camera.size)
    # 3DPW's camera moves, and each person is evaluated alone: no scene is estimated.
    shot = fit_shot(
        [ShotPerson(0, keypoints, frame, init)],
        camera,
        focal,
        body,
        fps=FPS / settings.every,
        every=settings.every,
        options=SceneOptions(ground=False, fit=options),
    )
    if shot.left_out:
        raise shot.left_out[0]
    track = shot.people[0]
    rows = nearest(track.frame, person.frame)
    stated = Stated.of(track)
    return PersonFit(track.fit.params.rows(rows), stated and stated.rows(rows))


def _detected_frames(person: PersonKeypoints) -> np.ndarray:
    frame = person.frame[person.detected]
    if not len(frame):
        raise UserError("no frame shows the person.")
    return frame


def cache_key(keypoints: CacheKey, settings: EvalSettings, row: str) -> CacheKey:
    """Return the cache key of one row's fits, or of a start."""
    # The body, pose prior, lifter, and calibrated errors.
    shipped = [*sorted(OPEN_BODY.parent.glob("*.npz")), TABLE]
    inputs = {"keypoints": keypoints.digest, "weights": content_digest(shipped)}
    if settings.checkpoint is not None:
        inputs["checkpoint"] = content_digest([settings.checkpoint])
    return CacheKey(
        stage="eval-3dpw fit",
        settings={"row": row, "init": settings.init, "single_frames": settings.single_frames},
        inputs=inputs,
        code=code_digest("fitting.shot", "fitting.init.regressors", "fitmesh.eval_3dpw.fits"),
    )


_PARAMS = ("pose", "shape", "translation", "size")  # without hands


def write_fits(path: Path, key: CacheKey, fits: Mapping[int, PersonFit]) -> None:
    """Write the fits by person; people who could not be fitted are missing."""
    arrays = {
        f"{p}.{name}": getattr(fit.params, name).numpy()
        for p, fit in fits.items()
        for name in _PARAMS
    }
    for p, fit in fits.items():
        arrays |= fit.stated.to_arrays(f"{p}.stated_") if fit.stated else {}
    write_npz(path, key, arrays)


def read_fits(path: Path) -> dict[int, PersonFit]:
    """Read the fits by person."""
    arrays = read_npz(path)
    fits = {}
    for p in sorted({int(name.split(".")[0]) for name in arrays}):
        params = BodyParams(*(torch.from_numpy(arrays[f"{p}.{name}"]) for name in _PARAMS))
        has_stated = f"{p}.stated_std_mm" in arrays
        stated = Stated.from_arrays(arrays, f"{p}.stated_") if has_stated else None
        fits[p] = PersonFit(params, stated)
    return fits


def write_starts(path: Path, key: CacheKey, starts: Mapping[int, Start]) -> None:
    """Write the starts by person."""
    arrays: dict[str, np.ndarray] = {}
    for person, start in starts.items():
        guess = start.guess
        columns = {name: getattr(guess.params, name).numpy() for name in _PARAMS} | {
            "frame": start.frame,
            "rotation_std_rad": guess.rotation_std_rad.numpy(),
            "depth_std": guess.depth_std.numpy(),
            "shape_std": np.array(guess.shape_std),
        }
        arrays |= {f"{person}.{name}": value for name, value in columns.items()}
    write_npz(path, key, arrays)


def read_starts(path: Path) -> dict[int, Start]:
    """Read the starts by person."""
    arrays = read_npz(path)
    starts = {}
    for person, fit in read_fits(path).items():
        names = ("rotation_std_rad", "depth_std", "shape_std")
        rotation, depth, shape = (torch.from_numpy(arrays[f"{person}.{name}"]) for name in names)
        guess = InitialGuess(fit.params, rotation, depth, float(shape))
        starts[person] = Start(arrays[f"{person}.frame"], guess)
    return starts
