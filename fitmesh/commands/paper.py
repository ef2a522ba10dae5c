"""`fitmesh paper`: make the tables of the paper again."""

from pathlib import Path
from typing import Annotated

import typer

from fitmesh import limits
from fitmesh.commands.coco_options import Device, Threads
from fitmesh.ui.signals import working


def paper(
    table: Annotated[
        str, typer.Argument(help="coco, area, losses, ablations, mpii, wholebody, 3dpw, figures; or list.")
    ],
    data: Annotated[
        Path | None, typer.Option(help="The data set that the table is on: COCO, MPII, COCO-WholeBody or 3DPW.")
    ] = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE: a pose model and its weights (3dpw: also spin=FILE, cliff=FILE). Repeat."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A pose model whose weights are embedded. Repeat for more.")
    ] = None,
    head: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE: a model's calibration head. Repeat.", show_default="embedded, or trained here"),
    ] = None,
    train: Annotated[
        list[str] | None,
        typer.Option(help="Split to train heads on; repeat for more.", show_default="train2017, or MPII's train"),
    ] = None,
    test: Annotated[
        str | None, typer.Option(help="Split to report on.", show_default="val2017, or MPII's valid")
    ] = None,
    recipe: Annotated[str, typer.Option(help="How heads are trained: paper or fitmesh.")] = "paper",
    flip_test: Annotated[
        bool, typer.Option("--flip-test/--no-flip-test", help="Average over each crop and its mirror image.")
    ] = True,
    body_model: Annotated[Path | None, typer.Option(help="3dpw: folder with SMPL's files.")] = None,
    regressor: Annotated[Path | None, typer.Option(help="3dpw: J_regressor_h36m.npy.")] = None,
    every: Annotated[int, typer.Option(help="3dpw: use every n-th frame only."), limits.EVERY] = 1,
    out: Annotated[Path, typer.Option(help="Folder for tables, plots, heads and finished cells.")] = Path("paper"),
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Make a table of "On the Calibration of Human Pose Estimation" again, with its figures beside yours.

    `fitmesh paper list` shows all tables. Finished cells are kept in --out: a killed run goes on where it stopped.
    """
    from fitmesh.ui.sinks import starting

    with starting():
        from fitmesh.paper.request import PaperRequest, given_models
        from fitmesh.paper.run import TABLES, check_name, run, show
        from pose2d.base.errors import UserError

    if table == "list":
        for name, entry in TABLES.items():
            typer.echo(f"{name:<10} {entry.data:<15} {entry.shows}")
        return
    check_name(table)
    if data is None:
        raise UserError(f"--data is missing: the folder of {TABLES[table].data}, which table {table!r} is on.")
    models, starts = given_models(tuple(model or ()), tuple(checkpoint or ()), tuple(head or ()))
    request = PaperRequest(
        data=data,
        out=out,
        models=models,
        starts=starts,
        train=tuple(train or ()),
        test=test,
        recipe=recipe,
        flip_test=flip_test,
        body_model=body_model,
        regressor=regressor,
        every=every,
        device=device,
        threads=threads,
    )
    with working():
        made = run(table, request)
    show(table, request, made)
