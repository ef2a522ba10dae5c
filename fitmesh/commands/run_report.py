"""What `fitmesh run` says of a clip before its work and of its people after it."""

from pathlib import Path

import numpy as np

from fitmesh.result import FIT_FILE, Result, load
from fitmesh.stages.pipeline import RunFiles, warnings_of
from fitmesh.stages.settings import Job
from fitmesh.ui.events import Reporter
from fitmesh.ui.words import count


def say_input(job: Job) -> None:
    clip, settings, info = job.clip, job.settings, job.clip.info
    if settings.given_keypoints is None:
        source = f"{settings.keypoints.pose_model} with {settings.keypoints.confidence} confidence"
    else:
        source = f"keypoints of {settings.given_keypoints}"
    job.reporter.say(
        f"{clip.path}: {info.width_px}x{info.height_px}, {float(info.rate):g} frames/s; {source}",
        "clip",
        clip=str(clip.path),
        width_px=info.width_px,
        height_px=info.height_px,
        frames_per_second=float(info.rate),
        keypoints=source,
    )


def say_result(result: RunFiles, out: Path, reporter: Reporter) -> None:
    for text in warnings_of(out):
        reporter.warn(text)
    if out / FIT_FILE in result.files:
        _say_people(load(out), reporter)
    files = result.files
    shown = [*map(str, files[:6]), *(["..."] if len(files) > 6 else [])]
    reporter.say(f"results: {', '.join(shown)}", "result", files=[str(path) for path in files])


def _say_people(found: Result, reporter: Reporter) -> None:
    from fitmesh.exports.segments import absences

    for person in found.people:
        confidence = float((person.confidence * person.presence)[person.observed].mean())
        error = person.reprojection_px[person.confident]
        error_px = float(np.mean(error)) if len(error) else float("nan")
        away = sum(np.isin(found.frames, np.arange(a, b + 1)).sum() for a, b in absences(found, person))
        reporter.say(
            f"person {person.identity}: {count(len(person), 'frames')}, "
            f"{person.time_s[0]:.2f} to {person.time_s[-1]:.2f} s, "
            f"{int(person.observed.sum())} observed{f', absent in {away}' if away else ''}; "
            f"mean confidence {confidence:.2f} ({found.source}), keypoints {error_px:.1f} px off",
            "person",
            identity=person.identity,
            frames=len(person),
            observed=int(person.observed.sum()),
            absent=int(away),
            start_s=float(person.time_s[0]),
            end_s=float(person.time_s[-1]),
            mean_confidence=round(confidence, 4),
            reprojection_px=round(error_px, 3),
        )
    if found.events:
        reporter.say(
            f"{count(len(found.events), 'things')} to check about who is who: report.html lists them, `fitmesh tracks` "
            "corrects them",
            "check",
            count=len(found.events),
        )
