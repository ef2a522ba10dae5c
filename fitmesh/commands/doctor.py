"""`fitmesh doctor`: what is installed, what is embedded, what is missing and how to get it."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fitmesh.options.record import Option, command

MARKS = {"ok": "[green]ok     [/green]", "missing": "[yellow]missing[/yellow]", "broken": "[red]broken [/red]"}
TITLES = {"program": "Program", "embedded": "Embedded", "machine": "Machine", "optional": "Optional"}


@dataclass(frozen=True)
class DoctorOptions:
    """How to say it."""

    json: Annotated[bool, Option("One JSON object on stdout.")] = False


@command(DoctorOptions)
def doctor(asked: DoctorOptions) -> None:
    """Check the installation: libraries, embedded networks and bodies (by digest), devices, optional parts.

    Says for everything that is missing or broken what to do. The exit code is 1 if fitmesh cannot work like this.
    """
    from fitmesh.doctor import examine
    from fitmesh.version import __version__

    checks = []
    if asked.json:
        import json
        from dataclasses import asdict

        checks = list(examine())
        sound = not any(check.failed for check in checks)
        facts = {"fitmesh": __version__, "sound": sound, "checks": [asdict(check) for check in checks]}
        typer.echo(json.dumps(facts, indent=1))
    else:
        from rich.console import Console
        from rich.markup import escape

        console = Console(highlight=False, soft_wrap=True)
        console.print(f"[bold]fitmesh {__version__}[/bold]")
        part = ""
        for check in examine():  # shown as they come: the first import of torch takes seconds
            if check.part != part:
                part = check.part
                console.print(f"\n[bold]{TITLES[part]}[/bold]")
            console.print(f"  {MARKS[check.state]} {check.name:<24}{escape(check.about)}")
            if check.state != "ok":
                console.print(f"{'':<34}-> {escape(check.fix)}")
            checks.append(check)
        broken = [check.name for check in checks if check.failed]
        console.print(f"\n[red]Mend first: {', '.join(broken)}.[/red]" if broken else "\n[green]All is well.[/green]")
    if any(check.failed for check in checks):
        raise typer.Exit(1)
