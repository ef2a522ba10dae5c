"""Apply a function to many tasks: in this process, in local processes, or on a Ray cluster.

Ray's own retries are off and a bounded number is counted here: Ray repeats a task whose worker ran
out of memory without end, whatever `max_retries` says.
"""

import contextlib
import os
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

from fitmesh.ui.trouble import count
from pose2d.base import files
from pose2d.base.errors import OptionError, UserError
from pose2d.base.threads import return_memory

RETRIES = 2  # of a task whose worker was killed; a third worker would most likely die of it too
PATIENCE_S = 5.0  # how long a process may take to clean up when it is told to end
REACH_S = 5.0  # how long to wait for an answer at the address of a Ray cluster
LOOK_EVERY_S = 1.0  # at a cluster, so that signals are obeyed
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_STARTUP_FAILURE = (
    "the worker processes end before they begin ({why}). In a script, call this under `if __name__ == '__main__':`, as "
    "every program must that starts processes."
)
Notify = Callable[[Any], None]
# A function of a module, by whose name workers find it: task -> result, both small. On the way it
# may notify. It does not raise: a result says that a task could not be done, and an error is the
# end of its worker.
Work = Callable[[Any, Notify], Any]


@dataclass(frozen=True)
class Outcome:
    """Hold what became of a task."""

    number: int  # of the task
    result: Any  # None: there is none
    lost: str = ""  # why there is none


class SerialExecutor:
    """Work in this process, one task after another. A task that kills the process ends the run."""

    def __str__(self) -> str:
        return "one after another"

    def map(
        self, work: Work, tasks: Sequence[Any], notify: Callable[[int, Any], None]
    ) -> Iterator[Outcome]:
        for number, task in enumerate(tasks):
            yield Outcome(number, work(task, lambda what, number=number: notify(number, what)))  # type: ignore[misc]


@dataclass
class _Worker:
    """Hold a worker process and what it is doing."""

    process: Any  # of the context "spawn"
    connection: Connection
    task: int | None = None  # number of the task in work
    ready: bool = False


class ProcessExecutor:
    """Work in `jobs` processes of `threads` threads each.

    The task of a worker that dies is tried again, up to RETRIES times.
    """

    def __init__(self, jobs: int, threads: int) -> None:
        self.jobs, self.threads = jobs, threads

    def __str__(self) -> str:
        return f"{count(self.jobs, 'processes')} of {count(self.threads, 'threads')}"

    def map(
        self, work: Work, tasks: Sequence[Any], notify: Callable[[int, Any], None]
    ) -> Iterator[Outcome]:
        """Yield the outcome of every task, in the order in which they end.

        notify: called with the number of a task and what `work` notified of.
        """
        waiting = deque(range(len(tasks)))
        tries = Counter[int]()
        workers: list[_Worker] = []
        try:
            while waiting or any(worker.task is not None for worker in workers):
                while len(workers) < self.jobs and sum(w.task is None for w in workers) < len(
                    waiting
                ):
                    workers.append(self._start(work))
                for worker in workers:
                    if worker.task is None and waiting:
                        worker.task = waiting.popleft()
                        tries[worker.task] += 1
                        with contextlib.suppress(OSError):  # it is dead, which shows below
                            worker.connection.send((worker.task, tasks[worker.task]))
                for connection in wait([worker.connection for worker in workers]):
                    worker = next(w for w in workers if w.connection is connection)
                    try:
                        kind, number, content = worker.connection.recv()
                    except (EOFError, OSError):
                        workers.remove(worker)
                        why = _end(worker)
                        if not worker.ready:
                            raise UserError(_STARTUP_FAILURE.format(why=why)) from None
                        if worker.task is None:
                            continue
                        if tries[worker.task] <= RETRIES:
                            waiting.append(worker.task)
                        else:
                            yield Outcome(worker.task, None, f"{why}, {tries[worker.task]} times.")
                        continue
                    worker.ready = True
                    if kind == "notified":
                        notify(number, content)
                    elif kind == "ended":
                        worker.task = None
                        yield Outcome(number, content)
        finally:
            _stop(workers)

    def _start(self, work: Work) -> _Worker:
        # A fresh interpreter for each: forking a process that runs torch's threads can hang.
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        added = {name: str(self.threads) for name in _THREADS if name not in os.environ}
        os.environ.update(added)  # inherited by the process; the user's own values are kept
        try:
            process = context.Process(target=_serve, args=(theirs, work), daemon=False)
            process.start()
        finally:
            for name in added:
                os.environ.pop(name, None)
        theirs.close()  # so that the end of the process shows as the end of the connection
        return _Worker(process, ours)


def _end(worker: _Worker) -> str:
    """Join a worker process and describe why it exited."""
    worker.connection.close()
    worker.process.join(PATIENCE_S)
    code = worker.process.exitcode
    if code is None:  # it closed its connection but is still running
        worker.process.kill()
        worker.process.join()
        return "the worker process stopped answering"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return f"the worker process was killed ({name}{hint})"
    return f"the worker process ended with exit code {code}"


def _stop(workers: Sequence[_Worker]) -> None:
    """Stop all workers: idle ones end when their connection closes, the others are terminated."""
    for worker in workers:
        worker.connection.close()
        if worker.task is not None:
            worker.process.terminate()
    for worker in workers:
        _end(worker)


def _serve(connection: Connection, work: Work) -> None:
    """Receive tasks and send results until the connection closes."""
    # Ctrl-C reaches every process of a terminal; the first process decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: _leave(128 + signal.SIGTERM))
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    return_memory()
    lock = threading.Lock()  # a task may notify from several threads

    def tell(kind: str, number: int | None, content: Any) -> None:
        with lock, contextlib.suppress(OSError):  # without a parent this process is about to end
            connection.send((kind, number, content))

    tell("ready", None, None)
    with contextlib.suppress(EOFError, OSError):
        while True:
            number, task = connection.recv()
            tell("ended", number, work(task, partial(tell, "notified", number)))


def _leave_with_parent() -> None:
    """Exit when the parent is killed, since the next run needs the output folder."""
    if (parent := parent_process()) is not None:
        parent.join()
    _leave(1)


def _leave(code: int) -> None:
    """Remove unfinished files and exit."""
    files.remove_unfinished()
    os._exit(code)


class RayExecutor:
    """Work on a running Ray cluster, or on one that is started on this machine."""

    def __init__(self, address: str, threads: int) -> None:
        """Connect to the cluster. threads: processor cores for each task."""
        self.threads = threads
        self._ray = _connected(address)
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        most = max((node["Resources"].get("CPU", 0) for node in nodes), default=0)
        if most < threads:
            raise OptionError(
                f"--threads {threads} is more than any machine of the Ray cluster has ({most:g} cores)."
            )
        total = sum(node["Resources"].get("CPU", 0) for node in nodes)
        self._words = (
            f"Ray with {total:g} cores on {len(nodes)} machine{'s' if len(nodes) > 1 else ''}"
        )

    def __str__(self) -> str:
        return f"{self._words}, {self.threads} for each clip"

    def map(
        self, work: Work, tasks: Sequence[Any], notify: Callable[[int, Any], None]
    ) -> Iterator[Outcome]:
        """Yield the outcome of every task as it ends; there are no notifications."""
        ray = self._ray
        remote = ray.remote(num_cpus=self.threads, max_retries=0, scheduling_strategy="SPREAD")(
            _work
        )
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
                        raise UserError(  # one that cannot import fitmesh, or has another one
                            f"a Ray worker cannot do its task: {_first(error)}. Every machine of the cluster needs the "
                            "same fitmesh and the same Python."
                        ) from None
                    except ray.exceptions.RayError as error:  # the worker or its machine died
                        if tries[number] <= RETRIES:
                            submit(number)
                        else:
                            yield Outcome(
                                number,
                                None,
                                f"its Ray worker died {tries[number]} times: {_first(error)}",
                            )
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _work(work: Work, task: Any, folder: str) -> Any:
    """Do a task in the driver's folder on a shared file system, for relative paths in the task."""
    with contextlib.suppress(OSError):
        os.chdir(folder)
    return work(task, lambda what: None)


def _connected(address: str) -> Any:
    """Return the module ray, connected to the cluster."""
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise OptionError("--ray needs the package ray: pip install 'fitmesh[ray]'.") from error
    if ray.is_initialized():
        return ray
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address != "auto":
            _check_reachable(address)
            ray.init(address=address, **quiet)
            return ray
        try:
            ray.init(address="auto", **quiet)
        except ConnectionError:  # none is running here
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no telemetry
            ray.init(address="local", include_dashboard=False, **quiet)
    except UserError:
        raise
    except Exception as error:
        words = " ".join(str(error).split())[:400].rstrip(".")
        raise UserError(
            f"cannot reach the Ray cluster at {address}: {type(error).__name__}: {words}."
        ) from error
    return ray


def _check_reachable(address: str) -> None:
    """Raise UserError if no program listens at the address; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise OptionError(
            f"--ray takes auto or an address like 10.0.0.1:6379; got {address[:80]!r}."
        )
    try:
        socket.create_connection((host, int(port)), REACH_S).close()
    except OSError as error:
        raise UserError(
            f"no Ray cluster answers at {address} ({error.strerror or error}). Is `ray start --head` running "
            "there, and is the port open?"
        ) from error


def _first(error: BaseException) -> str:
    """Return the first line of an error's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [
        type(error).__name__
    ]
    return lines[0][:300].rstrip(".")


Executor = SerialExecutor | ProcessExecutor | RayExecutor
