"""All stages in order: each is made when its file is missing or no longer matches, and kept otherwise."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

import fitmesh.result
import pose2d
from fitmesh import confidence as trust
from fitmesh.progress import Reporter
from fitmesh.stages import export, fit, keypoints, overlay, tracks
from fitmesh.stages import given_keypoints as given
from fitmesh.stages.fit import FitSettings
from fitmesh.stages.keypoints import KeypointSettings
from fitmesh.stages.run_json import About
from fitmesh.stages.tracks import TrackSettings
from pose2d.base.caching import CacheKey, content_digest, remove_temporary
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.prefetch import Background
from pose2d.io.clip import Clip
from pose2d.skeletons import COCO17


@dataclass(frozen=True)
class RunSettings:
    """Everything a run can be told."""

    tracks: TrackSettings = field(default_factory=TrackSettings)
    keypoints: KeypointSettings = field(default_factory=KeypointSettings)
    given_keypoints: Path | None = None  # instead of looking for people and reading their keypoints
    fit: FitSettings = field(default_factory=FitSettings)
    exports: tuple[str, ...] = ()  # besides those that are always made
    overwrite: bool = False  # make every file anew


@dataclass(frozen=True)
class RunResult:
    """What a run leaves behind."""

    tracks: Path
    keypoints: Path
    fit: Path
    overlay: Path
    exports: tuple[Path, ...]
    made: tuple[str, ...]  # the stages that were not skipped


@dataclass(frozen=True)
class _Stage:
    name: str
    matches: Callable[[], bool]
    make: Callable[[], None]


def run_stages(clip: Clip, out: Path, settings: RunSettings, reporter: Reporter) -> RunResult:
    """From a video to its files in `out`."""
    _check(clip, out, settings)
    _clear_away(out)
    about = About(out, clip, settings)
    stages, exported = _stages(clip, out, settings, reporter)
    made = []
    for stage in stages:
        if not settings.overwrite and stage.matches():
            reporter.skipped(stage.name)
            about.write()
            continue
        start = time.monotonic()
        stage.make()
        about.took(stage.name, time.monotonic() - start)
        made.append(stage.name)
    files = [out / name for one in exported for name in export.EXPORTERS[one].files(fitmesh.result.load(out))]
    return RunResult(
        out / tracks.FILE, out / keypoints.FILE, out / fit.FILE, out / overlay.FILE, tuple(files), tuple(made)
    )


def _stages(clip: Clip, out: Path, settings: RunSettings, reporter: Reporter) -> tuple[list[_Stage], list[str]]:
    """The stages in order, and the names of the exports among them."""
    paths = {module: out / module.FILE for module in (tracks, keypoints, fit, overlay)}
    span, file = settings.tracks.span, settings.given_keypoints
    clip_digest = content_digest(clip.files())
    if file is None:
        tracks_key = tracks.cache_key(clip, clip_digest, settings.tracks)
        keypoints_key = keypoints.cache_key(clip_digest, tracks_key, settings.keypoints)
    else:
        tracks_key = given.tracks_key(clip, clip_digest, file, settings.tracks)
        keypoints_key = given.keypoints_key(file, tracks_key)
    fit_key = fit.cache_key(clip_digest, keypoints_key, settings.fit)
    overlay_key = overlay.cache_key(clip_digest, fit_key)

    load_networks = partial(keypoints.load_networks, settings.keypoints)
    loading: list[Background] = []  # emptied by who needs them, so that they do not stay in memory

    def make_tracks() -> None:
        if file is None:
            loading.append(Background(load_networks))
            loading[0].start()
            tracks.make(clip, paths[tracks], tracks_key, settings.tracks, reporter)
        else:
            given.make_tracks(clip, file, paths[tracks], tracks_key, settings.tracks, reporter)

    def make_keypoints() -> None:
        to = paths[keypoints]
        if file is None:
            networks = loading.pop() if loading else Background(load_networks)
            keypoints.make(clip, span, paths[tracks], to, keypoints_key, settings.keypoints, networks, reporter)
        else:
            given.make_keypoints(file, paths[tracks], to, keypoints_key, reporter)

    def make_fit() -> None:
        fit.make(
            clip, span, paths[tracks], paths[keypoints], paths[fit], fit_key, settings.fit, reporter
        )  # fmt: skip

    def make_overlay() -> None:
        overlay.make(clip, span, out, paths[overlay], overlay_key, reporter)

    def exporting(cache_key: CacheKey) -> _Stage:
        return _Stage(
            cache_key.stage,
            lambda: export.matches(out, cache_key),
            lambda: export.make(fitmesh.result.load(out), out, cache_key, reporter),
        )

    exported = export.wanted(settings.exports)
    return [
        _Stage("tracks", lambda: tracks.matches(paths[tracks], tracks_key), make_tracks),
        _Stage("keypoints", lambda: keypoints.matches(paths[keypoints], keypoints_key), make_keypoints),
        _Stage("fit", lambda: fit.matches(paths[fit], fit_key), make_fit),
        _Stage("overlay", lambda: overlay.matches(paths[overlay], overlay_key), make_overlay),
        *(exporting(export.cache_key(name, fit_key, overlay_key)) for name in exported),
    ], exported


def _check(clip: Clip, out: Path, settings: RunSettings) -> None:
    """Find now what would otherwise be found after an hour's work."""
    export.wanted(settings.exports)
    settings.fit.check((clip.info.width_px, clip.info.height_px))
    _check_device(settings.keypoints.device)
    if settings.given_keypoints is None:
        _check_network(settings.keypoints)
    else:
        given.read_given(settings.given_keypoints)
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file. --out takes a folder for the results.")
    with atomic_file(out / ".probe") as probe:  # says in words why a folder cannot be written to
        probe.touch()
    (out / ".probe").unlink()


def _check_network(wanted: KeypointSettings) -> None:
    card = pose2d.card(wanted.pose_model)
    if card.skeleton.keypoints[: COCO17.size] != COCO17.keypoints:
        raise UserError(
            f"{card.name} reads the keypoints of {card.skeleton.name}, to which no body can be fitted: choose a "
            "network for COCO's 17 keypoints or a set that begins with them (`fitmesh models`)."
        )
    if wanted.checkpoint is None and card.embedded is None:
        raise UserError(f"{card.name} ships no weights: pass --checkpoint. They come from {card.source}.")
    if wanted.checkpoint is not None and not wanted.checkpoint.is_file():
        raise UserError(f"no checkpoint at {wanted.checkpoint}. Check the path.")
    trust.check(wanted.confidence, wanted.pose_model, wanted.ccnet)


def _check_device(name: str) -> None:
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise UserError(
            f"--device {name} cannot be used ({reason}). Use --device cpu, or install a torch for it."
        ) from error


def _clear_away(out: Path) -> None:
    for name in (tracks.FILE, keypoints.FILE, fit.FILE, overlay.FILE, fitmesh.result.RUN_FILE):
        remove_temporary(out / name)
