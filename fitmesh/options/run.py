"""Declare the options of `fitmesh run`; `fitmesh/api.py` derives those of `fitmesh.run` from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from fitmesh.options import ranges
from fitmesh.options.ranges import DEFAULT_MODEL, KEYPOINTS, PLUGIN, POSE_MODEL
from fitmesh.options.record import option, read_config

INPUT = "Input (one of the first four)"
PEOPLE = "People"
BODY = "Bodies"
SCENE = "Scene"
OUTPUT = "Output"
MANY = "Many videos (docs/scale.md)"
RIG = "Several cameras (docs/cameras.md)"
AnyPath = str | Path


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Hold the options of a run that do not depend on the clip."""

    start_s: float = option(
        0.0, "Start this many seconds into the video.", INPUT, ranges.TIME_S, name="start"
    )
    end_s: float | None = option(
        None, "Stop this many seconds into the video.", INPUT, ranges.TIME_S, name="end"
    )
    every: int = option(1, "Use every n-th frame only.", INPUT, ranges.EVERY)

    detections: AnyPath | None = option(
        None,
        "Use these boxes instead of the detector: a COCO detections json whose image_id is the frame number, "
        "from 0.",
        PEOPLE,
    )
    whole_image: bool = option(
        False, "Use one box around the whole image instead of the detector.", PEOPLE
    )
    detector: str = option("yolox-tiny", "Person detector: yolox-tiny or multipose.", PEOPLE)
    detector_size: int | None = option(
        None,
        "Longer side of the detector's input in pixels, a multiple of 32. Larger finds smaller people, but is slower.",
        PEOPLE,
        ranges.DETECTOR_SIZE,
        shown="the detector's own",
    )
    min_score: float = option(
        0.55,
        "Keep people whose detector score reaches this value in at least three frames.",
        PEOPLE,
        ranges.SHARE,
    )
    max_people: int | None = option(
        None, "Keep only this many people: those visible longest.", PEOPLE, ranges.PEOPLE
    )
    relink: bool = option(
        False,
        "Link the tracks of one person over shots and long absences, by appearance.",
        PEOPLE,
    )

    pose_model: str = option(DEFAULT_MODEL, POSE_MODEL)
    checkpoint: AnyPath | None = option(
        None, "Weights of a network that is not embedded.", KEYPOINTS
    )
    plugin: AnyPath | None = option(None, PLUGIN)
    confidence: str | None = option(
        None,
        "Source of the confidence: ccnet, closed-form, raw, raw-heatmap (IPR) or ones.",
        KEYPOINTS,
        shown="ccnet if there is a head for the network, else raw",
    )
    ccnet: AnyPath | None = option(
        None, "File of a calibration head, instead of the embedded one.", KEYPOINTS
    )
    keypoints: AnyPath | None = option(
        None,
        "Use these keypoints instead of looking for people: a keypoints.npz, a json of COCO, mmpose or MediaPipe, "
        "a .npy, or a folder of OpenPose's json files.",
        KEYPOINTS,
    )
    keypoint_layout: str = option(
        "auto",
        "Keypoint layout of --keypoints. auto infers it from the number of keypoints; pass body_25b for OpenPose "
        "BODY_25B.",
        KEYPOINTS,
    )
    hands: str = option(
        "auto",
        "Read hands: auto (all hands that are large enough) or off.",
        KEYPOINTS,
    )
    device: str | None = option(
        None,
        "Device for the networks: cpu, cuda, cuda:1, ..",
        KEYPOINTS,
        shown="cuda if present, else cpu",
    )
    threads: int | None = option(
        None, "Number of processor cores to use.", KEYPOINTS, ranges.THREADS, shown="all"
    )

    body_model: AnyPath | None = option(
        None,
        "SMPL, SMPL-H or SMPL-X file, or a folder of them, instead of the embedded open body.",
        BODY,
    )
    weighting: str = option(
        "likelihood",
        "How confidence weights a keypoint: likelihood, precision, confidence, squared, gate or ones.",
        BODY,
    )
    init: str = option(
        "lifter", "Initial guess of the fit: lifter (embedded), spin or cliff.", BODY
    )
    init_checkpoint: AnyPath | None = option(None, "Weights for --init spin or cliff.", BODY)

    shape: str = option(
        "keypoints",
        "Fit the body's shape to keypoints, or also to masks (people's outlines, for girth).",
        BODY,
    )

    focal_px: float | None = option(
        None,
        "Known focal length in pixels.",
        SCENE,
        ranges.FOCAL_PX,
        shown="from metadata, or estimated",
        name="focal",
    )
    fov_deg: float | None = option(
        None,
        "Known angle of view across the image width, in degrees.",
        SCENE,
        ranges.FOV_DEG,
        name="fov",
    )
    intrinsics: AnyPath | None = option(
        None,
        "Known calibration: a json with matrix (3x3, pixels) and distortion (OpenCV's coefficients).",
        SCENE,
    )
    floor: str | Path = option(
        "auto",
        "Gravity and floor: auto (estimated), off, or a json file with up (x right, y down, z forward) and "
        "camera_height_m.",
        SCENE,
        is_text=True,
    )
    height_m: float | Mapping[int, float] | str | None = option(
        None,
        "Known body heights in metres: 1.82 for all, 2:1.25 for person 2; separated by commas.",
        SCENE,
        shown="estimated",
        name="height",
        is_text=True,
    )

    weight_kg: float | Mapping[int, float] | str | None = option(
        None,
        "Known body weights in kilograms: 82 for all, 2:24 for person 2; separated by commas.",
        SCENE,
        shown="estimated",
        name="weight",
        is_text=True,
    )

    cameras: AnyPath | None = option(
        None,
        "Calibration of the cameras: Pose2Sim's toml, a json, OpenCV's yaml, or a folder of these or of OpenCap's "
        "files; auto calibrates from the people.",
        RIG,
        shown="auto",
        is_text=True,
    )
    camera_names: str | None = option(
        None,
        "The calibration's name of each video's camera, in the order of the videos: left,right.",
        RIG,
        shown="matched by the videos' names, or by order",
    )
    sync: str = option(
        "auto",
        "Clock offsets: auto (from the people's motion), start (all started together), or comma-separated seconds, "
        "one for each camera.",
        RIG,
    )

    exports: Sequence[str] = option(
        (),
        "More formats, separated by commas: obj, bvh, fbx, amass, trc, c3d, mot, sto, opensim, gait, json, csv.",
        OUTPUT,
        shown="none",
        name="export",
        commas=True,
    )
    rig: str = option(
        "smpl",
        "Skeleton of glb, fbx and bvh, with its names, hierarchy and rest pose: smpl, mixamo, unreal, rigify, vrm or "
        "unity.",
        OUTPUT,
    )
    per_person: bool = option(
        False,
        "Write a file of its own for each person in glb and fbx too: glb/NAME.glb, fbx/NAME.fbx.",
        OUTPUT,
    )
    names: str | None = option(
        None,
        "Names of people in files and scenes: 1:Anna,2:Ben.",
        OUTPUT,
        shown="person_1, person_2, ..",
    )
    export_fps: float | None = option(
        None,
        "Frame rate of glb, fbx, bvh, amass, trc, c3d, mot, sto, opensim and gait.",
        OUTPUT,
        ranges.EXPORT_FPS,
        shown="that of the video",
    )
    smooth: float = option(
        0.0,
        "Smooth the motion in the same files: 0 is off, 1 is a Gaussian with a standard deviation of 0.1 s.",
        OUTPUT,
        ranges.SHARE,
    )
    filter: str = option(
        "none",
        "Filter of the motion in the same files: butterworth:HZ (4th order, no delay), gaussian:SECONDS (standard "
        "deviation) or none.",
        OUTPUT,
    )
    trc_axes: str = option(
        "y-up",
        "Axes of trc and c3d: y-up (OpenSim's), z-up, or as-rig (those of several cameras' calibration).",
        OUTPUT,
    )
    in_place: bool = option(
        False,
        "Keep each root over the origin in the same files, or let it move.",
        OUTPUT,
        flags=("--in-place/--root-motion",),
    )
    plant_feet: bool = option(
        True,
        "Hold standing feet exactly in place in glb, fbx and bvh, or leave them as they were fitted.",
        OUTPUT,
        flags=("--plant-feet/--fitted-feet",),
    )
    keep_reliable: float | None = option(
        None,
        "Leave frames out of exports if the probability that no joint is off by more than --reliable-mm is below "
        "this value.",
        OUTPUT,
        ranges.SHARE,
        shown="all frames are kept",
    )
    reliable_mm: float = option(
        100.0,
        "Largest joint error for --keep-reliable, in millimetres.",
        OUTPUT,
        ranges.RELIABLE_MM,
    )
    outputs: Sequence[str] = option(
        (),
        "Stop after people (tracks, keypoints) or fit (fit.npz and the formats of --export): no overlay, scene or "
        "report.",
        OUTPUT,
        shown="everything",
        name="only",
        commas=True,
    )
    overlay_px: int = option(
        1280,
        "Most pixels of the longer side of overlay.mp4; smaller videos keep their size.",
        OUTPUT,
        ranges.SIDE_PX,
        name="overlay_size",
    )
    overwrite: bool = option(False, "Make all files again, also those that are up to date.", OUTPUT)


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """Hold the inputs of the command."""

    clip: tuple[str, ...] = option(
        (),
        "A video, an image, or a folder of images. Each of several gets its own results folder.",
        is_argument=True,
        is_place=True,
    )
    video: tuple[str, ...] = option(
        (),
        "A video: mp4, mov, mkv, webm or gif. If repeated, each gets its own results folder.",
        INPUT,
        is_place=True,
    )
    videos: tuple[str, ...] = option(
        (),
        "Many videos: a quoted pattern such as 'clips/**/*.mp4', or a .txt file with one path per line.",
        INPUT,
        shown=False,
        is_place=True,
    )
    images: Path | None = option(None, "A folder of consecutive images.", INPUT)
    image: Path | None = option(None, "One image.", INPUT)


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Use the values of a file as defaults, before other options are read."""
    if path is not None and not context.resilient_parsing:
        parameters: list[Any] = [p for p in context.command.params if p.name and p.name != "config"]
        repeated = [p.name for p in parameters if getattr(p, "multiple", False)]
        options = read_config(path, [p.name for p in parameters], repeated)
        context.default_map = {**(context.default_map or {}), **options}
    return path


@dataclass(frozen=True, kw_only=True)
class RunCommand(RunOptions, _Inputs):
    """Hold the options of `fitmesh run`."""

    fps: float | None = option(None, "Frame rate of --images.", INPUT, ranges.FPS, shown="30")
    out: str | None = option(
        None,
        "Folder for the results, created if absent. Default: CLIP.fitmesh beside the clip.",
        OUTPUT,
        is_place=True,
    )
    together: bool = option(
        False, "Treat the videos as synchronized views of one scene and write a single result.", RIG
    )
    jobs: int | None = option(
        None,
        "Process this many videos at a time, each in its own process; they share --threads.",
        MANY,
        ranges.JOBS,
        shown="1",
    )
    shard: str | None = option(
        None,
        "Process only a part of the videos: 3/20 takes every 20th, starting with the third.",
        MANY,
    )
    ray: str | None = option(
        None,
        "Process the videos on the Ray cluster at this address; [bold]auto[/bold] finds or starts one.",
        MANY,
    )
    retry_failed: bool = option(False, "Process videos again that failed before.", MANY)
    quiet: bool = option(False, "Print only warnings.", OUTPUT)
    json: bool = option(False, "Print events as JSON on stdout, one object per line.", OUTPUT)
    config: Path | None = option(
        None,
        "TOML file with options by name; the command line takes precedence.",
        OUTPUT,
        callback=_read_config,
    )
