"""The paper's columns of parameters and GFLOPs, with and without CCNet. Needs no data."""

import torch

from ccnet.heads.kinds import build, paper_kind
from ccnet.paper.operations import count_operations, count_parameters
from fitmesh.paper.cells import PaperRequest
from fitmesh.paper.published import original_source, published
from fitmesh.paper.table import Column, PaperTable, Row
from pose2d.models.registry import card

COLUMNS = (
    Column("params_m", "parameters, M", 2),
    Column("gflops", "GFLOPs", 2),
    Column("added_m", "CCNet adds, M", 3),
    Column("added_gflops", "CCNet adds, GFLOPs", 4),
)
NOTE = (
    "GFLOPs: multiply-adds of convolutions and linear layers, and the elements of "
    "normalisation, activation and pooling, for one crop"
)


def make_cost(request: PaperRequest) -> PaperTable:
    """Count parameters and operations of the paper's networks, or of those in the request."""
    printed = published("coco")
    named = tuple(model.name for model in request.models)
    rows = []
    for name in named or dict.fromkeys(network for network, _ in printed):
        with torch.device("meta"):  # shapes are enough to count
            network = card(name).build().eval()
        operations, features = count_operations(network)
        parameters = count_parameters(network)
        with torch.device("meta"):
            head = build(network, paper_kind(network))
        head_operations, _ = count_operations(head, features)
        added = count_parameters(head)
        own = {"params_m": parameters / 1e6, "gflops": operations / 1e9}
        rows.append(Row((name, "network"), own, _cost(printed.get((name, original_source(name))))))
        with_head = {
            "params_m": (parameters + added) / 1e6,
            "gflops": (operations + head_operations) / 1e9,
            "added_m": added / 1e6,
            "added_gflops": head_operations / 1e9,
        }
        rows.append(Row((name, "+ CCNet"), with_head, _cost(printed.get((name, "ccnet")))))
    title = "Parameters and operations for one crop"
    return PaperTable(title, ("network", "part"), COLUMNS, tuple(rows), notes=(NOTE,))


def _cost(printed: object) -> dict[str, float]:
    figures = printed if isinstance(printed, dict) else {}
    return {key: figures[key] for key in ("params_m", "gflops") if key in figures}
