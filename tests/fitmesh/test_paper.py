"""`fitmesh paper`: tables from small data in the official layouts and random checkpoints."""

import csv
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import ccnet
import pose2d
from fitmesh.cli import app
from fitmesh.coco import eval_coco, train_ccnet
from fitmesh.paper.ablations import AGGREGATIONS, PRESENCE_WEIGHTS
from fitmesh.paper.published import coco_figures, published
from fitmesh.paper.table import Column, PaperTable, Row
from fitmesh.paper.tables import TABLES
from pose2d.base.errors import UserError
from pose2d.models.cards import ModelCard
from pose2d.skeletons import MPII16, WHOLEBODY133
from tests.ccnet.toy import toy_model, write_coco, write_mpii, write_wholebody
from tests.eval3dpw import tiny_3dpw

SBL = "sbl-r18-128x96"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("coco")
    write_coco(root, "train2017", count=2)
    write_coco(root, "val2017", count=2, seed=1)
    return root


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("weights")
    found = {}
    for name in (SBL, "ipr-r18-128x96", "rle-r18-128x96"):
        torch.manual_seed(0)
        save_file(pose2d.card(name).build().state_dict(), folder / f"{name}.safetensors")
        found[name] = folder / f"{name}.safetensors"
    return found


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["paper", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.output


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_list_has_every_table():
    shown = call("list")
    assert all(name in shown for name in TABLES)


def test_published_figures_are_of_networks_that_can_be_loaded():
    for table in ("coco", "metrics", "areas", "losses", "mpii", "wholebody"):
        for name, _ in published(table):
            assert pose2d.card(name).name == name


def test_published_figures_are_complete_and_consistent():
    """Every row of the main table has eight figures; AR does not depend on confidence."""
    main = published("coco")
    assert len(main) == 23
    assert all(len(figures) == 8 for figures in main.values())
    for name in {network for network, _ in main}:
        assert (
            len({figures["ar"] for (network, _), figures in main.items() if network == name}) == 1
        )
        gains = [f["ap"] for (network, _), f in main.items() if network == name]
        assert gains == sorted(gains)  # CCNet comes last, and gains everywhere
    assert coco_figures()["sbl-resnet50-256x192", "raw"]["ause_keypoint"] == 6.47
    assert published("3dpw")["spin", "calibrated"]["pa_mpjpe_mm"] == 57.8
    assert published("wholebody")["poseur-resnet50-256x192-wholebody", "ccnet"]["wholebody"] == 63.3
    assert published("mpii")["rle-resnet50-256x256-mpii", "ccnet"]["ause_pck_0.1"] == 1.49


def test_parameters_and_operations_are_the_papers(tmp_path):
    """+0.08 M and +0.06 GFLOPs for heatmaps of 256 channels."""
    call("cost", "--out", tmp_path)
    rows = {(row["network"], row["part"]): row for row in rows_of(tmp_path / "cost.csv")}
    for name in ("sbl-resnet50-256x192", "vitpose-b", "rle-resnet50-256x192"):
        own = rows[name, "network"]
        assert float(own["params_m"]) == pytest.approx(float(own["paper_params_m"]), abs=0.06)
    sbl = rows["sbl-resnet50-256x192", "+ CCNet"]
    assert float(sbl["added_m"]) == pytest.approx(0.078, abs=0.001)
    assert float(sbl["added_gflops"]) == pytest.approx(0.060, abs=0.001)
    assert float(sbl["gflops"]) == pytest.approx(float(sbl["paper_gflops"]), abs=0.1)


def test_the_analysis_is_tabulated_and_drawn(tmp_path):
    call("theory", "--out", tmp_path)
    rows = rows_of(tmp_path / "theory.csv")
    perfect = next(row for row in rows if row["sigma, cells"] == row["offset, cells"] == "0")
    assert float(perfect["oks"]) == float(perfect["heatmap"]) == 1
    assert (tmp_path / "theory.png").stat().st_size > 10_000


def test_a_column_of_published_figures_stands_beside_ours_where_there_is_one(tmp_path):
    rows = (
        Row(("a", "raw"), {"ap": 1.0, "ar": 2.0}, {"ap": 3.0}),
        Row(("a", "ccnet"), {"ap": 4.0}, {}),
    )
    table = PaperTable(
        "X", ("network", "confidence"), (Column("ap", "AP"), Column("ar", "AR")), rows
    )
    assert table.as_markdown().splitlines() == [
        "| network | confidence | AP | AP, paper | AR |",
        "| --- | --- | ---: | ---: | ---: |",
        "| a | raw | 1.0 | 3.0 | 2.0 |",
        "| a | ccnet | 4.0 |  |  |",
    ]
    table.write_csv(tmp_path / "x.csv")
    assert rows_of(tmp_path / "x.csv")[0] == {
        "network": "a",
        "confidence": "raw",
        "ap": "1",
        "paper_ap": "3",
        "ar": "2",
    }


@pytest.mark.slow
def test_the_main_table_trains_heads_says_what_is_missing_and_resumes(
    data, weights, tmp_path, monkeypatch
):
    options = ["coco", "--data", data, "--out", tmp_path, "--threads", 1, "--device", "cpu"]
    for name, path in weights.items():
        options += ["--checkpoint", f"{name}={path}"]
    shown = call(*options)
    assert "left out: sbl-resnet50-256x192: no checkpoint" in shown
    rows = rows_of(tmp_path / "coco.csv")
    kinds = ["constant", "raw", "raw, plain mean", "closed form", "CCNet", "oracle"]
    for name in weights:
        wanted = [*kinds[:3], "raw (heatmap)", *kinds[3:]] if name.startswith("ipr") else kinds
        assert [row["confidence"] for row in rows if row["network"] == name] == wanted
    monkeypatch.setattr(train_ccnet, "run", None)  # nothing is made twice
    monkeypatch.setattr(eval_coco, "run", None)
    assert rows_of(tmp_path / "coco.csv") == rows
    call(*options)


@pytest.mark.slow
def test_one_command_makes_the_table_of_losses(data, weights, tmp_path):
    call(
        "losses",
        "--data",
        data,
        "--out",
        tmp_path,
        "--checkpoint",
        f"{SBL}={weights[SBL]}",
        "--device",
        "cpu",
    )
    rows = rows_of(tmp_path / "losses.csv")
    assert [row["loss"] for row in rows] == ["raw", "MSE", "CE", "Alea", "DeepEns", "SOAP"]


@pytest.mark.slow
def test_the_ablations_change_one_thing_at_a_time(data, weights, tmp_path):
    call(
        "ablations",
        "--data",
        data,
        "--out",
        tmp_path,
        "--checkpoint",
        f"{SBL}={weights[SBL]}",
        "--device",
        "cpu",
    )
    rows = rows_of(tmp_path / "ablations.csv")
    changed = [row["changed"] for row in rows]
    assert changed.count("head size") == 3
    assert [row["to"] for row in rows if row["changed"] == "features"] == [
        "penultimate+shallow",
        "penultimate+output",
        "shallow",
        "output",
        "copy",
    ]
    assert changed.count("lambda") == len(PRESENCE_WEIGHTS)
    assert changed.count("aggregation of raw") == len(AGGREGATIONS)
    papers = next(row for row in rows if "aggregation of ccnet" in row["changed"])
    assert papers["to"].endswith("the paper's")
    base = next(row for row in rows if row["to"] == "the recipe, one layer")
    assert float(papers["ap"]) == pytest.approx(float(base["ap"]), abs=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("table", ["area", "figures"])
def test_tables_of_an_embedded_network_need_no_checkpoint(data, tmp_path, table):
    call(
        table, "--data", data, "--out", tmp_path, "--model", "movenet-lightning", "--device", "cpu"
    )
    assert len(rows_of(tmp_path / f"{table}.csv")) == {"area": 7, "figures": 3}[table]
    assert (tmp_path / "figures" / "movenet-lightning" / "reliability.png").exists() == (
        table == "figures"
    )
    if table == "figures":
        drawn = {path.name for path in (tmp_path / "figures" / "movenet-lightning").iterdir()}
        assert {"visibility.png", "people.png"} <= drawn


def test_a_cell_is_made_again_when_another_head_is_embedded(data, tmp_path, monkeypatch):
    options = [
        "area",
        "--data",
        data,
        "--out",
        tmp_path,
        "--model",
        "movenet-lightning",
        "--device",
        "cpu",
    ]
    found = eval_coco.run
    calls = []
    load = ccnet.load
    monkeypatch.setattr(eval_coco, "run", lambda asked: calls.append(asked) or found(asked))
    call(*options)
    call(*options)
    assert len(calls) == 1

    def other(name_or_path):
        head = load(name_or_path)
        next(iter(head.parameters())).data.add_(1e-3)
        return head

    monkeypatch.setattr(ccnet, "load", other)
    call(*options)
    assert len(calls) == 2


@pytest.fixture
def toys(monkeypatch):
    """Networks with MPII's and COCO-WholeBody's keypoints that cost nothing."""
    skeletons = {"toy-mpii": MPII16, "toy-wholebody": WHOLEBODY133}
    cards = pose2d.card
    load = pose2d.load

    def toy_card(name: str):
        if name not in skeletons:
            return cards(name)
        return ModelCard(
            name, toy_model, skeletons[name], (24, 32), 1, "none", "tests", embedded="toy"
        )

    monkeypatch.setattr(pose2d, "card", toy_card)
    monkeypatch.setattr(
        pose2d,
        "load",
        lambda name, checkpoint=None: (
            toy_model(skeleton=skeletons[name]) if name in skeletons else load(name, checkpoint)
        ),
    )


@pytest.mark.slow
def test_mpii_has_pckh_and_heads_for_oks_and_pck(toys, tmp_path):
    write_mpii(tmp_path / "mpii", "train", count=6, head_boxes=False)
    write_mpii(tmp_path / "mpii", "valid", count=4, seed=1)
    call(
        "mpii",
        "--data",
        tmp_path / "mpii",
        "--out",
        tmp_path,
        "--model",
        "toy-mpii",
        "--device",
        "cpu",
    )
    rows = {row["confidence"]: row for row in rows_of(tmp_path / "mpii.csv")}
    assert list(rows) == ["raw", "closed form", "oracle", "CCNet (OKS)", "CCNet (PCK)"]
    assert rows["raw"]["pckh"]
    assert float(rows["oracle"]["ause"]) == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_the_whole_body_is_ranked_by_person_and_by_part(toys, tmp_path):
    write_wholebody(tmp_path / "data", "train2017", count=4)
    write_wholebody(tmp_path / "data", "val2017", count=4, seed=1)
    call(
        "wholebody",
        "--data",
        tmp_path / "data",
        "--out",
        tmp_path,
        "--model",
        "toy-wholebody",
        "--device",
        "cpu",
    )
    rows = rows_of(tmp_path / "wholebody.csv")
    assert [row["confidence"].split(",")[0] for row in rows] == ["raw", "raw", "CCNet", "oracle"]
    assert set(rows[0]) == {"network", "confidence", "body", "foot", "face", "hand", "wholebody"}


@pytest.mark.slow
def test_3dpw_compares_no_keypoints_raw_and_calibrated_ones(tmp_path):
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    shown = call(
        "3dpw",
        "--data",
        data,
        "--out",
        tmp_path / "out",
        "--model",
        "movenet-lightning",
        "--threads",
        1,
    )
    assert "left out: spin: no checkpoint" in shown
    rows = rows_of(tmp_path / "out" / "3dpw.csv")
    assert [row["confidence"] for row in rows] == ["none", "raw", "calibrated"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["magic"], "no table 'magic'"),
        (["coco"], "--data is missing"),
        (["coco", "--data", "DATA"], "no network with the keypoints of coco17"),
        (["coco", "--data", "DATA", "--checkpoint", "x.pth"], "is not NAME=FILE"),
        (
            ["coco", "--data", "DATA", "--checkpoint", f"{SBL}=missing.pth"],
            "no file at missing.pth",
        ),
        (["coco", "--data", "DATA", "--model", SBL], "ships no weights"),
        (
            ["coco", "--data", "DATA", "--checkpoint", "rle-r18-128x96=SBL"],
            "The file looks like sbl-r18-128x96",
        ),
        (
            ["coco", "--data", "DATA", "--model", "movenet-lightning", "--test", "none"],
            "no annotations at",
        ),
        (
            ["coco", "--data", "DATA", "--checkpoint", f"{SBL}=SBL", "--train", "none"],
            "no annotations at",
        ),
        (
            ["mpii", "--data", "DATA", "--model", "movenet-lightning"],
            "no network with the keypoints of mpii16",
        ),
        (
            ["losses", "--data", "DATA", "--model", "movenet-lightning", "--recipe", "magic"],
            "unknown recipe",
        ),
        (
            ["3dpw", "--data", "DATA", "--checkpoint", f"{SBL}=SBL"],
            "no calibration head for sbl-r18-128x96",
        ),
    ],
)
def test_mistakes_are_told_before_any_work(data, weights, tmp_path, arguments, says):
    filled = [a.replace("DATA", str(data)).replace("=SBL", f"={weights[SBL]}") for a in arguments]
    with pytest.raises(UserError, match=says):
        call(*filled, *([] if arguments == ["coco"] else ["--out", tmp_path]))
