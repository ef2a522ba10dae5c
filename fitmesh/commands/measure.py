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
from pose2d.base.errors import OptionError, UserError


@command(TrainCcnetOptions)
def train_ccnet(options: TrainCcnetOptions) -> None:
    """Train a calibration head for a frozen pose model, and evaluate it.

    A killed run resumes when started again with the same options. Start with
    `torchrun --nproc-per-node N -m fitmesh train-ccnet ...` to use N processes or GPUs.
    """
    with starting():
        from ccnet.train import TrainingSettings
        from fitmesh.coco.train_ccnet import run, settings_of

    changes = shared(options, TrainingSettings)
    settings = settings_of(
        options.recipe,
        **changes,
        plain_passes=int(options.plain),
        cache_bytes=int(options.cache_gb * 1e9),
    )
    with working():
        run(options, settings)


@command(EvalCocoOptions)
def eval_coco(options: EvalCocoOptions) -> None:
    """Measure keypoints and every kind of confidence in them on COCO, MPII or COCO-WholeBody.

    Start with `torchrun --nproc-per-node N -m fitmesh eval-coco ...` to use N processes or GPUs.
    """
    with starting():
        from fitmesh.coco.eval_coco import run, show
        from fitmesh.coco.eval_hands import run_hands
        from pose2d.base.distributed import is_main_process

    if options.hands:
        run_hands(options)
        return
    evaluation = run(options)
    if is_main_process():
        show(options, evaluation)


@command(Eval3dpwCommand)
def eval_3dpw(options: Eval3dpwCommand) -> None:
    """Fit all people in 3DPW with and without calibrated confidence, and measure in millimetres.

    Prints start | + 2D network | + CCNet, and leaves eval-3dpw.json and eval-3dpw.csv in --out.
    Keypoints and fits are cached there per sequence, so an interrupted run continues.
    Start with `torchrun --nproc-per-node N -m fitmesh eval-3dpw ...` to use N processes or GPUs.
    """
    with starting(Reporter(on_stderr(options.quiet))):
        from fitmesh.eval_3dpw import pipeline, score_table
        from fitmesh.eval_3dpw.eval_settings import EvalSettings
        from pose2d.base.distributed import process_group
        from pose2d.base.folder_lock import folder_lock
        from pose2d.base.threads import use_threads

    settings = EvalSettings(**shared(options, Eval3dpwOptions))
    out = options.out
    if options.body_model is None:
        typer.secho(
            "Warning: no --body-model, so truth and fits use the open body. This is right only for "
            "data sets made by `fitmesh synth`.",
            err=True,
        )
    use_threads(options.threads)
    try:
        with working(), process_group(options.device) as group:
            reporter = Reporter(on_stderr(options.quiet or not group.is_main))
            with folder_lock(out) if group.is_main else nullcontext():
                outcome = pipeline.run(
                    replace(settings, device=str(group.device)), out, reporter, group
                )
    except (KeyboardInterrupt, Stopped) as stopped:
        message = "Stopped. Finished sequences are cached; the same command continues there."
        Reporter(on_stderr(options.quiet)).say(message)
        raise typer.Exit(getattr(stopped, "exit_code", INTERRUPTED)) from None
    if not group.is_main:
        return
    console = table_console()
    scores = outcome.scores
    lines = score_table.lines(outcome.scores, outcome.base)
    about = {
        "data": str(options.data),
        "split": options.split,
        "protocol": options.protocol,
        "init": options.init,
        "pose_model": settings.keypoints_by,
        "single_frames": options.single_frames,
        "every": options.every,
        "body_model": str(options.body_model or "open body"),
        "predictions": options.predictions and str(options.predictions),
        "base": outcome.base,
    }
    title = f"{options.data}, {options.split}: protocol {options.protocol}, "
    title += f"{len(scores):,} person-frames in {count(len(scores.names), 'sequences')}"
    title += "" if options.predictions else f", keypoints by {settings.keypoints_by}"
    score_table.show(console, title, lines, outcome.base, score_table.metrics_of(scores))
    score_table.show_rest(console, lines, scores, outcome.skipped)
    score_table.write_json(out / "eval-3dpw.json", about, lines, scores, outcome.skipped)
    score_table.write_csv(out / "eval-3dpw.csv", lines, scores)
    console.print(f"{out / 'eval-3dpw.json'}, {out / 'eval-3dpw.csv'}")


@command(PaperOptions)
def paper(options: PaperOptions) -> None:
    """Make a table of "On the Calibration of Human Pose Estimation" again, with its figures beside
    yours.

    `fitmesh paper list` shows all tables. Finished cells are cached in --out, so a killed run
    continues.
    """
    with starting():
        from fitmesh.paper.cells import PaperRequest, given_models
        from fitmesh.paper.tables import TABLES, run
        from pose2d.models.registry import use_plugin

    if options.table == "list":
        for name, kind in TABLES.items():
            typer.echo(f"{name:<10} {kind.data or 'no data':<15} {kind.shows}")
        return
    if options.table not in TABLES:
        raise UserError(
            f"no table {options.table!r}: choose {', '.join(TABLES)}, or `fitmesh paper list`."
        )
    needed = TABLES[options.table].data
    if needed and options.data is None:
        raise OptionError(
            f"--data is missing: pass the folder of {needed}, which the table {options.table!r} "
            "needs."
        )
    use_plugin(options.plugin)
    models, starts = given_models(options.model, options.checkpoint, options.head)
    with working():
        run(PaperRequest(**vars(options), models=models, starts=starts))
