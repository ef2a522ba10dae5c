"""`fitmesh models`: what can be loaded, what ships, where the rest comes from and under which
licence.

`fitmesh models get NAME` fetches a checkpoint that a public repository holds."""

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import typer

from fitmesh.options.record import command, option

if TYPE_CHECKING:
    from pathlib import Path


app = typer.Typer(
    add_completion=False,
    help="List every model; `get` fetches a checkpoint.",
    invoke_without_command=True,
)

BODIES = (
    # name, what it is, how it is given, where it comes from, licence
    ("open", "24 joints", "embedded", "MakeHuman / MPFB2 assets", "CC0 1.0"),
    ("SMPL", "24 joints", "needs a file", "smpl.is.tue.mpg.de", "non-commercial"),
    ("SMPL-H", "with hands", "needs a file", "mano.is.tue.mpg.de", "non-commercial"),
    ("SMPL-X", "with hands and face", "needs a file", "smpl-x.is.tue.mpg.de", "non-commercial"),
)


@app.callback()
def models(context: typer.Context) -> None:
    """List every model: is it embedded, where its checkpoint comes from, licence, parameters, input
    size.
    """
    from rich.console import Console
    from rich.markup import escape

    import pose2d
    from pose2d.hub import REPOSITORIES

    if context.invoked_subcommand is not None:
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        "[bold]2D pose models[/bold] (keypoints, input height x width in pixels, parameters)\n"
    )
    by_origin = groupby(
        pose2d.cards().values(), key=lambda card: (card.source, card.licence, bool(card.embedded))
    )
    for (source, licence, embedded), cards in by_origin:
        given = "[green]embedded[/green]" if embedded else "needs a checkpoint"
        console.print(f"{given}, from [cyan]{escape(source)}[/cyan], licence {escape(licence)}")
        for card in cards:
            width, height = card.input_wh
            size = f"{height}x{width}"
            parameters = f"{card.parameters / 1e6:.2f} M"
            get = "  fitmesh models get" if card.name in REPOSITORIES else ""
            console.print(
                f"  {card.name:<36}{card.skeleton.name:<14}{size:>7}{parameters:>10}{get}"
            )
        console.print()
    console.print("[bold]Bodies[/bold] (`fitmesh body` checks a file)\n")
    for name, what, given, source, licence in BODIES:
        given = f"[green]{given}[/green]" if given == "embedded" else given
        console.print(
            f"  {name:<8}{what:<21}{given}, from [cyan]{source}[/cyan], licence {licence}"
        )


@dataclass(frozen=True)
class GetOptions:
    """Which model."""

    name: str = option(
        ..., "A name that `fitmesh models` lists, or spin or cliff.", is_argument=True
    )
    yes: bool = option(False, "Do not ask before downloading.")


@app.command("get")
@command(GetOptions)
def get(asked: GetOptions) -> None:
    """Fetch the checkpoint of a model from the Hugging Face hub, after showing its size, licence
    and digest.

    A download that broke off goes on where it stopped, and a file that was fetched before is not
    fetched again. It is kept in the folder that FITMESH_CACHE names, or in the user's cache folder.
    For a checkpoint that no public repository holds, this says where it is and what to click.
    """
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    import pose2d
    from fitmesh.ui.trouble import working
    from pose2d import hub
    from pose2d.base.errors import UserError

    name = asked.name
    known = name.startswith(("spin", "cliff")) or pose2d.card(name)
    if name not in hub.REPOSITORIES:
        if known is not True and known.embedded:
            typer.echo(f"{name} ships with the package: there is nothing to fetch.")
            return
        option = "--init-checkpoint" if known is True else "--checkpoint"
        raise UserError(
            f"fitmesh knows no public repository that holds {name}. By hand: {hub.by_hand(name)}. Then pass the file "
            f"with {option}."
        )
    if (kept := hub.cached(name)) is not None:
        _say_how(name, *kept)
        return
    offer = hub.look_up(name)
    typer.echo(
        f"{name} from https://huggingface.co/{offer.repository} ({offer.file}, revision {offer.revision[:12]})"
    )
    typer.echo(
        f"size      {offer.size / 1e6:.1f} MB\nlicence   {offer.licence}\nsha256    {offer.sha256}"
    )
    if not asked.yes and not typer.confirm("Download it?", default=True):
        raise typer.Exit(1)
    columns = (
        TextColumn(offer.name),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress, working():
        task = progress.add_task(offer.name, total=offer.size)
        path = hub.fetch(offer, lambda size: progress.advance(task, size))
    try:
        pose2d.load(name, path)
    except UserError as error:
        raise UserError(f"the file was fetched, but it is of no use for {name}: {error}") from error
    _say_how(name, path, offer.sha256)


def _say_how(name: str, path: "Path", sha256: str) -> None:
    typer.echo(f"{path}\nsha256 {sha256}, verified. It is found by its name:\n")
    typer.echo(f"  fitmesh run --video clip.mp4 --out out/ --pose-model {name}")
