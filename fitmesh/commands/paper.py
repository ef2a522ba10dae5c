"""`fitmesh paper`: make the tables of the paper again."""

import typer

from fitmesh.options.record import command
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
        from fitmesh.paper.tables import TABLES, run
        from pose2d.base.errors import UserError

    if asked.table == "list":
        for name, (_, shows, data) in TABLES.items():
            typer.echo(f"{name:<10} {data:<15} {shows}")
        return
    if asked.table not in TABLES:
        raise UserError(f"no table {asked.table!r}: choose {', '.join(TABLES)}, or `fitmesh paper list`.")
    if asked.data is None:
        raise UserError(f"--data is missing: the folder of {TABLES[asked.table][2]}, which {asked.table!r} is on.")
    models, starts = given_models(asked.model, asked.checkpoint, asked.head)
    with working():
        run(PaperRequest(**vars(asked), models=models, starts=starts))
