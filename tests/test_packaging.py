"""What is published: the wheel's data files, the Dockerfile, the citation."""

import fnmatch
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

from tests.imports import PACKAGES, ROOT

DOCKER_WORDS = {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "ENTRYPOINT", "CMD"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def docker_steps() -> list[tuple[str, str]]:
    """Instruction and arguments, continued lines joined, comments left out."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [(word, rest) for word, rest in steps]


def test_the_dockerfile_has_known_instructions_and_begins_with_a_base() -> None:
    words = [word for word, _ in docker_steps()]
    assert set(words) <= DOCKER_WORDS
    assert words[0] == "FROM"
    assert words[-2:] == ["ENTRYPOINT", "CMD"]


def test_everything_the_dockerfile_copies_is_there_and_not_ignored(project: dict[str, Any]) -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    sources = [
        source
        for word, rest in docker_steps()
        if word == "COPY" and "--from=" not in rest
        for source in rest.split()[:-1]
    ]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert [
        source for source in sources if any(fnmatch.fnmatch(source, pattern) for pattern in ignored)
    ] == []
    needed = {
        *PACKAGES,
        "pyproject.toml",
        project["project"]["readme"],
        *project["project"]["license-files"],
    }
    assert needed == set(sources)


def test_a_stage_that_is_copied_from_exists_and_the_image_runs_as_nobody_special() -> None:
    steps = docker_steps()
    stages = {rest.split(" AS ")[1] for word, rest in steps if word == "FROM" and " AS " in rest}
    copied_from = {
        name for word, rest in steps if word == "COPY" for name in re.findall(r"--from=(\S+)", rest)
    }
    assert copied_from == stages == {"build"}
    user = [rest for word, rest in steps if word == "USER"]
    assert user == ["fitmesh"]
    assert any(
        word == "RUN" and "useradd" in rest and rest.endswith(" fitmesh") for word, rest in steps
    )
    (entry,) = (rest for word, rest in steps if word == "ENTRYPOINT")
    assert entry == '["fitmesh"]'


def test_every_data_file_of_the_packages_is_in_the_wheel(project: dict[str, Any]) -> None:
    listed = project["tool"]["setuptools"]["package-data"]
    tracked = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True
    )
    if tracked.returncode:
        pytest.skip("needs git and the repository")
    left_out = [
        name
        for name in tracked.stdout.split()
        if not name.endswith(".py")
        and not any(_matches(name, package, listed[package]) for package in listed)
    ]
    assert left_out == []


def _matches(name: str, package: str, patterns: list[str]) -> bool:
    folder = package.replace(".", "/") + "/"
    return name.startswith(folder) and any(
        Path(name.removeprefix(folder)).match(pattern) for pattern in patterns
    )


def test_the_citation_names_this_version_and_the_paper(project: dict[str, Any]) -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0"
    assert cited["version"] == project["project"]["version"]
    assert cited["license"] == project["project"]["license"]
    assert cited["authors"] == [{"name": "fitmesh contributors"}]
    (paper,) = cited["references"]
    assert paper["title"] == "On the Calibration of Human Pose Estimation"
