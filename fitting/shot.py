"""Everyone of one shot: each fitted alone, then the scene that all of them stand in, then everyone
again within it.

The scene is how the camera turned, the lens, gravity and floor, everyone's size, and which points
of their feet are in contact (`fitting.scene`). Each of them may be unknown; what is not known
constrains nothing: without gravity everyone is fitted alone, as if nobody had looked.

Gravity, floor and contacts are hypotheses. Terms of the solver let go of single contacts that
keypoints contradict; here the whole is judged, person by person: fitted with the scene against
without. Where keypoints are hardly worse explained with it, it is used; else it is softened, and
dropped when that does not help either.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch

from fitting.body import Body, BodyOutput, BodyParams
from fitting.body.fingers import WRISTS
from fitting.camera import Camera
from fitting.camera.focal import GIVEN_LOG_SIGMA, FocalEstimate, combined, refocused_params
from fitting.fits import DEFAULTS, FitOptions, InitialGuess, OtherView, TrackFit
from fitting.hands import fit_hands, flat_palms
from fitting.keypoints.after_fit import with_variance_inflation
from fitting.keypoints.hands import SeenHands, seen_hands
from fitting.keypoints.hidden import FittedBody, behind_others
from fitting.keypoints.observed import observed_joints
from fitting.keypoints.usable import TooFewKeypoints
from fitting.scene.contact import foot_contacts
from fitting.scene.ground import GroundAnswer, contradictions, estimate_ground
from fitting.scene.ground_problem import GivenGround, GroundEstimate
from fitting.scene.height_prior import ADULT_M, head_share
from fitting.scene.person_evidence import ShotCamera, person_evidence, shown_head_share
from fitting.solver.terms.contact import FEET, kept_contact
from fitting.solver.terms.floor import FLOOR_STD_M, foot_lifts
from fitting.solver.terms.scene import SceneTerms
from fitting.solver.terms.shape import ShapeEvidence
from fitting.track import Track, fit_prepared, prepare_track, with_hands, with_outlines
from pose2d.base.table import blocks, join_rows, store_on_disk
from pose2d.base.threads import single_thread
from pose2d.types import HandKeypoints, Keypoints, Outlines
from pose2d.video.camera_motion.motion import CameraMotion

# Of the first fits: the camera may look down by anything, so people may lean out of the image
# further than usual.
ROUGH_LEAN_RAD = 0.5
UPRIGHT_RAD = (
    0.25  # standard deviation of people's lean from the vertical, towards or away from the camera
)
ON_ONE_FOOT = (
    0.1  # of what two feet say of balance: whoever walks falls from one foot onto the other
)
LOWEST_STANDING = (
    0.75  # of the legs' length: hips of people who stand are higher over the ankles. Not tuned
)
CHILD_M = 1.4  # whose head says that they are smaller than this are no adults
# its keypoints, and its size
HEAD = [0, 1, 2, 3, 4, 17]
ADULT_SHARE = float(head_share(np.array(ADULT_M)))
SOFTER = 4.0  # on the deviations of lean, floor and contacts, where a scene is softened
LOWEST_FEET = 0.05  # quantile of feet's heights that is the floor, where distances are measured
LEVEL_UP = np.array([0.0, -1.0, 0.0])  # of a camera held level, for one of which nothing is known
# Density of people with air in their lungs (0.98 to 1.04), and how exactly a body's volume tells
# its weight: density, clothes and food on the scales, and a body model without inner air.
KG_PER_M3, WEIGHT_LOG_STD = 1010.0, 0.05
HEIGHT_STD_M = 0.002  # by which a fit may leave a height that is stated
# Mean distance to the keypoints with the scene over that without: below, nobody sees a difference;
# above, fits with it were visibly worse (bench/scene_evidence.py).
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
    # Of several cameras: rows without gaps, NaN where this camera does not show the person, and
    # what the others show.
    others: tuple[OtherView, ...] = ()


@dataclass(frozen=True)
class SceneOptions:
    """How everyone is fitted, and what is looked for besides the bodies."""

    ground: bool = True  # gravity, floor, sizes and contacts; without, everyone is fitted alone
    given: GivenGround = field(default_factory=GivenGround)
    fit: FitOptions = DEFAULTS  # of every person
    progress: Callable[[int], None] = lambda frames: (
        None
    )  # told how many frames were fitted, each once


@dataclass(frozen=True)
class Judged:
    """One person's scene."""

    verdict: Verdict
    misfit: float  # mean distance to the keypoints with the scene over that without


@dataclass(frozen=True)
class ShotFit:
    """Everyone of a shot, and the scene."""

    people: dict[
        int, TrackFit
    ]  # by identity: in the camera frame, metres, with the person's size, and contacts
    left_out: dict[
        int, TooFewKeypoints
    ]  # by identity: who never shows enough to be fitted, and what is missing
    camera: Camera  # of the first frame
    focal: FocalEstimate  # of the first frame
    motion: CameraMotion | None  # under that focal length; None: nobody looked
    ground: GroundEstimate | None  # None: not known
    reason: str  # what the ground rests on, or why it is not known
    judged: dict[int, Judged] = field(
        default_factory=dict
    )  # by identity: whether the scene was kept
    warnings: tuple[str, ...] = ()  # where what the user states contradicts the images
    masks: dict[int, int] = field(
        default_factory=dict
    )  # by identity: how many the shape was found from

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
    """What everyone of a shot shares: its camera under one focal length, how it moves, and its
    frames.
    """

    camera: Camera  # of the first frame
    focal: FocalEstimate
    motion: CameraMotion | None
    body: Body
    first_frame: int
    every: int
    fps: float
    several: bool  # cameras, so that lens and distances are known
    options: SceneOptions

    def rows(self, frame: np.ndarray) -> np.ndarray:
        """The places of frame numbers among the shot's frames."""
        return (frame - self.first_frame) // self.every

    def turning(self, frame: np.ndarray) -> np.ndarray | None:
        """[T, 3, 3] the camera's rotation from these frames to the first; None: it does not turn,
        or nobody knows.
        """
        return None if self.motion is None else self.motion.turning(self.rows(frame))

    def zoom(self, frame: np.ndarray) -> np.ndarray | None:
        """[T] focal length over the first frame's; None: it stays the same."""
        return None if self.motion is None else self.motion.zooming(self.rows(frame))

    def zoomed(self, xy_px: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """Pixels [T, .., 2] as focal lengths so many times [T] as long would show them."""
        center = np.array(self.camera.center_px, np.float32)
        return center + (xy_px - center) * factor.astype(np.float32).reshape(
            -1, *(1,) * (xy_px.ndim - 1)
        )

    def with_focal(self, focal: FocalEstimate) -> "_View":
        """The same image under another focal length."""
        ratio = focal.focal_px / self.focal.focal_px
        camera = replace(
            self.camera, focal_px=(self.camera.focal_px[0] * ratio, self.camera.focal_px[1] * ratio)
        )
        motion = None if self.motion is None else self.motion.with_focal(focal.focal_px)
        return replace(self, camera=camera, focal=focal, motion=motion)

    @property
    def stays(self) -> bool:
        """A camera that goes somewhere leaves no feet in contact and no floor in its place."""
        return self.motion is None or self.motion.kind != "moving"


@dataclass(frozen=True)
class _Sized:
    """A person's fit at size 1, the size, and hands whose fingers are fitted last."""

    track: TrackFit
    size: float
    hands: HandKeypoints | None  # [T]
    segment: np.ndarray  # [T]
    masks: int  # that the shape was found from

    @classmethod
    def of(cls, track: TrackFit, size: float, prepared: Track) -> "_Sized":
        masks = 0 if prepared.shape is None else prepared.shape.masks
        return cls(track, size, prepared.hands, prepared.grid.segment, masks)


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
    """camera: of the shot's first frame, with `focal`'s focal length; motion: how it moved from
    there, its frames those of the shot. fps, every: of the frames that were read, as in
    `fit_track`.
    """
    options = options or SceneOptions()
    given = options.given
    start = min((int(person.frame[0]) for person in people), default=0)
    first_frame = start if motion is None else int(motion.frames[0])
    several = any(p.others for p in people)
    view = _refined_by_turning(
        _View(camera, focal, motion, body, first_frame, every, fps, several, options)
    )
    people = [_unzoomed(person, view) for person in people]
    if not options.ground:
        return _without_scene(people, view, "not looked for")
    prepared: dict[int, Track] = {}
    alone: dict[int, TrackFit] = {}
    left_out: dict[int, TooFewKeypoints] = {}
    for person in people:
        try:
            track = store_on_disk(_prepared(person, view))
            alone[person.identity] = _plain(track, view, rough=True, lean_rad=ROUGH_LEAN_RAD)
            prepared[person.identity] = track
        except TooFewKeypoints as error:
            left_out[person.identity] = error
    fitted_people = [person for person in people if person.identity in prepared]
    answer = _ground(
        [(alone[person.identity], person.height_m) for person in fitted_people], view, given
    )
    ground = answer.ground
    if ground is None:
        return _without_scene(people, view, answer.reason, prepared)
    if several and given.camera_height_m is None:
        ground = _on_lowest_feet(ground, alone.values(), body)
    seen = view.with_focal(view.focal if ground.focal is None or several else ground.focal)
    sized: dict[int, _Sized] = {}
    judged: dict[int, Judged] = {}
    for number, person in enumerate(fitted_people):
        identity = person.identity
        # of long videos, these are most of what is held
        track = prepared.pop(identity)
        first = alone.pop(identity)
        # Whose feet show no floor is an adult, unless the head is a child's.
        shown = ground.on_floor[number] or ground.height_m[number] < CHILD_M
        size = (
            1.0
            if several
            else _size(first, body, person, float(ground.scale[number]) if shown else 1.0)
        )
        track, start_fit = _refocused(track, first, body, seen.focal.focal_px / view.focal.focal_px)
        track, start_fit = _shaped(track, start_fit, person, seen, size)
        if not several:  # as tall as before
            size *= body.height_m(first.fit.params.shape) / body.height_m(
                start_fit.fit.params.shape
            )
        floor_m = None
        if seen.stays and ground.floor_known and ground.on_floor[number]:
            level_m = 0.0 if several else ground.level_m[number]  # of what this person stands on
            floor_m = (level_m - ground.camera_height_m) / size
        # The body model has an adult's head; on a child's shoulders it fits a large one by leaning
        # towards the camera.
        larger = (
            max(1.0, shown_head_share(first) / ADULT_SHARE)
            if ground.height_m[number] < CHILD_M
            else 1.0
        )
        track = replace(track, keypoints=_with_head(track.keypoints, 1 / larger))
        fit, judged[identity] = _judged(
            track, start_fit, seen, ground, floor_m, given.states_anything
        )
        sized[identity] = _Sized.of(
            replace(fit, keypoints=_with_head(fit.keypoints, larger)), size, track
        )
        options.progress(len(first))
    dropped = [one.misfit for one in judged.values() if one.verdict == "dropped"]
    if 2 * len(dropped) > len(judged):
        reason = f"keypoints contradict it: they are {np.median(dropped):.2f} times as far from bodies that stand on it"
        view = replace(
            view, options=replace(options, progress=lambda frames: None)
        )  # was told already
        return replace(_without_scene(people, view, reason), judged=judged)
    return replace(_finished(sized, left_out, seen, replace(answer, ground=ground)), judged=judged)


def _without_scene(
    people: Sequence[ShotPerson],
    view: _View,
    reason: str,
    ready: Mapping[int, Track] = MappingProxyType({}),
) -> ShotFit:
    """Everyone alone: with a camera that turns, and with a known height. ready: who is prepared
    already.
    """
    sized: dict[int, _Sized] = {}
    left_out: dict[int, TooFewKeypoints] = {}
    for person in people:
        try:
            prepared = ready.get(person.identity) or _prepared(person, view)
            start = None
            if person.weight_kg is not None or (
                person.outlines is not None and len(person.outlines)
            ):
                rough = _plain(prepared, view, rough=True)
                prepared, rough = _shaped(
                    prepared, rough, person, view, _size(rough, view.body, person)
                )
                start = rough.fit.params
            track = _plain(prepared, view, start)
        except TooFewKeypoints as error:
            left_out[person.identity] = error
            continue
        size = 1.0 if view.several else _size(track, view.body, person)
        sized[person.identity] = _Sized.of(track, size, prepared)
        view.options.progress(len(track))
    return _finished(sized, left_out, view, GroundAnswer(None, reason))


def _refined_by_turning(view: _View) -> _View:
    """With what a camera that turns tells of its lens."""
    if view.motion is None:
        return view
    told = FocalEstimate(
        view.motion.turning_focal_px, view.motion.turning_focal_log_sigma, "the camera's turning"
    )
    if not math.isfinite(told.log_sigma) or view.focal.log_sigma <= GIVEN_LOG_SIGMA:
        return view
    return view.with_focal(combined([view.focal, told]))


def _zoomed(keypoints: Keypoints, view: _View, factor: np.ndarray) -> Keypoints:
    """Pixels as focal lengths so many times [T] as long would show them."""
    area = (
        None
        if keypoints.area_px2 is None
        else keypoints.area_px2 * torch.from_numpy(factor).float().square()
    )
    return replace(
        keypoints,
        xy_px=torch.from_numpy(view.zoomed(keypoints.xy_px.numpy(), factor)),
        area_px2=area,
    )


def _unzoomed(person: ShotPerson, view: _View) -> ShotPerson:
    """As the first frame's focal length would show them."""
    if (zoom := view.zoom(person.frame)) is None:
        return person
    hands = person.hands
    outlines = person.outlines
    if hands is not None:
        std_px = hands.std_px / zoom.astype(np.float32)[:, None, None]
        hands = replace(hands, xy_px=view.zoomed(hands.xy_px, 1 / zoom), std_px=std_px)
    if outlines is not None:
        outlines = replace(outlines, xy_px=view.zoomed(outlines.xy_px, 1 / zoom[outlines.row]))
    return replace(
        person, keypoints=_zoomed(person.keypoints, view, 1 / zoom), hands=hands, outlines=outlines
    )


def _with_head(keypoints: Keypoints, factor: float) -> Keypoints:
    """The head so many times as large, from the neck."""
    if factor == 1.0:
        return keypoints
    xy_px = keypoints.xy_px.clone()
    neck = keypoints.xy_px[:, 18:19]
    xy_px[:, HEAD] = neck + factor * (xy_px[:, HEAD] - neck)
    return replace(keypoints, xy_px=xy_px)


def _prepared(person: ShotPerson, view: _View) -> Track:
    keypoints = person.keypoints
    frame = person.frame
    hands = person.hands
    if view.several:
        from fitting.rig.views import prepare_views

        assert isinstance(person.init, str)
        return prepare_views(
            keypoints,
            frame,
            view.camera,
            person.others,
            view.body,
            person.init,
            fps=view.fps,
            every=view.every,
        )
    prepared = prepare_track(
        keypoints, frame, view.camera, view.body, person.init, fps=view.fps, every=view.every
    )
    return prepared if hands is None else with_hands(prepared, hands, frame, view.body)


def _shaped(
    prepared: Track, track: TrackFit, person: ShotPerson, view: _View, size: float
) -> tuple[Track, TrackFit]:
    """With what a person's outlines, height and weight say of the shape, where any is known."""
    if person.outlines is not None and len(person.outlines) and not view.several:
        rows = np.searchsorted(prepared.grid.frame, person.frame[person.outlines.row])
        usable = (prepared.grid.segment[rows] >= 0) & track.fit.observed.numpy()[rows]
        outlines = replace(person.outlines, row=rows).rows(usable)
        prepared, track = with_outlines(
            prepared, track, outlines, view.camera, view.body, view.options.fit
        )
    body = view.body
    shape = track.fit.params.shape.double()

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
        slope = torch.tensor(
            [measured(shape + step) - measured(shape - step) for step in steps], dtype=shape.dtype
        )
        wanted = slope @ shape + value - measured(shape)
        known = prepared.shape or ShapeEvidence(
            torch.zeros(len(shape), len(shape)), torch.zeros(len(shape))
        )
        known = replace(
            known,
            precision=known.precision + (slope[:, None] * slope / std**2).float(),
            information=known.information + (slope * wanted / std**2).float(),
        )
        prepared = replace(prepared, shape=known)
    return prepared, track


def _ground(
    people: Sequence[tuple[TrackFit, float | None]], view: _View, given: GivenGround
) -> GroundAnswer:
    """people: each fitted alone, and the height that is known."""
    motion = view.motion
    evidence = [
        person_evidence(track, view.body, view.rows(track.frame), height_m)
        for track, height_m in people
    ]
    seen = ShotCamera(
        focal=view.focal,
        center_px=view.camera.center_px,
        fps=view.fps,
        first_from_camera=None if motion is None else motion.turning(np.arange(len(motion.frames))),
        moving=not view.stays,
        vertical=None if motion is None else motion.vertical,
    )
    answer = estimate_ground(evidence, seen, given)
    return replace(answer, warnings=contradictions(evidence, seen, given, answer.ground))


def _on_lowest_feet(
    ground: GroundEstimate, tracks: Iterable[TrackFit], body: Body
) -> GroundEstimate:
    """With the floor under the lowest feet, where distances are known."""
    feet = [body.at(track.fit.params).keypoints[track.fit.observed][:, FEET] for track in tracks]
    heights = torch.cat(feet).double().numpy() @ ground.up_cam - foot_lifts(body).double().numpy()
    height_m = -float(np.quantile(heights, LOWEST_FEET))
    return replace(
        ground, floor_known=True, camera_height_m=height_m, on_floor=np.ones_like(ground.on_floor)
    )


def _size(track: TrackFit, body: Body, person: ShotPerson, scale: float = 1.0) -> float:
    """What multiplies the fitted body, so that it has its known height; else the ground's scale,
    with which it stands on the floor with everybody else."""
    return (
        scale
        if person.height_m is None
        else person.height_m / body.height_m(track.fit.params.shape)
    )


def _refocused(
    prepared: Track, track: TrackFit, body: Body, focal_ratio: float
) -> tuple[Track, TrackFit]:
    """Guess and first fit under a focal length so many times as long."""
    shape = track.fit.params.shape
    pelvis = body.rest_joints[0] + body.rest_joint_shapedirs[0, :, : len(shape)] @ shape.to(
        body.dtype
    )
    start = refocused_params(track.fit.params, pelvis, focal_ratio)
    guess = replace(
        prepared.guess, params=refocused_params(prepared.guess.params, pelvis, focal_ratio)
    )
    return replace(prepared, guess=guess), replace(track, fit=replace(track.fit, params=start))


def _judged(
    prepared: Track,
    alone: TrackFit,
    view: _View,
    ground: GroundEstimate,
    floor_m: float | None,
    stated: bool,
) -> tuple[TrackFit, Judged]:
    """The fit with the scene, or without where keypoints contradict it; what the user states is
    obeyed. floor_m: up . x of what the person stands on, at size 1; None: not known."""
    within = _within(prepared, alone, view, ground, floor_m, 1.0)
    misfit = misfit_ratio(within, alone)
    if misfit <= DOUBTFUL or stated:
        return within, Judged("used", misfit)
    soft = _within(prepared, alone, view, ground, floor_m, SOFTER)
    if misfit_ratio(soft, alone) <= DOUBTFUL:
        return soft, Judged("softened", misfit)
    return _plain(prepared, view, alone.fit.params), Judged("dropped", misfit)


def misfit_ratio(scene: TrackFit, alone: TrackFit) -> float:
    """Of the keypoints that count in both."""
    a = scene.fit.reprojection_px.numpy()
    b = alone.fit.reprojection_px.numpy()
    both = np.isfinite(a) & np.isfinite(b)
    return float(a[both].mean() / max(b[both].mean(), 1e-6)) if both.any() else 1.0


def _plain(
    prepared: Track, view: _View, start: BodyParams | None = None, **changed: Any
) -> TrackFit:
    """A fit that knows nothing but how the camera turned. changed: options of it."""
    turning = view.turning(prepared.grid.frame)
    scene = (
        None if turning is None else SceneTerms(world_rotation=torch.from_numpy(turning).float())
    )
    how = replace(view.options.fit, **changed)
    return fit_prepared(prepared, view.camera, view.body, how, scene=scene, start=start)


def _within(
    prepared: Track,
    alone: TrackFit,
    view: _View,
    ground: GroundEstimate,
    floor_m: float | None,
    softer: float,
) -> TrackFit:
    """The fit again with the scene, at size 1, with the contacts that it kept. softer: on
    deviations.
    """
    turning = view.turning(alone.frame)
    up = ground.up_cam
    probability = on_floor = np.zeros((len(alone), len(FEET)))
    if view.stays:
        time_s = view.rows(alone.frame) / view.fps
        probability, on_floor = foot_contacts(
            alone, view.body, time_s, view.camera, turning, up, floor_m
        )
    contact = torch.from_numpy(probability / softer**2).float()
    scene = SceneTerms(
        up=torch.from_numpy(up).float(),
        world_rotation=None if turning is None else torch.from_numpy(turning).float(),
        floor_m=floor_m,
        contact=contact if contact.any() else None,
        on_floor=torch.from_numpy(on_floor).float(),
        floor_std_m=softer * FLOOR_STD_M,
        carries=_carried(alone, view, up, turning, probability / softer**2) / softer**2,
    )
    how = replace(
        view.options.fit,
        lean_rad=softer * math.hypot(UPRIGHT_RAD, math.radians(ground.up_sigma_deg)),
    )
    track = fit_prepared(prepared, view.camera, view.body, how, scene=scene, start=alone.fit.params)
    feet = torch.cat(
        [
            view.body.at(track.fit.params.rows(some)).keypoints[:, FEET]
            for some in blocks(len(track))
        ]
    )
    if scene.world_rotation is not None:
        feet = torch.einsum("tij,tnj->tni", scene.world_rotation, feet)
    return replace(track, contact=kept_contact(contact, feet, view.fps).numpy().astype(np.float32))


def _carried(
    track: TrackFit, view: _View, up: np.ndarray, turning: np.ndarray | None, contact: np.ndarray
) -> torch.Tensor:
    """[T, 4] how the feet in contact carry somebody who stands on them: known less where it is one
    foot, and not where the hips are low, as of people who sit."""
    carries = torch.zeros(len(track), len(FEET))
    for some in blocks(len(track)):
        at = view.body.at(track.fit.params.rows(some)).joints.double().numpy()
        up_cam = up if turning is None else np.einsum("tij,i->tj", turning[some], up)
        legs_m = np.linalg.norm(np.diff(at[:, (1, 4, 7)], axis=1), axis=-1).sum(1)
        high = ((at[:, (1, 2)].mean(1) - at[:, (7, 8)].mean(1)) * up_cam).sum(
            1
        ) / legs_m  # 1: stands
        stands = np.clip((high - LOWEST_STANDING) / 0.1, 0, 1)
        feet = contact[some]
        each = feet.reshape(-1, 2, 2).max(2)
        known = stands * (each.min(1) + ON_ONE_FOOT * (each.max(1) - each.min(1)))
        carries[some] = torch.from_numpy(
            feet / np.maximum(feet.sum(1), 1e-6)[:, None] * known[:, None]
        ).float()
    return carries


def _finished(
    sized: dict[int, _Sized],
    left_out: dict[int, TooFewKeypoints],
    view: _View,
    answer: GroundAnswer,
) -> ShotFit:
    """Everyone as found, with less confidence in keypoints that lie behind others; none is left in
    `sized`.
    """
    up = LEVEL_UP if answer.ground is None else answer.ground.up_cam
    masks = {identity: one.masks for identity, one in sized.items()}
    people = {}
    finished = {}
    for identity, one in sized.items() if len(sized) > 1 else ():
        params = one.track.fit.params
        at = (view.body.at(params.rows(some)) for some in blocks(len(params)))
        placed = join_rows(
            (BodyOutput(one.size * part.joints, one.size * part.keypoints) for part in at),
            len(params),
        )
        people[identity] = FittedBody(
            one.track.frame, one.track.present, one.track.keypoints, placed
        )
    for identity in list(sized):
        inflation = behind_others(people, identity, view.camera).inflation if people else None
        one = sized.pop(identity)
        hands = None if one.hands is None else seen_hands(one.hands, view.camera, view.body)
        finished[identity] = join_rows(
            (
                _as_found(one, view, some, up, inflation, hands and hands.rows(some))
                for some in blocks(len(one.track))
            ),
            len(one.track),
        )
    return ShotFit(
        finished,
        left_out,
        view.camera,
        view.focal,
        view.motion,
        answer.ground,
        answer.reason,
        warnings=answer.warnings,
        masks=masks,
    )


def _as_found(
    one: _Sized,
    view: _View,
    some: slice,
    up: np.ndarray,
    inflation: torch.Tensor | None,
    seen: SeenHands | None,
) -> TrackFit:
    """Rows of a person at its size, with pixels as they were read, and with the lens's uncertainty
    in the depth.

    up [3]: in the shot's axes. inflation [T, 26], seen [n]: of keypoints, where others are near,
    and of hands, where anybody looked.
    """
    track = one.track.rows(some)
    size = one.size
    fit = track.fit
    if inflation is not None:
        points = with_variance_inflation(track.keypoints, inflation[some])
        joints = track.joint_observed & observed_joints(points, view.camera.size)
        track = replace(track, keypoints=points, joint_observed=joints)
    params = replace(
        fit.params, translation=size * fit.params.translation, size=torch.tensor(float(size))
    )
    camera_std = fit.joint_std_mm
    relative_std = fit.joint_std_relative_mm
    if camera_std is not None and relative_std is not None:
        camera_std = size * camera_std
        relative_std = size * relative_std
        by_lens = (not view.several) * 1000 * view.focal.log_sigma * params.translation[:, None, 2]
        camera_std = torch.cat(
            (camera_std[..., :2], torch.hypot(camera_std[..., 2], by_lens)[..., None]), -1
        )
    turning = view.turning(track.frame)
    up = (
        np.broadcast_to(up, (len(track), 3))
        if turning is None
        else np.einsum("tij,i->tj", turning, up)
    )
    params = flat_palms(params, view.body, torch.tensor(up, dtype=torch.float32))
    keypoints = track.keypoints
    reprojection = fit.reprojection_px
    hands = None
    if seen is not None:
        hands = fit_hands(seen, params, view.camera, view.body, view.fps, one.segment[some])
        pose = params.pose.clone()
        pose[:, list(WRISTS)] = torch.from_numpy(hands.wrist_rad)
        params = replace(params, pose=pose, hands=torch.from_numpy(hands.pose_rad))
    zoom = view.zoom(track.frame)
    if zoom is not None:
        keypoints = _zoomed(keypoints, view, zoom)
        reprojection = reprojection * torch.from_numpy(zoom).float()[:, None]
    fit = replace(
        fit,
        params=params,
        joint_std_mm=camera_std,
        joint_std_relative_mm=relative_std,
        reprojection_px=reprojection,
    )
    contact = (
        np.zeros((len(track), len(FEET)), np.float32) if track.contact is None else track.contact
    )
    worst = None if track.worst_error_mm is None else np.float32(size) * track.worst_error_mm
    return replace(
        track,
        keypoints=keypoints,
        fit=fit,
        contact=contact,
        worst_error_mm=worst,
        hands=hands,
    )
