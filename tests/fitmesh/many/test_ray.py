"""Ray: the same tasks, bounded retries, and clear words when there is no cluster."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fitmesh.many.executors import RETRIES, RayExecutor
from pose2d.base.errors import UserError
from tests.fitmesh.many import jobs


def nothing(number: int, news: object) -> None: ...


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'fitmesh\[ray\]'"):
        RayExecutor("auto", 1)


class FakeRay:
    """A ray that is not connected, and cannot be."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def is_initialized(self) -> bool:
        return False

    def init(self, **_: Any) -> None:
        raise self.error


@pytest.mark.parametrize("address", ["nonsense", "host:", ":6379", "host:port", "host:70000"])
def test_an_address_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay(RuntimeError()))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"--ray takes auto or an address like 10\.0\.0\.1:6379"):
        RayExecutor(address, 1)


def test_an_address_where_nobody_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay(RuntimeError()))  # type: ignore[arg-type]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UserError, match=f"answers at 127.0.0.1:{port}"):
        RayExecutor(f"127.0.0.1:{port}", 1)


def test_another_version_of_ray_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.11.7\nThis process ..."
    monkeypatch.setitem(sys.modules, "ray", FakeRay(RuntimeError(words)))  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(
            UserError, match=f"cannot reach the Ray cluster at {address}: .*Ray: 2.9.0"
        ):
            RayExecutor(address, 1)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    module = pytest.importorskip("ray", reason="needs the package ray")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_worker_niceness", "0")  # workers would starve beside other tests
        environment.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
        module.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
        yield module
        module.shutdown()


@pytest.mark.slow
def test_every_task_is_done_once(ray: Any) -> None:
    cluster = RayExecutor("auto", 1)
    ended = list(cluster.map(jobs.square, range(9), nothing))
    assert {one.number: one.result[0] for one in ended} == {n: n * n for n in range(9)}
    assert len(ended) == 9
    assert str(cluster) == "Ray with 2 cores on 1 machine, 1 for each clip"


@pytest.mark.slow
def test_a_task_that_kills_its_worker_is_tried_a_bounded_number_of_times(
    ray: Any, tmp_path: Path
) -> None:
    tasks = [(tmp_path / "never", 0), (tmp_path / "once", 1), (tmp_path / "always", 99)]
    ended = {
        one.number: one for one in RayExecutor("auto", 1).map(jobs.die_some_times, tasks, nothing)
    }
    assert [ended[n].result for n in range(3)] == [1, 2, None]
    assert (tmp_path / "always").stat().st_size == 1 + RETRIES
    assert f"its Ray worker died {1 + RETRIES} times" in ended[2].lost


@pytest.mark.slow
def test_more_threads_than_any_machine_has_are_refused(ray: Any) -> None:
    with pytest.raises(
        UserError, match="--threads 64 is more than any machine of the Ray cluster has"
    ):
        RayExecutor("auto", 64)
