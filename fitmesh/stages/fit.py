"""Stage 2: keypoints with their confidence -> a body per person and frame, in `fit.npz`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fitmesh.result import EDITS_FILE, FIT_FILE, SCHEMA_VERSION, Person
from fitmesh.stages.people import TRACKS_FILE, SeenPeople
from fitmesh.stages.scene import OFF, Lens, describe, scene_arrays, scene_options
from fitmesh.stages.settings import Job, RunSettings
from fitmesh.tracks import edited_keypoints
from fitting.body import Body, BodyParams
from fitting.body.load import load_body
from fitting.body.open_body import OPEN_BODY, OPEN_HANDS
from fitting.camera import Camera
from fitting.camera.focal import refocus_params
from fitting.fits import FitOptions, TrackFit
from fitting.init import REGRESSORS
from fitting.keypoints.weights import WEIGHTINGS
from fitting.shot import ShotFit, ShotPerson, fit_shot
from fitting.stated import TABLE
from pose2d.base.caching import (
    CacheKey,
    code_digest,
    content_digest,
    npz_is_current,
    read_npz,
    write_npz,
)
from pose2d.base.errors import UserError
from pose2d.base.scratch import release_scratch
from pose2d.base.table import blocks, join_rows
from pose2d.base.threads import prefetch, single_thread
from pose2d.events import Event
from pose2d.skeletons import HALPE26
from pose2d.types import Detections
from pose2d.video.camera_motion.motion import read_motion

FILE = FIT_FILE
HALPE_FEET = tuple(
    HALPE26.keypoints.index(f"{side}_{point}")
    for side in ("left", "right")
    for point in ("heel", "big_toe")
)
is_current = npz_is_current


def check(settings: RunSettings) -> None:
    """Refuse now what would otherwise be refused after the keypoints were estimated."""
    scene_options(settings.floor)
    load_body(settings.body_file)
    if settings.weighting not in WEIGHTINGS:
        raise UserError(
            f"unknown --weighting {settings.weighting!r}: choose {', '.join(WEIGHTINGS)}."
        )
    names = ("lifter", *REGRESSORS)
    if settings.init not in names:
        raise UserError(f"unknown --init {settings.init!r}: choose {', '.join(names)}.")
    if settings.init in REGRESSORS:
        if settings.init_checkpoint is None:
            raise UserError(
                f"--init {settings.init} ships no weights: pass --init-checkpoint (docs/initialisers.md)."
            )
        from fitting.init import regressors  # slow to import

        regressors.load_regressor(settings.init, settings.init_checkpoint)
    elif settings.init_checkpoint is not None:
        raise UserError(
            f"--init-checkpoint has no effect with --init {settings.init}: leave one of them out."
        )


def cache_key(job: Job, people_key: CacheKey) -> CacheKey:
    settings = job.settings
    inputs = {
        "people": people_key.digest,
        "body": content_digest([settings.body_file]),
        "prior": content_digest([OPEN_BODY.with_name("pose_prior.npz")]),
        "stated": content_digest([TABLE]),
        "hands": content_digest([OPEN_HANDS]),
    }
    if settings.init == "lifter":
        inputs["init"] = content_digest([OPEN_BODY.with_name("lifter.npz")])
    edits = job.out / EDITS_FILE if (job.out / EDITS_FILE).exists() else None
    for name, path in (
        ("edits", edits),
        ("floor", settings.floor_file),
        ("intrinsics", settings.intrinsics),
    ):
        if path is not None:
            inputs[name] = content_digest([path])
    if settings.init_checkpoint is not None:
        inputs |= {"clip": job.clip_digest, "init": content_digest([settings.init_checkpoint])}
    return CacheKey(
        stage="fit",
        settings={
            "schema": SCHEMA_VERSION,
            "weighting": settings.weighting,
            "init": settings.init,
            "focal_px": settings.focal_px,
            "fov_deg": settings.fov_deg,
            "floor": settings.floor if settings.floor_file is None else "given",
            "height": settings.height_m,
            "weight": settings.weight_kg,
            # Read from the clip's own file, whose digest is not among the inputs when keypoints are
            # given.
            "lens": str(job.lens.focal),
        },
        inputs=inputs,
        code=code_digest("fitting.shot", "fitting.init.regressors", "fitmesh.stages.scene"),
    )


def make(job: Job, key: CacheKey) -> None:
    """Fit everyone in `keypoints.npz`, shot by shot. Only image regressors (SPIN, CLIFF) look at
    the clip again.
    """
    settings = job.settings
    seen = edited_keypoints(job.out)
    arrays = read_npz(job.out / TRACKS_FILE)
    body = load_body(settings.body_file)
    lens = job.lens
    if lens.warning:
        job.reporter.warn(
            f"{job.clip.path}: {lens.warning} A usual lens is assumed; --focal or --fov state it."
        )
    heights = settings.heights()
    weights = settings.weights()
    for name, known in (("height", heights), ("weight", weights)):
        for identity in known:
            if identity is not None and identity not in seen.people:
                job.reporter.warn(
                    f"--{name} of person {identity} has no effect: there is no such person."
                )
    starts = _starts(job, seen.people, lens, body)
    firsts = seen.shot_first_frame
    total = sum(
        int(rows.frame[-1] - rows.frame[0]) // seen.every + 1 for rows in seen.people.values()
    )
    fitted: list[Person] = []
    fits: list[ShotFit] = []
    lowest: list[float] = []
    with job.reporter.stage("fit", total) as tick, single_thread():
        for shot in range(len(firsts)):
            end = firsts[shot + 1] if shot + 1 < len(firsts) else np.inf
            here = [
                ShotPerson(
                    i,
                    rows.points,
                    rows.frame,
                    starts[i],
                    heights.get(i, heights.get(None)),
                    rows.hands,
                    seen.outlines_of(i),
                    weights.get(i, weights.get(None)),
                )
                for i, rows in seen.people.items()
                if firsts[shot] <= rows.frame[0] < end  # a track lies within one shot
            ]
            motion = read_motion(arrays, shot)
            shot_fit = fit_shot(
                here,
                lens.camera,
                lens.focal,
                body,
                fps=seen.fps,
                every=seen.every,
                motion=None if motion is None else motion.with_focal(lens.focal.focal_px),
                options=replace(
                    scene_options(settings.floor), fit=FitOptions(settings.weighting), progress=tick
                ),
            )
            for person in here:
                if person.identity not in shot_fit.people:
                    job.reporter.warn(
                        f"person {person.identity} never shows enough confident keypoints at once: no body is fitted."
                    )
                    continue
                track = shot_fit.people[person.identity]
                rows = seen.people[person.identity]
                made = person_rows(person.identity, shot, seen, rows, track, body)
                std_m = made.height_std_m if person.height_m is None else 0.0
                uses = shot_fit.uses_scene(person.identity)
                masks = shot_fit.masks.get(person.identity, 0)
                fitted.append(replace(made, height_std_m=std_m, scene_used=uses, masks=masks))
            lowest.append(lowest_foot(shot_fit, body))
            release_scratch()
            fits.append(replace(shot_fit, people={}))  # their rows are in `fitted`
            if settings.floor_file is not None and shot_fit.ground is None:
                job.reporter.warn(
                    f"--floor has no effect in shot {shot + 1}: nobody stands there long enough."
                )
            for warning in shot_fit.warnings:
                job.reporter.warn(warning)
            if here and settings.floor != OFF:
                job.reporter.say(
                    describe(shot_fit, f"shot {shot + 1}" if len(firsts) > 1 else "scene"), "scene"
                )
    camera = fits[0].camera if fits else lens.camera
    scene = scene_arrays(fits, firsts, seen.frames, lowest)
    groups = Person.to_groups(fitted, {"directions": 10, "fitted": 10})
    write_fit(job, key, seen, camera, {**scene, **groups})


def write_fit(
    job: Job, key: CacheKey, seen: SeenPeople, camera: Camera, arrays: Mapping[str, Any]
) -> None:
    """`fit.npz`: what was found, and what it was made from."""
    settings = job.settings
    write_npz(
        job.out / FILE,
        key,
        {
            "schema_version": SCHEMA_VERSION,
            "body": load_body(settings.body_file).name
            if settings.body_model is None
            else settings.body_file.name,
            "body_path": "" if settings.body_model is None else str(settings.body_file.resolve()),
            "body_digest": key.inputs["body"],
            "weighting": settings.weighting,
            "init": settings.init,
            "source": seen.rows.points.source,
            "pose_model": seen.pose_model,
            "width_px": seen.width_px,
            "height_px": seen.height_px,
            "rate": [seen.rate.numerator, seen.rate.denominator],
            "frame": seen.frames,
            "time_s": seen.time_s,
            "focal_px": np.array(camera.focal_px),
            "center_px": np.array(camera.center_px),
            "distortion": np.array(camera.distortion, np.float64),
            **Event.stack(seen.events).to_arrays(),
            **arrays,
        },
    )


def lowest_foot(shot_fit: ShotFit, body: Body) -> float:
    """up . x of the lowest foot of a shot in the first camera's axes; 0 where gravity is not known."""
    if shot_fit.ground is None:
        return 0.0
    lowest = [0.0]
    for track in shot_fit.people.values():
        feet = body.at(track.fit.params).keypoints[:, HALPE_FEET].double().numpy()
        if shot_fit.motion is not None:
            at = np.searchsorted(shot_fit.motion.frames, track.frame).clip(
                0, len(shot_fit.motion.frames) - 1
            )
            feet = np.einsum("tij,tnj->tni", shot_fit.motion.first_from_camera[at], feet)
        lowest.append(
            float((feet @ shot_fit.ground.up_cam)[track.fit.observed.numpy()].min(initial=0.0))
        )
    return min(lowest)


def _starts(
    job: Job, people: Mapping[int, Detections], lens: Lens, body: Body
) -> Mapping[int, str | BodyParams]:
    """Where each person's fit starts: the name of an initialiser, or an image regressor's answers,
    a row a box. Regressors are asked in the convention they were trained with: an unknown focal
    length is the image's diagonal."""
    settings = job.settings
    if settings.init_checkpoint is None:
        return dict.fromkeys(people, settings.init)
    from fitting.init import regressors

    network = regressors.load_regressor(settings.init, settings.init_checkpoint).to(settings.device)
    camera = lens.camera if lens.known else Camera.default(lens.camera.size)
    ratio = lens.camera.mean_focal_px / camera.mean_focal_px
    wanted: dict[int, list[tuple[int, int]]] = {}  # frame number -> identity and row
    for identity, mine in people.items():
        for row, frame in enumerate(mine.frame.tolist()):
            wanted.setdefault(frame, []).append((identity, row))
    answers: dict[int, dict[int, BodyParams]] = {identity: {} for identity in people}
    with job.reporter.stage("first guess", settings.span.expected_frames(job.clip.info)) as tick:
        for image in prefetch(job.clip.frames(settings.span)):
            if here := wanted.get(image.index):
                boxes_px = np.stack(
                    [people[identity].box_px[row] for identity, row in here]
                ).astype(np.float64)
                answer = regressors.initialise(network, image.rgb, boxes_px, camera)
                for number, (identity, row) in enumerate(here):
                    answers[identity][row] = answer.rows(slice(number, number + 1))
            tick(1)
    stacked = {
        identity: BodyParams.concat([rows[row] for row in sorted(rows)])
        for identity, rows in answers.items()
    }
    return {
        identity: refocus_params(params, body.rest_joints[0], ratio)
        for identity, params in stacked.items()
    }


def person_rows(
    identity: int,
    shot: int,
    seen: SeenPeople,
    detections: Detections,
    track_fit: TrackFit,
    body: Body,
) -> Person:
    """One person's rows of `fit.npz`; none where the person is absent."""
    rows = track_fit.index(detections.frame)
    params = track_fit.fit.params
    shape = params.shape
    size = float(params.size)
    height_m = body.height_m(shape) * size

    def part(some: slice) -> Person:
        track = track_fit.rows(some)
        fit = track.fit
        points = track.keypoints
        assert points.raw is not None
        hands = track.hands
        joint_observed = track.joint_observed
        if hands is not None:
            joint_observed = np.concatenate(
                [joint_observed[:, :22], joint_observed[:, 22:] | hands.seen], 1
            )
        stds = (fit.joint_std_mm, fit.joint_std_relative_mm)  # the length of the error to expect
        lengths = [
            _or_nan(None if std is None else std.norm(dim=-1), (len(track), 24)) for std in stds
        ]
        boxes_px = np.full((len(track), 4), np.nan, np.float32)
        here = slice(*np.searchsorted(rows, (some.start, some.stop)).tolist())
        boxes_px[rows[here] - some.start] = detections.box_px[here]
        person = Person(
            identity=identity,
            frame=track.frame,
            time_s=seen.time_s[
                np.searchsorted(seen.frames, track.frame).clip(0, len(seen.frames) - 1)
            ],
            observed=fit.observed.numpy(),
            pose_rad=fit.params.pose.numpy(),
            translation_m=fit.params.translation.numpy(),
            shape=shape.numpy(),
            joints_m=body.at(fit.params).joints.numpy(),
            joint_std_mm=lengths[0],
            joint_std_relative_mm=lengths[1],
            joint_observed=joint_observed,
            keypoint_observed=track.keypoint_observed,
            keypoints_px=np.where(
                track.detected[:, None, None], points.xy_px.numpy(), np.nan
            ).astype(np.float32),
            swapped=track.swapped,
            confidence=points.confidence.numpy(),
            presence=points.presence.numpy(),
            raw=points.raw.numpy(),
            used=fit.used.numpy(),
            reprojection_px=fit.reprojection_px.numpy(),
            box_px=boxes_px,
            converged=fit.converged.numpy(),
            stopped=fit.stopped,
            shot=shot,
            same_as=seen.same_as[identity],
            size=size,
            height_m=height_m,
            contact=np.zeros((len(track), 4), np.float32)
            if track.contact is None
            else track.contact,
            joint_std_axes_mm=_or_nan(fit.joint_std_relative_mm, (len(track), 24, 3)),
            pose_std_deg=_or_nan(fit.rotation_std_deg, (len(track), 24)),
            worst_error_mm=_or_nan(track.worst_error_mm, (len(track),)),
            hand_pose_rad=None if hands is None else hands.pose_rad,
            hand_std_deg=None if hands is None else hands.std_deg,
            hand_seen=None if hands is None else hands.seen,
        )
        return person.rows(track.present)

    person = join_rows(map(part, blocks(len(track_fit))), int(track_fit.present.sum()))
    covariance = track_fit.fit.shape_covariance
    if covariance is None:
        return person
    return replace(
        person,
        height_std_m=body.height_std_m(covariance) * size,
        shape_covariance=covariance.numpy(),
    )


def _or_nan(values: torch.Tensor | np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    return np.full(shape, np.nan, np.float32) if values is None else np.asarray(values, np.float32)
