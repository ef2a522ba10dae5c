"""The same tasks on a Ray cluster: Ray Core tasks that send back a result and nothing else.

Ray's own retries are off, and the bounded number of them is counted here: a task whose worker ran out of memory Ray
would otherwise repeat without end, whatever `max_retries` says."""

import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

from fitmesh.many.executors import RETRIES, Executor, Outcome, ProcessExecutor, Work
from pose2d.base.errors import UserError
from pose2d.base.threads import cores

AUTO = "auto"
REACH_S = 5.0  # how long to wait for an answer at an address
LOOK_EVERY_S = 1.0  # so that signals are obeyed


def executor_of(jobs: int, ray: str | None, threads: int | None) -> Executor:
    """Local processes, or the Ray cluster at an address; `threads` for each of them (`threads_each`)."""
    return ProcessExecutor(jobs, threads or 1) if ray is None else RayExecutor(ray, threads or 1)


def threads_each(threads: int | None, jobs: int, ray: str | None) -> int:
    """Of one task. On a cluster one: several tasks side by side keep cores busier than one task on several."""
    return max(1, (threads or cores()) // jobs) if ray is None else threads or 1


class RayExecutor:
    """A cluster that is running, or one of this machine alone that is started for the purpose."""

    def __init__(self, address: str, threads: int) -> None:
        """threads: processor cores that a task asks for."""
        self.threads, self._ray = threads, _connected(address)
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        most = max((node["Resources"].get("CPU", 0) for node in nodes), default=0)
        if most < threads:
            raise UserError(f"--threads {threads} is more than any machine of the Ray cluster has ({most:g} cores).")
        total = sum(node["Resources"].get("CPU", 0) for node in nodes)
        self._words = f"Ray with {total:g} cores on {len(nodes)} machine{'s' if len(nodes) > 1 else ''}"

    def __str__(self) -> str:
        return f"{self._words}, {self.threads} for each clip"

    def map(self, work: Work, tasks: Sequence[Any], notify: Callable[[int, Any], None]) -> Iterator[Outcome]:
        """Nothing is notified from there; only results come."""
        ray = self._ray
        remote = ray.remote(num_cpus=self.threads, max_retries=0, scheduling_strategy="SPREAD")(_work)
        tries: Counter[int] = Counter()
        running = {}

        def submit(number: int) -> None:
            tries[number] += 1
            running[remote.remote(work, tasks[number], os.getcwd())] = number

        try:
            for number in range(len(tasks)):
                submit(number)
            while running:
                finished, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_EVERY_S)
                for reference in finished:
                    number = running.pop(reference)
                    try:
                        yield Outcome(number, ray.get(reference))
                    except ray.exceptions.RayTaskError as error:
                        cause = getattr(error, "cause", None)
                        if isinstance(cause, UserError):
                            raise cause from None
                        raise UserError(  # one that cannot import fitmesh, or has another one
                            f"a Ray worker cannot do its task: {_first(error)}. Every machine of the cluster needs the "
                            "same fitmesh and the same Python."
                        ) from None
                    except ray.exceptions.RayError as error:  # the worker or its machine is no more
                        if tries[number] <= RETRIES:
                            submit(number)
                        else:
                            yield Outcome(number, None, f"its Ray worker died {tries[number]} times: {_first(error)}")
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _work(work: Work, task: Any, folder: str) -> Any:
    """In the folder that relative paths of the task were meant from, which lies on a file system that all share."""
    with contextlib.suppress(OSError):
        os.chdir(folder)
    return work(task, lambda what: None)


def _connected(address: str) -> Any:
    """The module ray, connected."""
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise UserError("--ray needs the package ray: pip install 'fitmesh[ray]'.") from error
    if ray.is_initialized():
        return ray
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address != AUTO:
            _check_reachable(address)
            ray.init(address=address, **quiet)
            return ray
        try:
            ray.init(address=AUTO, **quiet)
        except ConnectionError:  # none is running here
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody asked to report to Ray's makers
            ray.init(address="local", include_dashboard=False, **quiet)
    except UserError:
        raise
    except Exception as error:
        if "mismatch" in str(error).lower():
            words = " ".join(str(error).split())
            raise UserError(
                f"the Ray cluster at {address} runs another version: {words[:400]} Install the same versions of Ray "
                "and Python on all machines."
            ) from error
        raise UserError(
            f"cannot reach the Ray cluster at {address}: {type(error).__name__}: {_first(error)}."
        ) from error
    return ray


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"--ray takes auto or an address like 10.0.0.1:6379; got {address[:80]!r}.")
    try:
        socket.create_connection((host, int(port)), REACH_S).close()
    except OSError as error:
        raise UserError(
            f"nobody answers at the Ray address {address} ({error.strerror or error}). Is `ray start --head` running "
            "there, and is the port open?"
        ) from error


def _first(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[0][:300].rstrip(".")
