"""All stages in order: each is made when its file is missing or its cache key has changed, and kept otherwise."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import fitmesh.result
from fitmesh.confidence import check_source
from fitmesh.exports import EXPORTERS, check_exports, wanted
from fitmesh.result import RUN_FILE
from fitmesh.stages import export, fit, overlay, people
from fitmesh.stages.manifest import Manifest
from fitmesh.stages.settings import Job, KeypointSettings, RunSettings
from fitmesh.ui.events import StageKept
from fitmesh.ui.words import count
from fitmesh.version import __version__
from pose2d.base.caching import CacheKey, remove_temporary
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.folder_lock import folder_lock
from pose2d.base.json_files import read_json
from pose2d.base.scratch import scratch_for
from pose2d.base.threads import check_device
from pose2d.detect.detector import detector_class
from pose2d.registry import card
from pose2d.skeletons import COCO17

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunFiles:
    """What a run leaves behind for its user."""

    files: tuple[Path, ...]  # the fit, the overlay, the exports
    made: tuple[str, ...]  # the stages that were not skipped


@dataclass(frozen=True)
class Stage:
    """A function from a job's settings and earlier files to one file (or an export's files)."""

    key: CacheKey
    is_current: Callable[[Path, CacheKey], bool]
    path: Path
    make: Callable[[Job, CacheKey], None]
    files: Callable[[], Sequence[str]]  # what it leaves in `out`


def run_stages(job: Job) -> RunFiles:
    """From a clip to its files in `job.out`, of which this process is the only writer meanwhile."""
    with job.reporter.busy("checking the settings"):
        check(job)
    # The lock says in words why a folder cannot be written to.
    with folder_lock(job.out), scratch_for(job.out / fit.FILE):
        return _run_stages(job)


def _run_stages(job: Job) -> RunFiles:
    with job.reporter.busy("checking the files that are there"):
        manifest = Manifest.read(job.out)
        planned = stages(job)
        manifest.claim(_entries(planned), _inputs(job), job.settings.overwrite)
        if any(stage.key.stage == "overlay" and not stage.is_current(stage.path, stage.key) for stage in planned):
            job.renderer.start()
    for name in (people.TRACKS_FILE, people.KEYPOINTS_FILE, fit.FILE, overlay.FILE, RUN_FILE):
        remove_temporary(job.out / name)
    timings = _timings(job.out)
    made = []
    for stage in planned:
        name = stage.key.stage
        damaged = manifest.changed(stage.files())
        if not job.settings.overwrite and not damaged and stage.is_current(stage.path, stage.key):
            job.reporter.emit(StageKept(name))
        else:
            if damaged and not job.settings.overwrite:
                which = ", ".join(damaged[:3]) + (" .." if len(damaged) > 3 else "")
                job.reporter.warn(f"{which}: changed or damaged since it was written, so it is made again.")
            if manifest.forget(stage.files()):  # while files change, no record vouches for them
                _write_run_json(job, timings, manifest)
            _log.debug("%s is made, cache key %s", name, stage.key.text)
            start = time.monotonic()
            stage.make(job, stage.key)
            timings[name] = round(time.monotonic() - start, 3)  # a stage that is kept keeps its time
            made.append(name)
            manifest.record(stage.files())
        _write_run_json(job, timings, manifest)
    names = dict.fromkeys(name for stage in planned for name in stage.files())
    shown = list(names) if job.settings.only_people else list(names)[2:]  # people's are on the way to the others
    return RunFiles(tuple(job.out / name for name in shown), tuple(made))


def _entries(planned: Sequence[Stage]) -> list[str]:
    """What a run writes into its folder."""
    exporters = [EXPORTERS.get(stage.key.stage) for stage in planned]
    files = [stage.files() if one is None else (one.entry,) for stage, one in zip(planned, exporters, strict=True)]
    return [RUN_FILE, *(name for names in files for name in names)]


def _inputs(job: Job) -> list[Path]:
    """The clip, and every file that an option names."""

    def paths(value: Any) -> Iterator[Path]:
        if isinstance(value, dict):
            for inner in value.values():
                yield from paths(inner)
        elif isinstance(value, Path):
            yield value

    floor = job.settings.fit.scene.floor_file
    return [*job.clip.files(), *paths(asdict(job.settings)), *([floor] if floor else [])]


def warnings_of(folder: Path) -> list[str]:
    """What a user should know of a finished run besides its numbers: about the video, and people who were not found."""
    seen = people.read_tracks(folder)
    nobody = (
        f"nobody was found in {count(len(seen.frames), 'frames')}. Try a larger --detector-size (640) if people are "
        "small, a smaller one (256) for close-ups that show only a part of somebody, or a lower --min-score."
    )
    return [*seen.warnings, *([] if seen.tracks else [nobody])]


def stages(job: Job) -> list[Stage]:
    """In the order they are made."""
    out, settings = job.out, job.settings
    source = people if settings.given_keypoints is None else _given_keypoints()
    people_key = source.cache_key(job)
    fit_key = fit.cache_key(job, people_key)
    overlay_key = overlay.cache_key(job, fit_key)
    planned = [
        Stage(people_key, people.is_current, out, source.make, lambda: (people.TRACKS_FILE, people.KEYPOINTS_FILE)),
        Stage(fit_key, fit.is_current, out / fit.FILE, fit.make, lambda: (fit.FILE,)),
        Stage(overlay_key, overlay.is_current, out / overlay.FILE, overlay.make, lambda: (overlay.FILE,)),
    ]
    if settings.outputs:
        planned = planned[: 1 if settings.only_people else 2]
    return [
        *planned,
        *(
            Stage(
                export.cache_key(job, name, fit_key, overlay_key),
                export.is_current,
                out,
                export.make,
                partial(export.noted_files, out, name),
            )
            for name in wanted(settings.exports, () if settings.outputs else None)
        ),
    ]


def _given_keypoints() -> ModuleType:
    """The stage people where a file says who is where: few runs need its readers."""
    from fitmesh.stages import given_keypoints

    return given_keypoints


def check(job: Job) -> None:
    """Find now what would otherwise be found after an hour's work."""
    settings = job.settings
    check_settings(settings)
    fit.check_lens(settings.fit, job.clip.files()[0], (job.clip.info.width_px, job.clip.info.height_px))
    layout_matters = False
    if settings.given_keypoints is not None:
        layout_matters = _given_keypoints().read_given(settings.given_keypoints, settings.keypoint_layout).openpose
    elif settings.keypoints.checkpoint is not None or settings.keypoints.ccnet is not None:
        job.networks.get()  # a file of the wrong family is told of before any stage starts
    if settings.keypoint_layout != RunSettings.keypoint_layout and not layout_matters:
        job.reporter.warn("--keypoint-layout has no effect: it is for --keypoints in OpenPose's format.")


def check_settings(settings: RunSettings) -> None:
    """The same of what does not depend on the clip."""
    check_exports(settings.exports, settings.bone_names)
    fit.check(settings.fit)
    check_device(settings.device)
    if settings.given_keypoints is None:
        _check_networks(settings.keypoints)
        detector_class(settings.tracks.detector)


def _check_networks(wanted: KeypointSettings) -> None:
    model = card(wanted.pose_model)
    if model.skeleton.keypoints[: COCO17.size] != COCO17.keypoints:
        raise UserError(
            f"{model.name} finds the keypoints of {model.skeleton.name}, to which no body can be fitted: choose a "
            "network for COCO's 17 keypoints or a set that begins with them (`fitmesh models`)."
        )
    if wanted.checkpoint is None and model.embedded is None:
        raise UserError(
            f"{model.name} ships no weights: pass --checkpoint. They come from {model.source}; "
            f"`fitmesh models get {model.name}` fetches them or says what to click."
        )
    if wanted.checkpoint is not None and not wanted.checkpoint.is_file():
        raise UserError(f"no checkpoint at {wanted.checkpoint}. Check the path.")
    check_source(wanted.confidence, wanted.pose_model, wanted.ccnet)


def _write_run_json(job: Job, timings_s: Mapping[str, float], manifest: Manifest) -> None:
    """`run.json`: what the run was told, where its clip is, how long each stage took, and digests of what it wrote."""
    facts: dict[str, Any] = {
        "fitmesh": __version__,
        "clip": str(job.clip.path.resolve()),
        "settings": asdict(job.settings),
        "timings_s": timings_s,
        "files": manifest.digests,
        "entries": sorted(manifest.entries),
    }
    manifest.write_copy()
    with atomic_file(job.out / RUN_FILE) as temporary:
        temporary.write_text(json.dumps(facts, indent=1, default=str) + "\n")


def _timings(out: Path) -> dict[str, float]:
    """Of an earlier run in the same folder."""
    try:
        return fitmesh.result.numbers_of(read_json(out / RUN_FILE).get("timings_s", {}).value)
    except UserError:
        return {}
