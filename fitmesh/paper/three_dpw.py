"""The paper's table on 3DPW: SPIN and CLIFF, alone, fitted by raw and by calibrated confidence, frame by frame."""

from pathlib import Path

from fitmesh.eval_3dpw import pipeline, score_table
from fitmesh.eval_3dpw.eval_settings import EvalSettings
from fitmesh.paper import published
from fitmesh.paper.paper_request import PaperRequest
from fitmesh.paper.paper_table import Column, PaperTable, Row, figures
from fitmesh.ui.events import Reporter, on_stderr
from pose2d.base.errors import UserError
from pose2d.base.threads import use_threads

COLUMNS = (Column("pa_mpjpe_mm", "PA-MPJPE"), Column("mpjpe_mm", "MPJPE"), Column("mve_mm", "MVE"))
WANTED = ("spin", "cliff")


def three_dpw(request: PaperRequest) -> PaperTable:
    """The weight of a keypoint is its confidence. Sequences that are finished are kept in OUT/3dpw."""
    if len(request.models) != 1:
        raise UserError("the table on 3DPW needs one 2D network: --model NAME, or --checkpoint NAME=FILE and --head.")
    (network,) = request.models
    if network.head is None:
        raise UserError(f"no calibration head for {network.name}: train one with `fitmesh train-ccnet`, pass --head.")
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
            ccnet=None if network.head == network.name else Path(network.head),
            confidence=("raw", "ccnet"),
            weighting=("confidence",),
            single_frames=True,
        )
        outcome = pipeline.run(settings, request.out / "3dpw" / start, Reporter(on_stderr()))
        labels = {settings.start_label(None): "none", "+ raw confidence": "raw", "+ CCNet confidence": "calibrated"}
        for line in score_table.lines(outcome.scores, outcome.base):
            ours = figures(**{column.key: line.mean[column.key].value for column in COLUMNS})
            family = start.split("-")[0]
            printed = published.THREE_DPW.get((family, labels[line.label]), {})
            rows.append(Row((start, labels[line.label]), ours, printed))
    absent = [name for name in WANTED if not any(start.startswith(name) for start in request.starts)]
    left_out = tuple(f"{name}: no checkpoint (--checkpoint {name}=FILE, docs/initialisers.md)" for name in absent)
    title = f"3DPW, mm, {len(outcome.scores):,} person-frames, keypoints by {network.name}, single frames"
    return PaperTable("3dpw", title, ("start", "confidence"), COLUMNS, tuple(rows), left_out)
