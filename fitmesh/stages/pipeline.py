"""All stages in order: a stage runs when its file is missing or its cache key has changed.

`run_settings` turns the options that a user gives into the settings that the stages read.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ccnet.confidence import check_source, default_source
from fitmesh.exports import ALWAYS, AS_RIG, AXES, EXPORTERS, check_exports, choose_exports
from fitmesh.exports.filters import parse_filter
from fitmesh.exports.motion_size import check_motion_size
from fitmesh.loading import finite_numbers
from fitmesh.manifest import Manifest
from fitmesh.options.people import parse_names
from fitmesh.options.record import shared
from fitmesh.options.run import RunOptions
from fitmesh.result import OVERLAY_FILE, RUN_FILE
from fitmesh.stages import export, fit, people
from fitmesh.stages.settings import Job, RunSettings
from fitmesh.ui import events
from fitmesh.ui.trouble import count
from fitmesh.version import __version__
from pose2d.base.caching import CacheKey
from pose2d.base.errors import OptionError, UserError
from pose2d.base.files import atomic_file, real_path, remove_temporary
from pose2d.base.folder_lock import folder_lock
from pose2d.base.json_files import read_json
from pose2d.base.scratch import scratch_for
from pose2d.base.threads import check_device, default_device, rare_garbage_collection
from pose2d.detect.detector import detector_class
from pose2d.models.loading import find_downloaded
from pose2d.models.registry import card, use_plugin
from pose2d.skeletons import COCO17

# Stages that few runs need, imported when one does: several cameras, and imported keypoints.
TOGETHER = "fitmesh.stages.together"
GIVEN = "fitmesh.stages.given_keypoints"
KEYPOINT_FILES = "fitmesh.stages.keypoint_files"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """A step from a job's settings and earlier files to one or more files."""

    name: str  # followed by the camera's name, with several
    key: CacheKey
    is_current: Callable[[], bool]
    make: Callable[[], None]
    files: Callable[[], Sequence[str]]  # what it writes, relative to the folder of the run


def run_stages(job: Job) -> tuple[list[Path], list[str]]:
    """Run all stages of a job and return the files for the user and the stages that ran.

    The files are the fit, the overlay and the exports in `job.out`, of which this process is the
    only writer meanwhile.
    """
    with job.reporter.busy("checking the settings"):
        check(job)
    # The lock says in words why a folder cannot be written to.
    with folder_lock(job.out), scratch_for(job.out / fit.FILE):
        return _run_stages(job)


def _run_stages(job: Job) -> tuple[list[Path], list[str]]:
    with job.reporter.busy("checking the files that are there"):
        manifest = Manifest.read(job.out)
        planned = stages(job)
        manifest.claim(_top_entries(planned), _inputs(job), job.settings.overwrite)
    for folder in (job.out, *(camera.out for camera in job.cameras)):
        for name in (people.TRACKS_FILE, people.KEYPOINTS_FILE, fit.FILE, OVERLAY_FILE, RUN_FILE):
            remove_temporary(folder / name)
    try:
        earlier_timings = read_json(job.out / RUN_FILE).get("timings_s", {}).value
        timings = finite_numbers(earlier_timings)
    except UserError:
        timings = {}
    stages_run: list[str] = []
    people_stages = planned[: 1 + len(job.cameras)]
    if job.settings.videos and not all(stage.is_current() for stage in people_stages):
        import_module(TOGETHER).preview(job)
    for stage in planned:
        name = stage.name
        damaged = manifest.changed(stage.files())
        if not job.settings.overwrite and not damaged and stage.is_current():
            job.reporter.emit(events.Stage(name, "kept"))
        else:
            if damaged and not job.settings.overwrite:
                which = ", ".join(damaged[:3]) + (" .." if len(damaged) > 3 else "")
                job.reporter.warn(
                    f"{which}: changed or damaged since it was written, so it is made again."
                )
            if manifest.forget(stage.files()):  # digests are not valid while files change
                _write_run_json(job, timings, manifest)
            _log.debug("%s is made, cache key %s", name, stage.key.text)
            start = time.monotonic()
            stage.make()
            timings[name] = round(time.monotonic() - start, 3)  # a skipped stage keeps its time
            stages_run.append(name)
            manifest.record(stage.files())
        _write_run_json(job, timings, manifest)
    names = dict.fromkeys(name for stage in planned for name in stage.files())
    intermediate = () if job.settings.only_people else (people.TRACKS_FILE, people.KEYPOINTS_FILE)
    user_files = [job.out / name for name in names if Path(name).name not in intermediate]
    return user_files, stages_run


def _top_entries(planned: Sequence[Stage]) -> list[str]:
    """Return the files and folders directly in the folder of the run that stages write."""
    entries = [RUN_FILE]
    for stage in planned:
        exporter = EXPORTERS.get(stage.key.stage)
        files = stage.files() if exporter is None else exporter.entries
        entries += [Path(name).parts[0] for name in files]
    return entries


def _inputs(job: Job) -> list[Path]:
    """Return the clip and every file that an option names."""
    settings = job.settings
    named = (*vars(settings).values(), *settings.videos, settings.floor_file, settings.rig_file)
    return [*job.clip.files(), *(path for path in named if isinstance(path, Path))]


def warnings_of(folder: Path) -> list[str]:
    """Return warnings of a finished run: about the video, and if no people were found."""
    seen = people.read_tracks(folder)
    if len(seen.rows):
        return seen.warnings
    no_people = (
        f"no people were found in {count(len(seen.frames), 'frames')}. Try a larger "
        "--detector-size (640) if people are small, a smaller one (256) for close-ups that show "
        "only a part of a person, or a lower --min-score."
    )
    return [*seen.warnings, no_people]


def stages(job: Job) -> list[Stage]:
    """Return the stages of a job in the order they run."""
    settings = job.settings
    all_jobs = (job, *job.cameras)

    def stage(
        camera: Job,
        key: CacheKey,
        is_current: Callable[[Path, CacheKey], bool],
        file: str,
        make: Callable[[Job, CacheKey], None],
        files: Callable[[], Sequence[str]],
    ) -> Stage:
        """Return a stage of one of the cameras, in its own folder."""
        folder = camera.out.relative_to(job.out)
        return Stage(
            f"{key.stage} {folder.name}".rstrip(),
            key,
            partial(is_current, camera.out / file, key),
            rare_garbage_collection()(partial(make, camera, key)),
            lambda: [str(folder / name) for name in files()],
        )

    source: Any = people if settings.keypoints is None else import_module(GIVEN)
    people_files = (people.TRACKS_FILE, people.KEYPOINTS_FILE)
    overlay_files = (OVERLAY_FILE,)
    planned = [
        stage(
            camera,
            source.cache_key(camera),
            people.is_current,
            "",
            source.make,
            lambda: people_files,
        )
        for camera in all_jobs
    ]
    if not settings.videos:
        fit_key = fit.cache_key(job, planned[0].key)
        fitted = stage(job, fit_key, fit.is_current, fit.FILE, fit.make, lambda: (fit.FILE,))
    else:
        together = import_module(TOGETHER)
        fit_key = together.cache_key(job, [people_stage.key for people_stage in planned])
        is_current = partial(together.is_current, job)
        files = partial(together.files, job)
        fitted = stage(job, fit_key, is_current, fit.FILE, together.make, files)
    overlay_key = partial(export.overlay_key, fit_key=fit_key)
    if not settings.only_people:
        planned.append(fitted)
    if not settings.outputs:
        planned += [
            stage(
                camera,
                overlay_key(camera),
                export.is_current,
                "",
                export.make,
                lambda: overlay_files,
            )
            for camera in all_jobs
        ]
    for name in choose_exports(settings.exports, always=() if settings.outputs else ALWAYS):
        key = export.cache_key(settings, name, fit_key.digest, overlay_key(job).digest)
        planned.append(
            stage(
                job,
                key,
                export.is_current,
                "",
                export.make,
                partial(export.noted_files, job.out, name),
            )
        )
    return planned


def check(job: Job) -> None:
    """Refuse now what would otherwise be refused after an hour's work."""
    settings = job.settings
    check_settings(settings)
    _ = job.lens  # refuses one that contradicts itself or the clip
    if settings.export_fps is not None:
        seconds = settings.span.expected_s(job.clip.info)
        check_motion_size(seconds, people=1, fps=settings.export_fps)  # one person at least
    if settings.videos:
        import_module(TOGETHER).check(job)
    layout_matters = False
    if settings.keypoints is not None:
        keypoints = import_module(KEYPOINT_FILES).read_given(
            settings.keypoints, settings.keypoint_layout
        )
        layout_matters = keypoints.openpose
    elif settings.checkpoint is not None or settings.ccnet is not None:
        _ = job.loader.networks  # refuses a file of the wrong family
    if settings.keypoint_layout != RunSettings.keypoint_layout and not layout_matters:
        job.reporter.warn(
            "--keypoint-layout has no effect: it is for --keypoints in OpenPose's format."
        )


def check_export_settings(settings: RunSettings) -> None:
    """Refuse settings of exports that cannot be made."""
    check_exports(settings.exports, settings.rig)
    parse_names(settings.names)
    if parse_filter(settings.filter) is not None and settings.smooth:
        raise OptionError(
            f"--filter {settings.filter} and --smooth {settings.smooth:g} both smooth the motion: "
            "give one of them.",
            option="--filter",
        )
    if settings.trc_axes not in AXES:
        raise OptionError(
            f"--trc-axes must be one of {', '.join(AXES)}; got {settings.trc_axes!r}.",
            option="--trc-axes",
        )
    if settings.trc_axes == AS_RIG and not settings.videos:
        raise OptionError(
            "--trc-axes as-rig is for several cameras: choose y-up or z-up.", option="--trc-axes"
        )


def check_settings(settings: RunSettings) -> None:
    """Refuse settings that no clip could be run with."""
    check_export_settings(settings)
    fit.check(settings)
    check_device(settings.device)
    detector_class(settings.detector)
    if settings.keypoints is not None:
        return
    model = card(settings.pose_model)
    if model.skeleton.keypoints[: COCO17.size] != COCO17.keypoints:
        raise UserError(
            f"{model.name} finds the keypoints of {model.skeleton.name}, to which no body can be "
            "fitted: choose a network for COCO's 17 keypoints or a set that begins with them "
            "(`fitmesh models`)."
        )
    if settings.checkpoint is None and model.embedded is None:
        raise UserError(
            f"{model.name} ships no weights: pass --checkpoint. They come from {model.source}; "
            f"`fitmesh models get {model.name}` fetches them or says what to click."
        )
    if settings.checkpoint is not None and not settings.checkpoint.is_file():
        raise UserError(
            f"no checkpoint at {settings.checkpoint}. Check the path.", file=settings.checkpoint
        )
    check_source(settings.confidence, settings.pose_model, settings.ccnet)


def _write_run_json(job: Job, timings_s: Mapping[str, float], manifest: Manifest) -> None:
    """Write `run.json`: settings, clip, how long each stage took, and digests of its files."""
    facts: dict[str, Any] = {
        "fitmesh": __version__,
        "clip": str(real_path(job.clip.path)),
        "settings": asdict(job.settings),
        "timings_s": timings_s,
        "files": manifest.digests,
        "entries": sorted(manifest.entries),
    }
    with atomic_file(job.out / RUN_FILE) as temporary:
        temporary.write_text(json.dumps(facts, indent=1, default=str) + "\n")


def run_settings(options: RunOptions, other_videos: Sequence[str | Path] = ()) -> RunSettings:
    """Return the settings that options mean, and refuse options that would have no effect.

    other_videos: those of the other cameras, where several recorded the scene.
    """
    several_camera_options = {
        "--cameras": options.cameras is not None,
        "--camera-names": options.camera_names is not None,
        "--sync": options.sync != RunOptions.sync,
    }
    name = next((option for option, is_set in several_camera_options.items() if is_set), None)
    if not other_videos and name is not None:
        raise UserError(
            f"{name} is for several cameras: give --video for each of them, and --together."
        )
    use_plugin(options.plugin)
    values: dict[str, Any] = shared(options, RunOptions)
    paths = [field.name for field in fields(RunSettings) if field.type == Path | None]
    values |= {name: Path(values[name]) for name in paths if values[name] is not None}
    keypoints = values["keypoints"]
    checkpoint = values["checkpoint"]
    ccnet = values["ccnet"]
    if options.whole_image and options.detections is not None:
        raise OptionError("--whole-image and --detections contradict each other: give one of them.")
    if keypoints is not None:
        for name in ("detections", "whole_image", "checkpoint", "ccnet", "plugin"):
            if values[name]:
                option = name.replace("_", "-")
                raise OptionError(
                    f"--{option} has no effect with --keypoints, which brings its own: leave one "
                    "of them out."
                )
        if options.confidence is not None:
            imported = import_module(KEYPOINT_FILES).read_given(keypoints, options.keypoint_layout)
            source = imported.rows.points.source
            if options.confidence != source:
                raise OptionError(
                    f"--confidence {options.confidence} has no effect with --keypoints: "
                    f"{keypoints} brings its own ({source}). Leave one of them out."
                )
    elif checkpoint is None:
        checkpoint = find_downloaded(options.pose_model)
    outputs = tuple(options.outputs)
    if unknown := sorted(set(outputs) - {"people", "fit"}):
        raise OptionError(f"unknown --only {', '.join(unknown)}: choose people or fit.")
    if outputs and "fit" not in outputs and options.exports:
        raise OptionError(
            "--only people stops before there is anything to --export: leave one of them out."
        )
    for name, choices in (("hands", ("auto", "off")), ("shape", ("keypoints", "masks"))):
        if values[name] not in choices:
            raise OptionError(f"unknown --{name} {values[name]!r}: choose {' or '.join(choices)}.")
    values |= {
        "checkpoint": checkpoint,
        "floor": str(options.floor),
        "exports": tuple(options.exports),
        "outputs": outputs,
        "confidence": options.confidence or default_source(options.pose_model, checkpoint, ccnet),
        "height_m": _text(options.height_m),
        "weight_kg": _text(options.weight_kg),
        "device": options.device or default_device(),
        "videos": tuple(map(Path, other_videos)),
    }
    return RunSettings(**values)


def _text(value: float | Mapping[int, float] | str | None) -> str:
    """Return a height or weight as `--height` and `--weight` take it."""
    if isinstance(value, Mapping):
        return ",".join(f"{identity}:{number}" for identity, number in value.items())
    return "" if value is None else str(value)
