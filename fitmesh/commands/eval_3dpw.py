"""`fitmesh eval-3dpw`: the paper's table in millimetres, on 3DPW or on a set that `fitmesh synth` made."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fitmesh import limits
from fitmesh.ui.signals import Stopped, working

DATA, KEYPOINTS, FITTING, SCORING, OUTPUT = "Data", "Keypoints", "Fitting", "Scoring", "Output"
INTERRUPTED = 130  # what a shell expects after Ctrl-C


def eval_3dpw(
    data: Annotated[
        Path,
        typer.Option(
            help="3DPW's folder (with sequenceFiles and imageFiles), or SPIN's 3dpw_test.npz.", rich_help_panel=DATA
        ),
    ],
    body_model: Annotated[
        Path | None,
        typer.Option(
            help="Folder with SMPL_NEUTRAL.pkl, SMPL_MALE.pkl and SMPL_FEMALE.pkl.",
            rich_help_panel=DATA,
            show_default="the open body, for sets made by `fitmesh synth`",
        ),
    ] = None,
    regressor: Annotated[
        Path | None,
        typer.Option(help="J_regressor_h36m.npy; needed with --body-model, not shipped.", rich_help_panel=DATA),
    ] = None,
    split: Annotated[str, typer.Option(help="train, validation or test.", rich_help_panel=DATA)] = "test",
    sequences: Annotated[
        str | None,
        typer.Option(help="Only these sequences, by name, with commas.", rich_help_panel=DATA, show_default="all"),
    ] = None,
    every: Annotated[int, typer.Option(help="Use every n-th frame only.", rich_help_panel=DATA), limits.EVERY] = 1,
    pose_model: Annotated[
        str,
        typer.Option(
            help="Keypoint network; `fitmesh models` lists them. [bold]poses2d[/bold]: the keypoints in the data.",
            rich_help_panel=KEYPOINTS,
        ),
    ] = "rtmpose-s-halpe26",
    pose_checkpoint: Annotated[
        Path | None, typer.Option(help="Weights for a keypoint network that ships none.", rich_help_panel=KEYPOINTS)
    ] = None,
    confidence: Annotated[
        str,
        typer.Option(
            help="Where confidence comes from, with commas: ccnet, closed-form, raw, raw-heatmap, ones; "
            "oracle is the true OKS, as a bound.",
            rich_help_panel=KEYPOINTS,
        ),
    ] = "raw,ccnet",
    ccnet: Annotated[
        Path | None, typer.Option(help="A calibration head other than the built-in one.", rich_help_panel=KEYPOINTS)
    ] = None,
    init: Annotated[
        str,
        typer.Option(
            help="Where fits start: none, lifter, spin, cliff (cliff-res50, cliff-hr48).", rich_help_panel=FITTING
        ),
    ] = "lifter",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Weights of the network that --init names.", rich_help_panel=FITTING)
    ] = None,
    weighting: Annotated[
        str,
        typer.Option(
            help="From confidence to weight, with commas: confidence, squared, precision, likelihood, gate, ones. "
            "Precision is for calibrated confidence only.",
            rich_help_panel=FITTING,
        ),
    ] = "confidence,likelihood",
    single_frames: Annotated[
        bool,
        typer.Option("--single-frames", help="Fit every frame for itself, as SMPLify does.", rich_help_panel=FITTING),
    ] = False,
    protocol: Annotated[
        str, typer.Option(help="spin, vibe, wham or challenge; see docs/eval-3dpw.md.", rich_help_panel=SCORING)
    ] = "spin",
    predictions: Annotated[
        Path | None, typer.Option(help="Score the bodies in this .npz and do nothing else.", rich_help_panel=SCORING)
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for results and for what is kept between runs.", rich_help_panel=OUTPUT)
    ] = Path("eval-3dpw"),
    device: Annotated[
        str | None,
        typer.Option(
            help="Where the networks run: cpu, cuda, cuda:1, ..",
            rich_help_panel=OUTPUT,
            show_default="cuda if present, else cpu",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(help="Processor cores to use.", rich_help_panel=OUTPUT, show_default="all"),
        limits.THREADS,
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show the table only.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """Fit everyone in 3DPW with and without calibrated confidence, and measure in millimetres.

    Prints start | + 2D network | + CCNet, and leaves eval-3dpw.json and eval-3dpw.csv in --out. Keypoints, fits and
    errors are kept there per sequence, so an interrupted run goes on where it stopped. Start with
    `torchrun --nproc-per-node N -m fitmesh eval-3dpw ...` to use N processes or GPUs.
    """
    from fitmesh.ui.events import Reporter
    from fitmesh.ui.sinks import on_stderr, starting

    with starting(Reporter(on_stderr(quiet))):
        from fitmesh.eval_3dpw import pipeline, table
        from fitmesh.eval_3dpw.settings import EvalSettings
        from fitmesh.ui.console import table_console
        from pose2d.base.distributed import process_group
        from pose2d.base.folder_lock import folder_lock
        from pose2d.base.threads import use_threads

    settings = EvalSettings(
        data=data, body_model=body_model, regressor=regressor, split=split, sequences=_words(sequences or ""),
        every=every, init=init, checkpoint=checkpoint, pose_model=pose_model, pose_checkpoint=pose_checkpoint,
        ccnet=ccnet, confidence=_words(confidence), weighting=_words(weighting),  # type: ignore[arg-type]
        single_frames=single_frames, protocol=protocol, predictions=predictions,
    )  # fmt: skip
    if body_model is None:
        open_body = "no --body-model: truth and fits use the open body, right only for sets made by `fitmesh synth`."
        typer.secho(f"Warning: {open_body}", err=True)
    use_threads(threads)
    try:
        with working(), process_group(device) as group:
            reporter = Reporter(on_stderr(quiet or not group.is_main))
            with folder_lock(out) if group.is_main else nullcontext():
                outcome = pipeline.run(replace(settings, device=str(group.device)), out, reporter, group)
    except (KeyboardInterrupt, Stopped) as stopped:
        Reporter(on_stderr(quiet)).say("Stopped. Finished sequences are kept; the same command goes on from there.")
        raise typer.Exit(getattr(stopped, "exit_code", INTERRUPTED)) from None
    if not group.is_main:
        return
    console = table_console()
    scores, lines = outcome.scores, table.lines(outcome.scores, outcome.base)
    about = {
        "data": str(data), "split": split, "protocol": protocol, "init": init, "pose_model": pose_model,
        "single_frames": single_frames, "every": every, "body_model": str(body_model or "open body"),
        "predictions": predictions and str(predictions), "base": outcome.base,
    }  # fmt: skip
    title = f"{data}, {split}: protocol {protocol}, {len(scores):,} person-frames in {len(scores.names)} sequences"
    title += "" if predictions else f", keypoints by {pose_model}"
    table.show(console, title, lines, outcome.base, table.metrics_of(scores))
    table.show_sequences(console, lines, scores)
    table.show_skipped(console, outcome.skipped)
    table.write_json(out / "eval-3dpw.json", about, lines, scores, outcome.skipped)
    table.write_csv(out / "eval-3dpw.csv", lines, scores)
    console.print(f"{out / 'eval-3dpw.json'}, {out / 'eval-3dpw.csv'}")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
