"""The paper's tables on COCO, MPII and COCO-WholeBody."""

from collections.abc import Mapping
from typing import Any

import pose2d
from ccnet.comparison import PAPER_PARTS
from ccnet.predicted_people import USUAL_SOURCES
from fitmesh.paper import published
from fitmesh.paper.cells import Cells, Found
from fitmesh.paper.paper_request import GivenModel, PaperRequest
from fitmesh.paper.paper_table import Column, PaperTable, Row, figures
from pose2d.skeletons import COCO17, HALPE26, MPII16, WHOLEBODY133

COCO_COLUMNS = (
    Column("ap", "AP"),
    Column("ar", "AR"),
    Column("keypoint_map", "keypoint mAP"),
    Column("pearson_person", "Pearson, person", 3),
    Column("pearson_keypoint", "Pearson, keypoint", 3),
    Column("ause", "AUSE", 2),
    Column("ece_person", "ECE, person", 3),
    Column("ece_keypoint", "ECE, keypoint", 3),
    Column("bias", "bias, keypoint", 3),
)
NAMES = {
    "ones": "constant",
    "raw": "raw",
    "raw-heatmap": "raw (heatmap)",
    "closed-form": "closed form",
    "closed-form-predicted": "closed form, predicted area",
    "closed-form-annotated": "closed form, annotated area",
    "ccnet": "CCNet",
    "oracle": "oracle",
}
LOSSES = {
    "mse": "MSE",
    "cross-entropy": "CE",
    "aleatoric": "Alea",
    "ensemble": "DeepEns",
    "soap": "SOAP",
}
BIAS = "bias: mean confidence less mean OKS of labelled keypoints; below 0 the confidence is too low"


def coco_figures(source: Mapping[str, Any]) -> dict[str, float]:
    """One source's figures of metrics.json under the names of COCO_COLUMNS."""
    person, keypoint = source["person"], source["keypoint"]
    return figures(
        ap=100 * source["ap"],
        ar=100 * source["ar"],
        keypoint_map=None if source["keypoint_map"] is None else 100 * source["keypoint_map"],
        pearson_person=person["pearson"],
        pearson_keypoint=keypoint["pearson"],
        ause=person["ause"],
        ece_person=person["ece"],
        ece_keypoint=keypoint["ece"],
        bias=keypoint["mean_confidence"] - keypoint["mean_oks"],
    )


def coco(request: PaperRequest) -> PaperTable:
    """Every network by its own confidence, the closed form, CCNet, and the oracle."""
    cells = Cells(request, (COCO17, HALPE26), trains=False)
    rows: list[Row] = []
    for model in cells.models:
        found = cells.evaluated(model, cells.head(model), tuple(s for s in USUAL_SOURCES if _has(model, s)))
        rows += _rows(model, found, published.COCO)
    return PaperTable(
        "coco",
        f"COCO, {_where(request, found)}",
        ("network", "confidence"),
        COCO_COLUMNS,
        tuple(rows),
        _not_given(published.COCO, cells),
        (BIAS, *_heads(cells)),
    )


def area(request: PaperRequest) -> PaperTable:
    """The closed form with the mean, a predicted, and the annotated area of a person."""
    cells = Cells(request, (COCO17, HALPE26), trains=True)
    wanted = ("ones", "raw", "closed-form", "closed-form-predicted", "closed-form-annotated", "oracle")
    rows: list[Row] = []
    for model in cells.models:
        found = cells.evaluated(model, cells.head(model), wanted)
        rows += _rows(model, found, published.AREAS)
    title = f"The closed form by area, {_where(request, found)}"
    left_out = _not_given(published.AREAS, cells)
    return PaperTable("area", title, ("network", "confidence"), COCO_COLUMNS, tuple(rows), left_out, (BIAS,))


def losses(request: PaperRequest) -> PaperTable:
    """One head a loss, all else as in the recipe; no flip test."""
    cells = Cells(request, (COCO17, HALPE26), trains=True)
    rows: list[Row] = []
    for model in cells.models:
        for loss, name in LOSSES.items():
            found = cells.trained(model, f"{request.recipe}-{loss}", loss=loss, head="paper")[0]
            if not any(row.labels[0] == model.name for row in rows):
                rows.append(_row(model, "raw", "raw", found, published.LOSSES))
            rows.append(_row(model, "ccnet", name, found, published.LOSSES, loss))
    title = f"Losses, {_where(request, found, flip_test=False)}"
    left_out = _not_given(published.LOSSES, cells)
    return PaperTable("losses", title, ("network", "loss"), COCO_COLUMNS, tuple(rows), left_out, (BIAS,))


MPII_COLUMNS = (
    Column("pckh", "PCKh"),
    Column("pckh_0.1", "PCKh@0.1"),
    Column("ap", "AP"),
    Column("ause_pck", "AUSE over PCK", 2),
    Column("pearson_pck", "Pearson with PCK, keypoint", 3),
    Column("ause", "AUSE", 2),
    Column("pearson_keypoint", "Pearson, keypoint", 3),
)


def mpii(request: PaperRequest) -> PaperTable:
    """PCKh, which no confidence changes, and how well each confidence tells right from wrong."""
    cells = Cells(request, (MPII16,), trains=True)
    rows: list[Row] = []
    for model in cells.models:
        heads = {"CCNet (OKS)": cells.head(model)}
        heads["CCNet (PCK)"] = str(cells.trained(model, f"{request.recipe}-pck", target="pck")[1])
        for name, head in heads.items():
            found = cells.evaluated(model, head)
            first = name == next(iter(heads))
            shown = {"raw": "raw", "closed-form": "closed form", "oracle": "oracle"} if first else {}
            for source, label in (*shown.items(), ("ccnet", name)):
                rows.append(_mpii_row(model, source, label, found))
    title = f"MPII, {_where(request, found)}, head sizes: {found.get('head_sizes')}"
    left_out = _not_given(published.MPII, cells)
    return PaperTable("mpii", title, ("network", "confidence"), MPII_COLUMNS, tuple(rows), left_out)


def _mpii_row(model: GivenModel, source: str, label: str, found: Found) -> Row:
    of = found["sources"][source]
    pckh = {"pckh": found["pckh"]["0.5"]["mean"], "pckh_0.1": found["pckh"]["0.11"]["mean"]} if source == "raw" else {}
    ours = figures(
        ap=100 * of["ap"],
        ause_pck=of["pck_person"]["ause"],
        pearson_pck=of["pck_keypoint"]["pearson"],
        ause=of["person"]["ause"],
        pearson_keypoint=of["keypoint"]["pearson"],
        **pckh,
    )
    return Row((model.name, label), ours, published.MPII.get((model.name, source), {}))


def wholebody(request: PaperRequest) -> PaperTable:
    """AP of every part: ranked by one score a person, by the part's own mean score, and by CCNet's."""
    cells = Cells(request, (WHOLEBODY133,), trains=False)
    rows: list[Row] = []
    for model in cells.models:
        found = cells.evaluated(model, cells.head(model))
        for label, source, parts in (
            ("raw, one score a person", "raw", "parts_by_person"),
            ("raw, part by part", "raw", "parts"),
            ("CCNet, part by part", "ccnet", "parts"),
            ("oracle, part by part", "oracle", "parts"),
        ):
            of = found["sources"][source][parts]
            rows.append(Row((model.name, label), {part: 100 * of[part] for part in PAPER_PARTS if of[part] >= 0}, {}))
    columns = tuple(Column(part, part.replace("wholebody", "whole")) for part in PAPER_PARTS)
    title = f"COCO-WholeBody, AP, {_where(request, found)}"
    return PaperTable("wholebody", title, ("network", "confidence"), columns, tuple(rows))


def _rows(model: GivenModel, found: Found, printed: Mapping[tuple[str, str], published.Figures]) -> list[Row]:
    return [_row(model, source, NAMES[source], found, printed) for source in found["sources"]]


def _row(
    model: GivenModel,
    source: str,
    label: str,
    found: Found,
    printed: Mapping[tuple[str, str], published.Figures],
    key: str = "",
) -> Row:
    return Row(
        (model.name, label), coco_figures(found["sources"][source]), printed.get((model.name, key or source), {})
    )


def _has(model: GivenModel, source: str) -> bool:
    """Whether a network has this confidence: only IPR has a score of its heatmap beside its own."""
    return source != "raw-heatmap" or model.name.startswith("ipr")


def _where(request: PaperRequest, found: Found, flip_test: bool | None = None) -> str:
    flip = request.flip_test if flip_test is None else flip_test
    return f"{found['people']} people of {found['split']}, annotated boxes, {'' if flip else 'no '}flip test"


def _not_given(printed: Mapping[tuple[str, str], Any], cells: Cells) -> tuple[str, ...]:
    given = {model.name for model in cells.models}
    absent = [name for name in dict.fromkeys(name for name, _ in printed) if name not in given]
    return tuple(
        f"{name}: no checkpoint (--checkpoint {name}=FILE, from {pose2d.card(name).source})" for name in absent
    )


def _heads(cells: Cells) -> tuple[str, ...]:
    """Whose heads were not trained by the recipe."""
    others = [model.name for model in cells.models if model.head is not None]
    mine = f"heads: trained by the recipe {cells.request.recipe!r}"
    return (f"{mine}, but for {', '.join(others)}: given or embedded" if others else mine,)
