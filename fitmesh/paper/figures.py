"""The paper's figures: reliability diagrams, and how far each network's own confidence is off."""

from ccnet.predicted_people import USUAL_SOURCES
from fitmesh.paper.cells import Cells
from fitmesh.paper.coco_tables import NAMES
from fitmesh.paper.paper_request import PaperRequest
from fitmesh.paper.paper_table import Column, PaperTable, Row
from fitmesh.paper.paper_table import figures as numbers
from pose2d.skeletons import COCO17, HALPE26

COLUMNS = (
    Column("bias", "bias", 3),
    Column("mean_confidence", "mean confidence", 3),
    Column("mean_oks", "mean OKS", 3),
    Column("ece", "ECE", 3),
)
DRAWN = tuple(name for name in USUAL_SOURCES if name not in ("ones", "oracle"))


def figures(request: PaperRequest) -> PaperTable:
    """Images of every network in OUT/figures/NAME, and the bias of every confidence in one table."""
    cells = Cells(request, (COCO17, HALPE26), trains=False)
    rows = []
    for model in cells.models:
        wanted = tuple(name for name in DRAWN if name != "raw-heatmap" or model.name.startswith("ipr"))
        found = cells.evaluated(model, cells.head(model), wanted, plots=request.out / "figures" / model.name)
        for source in wanted:
            of = found["sources"][source]["keypoint"]
            bias = of["mean_confidence"] - of["mean_oks"]
            ours = numbers(bias=bias, mean_confidence=of["mean_confidence"], mean_oks=of["mean_oks"], ece=of["ece"])
            rows.append(Row((model.name, NAMES[source]), ours, {}))
    return PaperTable(
        "figures",
        f"Bias of confidence: {found['people']} people of {found['split']}, labelled keypoints",
        ("network", "confidence"),
        COLUMNS,
        tuple(rows),
        notes=(f"images: {request.out / 'figures'}/NAME/ (reliability, precision and recall, sparsification)",),
    )
