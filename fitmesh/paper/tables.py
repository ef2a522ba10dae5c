"""The paper's tables on COCO, MPII, COCO-WholeBody and 3DPW: made, printed, and left as csv and
Markdown.
"""

import csv
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

import ccnet
import pose2d
from ccnet.coco_ap.average_precision import evaluate
from ccnet.coco_ap.matching import detections
from ccnet.comparison import PAPER_PARTS, rich_table
from ccnet.data.datasets import read_split, usual_split
from ccnet.metrics import calibration
from ccnet.paper.other_features import FEATURES
from ccnet.predicted_people import USUAL_SOURCES, predict_split
from fitmesh.eval_3dpw import pipeline, score_table
from fitmesh.eval_3dpw.eval_settings import EvalSettings
from fitmesh.paper.cells import Cells, Found, GivenModel, PaperRequest
from fitmesh.ui.events import Reporter, on_stderr, print_tables
from pose2d.base.caching import content_digest
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.threads import check_device, default_device, use_threads
from pose2d.skeletons import COCO17, HALPE26, MPII16, WHOLEBODY133

Printed = Mapping[tuple[str, str], Mapping[str, float]]  # model, confidence -> figures


def published(table: str) -> Printed:
    """What the paper prints in one of its tables (published.json)."""
    entries = json.loads(Path(__file__).with_name("published.json").read_text("utf-8"))[table]
    return {
        (name.split()[0], name.split()[1]): figures
        for name, figures in entries.items()
        if name != "about"
    }


PAPER_COCO = published("coco")
PAPER_AREAS = published("areas")
PAPER_LOSSES = published("losses")
PAPER_MPII = published("mpii")
PAPER_3DPW = published("3dpw")


@dataclass(frozen=True)
class Column:
    key: str
    label: str
    digits: int = 1


@dataclass(frozen=True)
class Row:
    """What was measured for one line, and what the paper prints there; a figure that is not there
    has no entry.
    """

    labels: tuple[str, ...]
    ours: Mapping[str, float]
    published: Mapping[str, float] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        return {**self.ours, **{f"paper_{key}": value for key, value in self.published.items()}}


@dataclass(frozen=True)
class PaperTable:
    title: str
    labels: tuple[str, ...]  # names of the rows' labels
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    left_out: tuple[str, ...] = ()  # what the paper has and this table has not, and why
    notes: tuple[str, ...] = ()

    def shown(self) -> list[Column]:
        """Columns with any figure, the paper's beside ours."""
        paper = {c: Column(f"paper_{c.key}", f"{c.label}, paper", c.digits) for c in self.columns}
        return [
            c
            for both in paper.items()
            for c in both
            if any(c.key in row.figures for row in self.rows)
        ]

    def lines(self, exact: bool = False) -> list[list[str]]:
        """Every row as text, its figures rounded or exact; an empty cell where there is no figure."""
        form = {c.key: ".6g" if exact else f".{c.digits}f" for c in self.shown()}
        return [
            [
                *row.labels,
                *(
                    format(row.figures[key], how) if key in row.figures else ""
                    for key, how in form.items()
                ),
            ]
            for row in self.rows
        ]

    def header(self) -> list[str]:
        return [*self.labels, *(column.label for column in self.shown())]

    def as_rich(self) -> RichTable:
        table = rich_table(self.title, self.header(), self.lines(), len(self.labels))
        table.caption = "\n".join(self.notes) or None
        for column in table.columns:
            column.style = "dim" if str(column.header).endswith(", paper") else ""
        return table

    def as_markdown(self) -> str:
        rule = ["---"] * len(self.labels) + ["---:"] * len(self.shown())
        return "\n".join(f"| {' | '.join(line)} |" for line in (self.header(), rule, *self.lines()))

    def write_csv(self, path: Path) -> None:
        with atomic_file(path) as temporary, temporary.open("w", newline="") as file:
            keys = [column.key for column in self.shown()]
            csv.writer(file).writerows([[*self.labels, *keys], *self.lines(exact=True)])


def figures(**values: float | None) -> dict[str, float]:
    """Those that are numbers: None and NaN are no figures."""
    return {
        key: float(value)
        for key, value in values.items()
        if value is not None and not math.isnan(value)
    }


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
BIAS_COLUMNS = (
    Column("bias", "bias", 3),
    Column("mean_confidence", "mean confidence", 3),
    Column("mean_oks", "mean OKS", 3),
    Column("ece_keypoint", "ECE", 3),
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
BIAS = (
    "bias: mean confidence less mean OKS of labelled keypoints; below 0 the confidence is too low"
)


def coco_row(
    labels: tuple[str, ...], source: Mapping[str, Any], published: Mapping[str, float] = {}
) -> Row:
    """One source's figures of metrics.json under the names of COCO_COLUMNS and BIAS_COLUMNS."""
    person = source["person"]
    keypoint = source["keypoint"]
    keypoint_map = source["keypoint_map"]
    ours = figures(
        ap=100 * source["ap"],
        ar=100 * source["ar"],
        keypoint_map=None if keypoint_map is None else 100 * keypoint_map,
        pearson_person=person["pearson"],
        pearson_keypoint=keypoint["pearson"],
        ause=person["ause"],
        ece_person=person["ece"],
        ece_keypoint=keypoint["ece"],
        bias=keypoint["mean_confidence"] - keypoint["mean_oks"],
        mean_confidence=keypoint["mean_confidence"],
        mean_oks=keypoint["mean_oks"],
    )
    return Row(labels, ours, published)


def coco(request: PaperRequest) -> PaperTable:
    """Every network by its own confidence, the closed form, CCNet, and the oracle."""
    cells = Cells(request, (COCO17, HALPE26), trains=False)
    others = [model.name for model in cells.models if model.head is not None]
    heads = f"heads: trained by the recipe {request.recipe!r}"
    heads += f", but for {', '.join(others)}: given or embedded" if others else ""
    return _by_source(cells, "COCO", USUAL_SOURCES, PAPER_COCO, (BIAS, heads))


def area(request: PaperRequest) -> PaperTable:
    """The closed form with the mean, a predicted, and the annotated area of a person."""
    wanted = (
        "ones",
        "raw",
        "closed-form",
        "closed-form-predicted",
        "closed-form-annotated",
        "oracle",
    )
    cells = Cells(request, (COCO17, HALPE26), trains=True)
    return _by_source(cells, "The closed form by area", wanted, PAPER_AREAS, (BIAS,))


def bias_figures(request: PaperRequest) -> PaperTable:
    """Images of every network in OUT/figures/NAME, and the bias of every confidence in one table."""
    cells = Cells(request, (COCO17, HALPE26), trains=False)
    folder = request.out / "figures"
    notes = (BIAS, f"images: {folder}/NAME/ (reliability, precision and recall, sparsification)")
    drawn = tuple(name for name in USUAL_SOURCES if name not in ("ones", "oracle"))
    return _by_source(
        cells, "Bias of confidence in keypoints", drawn, {}, notes, BIAS_COLUMNS, folder
    )


def _by_source(
    cells: Cells,
    title: str,
    wanted: tuple[str, ...],
    printed: Printed,
    notes: tuple[str, ...],
    columns: tuple[Column, ...] = COCO_COLUMNS,
    plots: Path | None = None,
) -> PaperTable:
    rows: list[Row] = []
    for model in cells.models:
        # Only IPR has a score of its heatmap beside its own.
        sources = tuple(
            name for name in wanted if name != "raw-heatmap" or model.name.startswith("ipr")
        )
        measured = cells.evaluated(model, cells.head(model), sources, plots and plots / model.name)
        for source in sources:
            published = printed.get((model.name, source), {})
            rows.append(
                coco_row((model.name, NAMES[source]), measured["sources"][source], published)
            )
    title = f"{title}, {_where(cells.request, measured)}"
    return PaperTable(
        title, ("network", "confidence"), columns, tuple(rows), _not_given(printed, cells), notes
    )


def losses(request: PaperRequest) -> PaperTable:
    """One head a loss, all else as in the recipe; no flip test."""
    cells = Cells(request, (COCO17, HALPE26), trains=True)
    rows: list[Row] = []
    for model in cells.models:
        for loss, name in LOSSES.items():
            measured = cells.trained(model, f"{request.recipe}-{loss}", loss=loss, head="paper")[0]
            shown = {"raw": ("raw", "raw")} if loss == next(iter(LOSSES)) else {}
            for source, (label, key) in {**shown, "ccnet": (name, loss)}.items():
                published = PAPER_LOSSES.get((model.name, key), {})
                rows.append(coco_row((model.name, label), measured["sources"][source], published))
    title = f"Losses, {_where(request, measured, flip_test=False)}"
    left_out = _not_given(PAPER_LOSSES, cells)
    return PaperTable(title, ("network", "loss"), COCO_COLUMNS, tuple(rows), left_out, (BIAS,))


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
        measured = cells.evaluated(model, cells.head(model))
        by_pck = cells.evaluated(
            model, str(cells.trained(model, f"{request.recipe}-pck", target="pck")[1])
        )
        pckh = {
            "pckh": measured["pckh"]["0.5"]["mean"],
            "pckh_0.1": measured["pckh"]["0.11"]["mean"],
        }
        for label, source, cell in (
            ("raw", "raw", measured),
            ("closed form", "closed-form", measured),
            ("oracle", "oracle", measured),
            ("CCNet (OKS)", "ccnet", measured),
            ("CCNet (PCK)", "ccnet", by_pck),
        ):
            of = cell["sources"][source]
            ours = figures(
                ap=100 * of["ap"],
                ause_pck=of["pck_person"]["ause"],
                pearson_pck=of["pck_keypoint"]["pearson"],
                ause=of["person"]["ause"],
                pearson_keypoint=of["keypoint"]["pearson"],
                **(pckh if label == "raw" else {}),
            )
            rows.append(Row((model.name, label), ours, PAPER_MPII.get((model.name, label), {})))
    title = f"MPII, {_where(request, measured)}, head sizes: {measured.get('head_sizes')}"
    return PaperTable(
        title, ("network", "confidence"), MPII_COLUMNS, tuple(rows), _not_given(PAPER_MPII, cells)
    )


def wholebody(request: PaperRequest) -> PaperTable:
    """AP of every part: ranked by one score a person, by the part's own mean score, and by CCNet's."""
    cells = Cells(request, (WHOLEBODY133,), trains=False)
    rows: list[Row] = []
    for model in cells.models:
        measured = cells.evaluated(model, cells.head(model))
        for label, source, parts in (
            ("raw, one score a person", "raw", "parts_by_person"),
            ("raw, part by part", "raw", "parts"),
            ("CCNet, part by part", "ccnet", "parts"),
            ("oracle, part by part", "oracle", "parts"),
        ):
            of = measured["sources"][source][parts]
            rows.append(
                Row(
                    (model.name, label),
                    {part: 100 * of[part] for part in PAPER_PARTS if of[part] >= 0},
                )
            )
    columns = tuple(Column(part, part.replace("wholebody", "whole")) for part in PAPER_PARTS)
    title = f"COCO-WholeBody, AP, {_where(request, measured)}"
    return PaperTable(title, ("network", "confidence"), columns, tuple(rows))


def _where(request: PaperRequest, measured: Found, flip_test: bool | None = None) -> str:
    flip = request.flip_test if flip_test is None else flip_test
    return f"{measured['people']} people of {measured['split']}, annotated boxes, {'' if flip else 'no '}flip test"


def _not_given(printed: Printed, cells: Cells) -> tuple[str, ...]:
    given = {model.name for model in cells.models}
    absent = [name for name in dict.fromkeys(name for name, _ in printed) if name not in given]
    return tuple(
        f"{name}: no checkpoint (--checkpoint {name}=FILE, from {pose2d.card(name).source})"
        for name in absent
    )


COLUMNS = (Column("pa_mpjpe_mm", "PA-MPJPE"), Column("mpjpe_mm", "MPJPE"), Column("mve_mm", "MVE"))
WANTED = ("spin", "cliff")


def three_dpw(request: PaperRequest) -> PaperTable:
    """The weight of a keypoint is its confidence. Sequences that are finished are kept in OUT/3dpw."""
    if len(request.models) != 1:
        raise UserError(
            "the table on 3DPW needs one 2D network: --model NAME, or --checkpoint NAME=FILE and --head."
        )
    (network,) = request.models
    if network.head is None:
        raise UserError(
            f"no calibration head for {network.name}: train one with `fitmesh train-ccnet`, pass --head."
        )
    use_threads(request.threads)
    starts: dict[str, Path | None] = {**request.starts} or {"lifter": None}
    rows = []
    for start, checkpoint in starts.items():
        settings = EvalSettings(
            data=request.data,
            body_model=request.body_model,
            regressor=request.regressor,
            every=request.every,
            init=start,
            checkpoint=checkpoint,
            pose_model=network.name,
            pose_checkpoint=network.checkpoint,
            ccnet=None if network.head == network.name else Path(network.head),
            confidence=("raw", "ccnet"),
            weighting=("confidence",),
            single_frames=True,
        )
        outcome = pipeline.run(settings, request.out / "3dpw" / start, Reporter(on_stderr()))
        labels = {
            settings.start_label(None): "none",
            "+ raw confidence": "raw",
            "+ CCNet confidence": "calibrated",
        }
        for line in score_table.lines(outcome.scores, outcome.base):
            ours = figures(**{column.key: line.mean[column.key].value for column in COLUMNS})
            published = PAPER_3DPW.get((start.split("-")[0], labels[line.label]), {})
            rows.append(Row((start, labels[line.label]), ours, published))
    absent = [
        name for name in WANTED if not any(start.startswith(name) for start in request.starts)
    ]
    left_out = tuple(
        f"{name}: no checkpoint (--checkpoint {name}=FILE, docs/initialisers.md)" for name in absent
    )
    title = f"3DPW, mm, {len(outcome.scores):,} person-frames, keypoints by {network.name}, single frames"
    return PaperTable(title, ("start", "confidence"), COLUMNS, tuple(rows), left_out)


WIDTHS = (64, 256, 1024)  # of a hidden layer; the paper's head has none
COPY_RATE = 1e-4  # a trained trunk takes small steps

# [N, K] confidence, [N, K] presence -> [N]
AGGREGATIONS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "sum(v s) / sum(v), the paper's": lambda s, v: (v * s).sum(1) / np.maximum(v.sum(1), 1e-6),
    "mean of s": lambda s, v: s.mean(1),
    "mean of s where v > 0.5": lambda s, v: (
        np.where(v > 0.5, s, 0).sum(1) / np.maximum((v > 0.5).sum(1), 1)
    ),
    "mean of v s": lambda s, v: (v * s).mean(1),
    "geometric mean of s": lambda s, v: np.exp(np.log(np.maximum(s, 1e-6)).mean(1)),
    "largest s": lambda s, v: s.max(1),
    "mean + largest, RLE's": lambda s, v: (s.mean(1) + s.max(1)) / 2,
}


def ablations(request: PaperRequest) -> PaperTable:
    """Heads trained by the recipe but for one thing; no flip test."""
    cells = Cells(request, (COCO17,), trains=True)
    rows = []
    left_out = []
    for model in cells.models:
        base, head = cells.trained(model, f"{request.recipe}-one-layer", head="paper")
        own = base["sources"]
        rows.append(coco_row((model.name, "", "raw confidence"), own["raw"]))
        rows.append(coco_row((model.name, "", "the recipe, one layer"), own["ccnet"]))
        changes: list[tuple[str, str, str, dict[str, Any]]] = [
            ("head size", f"hidden layer of {width}", f"width-{width}", {"head_width": width})
            for width in WIDTHS
        ]
        for kind in FEATURES[1:]:
            rate = {"learning_rate": COPY_RATE} if kind == "copy" else {}
            changes.append(("features", kind, kind, {"features": kind, **rate}))
        for what, value, label, given in changes:
            try:
                measured, _ = cells.trained(
                    model, f"{request.recipe}-{label}", head="paper", **given
                )
            except UserError as error:
                left_out.append(f"{model.name}, {what} {value}: {error}")
            else:
                rows.append(coco_row((model.name, what, value), measured["sources"]["ccnet"]))
        path = request.out / "cells" / f"aggregation-{model.name}.json"
        ways = {"ways": list(AGGREGATIONS), "head": content_digest([head])}
        by_name = cells.cached(
            path, model, ways, __name__, partial(_aggregations, request, model, head)
        )
        rows += [
            Row((model.name, "aggregation", name), figures(**of)) for name, of in by_name.items()
        ]
        rows.append(coco_row((model.name, "", "oracle"), own["oracle"]))
    title = f"Ablations, {base['people']} people of {base['split']}, annotated boxes, no flip test"
    columns = ("network", "changed", "to")
    return PaperTable(title, columns, COCO_COLUMNS, tuple(rows), tuple(left_out), (BIAS,))


def _aggregations(request: PaperRequest, model: GivenModel, head_file: Path) -> Found:
    """By name: the figures of COCO_COLUMNS that depend on the person's confidence."""
    device = request.device or default_device()
    check_device(device)
    network = pose2d.load(model.name, model.checkpoint).to(device)
    head = ccnet.load(head_file).to(device)
    split = read_split(
        request.data, request.test or usual_split("test", network.skeleton), network.skeleton
    )
    predictions = predict_split(network, head, split)
    stated = predictions.confidence["ccnet"]
    by_name = {}
    for name, aggregate in AGGREGATIONS.items():
        score = aggregate(stated.keypoint, stated.presence)
        ranked = detections(predictions.image, predictions.xy_px, score)
        ap = evaluate(split.truth, ranked, predictions.skeleton.oks_sigma)
        person = calibration(score, predictions.oks)
        by_name[name] = {
            "ap": 100 * ap.ap,
            "ar": 100 * ap.ar,
            "pearson_person": person["pearson"],
            "ause": person["ause"],
            "ece_person": person["ece"],
        }
    return by_name


# By name: how it is made, what it shows, and what --data has to be.
TABLES: Mapping[str, tuple[Callable[[PaperRequest], PaperTable], str, str]] = {
    "coco": (coco, "every network: raw, closed form, CCNet, oracle", "COCO"),
    "area": (area, "the closed form with mean, predicted and annotated area", "COCO"),
    "losses": (losses, "CCNet by MSE, CE, Alea, DeepEns and SOAP", "COCO"),
    "ablations": (
        ablations,
        "CCNet's size, its input features, aggregation over keypoints",
        "COCO",
    ),
    "mpii": (mpii, "PCKh, AP, AUSE over PCK and over OKS", "MPII"),
    "wholebody": (wholebody, "AP of body, feet, face, hands and the whole", "COCO-WholeBody"),
    "3dpw": (three_dpw, "SPIN and CLIFF: none, raw, calibrated", "3DPW"),
    "figures": (bias_figures, "reliability diagrams, bias of each network's confidence", "COCO"),
}


def run(request: PaperRequest) -> PaperTable:
    """Make one table, write its files, and print it with what the paper has beside."""
    name = request.out / request.table
    table = TABLES[request.table][0](request)
    table.write_csv(Path(f"{name}.csv"))
    with atomic_file(Path(f"{name}.md")) as path:
        path.write_text(f"{table.title}\n\n{table.as_markdown()}\n")
    print_tables([table.as_rich()])
    console = Console(soft_wrap=True, highlight=False)
    for missing in table.left_out:
        console.print(f"left out: {missing}", markup=False)
    if not any(row.published for row in table.rows):
        console.print("The paper's figures for these rows are not known here.")
    console.print(f"{name}.csv, {name}.md", markup=False)
    return table
