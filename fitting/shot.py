"""Everyone of one shot: each fitted alone, then the scene that all of them stand in, then everyone again within it.

The scene is how the camera turned, the lens, gravity and floor, everyone's size, and which points of their bodies rest
(`fitting.scene`). Each of them may be unknown; what is not known constrains nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from fitting.body import Body, BodyOutput, BodyParams
from fitting.camera import Camera
from fitting.init.guess import InitialGuess
from fitting.keypoints.after_fit import widened
from fitting.keypoints.observed import TooFewKeypoints, observed_joints
from fitting.options import DEFAULTS, FitOptions
from fitting.scene.camera_motion import CameraMotion
from fitting.scene.from_fit import person_evidence, resting_points
from fitting.scene.ground import GivenGround, GroundAnswer, GroundEstimate, estimate_ground
from fitting.scene.ground_evidence import ShotCamera
from fitting.scene.lens import GIVEN_LOG_SIGMA, PRIOR_LOG_SIGMA, FocalEstimate, combined, refocused_params
from fitting.solver.terms.scene import FEET, POINTS, SceneTerms
from fitting.track import PreparedTrack, TrackFit, fit_prepared, prepare_track
from pose2d.base.threads import single_thread
from pose2d.types import Keypoints

# Of the first fits: the camera may look down by anything, so people may lean out of the image further than usual.
ROUGH_LEAN_RAD = 0.5
UPRIGHT_RAD = 0.25  # standard deviation of people's lean from the vertical, towards or away from the camera
CONTRADICTION = 3.0  # deviations between metadata and people from which on metadata is not used


@dataclass(frozen=True)
class ShotPerson:
    """One person's keypoints of a shot."""

    identity: int
    keypoints: Keypoints  # [N]
    frame: np.ndarray  # [N] increasing frame numbers
    init: str | BodyParams | InitialGuess = "lifter"
    height_m: float | None = None  # that the person is known to have


@dataclass(frozen=True)
class SceneOptions:
    """What is looked for besides the bodies."""

    ground: bool = True  # gravity, floor, sizes and contacts; without, everyone is fitted alone
    given: GivenGround = field(default_factory=GivenGround)


@dataclass(frozen=True)
class FittedPerson:
    """One person of a shot as found."""

    track: TrackFit  # in the camera frame, metres; its parameters have the person's size
    contact: np.ndarray  # [T, 4] probability that left heel, left toes, right heel, right toes stand


@dataclass(frozen=True)
class ShotFit:
    """Everyone of a shot, and the scene."""

    people: dict[int, FittedPerson]  # by identity
    left_out: dict[int, TooFewKeypoints]  # by identity: who never shows enough to be fitted, and what is missing
    camera: Camera  # of the first frame
    focal: FocalEstimate  # of the first frame
    motion: CameraMotion | None  # under that focal length; None: nobody looked
    ground: GroundEstimate | None  # None: not known
    reason: str  # what the ground rests on, or why it is not known


@dataclass(frozen=True)
class _Grid:
    """The shot's frames, in which people's frames have their place."""

    first: int
    every: int
    fps: float

    def rows(self, frame: np.ndarray) -> np.ndarray:
        return (frame - self.first) // self.every


@single_thread()
def fit_shot(
    people: Sequence[ShotPerson],
    camera: Camera,
    focal: FocalEstimate,
    body: Body,
    *,
    fps: float,
    every: int = 1,
    motion: CameraMotion | None = None,
    options: SceneOptions | None = None,
    progress: Callable[[int], None] = lambda frames: None,
    how: FitOptions = DEFAULTS,
) -> ShotFit:
    """camera: of the shot's first frame, with `focal`'s focal length; motion: how it moved from there, its frames those
    of the shot. fps, every: of the frames that were read, as in `fit_track`. how: of every person's fit.
    progress: told how many frames were fitted, each once.
    """
    options = options or SceneOptions()
    if motion is not None:
        focal, camera, motion = _refined_by_turning(focal, camera, motion)
    start = min((int(person.frame[0]) for person in people), default=0)
    grid = _Grid(start if motion is None else int(motion.frames[0]), every, fps)
    first: dict[int, tuple[PreparedTrack, TrackFit]] = {}
    left_out: dict[int, TooFewKeypoints] = {}
    for person in people:
        try:
            alone_how = replace(how, rough=True, lean_rad=ROUGH_LEAN_RAD) if options.ground else how
            first[person.identity] = _alone(person, camera, body, grid, motion, alone_how)
        except TooFewKeypoints as error:
            left_out[person.identity] = error
            continue
        if not options.ground:
            progress(len(first[person.identity][1].frame))
    if not options.ground:
        alone = _behind_others({i: (found, 1.0) for i, (_, found) in first.items()}, camera, body)
        fitted = {i: _as_found(found, 1.0, camera, focal, motion, grid, None) for i, found in alone.items()}
        return ShotFit(fitted, left_out, camera, focal, motion, None, "not looked for")
    known = {person.identity: person.height_m for person in people}
    answer = _ground(first, known, camera, focal, body, grid, motion, options.given)
    ground = answer.ground
    seen_focal = focal if ground is None or ground.focal is None else ground.focal
    ratio = seen_focal.focal_px / focal.focal_px
    seen_camera = _with_focal(camera, ratio)
    seen_motion = None if motion is None else motion.with_focal(seen_focal.focal_px)
    sized: dict[int, tuple[TrackFit, float]] = {}
    rests: dict[int, np.ndarray] = {}
    for number, (identity, (prepared, found)) in enumerate(first.items()):
        size = _size(number, found, body, ground, known[identity])
        again, rests[identity] = _within(
            prepared, found, seen_camera, body, grid, seen_motion, ground, number, size, ratio, how
        )
        sized[identity] = again, size
        progress(len(found.frame))
    fitted = {
        i: _as_found(found, sized[i][1], seen_camera, seen_focal, seen_motion, grid, rests[i])
        for i, found in _behind_others(sized, seen_camera, body).items()
    }
    return ShotFit(fitted, left_out, seen_camera, seen_focal, seen_motion, ground, answer.reason)


def _refined_by_turning(
    focal: FocalEstimate, camera: Camera, motion: CameraMotion
) -> tuple[FocalEstimate, Camera, CameraMotion]:
    """What a camera that turns tells of its lens, joined to what is known."""
    told = FocalEstimate(motion.turning_focal_px, motion.turning_focal_log_sigma, "the camera's turning")
    if not math.isfinite(told.log_sigma) or focal.log_sigma <= GIVEN_LOG_SIGMA:
        return focal, camera, motion
    joined = combined([focal, told])
    return joined, _with_focal(camera, joined.focal_px / focal.focal_px), motion.with_focal(joined.focal_px)


def _with_focal(camera: Camera, ratio: float) -> Camera:
    return replace(camera, focal_px=(camera.focal_px[0] * ratio, camera.focal_px[1] * ratio))


def _turning(motion: CameraMotion | None, rows: np.ndarray) -> np.ndarray | None:
    """[T, 3, 3] the camera's rotation from these frames to the first; None: it does not turn, or nobody knows."""
    if motion is None or motion.kind in ("static", "unknown"):
        return None
    return motion.first_from_camera[rows.clip(0, len(motion.frames) - 1)]


def _zoom(motion: CameraMotion | None, rows: np.ndarray) -> np.ndarray | None:
    """[T] focal length over the first frame's; None: it stays the same."""
    if motion is None or motion.kind != "rotating":
        return None
    zoom = motion.zoom[rows.clip(0, len(motion.frames) - 1)]
    return None if np.ptp(motion.zoom) < 1e-6 else zoom


def _unzoomed(keypoints: Keypoints, camera: Camera, zoom: np.ndarray | None) -> Keypoints:
    """Pixels as the first frame's focal length would show them."""
    if zoom is None:
        return keypoints
    factor = 1 / torch.from_numpy(zoom).to(keypoints.xy_px)
    center = keypoints.xy_px.new_tensor(camera.center_px)
    area = None if keypoints.area_px2 is None else keypoints.area_px2 * factor.to(keypoints.area_px2).square()
    return replace(keypoints, xy_px=center + (keypoints.xy_px - center) * factor[:, None, None], area_px2=area)


def _alone(
    person: ShotPerson, camera: Camera, body: Body, grid: _Grid, motion: CameraMotion | None, how: FitOptions
) -> tuple[PreparedTrack, TrackFit]:
    keypoints = _unzoomed(person.keypoints, camera, _zoom(motion, grid.rows(person.frame)))
    prepared = prepare_track(keypoints, person.frame, camera, body, person.init, fps=grid.fps, every=grid.every)
    turning = _turning(motion, grid.rows(prepared.frame))
    scene = None if turning is None else SceneTerms(world_rotation=torch.from_numpy(turning).float())
    return prepared, fit_prepared(prepared, camera, body, how, scene=scene)


def _ground(
    first: Mapping[int, tuple[PreparedTrack, TrackFit]],
    known: Mapping[int, float | None],
    camera: Camera,
    focal: FocalEstimate,
    body: Body,
    grid: _Grid,
    motion: CameraMotion | None,
    given: GivenGround,
) -> GroundAnswer:
    evidence = [
        person_evidence(found, body, grid.rows(found.frame), known[identity]) for identity, (_, found) in first.items()
    ]
    turns = motion is not None and motion.kind in ("rotating", "moving")
    seen = ShotCamera(
        focal=focal,
        center_px=camera.center_px,
        fps=grid.fps,
        first_from_camera=motion.first_from_camera if motion is not None and turns else None,
        moving=motion is not None and motion.kind == "moving",
    )
    answer = estimate_ground(evidence, seen, given)
    if not focal.source.startswith("metadata"):
        return answer
    # Metadata may be that of another lens or of the uncropped image: where people and floor contradict it clearly,
    # it is not used.
    doubted = estimate_ground(evidence, replace(seen, focal=replace(focal, log_sigma=PRIOR_LOG_SIGMA)), given)
    if doubted.ground is None or doubted.ground.focal is None:
        return answer
    other = doubted.ground.focal
    away = abs(math.log(other.focal_px / focal.focal_px)) / math.hypot(other.log_sigma, focal.log_sigma)
    if away < CONTRADICTION:
        return answer
    words = f"{doubted.reason}; people and floor contradict the file's focal length of {focal.focal_px:.0f} px"
    found = replace(other, source="people and floor, against the file's metadata")
    return GroundAnswer(replace(doubted.ground, focal=found), words)


def _size(
    number: int, found: TrackFit, body: Body, ground: GroundEstimate | None, known_height_m: float | None
) -> float:
    """What multiplies the fitted body: so that it stands on the floor with everybody else, or has its known height."""
    if known_height_m is not None:
        return known_height_m / body.height_m(found.fit.params.shape)
    return 1.0 if ground is None or not ground.on_floor[number] else float(ground.scale[number])


def _within(
    prepared: PreparedTrack,
    found: TrackFit,
    camera: Camera,
    body: Body,
    grid: _Grid,
    motion: CameraMotion | None,
    ground: GroundEstimate | None,
    number: int,
    size: float,
    focal_ratio: float,
    how: FitOptions,
) -> tuple[TrackFit, np.ndarray]:
    """The fit again with the scene, at size 1, and where the feet rest [T, 4]."""
    rows = grid.rows(found.frame)
    turning = _turning(motion, rows)
    shape = found.fit.params.shape
    pelvis = body.rest_joints[0] + body.rest_joint_shapedirs[0, :, : len(shape)] @ shape.to(body.dtype)
    start = refocused_params(found.fit.params, pelvis, focal_ratio)
    guess = prepared.guess
    if guess is not None:
        guess = replace(guess, params=refocused_params(guess.params, pelvis, focal_ratio))
    # A camera that goes somewhere leaves no feet at rest and no floor in its place.
    stays = motion is None or motion.kind != "moving"
    up = None if ground is None else ground.up_cam
    floor_m = None
    if ground is not None and stays and ground.on_floor[number]:
        floor_m = (ground.level_m[number] - ground.camera_height_m) / size  # of what this person stands on
    rest = on_floor = np.zeros((len(found.frame), 9))
    if stays:
        rest, on_floor = resting_points(
            found, start, body, rows / grid.fps, camera.mean_focal_px, camera.center_px, turning, up, floor_m
        )
    used = [n for n in range(len(POINTS)) if n < FEET or rest[:, n].any()]  # derivatives of the others would be zero
    scene = SceneTerms(
        up=None if up is None else torch.from_numpy(up).float(),
        world_rotation=None if turning is None else torch.from_numpy(turning).float(),
        floor_m=floor_m,
        points=tuple(POINTS[n] for n in used),
        contact=torch.from_numpy(rest[:, used]).float() if rest.any() else None,
        on_floor=torch.from_numpy(on_floor[:, used]).float(),
    )
    if up is not None:
        how = replace(how, lean_rad=UPRIGHT_RAD)
    again = fit_prepared(replace(prepared, guess=guess), camera, body, how, scene=scene, start=start)
    return again, rest[:, :FEET]


def _behind_others(sized: Mapping[int, tuple[TrackFit, float]], camera: Camera, body: Body) -> dict[int, TrackFit]:
    """Everyone's fit at size 1, with less confidence in keypoints that lie behind others, at their sizes."""
    alone = {identity: found for identity, (found, _) in sized.items()}
    if len(sized) < 2:
        return alone
    from fitting.keypoints.hidden import FittedBody, behind_others  # whoever is alone does not need it

    people = {}
    for identity, (found, size) in sized.items():
        at = body.at(found.fit.params)
        placed = BodyOutput(size * at.joints, size * at.keypoints, None)
        people[identity] = FittedBody(found.frame, found.present, found.keypoints, placed)
    changed = {}
    for identity, behind in behind_others(people, camera).items():
        found = alone[identity]
        keypoints = widened(found.keypoints, behind.tilt)
        joints = found.joint_observed & observed_joints(keypoints, camera.size)
        changed[identity] = replace(found, keypoints=keypoints, joint_observed=joints)
    return changed


def _as_found(
    found: TrackFit, size: float, camera: Camera, focal: FocalEstimate, motion: CameraMotion | None, grid: _Grid,
    rest: np.ndarray | None,
) -> FittedPerson:  # fmt: skip
    """At its size, with pixels as they were read, and with the lens's uncertainty in the depth."""
    fit = found.fit
    params = replace(fit.params, translation=size * fit.params.translation, size=torch.tensor(float(size)))
    camera_std, relative_std = fit.joint_std_mm, fit.joint_std_relative_mm
    if camera_std is not None and relative_std is not None:
        camera_std, relative_std = size * camera_std, size * relative_std
        by_lens = 1000 * focal.log_sigma * params.translation[:, None, 2]
        camera_std = torch.cat((camera_std[..., :2], torch.hypot(camera_std[..., 2], by_lens)[..., None]), -1)
    keypoints, reprojection = found.keypoints, fit.reprojection_px
    zoom = _zoom(motion, grid.rows(found.frame))
    if zoom is not None:
        keypoints = _unzoomed(keypoints, camera, 1 / zoom)
        reprojection = reprojection * torch.from_numpy(zoom).float()[:, None]
    fit = replace(
        fit, params=params, joint_std_mm=camera_std, joint_std_relative_mm=relative_std, reprojection_px=reprojection
    )
    contact = np.zeros((len(found.frame), FEET)) if rest is None else rest
    return FittedPerson(replace(found, keypoints=keypoints, fit=fit), contact.astype(np.float32))
