"""The paper's tables of confidence on COCO, MPII and COCO-WholeBody."""

from collections.abc import Mapping
from typing import Any

import pose2d
from ccnet.comparison import PAPER_PARTS
from ccnet.predicted_people import USUAL_SOURCES
from fitmesh.paper.cells import Cells, Found, PaperRequest
from fitmesh.paper.published import Printed, coco_figures, original_source, published
from fitmesh.paper.table import Column, PaperTable, Row, figures
from pose2d.skeletons import COCO17, HALPE26, MPII16, WHOLEBODY133

COCO_COLUMNS = (
    Column("ap", "AP"),
    Column("gain", "AP - raw", 2),
    Column("gain_low", "95 % from", 2),
    Column("gain_high", "to", 2),
    Column("ap50", "AP50"),
    Column("ap75", "AP75"),
    Column("ap_medium", "AP M"),
    Column("ap_large", "AP L"),
    Column("ar", "AR"),
    Column("keypoint_map", "keypoint mAP"),
    Column("keypoint_mar", "keypoint mAR"),
    Column("pearson_person", "Pearson, person", 3),
    Column("pearson_keypoint", "Pearson, keypoint", 3),
    Column("ause", "AUSE, person", 2),
    Column("ause_keypoint", "AUSE, keypoint", 2),
    Column("ece_person", "ECE, person", 3),
    Column("ece_keypoint", "ECE, keypoint", 3),
    Column("bias", "bias, keypoint", 3),
)
BIAS_COLUMNS = (
    Column("bias", "bias", 3),
    Column("mean_confidence", "mean confidence", 3),
    Column("mean_oks", "mean OKS", 3),
    Column("ece_keypoint", "ECE", 3),
)
MPII_COLUMNS = (
    Column("pckh", "PCKh"),
    Column("pckh_0.1", "PCKh@0.1"),
    Column("ap", "AP"),
    Column("ar", "AR"),
    Column("ause_pck", "AUSE over PCK.5", 2),
    Column("ause_pck_0.1", "AUSE over PCK.1", 2),
    Column("pearson_pck", "Pearson with PCK, keypoint", 3),
    Column("ause", "AUSE", 2),
    Column("pearson_keypoint", "Pearson, keypoint", 3),
)
SOURCE_LABELS = {
    "ones": "constant",
    "raw": "raw",
    "raw-mean": "raw, plain mean",
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
BIAS = (
    "bias: mean confidence less mean OKS of labelled keypoints; below 0 the confidence is too low"
)
GAIN = "AP - raw: paired bootstrap over images, 95 % interval"


def coco_row(
    labels: tuple[str, ...],
    measured: Found,
    source: str,
    printed: Mapping[str, float] | None = None,
) -> Row:
    """Return one source's figures of metrics.json under the names of the columns."""
    content = measured["sources"][source]
    person = content["person"]
    keypoint = content["keypoint"]
    gain = measured["intervals"].get(f"{source} - raw", {})
    sizes = ("ap", "ap50", "ap75", "ap_medium", "ap_large", "ar")
    percent = {name: 100 * content[name] for name in sizes if content[name] >= 0}
    ours = figures(
        **percent,
        gain=_percent(gain.get("value")),
        gain_low=_percent(gain.get("low")),
        gain_high=_percent(gain.get("high")),
        keypoint_map=_percent(content["keypoint_map"]),
        keypoint_mar=_percent(content["keypoint_mar"]),
        pearson_person=person["pearson"],
        pearson_keypoint=keypoint["pearson"],
        ause=person["ause"],
        ause_keypoint=keypoint["ause"],
        ece_person=person["ece"],
        ece_keypoint=keypoint["ece"],
        bias=keypoint["mean_confidence"] - keypoint["mean_oks"],
        mean_confidence=keypoint["mean_confidence"],
        mean_oks=keypoint["mean_oks"],
    )
    return Row(labels, ours, printed or {})


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def make_coco(request: PaperRequest) -> PaperTable:
    """Compare every network's own confidence, the closed form, CCNet and the oracle."""
    cells = Cells(request, (COCO17, HALPE26), trains=False)
    with_head = [model.name for model in cells.models if model.head is not None]
    heads = f"heads: trained by the recipe {request.recipe!r}"
    heads += f", except {', '.join(with_head)}: given or embedded" if with_head else ""
    return by_source(cells, "COCO", USUAL_SOURCES, coco_figures(), (BIAS, GAIN, heads))


def make_area(request: PaperRequest) -> PaperTable:
    """Compare the closed form with the mean, a predicted, and the annotated area of a person."""
    sources = (
        "ones",
        "raw",
        "raw-mean",
        "closed-form",
        "closed-form-predicted",
        "closed-form-annotated",
        "oracle",
    )
    cells = Cells(request, (COCO17, HALPE26), trains=True)
    return by_source(cells, "The closed form by area", sources, published("areas"), (BIAS, GAIN))


def by_source(
    cells: Cells,
    title: str,
    sources: tuple[str, ...],
    printed: Printed,
    notes: tuple[str, ...],
    columns: tuple[Column, ...] = COCO_COLUMNS,
) -> PaperTable:
    """Return a table with one row per network and source."""
    rows: list[Row] = []
    for model in cells.models:
        # Only IPR has a score of its heatmap beside its own.
        fitting = tuple(
            name for name in sources if name != "raw-heatmap" or model.name.startswith("ipr")
        )
        measured = cells.evaluated(model, cells.head(model), fitting)
        for source in fitting:
            theirs = printed.get((model.name, source), {})
            rows.append(coco_row((model.name, SOURCE_LABELS[source]), measured, source, theirs))
    title = f"{title}, {describe_data(cells.request, measured)}"
    missing = missing_networks(printed, cells)
    return PaperTable(title, ("network", "confidence"), columns, tuple(rows), missing, notes)


def make_losses(request: PaperRequest) -> PaperTable:
    """Compare heads that differ in their loss only; no flip test."""
    cells = Cells(request, (COCO17, HALPE26), trains=True)
    printed = published("losses")
    rows: list[Row] = []
    for model in cells.models:
        for loss, name in LOSSES.items():
            measured = cells.trained(model, f"{request.recipe}-{loss}", loss=loss, head="paper")[0]
            if not any(row.labels == (model.name, "raw") for row in rows):
                theirs = printed.get((model.name, original_source(model.name)), {})
                rows.append(coco_row((model.name, "raw"), measured, "raw", theirs))
            theirs = printed.get((model.name, loss), {})
            rows.append(coco_row((model.name, name), measured, "ccnet", theirs))
    title = f"Losses, {describe_data(request, measured, flip_test=False)}"
    missing = missing_networks(printed, cells)
    notes = (BIAS, GAIN)
    return PaperTable(title, ("network", "loss"), COCO_COLUMNS, tuple(rows), missing, notes)


def make_mpii(request: PaperRequest) -> PaperTable:
    """Compare how well each confidence predicts PCKh, which itself does not depend on confidence."""
    cells = Cells(request, (MPII16,), trains=True)
    printed = published("mpii")
    rows: list[Row] = []
    for model in cells.models:
        measured = cells.evaluated(model, cells.head(model))
        pck_head = cells.trained(model, f"{request.recipe}-pck", target="pck")[1]
        by_pck = cells.evaluated(model, str(pck_head))
        pckh = {
            name: measured["pckh"][at]["mean"]
            for name, at in (("pckh", "0.5"), ("pckh_0.1", "0.11"))
        }
        for label, source, cell in (
            ("raw", "raw", measured),
            ("closed form", "closed-form", measured),
            ("oracle", "oracle", measured),
            ("CCNet (OKS)", "ccnet", measured),
            ("CCNet (PCK)", "ccnet", by_pck),
        ):
            ours = _mpii_figures(cell["sources"][source]) | (pckh if label == "raw" else {})
            # The paper calibrates with OKS for mAP and with PCK for AUSE over PCK.
            theirs = dict(printed.get((model.name, source), {}))
            shown_keys = {"CCNet (OKS)": ("ap", "ar"), "CCNet (PCK)": ("ause_pck", "ause_pck_0.1")}
            if label in shown_keys:
                theirs = {key: value for key, value in theirs.items() if key in shown_keys[label]}
            rows.append(Row((model.name, label), ours, theirs))
    title = f"MPII, {describe_data(request, measured)}, head sizes: {measured.get('head_sizes')}"
    missing = missing_networks(printed, cells)
    return PaperTable(title, ("network", "confidence"), MPII_COLUMNS, tuple(rows), missing)


def _mpii_figures(content: Mapping[str, Any]) -> dict[str, float]:
    """Return one source's figures on MPII under the names of the columns."""
    return figures(
        **{
            "ap": 100 * content["ap"],
            "ar": 100 * content["ar"],
            "ause_pck": content["pck_person"]["ause"],
            "ause_pck_0.1": content["pck01_person"]["ause"],
            "pearson_pck": content["pck_keypoint"]["pearson"],
            "ause": content["person"]["ause"],
            "pearson_keypoint": content["keypoint"]["pearson"],
        }
    )


def make_wholebody(request: PaperRequest) -> PaperTable:
    """Compare the AP of every part, ranked by one score a person, by the part's own mean score, and
    by CCNet's.
    """
    cells = Cells(request, (WHOLEBODY133,), trains=False)
    printed = published("wholebody")
    rows: list[Row] = []
    for model in cells.models:
        measured = cells.evaluated(model, cells.head(model))
        for label, source, parts, key in (
            ("raw, one score a person", "raw", "parts_by_person", "by-person"),
            ("raw, part by part", "raw", "parts", "by-part"),
            ("CCNet, part by part", "ccnet", "parts", "ccnet"),
            ("oracle, part by part", "oracle", "parts", "oracle"),
        ):
            ap = measured["sources"][source][parts]
            ours = {part: 100 * ap[part] for part in PAPER_PARTS if ap[part] >= 0}
            rows.append(Row((model.name, label), ours, printed.get((model.name, key), {})))
    columns = tuple(Column(part, part.replace("wholebody", "whole")) for part in PAPER_PARTS)
    title = f"COCO-WholeBody, AP, {describe_data(request, measured)}"
    missing = missing_networks(printed, cells)
    return PaperTable(title, ("network", "confidence"), columns, tuple(rows), missing)


def describe_data(request: PaperRequest, measured: Found, flip_test: bool | None = None) -> str:
    """Return people, split, boxes and flip test as text."""
    flip = request.flip_test if flip_test is None else flip_test
    people = f"{measured['people']} people of {measured['split']}"
    return f"{people}, annotated boxes, {'' if flip else 'no '}flip test"


def missing_networks(printed: Printed, cells: Cells) -> tuple[str, ...]:
    """Return the networks of the paper that have no checkpoint here, and how to pass one."""
    present = {model.name for model in cells.models}
    absent = [name for name in dict.fromkeys(name for name, _ in printed) if name not in present]
    return tuple(
        f"{name}: no checkpoint (--checkpoint {name}=FILE, from {pose2d.card(name).source})"
        for name in absent
    )
