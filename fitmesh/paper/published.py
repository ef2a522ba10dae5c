"""The figures that the paper prints (published.json), by table, network and confidence."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

Printed = Mapping[tuple[str, str], Mapping[str, float]]  # (network, confidence) -> figures


@cache
def published(table: str) -> Printed:
    """Return the figures of one table of the paper."""
    entries = json.loads(Path(__file__).with_name("published.json").read_text("utf-8"))[table]
    rows = {name: figures for name, figures in entries.items() if name != "about"}
    return {(name.split()[0], name.split()[1]): figures for name, figures in rows.items()}


def coco_figures() -> Printed:
    """Return the figures on COCO, of the main table and of the table of other metrics."""
    figures: dict[tuple[str, str], Mapping[str, float]] = dict(published("coco"))
    for row, metrics in published("metrics").items():
        figures[row] = {**figures.get(row, {}), **metrics}
    return figures


def original_source(network: str) -> str:
    """Return the confidence that the paper calls "Orig" for a network: the plain mean for RLE and
    Poseur, else the mean over keypoints above the threshold (Eq. 5).
    """
    return "raw-mean" if network.startswith(("rle", "poseur")) else "raw"
