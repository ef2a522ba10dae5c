"""All stages in order: each is made when its file is missing or its cache key has changed, and kept
otherwise.

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
from fitmesh.exports import ALWAYS, EXPORTERS, check_exports, choose_exports
from fitmesh.options.record import shared
from fitmesh.options.run import RunOptions
from fitmesh.result import OVERLAY_FILE, RUN_FILE, Manifest, numbers_of
from fitmesh.stages import export, fit, people
from fitmesh.stages.settings import Job, RunSettings
from fitmesh.ui import events
from fitmesh.ui.trouble import count
from fitmesh.version import __version__
from pose2d.base.caching import CacheKey
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file, remove_temporary
from pose2d.base.folder_lock import folder_lock
from pose2d.base.json_files import read_json
from pose2d.base.scratch import scratch_for
from pose2d.base.threads import check_device, default_device
from pose2d.detect.detector import detector_class
from pose2d.models.loading import fetched
from pose2d.models.registry import card, use_plugin
from pose2d.skeletons import COCO17

# Stages that few runs need, imported when one does: several cameras, and keypoints that a file
# brings.
TOGETHER, GIVEN = "fitmesh.stages.together", "fitmesh.stages.given_keypoints"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """From a job's settings and earlier files to one file, or some."""

    name: str  # with the camera's, of several
    key: CacheKey
    is_current: Callable[[], bool]
    make: Callable[[], None]
    files: Callable[[], Sequence[str]]  # what it leaves, from the folder of the run


def run_stages(job: Job) -> tuple[list[Path], list[str]]:
    """From a clip to its files in `job.out`, of which this process is the only writer meanwhile:
    those for the user (the fit, the overlay, the exports), and the names of the stages that were
    not skipped."""
    with job.reporter.busy("checking the settings"):
        check(job)
    # The lock says in words why a folder cannot be written to.
    with folder_lock(job.out), scratch_for(job.out / fit.FILE):
        return _run_stages(job)


def _run_stages(job: Job) -> tuple[list[Path], list[str]]:
    with job.reporter.busy("checking the files that are there"):
        manifest = Manifest.read(job.out)
        planned = stages(job)
        exporters = [EXPORTERS.get(stage.key.stage) for stage in planned]
        files = [
            stage.files() if one is None else (one.entry,)
            for stage, one in zip(planned, exporters, strict=True)
        ]
        entries = [RUN_FILE, *(Path(name).parts[0] for names in files for name in names)]
        manifest.claim(entries, _inputs(job), job.settings.overwrite)
    for folder in (job.out, *(one.out for one in job.cameras)):
        for name in (people.TRACKS_FILE, people.KEYPOINTS_FILE, fit.FILE, OVERLAY_FILE, RUN_FILE):
            remove_temporary(folder / name)
    try:
        timings = numbers_of(
            read_json(job.out / RUN_FILE).get("timings_s", {}).value
        )  # of an earlier run
    except UserError:
        timings = {}
    made: list[str] = []
    if job.settings.videos and not all(
        stage.is_current() for stage in planned[: 1 + len(job.cameras)]
    ):
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
            if manifest.forget(stage.files()):  # while files change, no record vouches for them
                _write_run_json(job, timings, manifest)
            _log.debug("%s is made, cache key %s", name, stage.key.text)
            start = time.monotonic()
            stage.make()
            timings[name] = round(
                time.monotonic() - start, 3
            )  # a stage that is kept keeps its time
            made.append(name)
            manifest.record(stage.files())
        _write_run_json(job, timings, manifest)
    names = dict.fromkeys(name for stage in planned for name in stage.files())
    on_the_way = () if job.settings.only_people else (people.TRACKS_FILE, people.KEYPOINTS_FILE)
    shown = [name for name in names if Path(name).name not in on_the_way]
    return [job.out / name for name in shown], made


def _inputs(job: Job) -> list[Path]:
    """The clip, and every file that an option names."""
    settings = job.settings
    named = (*vars(settings).values(), *settings.videos, settings.floor_file, settings.rig_file)
    return [*job.clip.files(), *(path for path in named if isinstance(path, Path))]


def warnings_of(folder: Path) -> list[str]:
    """What a user should know of a finished run besides its numbers: about the video, and people
    who were not found.
    """
    seen = people.read_tracks(folder)
    nobody = (
        f"nobody was found in {count(len(seen.frames), 'frames')}. Try a larger --detector-size (640) if people are "
        "small, a smaller one (256) for close-ups that show only a part of somebody, or a lower --min-score."
    )
    return [*seen.warnings, *([] if len(seen.rows) else [nobody])]


def stages(job: Job) -> list[Stage]:
    """In the order they are made."""
    settings = job.settings
    everyone = (job, *job.cameras)

    def stage(
        one: Job,
        key: CacheKey,
        is_current: Callable[[Path, CacheKey], bool],
        file: str,
        make: Callable[[Job, CacheKey], None],
        files: Callable[[], Sequence[str]],
    ) -> Stage:
        """Of one of the cameras, in its own folder."""
        folder = one.out.relative_to(job.out)
        return Stage(
            f"{key.stage} {folder.name}".rstrip(),
            key,
            partial(is_current, one.out / file, key),
            partial(make, one, key),
            lambda: [str(folder / name) for name in files()],
        )

    source: Any = people if settings.keypoints is None else import_module(GIVEN)
    both = (people.TRACKS_FILE, people.KEYPOINTS_FILE)
    drawn = (OVERLAY_FILE,)
    planned = [
        stage(one, source.cache_key(one), people.is_current, "", source.make, lambda: both)
        for one in everyone
    ]
    if not settings.videos:
        fit_key = fit.cache_key(job, planned[0].key)
        fitted = stage(job, fit_key, fit.is_current, fit.FILE, fit.make, lambda: (fit.FILE,))
    else:
        together = import_module(TOGETHER)
        fit_key = together.cache_key(job, [seen.key for seen in planned])
        is_current = partial(together.is_current, job)
        files = partial(together.files, job)
        fitted = stage(job, fit_key, is_current, fit.FILE, together.make, files)
    overlay_key = partial(export.overlay_key, fit_key=fit_key)
    if not settings.only_people:
        planned.append(fitted)
    if not settings.outputs:
        planned += [
            stage(one, overlay_key(one), export.is_current, "", export.make, lambda: drawn)
            for one in everyone
        ]
    for name in choose_exports(settings.exports, always=() if settings.outputs else ALWAYS):
        key = export.cache_key(job, name, fit_key, overlay_key(job))
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
    """Find now what would otherwise be found after an hour's work."""
    settings = job.settings
    check_settings(settings)
    _ = job.lens  # refuses one that contradicts itself or the clip
    if settings.videos:
        import_module(TOGETHER).check(job)
    layout_matters = False
    if settings.keypoints is not None:
        layout_matters = (
            import_module(GIVEN).read_given(settings.keypoints, settings.keypoint_layout).openpose
        )
    elif settings.checkpoint is not None or settings.ccnet is not None:
        _ = job.loader.networks  # a file of the wrong family is told of before any stage starts
    if settings.keypoint_layout != RunSettings.keypoint_layout and not layout_matters:
        job.reporter.warn(
            "--keypoint-layout has no effect: it is for --keypoints in OpenPose's format."
        )


def check_settings(settings: RunSettings) -> None:
    """The same of what does not depend on the clip."""
    check_exports(settings.exports, settings.bone_names)
    fit.check(settings)
    check_device(settings.device)
    detector_class(settings.detector)
    if settings.keypoints is not None:
        return
    model = card(settings.pose_model)
    if model.skeleton.keypoints[: COCO17.size] != COCO17.keypoints:
        raise UserError(
            f"{model.name} finds the keypoints of {model.skeleton.name}, to which no body can be fitted: choose a "
            "network for COCO's 17 keypoints or a set that begins with them (`fitmesh models`)."
        )
    if settings.checkpoint is None and model.embedded is None:
        raise UserError(
            f"{model.name} ships no weights: pass --checkpoint. They come from {model.source}; "
            f"`fitmesh models get {model.name}` fetches them or says what to click."
        )
    if settings.checkpoint is not None and not settings.checkpoint.is_file():
        raise UserError(f"no checkpoint at {settings.checkpoint}. Check the path.")
    check_source(settings.confidence, settings.pose_model, settings.ccnet)


def _write_run_json(job: Job, timings_s: Mapping[str, float], manifest: Manifest) -> None:
    """`run.json`: what the run was told, where its clip is, how long each stage took, and digests
    of what it wrote.
    """
    facts: dict[str, Any] = {
        "fitmesh": __version__,
        "clip": str(job.clip.path.resolve()),
        "settings": asdict(job.settings),
        "timings_s": timings_s,
        "files": manifest.digests,
        "entries": sorted(manifest.entries),
    }
    with atomic_file(job.out / RUN_FILE) as temporary:
        temporary.write_text(json.dumps(facts, indent=1, default=str) + "\n")


def run_settings(options: RunOptions, other_videos: Sequence[str | Path] = ()) -> RunSettings:
    """From options to settings; refuses options that would have no effect. other_videos: of more
    cameras than one.
    """
    if not other_videos and (options.cameras is not None or options.sync != RunOptions.sync):
        name = "--sync" if options.cameras is None else "--cameras"
        raise UserError(
            f"{name} is for several cameras: give --video for each of them, and --together."
        )
    use_plugin(options.plugin)
    given: dict[str, Any] = shared(options, RunOptions)
    paths = [of.name for of in fields(RunSettings) if of.type == Path | None]
    given |= {name: Path(given[name]) for name in paths if given[name] is not None}
    keypoints = given["keypoints"]
    checkpoint = given["checkpoint"]
    ccnet = given["ccnet"]
    if options.whole_image and options.detections is not None:
        raise UserError("--whole-image and --detections contradict each other: give one of them.")
    if keypoints is not None:
        for name in ("detections", "whole_image", "checkpoint", "ccnet", "plugin"):
            if given[name]:
                spelled = name.replace("_", "-")
                raise UserError(
                    f"--{spelled} has no effect with --keypoints, which brings its own: leave one of them out."
                )
        if (
            options.confidence is not None
        ):  # of another source than the file's: only pixels could give it
            brought = (
                import_module(GIVEN)
                .read_given(keypoints, options.keypoint_layout)
                .rows.points.source
            )
            if options.confidence != brought:
                raise UserError(
                    f"--confidence {options.confidence} has no effect with --keypoints: {keypoints} brings its own "
                    f"({brought}). Leave one of them out."
                )
    elif checkpoint is None:
        checkpoint = fetched(options.pose_model)
    outputs = tuple(options.outputs)
    if unknown := sorted(set(outputs) - {"people", "fit"}):
        raise UserError(f"unknown --only {', '.join(unknown)}: choose people or fit.")
    if outputs and "fit" not in outputs and options.exports:
        raise UserError(
            "--only people stops before there is anything to --export: leave one of them out."
        )
    for name, choices in (("hands", ("auto", "off")), ("shape", ("keypoints", "masks"))):
        if given[name] not in choices:
            raise UserError(f"unknown --{name} {given[name]!r}: choose {' or '.join(choices)}.")
    given |= {
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
    return RunSettings(**given)


def _text(given: float | Mapping[int, float] | str | None) -> str:
    """As `--height` and `--weight` have it."""
    if isinstance(given, Mapping):
        return ",".join(f"{identity}:{number}" for identity, number in given.items())
    return "" if given is None else str(given)
