"""`fitmesh run`: from a video, a folder of images or one image to files that say who is where and how they stand."""

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fitmesh.progress import Reporter
    from fitmesh.stages.pipeline import RunResult, RunSettings
    from pose2d.io.clip import Clip

INPUT, PEOPLE, KEYPOINTS, BODY, OUTPUT = "Input (one of the first three)", "People", "Keypoints", "Bodies", "Output"
INTERRUPTED = 130  # what a shell expects after Ctrl-C


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make what the file says the defaults, before any other option is looked at."""
    if path is not None and not context.resilient_parsing:
        from fitmesh.config_file import read_config

        names = [parameter.name for parameter in context.command.params if parameter.name not in (None, "config")]
        context.default_map = {**(context.default_map or {}), **read_config(path, [n for n in names if n])}
    return path


def run(
    *,
    video: Annotated[
        Path | None, typer.Option(help="A video: mp4, mov, mkv, webm or gif.", rich_help_panel=INPUT)
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="A folder of images that follow each other.", rich_help_panel=INPUT)
    ] = None,
    image: Annotated[Path | None, typer.Option(help="One image.", rich_help_panel=INPUT)] = None,
    start: Annotated[float, typer.Option(help="Seconds into the video to start at.", rich_help_panel=INPUT)] = 0.0,
    end: Annotated[float | None, typer.Option(help="Seconds into the video to stop at.", rich_help_panel=INPUT)] = None,
    every: Annotated[int, typer.Option(help="Use every n-th frame only.", rich_help_panel=INPUT)] = 1,
    fps: Annotated[
        float | None, typer.Option(help="Images per second of --images.", rich_help_panel=INPUT, show_default="30")
    ] = None,
    detections: Annotated[
        Path | None,
        typer.Option(
            help="Boxes to use instead of the built-in detector: a COCO-detections json whose image_id is the frame "
            "number from 0, or the word [bold]whole[/bold] for one box around the whole image.",
            rich_help_panel=PEOPLE,
        ),
    ] = None,
    detector_size: Annotated[
        int,
        typer.Option(
            help="Longer side of the image the detector sees, a multiple of 32. Larger finds smaller people, slower.",
            rich_help_panel=PEOPLE,
        ),
    ] = 512,
    min_score: Annotated[
        float,
        typer.Option(
            help="Keep people whom the detector scores at least this in several frames.", rich_help_panel=PEOPLE
        ),
    ] = 0.55,
    max_people: Annotated[
        int | None, typer.Option(help="Keep only this many people, those seen longest.", rich_help_panel=PEOPLE)
    ] = None,
    pose_model: Annotated[
        str, typer.Option(help="Keypoint network; `fitmesh models` lists them.", rich_help_panel=KEYPOINTS)
    ] = "movenet-thunder",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Weights for a network that ships none.", rich_help_panel=KEYPOINTS)
    ] = None,
    confidence: Annotated[
        str | None,
        typer.Option(
            help="How far to trust a keypoint: ccnet, closed-form, raw or ones.",
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
    device: Annotated[
        str, typer.Option(help="Where the 2D networks run: cpu, cuda, cuda:1, ..", rich_help_panel=KEYPOINTS)
    ] = "cpu",
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
            help="How trust becomes weight: precision, confidence, squared, gate or ones.", rich_help_panel=BODY
        ),
    ] = "precision",
    init: Annotated[
        str | None,
        typer.Option(
            help="What the search starts from: lifter (embedded), none, spin or cliff.",
            rich_help_panel=BODY,
            show_default="lifter",
        ),
    ] = None,
    init_checkpoint: Annotated[
        Path | None, typer.Option(help="Weights for --init spin or cliff.", rich_help_panel=BODY)
    ] = None,
    focal: Annotated[
        float | None,
        typer.Option(
            help="Focal length in pixels, if known.", rich_help_panel=BODY, show_default="the image's diagonal"
        ),
    ] = None,
    fov: Annotated[
        float | None,
        typer.Option(help="Or the angle of view across the image's width, in degrees.", rich_help_panel=BODY),
    ] = None,
    export: Annotated[
        str,
        typer.Option(
            help="More files, with commas between: obj, bvh, json, csv.", rich_help_panel=OUTPUT, show_default="none"
        ),
    ] = "",
    out: Annotated[
        Path, typer.Option(help="Folder for the results; made if absent.", rich_help_panel=OUTPUT, show_default=False)
    ],
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
    """Fit a body to everyone in a video, every 2D keypoint pulling as hard as it can be trusted.

    Leaves fit.npz, overlay.mp4, scene.glb and report.html, and on the way tracks.npz and keypoints.npz. A stage whose
    file is already there and was made from the same input with the same settings is skipped, so an interrupted run
    goes on where it stopped.
    """
    from dataclasses import replace

    from fitmesh.confidence import best_source
    from fitmesh.json_progress import JsonReporter
    from fitmesh.progress import Reporter
    from fitmesh.stages.fit import FitSettings
    from fitmesh.stages.keypoints import KeypointSettings
    from fitmesh.stages.pipeline import RunSettings, run_stages
    from fitmesh.stages.tracks import TrackSettings
    from pose2d.base.errors import UserError
    from pose2d.detect.detector import DetectorOptions
    from pose2d.detect.tracker import TrackerOptions
    from pose2d.io.clip import Span

    if quiet and json:
        raise UserError("--quiet and --json contradict each other: give one of them.")
    reporter = JsonReporter() if json else Reporter(quiet)
    try:
        clip = _clip(video, images, image, fps)
        tracker = TrackerOptions()
        tracker = replace(tracker, sure_score=min_score, start_score=min(min_score, tracker.start_score))
        detector = DetectorOptions(long_side=detector_size)
        source = confidence or best_source(pose_model, checkpoint, ccnet)
        settings = RunSettings(
            TrackSettings(Span(start, end, every), detections, detector, tracker, max_people, device),
            KeypointSettings(pose_model, checkpoint, source, ccnet, device),  # type: ignore[arg-type]
            keypoints,
            FitSettings(body_model, weighting, init or "lifter", init_checkpoint, focal, fov),  # type: ignore[arg-type]
            tuple(name.strip() for name in export.split(",") if name.strip()),
            overwrite,
        )
        _refuse_idle_options(settings)
        _greeting(clip, settings, reporter)
        result = run_stages(clip, out, settings, reporter)
        _summary(result, reporter)
    except UserError as error:
        reporter.failed(str(error))
        raise
    except KeyboardInterrupt:
        reporter.say("Stopped. Finished stages are kept; the same command goes on from there.", "stopped")
        raise typer.Exit(INTERRUPTED) from None


def _refuse_idle_options(settings: "RunSettings") -> None:
    """Options that would be ignored are a mistake somewhere."""
    from pose2d.base.errors import UserError

    if settings.given_keypoints is not None:
        idle = {
            "--detections": settings.tracks.detections,
            "--checkpoint": settings.keypoints.checkpoint,
            "--ccnet": settings.keypoints.ccnet,
        }
        for name, value in idle.items():
            if value is not None:
                raise UserError(f"{name} has no effect with --keypoints, which brings its own: leave one of them out.")


def _greeting(clip: "Clip", settings: "RunSettings", reporter: "Reporter") -> None:
    info = clip.info
    if settings.given_keypoints is None:
        seen_by = f"{settings.keypoints.pose_model} with {settings.keypoints.confidence} confidence"
    else:
        seen_by = f"keypoints of {settings.given_keypoints}"
    reporter.say(
        f"{clip.path}: {info.width_px}x{info.height_px}, {float(info.rate):g} frames/s; {seen_by}",
        "clip",
        clip=str(clip.path),
        width_px=info.width_px,
        height_px=info.height_px,
        frames_per_second=float(info.rate),
        keypoints=seen_by,
    )


def _clip(video: Path | None, images: Path | None, image: Path | None, fps: float | None) -> "Clip":
    from pose2d.base.errors import UserError
    from pose2d.io.images import DEFAULT_RATE, ImageFolder
    from pose2d.io.video import Video

    given = [
        name for name, value in (("--video", video), ("--images", images), ("--image", image)) if value is not None
    ]
    if len(given) != 1:
        raise UserError(f"give one of --video, --images and --image; got {' and '.join(given) or 'none'}.")
    if fps is not None and images is None:
        raise UserError("--fps is for --images: a video knows its own rate.")
    if images is not None:
        if not images.is_dir():
            raise UserError(f"{images} is not a folder. --images takes a folder of images; for one image use --image.")
        return ImageFolder(images, DEFAULT_RATE if fps is None else Fraction(fps).limit_denominator(100_000))
    if image is not None:
        if image.is_dir():
            raise UserError(f"{image} is a folder. --image takes one image; for a folder use --images.")
        return ImageFolder(image)
    assert video is not None
    return Video(video)


def _summary(result: "RunResult", reporter: "Reporter") -> None:
    import numpy as np

    import fitmesh
    from fitmesh.stages import tracks

    known, found = tracks.read(result.tracks), fitmesh.load(result.fit.parent)
    for text in known.warnings:
        reporter.warn(text)
    if not known.tracks:
        reporter.warn(
            f"nobody was found in {len(known.frames)} frames. If people are small or hard to see, try a larger "
            "--detector-size or a lower --min-score."
        )
    for person in found.people:
        trust = float((person.confidence * person.presence)[person.observed].mean())
        error = person.reprojection_px[person.trusted]
        error_px = float(np.mean(error)) if len(error) else float("nan")
        reporter.say(
            f"person {person.identity}: {len(person)} frames, {person.time_s[0]:.2f} to {person.time_s[-1]:.2f} s, "
            f"{int(person.observed.sum())} observed; mean trust {trust:.2f} ({found.source}), "
            f"keypoints {error_px:.1f} px off",
            "person",
            identity=person.identity,
            frames=len(person),
            observed=int(person.observed.sum()),
            start_s=float(person.time_s[0]),
            end_s=float(person.time_s[-1]),
            mean_trust=round(trust, 4),
            reprojection_px=round(error_px, 3),
        )
    files = [result.fit, result.overlay, *result.exports]
    shown = [*map(str, files[:6]), *(["..."] if len(files) > 6 else [])]
    reporter.say(f"results: {', '.join(shown)}", "result", files=[str(path) for path in files])
