"""`fitmesh run`: from a video, a folder of images or one image to files that say who is where and
how they stand.

Many videos become a folder of results each. What the stages need is imported when it is known that
there is work: torch alone takes seconds, and a mistake on the command line is answered before."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fitmesh.options.record import command
from fitmesh.options.run import RunCommand
from fitmesh.ui.events import Message, Reporter, as_json_lines, on_stderr, starting
from fitmesh.ui.trouble import INTERRUPTED, Stopped, count, error_facts, working
from pose2d.base.errors import OptionError

if TYPE_CHECKING:
    from fitmesh.result import Result
    from fitmesh.stages.settings import Job

SOME_FAILED = 3  # exit code: the other clips are done


@command(RunCommand)
def run(asked: RunCommand) -> None:
    """Fit a body to everyone in a video, every 2D keypoint weighted by its calibrated confidence.

    Leaves fit.npz, overlay.mp4, scene.glb and report.html, and on the way tracks.npz and
    keypoints.npz. A stage whose file is already there and was made from the same input with the
    same settings is skipped, so an interrupted run goes on where it stopped.
    """
    from fitmesh.exports import check_exports
    from fitmesh.inputs import folder_beside, given_by_name, open_given

    if asked.quiet and asked.json:
        raise OptionError("--quiet and --json exclude each other: pass one of them.")
    reporter = Reporter(as_json_lines if asked.json else on_stderr(asked.quiet))
    try:
        check_exports(asked.exports, asked.rig)
        asked = given_by_name(asked)
        if _many_asked(asked):
            raise typer.Exit(_run_videos(asked, reporter))
        clip, others = open_given(asked)
        out = folder_beside(clip.path) if asked.out is None else Path(asked.out)
        with starting(reporter):  # after what is cheap to check: torch alone takes seconds
            from fitmesh.loading import load
            from fitmesh.result import FIT_FILE
            from fitmesh.stages.pipeline import run_settings, run_stages, warnings_of
            from fitmesh.stages.settings import Job
            from pose2d.base.threads import return_memory
        settings = run_settings(asked, others)
        job = Job(clip, settings, out, reporter)
        for camera_job in (job, *job.cameras):
            _say_input(camera_job)
        return_memory()
        with working():
            files, _ = run_stages(job)
            for text in warnings_of(out):
                reporter.warn(text)
            if out / FIT_FILE in files:
                _say_people(load(out), reporter)
            _say_result(files, out, can_view=not settings.outputs, reporter=reporter)
    except typer.Exit:
        raise
    except Exception as error:
        reporter.emit(Message(str(error), "error", error_facts(error)))
        raise
    except (KeyboardInterrupt, Stopped) as stopped:
        text = "Stopped. Finished stages are kept; the same command goes on from there."
        reporter.emit(Message(text, "stopped", {"text": text, "code": "cancelled"}))
        raise typer.Exit(getattr(stopped, "exit_code", INTERRUPTED)) from None


def _say_result(files: list[Path], out: Path, can_view: bool, reporter: Reporter) -> None:
    """Report the files that a run wrote and, last, the command that shows them."""
    shown = [*map(str, files[:6]), *(["..."] if len(files) > 6 else [])]
    text = f"results: {', '.join(shown)}"
    facts: dict[str, Any] = {"files": [str(path) for path in files]}
    if can_view:
        facts["view"] = f"fitmesh view {shlex.quote(str(out))}"
        text += f"\nlook at them: {facts['view']}"
    reporter.say(text, "result", **facts)


def _say_input(job: "Job") -> None:
    """Report the clip and where its keypoints come from."""
    clip = job.clip
    settings = job.settings
    info = job.clip.info
    if settings.keypoints is None:
        source = f"{settings.pose_model} with {settings.confidence} confidence"
    else:
        source = f"keypoints of {settings.keypoints}"
    job.reporter.say(
        f"{clip.path}: {info.width_px}x{info.height_px}, {float(info.rate):g} frames/s; {source}",
        "clip",
        clip=str(clip.path),
        width_px=info.width_px,
        height_px=info.height_px,
        frames_per_second=float(info.rate),
        keypoints=source,
    )


def _say_people(result: "Result", reporter: Reporter) -> None:
    """Report each person of a result, and how much there is to check."""
    import numpy as np

    from fitmesh.exports.scene import absences

    for person in result.people:
        error = person.reprojection_px[person.confident]
        away = sum(
            np.isin(result.frames, np.arange(a, b + 1)).sum() for a, b in absences(result, person)
        )
        facts = {
            "identity": person.identity,
            "frames": len(person),
            "observed": int(person.observed.sum()),
            "absent": int(away),
            "start_s": float(person.time_s[0]),
            "end_s": float(person.time_s[-1]),
            "mean_confidence": round(
                float((person.confidence * person.presence)[person.observed].mean()), 4
            ),
            "reprojection_px": round(float(np.mean(error)) if len(error) else float("nan"), 3),
        }
        reporter.say(
            f"person {person.identity}: {count(len(person), 'frames')}, {facts['start_s']:.2f} to "
            f"{facts['end_s']:.2f} s, {facts['observed']} observed{f', absent in {away}' if away else ''}; "
            f"mean confidence {facts['mean_confidence']:.2f} ({result.source}), keypoints "
            f"{facts['reprojection_px']:.1f} px off",
            "person",
            **facts,
        )
    if result.events:
        reporter.say(
            f"{count(len(result.events), 'things')} to check about identities: report.html lists them, "
            "`fitmesh tracks` corrects them",
            "check",
            count=len(result.events),
        )


def _many_asked(asked: RunCommand) -> bool:
    """Return whether each clip gets its own results folder; a single --video uses --out itself."""
    from fitmesh.many.sources import is_url

    if asked.together:
        _refuse_batch_options(asked, "a single scene: --together makes one result")
        return False
    if asked.videos or len(asked.video) > 1 or any(map(is_url, [*asked.video, asked.out or ""])):
        for name in ("images", "image", "fps"):
            if getattr(asked, name):
                raise OptionError(
                    f"--{name} is for one clip and cannot be used with many videos: leave it out."
                )
        return True
    _refuse_batch_options(asked, "one clip: pass --videos, or --video several times")
    return False


def _refuse_batch_options(asked: RunCommand, instead: str) -> None:
    """Raise OptionError for options that divide many videos among processes."""
    for name in ("jobs", "shard", "ray", "retry_failed"):
        if getattr(asked, name):
            flag = name.replace("_", "-")
            raise OptionError(f"--{flag} is for many videos and cannot be used with {instead}.")


def _run_videos(many: RunCommand, reporter: Reporter) -> int:
    """Process many videos and return the exit code."""
    from fitmesh.many.batch import run_clips
    from fitmesh.many.summary import in_words

    if not many.video and not many.videos:
        raise OptionError("pass --video or --videos: only they can be written to object storage.")
    if many.out is None:
        raise OptionError("--out is missing: many videos need a folder for their results folders.")
    if many.jobs is not None and many.ray is not None:
        raise OptionError("--jobs and --ray exclude each other: pass one of them.")
    with working():
        statuses = run_clips(
            many,
            many.video,
            many.videos,
            many.out,
            reporter,
            shard=many.shard,
            jobs=many.jobs or 1,
            ray=many.ray,
            retry_failed=many.retry_failed,
        )
        root = many.out.rstrip("/")
        reporter.say(f"{in_words(statuses)}: {root}/index.html, {root}/summary.csv")
    return SOME_FAILED if any(not status.is_good for status in statuses) else 0
