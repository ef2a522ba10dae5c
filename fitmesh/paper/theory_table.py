"""The paper's analysis in numbers and curves (Eq. 10 to 19 and the supplement). Needs no data."""

from ccnet.comparison import check_plots
from ccnet.paper import theory
from fitmesh.paper.cells import PaperRequest
from fitmesh.paper.table import Column, PaperTable, Row

COLUMNS = (
    Column("oks", "E[OKS]", 3),
    Column("heatmap", "heatmap's maximum", 3),
    Column("regression", "1 - sigma", 3),
    Column("laplace", "1 - b, Laplace", 3),
)
SIGMAS = (0.0, 0.5, 1.0, 2.0, 4.0)  # of the true place, cells
OFFSETS = (0.0, 1.0, 2.0, 4.0)  # of the prediction, cells
LENGTH = 2.0  # of OKS, and of the heatmap's target, cells
CROP = 48.0  # cells: RLE's sigma is a share of the crop


def make_theory(request: PaperRequest) -> PaperTable:
    """Tabulate expected OKS and confidence by sigma and offset, and draw OUT/theory.png."""
    check_plots()
    from ccnet.paper.plots import draw_theory

    image = request.out / "theory.png"
    draw_theory(image)
    rows = []
    for sigma in SIGMAS:
        for offset in OFFSETS:
            figures = {
                "oks": float(theory.expected_oks(sigma, LENGTH, offset)),
                "heatmap": float(theory.imperfect_heatmap_confidence(sigma, LENGTH, offset)),
                "regression": float(
                    theory.imperfect_regression_confidence(sigma / CROP, offset / CROP)
                ),
            }
            if offset == 0:
                figures["laplace"] = float(theory.laplace_confidence(sigma / CROP))
            rows.append(Row((f"{sigma:g}", f"{offset:g}"), figures))
    title = (
        f"Expected OKS (l = {LENGTH:g} cells) and expected confidence (target of the same width)"
    )
    labels = ("sigma, cells", "offset, cells")
    return PaperTable(title, labels, COLUMNS, tuple(rows), notes=(f"curves: {image}",))
