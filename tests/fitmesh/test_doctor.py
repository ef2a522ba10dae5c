"""`fitmesh doctor` says what is wrong with an installation, whatever is wrong with it."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fitmesh.commands import doctor
from tools.embedded_digests import listed

ROOT = Path(__file__).parents[2]


def test_the_list_of_embedded_files_is_up_to_date() -> None:
    noted = json.loads(doctor.EMBEDDED.read_text())
    assert noted == listed(), "run python tools/embedded_digests.py"
    assert len({facts["what"] for facts in noted.values()}) == len(noted)


def test_every_dependency_is_looked_at() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    listed_there = re.search(r"^dependencies = \[(.*?)^\]", text, re.M | re.S)
    assert listed_there is not None
    names = {
        name for name in re.findall(r'^    "([\w-]+)', listed_there[1], re.M) if name != "tomli"
    }
    assert names == {name for name, _ in doctor.NEEDED} | {"smplx", "pycocotools"}
    assert {"smplx", "pycocotools", "matplotlib"} <= {name for name, *_ in doctor.OPTIONAL}


def test_the_licence_page_and_doctor_agree_about_what_may_be_missing() -> None:
    page = (ROOT / "THIRD_PARTY.md").read_text()
    assert re.search(r"`smplx` \|.*installed as a dependency", page)
    assert re.search(r"pycocotools \(BSD-2-Clause; [^)]*optional", page)
    assert re.search(r"matplotlib \([^)]*`\[plots\]`", page)


def test_a_cuda_build_without_a_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert "whl/cpu" in doctor._torch_device().about
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "whl/cpu" not in doctor._torch_device().about


def test_every_extra_that_is_named_exists() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    extras = [
        extra for *_, how in doctor.OPTIONAL for extra in re.findall(r"fitmesh\[(\w+)\]", how)
    ]
    assert extras
    assert [extra for extra in extras if not re.search(rf"^{extra} = \[", text, re.M)] == []


def test_embedded_files_are_checked_by_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = b"weights", b"other weights"
    wanted = {
        name: {"what": name, "bytes": len(good), "sha256": hashlib.sha256(good).hexdigest()}
        for name in ("sound.npz", "changed.npz", "absent.npz")
    }
    (tmp_path / "embedded.json").write_text(json.dumps(wanted))
    (tmp_path / "sound.npz").write_bytes(good)
    (tmp_path / "changed.npz").write_bytes(bad)
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    monkeypatch.setattr(doctor, "EMBEDDED", tmp_path / "embedded.json")
    sound, changed, absent = doctor.embedded()
    assert (sound.state, sound.failed) == ("ok", False)
    for check in (changed, absent):
        assert check.failed
        assert check.name in check.about
        assert check.fix == doctor.REINSTALL


def test_a_library_that_does_not_load_is_broken_and_one_that_is_not_there_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rotten.py").write_text("raise OSError('libfoo.so: cannot open\\nand more')")
    monkeypatch.syspath_prepend(str(tmp_path))
    rotten = doctor._library("program", "rotten", "rotten", "", "pip install rotten", needed=True)
    assert (rotten.state, rotten.about, rotten.failed) == (
        "broken",
        "does not load: libfoo.so: cannot open",
        True,
    )
    absent = doctor._library(
        "optional", "nowhere", "nowhere_at_all", "tests", "pip install nowhere", needed=False
    )
    assert (absent.state, absent.about, absent.failed) == ("missing", "for tests", False)


@pytest.mark.slow
def test_a_broken_torch_is_told_in_words_and_by_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libtorch.so: cannot open')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "fitmesh", "doctor", "--json"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1
    assert ended.stderr == ""
    said = json.loads(ended.stdout)
    assert said["sound"] is False
    (torch,) = (check for check in said["checks"] if check["name"] == "torch")
    assert torch["about"] == "does not load: libtorch.so: cannot open"
    assert "pip install" in torch["fix"]


@pytest.mark.slow
def test_this_installation_is_sound() -> None:
    broken = [check for check in doctor.examine() if check.failed]
    assert broken == []


def test_a_package_of_another_project_with_one_of_our_names_is_found(tmp_path: Path) -> None:
    (tmp_path / "fitting").mkdir()
    (tmp_path / "fitting" / "__init__.py").write_text("")
    metadata = tmp_path / "ccnet-1.2.dist-info"  # another project that brings a package ccnet
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ccnet\nVersion: 1.2\n")
    script = (
        "from fitmesh.commands.doctor import own_packages\n"
        "print([(check.name, check.state, check.fix) for check in own_packages() if check.failed])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout
    assert "('package fitting', 'broken', 'pip uninstall fitting" in found
    assert "('distribution ccnet', 'broken', 'pip uninstall ccnet" in found
    assert "package pose2d" not in found
    assert all(check.state == "ok" for check in doctor.own_packages())
