"""`fitmesh paper`: make the tables of the paper again."""

import typer

from fitmesh.options.record import command, shared
from fitmesh.options.training import PaperOptions
from fitmesh.ui.trouble import working


@command(PaperOptions)
def paper(asked: PaperOptions) -> None:
    """Make a table of "On the Calibration of Human Pose Estimation" again, with its figures beside yours.

    `fitmesh paper list` shows all tables. Finished cells are kept in --out: a killed run goes on where it stopped.
    """
    from fitmesh.ui.events import starting

    with starting():
        from fitmesh.paper.cells import PaperRequest, given_models
        from fitmesh.paper.run import TABLES, check_name, run, show
        from pose2d.base.errors import UserError

    table = asked.table
    if table == "list":
        for name, entry in TABLES.items():
            typer.echo(f"{name:<10} {entry.data:<15} {entry.shows}")
        return
    check_name(table)
    if asked.data is None:
        raise UserError(f"--data is missing: the folder of {TABLES[table].data}, which table {table!r} is on.")
    models, starts = given_models(asked.model, asked.checkpoint, asked.head)
    request = PaperRequest(**shared(asked, PaperRequest), models=models, starts=starts)
    with working():
        made = run(table, request)
    show(table, request, made)
