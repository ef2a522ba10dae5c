"""Fit everyone in a shot: first roughly and alone, then within the scene that these fits show."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from fitting.body import Body
from fitting.camera import Camera
from fitting.camera.focal import FocalEstimate
from fitting.fits import TrackFit
from fitting.keypoints.usable import TooFewKeypoints
from fitting.scene.ground import GroundAnswer, contradictions, estimate_ground
from fitting.scene.ground_problem import GroundEstimate
from fitting.scene.person_evidence import ShotCamera, person_evidence
from fitting.shot.decide import decide_about_scene, fit_alone
from fitting.shot.finish import FinishedPeople
from fitting.shot.hidden_legs import settle_hidden_legs
from fitting.shot.sizes import (
    GroundOfPerson,
    body_size,
    estimate_shape,
    head_enlargement,
    refocus,
    scale_head,
)
from fitting.shot.types import SceneDecision, SceneOptions, ShotFit, ShotPerson, ignore_progress
from fitting.shot.view import ShotView, undo_zoom, view_shot
from fitting.solver.terms.contact import FEET
from fitting.solver.terms.floor import foot_lifts
from fitting.track import Track, guess_again, prepare_track, with_hands
from pose2d.base.table import store_on_disk
from pose2d.base.threads import single_thread
from pose2d.video.camera_motion.motion import CameraMotion

# In the first fits the camera may look down by any angle, so people may lean out of the image
# further than usual.
ROUGH_LEAN_RAD = 0.5
LOWEST_FEET = 0.05  # quantile of feet's heights that is the floor, where distances are measured


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
    """Fit everyone in a shot, and the scene that they stand in.

    camera: of the shot's first frame, with `focal`'s focal length; motion: how it moved from there,
    its frames those of the shot. fps, every: of the frames that were read, as in `fit_track`.
    """
    options = options or SceneOptions()
    if any(person.other_views for person in people):  # not measured with several cameras
        options = replace(options, fit=replace(options.fit, reads=False))
    view = view_shot(people, camera, focal, motion, body, fps=fps, every=every, options=options)
    people = [undo_zoom(person, view) for person in people]
    if not options.ground:
        return fit_everyone_alone(people, view, "not looked for")
    rough = fit_everyone_roughly(people, view)
    answer = estimate_shot_ground(people, rough, view)
    if answer.ground is None:
        return fit_everyone_alone(people, view, answer.reason, rough)
    scene_view = use_focal_of_ground(view, answer.ground)
    finished, decisions = fit_everyone_in_scene(people, rough, view, scene_view, answer)
    reason = reason_to_drop_scene(decisions)
    if reason is not None:
        silent_options = replace(options, progress=ignore_progress)  # these frames were reported
        silent_view = replace(view, options=silent_options)
        return replace(fit_everyone_alone(people, silent_view, reason), decisions=decisions)
    return finished.collect(rough.left_out, decisions)


@dataclass(frozen=True)
class RoughFits:
    """Everyone's track and first fit, by identity."""

    tracks: dict[int, Track] = field(default_factory=dict)
    fits: dict[int, TrackFit] = field(default_factory=dict)
    left_out: dict[int, TooFewKeypoints] = field(default_factory=dict)

    def take(self, identity: int) -> tuple[Track, TrackFit]:
        """Return a person's track and fit, and forget them: of long videos, these are most of what
        is held in memory.
        """
        return self.tracks.pop(identity), self.fits.pop(identity)


def fit_everyone_roughly(people: Sequence[ShotPerson], view: ShotView) -> RoughFits:
    """Prepare and roughly fit everyone who shows enough keypoints, each person alone."""
    rough = RoughFits()
    options = replace(view.options.fit, rough=True, lean_rad=ROUGH_LEAN_RAD)
    tracks = {}
    for person in people:
        try:
            tracks[person.identity] = store_on_disk(prepare_person(person, view))
        except TooFewKeypoints as error:
            rough.left_out[person.identity] = error
    if not view.has_several_cameras:
        is_static = view.motion is None or view.motion.kind == "static"
        tracks = settle_hidden_legs(tracks, view.camera.size[1], is_static)
    for identity, track in tracks.items():
        try:
            rough.fits[identity] = fit_alone(track, view, options)
            rough.tracks[identity] = track
        except TooFewKeypoints as error:
            rough.left_out[identity] = error
    return rough


def prepare_person(person: ShotPerson, view: ShotView) -> Track:
    """Return a person's keypoints, hands and guess on the grid of frames."""
    if view.has_several_cameras:
        from fitting.rig.views import prepare_views

        assert isinstance(person.init, str)
        return prepare_views(
            person.keypoints,
            person.frame,
            view.camera,
            person.other_views,
            view.body,
            person.init,
            fps=view.fps,
            every=view.every,
        )
    track = prepare_track(
        person.keypoints,
        person.frame,
        view.camera,
        view.body,
        person.init,
        fps=view.fps,
        every=view.every,
        reads=view.options.fit.reads,
    )
    return (
        track if person.hands is None else with_hands(track, person.hands, person.frame, view.body)
    )


def estimate_shot_ground(
    people: Sequence[ShotPerson], rough: RoughFits, view: ShotView
) -> GroundAnswer:
    """Estimate gravity, floor and sizes from everyone's first fit."""
    motion = view.motion
    user_ground = view.options.user_ground
    evidence = [
        person_evidence(fit, view.body, view.rows(fit.frame), person.height_m)
        for person in people
        if (fit := rough.fits.get(person.identity)) is not None
    ]
    first_from_camera = None
    vertical = None
    if motion is not None:
        first_from_camera = motion.turning(np.arange(len(motion.frames)))
        vertical = motion.vertical
    shot_camera = ShotCamera(
        focal=view.focal,
        center_px=view.camera.center_px,
        fps=view.fps,
        first_from_camera=first_from_camera,
        moving=not view.stays_in_place,
        vertical=vertical,
    )
    answer = estimate_ground(evidence, shot_camera, user_ground)
    ground = answer.ground
    warnings = contradictions(evidence, shot_camera, user_ground, ground)
    if ground is not None and view.has_several_cameras and user_ground.camera_height_m is None:
        ground = _put_floor_under_feet(ground, rough.fits.values(), view.body)
    return replace(answer, ground=ground, warnings=warnings)


def _put_floor_under_feet(
    ground: GroundEstimate, fits: Iterable[TrackFit], body: Body
) -> GroundEstimate:
    """Return the ground with the floor under the lowest feet, where distances are known."""
    feet = [body.at(fit.fit.params).keypoints[fit.fit.observed][:, FEET] for fit in fits]
    lifts = foot_lifts(body).double().numpy()
    heights = torch.cat(feet).double().numpy() @ ground.up_cam - lifts
    height_m = -float(np.quantile(heights, LOWEST_FEET))
    on_floor = np.ones_like(ground.on_floor)
    return replace(ground, floor_known=True, camera_height_m=height_m, on_floor=on_floor)


def use_focal_of_ground(view: ShotView, ground: GroundEstimate) -> ShotView:
    """Return the view under the focal length that the ground suggests, unless several cameras know
    it.
    """
    if ground.focal is None or view.has_several_cameras:
        return view.with_focal(view.focal)
    return view.with_focal(ground.focal)


def fit_everyone_in_scene(
    people: Sequence[ShotPerson],
    rough: RoughFits,
    view: ShotView,
    scene_view: ShotView,
    answer: GroundAnswer,
) -> tuple[FinishedPeople, dict[int, SceneDecision]]:
    """Fit everyone again under the view of the scene, starting from the rough fits under `view`,
    and decide for each person whether the scene is used.
    """
    ground = answer.ground
    assert ground is not None
    focal_ratio = scene_view.focal.focal_px / view.focal.focal_px
    finished = FinishedPeople(scene_view, answer)
    decisions: dict[int, SceneDecision] = {}
    present = [person for person in people if person.identity in rough.tracks]
    for number, person in enumerate(present):
        track, first_fit = rough.take(person.identity)
        on_ground = GroundOfPerson.of(ground, number)
        size = body_size(person, first_fit, view, on_ground)
        track = _guess_again(track, person, first_fit, view)
        track, start = refocus(track, first_fit, view.body, focal_ratio)
        track, start = estimate_shape(track, start, person, scene_view, size)
        if not view.has_several_cameras:  # outlines may change the shape: stay as tall as before
            height_m = view.body.height_m(first_fit.fit.params.shape)
            size *= height_m / view.body.height_m(start.fit.params.shape)
        floor_m = floor_at_size_one(ground, on_ground, size, scene_view)
        head = head_enlargement(first_fit, on_ground)
        track = replace(track, keypoints=scale_head(track.keypoints, 1 / head))
        fit, decision = decide_about_scene(track, start, scene_view, ground, floor_m)
        fit = replace(fit, keypoints=scale_head(fit.keypoints, head))
        finished.add(person.identity, track, fit, size)
        decisions[person.identity] = decision
        view.options.progress(len(first_fit))
    return finished, decisions


def _guess_again(track: Track, person: ShotPerson, first_fit: TrackFit, view: ShotView) -> Track:
    """Return the track with a guess that knows where the first fit found keypoints to be read."""
    if not isinstance(person.init, str):
        return track
    reading = first_fit.fit.params.reading
    return guess_again(track, person.init, reading, view.camera, view.body)


def floor_at_size_one(
    ground: GroundEstimate, on_ground: GroundOfPerson, size: float, view: ShotView
) -> float | None:
    """Return up . x of what the person stands on, in units in which the person has size 1; None:
    not known.
    """
    if not (view.stays_in_place and ground.floor_known and on_ground.on_floor):
        return None
    level_m = 0.0 if view.has_several_cameras else on_ground.level_m
    return (level_m - ground.camera_height_m) / size


def reason_to_drop_scene(decisions: Mapping[int, SceneDecision]) -> str | None:
    """Return why the scene is dropped for everyone: most people contradict it. None: they do not."""
    misfits = [decision.misfit for decision in decisions.values() if decision.verdict == "dropped"]
    if 2 * len(misfits) <= len(decisions):
        return None
    return (
        "keypoints contradict it: "
        f"they are {np.median(misfits):.2f} times as far from bodies that stand on it"
    )


def fit_everyone_alone(
    people: Sequence[ShotPerson],
    view: ShotView,
    reason: str,
    rough: RoughFits | None = None,
) -> ShotFit:
    """Fit everyone without a scene, but with how the camera turned and with known heights.

    reason: why there is no scene. rough: first fits of people who are prepared already.
    """
    rough = rough or RoughFits()
    finished = FinishedPeople(view, GroundAnswer(None, reason))
    left_out: dict[int, TooFewKeypoints] = {}
    for person in people:
        try:
            if person.identity in rough.tracks:
                track, first_fit = rough.take(person.identity)
                track = _guess_again(track, person, first_fit, view)
            else:
                track = prepare_person(person, view)
            track, fit = _fit_person_alone(person, track, view)
        except TooFewKeypoints as error:
            left_out[person.identity] = error
            continue
        finished.add(person.identity, track, fit, body_size(person, fit, view))
        view.options.progress(len(fit))
    return finished.collect(left_out)


def _fit_person_alone(person: ShotPerson, track: Track, view: ShotView) -> tuple[Track, TrackFit]:
    """Return the track, with what is known of the person's shape, and the fit without a scene."""
    options = view.options.fit
    if person.weight_kg is None and not person.has_outlines:
        return track, fit_alone(track, view, options)
    rough = fit_alone(track, view, replace(options, rough=True))
    size = body_size(person, rough, view)
    track, rough = estimate_shape(track, rough, person, view, size)
    return track, fit_alone(track, view, options, rough.fit.params)
