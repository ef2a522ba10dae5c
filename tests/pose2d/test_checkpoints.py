import io
import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import pose2d
from pose2d.models import checkpoints, loading
from pose2d.models.checkpoints import read_state

WEIGHTS = {"conv.weight": torch.ones(2, 3), "conv.bias": torch.zeros(2)}


# containers
# ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        WEIGHTS,
        {"state_dict": WEIGHTS, "epoch": 210, "optimizer": {"state": {}}},
        {"model": WEIGHTS},
        {"network": WEIGHTS},
        {f"module.{key}": value for key, value in WEIGHTS.items()},
        {"state_dict": {f"module.{key}": value for key, value in WEIGHTS.items()}, "best": True},
        {"model": {"state_dict": WEIGHTS}},
    ],
)
def test_weights_are_found_in_every_container(content, saved):
    assert read_state(saved(content)).keys() == WEIGHTS.keys()


def test_a_legacy_file_is_read(tmp_path):
    torch.save(WEIGHTS, tmp_path / "old.pth.tar", _use_new_zipfile_serialization=False)
    assert read_state(tmp_path / "old.pth.tar").keys() == WEIGHTS.keys()


def test_half_precision_becomes_single(saved):
    state = read_state(saved({"a": torch.ones(2, dtype=torch.float16), "n": torch.tensor(3)}))
    assert (state["a"].dtype, state["n"].dtype) == (torch.float32, torch.int64)


def test_numpy_values_beside_the_weights_do_no_harm(saved):
    meta = {
        "AP": np.float64(0.7),
        "classes": np.arange(3),
        "names": np.array(["a"]),
        "big": np.float32(1),
        "n": np.int64(2),
    }
    assert read_state(saved({"meta": meta, "state_dict": WEIGHTS})).keys() == WEIGHTS.keys()


def test_numpy_values_saved_by_numpy_1_do_no_harm(tmp_path):
    """NumPy 1 named the same module numpy.core."""
    torch.save(
        {"meta": np.float64(0.7), "state_dict": WEIGHTS},
        tmp_path / "new.pth",
        _use_new_zipfile_serialization=False,
    )
    content = (tmp_path / "new.pth").read_bytes()
    assert b"numpy._core.multiarray" in content
    (tmp_path / "old.pth").write_bytes(
        content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    )
    assert read_state(tmp_path / "old.pth").keys() == WEIGHTS.keys()


def test_mmengines_loss_curves_are_left_out(saved, monkeypatch):
    """A file with them names mmengine's class, which need not be installed, and its methods through
    getattr.
    """
    module = types.ModuleType("mmengine.logging.history_buffer")

    class HistoryBuffer:
        def __init__(self) -> None:
            self.history = np.arange(3.0)
            self.methods = {"current": self.current}

        def current(self) -> None: ...

    HistoryBuffer.__module__ = module.__name__
    HistoryBuffer.__qualname__ = "HistoryBuffer"
    module.HistoryBuffer = HistoryBuffer
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "mmengine", types.ModuleType("mmengine"))
        patch.setitem(sys.modules, "mmengine.logging", types.ModuleType("mmengine.logging"))
        patch.setitem(sys.modules, module.__name__, module)
        path = saved({"message_hub": {"loss": HistoryBuffer()}, "state_dict": WEIGHTS})
    assert read_state(path).keys() == WEIGHTS.keys()


def test_reading_leaves_torchs_list_of_safe_names_as_it_was(saved):
    before = set(torch.serialization.get_safe_globals())
    read_state(saved(WEIGHTS))
    assert set(torch.serialization.get_safe_globals()) == before


def test_safetensors_and_npz_are_read(tmp_path):
    from safetensors.torch import save_file

    save_file(WEIGHTS, tmp_path / "a.safetensors")
    np.savez(tmp_path / "a.npz", **{key: value.numpy() for key, value in WEIGHTS.items()})
    for name in ("a.safetensors", "a.npz"):
        assert read_state(tmp_path / name).keys() == WEIGHTS.keys()


# files that are refused
# ------------------------------------------------------------------------------------------


class Trap:
    """A pickle that would make a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


class Eval:
    def __reduce__(self):
        return eval, ("__import__('pathlib').Path('sprung').touch()",)


@pytest.mark.parametrize("legacy", [True, False])
def test_a_pickle_that_runs_code_is_refused(tmp_path, monkeypatch, legacy):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "trap.pth"
    for trap in (Trap(tmp_path / "sprung"), Eval()):
        torch.save(
            {"state_dict": WEIGHTS, "x": trap}, path, _use_new_zipfile_serialization=not legacy
        )
        with pytest.raises(pose2d.UserError, match=r"trap\.pth was refused: .*could run code"):
            read_state(path)
    path.write_bytes(pickle.dumps(Eval(), protocol=2))
    with pytest.raises(pose2d.UserError):
        read_state(path)
    assert not (tmp_path / "sprung").exists()


def test_getattr_in_a_file_gets_nothing(tmp_path, saved):
    class Getter:
        def __reduce__(self):
            return getattr, (WEIGHTS["conv.bias"], "shape")

    content = checkpoints.read_torch(saved({"x": Getter()}))
    assert type(content["x"]) is not torch.Size


def _zip_cut_short() -> bytes:
    buffer = io.BytesIO()
    torch.save(WEIGHTS, buffer)
    return buffer.getvalue()[:-200]


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>404</html>", _zip_cut_short(), pickle.dumps([1, 2], protocol=2)],
    ids=["empty", "page", "cut", "list"],
)
@pytest.mark.parametrize("suffix", [".pth", ".npz", ".safetensors"])
def test_a_file_that_is_no_checkpoint_is_refused_in_words(tmp_path, content, suffix):
    path = tmp_path / f"file{suffix}"
    path.write_bytes(content)
    with pytest.raises(pose2d.UserError, match=f"file{suffix}"):
        read_state(path)


def test_a_missing_file_and_a_folder_are_refused_in_words(tmp_path):
    with pytest.raises(pose2d.UserError, match="does not exist"):
        read_state(tmp_path / "none.pth")
    with pytest.raises(pose2d.UserError, match="is a folder"):
        read_state(tmp_path)


def test_a_dictionary_without_weights_is_refused_by_what_it_holds(saved):
    with pytest.raises(pose2d.UserError, match=r"no checkpoint: it holds epoch, config"):
        read_state(saved({"epoch": 3, "config": "x"}))
    with pytest.raises(pose2d.UserError, match="it holds one list"):
        read_state(saved([1, 2]))


# files that do not fit
# -------------------------------------------------------------------------------------------


def state_of(name: str) -> dict[str, Tensor]:
    """Tensors of a model's names and shapes that take no room."""
    with torch.device("meta"):
        model = pose2d.card(name).build()
    return {key: torch.zeros(()).expand(value.shape) for key, value in model.state_dict().items()}


def refusal(name: str, state: dict[str, Tensor], monkeypatch) -> str:
    monkeypatch.setattr(loading, "read_state", lambda path: state)
    with pytest.raises(pose2d.UserError) as caught:
        pose2d.load(name, checkpoint="file.pth")
    return str(caught.value)


def test_another_networks_file_is_named(monkeypatch):
    message = refusal("hrnet-w32-256x192", state_of("hrnet-w48-256x192"), monkeypatch)
    assert "conv1.weight" not in message.split("looks like")[0]
    assert (
        "1386 have another shape (transition1.0.0.weight is [48, 256, 3, 3], expected [32, 256, 3, 3]; "
        in message
    )
    assert message.endswith(
        "looks like hrnet-w48-256x192 or hrnet-w48-384x288: load it under that name."
    )


def test_missing_and_unknown_tensors_are_counted_and_the_first_few_named(monkeypatch):
    state = state_of("sbl-resnet50-256x192")
    del state["final_layer.weight"], state["layer1.0.conv1.weight"]
    state["extra"] = torch.zeros(1)
    message = refusal("sbl-resnet50-256x192", state, monkeypatch)
    assert "2 tensors are missing (layer1.0.conv1.weight, final_layer.weight)" in message
    assert "1 are unknown (extra)" in message
    assert "no known model" in message


def test_a_file_of_other_keypoints_is_named(monkeypatch):
    message = refusal("vitpose-s", state_of("vitpose-s-wholebody"), monkeypatch)
    assert (
        "keypoint_head.final_layer.weight is [133, 256, 1, 1], expected [17, 256, 1, 1]" in message
    )
    assert "looks like vitpose-s-wholebody" in message


def test_mmposes_file_for_another_network_is_named_too(monkeypatch):
    state = {
        ("head." if key.startswith("final_layer") else "backbone.") + key: value
        for key, value in state_of("hrnet-w32-256x256-mpii").items()
    }
    assert "looks like hrnet-w32-256x256-mpii" in refusal(
        "sbl-resnet50-256x192", state, monkeypatch
    )


def test_old_files_have_no_batch_counters(monkeypatch):
    state = {
        k: v
        for k, v in state_of("sbl-resnet50-256x192").items()
        if not k.endswith("num_batches_tracked")
    }
    monkeypatch.setattr(loading, "read_state", lambda path: state)
    model = pose2d.load("sbl-resnet50-256x192", checkpoint="file.pth")
    assert model.bn1.num_batches_tracked.item() == 0
    assert not model.training
    assert not any(value.requires_grad for value in model.parameters())
