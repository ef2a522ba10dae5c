"""The options of `fitmesh run`; those of `fitmesh.run` and `fitmesh.run_many` are made of them in
`fitmesh/api.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from fitmesh.options import ranges
from fitmesh.options.ranges import DEFAULT_MODEL, KEYPOINTS, PLUGIN, POSE_MODEL
from fitmesh.options.record import option, read_config

INPUT, PEOPLE = "Input (one of the first four)", "People"
BODY = "Bodies"
SCENE = "Scene"
OUTPUT = "Output"
MANY = "Many videos (docs/scale.md)"
RIG = "Several cameras (docs/cameras.md)"
AnyPath = str | Path


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run can be told, whatever clip it is of."""

    start_s: float = option(
        0.0, "Seconds into the video to start at.", INPUT, ranges.TIME_S, name="start"
    )
    end_s: float | None = option(
        None, "Seconds into the video to stop at.", INPUT, ranges.TIME_S, name="end"
    )
    every: int = option(1, "Use every n-th frame only.", INPUT, ranges.EVERY)

    detections: AnyPath | None = option(
        None,
        "Boxes to use instead of the built-in detector: a COCO-detections json whose image_id is the frame number "
        "from 0.",
        PEOPLE,
    )
    whole_image: bool = option(
        False, "Use one box around the whole image instead of the detector.", PEOPLE
    )
    detector: str = option("yolox-tiny", "Person detector: yolox-tiny or multipose.", PEOPLE)
    detector_size: int | None = option(
        None,
        "Longer side of the image the detector sees, a multiple of 32. Larger finds smaller people, slower.",
        PEOPLE,
        ranges.DETECTOR_SIZE,
        shown="the detector's own",
    )
    min_score: float = option(
        0.55,
        "Keep people whom the detector scores at least this in several frames.",
        PEOPLE,
        ranges.SHARE,
    )
    max_people: int | None = option(
        None, "Keep only this many people, those seen longest.", PEOPLE, ranges.PEOPLE
    )
    relink: bool = option(
        False,
        "Say who is the same person in several shots or after a long absence, by appearance.",
        PEOPLE,
    )

    pose_model: str = option(DEFAULT_MODEL, POSE_MODEL)
    checkpoint: AnyPath | None = option(None, "Weights for a network that ships none.", KEYPOINTS)
    plugin: AnyPath | None = option(None, PLUGIN)
    confidence: str | None = option(
        None,
        "Where confidence comes from: ccnet, closed-form, raw, raw-heatmap (IPR) or ones.",
        KEYPOINTS,
        shown="ccnet where a head for the network is at hand, else raw",
    )
    ccnet: AnyPath | None = option(
        None, "A calibration head other than the built-in one.", KEYPOINTS
    )
    keypoints: AnyPath | None = option(
        None,
        "Keypoints to use instead of looking for people: a keypoints.npz, a json of COCO, mmpose or MediaPipe, a "
        ".npy, or a folder of OpenPose's json files.",
        KEYPOINTS,
    )
    keypoint_layout: str = option(
        "auto",
        "body_25b where --keypoints are OpenPose's BODY_25B; other layouts are told by their size.",
        KEYPOINTS,
    )
    hands: str = option(
        "auto",
        "Keypoints of hands: auto (of everybody whose hands are large enough) or off.",
        KEYPOINTS,
    )
    device: str | None = option(
        None,
        "Where the networks run: cpu, cuda, cuda:1, ..",
        KEYPOINTS,
        shown="cuda if present, else cpu",
    )
    threads: int | None = option(
        None, "Processor cores to use.", KEYPOINTS, ranges.THREADS, shown="all"
    )

    body_model: AnyPath | None = option(
        None,
        "SMPL, SMPL-H or SMPL-X file, or a folder of them; without it the embedded open body.",
        BODY,
    )
    weighting: str = option(
        "likelihood",
        "How confidence becomes weight: likelihood, precision, confidence, squared, gate or ones.",
        BODY,
    )
    init: str = option("lifter", "Where fits start: lifter (embedded), spin or cliff.", BODY)
    init_checkpoint: AnyPath | None = option(None, "Weights for --init spin or cliff.", BODY)

    shape: str = option(
        "keypoints",
        "What the body's shape is found from: keypoints, or also masks (people's outlines: girth).",
        BODY,
    )

    focal_px: float | None = option(
        None,
        "Focal length in pixels, if known.",
        SCENE,
        ranges.FOCAL_PX,
        shown="the file's metadata, or what people and floor say",
        name="focal",
    )
    fov_deg: float | None = option(
        None,
        "Or the angle of view across the image's width, in degrees.",
        SCENE,
        ranges.FOV_DEG,
        name="fov",
    )
    intrinsics: AnyPath | None = option(
        None, "Or a calibration: json with matrix (3x3, pixels) and distortion (OpenCV's).", SCENE
    )
    floor: str | Path = option(
        "auto",
        "Gravity and floor: auto (from everybody who stands), off, or a json file with up (x right, y down, z "
        "forward) and camera_height_m.",
        SCENE,
        is_text=True,
    )
    height_m: float | Mapping[int, float] | str | None = option(
        None,
        "Body heights that are known, in metres: 1.82 for everybody, 2:1.25 for person 2, commas between.",
        SCENE,
        shown="adults, unless the floor says otherwise",
        name="height",
        is_text=True,
    )

    weight_kg: float | Mapping[int, float] | str | None = option(
        None,
        "Body weights that are known, in kilograms: 82 for everybody, 2:24 for person 2, commas between.",
        SCENE,
        shown="what keypoints and masks say",
        name="weight",
        is_text=True,
    )

    cameras: AnyPath | None = option(
        None,
        "Where they stand: Pose2Sim's toml, json, OpenCV's yaml, a folder of them or of OpenCap's; or auto: found "
        "from the people.",
        RIG,
        shown="auto",
        is_text=True,
    )
    sync: str = option(
        "auto",
        "When they started: auto (from the people's motion), start (together), or the seconds of each, 0,0.35.",
        RIG,
    )

    exports: Sequence[str] = option(
        (),
        "More files, with commas between: obj, bvh, fbx, amass, trc, json, csv.",
        OUTPUT,
        shown="none",
        name="export",
        commas=True,
    )
    bone_names: str = option(
        "smpl",
        "Names of the bones in glb, fbx and bvh: smpl, mixamo, rigify, unreal or unity.",
        OUTPUT,
    )
    export_fps: float | None = option(
        None,
        "Frames per second of glb, fbx, bvh, amass and trc.",
        OUTPUT,
        ranges.EXPORT_FPS,
        shown="those of the video",
    )
    smooth: float = option(
        0.0,
        "The same files smoothed over time: 0 not at all, 1 by a Gaussian of 0.1 s.",
        OUTPUT,
        ranges.SHARE,
    )
    in_place: bool = option(
        False,
        "The same files with everybody's root over the origin, or moving as it did.",
        OUTPUT,
        flags=("--in-place/--root-motion",),
    )
    keep_reliable: float | None = option(
        None,
        "Leave frames out of exports in which it is less probable than this that no joint is off by more than "
        "--reliable-mm: gaps in motion, empty cells in csv and json.",
        OUTPUT,
        ranges.SHARE,
        shown="all frames are kept",
    )
    reliable_mm: float = option(
        100.0, "The error that --keep-reliable allows, in millimetres.", OUTPUT, ranges.RELIABLE_MM
    )
    outputs: Sequence[str] = option(
        (),
        "Stop at people (tracks, keypoints) or at fit (fit.npz and what --export names): no overlay, scene or report.",
        OUTPUT,
        shown="everything",
        name="only",
        commas=True,
    )
    overwrite: bool = option(False, "Make every file anew, also those that still match.", OUTPUT)


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """The first four, and a video by its name alone."""

    clip: tuple[str, ...] = option(
        (),
        "A video, an image, or a folder of images. Several: a folder of results for each.",
        is_argument=True,
        is_place=True,
    )
    video: tuple[str, ...] = option(
        (),
        "A video: mp4, mov, mkv, webm or gif. Given several times: a folder of results for each.",
        INPUT,
        is_place=True,
    )
    videos: tuple[str, ...] = option(
        (),
        "Many videos: a pattern in quotes, 'clips/**/*.mp4', or a .txt file with one path a line.",
        INPUT,
        shown=False,
        is_place=True,
    )
    images: Path | None = option(None, "A folder of images that follow each other.", INPUT)
    image: Path | None = option(None, "One image.", INPUT)


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make what the file says the defaults, before any other option is looked at."""
    if path is not None and not context.resilient_parsing:
        parameters: list[Any] = [p for p in context.command.params if p.name and p.name != "config"]
        repeated = [p.name for p in parameters if getattr(p, "multiple", False)]
        options = read_config(path, [p.name for p in parameters], repeated)
        context.default_map = {**(context.default_map or {}), **options}
    return path


@dataclass(frozen=True, kw_only=True)
class RunCommand(RunOptions, _Inputs):
    """Of `fitmesh run`."""

    fps: float | None = option(
        None, "Images per second of --images.", INPUT, ranges.FPS, shown="30"
    )
    out: str | None = option(
        None,
        "Folder for the results; made if absent. Without it CLIP.fitmesh beside the clip.",
        OUTPUT,
        is_place=True,
    )
    together: bool = option(
        False, "The videos are of one scene that several cameras recorded: one result for all.", RIG
    )
    jobs: int | None = option(
        None,
        "Many videos: so many at a time, each in a process of its own; they share --threads.",
        MANY,
        ranges.JOBS,
        shown="1",
    )
    shard: str | None = option(
        None, "Many videos: only this part of them, 3/20 is every 20th from the third.", MANY
    )
    ray: str | None = option(
        None,
        "Many videos: on the Ray cluster at this address; [bold]auto[/bold] finds it, or starts Ray here.",
        MANY,
    )
    retry_failed: bool = option(
        False, "Many videos: try those again that could not be read or used before.", MANY
    )
    quiet: bool = option(False, "Say nothing but warnings.", OUTPUT)
    json: bool = option(False, "Report on stdout, one JSON object a line.", OUTPUT)
    config: Path | None = option(
        None,
        "A TOML file with any of these options by name; the command line wins.",
        OUTPUT,
        callback=_read_config,
    )
