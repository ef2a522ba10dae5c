"""`fitmesh run`: from a video, a folder of images or one image to files that say who is where and how they stand."""

from pathlib import Path
from typing import Annotated

import typer

from fitmesh import limits
from fitmesh.commands.option_types import PlaceParser
from fitmesh.ui.signals import Stopped, working

INPUT, PEOPLE, KEYPOINTS = "Input (one of the first four)", "People", "Keypoints"
BODY, SCENE, OUTPUT, MANY = "Bodies", "Scene", "Output", "Many videos (docs/scale.md)"
INTERRUPTED = 130  # what a shell expects after Ctrl-C


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make what the file says the defaults, before any other option is looked at."""
    if path is not None and not context.resilient_parsing:
        from fitmesh.config_file import read_config

        options = {
            p.name: getattr(p, "multiple", False) for p in context.command.params if p.name and p.name != "config"
        }
        repeated = [name for name, multiple in options.items() if multiple]
        context.default_map = {**(context.default_map or {}), **read_config(path, options, repeated)}
    return path


def run(
    *,
    video: Annotated[
        list[str] | None,
        typer.Option(
            help="A video: mp4, mov, mkv, webm or gif. Given several times: a folder of results for each.",
            rich_help_panel=INPUT,
            parser=PlaceParser(),
        ),
    ] = None,
    videos: Annotated[
        list[str] | None,
        typer.Option(
            help="Many videos: a pattern in quotes, 'clips/**/*.mp4', or a .txt file with one path a line.",
            rich_help_panel=INPUT,
            parser=PlaceParser(),
            show_default=False,
        ),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="A folder of images that follow each other.", rich_help_panel=INPUT)
    ] = None,
    image: Annotated[Path | None, typer.Option(help="One image.", rich_help_panel=INPUT)] = None,
    start: Annotated[
        float, typer.Option(help="Seconds into the video to start at.", rich_help_panel=INPUT), limits.TIME_S
    ] = 0.0,
    end: Annotated[
        float | None, typer.Option(help="Seconds into the video to stop at.", rich_help_panel=INPUT), limits.TIME_S
    ] = None,
    every: Annotated[int, typer.Option(help="Use every n-th frame only.", rich_help_panel=INPUT), limits.EVERY] = 1,
    fps: Annotated[
        float | None,
        typer.Option(help="Images per second of --images.", rich_help_panel=INPUT, show_default="30"),
        limits.FPS,
    ] = None,
    detections: Annotated[
        Path | None,
        typer.Option(
            help="Boxes to use instead of the built-in detector: a COCO-detections json whose image_id is the frame "
            "number from 0, or the word [bold]whole[/bold] for one box around the whole image.",
            rich_help_panel=PEOPLE,
        ),
    ] = None,
    detector: Annotated[
        str, typer.Option(help="Person detector: yolox-tiny or multipose.", rich_help_panel=PEOPLE)
    ] = "yolox-tiny",
    detector_size: Annotated[
        int | None,
        typer.Option(
            help="Longer side of the image the detector sees, a multiple of 32. Larger finds smaller people, slower.",
            rich_help_panel=PEOPLE,
            show_default="the detector's own",
        ),
        limits.DETECTOR_SIZE,
    ] = None,
    min_score: Annotated[
        float,
        typer.Option(
            help="Keep people whom the detector scores at least this in several frames.", rich_help_panel=PEOPLE
        ),
        limits.SHARE,
    ] = 0.55,
    max_people: Annotated[
        int | None,
        typer.Option(help="Keep only this many people, those seen longest.", rich_help_panel=PEOPLE),
        limits.PEOPLE,
    ] = None,
    relink: Annotated[
        bool,
        typer.Option(
            "--relink",
            help="Say who is the same person in several shots or after a long absence, by appearance.",
            rich_help_panel=PEOPLE,
        ),
    ] = False,
    pose_model: Annotated[
        str, typer.Option(help="Keypoint network; `fitmesh models` lists them.", rich_help_panel=KEYPOINTS)
    ] = "rtmpose-s-halpe26",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Weights for a network that ships none.", rich_help_panel=KEYPOINTS)
    ] = None,
    confidence: Annotated[
        str | None,
        typer.Option(
            help="Where confidence comes from: ccnet, closed-form, raw, raw-heatmap (IPR) or ones.",
            rich_help_panel=KEYPOINTS,
            show_default="ccnet where a head for the network is at hand, else raw",
        ),
    ] = None,
    ccnet: Annotated[
        Path | None, typer.Option(help="A calibration head other than the built-in one.", rich_help_panel=KEYPOINTS)
    ] = None,
    keypoints: Annotated[
        Path | None,
        typer.Option(
            help="Keypoints to use instead of looking for people: a keypoints.npz, a COCO-keypoints json, or a folder "
            "of OpenPose's json files.",
            rich_help_panel=KEYPOINTS,
        ),
    ] = None,
    keypoint_layout: Annotated[
        str,
        typer.Option(
            help="body_25b where --keypoints are OpenPose's BODY_25B; other layouts are told by their size.",
            rich_help_panel=KEYPOINTS,
        ),
    ] = "auto",
    device: Annotated[
        str | None,
        typer.Option(
            help="Where the networks run: cpu, cuda, cuda:1, ..",
            rich_help_panel=KEYPOINTS,
            show_default="cuda if present, else cpu",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(help="Processor cores to use.", rich_help_panel=KEYPOINTS, show_default="all"),
        limits.THREADS,
    ] = None,
    body_model: Annotated[
        Path | None,
        typer.Option(
            help="SMPL, SMPL-H or SMPL-X file, or a folder of them; without it the embedded open body.",
            rich_help_panel=BODY,
        ),
    ] = None,
    weighting: Annotated[
        str,
        typer.Option(
            help="How confidence becomes weight: likelihood, precision, confidence, squared, gate or ones.",
            rich_help_panel=BODY,
        ),
    ] = "likelihood",
    init: Annotated[
        str,
        typer.Option(help="Where fits start: lifter (embedded), none, spin or cliff.", rich_help_panel=BODY),
    ] = "lifter",
    init_checkpoint: Annotated[
        Path | None, typer.Option(help="Weights for --init spin or cliff.", rich_help_panel=BODY)
    ] = None,
    focal: Annotated[
        float | None,
        typer.Option(
            help="Focal length in pixels, if known.",
            rich_help_panel=SCENE,
            show_default="the file's metadata, or what people and floor say",
        ),
        limits.FOCAL_PX,
    ] = None,
    fov: Annotated[
        float | None,
        typer.Option(help="Or the angle of view across the image's width, in degrees.", rich_help_panel=SCENE),
        limits.FOV_DEG,
    ] = None,
    intrinsics: Annotated[
        Path | None,
        typer.Option(
            help="Or a calibration: json with matrix (3x3, pixels) and distortion (OpenCV's).", rich_help_panel=SCENE
        ),
    ] = None,
    floor: Annotated[
        str,
        typer.Option(
            help="Gravity and floor: auto (from everybody who stands), off, or a json file with up (x right, y down, "
            "z forward) and camera_height_m.",
            rich_help_panel=SCENE,
        ),
    ] = "auto",
    height: Annotated[
        str,
        typer.Option(
            help="Body heights that are known, in metres: 1.82 for everybody, 2:1.25 for person 2, commas between.",
            rich_help_panel=SCENE,
            show_default="adults, unless the floor says otherwise",
        ),
    ] = "",
    export: Annotated[
        str,
        typer.Option(
            help="More files, with commas between: obj, bvh, amass, trc, json, csv.",
            rich_help_panel=OUTPUT,
            show_default="none",
        ),
    ] = "",
    bone_names: Annotated[
        str,
        typer.Option(
            help="Names of the bones in glb and bvh: smpl, mixamo, rigify, unreal or unity.", rich_help_panel=OUTPUT
        ),
    ] = "smpl",
    out: Annotated[
        str,
        typer.Option(
            help="Folder for the results; made if absent.",
            rich_help_panel=OUTPUT,
            show_default=False,
            parser=PlaceParser(),
        ),
    ],
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Many videos: so many at a time, each in a process of its own; they share --threads.",
            rich_help_panel=MANY,
            show_default="1",
        ),
        limits.JOBS,
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            help="Many videos: only this part of them, 3/20 is every 20th from the third.", rich_help_panel=MANY
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Many videos: on the Ray cluster at this address; [bold]auto[/bold] finds it, or starts Ray here.",
            rich_help_panel=MANY,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Make every file anew, also those that still match.", rich_help_panel=OUTPUT),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but warnings.", rich_help_panel=OUTPUT)] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Report on stdout, one JSON object a line.", rich_help_panel=OUTPUT)
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with any of these options by name; the command line wins.",
            rich_help_panel=OUTPUT,
            is_eager=True,
            callback=_read_config,
        ),
    ] = None,
) -> None:
    """Fit a body to everyone in a video, every 2D keypoint weighted by its calibrated confidence.

    Leaves fit.npz, overlay.mp4, scene.glb and report.html, and on the way tracks.npz and keypoints.npz. A stage whose
    file is already there and was made from the same input with the same settings is skipped, so an interrupted run
    goes on where it stopped.
    """
    from fitmesh.ui.events import Failed, Reporter
    from fitmesh.ui.sinks import as_json_lines, on_stderr, starting
    from pose2d.base.errors import UserError

    if quiet and json:
        raise UserError("--quiet and --json contradict each other: give one of them.")
    reporter = Reporter(as_json_lines if json else on_stderr(quiet))
    with starting(reporter):
        from fitmesh.api import run_settings
        from fitmesh.commands.run_many import Many, many_asked, run_videos
        from fitmesh.commands.run_report import say_input, say_result
        from fitmesh.stages.pipeline import open_clip, run_stages
        from fitmesh.stages.scene import SceneSettings
        from fitmesh.stages.settings import FitSettings, Job
        from pose2d.video.clip import Span
        from pose2d.video.images import ImageFolder
    try:
        settings = run_settings(
            Span(start, end, every),
            detections=detections, detector=detector, detector_size=detector_size, min_score=min_score,
            max_people=max_people, relink=relink,
            pose_model=pose_model, checkpoint=checkpoint, confidence=confidence, ccnet=ccnet,  # type: ignore[arg-type]
            keypoints=keypoints, keypoint_layout=keypoint_layout, device=device, threads=threads,
            fit=FitSettings(
                body_model, weighting, init, init_checkpoint,  # type: ignore[arg-type]
                SceneSettings(focal, fov, intrinsics, floor, height),
            ),
            exports=tuple(name.strip() for name in export.split(",") if name.strip()), bone_names=bone_names,
            overwrite=overwrite,
        )  # fmt: skip
        if many_asked(video, videos, out, jobs, shard, ray):
            if given := [name for name, value in (("--images", images), ("--image", image), ("--fps", fps)) if value]:
                raise UserError(f"{given[0]} is for one clip, and many videos were asked for: leave one of them out.")
            wanted = Many(video or [], videos or [], out, jobs, shard, ray)
            raise typer.Exit(run_videos(wanted, settings, reporter))
        path = _input(Path(video[0]) if video else None, images, image, fps)
        clip = open_clip(path, fps) if image is None else ImageFolder(path)
        job = Job(clip, settings, Path(out), reporter)
        say_input(job)
        with working():
            say_result(run_stages(job), reporter)
    except UserError as error:
        reporter.emit(Failed(str(error)))
        raise
    except (KeyboardInterrupt, Stopped) as stopped:
        reporter.say("Stopped. Finished stages are kept; the same command goes on from there.", "stopped")
        raise typer.Exit(getattr(stopped, "exit_code", INTERRUPTED)) from None


def _input(video: Path | None, images: Path | None, image: Path | None, fps: float | None) -> Path:
    """The one of the three that was given."""
    from pose2d.base.errors import UserError

    given = {name: path for name, path in (("--video", video), ("--images", images), ("--image", image)) if path}
    if len(given) != 1:
        raise UserError(f"give one of --video, --images and --image; got {' and '.join(given) or 'none'}.")
    if fps is not None and images is None:
        raise UserError("--fps is for --images: a video knows its own rate.")
    if images is not None and not images.is_dir():
        raise UserError(f"{images} is not a folder. --images takes a folder of images; for one image use --image.")
    if image is not None and image.is_dir():
        raise UserError(f"{image} is a folder. --image takes one image; for a folder use --images.")
    return next(iter(given.values()))
