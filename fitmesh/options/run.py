"""The options of `fitmesh run`; those of `fitmesh.run` and `fitmesh.run_many` are made of them in `fitmesh/api.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fitmesh.options import ranges
from fitmesh.options.ranges import DEFAULT_MODEL, KEYPOINTS, PLUGIN, POSE_MODEL
from fitmesh.options.record import Option

INPUT, PEOPLE = "Input (one of the first four)", "People"
BODY, SCENE, OUTPUT, MANY = "Bodies", "Scene", "Output", "Many videos (docs/scale.md)"
RIG = "Several cameras (docs/cameras.md)"
AnyPath = str | Path


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run can be told, whatever clip it is of."""

    start_s: Annotated[float, Option("Seconds into the video to start at.", INPUT, name="start"), ranges.TIME_S] = 0.0
    end_s: Annotated[float | None, Option("Seconds into the video to stop at.", INPUT, name="end"), ranges.TIME_S] = (
        None
    )
    every: Annotated[int, Option("Use every n-th frame only.", INPUT), ranges.EVERY] = 1

    detections: Annotated[
        AnyPath | None,
        Option(
            "Boxes to use instead of the built-in detector: a COCO-detections json whose image_id is the frame number "
            "from 0.",
            PEOPLE,
        ),
    ] = None
    whole_image: Annotated[bool, Option("Use one box around the whole image instead of the detector.", PEOPLE)] = False
    detector: Annotated[str, Option("Person detector: yolox-tiny or multipose.", PEOPLE)] = "yolox-tiny"
    detector_size: Annotated[
        int | None,
        Option(
            "Longer side of the image the detector sees, a multiple of 32. Larger finds smaller people, slower.",
            PEOPLE,
            "the detector's own",
        ),
        ranges.DETECTOR_SIZE,
    ] = None
    min_score: Annotated[
        float, Option("Keep people whom the detector scores at least this in several frames.", PEOPLE), ranges.SHARE
    ] = 0.55
    max_people: Annotated[
        int | None, Option("Keep only this many people, those seen longest.", PEOPLE), ranges.PEOPLE
    ] = None
    relink: Annotated[
        bool, Option("Say who is the same person in several shots or after a long absence, by appearance.", PEOPLE)
    ] = False

    pose_model: Annotated[str, POSE_MODEL] = DEFAULT_MODEL
    checkpoint: Annotated[AnyPath | None, Option("Weights for a network that ships none.", KEYPOINTS)] = None
    plugin: Annotated[AnyPath | None, PLUGIN] = None
    confidence: Annotated[
        str | None,
        Option(
            "Where confidence comes from: ccnet, closed-form, raw, raw-heatmap (IPR) or ones.",
            KEYPOINTS,
            "ccnet where a head for the network is at hand, else raw",
        ),
    ] = None
    ccnet: Annotated[AnyPath | None, Option("A calibration head other than the built-in one.", KEYPOINTS)] = None
    keypoints: Annotated[
        AnyPath | None,
        Option(
            "Keypoints to use instead of looking for people: a keypoints.npz, a json of COCO, mmpose or MediaPipe, a "
            ".npy, or a folder of OpenPose's json files.",
            KEYPOINTS,
        ),
    ] = None
    keypoint_layout: Annotated[
        str,
        Option("body_25b where --keypoints are OpenPose's BODY_25B; other layouts are told by their size.", KEYPOINTS),
    ] = "auto"
    hands: Annotated[
        str, Option("Keypoints of hands: auto (of everybody whose hands are large enough) or off.", KEYPOINTS)
    ] = "auto"
    device: Annotated[
        str | None, Option("Where the networks run: cpu, cuda, cuda:1, ..", KEYPOINTS, "cuda if present, else cpu")
    ] = None
    threads: Annotated[int | None, Option("Processor cores to use.", KEYPOINTS, "all"), ranges.THREADS] = None

    body_model: Annotated[
        AnyPath | None,
        Option("SMPL, SMPL-H or SMPL-X file, or a folder of them; without it the embedded open body.", BODY),
    ] = None
    weighting: Annotated[
        str,
        Option("How confidence becomes weight: likelihood, precision, confidence, squared, gate or ones.", BODY),
    ] = "likelihood"
    init: Annotated[str, Option("Where fits start: lifter (embedded), none, spin or cliff.", BODY)] = "lifter"
    init_checkpoint: Annotated[AnyPath | None, Option("Weights for --init spin or cliff.", BODY)] = None

    shape: Annotated[
        str,
        Option("What the body's shape is found from: keypoints, or also masks (people's outlines: girth).", BODY),
    ] = "keypoints"

    focal_px: Annotated[
        float | None,
        Option(
            "Focal length in pixels, if known.",
            SCENE,
            "the file's metadata, or what people and floor say",
            name="focal",
        ),
        ranges.FOCAL_PX,
    ] = None
    fov_deg: Annotated[
        float | None,
        Option("Or the angle of view across the image's width, in degrees.", SCENE, name="fov"),
        ranges.FOV_DEG,
    ] = None
    intrinsics: Annotated[
        AnyPath | None,
        Option("Or a calibration: json with matrix (3x3, pixels) and distortion (OpenCV's).", SCENE),
    ] = None
    floor: Annotated[
        str | Path,
        Option(
            "Gravity and floor: auto (from everybody who stands), off, or a json file with up (x right, y down, z "
            "forward) and camera_height_m.",
            SCENE,
            is_text=True,
        ),
    ] = "auto"
    height_m: Annotated[
        float | Mapping[int, float] | str | None,
        Option(
            "Body heights that are known, in metres: 1.82 for everybody, 2:1.25 for person 2, commas between.",
            SCENE,
            "adults, unless the floor says otherwise",
            name="height",
            is_text=True,
        ),
    ] = None

    weight_kg: Annotated[
        float | Mapping[int, float] | str | None,
        Option(
            "Body weights that are known, in kilograms: 82 for everybody, 2:24 for person 2, commas between.",
            SCENE,
            "what keypoints and masks say",
            name="weight",
            is_text=True,
        ),
    ] = None

    cameras: Annotated[
        AnyPath | None,
        Option(
            "Where they stand: Pose2Sim's toml, json, OpenCV's yaml, a folder of them or of OpenCap's; or auto: found "
            "from the people.",
            RIG,
            "auto",
            is_text=True,
        ),
    ] = None
    sync: Annotated[
        str,
        Option(
            "When they started: auto (from the people's motion), start (together), or the seconds of each, 0,0.35.",
            RIG,
        ),
    ] = "auto"

    exports: Annotated[
        Sequence[str],
        Option(
            "More files, with commas between: obj, bvh, fbx, amass, trc, json, csv.",
            OUTPUT,
            "none",
            "export",
            commas=True,
        ),
    ] = ()
    bone_names: Annotated[
        str, Option("Names of the bones in glb, fbx and bvh: smpl, mixamo, rigify, unreal or unity.", OUTPUT)
    ] = "smpl"
    export_fps: Annotated[
        float | None,
        Option("Frames per second of glb, fbx, bvh, amass and trc.", OUTPUT, "those of the video"),
        ranges.EXPORT_FPS,
    ] = None
    smooth: Annotated[
        float,
        Option("The same files smoothed over time: 0 not at all, 1 by a Gaussian of 0.1 s.", OUTPUT),
        ranges.SHARE,
    ] = 0.0
    in_place: Annotated[
        bool,
        Option(
            "The same files with everybody's root over the origin, or moving as it did.",
            OUTPUT,
            flags=("--in-place/--root-motion",),
        ),
    ] = False
    keep_reliable: Annotated[
        float | None,
        Option(
            "Leave frames out of exports in which it is less probable than this that no joint is off by more than "
            "--reliable-mm: gaps in motion, empty cells in csv and json.",
            OUTPUT,
            "all frames are kept",
        ),
        ranges.SHARE,
    ] = None
    reliable_mm: Annotated[
        float, Option("The error that --keep-reliable allows, in millimetres.", OUTPUT), ranges.RELIABLE_MM
    ] = 100.0
    outputs: Annotated[
        Sequence[str],
        Option(
            "Stop at people (tracks, keypoints) or at fit (fit.npz and what --export names): no overlay, scene or "
            "report.",
            OUTPUT,
            "everything",
            "only",
            commas=True,
        ),
    ] = ()
    overwrite: Annotated[bool, Option("Make every file anew, also those that still match.", OUTPUT)] = False


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """The first four, and a video by its name alone."""

    clip: Annotated[
        tuple[str, ...],
        Option(
            "A video, an image, or a folder of images. Several: a folder of results for each.",
            is_argument=True,
            is_place=True,
        ),
    ] = ()
    video: Annotated[
        tuple[str, ...],
        Option(
            "A video: mp4, mov, mkv, webm or gif. Given several times: a folder of results for each.",
            INPUT,
            is_place=True,
        ),
    ] = ()
    videos: Annotated[
        tuple[str, ...],
        Option(
            "Many videos: a pattern in quotes, 'clips/**/*.mp4', or a .txt file with one path a line.",
            INPUT,
            False,
            is_place=True,
        ),
    ] = ()
    images: Annotated[Path | None, Option("A folder of images that follow each other.", INPUT)] = None
    image: Annotated[Path | None, Option("One image.", INPUT)] = None


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make what the file says the defaults, before any other option is looked at."""
    if path is not None and not context.resilient_parsing:
        from fitmesh.options.record import read_config

        parameters: list[Any] = [p for p in context.command.params if p.name and p.name != "config"]
        repeated = [p.name for p in parameters if getattr(p, "multiple", False)]
        options = read_config(path, [p.name for p in parameters], repeated)
        context.default_map = {**(context.default_map or {}), **options}
    return path


@dataclass(frozen=True, kw_only=True)
class RunCommand(RunOptions, _Inputs):
    """Of `fitmesh run`."""

    fps: Annotated[float | None, Option("Images per second of --images.", INPUT, "30"), ranges.FPS] = None
    out: Annotated[
        str | None,
        Option(
            "Folder for the results; made if absent. Without it CLIP.fitmesh beside the clip.", OUTPUT, is_place=True
        ),
    ] = None
    together: Annotated[
        bool, Option("The videos are of one scene that several cameras recorded: one result for all.", RIG)
    ] = False
    jobs: Annotated[
        int | None,
        Option("Many videos: so many at a time, each in a process of its own; they share --threads.", MANY, "1"),
        ranges.JOBS,
    ] = None
    shard: Annotated[
        str | None, Option("Many videos: only this part of them, 3/20 is every 20th from the third.", MANY)
    ] = None
    ray: Annotated[
        str | None,
        Option(
            "Many videos: on the Ray cluster at this address; [bold]auto[/bold] finds it, or starts Ray here.", MANY
        ),
    ] = None
    retry_failed: Annotated[
        bool, Option("Many videos: try those again that could not be read or used before.", MANY)
    ] = False
    quiet: Annotated[bool, Option("Say nothing but warnings.", OUTPUT)] = False
    json: Annotated[bool, Option("Report on stdout, one JSON object a line.", OUTPUT)] = False
    config: Annotated[
        Path | None,
        Option("A TOML file with any of these options by name; the command line wins.", OUTPUT, callback=_read_config),
    ] = None
