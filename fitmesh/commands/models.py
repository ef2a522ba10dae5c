"""`fitmesh models`: what can be loaded, what ships, where the rest comes from and under which licence."""

from itertools import groupby

BODIES = (
    # name, what it is, how it is given, where it comes from, licence
    ("open", "24 joints", "embedded", "MakeHuman / MPFB2 assets", "CC0 1.0"),
    ("SMPL", "24 joints", "needs a file", "smpl.is.tue.mpg.de", "non-commercial"),
    ("SMPL-H", "with hands", "needs a file", "mano.is.tue.mpg.de", "non-commercial"),
    ("SMPL-X", "with hands and face", "needs a file", "smpl-x.is.tue.mpg.de", "non-commercial"),
)


def models() -> None:
    """List every model: is it embedded, where its checkpoint comes from, licence, parameters, input size."""
    from rich.console import Console
    from rich.markup import escape

    import pose2d

    console = Console(highlight=False, soft_wrap=True)
    console.print("[bold]2D pose models[/bold] (keypoints, input height x width in pixels, parameters)\n")
    by_origin = groupby(pose2d.cards().values(), key=lambda card: (card.source, card.licence, bool(card.embedded)))
    for (source, licence, embedded), cards in by_origin:
        given = "[green]embedded[/green]" if embedded else "needs a checkpoint"
        console.print(f"{given}, from [cyan]{escape(source)}[/cyan], licence {escape(licence)}")
        for card in cards:
            width, height = card.input_wh
            size, parameters = f"{height}x{width}", f"{card.parameters / 1e6:.2f} M"
            console.print(f"  {card.name:<36}{card.skeleton.name:<14}{size:>7}{parameters:>10}")
        console.print()
    console.print("[bold]Bodies[/bold] (`fitmesh body` checks a file)\n")
    for name, what, given, source, licence in BODIES:
        given = f"[green]{given}[/green]" if given == "embedded" else given
        console.print(f"  {name:<8}{what:<21}{given}, from [cyan]{source}[/cyan], licence {licence}")
