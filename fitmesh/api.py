"""`fitmesh.run`: what the command does, as a function."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fitmesh import limits
from fitmesh.confidence import default_source
from fitmesh.many.status import ClipStatus
from fitmesh.result import Result, load
from fitmesh.stages.pipeline import open_clip, run_stages
from fitmesh.stages.scene import SceneSettings
from fitmesh.stages.settings import FitSettings, Job, KeypointSettings, RunSettings, TrackSettings
from fitmesh.ui.events import ClipEnded, Event, Reporter, Sink, StageAdvanced, StageStarted, to_log
from fitting.keypoints.weights import Weighting
from pose2d.base.devices import default_device
from pose2d.base.errors import UserError
from pose2d.detect.detector import detector_class
from pose2d.registry import fetched
from pose2d.tracking.identity import IdentityOptions
from pose2d.tracking.tracker import TrackerOptions
from pose2d.types import ConfidenceSource
from pose2d.video.clip import Span


@dataclass(frozen=True)
class Progress:
    """How far a stage is."""

    stage: str
    done: int
    total: int | None  # None: not known in advance
    unit: str  # what `done` counts: frames, people, ..


def run(
    video: str | Path,
    out: str | Path,
    *,
    start_s: float = 0.0,
    end_s: float | None = None,
    every: int = 1,
    fps: float | None = None,
    detections: str | Path | None = None,
    detector: str = "yolox-tiny",
    detector_size: int | None = None,
    min_score: float = 0.55,
    max_people: int | None = None,
    relink: bool = False,
    pose_model: str = "rtmpose-s-halpe26",
    checkpoint: str | Path | None = None,
    confidence: ConfidenceSource | None = None,
    ccnet: str | Path | None = None,
    keypoints: str | Path | None = None,
    keypoint_layout: str = "auto",
    device: str | None = None,
    threads: int | None = None,
    body_model: str | Path | None = None,
    weighting: Weighting = "likelihood",
    init: str = "lifter",
    init_checkpoint: str | Path | None = None,
    focal_px: float | None = None,
    fov_deg: float | None = None,
    intrinsics: str | Path | None = None,
    floor: str | Path = "auto",
    height_m: float | Mapping[int, float] | None = None,
    exports: Sequence[str] = (),
    bone_names: str = "smpl",
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Fit a body to everyone in a video and leave the files in the folder `out`, as `fitmesh run` does.

    video: a video file, an image, or a folder of images that follow each other (`fps` is theirs).
    start_s, end_s, every: which part, and every n-th frame only.
    detector: yolox-tiny or multipose; detector_size: longer side of the image it sees, None for its own default.
    relink: say who is the same person in several shots, by appearance (`same_as`).
    detections: boxes to use instead of the detector: a COCO-detections json, or "whole" for one box around the image.
    keypoints: keypoints to use instead of finding people (docs/run.md lists the formats); keypoint_layout: "body_25b"
    for OpenPose files in that order.
    confidence: ccnet, closed-form, raw, raw-heatmap (IPR) or ones; None takes ccnet where a head for the network is at
    hand, else raw.
    ccnet: a calibration head other than the embedded one. checkpoint: weights for a network that ships none.
    body_model: an SMPL file or folder; None is the embedded open body.
    weighting: how confidence becomes weight: precision, likelihood, confidence, squared, gate or ones.
    init: where fits start: lifter, none, spin or cliff (these two with init_checkpoint).
    focal_px, fov_deg (across the width) or intrinsics (a json file): the lens, if known.
    floor: "auto", "off", or a json file with up direction and camera height; height_m: of everybody, or by identity.
    exports: obj, bvh, amass, trc, json, csv beside the usual files.
    device: where the networks run: cpu, cuda, cuda:1, ..; None takes a GPU where there is one.
    bone_names: of the skeletons in glb and bvh: smpl, mixamo, rigify, unreal or unity.
    threads: processor cores for the networks; None takes all.
    progress: called several times a second while a stage works.

    What is in `out` already and still valid is kept; `overwrite` makes it anew. Raises `fitmesh.UserError` for what a
    user can fix.
    """
    settings = settings_of(
        start_s=start_s, end_s=end_s, every=every, detections=detections, detector=detector,
        detector_size=detector_size, min_score=min_score, max_people=max_people, relink=relink, pose_model=pose_model,
        checkpoint=checkpoint, confidence=confidence, ccnet=ccnet, keypoints=keypoints,
        keypoint_layout=keypoint_layout, device=device, threads=threads, body_model=body_model, weighting=weighting,
        init=init, init_checkpoint=init_checkpoint, focal_px=focal_px, fov_deg=fov_deg, intrinsics=intrinsics,
        floor=floor, height_m=height_m, exports=exports, bone_names=bone_names, overwrite=overwrite,
    )  # fmt: skip
    reporter = Reporter(to_log if progress is None else _to_function(progress))
    run_stages(Job(open_clip(Path(video), fps), settings, Path(out), reporter))
    return load(out)


_OF_ONE_CLIP = ("video", "out", "fps", "progress")


def run_many(
    videos: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    jobs: int = 1,
    shard: str | None = None,
    ray: str | None = None,
    threads: int | None = None,
    progress: Callable[[ClipStatus], None] | None = None,
    **options: Any,
) -> list[ClipStatus]:
    """Fit bodies in many videos, a folder of results for each in `out`, with summary.csv and index.html over all.

    videos: several paths or URLs, or one pattern ("clips/**/*.mp4") or .txt file with one path a line.
    jobs: processes that work side by side; with 1 this process does everything. More than one need a script that calls
    this under `if __name__ == "__main__":`.
    shard: "3/20" does every 20th video from the third. ray: address of a Ray cluster, or "auto".
    threads: processor cores that the jobs share; with Ray, of one video.
    progress: called with every video's status when it ends.
    options: those of `fitmesh.run`, but for what belongs to one clip (keypoints, detections from a file, fps).

    A video that fails does not end the others: look at the `state` and `error` of what is returned, one status a video
    of the shard. Raises `fitmesh.UserError` where nothing can be done at all.
    """
    from fitmesh.many.batch import Batch, check_many, run_batch
    from fitmesh.many.clips import WHOLE, Shard, find_clips
    from fitmesh.many.executors import SerialExecutor
    from fitmesh.many.ray_cluster import executor_of, threads_each

    limits.JOBS.check("jobs", jobs)
    limits.THREADS.check("threads", threads)
    several = [str(video) for video in videos] if not isinstance(videos, str | Path) else []
    found = find_clips(several, [str(videos)] if not several else [], str(out))
    call = inspect.signature(run).bind("", "", **options)
    call.apply_defaults()
    given = {name: value for name, value in call.arguments.items() if name not in _OF_ONE_CLIP}
    settings = settings_of(**{**given, "threads": threads_each(threads, jobs, ray)})
    check_many(settings)
    executor = SerialExecutor() if jobs == 1 and ray is None else executor_of(jobs, ray, settings.threads)
    batch = Batch(found.clips, str(out), settings, Shard.parse(shard) if shard is not None else WHOLE)

    def sink(event: Event) -> None:
        if isinstance(event, ClipEnded) and progress is not None:
            progress(event.status)

    return run_batch(batch, executor, Reporter(sink))


def settings_of(
    *, start_s: float, end_s: float | None, every: int, detections: str | Path | None, detector: str,
    detector_size: int | None, min_score: float, max_people: int | None, relink: bool, pose_model: str,
    checkpoint: str | Path | None, confidence: ConfidenceSource | None, ccnet: str | Path | None,
    keypoints: str | Path | None, keypoint_layout: str, device: str | None, threads: int | None,
    body_model: str | Path | None, weighting: Weighting, init: str, init_checkpoint: str | Path | None,
    focal_px: float | None, fov_deg: float | None, intrinsics: str | Path | None, floor: str | Path,
    height_m: float | Mapping[int, float] | None, exports: Sequence[str], bone_names: str,
    overwrite: bool,
) -> RunSettings:  # fmt: skip
    """From the arguments of `run` to settings."""
    return run_settings(
        Span(start_s, end_s, every),
        detections=_path(detections), detector=detector, detector_size=detector_size, min_score=min_score,
        max_people=max_people, relink=relink,
        pose_model=pose_model, checkpoint=_path(checkpoint), confidence=confidence, ccnet=_path(ccnet),
        keypoints=_path(keypoints), keypoint_layout=keypoint_layout, device=device, threads=threads,
        fit=FitSettings(
            _path(body_model), weighting, init, _path(init_checkpoint),
            SceneSettings(focal_px, fov_deg, _path(intrinsics), str(floor), _heights(height_m)),
        ),
        exports=tuple(exports), bone_names=bone_names, overwrite=overwrite,
    )  # fmt: skip


def run_settings(
    span: Span,
    *,
    detections: Path | None,
    detector: str,
    detector_size: int | None,
    min_score: float,
    max_people: int | None,
    relink: bool,
    pose_model: str,
    checkpoint: Path | None,
    confidence: ConfidenceSource | None,
    ccnet: Path | None,
    keypoints: Path | None,
    keypoint_layout: str,
    device: str | None,
    threads: int | None,
    fit: FitSettings,
    exports: tuple[str, ...],
    bone_names: str,
    overwrite: bool,
) -> RunSettings:
    """From options to settings; refuses options that would have no effect."""
    if keypoints is not None:
        for name, value in (("--detections", detections), ("--checkpoint", checkpoint), ("--ccnet", ccnet)):
            if value is not None:
                raise UserError(f"{name} has no effect with --keypoints, which brings its own: leave one of them out.")
        _check_given_confidence(keypoints, keypoint_layout, confidence)
    limits.THREADS.check("--threads", threads)
    limits.DETECTOR_SIZE.check("--detector-size", detector_size)
    limits.SHARE.check("--min-score", min_score)
    limits.PEOPLE.check("--max-people", max_people)
    limits.FOCAL_PX.check("--focal", fit.scene.focal_px)
    limits.FOV_DEG.check("--fov", fit.scene.fov_deg)
    limits.TIME_S.check("--start", span.start_s)
    limits.TIME_S.check("--end", span.end_s)
    limits.EVERY.check("--every", span.every)
    options = detector_class(detector).defaults
    if detector_size is not None:
        options = replace(options, long_side=detector_size)
    tracker = TrackerOptions()
    tracker = replace(tracker, sure_score=min_score, start_score=min(min_score, tracker.start_score))
    checkpoint = checkpoint or (fetched(pose_model) if keypoints is None else None)
    source = confidence or default_source(pose_model, checkpoint, ccnet)
    return RunSettings(
        span=span,
        tracks=TrackSettings(detections, detector, options, tracker, max_people, IdentityOptions(relink=relink)),
        keypoints=KeypointSettings(pose_model, checkpoint, source, ccnet),
        given_keypoints=keypoints,
        keypoint_layout=keypoint_layout,
        fit=fit,
        exports=exports,
        device=device or default_device(),
        bone_names=bone_names,
        threads=threads,
        overwrite=overwrite,
    )


def _check_given_confidence(keypoints: Path, layout: str, confidence: ConfidenceSource | None) -> None:
    """Refuse another confidence than that of keypoints which were found elsewhere: only pixels could give it."""
    from fitmesh.stages.given_keypoints import read_given

    if confidence is not None and confidence != (brought := read_given(keypoints, layout).source):
        raise UserError(
            f"--confidence {confidence} has no effect with --keypoints: {keypoints} brings its own ({brought}). "
            "Leave one of them out."
        )


def _heights(given: float | Mapping[int, float] | None) -> str:
    """As `--height` has them."""
    if given is None:
        return ""
    return ",".join(f"{i}:{h}" for i, h in given.items()) if isinstance(given, Mapping) else str(given)


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _to_function(progress: Callable[[Progress], None]) -> Sink:
    """Calls it in the thread that does the work; what is said goes to the log."""

    def sink(event: Event) -> None:
        match event:
            case StageStarted(stage, total, unit):
                progress(Progress(stage, 0, total, unit))
            case StageAdvanced(stage, done, total, unit, beat=None):
                progress(Progress(stage, done, total, unit))
            case _:
                to_log(event)

    return sink
