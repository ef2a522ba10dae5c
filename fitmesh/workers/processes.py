"""Local processes that outlive each other: one that is killed is replaced, and its task is tried again."""

import contextlib
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

from fitmesh.workers.tasks import RETRIES, Ended, Work
from pose2d.base import files
from pose2d.base.errors import UserError

PATIENCE_S = 5.0  # how long a process may take to clean up when it is told to end
MOST_STILLBORN = 3  # processes in a row that end before they have begun
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass
class _Worker:
    process: Any  # of the context "spawn"
    connection: Connection
    task: int | None = None  # number of what it is doing
    ready: bool = False


class Processes:
    """`jobs` processes of `threads` threads each."""

    def __init__(self, jobs: int, threads: int) -> None:
        self.jobs, self.threads = jobs, threads

    def __str__(self) -> str:
        return f"{_count(self.jobs, 'process', 'es')} of {_count(self.threads, 'thread', 's')}"

    def each(self, work: Work, tasks: Sequence[Any], news: Callable[[int, Any], None]) -> Iterator[Ended]:
        waiting, tries = deque(range(len(tasks))), Counter[int]()
        workers: list[_Worker] = []
        stillborn = 0
        try:
            while waiting or any(worker.task is not None for worker in workers):
                while len(workers) < self.jobs and sum(w.task is None for w in workers) < len(waiting):
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
                        stillborn = 0 if worker.ready else stillborn + 1
                        if stillborn == MOST_STILLBORN:
                            raise UserError(_STILLBORN.format(why=why)) from None
                        if worker.task is None:
                            continue
                        if tries[worker.task] <= RETRIES:
                            waiting.append(worker.task)
                        else:
                            yield Ended(worker.task, None, f"{why}, {tries[worker.task]} times.")
                        continue
                    worker.ready = True
                    if kind == "news":
                        news(number, content)
                    elif kind == "raised":
                        raise content
                    elif kind == "ended":
                        worker.task = None
                        yield Ended(number, content)
        finally:
            _stop(workers)

    def _start(self, work: Work) -> _Worker:
        # A fresh interpreter for each: forking a process that runs torch's threads can hang.
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        with _environment({name: str(self.threads) for name in _THREADS}):
            process = context.Process(target=_serve, args=(theirs, work), daemon=False)
            process.start()
        theirs.close()  # so that the end of the process shows as the end of the connection
        return _Worker(process, ours)


def _count(number: int, what: str, more: str) -> str:
    return f"{number} {what}{more if number > 1 else ''}"


_STILLBORN = (
    "the worker processes end before they begin ({why}). In a script, call this under `if __name__ == '__main__':`, as "
    "every program must that starts processes."
)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """What a process that is started now inherits, where the user has not decided otherwise."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _end(worker: _Worker) -> str:
    """Why a process is no more."""
    worker.connection.close()
    worker.process.join(PATIENCE_S)
    code = worker.process.exitcode
    if code is None:  # it closed its connection and lives on
        worker.process.kill()
        worker.process.join()
        return "the worker process stopped answering"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return f"the worker process was killed ({name}{hint})"
    return f"the worker process ended with exit code {code}"


def _stop(workers: Sequence[_Worker]) -> None:
    """Idle ones end by themselves when their connection closes; those at work are told to clean up and end."""
    for worker in workers:
        worker.connection.close()
        if worker.task is not None:
            worker.process.terminate()
    for worker in workers:
        worker.process.join(PATIENCE_S)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _serve(connection: Connection, work: Work) -> None:
    """A worker's life: tasks come, results go, until nobody is at the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the first one decides
    signal.signal(signal.SIGTERM, lambda *_: _leave(128 + signal.SIGTERM))
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        connection.send(("ready", None, None))
        while True:
            number, task = connection.recv()
            connection.send(_done(connection, work, number, task))


def _done(connection: Connection, work: Work, number: int, task: Any) -> tuple[str, int, Any]:
    """What to tell of a task that has come to its end."""
    lock = threading.Lock()  # news may come from several threads

    def tell(news: Any) -> None:
        with lock, contextlib.suppress(OSError):  # without a parent this process is about to end
            connection.send(("news", number, news))

    try:
        return "ended", number, work(task, tell)
    except UserError as error:
        return "raised", number, error
    except Exception as error:  # not every exception can be sent
        return "raised", number, RuntimeError(f"{type(error).__name__}: {error}")


def _leave_with_parent() -> None:
    """A worker whose parent was killed must not go on writing: the next run wants its folder."""
    parent = parent_process()
    if parent is not None:
        parent.join()
    _leave(1)


def _leave(code: int) -> None:
    files.remove_unfinished()
    os._exit(code)
