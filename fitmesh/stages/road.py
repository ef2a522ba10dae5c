"""All stages in order: each is made when its file is missing or no longer matches, and kept otherwise."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pose2d
from fitmesh.stages import fit, keypoints, overlay, tracks, trust
from fitmesh.stages.fit import FitSettings
from fitmesh.stages.keypoints import KeypointSettings
from fitmesh.stages.progress import Reporter
from fitmesh.stages.recipe import Recipe, content_digest
from fitmesh.stages.tracks import TrackSettings
from pose2d.clip import Clip
from pose2d.errors import UserError
from pose2d.files import whole_file


@dataclass(frozen=True)
class RunSettings:
    """Everything a run can be told."""

    tracks: TrackSettings = field(default_factory=TrackSettings)
    keypoints: KeypointSettings = field(default_factory=KeypointSettings)
    fit: FitSettings = field(default_factory=FitSettings)
    overwrite: bool = False  # make every file anew


@dataclass(frozen=True)
class RunResult:
    """What a run leaves behind."""

    tracks: Path
    keypoints: Path
    fit: Path
    overlay: Path
    made: tuple[str, ...]  # the stages that were not skipped


def run_stages(clip: Clip, out: Path, settings: RunSettings, reporter: Reporter) -> RunResult:
    """From a film to its files in `out`."""
    _check(out, settings)
    made: list[str] = []
    result = RunResult(out / tracks.FILE, out / keypoints.FILE, out / fit.FILE, out / overlay.FILE, ())
    span = settings.tracks.span
    clip_digest = content_digest(clip.files())
    tracks_recipe = tracks.recipe(clip, clip_digest, settings.tracks)
    keypoints_recipe = keypoints.recipe(clip_digest, tracks_recipe, settings.keypoints)
    fit_recipe = fit.recipe(keypoints_recipe, settings.fit)
    overlay_recipe = overlay.recipe(clip_digest, fit_recipe)

    def stage(
        name: str, path: Path, matches: Callable[[Path, Recipe], bool], recipe: Recipe, make: Callable[[], None]
    ) -> None:
        if not settings.overwrite and matches(path, recipe):
            reporter.skipped(name)
            return
        make()
        made.append(name)

    stage(
        "tracks", result.tracks, tracks.matches, tracks_recipe,
        lambda: tracks.make(clip, result.tracks, tracks_recipe, settings.tracks, reporter),
    )  # fmt: skip
    stage(
        "keypoints", result.keypoints, keypoints.matches, keypoints_recipe,
        lambda: keypoints.make(
            clip, span, result.tracks, result.keypoints, keypoints_recipe, settings.keypoints, reporter
        ),
    )  # fmt: skip
    stage(
        "fit", result.fit, fit.matches, fit_recipe,
        lambda: fit.make(result.tracks, result.keypoints, result.fit, fit_recipe, settings.fit, reporter),
    )  # fmt: skip
    stage(
        "overlay", result.overlay, overlay.matches, overlay_recipe,
        lambda: overlay.make(clip, span, out, result.overlay, overlay_recipe, reporter),
    )  # fmt: skip
    return RunResult(result.tracks, result.keypoints, result.fit, result.overlay, tuple(made))


def _check(out: Path, settings: RunSettings) -> None:
    """Find now what would otherwise be found after an hour's work."""
    wanted = settings.keypoints
    card = pose2d.card(wanted.pose_model)
    if wanted.checkpoint is None and card.embedded is None:
        raise UserError(f"{card.name} ships no weights: pass --checkpoint. They come from {card.source}.")
    if wanted.checkpoint is not None and not wanted.checkpoint.is_file():
        raise UserError(f"no checkpoint at {wanted.checkpoint}. Check the path.")
    trust.check(wanted.confidence, wanted.pose_model, wanted.ccnet)
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file. --out takes a folder for the results.")
    with whole_file(out / ".probe") as probe:  # says in words why a folder cannot be written to
        probe.touch()
    (out / ".probe").unlink()
