"""Stage 4 (export): the film with boxes, identities and skeletons drawn in, `overlay.mp4`."""

from pathlib import Path

import av

from fitmesh.draw import draw_boxes, draw_legend, draw_skeleton
from fitmesh.stages import keypoints
from fitmesh.stages.progress import Reporter
from fitmesh.stages.recipe import Recipe
from pose2d.clip import Clip, Span
from pose2d.video_write import video_writer

FILE = "overlay.mp4"


def recipe(clip_digest: str, keypoints_recipe: Recipe) -> Recipe:
    return Recipe(stage="overlay", settings={}, inputs={"clip": clip_digest, "keypoints": keypoints_recipe.digest})


def matches(path: Path, made_from: Recipe) -> bool:
    try:
        with av.open(str(path)) as container:
            return container.metadata.get("comment") == _tag(made_from)
    except (av.error.FFmpegError, OSError, ValueError):
        return False


def make(clip: Clip, span: Span, keypoints_file: Path, path: Path, made_from: Recipe, reporter: Reporter) -> None:
    """Draw everyone into every frame of the span; times and sound stay as they were."""
    known = keypoints.read(keypoints_file)
    row_of = {
        identity: {number: row for row, number in enumerate(frames.tolist())}
        for identity, frames in known.frames.items()
    }
    sound = clip.path if clip.info.has_audio else None
    rate = clip.info.rate / span.every
    with (
        reporter.stage("overlay", span.expected_frames(clip.info)) as tick,
        video_writer(path, rate, clip.info.tick_s, sound, {"comment": _tag(made_from)}) as film,
    ):
        for frame in clip.frames(span):
            rgb = frame.rgb.copy()
            here = {i: rows[frame.index] for i, rows in row_of.items() if frame.index in rows}
            draw_boxes(rgb, {identity: known.boxes_px[identity][row] for identity, row in here.items()})
            for identity, row in here.items():
                person, (_, top, _, bottom) = known.people[identity], known.boxes_px[identity][row]
                trust = (person.confidence[row] * person.presence[row]).numpy()
                draw_skeleton(rgb, person.xy_px[row].numpy(), trust, person.skeleton, identity, bottom - top)
            draw_legend(rgb, known.source)
            film.write(rgb, frame.time_s)
            tick(1)


def _tag(made_from: Recipe) -> str:
    return f"fitmesh recipe {made_from.digest}"
