"""The tables of the paper by name, and the command that makes one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fitmesh.paper.ablations import make_ablations
from fitmesh.paper.cells import PaperRequest
from fitmesh.paper.coco_tables import (
    make_area,
    make_coco,
    make_losses,
    make_mpii,
    make_wholebody,
)
from fitmesh.paper.cost_table import make_cost
from fitmesh.paper.figures import make_figures
from fitmesh.paper.fitting_table import make_3dpw
from fitmesh.paper.table import PaperTable
from fitmesh.paper.theory_table import make_theory
from fitmesh.ui.events import print_tables
from pose2d.base.files import atomic_file


@dataclass(frozen=True)
class TableKind:
    """How a table is made, what it shows, and the data set that --data has to be."""

    make: Callable[[PaperRequest], PaperTable]
    shows: str
    data: str  # empty: needs none


TABLES = {
    "coco": TableKind(make_coco, "every network: raw, closed form, CCNet, oracle", "COCO"),
    "area": TableKind(make_area, "the closed form with mean, predicted and annotated area", "COCO"),
    "losses": TableKind(make_losses, "CCNet by MSE, CE, Alea, DeepEns and SOAP", "COCO"),
    "ablations": TableKind(
        make_ablations, "CCNet's size, lambda, input features, aggregation over keypoints", "COCO"
    ),
    "mpii": TableKind(make_mpii, "PCKh, AP, AUSE over PCK and over OKS", "MPII"),
    "wholebody": TableKind(
        make_wholebody, "AP of body, feet, face, hands and the whole", "COCO-WholeBody"
    ),
    "3dpw": TableKind(make_3dpw, "SPIN and CLIFF: none, raw, calibrated", "3DPW"),
    "figures": TableKind(
        make_figures, "reliability, visibility, heatmap's maximum, people; bias", "COCO"
    ),
    "cost": TableKind(make_cost, "parameters and GFLOPs with and without CCNet", ""),
    "theory": TableKind(make_theory, "expected OKS and confidence, Eq. 10-19, with curves", ""),
}


def run(request: PaperRequest) -> PaperTable:
    """Make one table, write its files, and print it with the paper's figures beside ours."""
    name = request.out / request.table
    table = TABLES[request.table].make(request)
    table.write_csv(Path(f"{name}.csv"))
    with atomic_file(Path(f"{name}.md")) as path:
        path.write_text(f"{table.title}\n\n{table.as_markdown()}\n")
    print_tables([table.as_rich()])
    console = Console(soft_wrap=True, highlight=False)
    for missing in table.left_out:
        console.print(f"left out: {missing}", markup=False)
    if not any(row.published for row in table.rows):
        console.print("The paper has no figures for these rows.")
    console.print(f"{name}.csv, {name}.md", markup=False)
    return table
