"""Options that training and evaluating on COCO, MPII or COCO-WholeBody have in common."""

from pathlib import Path
from typing import Annotated

import typer

from fitmesh import limits

Data = Annotated[Path, typer.Option(help="Data set folder in COCO's layout (or MPII's, COCO-WholeBody's).")]
Model = Annotated[str, typer.Option(help="Pose model, one of `fitmesh models`.")]
Checkpoint = Annotated[Path | None, typer.Option(help="The pose model's weights, if not embedded.")]
Threads = Annotated[int | None, typer.Option(help="Processor cores to use.", show_default="all"), limits.THREADS]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ..", show_default="cuda if present, else cpu")]
OcclusionTest = Annotated[
    bool,
    typer.Option("--occlusion-test/--no-occlusion-test", help="Hide wrists behind growing patches, too (with --out)."),
]
