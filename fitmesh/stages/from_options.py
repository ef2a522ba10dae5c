"""From the options that a user gives to the settings that the stages read."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fitmesh.confidence import default_source
from fitmesh.exports import Motion
from fitmesh.options.record import check_ranges
from fitmesh.options.run import RunOptions
from fitmesh.stages.scene import SceneSettings
from fitmesh.stages.settings import FitSettings, KeypointSettings, RunSettings, TrackSettings
from pose2d.base.errors import UserError
from pose2d.base.threads import default_device
from pose2d.detect.detector import detector_class
from pose2d.registry import fetched, use_plugin
from pose2d.tracking.identity import IdentityOptions
from pose2d.tracking.tracker import TrackerOptions
from pose2d.video.frames import Span


def run_settings(options: RunOptions) -> RunSettings:
    """From options to settings; refuses options that would have no effect."""
    check_ranges(options)
    use_plugin(options.plugin)
    keypoints, ccnet = _path(options.keypoints), _path(options.ccnet)
    if options.whole_image and options.detections is not None:
        raise UserError("--whole-image and --detections contradict each other: give one of them.")
    if keypoints is not None:
        for name in ("detections", "whole_image", "checkpoint", "ccnet", "plugin"):
            if getattr(options, name):
                spelled = name.replace("_", "-")
                raise UserError(
                    f"--{spelled} has no effect with --keypoints, which brings its own: leave one of them out."
                )
        _check_given_confidence(keypoints, options.keypoint_layout, options.confidence)
    detector_options = detector_class(options.detector).defaults
    if options.detector_size is not None:
        detector_options = replace(detector_options, long_side=options.detector_size)
    tracker = TrackerOptions()
    start_score = min(options.min_score, tracker.start_score)
    checkpoint = _path(options.checkpoint) or (fetched(options.pose_model) if keypoints is None else None)
    source: Any = options.confidence or default_source(options.pose_model, checkpoint, ccnet)
    weighting: Any = options.weighting  # looked up before the work begins (`stages.fit.check`)
    scene = SceneSettings(
        options.focal_px, options.fov_deg, _path(options.intrinsics), str(options.floor), _heights(options.height_m)
    )
    return RunSettings(
        span=Span(options.start_s, options.end_s, options.every),
        tracks=TrackSettings(
            _path(options.detections), options.whole_image, options.detector, detector_options,
            replace(tracker, sure_score=options.min_score, start_score=start_score), options.max_people,
            IdentityOptions(relink=options.relink),
        ),
        keypoints=KeypointSettings(options.pose_model, checkpoint, source, ccnet, _path(options.plugin)),
        given_keypoints=keypoints,
        keypoint_layout=options.keypoint_layout,
        fit=FitSettings(_path(options.body_model), weighting, options.init, _path(options.init_checkpoint), scene),
        exports=tuple(options.exports),
        bone_names=options.bone_names,
        motion=Motion(options.export_fps, options.smooth, options.in_place),
        outputs=_outputs(options),
        device=options.device or default_device(),
        threads=options.threads,
        overwrite=options.overwrite,
    )  # fmt: skip


def _outputs(options: RunOptions) -> tuple[str, ...]:
    outputs = tuple(options.outputs)
    if unknown := sorted(set(outputs) - {"people", "fit"}):
        raise UserError(f"unknown --only {', '.join(unknown)}: choose people or fit.")
    if outputs and "fit" not in outputs and options.exports:
        raise UserError("--only people stops before there is anything to --export: leave one of them out.")
    return outputs


def _check_given_confidence(keypoints: Path, layout: str, confidence: str | None) -> None:
    """Refuse another confidence than that of keypoints which were found elsewhere: only pixels could give it."""
    from fitmesh.stages.given_keypoints import read_given

    if confidence is not None and confidence != (brought := read_given(keypoints, layout).source):
        raise UserError(
            f"--confidence {confidence} has no effect with --keypoints: {keypoints} brings its own ({brought}). "
            "Leave one of them out."
        )


def _heights(given: float | Mapping[int, float] | str | None) -> str:
    """As `--height` has them."""
    if isinstance(given, Mapping):
        return ",".join(f"{identity}:{height}" for identity, height in given.items())
    return "" if given is None else str(given)


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)
