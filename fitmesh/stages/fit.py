"""Stage 2: keypoints with their confidence -> a body per person and frame, in `fit.npz`."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fitmesh.person import Person
from fitmesh.result import EDITS_FILE, FIT_FILE
from fitmesh.schema import SCHEMA_VERSION
from fitmesh.stages.fit_rows import find_lowest_foot, person_rows, write_fit
from fitmesh.stages.people import TRACKS_FILE, SeenPeople
from fitmesh.stages.scene import OFF, Lens, describe, scene_arrays, scene_options
from fitmesh.stages.settings import Job, RunSettings
from fitmesh.tracks import edited_keypoints
from fitting.body import Body, BodyParams
from fitting.body.load import load_body
from fitting.body.open_body import OPEN_BODY, OPEN_HANDS
from fitting.camera import Camera
from fitting.camera.focal import refocus_params
from fitting.fits import FitOptions
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
)
from pose2d.base.errors import OptionError
from pose2d.base.scratch import release_scratch
from pose2d.base.threads import prefetch, single_thread
from pose2d.types import Detections
from pose2d.video.camera_motion.motion import read_motion

FILE = FIT_FILE
is_current = npz_is_current


def check(settings: RunSettings) -> None:
    """Refuse now what would otherwise be refused after the keypoints were estimated."""
    scene_options(settings.floor)
    load_body(settings.body_file)
    if settings.weighting not in WEIGHTINGS:
        raise OptionError(
            f"unknown --weighting {settings.weighting!r}: choose {', '.join(WEIGHTINGS)}."
        )
    names = ("lifter", *REGRESSORS)
    if settings.init not in names:
        raise OptionError(f"unknown --init {settings.init!r}: choose {', '.join(names)}.")
    if settings.init in REGRESSORS:
        if settings.init_checkpoint is None:
            raise OptionError(
                f"--init {settings.init} ships no weights: pass --init-checkpoint "
                "(docs/initialisers.md)."
            )
        from fitting.init import regressors  # slow to import

        regressors.load_regressor(settings.init, settings.init_checkpoint)
    elif settings.init_checkpoint is not None:
        raise OptionError(
            f"--init-checkpoint has no effect with --init {settings.init}: leave one of them out."
        )


def cache_key(job: Job, people_key: CacheKey) -> CacheKey:
    """Return the key of the fit: all settings, inputs and code on which it depends."""
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
    edits = job.out / EDITS_FILE
    optional_files = {
        "edits": edits if edits.exists() else None,
        "floor": settings.floor_file,
        "intrinsics": settings.intrinsics,
    }
    for name, path in optional_files.items():
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
    """Fit everyone in `keypoints.npz`, shot by shot.

    Only image regressors (SPIN, CLIFF) look at the clip again.
    """
    settings = job.settings
    clip_tracks = edited_keypoints(job.out)
    motion_arrays = read_npz(job.out / TRACKS_FILE)
    body = load_body(settings.body_file)
    lens = job.lens
    _warn_about_settings(job, clip_tracks)
    starts = _initial_guesses(job, clip_tracks.people, lens, body)
    first_frames = clip_tracks.shot_first_frame
    shot_ends = [*first_frames[1:].tolist(), np.inf]
    tracks = clip_tracks.people.values()
    total = sum(int(rows.frame[-1] - rows.frame[0]) // clip_tracks.every + 1 for rows in tracks)
    fitted: list[Person] = []
    fits: list[ShotFit] = []
    lowest_m: list[float] = []
    with job.reporter.stage("fit", total) as tick, single_thread():
        options = replace(
            scene_options(settings.floor),
            fit=FitOptions(settings.weighting),
            progress=tick,
        )
        for shot, (first, end) in enumerate(zip(first_frames, shot_ends, strict=True)):
            people = _people_of_shot(settings, clip_tracks, starts, first, end)
            motion = read_motion(motion_arrays, shot)
            shot_fit = fit_shot(
                people,
                lens.camera,
                lens.focal,
                body,
                fps=clip_tracks.fps,
                every=clip_tracks.every,
                motion=None if motion is None else motion.with_focal(lens.focal.focal_px),
                options=options,
            )
            fitted += _fitted_people(job, people, shot, clip_tracks, shot_fit, body)
            lowest_m.append(find_lowest_foot(shot_fit, body))
            release_scratch()
            fits.append(replace(shot_fit, people={}))  # their rows are in `fitted`
            if settings.floor_file is not None and shot_fit.ground is None:
                job.reporter.warn(
                    f"--floor has no effect in shot {shot + 1}: no person stands there long enough."
                )
            for warning in shot_fit.warnings:
                job.reporter.warn(warning)
            if people and settings.floor != OFF:
                name = f"shot {shot + 1}" if len(first_frames) > 1 else "scene"
                job.reporter.say(describe(shot_fit, name), "scene")
    camera = fits[0].camera if fits else lens.camera
    scene = scene_arrays(fits, first_frames, clip_tracks.frames, lowest_m)
    groups = Person.to_groups(fitted, {"directions": 10, "fitted": 10})
    write_fit(job, key, clip_tracks, camera, {**scene, **groups})


def _warn_about_settings(job: Job, clip_tracks: SeenPeople) -> None:
    """Warn about a lens that is not believable, and about options that have no effect."""
    if job.lens.warning:
        job.reporter.warn(
            f"{job.clip.path}: {job.lens.warning} A usual lens is assumed; --focal or --fov state "
            "it."
        )
    options = {"height": job.settings.heights(), "weight": job.settings.weights()}
    for option, by_identity in options.items():
        for identity in by_identity:
            if identity is not None and identity not in clip_tracks.people:
                job.reporter.warn(
                    f"--{option} of person {identity} has no effect: there is no such person."
                )


def _people_of_shot(
    settings: RunSettings,
    clip_tracks: SeenPeople,
    starts: Mapping[int, str | BodyParams],
    first: float,
    end: float,
) -> list[ShotPerson]:
    """Return the people whose tracks begin in a shot; a track lies within one shot."""
    heights = settings.heights()
    weights = settings.weights()
    return [
        ShotPerson(
            identity,
            rows.points,
            rows.frame,
            starts[identity],
            heights.get(identity, heights.get(None)),
            rows.hands,
            clip_tracks.outlines_of(identity),
            weights.get(identity, weights.get(None)),
        )
        for identity, rows in clip_tracks.people.items()
        if first <= rows.frame[0] < end
    ]


def _fitted_people(
    job: Job,
    people: list[ShotPerson],
    shot: int,
    clip_tracks: SeenPeople,
    shot_fit: ShotFit,
    body: Body,
) -> list[Person]:
    """Return the rows of everyone who was fitted, with a warning about the others."""
    fitted = []
    for person in people:
        identity = person.identity
        if identity not in shot_fit.people:
            job.reporter.warn(
                f"person {identity} never shows enough confident keypoints at once: no body is "
                "fitted."
            )
            continue
        track = shot_fit.people[identity]
        rows = person_rows(identity, shot, clip_tracks, clip_tracks.people[identity], track, body)
        fitted.append(
            replace(
                rows,
                height_std_m=rows.height_std_m if person.height_m is None else 0.0,
                scene_used=shot_fit.uses_scene(identity),
                masks=shot_fit.masks.get(identity, 0),
            )
        )
    return fitted


def _initial_guesses(
    job: Job, people: Mapping[int, Detections], lens: Lens, body: Body
) -> Mapping[int, str | BodyParams]:
    """Return where each person's fit starts: an initialiser's name, or a regressor's bodies.

    Image regressors give a body for every box. They are run in the convention they were trained
    with: an unknown focal length is the image's diagonal.
    """
    settings = job.settings
    if settings.init_checkpoint is None:
        return dict.fromkeys(people, settings.init)
    from fitting.init import regressors

    network = regressors.load_regressor(settings.init, settings.init_checkpoint).to(settings.device)
    camera = lens.camera if lens.known else Camera.default(lens.camera.size)
    ratio = lens.camera.mean_focal_px / camera.mean_focal_px
    rows_by_frame: dict[int, list[tuple[int, int]]] = {}  # frame number -> identity and row
    for identity, rows in people.items():
        for row, frame in enumerate(rows.frame.tolist()):
            rows_by_frame.setdefault(frame, []).append((identity, row))
    answers: dict[int, dict[int, BodyParams]] = {identity: {} for identity in people}
    with job.reporter.stage("first guess", settings.span.expected_frames(job.clip.info)) as tick:
        for image in prefetch(job.clip.frames(settings.span)):
            if frame_rows := rows_by_frame.get(image.index):
                boxes_px = np.stack([people[identity].box_px[row] for identity, row in frame_rows])
                answer = regressors.initialise(
                    network, image.rgb, boxes_px.astype(np.float64), camera
                )
                for number, (identity, row) in enumerate(frame_rows):
                    answers[identity][row] = answer.rows(slice(number, number + 1))
            tick(1)
    guesses = {}
    for identity, by_row in answers.items():
        params = BodyParams.concat([by_row[row] for row in sorted(by_row)])
        guesses[identity] = refocus_params(params, body.rest_joints[0], ratio)
    return guesses
