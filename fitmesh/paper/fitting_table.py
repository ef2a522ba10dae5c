"""The paper's table of model fitting on 3DPW: no keypoints, raw and calibrated confidence."""

from pathlib import Path

from fitmesh.eval_3dpw import pipeline, score_table
from fitmesh.eval_3dpw.eval_settings import EvalSettings
from fitmesh.paper.cells import PaperRequest
from fitmesh.paper.published import published
from fitmesh.paper.table import Column, PaperTable, Row, figures
from fitmesh.ui.events import Reporter, on_stderr
from pose2d.base.errors import UserError
from pose2d.base.threads import use_threads

COLUMNS = (Column("pa_mpjpe_mm", "PA-MPJPE"), Column("mpjpe_mm", "MPJPE"), Column("mve_mm", "MVE"))
PAPER_STARTS = ("spin", "cliff")


def make_3dpw(request: PaperRequest) -> PaperTable:
    """Compare fits from the same start, weighted by raw and by calibrated confidence. Finished
    sequences are cached in OUT/3dpw.
    """
    if len(request.models) != 1:
        raise UserError(
            "the table on 3DPW needs one 2D network: pass --model NAME, or --checkpoint NAME=FILE "
            "and --head."
        )
    (network,) = request.models
    if network.head is None:
        raise UserError(
            f"no calibration head for {network.name}: train one with `fitmesh train-ccnet`, then "
            "pass --head."
        )
    use_threads(request.threads)
    starts: dict[str, Path | None] = {**request.starts} or {"lifter": None}
    rows = []
    for start, checkpoint in starts.items():
        settings = EvalSettings(
            data=request.data,
            body_model=request.body_model,
            regressor=request.regressor,
            every=request.every,
            init=start,
            checkpoint=checkpoint,
            pose_model=network.name,
            pose_checkpoint=network.checkpoint,
            plugin=request.plugin,
            ccnet=None if network.head == network.name else Path(network.head),
            confidence=("raw", "ccnet"),
            weighting=("confidence",),
            single_frames=True,
        )
        outcome = pipeline.run(settings, request.out / "3dpw" / start, Reporter(on_stderr()))
        labels = {
            settings.start_label(None): "none",
            "+ raw confidence": "raw",
            "+ CCNet confidence": "calibrated",
        }
        for line in score_table.lines(outcome.scores, outcome.base):
            label = labels[line.label]
            ours = figures(**{column.key: line.mean[column.key].value for column in COLUMNS})
            theirs = published("3dpw").get((start.split("-")[0], label), {})
            rows.append(Row((start, label), ours, theirs))
    absent = [
        name for name in PAPER_STARTS if not any(start.startswith(name) for start in request.starts)
    ]
    left_out = tuple(
        f"{name}: no checkpoint (--checkpoint {name}=FILE, docs/initialisers.md)" for name in absent
    )
    frames = f"{len(outcome.scores):,} person-frames"
    title = f"3DPW, mm, {frames}, keypoints by {network.name}, single frames"
    return PaperTable(title, ("start", "confidence"), COLUMNS, tuple(rows), left_out)
