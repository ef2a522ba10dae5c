"""Everyone of one shot: each fitted alone, then the scene that all of them stand in, then everyone again within it.

The scene is how the camera turned, the lens, gravity and floor, everyone's size, and which points of their bodies rest
(`fitting.scene`). Each of them may be unknown; what is not known constrains nothing: without gravity everyone is fitted
alone, as if nobody had looked.

Gravity, floor and contacts are hypotheses. Terms of the solver let go of single contacts that keypoints contradict;
here the whole is judged, person by person: fitted with the scene against without. Where keypoints are hardly worse
explained with it, it is used; else it is softened, and dropped when that does not help either.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch

from fitting.body import Body, BodyOutput, BodyParams
from fitting.body.kinematics import WRISTS
from fitting.camera import GIVEN_LOG_SIGMA, Camera, FocalEstimate, combined, refocused_params
from fitting.fits import DEFAULTS, FitOptions, InitialGuess, TrackFit
from fitting.hands import fit_hands, flat_palms
from fitting.keypoints.observed import SeenHands, TooFewKeypoints, observed_joints, seen_hands
from fitting.keypoints.weights import FittedBody, behind_others, with_variance_inflation
from fitting.optimise import OtherView
from fitting.scene.camera_motion import CameraMotion
from fitting.scene.ground import (
    ADULT_M,
    GivenGround,
    GroundAnswer,
    GroundEstimate,
    contradictions,
    estimate_ground,
    head_share,
)
from fitting.scene.ground_evidence import ShotCamera, person_evidence, resting_points, shown_head_share
from fitting.solver.terms.priors import ShapeEvidence
from fitting.solver.terms.scene import (
    FEET,
    FLOOR_STD_M,
    SceneTerms,
    foot_lifts,
    kept_contact,
)
from fitting.track import PreparedTrack, fit_prepared, prepare_track, with_hands, with_outlines
from pose2d.base.table import blocks, joined, stored
from pose2d.base.threads import single_thread
from pose2d.types import HandKeypoints, Keypoints, Outlines

# Of the first fits: the camera may look down by anything, so people may lean out of the image further than usual.
ROUGH_LEAN_RAD = 0.5
UPRIGHT_RAD = 0.25  # standard deviation of people's lean from the vertical, towards or away from the camera
ON_ONE_FOOT = 0.1  # of what two feet say of balance: whoever walks falls from one foot onto the other
LOWEST_STANDING = 0.75  # of the legs' length: hips of people who stand are higher over the ankles. Not tuned
CHILD_M = 1.4  # whose head says that they are smaller than this are no adults
HEAD, ADULT_SHARE = [0, 1, 2, 3, 4, 17], float(head_share(np.array(ADULT_M)))  # its keypoints, and its size
SOFTER = 4.0  # on the deviations of lean, floor and contacts, where a scene is softened
LOWEST_FEET = 0.05  # quantile of feet's heights that is the floor, where distances are measured
LEVEL_UP = np.array([0.0, -1.0, 0.0])  # of a camera held level
# Density of people with air in their lungs (0.98 to 1.04), and how exactly a body's volume tells its weight: density,
# clothes and food on the scales, and a body model without inner air.
KG_PER_M3, WEIGHT_LOG_STD = 1010.0, 0.05
HEIGHT_STD_M = 0.002  # by which a fit may leave a height that is stated
# Mean distance to the keypoints with the scene over that without: below, nobody sees a difference; above, fits with it
# were visibly worse (bench/scene_evidence.py).
DOUBTFUL = 1.10
Verdict = Literal["used", "softened", "dropped", "not known"]


@dataclass(frozen=True)
class ShotPerson:
    """One person's keypoints of a shot."""

    identity: int
    keypoints: Keypoints  # [N]
    frame: np.ndarray  # [N] increasing frame numbers
    init: str | BodyParams | InitialGuess = "lifter"
    height_m: float | None = None  # that the person is known to have
    hands: HandKeypoints | None = None  # [N] where anybody looked for them
    outlines: Outlines | None = None  # of some of the N rows
    weight_kg: float | None = None  # that the person is known to have
    # Of several cameras: rows without gaps, NaN where this camera does not show the person, and what the others show.
    others: tuple[OtherView, ...] = ()


@dataclass(frozen=True)
class SceneOptions:
    """How everyone is fitted, and what is looked for besides the bodies."""

    ground: bool = True  # gravity, floor, sizes and contacts; without, everyone is fitted alone
    given: GivenGround = field(default_factory=GivenGround)
    fit: FitOptions = DEFAULTS  # of every person
    progress: Callable[[int], None] = lambda frames: None  # told how many frames were fitted, each once


@dataclass(frozen=True)
class Judged:
    """One person's scene."""

    verdict: Verdict
    misfit: float  # mean distance to the keypoints with the scene over that without


@dataclass(frozen=True)
class ShotFit:
    """Everyone of a shot, and the scene."""

    people: dict[int, TrackFit]  # by identity: in the camera frame, metres, with the person's size, and contacts
    left_out: dict[int, TooFewKeypoints]  # by identity: who never shows enough to be fitted, and what is missing
    camera: Camera  # of the first frame
    focal: FocalEstimate  # of the first frame
    motion: CameraMotion | None  # under that focal length; None: nobody looked
    ground: GroundEstimate | None  # None: not known
    reason: str  # what the ground rests on, or why it is not known
    judged: dict[int, Judged] = field(default_factory=dict)  # by identity: whether the scene was kept
    warnings: tuple[str, ...] = ()  # where what the user states contradicts the images
    masks: dict[int, int] = field(default_factory=dict)  # by identity: how many the shape was found from

    def uses(self, identity: int) -> bool:
        """Whether the scene pulled on this person."""
        one = self.judged.get(identity)
        return self.ground is not None and one is not None and one.verdict in ("used", "softened")

    @property
    def verdict(self) -> Verdict:
        """Of the scene as a whole."""
        if self.ground is None:
            return "dropped" if self.judged else "not known"
        return "softened" if any(one.verdict != "used" for one in self.judged.values()) else "used"


@dataclass(frozen=True)
class _View:
    """What everyone of a shot shares: its camera under one focal length, how it moves, and its frames."""

    camera: Camera  # of the first frame
    focal: FocalEstimate
    motion: CameraMotion | None
    body: Body
    first_frame: int
    every: int
    fps: float
    several: bool  # cameras, so that lens and distances are known

    def rows(self, frame: np.ndarray) -> np.ndarray:
        """The places of frame numbers among the shot's frames."""
        return (frame - self.first_frame) // self.every

    def turning(self, frame: np.ndarray) -> np.ndarray | None:
        """[T, 3, 3] the camera's rotation from these frames to the first; None: it does not turn, or nobody knows."""
        return None if self.motion is None else self.motion.turning(self.rows(frame))

    def zoom(self, frame: np.ndarray) -> np.ndarray | None:
        """[T] focal length over the first frame's; None: it stays the same."""
        return None if self.motion is None else self.motion.zooming(self.rows(frame))

    def zoomed(self, xy_px: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """Pixels [T, .., 2] as focal lengths so many times [T] as long would show them."""
        center = np.array(self.camera.center_px, np.float32)
        return center + (xy_px - center) * factor.astype(np.float32).reshape(-1, *(1,) * (xy_px.ndim - 1))

    def with_focal(self, focal: FocalEstimate) -> "_View":
        """The same image under another focal length."""
        ratio = focal.focal_px / self.focal.focal_px
        camera = replace(self.camera, focal_px=(self.camera.focal_px[0] * ratio, self.camera.focal_px[1] * ratio))
        motion = None if self.motion is None else self.motion.with_focal(focal.focal_px)
        return replace(self, camera=camera, focal=focal, motion=motion)

    @property
    def stays(self) -> bool:
        """A camera that goes somewhere leaves no feet at rest and no floor in its place."""
        return self.motion is None or self.motion.kind != "moving"


@dataclass(frozen=True)
class _Sized:
    """A person's fit at size 1, the size, and hands whose fingers are fitted last."""

    track: TrackFit
    size: float
    hands: HandKeypoints | None  # [T]
    segment: np.ndarray  # [T]
    masks: int  # that the shape was found from


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
) -> ShotFit:
    """camera: of the shot's first frame, with `focal`'s focal length; motion: how it moved from there, its frames those
    of the shot. fps, every: of the frames that were read, as in `fit_track`.
    """
    options = options or SceneOptions()
    how, progress = options.fit, options.progress
    start = min((int(person.frame[0]) for person in people), default=0)
    first_frame, several = start if motion is None else int(motion.frames[0]), any(p.others for p in people)
    view = _View(camera, focal, motion, body, first_frame, every, fps, several)
    view = _refined_by_turning(view)
    people = [_unzoomed(person, view) for person in people]
    if not options.ground:
        return _without_scene(people, view, how, progress, "not looked for")
    first: dict[int, tuple[PreparedTrack, TrackFit]] = {}
    left_out: dict[int, TooFewKeypoints] = {}
    for person in people:
        try:
            prepared = stored(_prepared(person, view))
            found = _plain(prepared, view, replace(how, rough=True, lean_rad=ROUGH_LEAN_RAD))
            first[person.identity] = prepared, found
        except TooFewKeypoints as error:
            left_out[person.identity] = error
    known = {person.identity: person.height_m for person in people}
    of = {person.identity: person for person in people}
    found_first = {identity: found for identity, (_, found) in first.items()}
    answer = _ground(found_first, known, view, options.given)
    ground = answer.ground
    if ground is None:
        ready = {identity: prepared for identity, (prepared, _) in first.items()}
        return _without_scene(people, view, how, progress, answer.reason, ready)
    if several and not options.given.states_floor:
        ground = _on_lowest_feet(ground, found_first.values(), body)
    seen = view.with_focal(view.focal if ground.focal is None or several else ground.focal)
    sized: dict[int, _Sized] = {}
    judged: dict[int, Judged] = {}
    for number, identity in enumerate(list(first)):
        prepared, found = first.pop(identity)  # of long videos, these are most of what is held
        size = 1.0 if several else _size(number, found, body, ground, known[identity])
        again = _refocused(prepared, found, body, seen.focal.focal_px / view.focal.focal_px)
        again = _shaped(*again, of[identity], seen, how, size)
        if not several:  # as tall as before
            size *= body.height_m(found.fit.params.shape) / body.height_m(again[1].fit.params.shape)
        floor_m = None
        if seen.stays and ground.floor_known and ground.on_floor[number]:
            level_m = 0.0 if several else ground.level_m[number]  # of what this person stands on
            floor_m = (level_m - ground.camera_height_m) / size
        place = _Place(ground.up_cam, math.radians(ground.up_sigma_deg), floor_m)
        # The body model has an adult's head; on a child's shoulders it fits a large one by leaning towards the camera.
        larger = max(1.0, shown_head_share(found) / ADULT_SHARE) if ground.height_m[number] < CHILD_M else 1.0
        prepared = replace(again[0], keypoints=_with_head(again[0].keypoints, 1 / larger))
        track, judged[identity] = _judged(prepared, again[1], seen, place, how, stated=options.given.states_anything)
        track = replace(track, keypoints=_with_head(track.keypoints, larger))
        masks = 0 if prepared.shape is None else prepared.shape.masks
        sized[identity] = _Sized(track, size, prepared.hands, prepared.grid.segment, masks)
        progress(len(found))
    dropped = [one.misfit for one in judged.values() if one.verdict == "dropped"]
    if 2 * len(dropped) > len(judged):
        reason = f"keypoints contradict it: they are {np.median(dropped):.2f} times as far from bodies that stand on it"
        return replace(_without_scene(people, view, how, lambda frames: None, reason), judged=judged)
    masks_of = {identity: one.masks for identity, one in sized.items()}
    fitted = _finished(sized, seen, ground.up_cam)
    return ShotFit(
        fitted, left_out, seen.camera, seen.focal, seen.motion, ground, answer.reason, judged, answer.warnings, masks_of
    )


def _without_scene(
    people: Sequence[ShotPerson],
    view: _View,
    how: FitOptions,
    progress: Callable[[int], None],
    reason: str,
    ready: Mapping[int, PreparedTrack] | None = None,
) -> ShotFit:
    """Everyone alone: with a camera that turns, and with a known height. ready: who is prepared already."""
    ready = ready or {}
    sized: dict[int, _Sized] = {}
    left_out: dict[int, TooFewKeypoints] = {}
    for person in people:
        try:
            prepared = ready.get(person.identity) or _prepared(person, view)
            start = None
            if person.weight_kg is not None or (person.outlines is not None and len(person.outlines)):
                found = _plain(prepared, view, replace(how, rough=True))
                size = _size(0, found, view.body, None, person.height_m)
                prepared, found = _shaped(prepared, found, person, view, how, size)
                start = found.fit.params
            found = _plain(prepared, view, how, start)
        except TooFewKeypoints as error:
            left_out[person.identity] = error
            continue
        size = 1.0 if view.several else _size(0, found, view.body, None, person.height_m)
        masks = 0 if prepared.shape is None else prepared.shape.masks
        sized[person.identity] = _Sized(found, size, prepared.hands, prepared.grid.segment, masks)
        progress(len(found))
    masks_of = {identity: one.masks for identity, one in sized.items()}
    found_all = _finished(sized, view)
    return ShotFit(found_all, left_out, view.camera, view.focal, view.motion, None, reason, masks=masks_of)


def _refined_by_turning(view: _View) -> _View:
    """With what a camera that turns tells of its lens."""
    if view.motion is None:
        return view
    told = FocalEstimate(view.motion.turning_focal_px, view.motion.turning_focal_log_sigma, "the camera's turning")
    if not math.isfinite(told.log_sigma) or view.focal.log_sigma <= GIVEN_LOG_SIGMA:
        return view
    return view.with_focal(combined([view.focal, told]))


def _zoomed(keypoints: Keypoints, view: _View, factor: np.ndarray) -> Keypoints:
    """Pixels as focal lengths so many times [T] as long would show them."""
    area = None if keypoints.area_px2 is None else keypoints.area_px2 * torch.from_numpy(factor).float().square()
    return replace(keypoints, xy_px=torch.from_numpy(view.zoomed(keypoints.xy_px.numpy(), factor)), area_px2=area)


def _unzoomed(person: ShotPerson, view: _View) -> ShotPerson:
    """As the first frame's focal length would show them."""
    if (zoom := view.zoom(person.frame)) is None:
        return person
    hands, outlines = person.hands, person.outlines
    if hands is not None:
        std_px = hands.std_px / zoom.astype(np.float32)[:, None, None]
        hands = replace(hands, xy_px=view.zoomed(hands.xy_px, 1 / zoom), std_px=std_px)
    if outlines is not None:
        outlines = replace(outlines, xy_px=view.zoomed(outlines.xy_px, 1 / zoom[outlines.row]))
    return replace(person, keypoints=_zoomed(person.keypoints, view, 1 / zoom), hands=hands, outlines=outlines)


def _with_head(keypoints: Keypoints, factor: float) -> Keypoints:
    """The head so many times as large, from the neck."""
    if factor == 1.0:
        return keypoints
    xy_px, neck = keypoints.xy_px.clone(), keypoints.xy_px[:, 18:19]
    xy_px[:, HEAD] = neck + factor * (xy_px[:, HEAD] - neck)
    return replace(keypoints, xy_px=xy_px)


def _prepared(person: ShotPerson, view: _View) -> PreparedTrack:
    keypoints, frame, hands = person.keypoints, person.frame, person.hands
    if view.several:
        from fitting.rig.views import prepare_views  # one camera does not need it

        assert isinstance(person.init, str)
        return prepare_views(
            keypoints, frame, view.camera, person.others, view.body, person.init, fps=view.fps, every=view.every
        )
    prepared = prepare_track(keypoints, frame, view.camera, view.body, person.init, fps=view.fps, every=view.every)
    return prepared if hands is None else with_hands(prepared, hands, frame, view.body)


def _shaped(
    prepared: PreparedTrack, found: TrackFit, person: ShotPerson, view: _View, how: FitOptions, size: float
) -> tuple[PreparedTrack, TrackFit]:
    """With what a person's outlines, height and weight say of the shape, where any is known."""
    if person.outlines is not None and len(person.outlines) and not view.several:
        rows = np.searchsorted(prepared.grid.frame, person.frame[person.outlines.row])
        usable = (prepared.grid.segment[rows] >= 0) & found.fit.observed.numpy()[rows]
        outlines = replace(person.outlines, row=rows).rows(usable)
        prepared, found = with_outlines(prepared, found, outlines, view.camera, view.body, how)
    body, shape = view.body, found.fit.params.shape.double()

    def log_kg(shape: torch.Tensor) -> float:
        """The volume times people's density."""
        metres = size if person.height_m is None else person.height_m / body.height_m(shape)
        return math.log(KG_PER_M3 * body.volume_m3(shape)) + 3 * math.log(metres)

    stated: list[tuple[Callable[[torch.Tensor], float], float, float]] = []
    if person.height_m is not None:  # its size was found for the height of this shape
        stated.append((body.height_m, body.height_m(shape), HEIGHT_STD_M))
    if person.weight_kg is not None:
        stated.append((log_kg, math.log(person.weight_kg), WEIGHT_LOG_STD))
    for measured, value, std in stated:  # linear in the shape around the one that was found
        steps = 0.5 * torch.eye(len(shape), dtype=shape.dtype)
        slope = torch.tensor([measured(shape + step) - measured(shape - step) for step in steps], dtype=shape.dtype)
        wanted = slope @ shape + value - measured(shape)
        known = prepared.shape or ShapeEvidence(torch.zeros(len(shape), len(shape)), torch.zeros(len(shape)))
        known = replace(
            known,
            precision=known.precision + (slope[:, None] * slope / std**2).float(),
            information=known.information + (slope * wanted / std**2).float(),
        )
        prepared = replace(prepared, shape=known)
    return prepared, found


def _ground(
    tracks: Mapping[int, TrackFit], known: Mapping[int, float | None], view: _View, given: GivenGround
) -> GroundAnswer:
    motion = view.motion
    evidence = [
        person_evidence(found, view.body, view.rows(found.frame), known[identity]) for identity, found in tracks.items()
    ]
    seen = ShotCamera(
        focal=view.focal,
        center_px=view.camera.center_px,
        fps=view.fps,
        first_from_camera=None if motion is None else motion.turning(np.arange(len(motion.frames))),
        moving=motion is not None and motion.kind == "moving",
        vertical=None if motion is None else motion.vertical,
    )
    answer = estimate_ground(evidence, seen, given)
    return replace(answer, warnings=contradictions(evidence, seen, given, answer.ground))


def _on_lowest_feet(ground: GroundEstimate, tracks: Iterable[TrackFit], body: Body) -> GroundEstimate:
    """With the floor under the lowest feet, where distances are known."""
    feet = [body.at(found.fit.params).keypoints[found.fit.observed][:, FEET] for found in tracks]
    heights = torch.cat(feet).double().numpy() @ ground.up_cam - foot_lifts(body).double().numpy()
    height_m = -float(np.quantile(heights, LOWEST_FEET))
    return replace(ground, floor_known=True, camera_height_m=height_m, on_floor=np.ones_like(ground.on_floor))


def _size(
    number: int, found: TrackFit, body: Body, ground: GroundEstimate | None, known_height_m: float | None
) -> float:
    """What multiplies the fitted body: so that it stands on the floor with everybody else, or has its known height.
    Whose feet show no floor is an adult, unless the head is a child's."""
    if known_height_m is not None:
        return known_height_m / body.height_m(found.fit.params.shape)
    if ground is None or not (ground.on_floor[number] or ground.height_m[number] < CHILD_M):
        return 1.0
    return float(ground.scale[number])


def _refocused(
    prepared: PreparedTrack, found: TrackFit, body: Body, focal_ratio: float
) -> tuple[PreparedTrack, TrackFit]:
    """Guess and first fit under a focal length so many times as long."""
    shape = found.fit.params.shape
    pelvis = body.rest_joints[0] + body.rest_joint_shapedirs[0, :, : len(shape)] @ shape.to(body.dtype)
    start = refocused_params(found.fit.params, pelvis, focal_ratio)
    guess = replace(prepared.guess, params=refocused_params(prepared.guess.params, pelvis, focal_ratio))
    return replace(prepared, guess=guess), replace(found, fit=replace(found.fit, params=start))


@dataclass(frozen=True)
class _Place:
    """Gravity and what one person stands on, at size 1."""

    up: np.ndarray  # [3] in the shot's axes
    up_std_rad: float
    floor_m: float | None  # up . x of what the person stands on; None: not known
    softer: float = 1.0  # on deviations


def _judged(
    prepared: PreparedTrack, found: TrackFit, view: _View, place: _Place, how: FitOptions, *, stated: bool
) -> tuple[TrackFit, Judged]:
    """The fit with the scene, or without where keypoints contradict it; what the user states is obeyed."""
    again = _within(prepared, found, view, place, how)
    misfit = misfit_ratio(again, found)
    if misfit <= DOUBTFUL or stated:
        return again, Judged("used", misfit)
    soft = _within(prepared, found, view, replace(place, softer=SOFTER), how)
    if misfit_ratio(soft, found) <= DOUBTFUL:
        return soft, Judged("softened", misfit)
    return _plain(prepared, view, how, found.fit.params), Judged("dropped", misfit)


def misfit_ratio(scene: TrackFit, alone: TrackFit) -> float:
    """Of the keypoints that count in both."""
    a, b = scene.fit.reprojection_px.numpy(), alone.fit.reprojection_px.numpy()
    both = np.isfinite(a) & np.isfinite(b)
    return float(a[both].mean() / max(b[both].mean(), 1e-6)) if both.any() else 1.0


def _plain(prepared: PreparedTrack, view: _View, how: FitOptions, start: BodyParams | None = None) -> TrackFit:
    """A fit that knows nothing but how the camera turned."""
    turning = view.turning(prepared.grid.frame)
    scene = None if turning is None else SceneTerms(world_rotation=torch.from_numpy(turning).float())
    return fit_prepared(prepared, view.camera, view.body, how, scene=scene, start=start)


def _within(prepared: PreparedTrack, found: TrackFit, view: _View, place: _Place, how: FitOptions) -> TrackFit:
    """The fit again with the scene, at size 1, with the contacts that it kept."""
    turning = view.turning(found.frame)
    rest = on_floor = np.zeros((len(found), len(FEET)))
    if view.stays:
        time_s = view.rows(found.frame) / view.fps
        rest, on_floor = resting_points(found, view.body, time_s, view.camera, turning, place.up, place.floor_m)
    rest = rest / place.softer**2
    scene = SceneTerms(
        up=torch.from_numpy(place.up).float(),
        world_rotation=None if turning is None else torch.from_numpy(turning).float(),
        floor_m=place.floor_m,
        contact=torch.from_numpy(rest).float() if rest.any() else None,
        on_floor=torch.from_numpy(on_floor).float(),
        floor_std_m=place.softer * FLOOR_STD_M,
        carries=_carried(found, view, place, turning, rest),
    )
    how = replace(how, lean_rad=place.softer * math.hypot(UPRIGHT_RAD, place.up_std_rad))
    again = fit_prepared(prepared, view.camera, view.body, how, scene=scene, start=found.fit.params)
    feet = torch.cat([view.body.at(again.fit.params.rows(some)).keypoints[:, FEET] for some in blocks(len(again))])
    if scene.world_rotation is not None:
        feet = torch.einsum("tij,tnj->tni", scene.world_rotation, feet)
    kept = kept_contact(torch.from_numpy(rest).float(), feet, view.fps)
    return replace(again, contact=kept.numpy().astype(np.float32))


def _carried(found: TrackFit, view: _View, place: _Place, turning: np.ndarray | None, rest: np.ndarray) -> torch.Tensor:
    """[T, 4] how the feet that rest carry somebody who stands on them: known less where one foot rests, and not where
    the hips are low, as of people who sit."""
    carries = torch.zeros(len(found), len(FEET))
    for some in blocks(len(found)):
        at = view.body.at(found.fit.params.rows(some)).joints.double().numpy()
        up = place.up if turning is None else np.einsum("tij,i->tj", turning[some], place.up)
        legs_m = np.linalg.norm(np.diff(at[:, (1, 4, 7)], axis=1), axis=-1).sum(1)
        high = ((at[:, (1, 2)].mean(1) - at[:, (7, 8)].mean(1)) * up).sum(1) / legs_m  # 1: stands
        stands = np.clip((high - LOWEST_STANDING) / 0.1, 0, 1)
        feet = rest[some]
        each = feet.reshape(-1, 2, 2).max(2)
        known = stands * (each.min(1) + ON_ONE_FOOT * (each.max(1) - each.min(1))) / place.softer**2
        carries[some] = torch.from_numpy(feet / np.maximum(feet.sum(1), 1e-6)[:, None] * known[:, None]).float()
    return carries


def _finished(sized: dict[int, _Sized], view: _View, up: np.ndarray = LEVEL_UP) -> dict[int, TrackFit]:
    """Everyone as found, with less confidence in keypoints that lie behind others; none is left in `sized`. up [3]: of
    a camera of which nothing is known, that of one held level."""
    people, finished = {}, {}
    for identity, one in sized.items() if len(sized) > 1 else ():
        params = one.track.fit.params
        at = (view.body.at(params.rows(some)) for some in blocks(len(params)))
        placed = joined((BodyOutput(one.size * part.joints, one.size * part.keypoints) for part in at), len(params))
        people[identity] = FittedBody(one.track.frame, one.track.present, one.track.keypoints, placed)
    for identity in list(sized):
        inflation, one = behind_others(people, identity, view.camera).inflation if people else None, sized.pop(identity)
        hands = None if one.hands is None else seen_hands(one.hands, view.camera, view.body)
        finished[identity] = joined(
            (_as_found(one, view, some, up, inflation, hands and hands.rows(some)) for some in blocks(len(one.track))),
            len(one.track),
        )
    return finished


def _as_found(
    one: _Sized, view: _View, some: slice, up: np.ndarray, inflation: torch.Tensor | None, seen: SeenHands | None
) -> TrackFit:
    """Rows of a person at its size, with pixels as they were read, and with the lens's uncertainty in the depth.

    up [3]: in the shot's axes. inflation [T, 26], seen [n]: of keypoints, where others are near, and of hands, where
    anybody looked.
    """
    found, size = one.track.rows(some), one.size
    fit = found.fit
    if inflation is not None:
        points = with_variance_inflation(found.keypoints, inflation[some])
        joints = found.joint_observed & observed_joints(points, view.camera.size)
        found = replace(found, keypoints=points, joint_observed=joints)
    params = replace(fit.params, translation=size * fit.params.translation, size=torch.tensor(float(size)))
    camera_std, relative_std = fit.joint_std_mm, fit.joint_std_relative_mm
    if camera_std is not None and relative_std is not None:
        camera_std, relative_std = size * camera_std, size * relative_std
        by_lens = (not view.several) * 1000 * view.focal.log_sigma * params.translation[:, None, 2]
        camera_std = torch.cat((camera_std[..., :2], torch.hypot(camera_std[..., 2], by_lens)[..., None]), -1)
    turning = view.turning(found.frame)
    up = np.broadcast_to(up, (len(found), 3)) if turning is None else np.einsum("tij,i->tj", turning, up)
    params = flat_palms(params, view.body, torch.tensor(up, dtype=torch.float32))
    keypoints, reprojection, hands = found.keypoints, fit.reprojection_px, None
    if seen is not None:
        hands = fit_hands(seen, params, view.camera, view.body, view.fps, one.segment[some])
        pose = params.pose.clone()
        pose[:, list(WRISTS)] = torch.from_numpy(hands.wrist_rad)
        params = replace(params, pose=pose, hands=torch.from_numpy(hands.pose_rad))
    zoom = view.zoom(found.frame)
    if zoom is not None:
        keypoints = _zoomed(keypoints, view, zoom)
        reprojection = reprojection * torch.from_numpy(zoom).float()[:, None]
    fit = replace(
        fit, params=params, joint_std_mm=camera_std, joint_std_relative_mm=relative_std, reprojection_px=reprojection
    )
    contact = np.zeros((len(found), len(FEET)), np.float32) if found.contact is None else found.contact
    worst = None if found.worst_error_mm is None else np.float32(size) * found.worst_error_mm
    second = found.second
    if second is not None:
        second = replace(second, translation_m=np.float32(size) * second.translation_m)
    return replace(
        found, keypoints=keypoints, fit=fit, contact=contact, worst_error_mm=worst, hands=hands, second=second
    )
