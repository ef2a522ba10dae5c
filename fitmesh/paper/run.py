"""`fitmesh paper TABLE`: make a table, print it, leave csv, Markdown and a plot."""

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console

from fitmesh.paper import tables
from fitmesh.paper.cells import PaperRequest
from fitmesh.paper.paper_table import PaperTable
from fitmesh.ui.events import print_tables
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file


@dataclass(frozen=True)
class Entry:
    make: Callable[[PaperRequest], PaperTable]
    shows: str
    data: str  # what --data has to be


TABLES = {
    "coco": Entry(tables.coco, "every network: raw, closed form, CCNet, oracle", "COCO"),
    "area": Entry(tables.area, "the closed form with mean, predicted and annotated area", "COCO"),
    "losses": Entry(tables.losses, "CCNet by MSE, CE, Alea, DeepEns and SOAP", "COCO"),
    "ablations": Entry(tables.ablations, "CCNet's size, its input features, aggregation over keypoints", "COCO"),
    "mpii": Entry(tables.mpii, "PCKh, AP, AUSE over PCK and over OKS", "MPII"),
    "wholebody": Entry(tables.wholebody, "AP of body, feet, face, hands and the whole", "COCO-WholeBody"),
    "3dpw": Entry(tables.three_dpw, "SPIN and CLIFF: none, raw, calibrated", "3DPW"),
    "figures": Entry(tables.bias_figures, "reliability diagrams, bias of each network's confidence", "COCO"),
}


def check_name(name: str) -> None:
    if name not in TABLES:
        raise UserError(f"no table {name!r}: choose {', '.join(TABLES)}, or `fitmesh paper list`.")


def run(name: str, request: PaperRequest) -> PaperTable:
    """Make one table and write its files."""
    check_name(name)
    table = TABLES[name].make(request)
    table.write_csv(request.out / f"{name}.csv")
    with atomic_file(request.out / f"{name}.md") as path:
        path.write_text(f"{table.title}\n\n{table.as_markdown()}\n")
    table.draw(request.out / f"{name}.png")
    return table


def show(name: str, request: PaperRequest, table: PaperTable) -> None:
    """The table, what the paper has beside, and where the files are."""
    print_tables([table.as_rich()])
    console = Console(soft_wrap=True, highlight=False)
    for missing in table.left_out:
        console.print(f"left out: {missing}", markup=False)
    if not any(row.published for row in table.rows):
        console.print("The paper's figures for these rows are not known here.")
    console.print(f"{request.out / name}.csv, .md and .png", markup=False)
