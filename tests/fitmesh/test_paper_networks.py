"""The main table runs end to end for every family of the paper, on random weights: this shows that
the code runs, not what the networks would reach."""

import csv

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import pose2d
from fitmesh.cli import app
from tests.ccnet.toy import write_coco

FAMILIES = (
    "sbl-resnet50-256x192",
    "hrnet-w32-256x192",
    "vitpose-b",
    "rle-resnet50-256x192",
    "rle-hrnet-w32-256x192",
    "poseur-resnet50-256x192",
    "ipr-resnet50-256x192",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_the_main_table_runs_on_random_weights(name, tmp_path):
    write_coco(tmp_path / "coco", "train2017", count=1, people=2)
    write_coco(tmp_path / "coco", "val2017", count=1, people=2, seed=1)
    torch.manual_seed(0)
    checkpoint = tmp_path / f"{name}.safetensors"
    state = pose2d.card(name).build().state_dict()
    save_file({key: value.contiguous() for key, value in state.items()}, checkpoint)
    del state
    arguments = ["paper", "coco", "--data", tmp_path / "coco", "--out", tmp_path / "out"]
    arguments += ["--checkpoint", f"{name}={checkpoint}", "--device", "cpu", "--threads", 1]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    with (tmp_path / "out" / "coco.csv").open() as file:
        rows = {row["confidence"]: row for row in csv.DictReader(file)}
    assert {"raw", "closed form", "CCNet", "oracle"} <= set(rows)
    assert float(rows["oracle"]["ap"]) == pytest.approx(float(rows["oracle"]["ar"]), abs=1.5)
    published = "raw, plain mean" if name.startswith(("rle", "poseur")) else "raw"
    assert float(rows[published]["paper_ap"]) > 60
    checkpoint.unlink()
