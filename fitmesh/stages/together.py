"""Stage 2 of several cameras: everyone's keypoints in every camera -> one body per person and time,
in `fit.npz`.

The bodies are in the first camera's frame and at its frames. Every other camera's folder gets a
`fit.npz` of the same bodies in its own frame and at its own frames, from which its overlay is
drawn.
"""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fitmesh.inputs import names_of
from fitmesh.result import FIT_FILE, Person, View
from fitmesh.stages import fit, people
from fitmesh.stages.people import TRACKS_FILE, SeenPeople
from fitmesh.stages.scene import OFF, describe, scene_arrays, scene_options
from fitmesh.stages.settings import Job
from fitmesh.tracks import edited_keypoints
from fitmesh.ui.trouble import count
from fitting.body import Body
from fitting.body.fingers import WRISTS
from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.camera.focal import focal_from_user
from fitting.fits import FitOptions, OtherView, TrackFit
from fitting.grid import blend_params
from fitting.hands import fit_hands
from fitting.keypoints.hands import observe_hands
from fitting.keypoints.side_swap import reorder_keypoints
from fitting.keypoints.usable import check_body_keypoints
from fitting.keypoints.weights import PRESENT
from fitting.rig.association import Track, associate
from fitting.rig.calibration import read_rig, write_rig
from fitting.rig.check import check_calibration
from fitting.rig.offsets import Offset
from fitting.rig.rig import Rig
from fitting.rig.rig_ground import find_stated_ground
from fitting.rig.sights import Sight, find_neighbours
from fitting.rig.views import move_params, resample_keypoints
from fitting.shot import SceneOptions, ShotFit, ShotPerson, fit_shot
from fitting.stated import widened_by_cameras
from pose2d.base.caching import CacheKey, code_digest, content_digest, npz_is_current, read_npz
from pose2d.base.errors import UserError
from pose2d.base.threads import single_thread
from pose2d.types import Detections
from pose2d.video.camera_motion.motion import read_motion

RIG_FILE = "rig.toml"
PREVIEW_FROM_S, PREVIEW_S = (
    60.0,
    10.0,
)  # of videos longer than the first, so much is looked at before all of it
SHORTEST_TRACK = 5  # rows: what is shorter says nothing of geometry


def check(job: Job) -> None:
    """Refuse now what would otherwise be refused after the keypoints were estimated."""
    settings = job.settings
    settings.offsets_s()
    if settings.init_checkpoint is not None:
        raise UserError(f"--init {settings.init} looks at one camera: leave it out with several.")
    for name, given in (("--keypoints", settings.keypoints), ("--detections", settings.detections)):
        if given is not None:
            raise UserError(f"{name} is of one clip, and several cameras were given: leave it out.")
    if settings.rig_file is not None:
        _read_rig(job, settings.rig_file)
        if settings.height_m:
            job.reporter.warn("--height has no effect: calibrated cameras measure people.")


def preview(job: Job) -> None:
    """Of long videos, whether the calibration suits a few seconds of each: UserError before hours
    of work.
    """
    settings = job.settings
    jobs = [job, *job.cameras]
    if (
        settings.rig_file is None
        or min(one.clip.info.duration_s or 0.0 for one in jobs) < PREVIEW_FROM_S
    ):
        return
    job.reporter.say(
        f"{PREVIEW_S:.0f} s of every camera first, to check the calibration", "cameras"
    )
    end_s = min(settings.start_s + PREVIEW_S, np.inf if settings.end_s is None else settings.end_s)
    job.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".preview-", dir=job.out) as folder:
        seen = []
        for number, one in enumerate(jobs):
            short = replace(
                one,
                settings=replace(one.settings, end_s=end_s, videos=()),
                out=Path(folder) / str(number),
            )
            people.make(short, people.cache_key(short))
            seen.append(_Seen.of(short))
        placed = _read_rig(job, settings.rig_file)
        with single_thread():
            check_calibration(
                placed,
                _sights(seen, placed),
                settings.offsets_s(),
                [1 / one.tracks.fps for one in seen],
            )


def _read_rig(job: Job, file: Path) -> Rig:
    sizes = [(one.clip.info.width_px, one.clip.info.height_px) for one in (job, *job.cameras)]
    return read_rig(file, _names(job), sizes)


def _names(job: Job) -> list[str]:
    return names_of([str(one.clip.path) for one in (job, *job.cameras)])


def cache_key(job: Job, people_keys: Sequence[CacheKey]) -> CacheKey:
    """people_keys: of all cameras."""
    file = job.settings.rig_file
    key = fit.cache_key(job, people_keys[0])
    inputs = {f"people {number}": one.digest for number, one in enumerate(people_keys)}
    if file is not None:
        files = sorted(p for p in file.rglob("*") if p.is_file()) if file.is_dir() else [file]
        inputs["cameras"] = content_digest(files)
    return replace(
        key,
        settings={
            **key.settings,
            "cameras": "auto" if file is None else "given",
            "sync": job.settings.sync,
        },
        inputs={**key.inputs, **inputs},
        code=code_digest(
            "fitting.shot",
            "fitting.rig.from_people",
            "fitting.rig.views",
            "fitting.rig.rig_ground",
            "fitmesh.stages.together",
        ),
    )


def files(job: Job) -> list[str]:
    """What the stage leaves in `out`."""
    return [
        FIT_FILE,
        RIG_FILE,
        *(str((one.out / FIT_FILE).relative_to(job.out)) for one in job.cameras),
    ]


def is_current(job: Job, path: Path, key: CacheKey) -> bool:
    """All of them."""
    return (job.out / RIG_FILE).is_file() and all(
        npz_is_current(one.out / FIT_FILE, key) for one in (job, *job.cameras)
    )


@dataclass(frozen=True)
class _Seen:
    """What one camera's network saw."""

    job: Job
    tracks: SeenPeople
    people: dict[
        int, Detections
    ]  # tracks that say something of geometry; once it is known who is who, everybody

    @classmethod
    def of(cls, job: Job) -> "_Seen":
        tracks = edited_keypoints(job.out)
        return cls(
            job,
            tracks,
            {i: rows for i, rows in tracks.people.items() if len(rows) >= SHORTEST_TRACK},
        )

    def sights(self, camera: Camera) -> list[Sight]:
        """Of every track."""
        return [Sight.of(rows.points, self.time_s(i), camera) for i, rows in self.people.items()]

    def time_s(self, identity: int) -> np.ndarray:
        """[N] of a person's rows, on the camera's clock."""
        return self.tracks.times(self.people[identity].frame)

    def by_person(self, people: Mapping[int, Sequence[int]], nobody: Detections) -> "_Seen":
        """With each person's tracks joined; where two overlap, the earlier's rows. people: this
        camera's identities of each; nobody: no rows, as those have who are not seen."""
        joined: dict[int, Detections] = {}
        for identity, own in people.items():
            tracks = sorted((self.people[i] for i in own), key=lambda rows: int(rows.frame[0]))
            rows = Detections.concat([nobody, *tracks])
            joined[identity] = rows.rows(np.unique(rows.frame, return_index=True)[1])
        same = {identity: identity for identity in people}
        return replace(
            self,
            people=joined,
            tracks=replace(self.tracks, same_as=same, shot_first_frame=np.zeros(1)),
        )


def make(job: Job, key: CacheKey) -> None:
    """Fit everyone whom the cameras see."""
    settings = job.settings
    jobs = [job, *job.cameras]
    body = load_body(settings.body_file)
    seen = []
    for one in jobs:
        seen.append(_Seen.of(one))
        motion = read_motion(read_npz(one.out / TRACKS_FILE), 0)
        if motion is not None and motion.kind in ("rotating", "moving"):
            job.reporter.warn(
                f"{one.clip.path}: the camera seems to be {motion.kind}, and several cameras must stand."
            )
    with job.reporter.busy("comparing the cameras"), single_thread():
        seen, rig, offsets, stds = _placed(job, seen, body)
        groups = associate(rig, _sights(seen, rig), [one.seconds for one in offsets])
    _say(job, rig, offsets, groups)
    recorded = _Recorded(_joined(seen, groups), rig, offsets)
    views = {identity: recorded.views(identity) for identity in recorded.seen[0].people}
    options = scene_options(settings.floor)
    if options.ground and not options.given.states_anything:
        options = SceneOptions(given=find_stated_ground(rig, list(views.values())))
    shown = [
        ShotPerson(
            identity,
            first.keypoints,
            recorded.frames(identity),
            settings.init,
            others=tuple(others),
        )
        for identity, (first, *others) in views.items()
    ]
    camera = rig.cameras[0].camera
    first = seen[0].tracks
    with job.reporter.stage("fit", sum(len(one.frame) for one in shown)) as tick, single_thread():
        shot_fit = fit_shot(
            shown,
            camera,
            focal_from_user(camera.mean_focal_px, camera.size),
            body,
            fps=first.fps,
            every=first.every,
            options=replace(options, fit=FitOptions(settings.weighting), progress=tick),
        )
    if shown and settings.floor != OFF:
        job.reporter.say(describe(shot_fit, "scene"), "scene")
    for identity in shot_fit.left_out:
        job.reporter.warn(
            f"person {identity} never shows enough confident keypoints at once: no body is fitted."
        )
    for identity, track in shot_fit.people.items():
        track = widened_by_cameras(track, *stds, body) if any(stds) else track
        shot_fit.people[identity] = (
            track if body.fingers is None else recorded.with_fingers(identity, track, body)
        )
    if rig.source == "people" and shot_fit.ground is not None:
        height_m = (
            shot_fit.ground.camera_height_m
            if shot_fit.ground.floor_known
            else -fit.lowest_foot(shot_fit, body)
        )
        rig = rig.with_upright_world(shot_fit.ground.up_cam, height_m)
    write_rig(job.out / RIG_FILE, rig)
    for number in reversed(
        range(len(seen))
    ):  # the first camera's last: it says that the others are done
        _write(number, recorded, shot_fit, body, key)


def _sights(seen: Sequence[_Seen], rig: Rig) -> list[list[Sight]]:
    return [one.sights(placed.camera) for one, placed in zip(seen, rig.cameras, strict=True)]


def _placed(
    job: Job, seen: list[_Seen], body: Body
) -> tuple[list[_Seen], Rig, list[Offset], tuple[float, float]]:
    """Where the cameras stand and when they looked, checked against the people, with deviations of
    lengths (log) and of turns (radians); and what was seen, with sides as the cameras' places
    say."""
    settings = job.settings
    steps = [1 / one.tracks.fps for one in seen]
    if settings.rig_file is not None:
        rig = _read_rig(job, settings.rig_file)
        return (
            seen,
            *check_calibration(rig, _sights(seen, rig), settings.offsets_s(), steps),
            (0.0, 0.0),
        )
    from fitting.rig.from_people import place_cameras
    from fitting.rig.lifted import Lifted, Recorded

    lenses = [one.job.lens for one in seen]
    names = _names(job)
    people, exchanged = (
        [
            [
                Lifted.of(rows.points, one.time_s(i), lens.camera, body, one.tracks.fps, other)
                for i, rows in one.people.items()
            ]
            for one, lens in zip(seen, lenses, strict=True)
        ]
        for other in (False, True)
    )
    placed = place_cameras(
        Recorded(
            names=names,
            cameras=[lens.camera for lens in lenses],
            focals=[lens.focal for lens in lenses],
            people=people,
            stated_s=settings.offsets_s(),
            steps_s=steps,
            height_m=settings.heights().get(None),
            exchanged=exchanged,
        )
    )
    job.reporter.say(
        f"cameras placed by people: turned to {placed.turn_std_deg.max():.1f} degrees, positions to "
        f"{100 * placed.place_std.max():.0f} %, all lengths to {100 * placed.scale_log_std:.0f} % (one deviation); "
        f"{RIG_FILE} has them",
        "cameras",
    )
    if (number := placed.exchanged) is not None:
        job.reporter.warn(
            f"{names[number]}: people's left is taken for their right, so that rays meet (a mirrored video, or "
            "backs that look like fronts)."
        )
        turned = {}
        for i, rows in seen[number].people.items():
            order = np.tile(rows.points.skeleton.flip_order, (len(rows), 1))
            turned[i] = replace(rows, keypoints=reorder_keypoints(rows.points, order))
        seen[number] = replace(seen[number], people=turned)
    return (
        seen,
        placed.rig,
        placed.offsets,
        (placed.scale_log_std, math.radians(float(placed.turn_std_deg.mean()))),
    )


def _say(
    job: Job, rig: Rig, offsets: Sequence[Offset], groups: Sequence[Sequence[tuple[int, int]]]
) -> None:
    for note in rig.notes:
        job.reporter.say(note, "cameras")
    for placed, offset in zip(rig.cameras[1:], offsets[1:], strict=True):
        if offset.is_estimated:
            job.reporter.say(
                f"{placed.name} started {1000 * offset.seconds:+.0f} +- {1000 * offset.std_s:.0f} ms after "
                f"{rig.cameras[0].name}",
                "cameras",
                offset_s=offset.seconds,
                std_s=offset.std_s,
            )
        elif offset.std_s > 0:
            job.reporter.warn(
                f"people's motion does not tell when {placed.name} started: taken for the same time."
            )
    together = sum(len({camera for camera, _ in group}) > 1 for group in groups)
    angles = ", ".join(f"{angle:.0f}" for angle in rig.angles_deg)
    job.reporter.say(
        f"{len(rig)} cameras ({rig.source}), {angles} degrees between them; {count(len(groups), 'people')}, {together} "
        "of them in more than one camera",
        "cameras",
        cameras=len(rig),
        people=len(groups),
        shared=together,
    )


@dataclass(frozen=True)
class _Recorded:
    """What all cameras saw, where they stand, and when they looked."""

    seen: list[_Seen]  # all with the same people
    rig: Rig
    offsets: list[Offset]

    def frames(self, identity: int) -> np.ndarray:
        """The first camera's frames while anybody sees the person."""
        first = self.seen[0].tracks
        times = np.concatenate([self.time_s(number, identity) for number in range(len(self.seen))])
        half = 0.5 / first.fps
        return first.frames[
            (first.time_s >= times.min() - half) & (first.time_s <= times.max() + half)
        ]

    def time_s(self, number: int, identity: int) -> np.ndarray:
        """[N] of a person's rows in a camera, on the first camera's clock."""
        return self.seen[number].time_s(identity) + self.offsets[number].seconds

    def views(self, identity: int) -> list[OtherView]:
        """What the first camera, and every other that sees the person, show at the first camera's
        frames.
        """
        want_s = self.seen[0].tracks.times(self.frames(identity))
        views = []
        for number, there in enumerate(self.seen):
            points = there.people[identity].points
            time_s = self.time_s(number, identity)
            if number and not len(points):
                continue
            there_s = (
                resample_keypoints(points, time_s, want_s)
                if len(points)
                else points.scatter([], len(want_s))
            )
            rotation, offset_m = (
                torch.from_numpy(part).float() for part in self.rig.relative(number)
            )
            views.append(OtherView(there_s, self.rig.cameras[number].camera, rotation, offset_m))
        return views

    def with_fingers(self, identity: int, track: TrackFit, body: Body) -> TrackFit:
        """Each hand as the camera sees it that shows it longest and largest: fingers and wrists
        bend alike for all.
        """
        first = self.seen[0].tracks
        params = track.fit.params
        best = None
        most = np.zeros(2)
        for number, there in enumerate(self.seen):
            hands = there.people[identity].hands
            if hands is None or not len(hands):
                continue
            before, after, share = find_neighbours(
                self.time_s(number, identity), first.times(track.frame)
            )
            near = np.flatnonzero(share >= 0)
            hands = hands.rows(np.where(share < 0.5, before, after)[near]).scatter(near, len(track))
            camera = self.rig.cameras[number].camera
            there_params = move_params(params, self.to_camera(number), body)
            wrists = camera.project(body.at(there_params).joints[:, list(WRISTS)]).numpy()
            away = [
                np.nansum(np.abs(hands.xy_px[:, :, 0] - at), (1, 2))
                for at in (wrists, wrists[:, ::-1])
            ]
            hands = hands.swap_sides(away[1] < away[0])  # that hang on arms with the wrong name
            hand_fit = fit_hands(
                observe_hands(hands, camera, body),
                there_params,
                camera,
                body,
                first.fps,
                track.present.astype(int),
            )
            shown = (hands.presence * hands.size_px).sum(0)
            best = best or hand_fit
            for side in np.flatnonzero(shown > most):
                for name in ("pose_rad", "std_deg", "seen", "wrist_rad", "point_std_mm"):
                    mine, its = (
                        np.array_split(getattr(one, name), 2, axis=1)[side]
                        for one in (best, hand_fit)
                    )
                    mine[:] = its
            most = np.maximum(most, shown)
        if best is None:
            return track
        pose = params.pose.clone()
        pose[:, list(WRISTS)] = torch.from_numpy(best.wrist_rad)
        params = replace(params, pose=pose, hands=torch.from_numpy(best.pose_rad))
        return replace(track, fit=replace(track.fit, params=params), hands=best)

    def to_camera(self, number: int, base: int = 0) -> np.ndarray:
        """[4, 4] from one camera's frame to another's."""
        matrix = np.eye(4)
        matrix[:3, :3], matrix[:3, 3] = self.rig.relative(number, base)
        return matrix


def _joined(seen: Sequence[_Seen], groups: Sequence[Sequence[Track]]) -> list[_Seen]:
    """By everybody's identities: as the first camera has them; whom it does not see have numbers
    after.
    """
    own = [list(one.people) for one in seen]
    free = max([0, *seen[0].tracks.people]) + 1
    people: dict[int, list[list[int]]] = {}  # identities in each camera
    for group in groups:
        tracks = [
            [own[camera][n] for camera, n in group if camera == number]
            for number in range(len(seen))
        ]
        people[min(tracks[0], default=free)] = tracks
        free += not tracks[0]
    people = dict(sorted(people.items()))
    everybody = [rows for one in seen for rows in one.people.values()]
    nobody = everybody[0].rows(slice(0)) if everybody else Detections.empty()
    return [
        one.by_person({i: tracks[number] for i, tracks in people.items()}, nobody)
        for number, one in enumerate(seen)
    ]


def _write(number: int, recorded: _Recorded, shot_fit: ShotFit, body: Body, key: CacheKey) -> None:
    """`fit.npz` of one camera."""
    there = recorded.seen[number]
    camera = recorded.rig.cameras[number].camera
    to_camera = recorded.to_camera(number)
    fitted = []
    for identity, first in shot_fit.people.items():
        track = _in_camera(first, number, identity, recorded, body) if number else first
        if track is not None:
            rows = there.people[identity]
            rows = rows.rows(np.isin(rows.frame, track.frame))
            fitted.append(fit.person_rows(identity, 0, there.tracks, rows, track, body))
    lowest = fit.lowest_foot(shot_fit, body)
    ground = shot_fit.ground
    alone = replace(shot_fit, people={})
    if ground is not None and number:
        up = to_camera[:3, :3] @ ground.up_cam
        ground = replace(
            ground, up_cam=up, camera_height_m=ground.camera_height_m - float(up @ to_camera[:3, 3])
        )
    here = replace(
        alone,
        camera=camera,
        ground=ground,
        focal=focal_from_user(camera.mean_focal_px, camera.size),
    )
    tracks = replace(there.tracks, events=[] if number else there.tracks.events)
    scene, base = (
        dict(scene_arrays([one], tracks.frames[:1], tracks.frames, [lowest]))
        for one in (here, alone)
    )
    # One world for all cameras: the first one's.
    world = (base["world_from_camera"] @ np.linalg.inv(to_camera)).astype(np.float32)
    scene |= {"world_from_camera": world, "shot_camera": ["static"]}
    groups = Person.to_groups(fitted, {"directions": 10, "fitted": 10})
    fit.write_fit(
        there.job, key, tracks, camera, {**scene, **groups, **_views_table(recorded, number)}
    )


def _views_table(recorded: _Recorded, number: int) -> Mapping[str, Any]:
    """All cameras, seen from one of them; that one first."""
    views = []
    for other in (number, *(n for n in range(len(recorded.rig)) if n != number)):
        placed = recorded.rig.cameras[other]
        offset = recorded.offsets[other]
        focal, center, size = (
            np.array(v)
            for v in (placed.camera.focal_px, placed.camera.center_px, placed.camera.size)
        )
        std_s = offset.std_s if np.isfinite(offset.std_s) else np.nan
        matrix = recorded.to_camera(other, number)
        views.append(View(placed.name, matrix, focal, center, size, offset.seconds, std_s))
    return View.stack(views).to_arrays()


def _in_camera(
    track: TrackFit, number: int, identity: int, recorded: _Recorded, body: Body
) -> TrackFit | None:
    """The bodies at another camera's frames and in its frame, with its own keypoints; None: not in
    its time.
    """
    own = recorded.seen[number].tracks
    camera = recorded.rig.cameras[number].camera
    track_s = recorded.seen[0].tracks.times(track.frame) - recorded.offsets[number].seconds
    inside = (own.time_s >= track_s[0]) & (own.time_s <= track_s[-1])
    frame = own.frames[inside]
    time_s = own.time_s[inside]
    if not len(frame):
        return None
    place = np.interp(time_s, track_s, np.arange(len(track_s)))
    before = place.astype(int)
    nearest = place.round().astype(int)
    after = np.minimum(before + 1, len(track_s) - 1)
    share = torch.from_numpy(place - before).float()
    params = blend_params(track.fit.params.rows(before), track.fit.params.rows(after), share)
    params = move_params(params, recorded.to_camera(number), body)
    mine = recorded.seen[number].people[identity]
    rows = mine.rows(np.isin(mine.frame, frame))
    detected = np.isin(frame, mine.frame)
    seen = check_body_keypoints(rows.points.scatter(np.searchsorted(frame, rows.frame), len(frame)))
    used = torch.from_numpy(detected)[:, None] & (seen.presence >= PRESENT)
    away = (camera.project(body.at(params).keypoints) - seen.xy_px).norm(dim=-1)
    there = track.rows(nearest)
    return replace(
        there,
        frame=frame,
        detected=detected,
        keypoints=seen,
        swapped=np.zeros((len(frame), 26), np.bool_),
        fit=replace(
            there.fit, params=params, used=used, reprojection_px=torch.where(used, away, torch.nan)
        ),
    )
