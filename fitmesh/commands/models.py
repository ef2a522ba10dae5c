"""`fitmesh models`: what can be loaded, what ships, under which licence."""


def models() -> None:
    """List every model: embedded or needs a checkpoint, where that comes from, licence, parameters, input size."""
    from rich.console import Console
    from rich.table import Table

    import pose2d

    table = Table(title="2D pose models", header_style="bold")
    for heading in ("name", "keypoints", "input", "parameters", "weights", "licence", "source"):
        table.add_column(heading, justify="right" if heading in ("input", "parameters") else "left")
    for card in pose2d.cards().values():
        width, height = card.input_wh
        table.add_row(
            card.name,
            card.skeleton.name,
            f"{width}x{height}",
            f"{card.parameters / 1e6:.2f} M",
            "embedded" if card.embedded else "checkpoint",
            card.licence,
            card.source,
        )
    Console().print(table)
