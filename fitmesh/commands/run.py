"""`fitmesh run`: from a film, a folder of pictures or one picture to files that say who is where and how they stand."""

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fitmesh.stages.progress import Reporter
    from fitmesh.stages.road import RunResult
    from pose2d.clip import Clip

INPUT, PEOPLE, KEYPOINTS, OUTPUT = "Input (one of the first three)", "People", "Keypoints", "Output"
INTERRUPTED = 130  # what a shell expects after Ctrl-C


def run(
    *,
    video: Annotated[
        Path | None, typer.Option(help="A film: mp4, mov, mkv, webm or gif.", rich_help_panel=INPUT)
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="A folder of pictures that follow each other.", rich_help_panel=INPUT)
    ] = None,
    image: Annotated[Path | None, typer.Option(help="One picture.", rich_help_panel=INPUT)] = None,
    start: Annotated[float, typer.Option(help="Seconds into the film to start at.", rich_help_panel=INPUT)] = 0.0,
    end: Annotated[float | None, typer.Option(help="Seconds into the film to stop at.", rich_help_panel=INPUT)] = None,
    every: Annotated[int, typer.Option(help="Use every n-th frame only.", rich_help_panel=INPUT)] = 1,
    fps: Annotated[
        float | None, typer.Option(help="Pictures per second of --images.", rich_help_panel=INPUT, show_default="30")
    ] = None,
    detections: Annotated[
        Path | None,
        typer.Option(
            help="Boxes to use instead of the built-in detector: a COCO-detections json whose image_id is the frame "
            "number from 0, or the word [bold]whole[/bold] for one box around the whole picture.",
            rich_help_panel=PEOPLE,
        ),
    ] = None,
    detector_size: Annotated[
        int,
        typer.Option(
            help="Longer side of the picture the detector sees, a multiple of 32. Larger finds smaller people, slower.",
            rich_help_panel=PEOPLE,
        ),
    ] = 512,
    min_score: Annotated[
        float,
        typer.Option(
            help="Keep people whom the detector scores at least this in several frames.", rich_help_panel=PEOPLE
        ),
    ] = 0.5,
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
    out: Annotated[
        Path, typer.Option(help="Folder for the results; made if absent.", rich_help_panel=OUTPUT, show_default=False)
    ],
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Make every file anew, also those that still match.", rich_help_panel=OUTPUT),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but warnings.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """Find people in a film, follow them, and read their keypoints with the trust each deserves.

    Leaves tracks.npz, keypoints.npz and overlay.mp4. A stage whose file is already there and was made from the same
    input with the same settings is skipped, so an interrupted run goes on where it stopped.
    """
    from dataclasses import replace

    from fitmesh.stages.keypoints import KeypointSettings
    from fitmesh.stages.progress import Reporter
    from fitmesh.stages.road import RunSettings, run_stages
    from fitmesh.stages.tracks import TrackSettings
    from fitmesh.stages.trust import best_source
    from pose2d.clip import Span
    from pose2d.detector import DetectorOptions
    from pose2d.tracker import TrackerOptions

    clip = _clip(video, images, image, fps)
    tracker = TrackerOptions()
    tracker = replace(tracker, sure_score=min_score, start_score=min(min_score, tracker.start_score))
    detector = DetectorOptions(long_side=detector_size)
    source = confidence or best_source(pose_model, checkpoint, ccnet)
    settings = RunSettings(
        TrackSettings(Span(start, end, every), detections, detector, tracker, max_people),
        KeypointSettings(pose_model, checkpoint, source, ccnet),  # type: ignore[arg-type]
        overwrite=overwrite,
    )
    reporter = Reporter(quiet)
    reporter.say(
        f"{clip.path}: {clip.info.width_px}x{clip.info.height_px}, {float(clip.info.rate):g} frames/s; "
        f"{pose_model} with {source} confidence"
    )
    try:
        result = run_stages(clip, out, settings, reporter)
    except KeyboardInterrupt:
        reporter.say("Stopped. Finished stages are kept; the same command goes on from there.")
        raise typer.Exit(INTERRUPTED) from None
    _summary(result, reporter)


def _clip(video: Path | None, images: Path | None, image: Path | None, fps: float | None) -> "Clip":
    from pose2d.errors import UserError
    from pose2d.pictures import DEFAULT_RATE, Pictures
    from pose2d.video import Video

    given = [
        name for name, value in (("--video", video), ("--images", images), ("--image", image)) if value is not None
    ]
    if len(given) != 1:
        raise UserError(f"give one of --video, --images and --image; got {' and '.join(given) or 'none'}.")
    if fps is not None and images is None:
        raise UserError("--fps is for --images: a film knows its own rate.")
    if images is not None:
        if not images.is_dir():
            raise UserError(
                f"{images} is not a folder. --images takes a folder of pictures; for one picture use --image."
            )
        return Pictures(images, DEFAULT_RATE if fps is None else Fraction(fps).limit_denominator(100_000))
    if image is not None:
        if image.is_dir():
            raise UserError(f"{image} is a folder. --image takes one picture; for a folder use --images.")
        return Pictures(image)
    assert video is not None
    return Video(video)


def _summary(result: "RunResult", reporter: "Reporter") -> None:
    from fitmesh.stages import keypoints, tracks
    from fitmesh.stages.progress import warn

    known, read = tracks.read(result.tracks), keypoints.read(result.keypoints)
    for text in known.warnings:
        warn(text)
    if not known.tracks:
        warn(
            f"nobody was found in {len(known.frames)} frames. If people are small or hard to see, try a larger "
            "--detector-size or a lower --min-score."
        )
    for track in known.tracks:
        first, last = (float(known.time_s[known.frames == track.frames[i]][0]) for i in (0, -1))
        mean = float(read.people[track.identity].confidence.mean())
        reporter.say(
            f"person {track.identity}: {len(track.frames)} frames, {first:.2f} to {last:.2f} s, "
            f"mean keypoint confidence {mean:.2f} ({read.source})"
        )
    reporter.say(f"results: {result.tracks}, {result.keypoints}, {result.fit}, {result.overlay}")
