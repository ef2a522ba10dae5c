"""Checkpoints by name, from a server on this machine that speaks as the Hugging Face hub does."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import pose2d
from pose2d import hub
from pose2d.base.errors import UserError
from pose2d.models import loading
from tests.pose2d.hub_server import REVISION, FakeHub, serving

pytest.importorskip("huggingface_hub")
CONTENT = bytes(range(256)) * 4096  # 1 MB
NAME = "vitpose-b-simple"


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("FITMESH_CACHE", str(tmp_path / "cache"))
    with serving(FakeHub(CONTENT)) as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.address)
        yield fake


def test_size_licence_and_digest_are_known_before_the_download(served: FakeHub) -> None:
    offer = hub.look_up(NAME)
    assert (offer.size, offer.licence, offer.revision) == (len(CONTENT), "apache-2.0", REVISION)
    assert offer.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert offer.repository == "usyd-community/vitpose-base-simple"
    assert served.asked == ["api"]


def test_a_file_is_fetched_once_and_kept(served: FakeHub) -> None:
    sizes: list[int] = []
    path = hub.fetch(hub.look_up(NAME), sizes.append)
    assert path.read_bytes() == CONTENT
    assert sum(sizes) == len(CONTENT)
    assert hub.cached(NAME) == (path, hashlib.sha256(CONTENT).hexdigest())
    path.write_bytes(CONTENT[:-1] + b"x")
    assert hub.cached(NAME) is None, "a file that has changed is fetched again"


def test_a_download_that_breaks_off_goes_on_where_it_stopped(served: FakeHub) -> None:
    served.break_off_after = [100_000, 0, 200_000]
    sizes: list[int] = []
    path = hub.fetch(hub.look_up(NAME), sizes.append)
    assert path.read_bytes() == CONTENT
    assert served.asked[1:] == ["", "bytes=100000-", "bytes=100000-", "bytes=300000-"]
    assert sum(sizes) == len(CONTENT)


def test_a_later_command_goes_on_too(served: FakeHub) -> None:
    served.break_off_after = [100_000, *[0] * hub._ATTEMPTS]
    offer = hub.look_up(NAME)
    with pytest.raises(UserError, match=r"broke off after 0\.1 of 1\.0 MB.*same command"):
        hub.fetch(offer)
    assert hub.cached(NAME) is None
    served.asked.clear()
    assert hub.fetch(offer).read_bytes() == CONTENT
    assert served.asked == ["bytes=100000-"]


def test_a_server_without_parts_starts_again(served: FakeHub) -> None:
    served.knows_parts = False
    served.break_off_after = [100_000]
    sizes: list[int] = []
    assert hub.fetch(hub.look_up(NAME), sizes.append).read_bytes() == CONTENT
    assert sum(sizes) == len(CONTENT)


def test_a_file_with_another_digest_is_refused_and_removed(served: FakeHub) -> None:
    served.sha256 = "0" * 64
    with pytest.raises(UserError, match=r"SHA-256 differs.*removed"):
        hub.fetch(hub.look_up(NAME))
    assert not [path for path in hub.cache_folder().rglob("*") if path.is_file()]


def test_another_licence_is_refused_before_the_download(served: FakeHub) -> None:
    served.licence = "cc-by-nc-4.0"
    with pytest.raises(UserError, match=r"'cc-by-nc-4\.0', expected 'apache-2\.0'"):
        hub.look_up(NAME)
    assert served.asked == ["api"]


def test_without_a_connection_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(
        UserError, match=r"did not answer.*huggingface\.co/usyd-community.*--checkpoint"
    ):
        hub.look_up(NAME)


def test_every_name_is_a_model_and_every_other_one_says_where_it_is() -> None:
    cards = pose2d.cards()
    assert set(hub.REPOSITORIES) <= set(cards)
    assert all(cards[name].licence == "Apache-2.0" for name in hub.REPOSITORIES)
    assert [
        name for name, card in cards.items() if not card.embedded and not hub.by_hand(name)
    ] == []


def test_a_fetched_checkpoint_is_found_by_the_models_name(
    served: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled: list[Path] = []
    monkeypatch.setattr(loading, "fill", lambda model, path, name: filled.append(path))
    with pytest.raises(UserError, match="ships no weights"):
        pose2d.load(NAME)
    path = hub.fetch(hub.look_up(NAME))
    pose2d.load(NAME)
    assert filled == [path]
    assert loading.find_downloaded("movenet-thunder") is None, "what is embedded stays as it is"


@pytest.mark.slow
def test_a_published_file_as_large_as_the_real_one_arrives_and_loads(
    served: FakeHub, tmp_path: Path
) -> None:
    """ViTPose+ small with random weights, as transformers writes it; the hub states 133 MB for the
    real one.
    """
    transformers = pytest.importorskip("transformers")
    backbone = transformers.VitPoseBackboneConfig(
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_experts=6,
        part_features=96,
    )
    config = transformers.VitPoseConfig(
        backbone_config=backbone, use_simple_decoder=False, num_labels=17
    )
    theirs = transformers.VitPoseForPoseEstimation(config)
    theirs.save_pretrained(tmp_path / "published")
    served.content = (tmp_path / "published" / "model.safetensors").read_bytes()
    assert round(len(served.content) / 1e6) == 133
    served.break_off_after = [50_000_000]
    model = pose2d.load("vitpose-s", hub.fetch(hub.look_up("vitpose-s")))
    last = dict(theirs.named_parameters())["head.conv.weight"]
    torch.testing.assert_close(
        model.state_dict()["keypoint_head.final_layer.weight"], last.detach()
    )


WEIGHTS = 1  # number of the weights among the fake hub's files
NONSENSE = (None, True, 7, -1, 1e300, "", "../../etc/passwd", "x" * 40, [], [1], {}, {"a": 1})


def put(facts: dict[str, Any], place: tuple[Any, ...], value: object) -> dict[str, Any]:
    inner: Any = facts
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return facts


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
@pytest.mark.parametrize(
    "place",
    [
        ("sha",),
        ("tags",),
        ("tags", 0),
        ("siblings",),
        ("siblings", WEIGHTS),
        ("siblings", WEIGHTS, "rfilename"),
        ("siblings", WEIGHTS, "size"),
        ("siblings", WEIGHTS, "lfs"),
        ("siblings", WEIGHTS, "lfs", "sha256"),
    ],
    ids=str,
)
def test_a_nonsensical_answer_is_refused_in_words(
    served: FakeHub, place: tuple[Any, ...], value: object
) -> None:
    served.change = lambda facts: put(facts, place, value)
    if place[-1] == "size" and value == 7:
        assert hub.look_up(NAME).size == 7  # a size that can be right
        return
    with pytest.raises(UserError, match="usyd-community/vitpose-base-simple"):
        hub.look_up(NAME)


@pytest.mark.parametrize("answer", NONSENSE, ids=repr)
def test_an_answer_that_is_no_object_is_refused_in_words(served: FakeHub, answer: object) -> None:
    served.change = lambda _: answer
    with pytest.raises(UserError, match="usyd-community/vitpose-base-simple"):
        hub.look_up(NAME)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("sha",), None, r"revision is None, expected 40 hexadecimal digits"),
        (("siblings", WEIGHTS, "size"), "12", r"size of model.safetensors is '12'"),
        (("siblings", WEIGHTS, "size"), 2**60, r"size of model.safetensors is 1152921504606846976"),
        (("siblings", WEIGHTS, "lfs", "sha256"), "abc", r"SHA-256 of model.safetensors is 'abc'"),
        (("tags",), [3, "license:mit"], r"states the licence 'mit'"),
    ],
)
def test_the_refusal_says_what_was_wrong(
    served: FakeHub, place: tuple[Any, ...], value: object, message: str
) -> None:
    served.change = lambda facts: put(facts, place, value)
    with pytest.raises(UserError, match=message):
        hub.look_up(NAME)


@pytest.mark.parametrize("note", ["", "[]", "3", '{"sha256": null}', '{"sha256": 5}', '{"a": 1}'])
def test_a_damaged_note_beside_a_checkpoint_means_downloading_again(
    served: FakeHub, note: str
) -> None:
    path = hub.fetch(hub.look_up(NAME))
    path.with_suffix(".json").write_text(note)
    assert hub.cached(NAME) is None
