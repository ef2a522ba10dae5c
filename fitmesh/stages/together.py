"""Stage 2 of several cameras: everyone's keypoints in every camera -> one body per person and time, in `fit.npz`.

The bodies are in the first camera's frame and at its frames. Every other camera's folder gets a `fit.npz` of the same
bodies in its own frame and at its own frames, from which its overlay is drawn.
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
from fitmesh.stages.people import TRACKS_FILE, KeypointsFile, TracksFile
from fitmesh.stages.scene import OFF, describe, scene_arrays, scene_options
from fitmesh.stages.settings import Job
from fitmesh.tracks import edited_keypoints, edited_tracks
from fitmesh.ui.trouble import count
from fitting.body import Body
from fitting.body.kinematics import WRISTS
from fitting.body.load import load_body
from fitting.camera import Camera, given_focal, params_to_world
from fitting.fits import FitOptions, TrackFit, mixed
from fitting.hands import fit_hands
from fitting.keypoints.observed import body_keypoints, reordered, seen_hands
from fitting.keypoints.weights import PRESENT
from fitting.optimise import OtherView
from fitting.rig.check import checked, stated_ground
from fitting.rig.meeting import Offset, Sight, Track, doubtful, grouped, neighbours, pair_gains
from fitting.rig.rig import Rig, read_rig, write_rig
from fitting.rig.views import resampled, rest_pelvis
from fitting.scene.camera_motion import read_motion
from fitting.shot import SceneOptions, ShotFit, ShotPerson, fit_shot
from fitting.stated import widened_by_cameras
from pose2d.base.caching import CacheKey, code_digest, content_digest, npz_is_current, read_npz
from pose2d.base.errors import UserError
from pose2d.base.threads import single_thread
from pose2d.hands import HandKeypoints
from pose2d.tracking import appearance
from pose2d.types import Appearance, Keypoints

RIG_FILE = "rig.toml"
PREVIEW_FROM_S, PREVIEW_S = 60.0, 10.0  # of videos longer than the first, so much is looked at before all of it
LOOKS_FRAMES = 5  # of a track, in which its appearance is looked at
LOOKS = 60.0  # gains that one unit of appearance's log-likelihood ratio is worth: neighbours in time are alike
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
    """Of long videos, whether the calibration suits a few seconds of each: UserError before hours of work."""
    settings, jobs = job.settings, [job, *job.cameras]
    if settings.rig_file is None or min(one.clip.info.duration_s or 0.0 for one in jobs) < PREVIEW_FROM_S:
        return
    job.reporter.say(f"{PREVIEW_S:.0f} s of every camera first, to check the calibration", "cameras")
    end_s = min(settings.start_s + PREVIEW_S, np.inf if settings.end_s is None else settings.end_s)
    job.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".preview-", dir=job.out) as folder:
        seen = []
        for number, one in enumerate(jobs):
            short = replace(one, settings=replace(one.settings, end_s=end_s, videos=()), out=Path(folder) / str(number))
            people.make(short, people.cache_key(short))
            seen.append(_seen(short, str(number)))
        placed = _read_rig(job, settings.rig_file)
        with single_thread():
            checked(placed, _sights(seen, placed), settings.offsets_s(), [1 / one.tracks.fps for one in seen])


def _read_rig(job: Job, file: Path) -> Rig:
    jobs = [job, *job.cameras]
    names = names_of([str(one.clip.path) for one in jobs])
    return read_rig(file, names, [(one.clip.info.width_px, one.clip.info.height_px) for one in jobs])


def cache_key(job: Job, people_keys: Sequence[CacheKey]) -> CacheKey:
    """people_keys: of all cameras."""
    file, key = job.settings.rig_file, fit.cache_key(job, people_keys[0])
    inputs = {f"people {number}": one.digest for number, one in enumerate(people_keys)}
    if file is not None:
        files = sorted(p for p in file.rglob("*") if p.is_file()) if file.is_dir() else [file]
        inputs["cameras"] = content_digest(files)
    return replace(
        key,
        settings={**key.settings, "cameras": "auto" if file is None else "given", "sync": job.settings.sync},
        inputs={**key.inputs, **inputs},
        code=code_digest("fitting.shot", "fitting.rig.from_people", "fitting.rig.views", "fitmesh.stages.together"),
    )


def files(job: Job) -> list[str]:
    """What the stage leaves in `out`."""
    return [FIT_FILE, RIG_FILE, *(str((one.out / FIT_FILE).relative_to(job.out)) for one in job.cameras)]


def is_current(job: Job, path: Path, key: CacheKey) -> bool:
    """All of them."""
    return (job.out / RIG_FILE).is_file() and all(
        npz_is_current(one.out / FIT_FILE, key) for one in (job, *job.cameras)
    )


@dataclass(frozen=True)
class _Seen:
    """What one camera's network saw."""

    job: Job
    name: str
    tracks: TracksFile
    people: KeypointsFile
    identities: tuple[int, ...]  # whose tracks are long enough

    def time_s(self, identity: int) -> np.ndarray:
        """[N] of a track's rows, on the camera's clock."""
        return self.tracks.times(self.people.frames[identity])

    def joined(self, numbers: Sequence[int]) -> tuple[Keypoints, HandKeypoints, np.ndarray, np.ndarray]:
        """Keypoints, hands, frames and boxes of some tracks that are one person's; where two overlap, the earlier's."""
        who = sorted((self.identities[number] for number in numbers), key=lambda i: self.people.frames[i][0])
        file = self.people
        if not who:
            empty = next(iter(file.people.values())).rows(slice(0))
            return empty, HandKeypoints.empty(), np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
        frames, first = np.unique(np.concatenate([file.frames[i] for i in who]), return_index=True)
        boxes = np.concatenate([file.boxes_px[i] for i in who])[first]
        hands = (
            HandKeypoints.concat([file.hands[i] for i in who]) if file.hands else HandKeypoints.unseen(1 + max(first))
        )
        return Keypoints.concat([file.people[i] for i in who]).rows(first), hands.rows(first), frames, boxes


def make(job: Job, key: CacheKey) -> None:
    """Fit everyone whom the cameras see."""
    settings = job.settings
    jobs, body, seen = [job, *job.cameras], load_body(settings.body_file), []
    for one, name in zip(jobs, names_of([str(one.clip.path) for one in jobs]), strict=True):
        seen.append(_seen(one, name))
        motion = read_motion(read_npz(one.out / TRACKS_FILE), 0)
        if motion is not None and motion.kind in ("rotating", "moving"):
            job.reporter.warn(f"{one.clip.path}: the camera seems to be {motion.kind}, and several cameras must stand.")
    with job.reporter.busy("comparing the cameras"), single_thread():
        seen, rig, offsets, stds = _placed(job, seen, body)
        tracks = _sights(seen, rig)
        gain = pair_gains(rig, tracks, [one.seconds for one in offsets])
        groups = grouped(gain, tracks)
        if doubtful(gain, groups):
            groups = grouped(_with_appearance(gain, seen), tracks)
    _say(job, rig, offsets, groups)
    recorded = _Recorded(seen, rig, offsets)
    people = recorded.people(groups)
    options = scene_options(settings.floor)
    if options.ground and not options.given.states_anything:
        options = SceneOptions(given=stated_ground(rig, [recorded.views(one) for one in people.values()]))
    camera, shown = rig.cameras[0].camera, []
    for identity, tracks_of in people.items():
        first, *others = recorded.views(tracks_of)
        frames = recorded.frames(tracks_of)
        shown.append(ShotPerson(identity, first.keypoints, frames, settings.init, others=tuple(others)))
    with job.reporter.stage("fit", sum(len(one.frame) for one in shown)) as tick, single_thread():
        shot_fit = fit_shot(
            shown,
            camera, given_focal(camera.mean_focal_px, camera.size), body,
            fps=seen[0].tracks.fps, every=seen[0].tracks.every,
            options=replace(options, fit=FitOptions(settings.weighting), progress=tick),
        )  # fmt: skip
    if people and settings.floor != OFF:
        job.reporter.say(describe(shot_fit, "scene"), "scene")
    for identity in people:
        if identity not in shot_fit.people:
            words = "never shows enough confident keypoints at once: no body is fitted."
            job.reporter.warn(f"person {identity} {words}")
    for identity, track in shot_fit.people.items():
        track = widened_by_cameras(track, *stds, body) if any(stds) else track
        shot_fit.people[identity] = (
            track if body.fingers is None else recorded.with_fingers(people[identity], track, body)
        )
    if rig.source == "people" and shot_fit.ground is not None:
        height_m = shot_fit.ground.camera_height_m if shot_fit.ground.floor_known else -fit.lowest_foot(shot_fit, body)
        rig = rig.upright(shot_fit.ground.up_cam, height_m)
    write_rig(job.out / RIG_FILE, rig)
    for number in reversed(range(len(seen))):  # the first camera's last: it says that the others are done
        _write(number, recorded, people, shot_fit, body, key)


def _with_appearance(
    gain: Mapping[tuple[Track, Track], float], seen: Sequence[_Seen]
) -> dict[tuple[Track, Track], float]:
    """With how alike people look, where rays alone leave doubt."""
    looks = [_appearances(one) for one in seen]
    return {
        ((a, i), (b, j)): value
        + LOOKS * float(appearance.log_likelihood_ratio(looks[a].rows([i]), looks[b].rows([j]))[0, 0])
        for ((a, i), (b, j)), value in gain.items()
    }


def _appearances(one: _Seen) -> Appearance:
    """Of every track, in a few of its frames."""
    wanted: dict[int, list[tuple[int, int]]] = {}  # frame -> numbers of tracks and rows
    for number, identity in enumerate(one.identities):
        frames = one.people.frames[identity]
        for row in np.unique(np.linspace(0, len(frames) - 1, LOOKS_FRAMES).astype(int)):
            wanted.setdefault(int(frames[row]), []).append((number, int(row)))
    looks: list[list[Appearance]] = [[] for _ in one.identities]
    for image in one.job.clip.frames(one.job.settings.span):
        for number, row in wanted.pop(image.index, []):
            points = one.people.people[one.identities[number]].rows(slice(row, row + 1))
            sure = (points.confidence * points.presence).numpy()
            looks[number].append(appearance.describe(image.rgb, points.xy_px.numpy(), sure, points.skeleton))
        if not wanted:
            break
    none = appearance.unseen(1)
    each = [appearance.overall(Appearance.concat(parts)) if parts else none for parts in looks]
    return Appearance.concat(each) if each else none.rows(slice(0))


def _seen(job: Job, name: str) -> _Seen:
    keypoints = edited_keypoints(job.out)
    long = tuple(i for i, frames in keypoints.frames.items() if len(frames) >= SHORTEST_TRACK)
    return _Seen(job, name, edited_tracks(job.out), keypoints, long)


def _sights(seen: Sequence[_Seen], rig: Rig) -> list[list[Sight]]:
    return [
        [Sight.of(one.people.people[i], one.time_s(i), placed.camera) for i in one.identities]
        for one, placed in zip(seen, rig.cameras, strict=True)
    ]


def _placed(job: Job, seen: list[_Seen], body: Body) -> tuple[list[_Seen], Rig, list[Offset], tuple[float, float]]:
    """Where the cameras stand and when they looked, checked against the people, with deviations of lengths (log) and of
    turns (radians); and what was seen, with sides as the cameras' places say."""
    settings = job.settings
    steps = [1 / one.tracks.fps for one in seen]
    if settings.rig_file is not None:
        rig = _read_rig(job, settings.rig_file)
        return seen, *checked(rig, _sights(seen, rig), settings.offsets_s(), steps), (0.0, 0.0)
    from fitting.rig.from_people import Lifted, Recorded, place_cameras  # where nobody has recorded a board

    lenses = [one.job.lens for one in seen]
    people, exchanged = (
        [
            [Lifted.of(one.people.people[i], one.time_s(i), lens.camera, body, one.tracks.fps, other)
             for i in one.identities]
            for one, lens in zip(seen, lenses, strict=True)
        ]
        for other in (False, True)
    )  # fmt: skip
    placed = place_cameras(
        Recorded(
            names=[one.name for one in seen], cameras=[lens.camera for lens in lenses],
            focals=[lens.focal for lens in lenses], people=people, stated_s=settings.offsets_s(), steps_s=steps,
            height_m=settings.heights().get(None), exchanged=exchanged,
        )
    )  # fmt: skip
    job.reporter.say(
        f"cameras placed by people: turned to {placed.turn_std_deg.max():.1f} degrees, positions to "
        f"{100 * placed.place_std.max():.0f} %, all lengths to {100 * placed.scale_log_std:.0f} % (one deviation); "
        f"{RIG_FILE} has them", "cameras",
    )  # fmt: skip
    if (number := placed.exchanged) is not None:
        job.reporter.warn(
            f"{seen[number].name}: people's left is taken for their right, so that rays meet (a mirrored video, or "
            "backs that look like fronts)."
        )
        one = seen[number]
        turned = {i: reordered(k, np.tile(k.skeleton.flip_order, (len(k), 1))) for i, k in one.people.people.items()}
        seen = [*seen[:number], replace(one, people=replace(one.people, people=turned)), *seen[number + 1 :]]
    return seen, placed.rig, placed.offsets, (placed.scale_log_std, math.radians(float(placed.turn_std_deg.mean())))


def _say(job: Job, rig: Rig, offsets: Sequence[Offset], groups: Sequence[Sequence[tuple[int, int]]]) -> None:
    for note in rig.notes:
        job.reporter.say(note, "cameras")
    for placed, offset in zip(rig.cameras[1:], offsets[1:], strict=True):
        if offset.found:
            job.reporter.say(
                f"{placed.name} started {1000 * offset.seconds:+.0f} +- {1000 * offset.std_s:.0f} ms after "
                f"{rig.cameras[0].name}", "cameras", offset_s=offset.seconds, std_s=offset.std_s,
            )  # fmt: skip
        elif offset.std_s > 0:
            job.reporter.warn(f"people's motion does not tell when {placed.name} started: taken for the same time.")
    together = sum(len({camera for camera, _ in group}) > 1 for group in groups)
    angles = ", ".join(f"{angle:.0f}" for angle in rig.angles_deg)
    job.reporter.say(
        f"{len(rig)} cameras ({rig.source}), {angles} degrees between them; {count(len(groups), 'people')}, {together} "
        "of them in more than one camera", "cameras", cameras=len(rig), people=len(groups), shared=together,
    )  # fmt: skip


Tracks = tuple[tuple[int, ...], ...]  # [C] of one person: numbers of tracks in each camera


@dataclass(frozen=True)
class _Recorded:
    """What all cameras saw, where they stand, and when they looked."""

    seen: list[_Seen]
    rig: Rig
    offsets: list[Offset]

    def people(self, groups: Sequence[Sequence[tuple[int, int]]]) -> "dict[int, Tracks]":
        """By numbers as the first camera has them; whom it does not see have numbers after."""
        people: dict[int, Tracks] = {}
        free = max([0, *self.seen[0].people.people]) + 1
        for group in groups:
            tracks = tuple(tuple(n for camera, n in group if camera == number) for number in range(len(self.seen)))
            own = [self.seen[0].identities[n] for n in tracks[0]]
            people[min(own, default=free)] = tracks
            free += not own
        return dict(sorted(people.items()))

    def frames(self, one: Tracks) -> np.ndarray:
        """The first camera's frames while anybody sees the person."""
        times = [
            there.time_s(there.identities[n])[[0, -1]] + offset.seconds
            for there, numbers, offset in zip(self.seen, one, self.offsets, strict=True)
            for n in numbers
        ]
        first = self.seen[0].tracks
        half = 0.5 / first.fps
        inside = (first.time_s >= min(t[0] for t in times) - half) & (first.time_s <= max(t[1] for t in times) + half)
        return first.frames[inside]

    def views(self, one: Tracks) -> list[OtherView]:
        """What the first camera, and every other that sees the person, show at the first camera's frames."""
        first = self.seen[0].tracks
        want_s = first.times(self.frames(one))
        anybody = next(k for there in self.seen for k in there.people.people.values()).rows(slice(1))
        views = []
        for number, (there, numbers, offset) in enumerate(zip(self.seen, one, self.offsets, strict=True)):
            if number and not numbers:
                continue
            points, time_s = anybody, np.array([-np.inf])
            if numbers:
                points, _, own, _ = there.joined(numbers)
                time_s = there.tracks.times(own) + offset.seconds
            rotation, moved = (torch.from_numpy(part).float() for part in self.rig.relative(number))
            camera = self.rig.cameras[number].camera
            views.append(OtherView(resampled(points, time_s, want_s), camera, rotation, moved))
        return views

    def with_fingers(self, one: Tracks, track: TrackFit, body: Body) -> TrackFit:
        """Each hand as the camera sees it that shows it longest and largest: fingers and wrists bend alike for all."""
        first, params = self.seen[0].tracks, track.fit.params
        track_s = first.times(track.frame)
        best, most = None, np.zeros(2)
        for number, (there, numbers, offset) in enumerate(zip(self.seen, one, self.offsets, strict=True)):
            if not there.people.hands:
                continue
            _, hands, frames, _ = there.joined(numbers)
            own_s = there.tracks.times(frames) + offset.seconds
            before, after, share = neighbours(own_s, track_s)
            near = np.flatnonzero(share >= 0)
            hands = hands.rows(np.where(share < 0.5, before, after)[near]).scatter(near, len(track))
            camera, to_camera = self.rig.cameras[number].camera, _matrix(*self.rig.relative(number))
            moved = params_to_world(params, rest_pelvis(params.shape, body), np.tile(to_camera, (len(track), 1, 1)))
            wrists = camera.project(body.at(moved).joints[:, list(WRISTS)]).numpy()
            away = [np.nansum(np.abs(hands.xy_px[:, :, 0] - at), (1, 2)) for at in (wrists, wrists[:, ::-1])]
            hands = hands.exchanged(away[1] < away[0])  # that hang on arms with the wrong name
            hand_fit = fit_hands(
                seen_hands(hands, camera, body), moved, camera, body, first.fps, track.present.astype(int)
            )
            shown = (hands.presence * hands.size_px).sum(0)
            best = best or hand_fit
            for side in np.flatnonzero(shown > most):
                counts = {"pose_rad": 15, "std_deg": 15, "seen": 1, "wrist_rad": 1, "point_std_mm": 1}
                for name, width in counts.items():
                    part = slice(side * width, (side + 1) * width)
                    getattr(best, name)[:, part] = getattr(hand_fit, name)[:, part]
            most = np.maximum(most, shown)
        if best is None:
            return track
        pose = params.pose.clone()
        pose[:, list(WRISTS)] = torch.from_numpy(best.wrist_rad)
        params = replace(params, pose=pose, hands=torch.from_numpy(best.pose_rad))
        return replace(track, fit=replace(track.fit, params=params), hands=best)


def _write(
    number: int, recorded: _Recorded, people: Mapping[int, Tracks], shot_fit: ShotFit, body: Body, key: CacheKey
) -> None:
    """`fit.npz` of one camera."""
    there, rig, first = recorded.seen[number], recorded.rig, recorded.seen[0].tracks
    camera, to_camera = rig.cameras[number].camera, _matrix(*rig.relative(number))
    tracks = replace(there.tracks, same_as={identity: identity for identity in people}, shot_first_frame=np.zeros(1))
    fitted = []
    for identity, one in people.items():
        track = shot_fit.people.get(identity)
        points, _, frames, boxes = there.joined(one[number])
        if track is not None and number:
            track_s = first.times(track.frame) - recorded.offsets[number].seconds
            track = _in_camera(track, track_s, there.tracks, (points, frames), camera, to_camera, body)
        if track is not None:
            inside = np.isin(frames, track.frame)
            file = replace(there.people, frames={identity: frames[inside]}, boxes_px={identity: boxes[inside]})
            fitted.append(fit.person_rows(identity, 0, tracks, file, track, body))
    lowest, here, ground = fit.lowest_foot(shot_fit, body), replace(shot_fit, people={}), shot_fit.ground
    if ground is not None and number:
        up = to_camera[:3, :3] @ ground.up_cam
        ground = replace(ground, up_cam=up, camera_height_m=ground.camera_height_m - float(up @ to_camera[:3, 3]))
    here = replace(here, camera=camera, ground=ground, focal=given_focal(camera.mean_focal_px, camera.size))
    begin = tracks.frames[:1]
    scene = dict(scene_arrays([here], begin, tracks.frames, [lowest]))
    # One world for all cameras: the first one's.
    base = scene_arrays([replace(shot_fit, people={})], begin, tracks.frames, [lowest])["world_from_camera"]
    scene |= {"world_from_camera": (base @ np.linalg.inv(to_camera)).astype(np.float32), "shot_camera": ["static"]}
    tracks = replace(tracks, events=[] if number else tracks.events)
    rows = Person.to_groups(fitted, {"directions": 10, "fitted": 10})
    fit.write_fit(there.job, key, tracks, there.people, camera, {**scene, **rows, **_views_table(recorded, number)})


def _matrix(rotation: np.ndarray, offset: np.ndarray) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation, offset
    return matrix


def _views_table(recorded: _Recorded, number: int) -> Mapping[str, Any]:
    """All cameras, seen from one of them; that one first."""
    views = []
    for other in (number, *(n for n in range(len(recorded.rig)) if n != number)):
        placed, offset = recorded.rig.cameras[other], recorded.offsets[other]
        focal, center, size = (
            np.array(v) for v in (placed.camera.focal_px, placed.camera.center_px, placed.camera.size)
        )
        std_s = offset.std_s if np.isfinite(offset.std_s) else np.nan
        matrix = _matrix(*recorded.rig.relative(other, number))
        views.append(View(placed.name, matrix, focal, center, size, offset.seconds, std_s))
    return View.stack(views).to_arrays()


def _in_camera(
    track: TrackFit, track_s: np.ndarray, own: TracksFile, points: tuple[Keypoints, np.ndarray], camera: Camera,
    to_camera: np.ndarray, body: Body,
) -> TrackFit | None:  # fmt: skip
    """The bodies at another camera's frames and in its frame, with its own keypoints; None: not in its time.

    track_s [T]: the track's frames on the other camera's clock. points: its keypoints, and at which of its frames.
    """
    inside = (own.time_s >= track_s[0]) & (own.time_s <= track_s[-1])
    frame, time_s = own.frames[inside], own.time_s[inside]
    if not len(frame):
        return None
    place = np.interp(time_s, track_s, np.arange(len(track_s)))
    before, nearest = place.astype(int), place.round().astype(int)
    after = np.minimum(before + 1, len(track_s) - 1)
    share = torch.from_numpy(place - before).float()
    params = mixed(track.fit.params.rows(before), track.fit.params.rows(after), share)
    pelvis = rest_pelvis(params.shape, body)
    params = params_to_world(params, pelvis, np.tile(to_camera, (len(frame), 1, 1)))
    mine, frames = points
    rows = np.isin(frames, frame)
    at = np.searchsorted(frame, frames[rows])
    detected = np.isin(frame, frames)
    seen = body_keypoints(mine.rows(rows).scatter(at, len(frame)))
    used = torch.from_numpy(detected)[:, None] & (seen.presence >= PRESENT)
    away = (camera.project(body.at(params).keypoints) - seen.xy_px).norm(dim=-1)
    fitted = track.fit.rows(nearest)
    return TrackFit(
        frame=frame,
        present=track.present[nearest],
        detected=detected,
        keypoints=seen,
        swapped=np.zeros((len(frame), 26), np.bool_),
        joint_observed=track.joint_observed[nearest],
        fit=replace(fitted, params=params, used=used, reprojection_px=torch.where(used, away, torch.nan)),
        contact=None if track.contact is None else track.contact[nearest],
        worst_error_mm=None if track.worst_error_mm is None else track.worst_error_mm[nearest],
        hands=None if track.hands is None else track.hands.rows(nearest),
    )
