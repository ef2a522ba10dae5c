"""Stage 2 of several cameras: keypoints of all cameras -> one body per person and time.

The bodies are in the first camera's frame and at its frames, in `fit.npz`. Every other camera's
folder gets a `fit.npz` of the same bodies in its own frame and at its own frames, from which its
overlay is drawn.
"""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fitmesh.many.sources import folder_names
from fitmesh.result import FIT_FILE
from fitmesh.stages import fit, people
from fitmesh.stages.camera_results import write_camera_result
from fitmesh.stages.camera_tracks import CameraTracks, SyncedTracks, join_people, sights_of
from fitmesh.stages.fit_rows import find_lowest_foot
from fitmesh.stages.people import TRACKS_FILE
from fitmesh.stages.scene import OFF, describe, scene_options
from fitmesh.stages.settings import Job
from fitmesh.ui.trouble import count
from fitting.body import Body
from fitting.body.load import load_body
from fitting.camera.focal import focal_from_user
from fitting.fits import FitOptions, OtherView
from fitting.keypoints.side_swap import reorder_keypoints
from fitting.rig.association import Track, associate
from fitting.rig.calibration import read_rig, write_rig
from fitting.rig.check import check_calibration
from fitting.rig.offsets import Offset
from fitting.rig.rig import Rig
from fitting.rig.rig_ground import LaboratoryFrame, find_laboratory_frame
from fitting.shot import SceneOptions, ShotFit, ShotPerson, fit_shot
from fitting.stated import widen_by_cameras
from pose2d.base.caching import CacheKey, code_digest, content_digest, npz_is_current, read_npz
from pose2d.base.errors import OptionError, UserError
from pose2d.base.threads import single_thread
from pose2d.video.camera_motion.motion import read_motion

RIG_FILE = "rig.toml"
# Of videos longer than the first, this much is examined before all of it.
PREVIEW_FROM_S = 60.0
PREVIEW_S = 10.0


@dataclass(frozen=True)
class Placing:
    """Where the cameras stand, when they started, and how well that is known."""

    rig: Rig
    offsets: list[Offset]
    scale_log_std: float = 0.0  # of all lengths
    turn_std_rad: float = 0.0  # of the cameras

    @property
    def offsets_s(self) -> list[float]:
        """Return the offset of every camera's clock to the first's."""
        return [offset.seconds for offset in self.offsets]


def check(job: Job) -> None:
    """Refuse now what would otherwise be refused after the keypoints were estimated."""
    settings = job.settings
    settings.offsets_s()
    if settings.init_checkpoint is not None:
        raise OptionError(
            f"--init {settings.init} works with one camera only: leave it out with several."
        )
    single_camera_files = {
        "--keypoints": settings.keypoints,
        "--detections": settings.detections,
    }
    for option, file in single_camera_files.items():
        if file is not None:
            raise UserError(f"{option} is for one clip: leave it out with several cameras.")
    if settings.camera_names is not None and settings.rig_file is None:
        raise OptionError(
            "--camera-names needs the calibration that has these names: give --cameras FILE.",
            option="--camera-names",
        )
    if settings.rig_file is not None:
        _read_rig(job, settings.rig_file)
        if settings.height_m:
            job.reporter.warn("--height has no effect: calibrated cameras measure people.")


def preview(job: Job) -> None:
    """Check the calibration on a few seconds of long videos: UserError before hours of work."""
    settings = job.settings
    jobs = [job, *job.cameras]
    shortest_s = min(camera.clip.info.duration_s or 0.0 for camera in jobs)
    if settings.rig_file is None or shortest_s < PREVIEW_FROM_S:
        return
    job.reporter.say(
        f"{PREVIEW_S:.0f} s of every camera first, to check the calibration", "cameras"
    )
    end_s = settings.start_s + PREVIEW_S
    if settings.end_s is not None:
        end_s = min(end_s, settings.end_s)
    job.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".preview-", dir=job.out) as folder:
        cameras = []
        for number, camera in enumerate(jobs):
            short_settings = replace(camera.settings, end_s=end_s, videos=())
            short = replace(camera, settings=short_settings, out=Path(folder) / str(number))
            people.make(short, people.cache_key(short))
            cameras.append(CameraTracks.of(short))
        rig = _read_rig(job, settings.rig_file)
        steps_s = [1 / camera.tracks.fps for camera in cameras]
        with single_thread():
            check_calibration(rig, sights_of(cameras, rig), settings.offsets_s(), steps_s)


def _read_rig(job: Job, file: Path) -> Rig:
    infos = [camera.clip.info for camera in (job, *job.cameras)]
    sizes = [(info.width_px, info.height_px) for info in infos]
    videos = [camera.clip.path.stem for camera in (job, *job.cameras)]
    if len(set(videos)) < len(videos):
        videos = _names(job)
    return read_rig(file, videos, sizes, job.settings.camera_name_list)


def _names(job: Job) -> list[str]:
    return folder_names([str(camera.clip.path) for camera in (job, *job.cameras)])


def cache_key(job: Job, people_keys: Sequence[CacheKey]) -> CacheKey:
    """Return the key of the fit; people_keys: of all cameras."""
    rig_file = job.settings.rig_file
    key = fit.cache_key(job, people_keys[0])
    inputs = {f"people {number}": one.digest for number, one in enumerate(people_keys)}
    if rig_file is not None:
        is_folder = rig_file.is_dir()
        files = sorted(p for p in rig_file.rglob("*") if p.is_file()) if is_folder else [rig_file]
        inputs["cameras"] = content_digest(files)
    settings = {
        "cameras": "auto" if rig_file is None else "given",
        "sync": job.settings.sync,
        "camera_names": job.settings.camera_names,
    }
    code = code_digest(
        "fitting.shot",
        "fitting.rig.from_people",
        "fitting.rig.views",
        "fitting.rig.rig_ground",
        "fitmesh.stages.together",
    )
    return replace(
        key,
        settings={**key.settings, **settings},
        inputs={**key.inputs, **inputs},
        code=code,
    )


def files(job: Job) -> list[str]:
    """Return the files that the stage leaves, relative to `out`."""
    others = [str((camera.out / FIT_FILE).relative_to(job.out)) for camera in job.cameras]
    return [FIT_FILE, RIG_FILE, *others]


def is_current(job: Job, path: Path, key: CacheKey) -> bool:
    """Say whether all files of the stage have this key."""
    fits = [camera.out / FIT_FILE for camera in (job, *job.cameras)]
    return (job.out / RIG_FILE).is_file() and all(npz_is_current(file, key) for file in fits)


def make(job: Job, key: CacheKey) -> None:
    """Fit everyone whom the cameras see."""
    settings = job.settings
    body = load_body(settings.body_file)
    cameras = _read_cameras(job)
    with job.reporter.busy("comparing the cameras"), single_thread():
        cameras, placing = _place(job, cameras, body)
        groups = associate(placing.rig, sights_of(cameras, placing.rig), placing.offsets_s)
    _announce(job, placing, groups)
    synced = SyncedTracks(join_people(cameras, groups), placing.rig, placing.offsets)
    views = {identity: synced.views(identity) for identity in synced.cameras[0].people}
    laboratory = find_laboratory_frame(synced.rig, list(views.values()))
    if placing.rig.source != "people":
        _announce_frame(job, laboratory)
    shot_fit = _fit(job, synced, views, laboratory, body)
    for identity, track in shot_fit.people.items():
        if placing.scale_log_std or placing.turn_std_rad:
            track = widen_by_cameras(track, placing.scale_log_std, placing.turn_std_rad, body)
        if body.fingers is not None:
            track = synced.with_fingers(identity, track, body)
        shot_fit.people[identity] = track
    write_rig(job.out / RIG_FILE, _with_found_world(placing.rig, shot_fit, body))
    # The first camera's last: its file says that the others are done.
    for number in reversed(range(len(cameras))):
        write_camera_result(number, synced, shot_fit, laboratory, body, key)


def _read_cameras(job: Job) -> list[CameraTracks]:
    """Return the tracks of all cameras, with a warning about those that move."""
    cameras = []
    for camera in (job, *job.cameras):
        cameras.append(CameraTracks.of(camera))
        motion = read_motion(read_npz(camera.out / TRACKS_FILE), 0)
        if motion is not None and motion.kind in ("rotating", "moving"):
            job.reporter.warn(
                f"{camera.clip.path}: the camera seems to be {motion.kind}, and several cameras "
                "must stand."
            )
    return cameras


def _announce_frame(job: Job, laboratory: LaboratoryFrame | None) -> None:
    """Say whether results are in the calibration's world, and where its floor is."""
    if laboratory is None:
        job.reporter.warn(
            "people stand along no axis of the calibration's world: results are in a world under "
            "the first camera."
        )
        return
    axis = "xyz"[int(np.abs(laboratory.up).argmax())]
    sign = "-" if laboratory.up.min() < 0 else ""
    job.reporter.say(f"results are in the calibration's world, {sign}{axis} up", "cameras")
    if not laboratory.is_floor_at_zero and np.isfinite(laboratory.feet_m):
        job.reporter.warn(
            f"the lowest feet are {laboratory.feet_m:+.2f} m from 0 in the calibration's world, so "
            "that 0 is not taken for the floor; positions stay in that world."
        )


def _fit(
    job: Job,
    synced: SyncedTracks,
    views: Mapping[int, list[OtherView]],
    laboratory: LaboratoryFrame | None,
    body: Body,
) -> ShotFit:
    """Fit one body per person to the keypoints of all cameras."""
    settings = job.settings
    first = synced.cameras[0]
    options = scene_options(settings.floor)
    if options.ground and not options.user_ground.states_anything and laboratory is not None:
        options = SceneOptions(user_ground=laboratory.ground(synced.rig.cameras[0]))
    shot_people = [
        ShotPerson(
            identity,
            first_view.keypoints,
            synced.frames(identity),
            settings.init,
            other_views=tuple(other_views),
        )
        for identity, (first_view, *other_views) in views.items()
    ]
    camera = synced.rig.cameras[0].camera
    total = sum(len(person.frame) for person in shot_people)
    with job.reporter.stage("fit", total) as tick, single_thread():
        shot_fit = fit_shot(
            shot_people,
            camera,
            focal_from_user(camera.mean_focal_px, camera.size),
            body,
            fps=first.tracks.fps,
            every=first.tracks.every,
            options=replace(options, fit=FitOptions(settings.weighting), progress=tick),
        )
    if shot_people and settings.floor != OFF:
        job.reporter.say(describe(shot_fit, "scene"), "scene")
    for identity in shot_fit.left_out:
        job.reporter.warn(
            f"person {identity} never shows enough confident keypoints at once: no body is fitted."
        )
    return shot_fit


def _with_found_world(rig: Rig, shot_fit: ShotFit, body: Body) -> Rig:
    """Return a rig that people placed in the world whose floor they stand on."""
    ground = shot_fit.ground
    if rig.source != "people" or ground is None:
        return rig
    height_m = ground.camera_height_m if ground.floor_known else -find_lowest_foot(shot_fit, body)
    return rig.with_upright_world(ground.up_cam, height_m)


def _place(job: Job, cameras: list[CameraTracks], body: Body) -> tuple[list[CameraTracks], Placing]:
    """Return the tracks, with sides as the cameras' places say, and where the cameras stand."""
    settings = job.settings
    steps_s = [1 / camera.tracks.fps for camera in cameras]
    if settings.rig_file is None:
        return _place_by_people(job, cameras, body, steps_s)
    rig = _read_rig(job, settings.rig_file)
    rig, offsets = check_calibration(rig, sights_of(cameras, rig), settings.offsets_s(), steps_s)
    return cameras, Placing(rig, offsets)


def _place_by_people(
    job: Job, cameras: list[CameraTracks], body: Body, steps_s: Sequence[float]
) -> tuple[list[CameraTracks], Placing]:
    """Return the tracks and where the cameras stand, from the people alone."""
    from fitting.rig.from_people import place_cameras
    from fitting.rig.lifted import Lifted, Recorded

    settings = job.settings
    names = _names(job)
    lenses = [camera.job.lens for camera in cameras]

    def lift(exchanged: bool) -> list[list[Lifted]]:
        return [
            [
                Lifted.of(rows.points, own.time_s(i), lens.camera, body, own.tracks.fps, exchanged)
                for i, rows in own.people.items()
            ]
            for own, lens in zip(cameras, lenses, strict=True)
        ]

    estimate = place_cameras(
        Recorded(
            names=names,
            cameras=[lens.camera for lens in lenses],
            focals=[lens.focal for lens in lenses],
            people=lift(exchanged=False),
            stated_s=settings.offsets_s(),
            steps_s=steps_s,
            height_m=settings.heights().get(None),
            exchanged=lift(exchanged=True),
        )
    )
    job.reporter.say(
        f"cameras placed by people: turned to {estimate.turn_std_deg.max():.1f} degrees, positions "
        f"to {100 * estimate.place_std.max():.0f} %, all lengths to "
        f"{100 * estimate.scale_log_std:.0f} % (one deviation); {RIG_FILE} has them",
        "cameras",
    )
    if estimate.exchanged is not None:
        job.reporter.warn(
            f"{names[estimate.exchanged]}: people's left is taken for their right, so that rays "
            "meet (a mirrored video, or backs that look like fronts)."
        )
        cameras[estimate.exchanged] = _exchange_sides(cameras[estimate.exchanged])
    turn_std_rad = math.radians(float(estimate.turn_std_deg.mean()))
    placing = Placing(estimate.rig, estimate.offsets, estimate.scale_log_std, turn_std_rad)
    return cameras, placing


def _exchange_sides(camera: CameraTracks) -> CameraTracks:
    """Return the tracks of a camera with left and right exchanged."""
    people = {}
    for identity, rows in camera.people.items():
        order = np.tile(rows.points.skeleton.flip_order, (len(rows), 1))
        people[identity] = replace(rows, keypoints=reorder_keypoints(rows.points, order))
    return replace(camera, people=people)


def _announce(job: Job, placing: Placing, groups: Sequence[Sequence[Track]]) -> None:
    """Report notes on the calibration, the offsets, and how many people cameras share."""
    rig = placing.rig
    for note in rig.notes:
        job.reporter.say(note, "cameras")
    for placed, offset in zip(rig.cameras[1:], placing.offsets[1:], strict=True):
        if offset.is_estimated:
            job.reporter.say(
                f"{placed.name} started {1000 * offset.seconds:+.0f} +- {1000 * offset.std_s:.0f} "
                f"ms after {rig.cameras[0].name}",
                "cameras",
                offset_s=offset.seconds,
                std_s=offset.std_s,
            )
        elif offset.std_s > 0:
            job.reporter.warn(
                f"people's motion does not tell when {placed.name} started: taken for the same time."
            )
    shared = sum(len({camera for camera, _ in group}) > 1 for group in groups)
    angles = ", ".join(f"{angle:.0f}" for angle in rig.angles_deg)
    job.reporter.say(
        f"{len(rig)} cameras ({rig.source}), {angles} degrees between them; "
        f"{count(len(groups), 'people')}, {shared} of them in more than one camera",
        "cameras",
        cameras=len(rig),
        people=len(groups),
        shared=shared,
    )
