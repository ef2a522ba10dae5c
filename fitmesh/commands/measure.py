"""The commands that train and measure: `train-ccnet`, `eval-coco`, `eval-3dpw` and `paper`."""

from contextlib import nullcontext
from dataclasses import replace

import typer

from fitmesh.options.measure import (
    Eval3dpwCommand,
    Eval3dpwOptions,
    EvalCocoOptions,
    PaperOptions,
    TrainCcnetOptions,
)
from fitmesh.options.record import command, shared
from fitmesh.ui.events import Reporter, on_stderr, starting, table_console
from fitmesh.ui.trouble import INTERRUPTED, Stopped, count, working
from pose2d.base.errors import UserError


@command(TrainCcnetOptions)
def train_ccnet(asked: TrainCcnetOptions) -> None:
    """Train a calibration head for a frozen pose model, and evaluate it.

    A killed run resumes when started again with the same options. Start with
    `torchrun --nproc-per-node N -m fitmesh train-ccnet ...` to use N processes or GPUs.
    """
    with starting():
        from ccnet.train import TrainingSettings
        from fitmesh.coco.train_ccnet import run, settings_of

    given = shared(asked, TrainingSettings)
    settings = settings_of(
        asked.recipe, **given, plain_passes=int(asked.plain), cache_bytes=int(asked.cache_gb * 1e9)
    )
    with working():
        run(asked, settings)


@command(EvalCocoOptions)
def eval_coco(asked: EvalCocoOptions) -> None:
    """Measure keypoints and every kind of confidence in them on COCO, MPII or COCO-WholeBody.

    Start with `torchrun --nproc-per-node N -m fitmesh eval-coco ...` to use N processes or GPUs.
    """
    with starting():
        from fitmesh.coco.eval_coco import run, run_hands, show
        from pose2d.base.distributed import is_main_process

    if asked.hands:
        run_hands(asked)
        return
    evaluation = run(asked)
    if is_main_process():
        show(asked, evaluation)


@command(Eval3dpwCommand)
def eval_3dpw(asked: Eval3dpwCommand) -> None:
    """Fit everyone in 3DPW with and without calibrated confidence, and measure in millimetres.

    Prints start | + 2D network | + CCNet, and leaves eval-3dpw.json and eval-3dpw.csv in --out.
    Keypoints and fits are kept there per sequence, so an interrupted run goes on where it stopped.
    Start with `torchrun --nproc-per-node N -m fitmesh eval-3dpw ...` to use N processes or GPUs.
    """
    with starting(Reporter(on_stderr(asked.quiet))):
        from fitmesh.eval_3dpw import pipeline, score_table
        from fitmesh.eval_3dpw.eval_settings import EvalSettings
        from pose2d.base.distributed import process_group
        from pose2d.base.folder_lock import folder_lock
        from pose2d.base.threads import use_threads

    settings = EvalSettings(**shared(asked, Eval3dpwOptions))
    out = asked.out
    if asked.body_model is None:
        open_body = "no --body-model: truth and fits use the open body, right only for sets made by `fitmesh synth`."
        typer.secho(f"Warning: {open_body}", err=True)
    use_threads(asked.threads)
    try:
        with working(), process_group(asked.device) as group:
            reporter = Reporter(on_stderr(asked.quiet or not group.is_main))
            with folder_lock(out) if group.is_main else nullcontext():
                outcome = pipeline.run(
                    replace(settings, device=str(group.device)), out, reporter, group
                )
    except (KeyboardInterrupt, Stopped) as stopped:
        message = "Stopped. Finished sequences are kept; the same command goes on from there."
        Reporter(on_stderr(asked.quiet)).say(message)
        raise typer.Exit(getattr(stopped, "exit_code", INTERRUPTED)) from None
    if not group.is_main:
        return
    console = table_console()
    scores = outcome.scores
    lines = score_table.lines(outcome.scores, outcome.base)
    about = {
        "data": str(asked.data),
        "split": asked.split,
        "protocol": asked.protocol,
        "init": asked.init,
        "pose_model": settings.keypoints_by,
        "single_frames": asked.single_frames,
        "every": asked.every,
        "body_model": str(asked.body_model or "open body"),
        "predictions": asked.predictions and str(asked.predictions),
        "base": outcome.base,
    }
    title = f"{asked.data}, {asked.split}: protocol {asked.protocol}, "
    title += f"{len(scores):,} person-frames in {count(len(scores.names), 'sequences')}"
    title += "" if asked.predictions else f", keypoints by {settings.keypoints_by}"
    score_table.show(console, title, lines, outcome.base, score_table.metrics_of(scores))
    score_table.show_rest(console, lines, scores, outcome.skipped)
    score_table.write_json(out / "eval-3dpw.json", about, lines, scores, outcome.skipped)
    score_table.write_csv(out / "eval-3dpw.csv", lines, scores)
    console.print(f"{out / 'eval-3dpw.json'}, {out / 'eval-3dpw.csv'}")


@command(PaperOptions)
def paper(asked: PaperOptions) -> None:
    """Make a table of "On the Calibration of Human Pose Estimation" again, with its figures beside
    yours.

    `fitmesh paper list` shows all tables. Finished cells are kept in --out: a killed run goes on
    where it stopped.
    """
    with starting():
        from fitmesh.paper.cells import PaperRequest, given_models
        from fitmesh.paper.tables import TABLES, run

    if asked.table == "list":
        for name, (_, shows, data) in TABLES.items():
            typer.echo(f"{name:<10} {data:<15} {shows}")
        return
    if asked.table not in TABLES:
        raise UserError(
            f"no table {asked.table!r}: choose {', '.join(TABLES)}, or `fitmesh paper list`."
        )
    if asked.data is None:
        raise UserError(
            f"--data is missing: the folder of {TABLES[asked.table][2]}, which {asked.table!r} is on."
        )
    models, starts = given_models(asked.model, asked.checkpoint, asked.head)
    with working():
        run(PaperRequest(**vars(asked), models=models, starts=starts))
