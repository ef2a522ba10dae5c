"""Work in a thread of its own, a few steps ahead or behind, so that decoding and encoding overlap with the rest."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, Full, Queue
from typing import Generic, TypeVar

T = TypeVar("T")
DEPTH = 3  # items in waiting: frames are large, and more would only fill memory
_PATIENCE_S = 0.1  # how long to wait before asking again whether the other side has given up


class _End:
    """After the last item; carries what went wrong, if something did."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def prefetch(items: Iterable[T], depth: int = DEPTH) -> Iterator[T]:
    """The same items in the same order, made by another thread while the last one is being used.

    An error in making them is raised here, where they are used. Leaving early stops the thread.
    """
    waiting: Queue[T | _End] = Queue(depth)
    stopped = threading.Event()

    def put(item: T | _End) -> bool:
        while not stopped.is_set():
            try:
                waiting.put(item, timeout=_PATIENCE_S)
                return True
            except Full:
                continue
        return False

    def make() -> None:
        source = iter(items)
        try:
            for item in source:
                if not put(item):
                    return
            put(_End())
        except BaseException as error:
            put(_End(error))
        finally:
            if hasattr(source, "close"):
                source.close()  # a file left open here would only be closed by chance

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        while not isinstance(item := waiting.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        thread.join()


class Background(Generic[T]):
    """Something that takes a moment to make and will be needed: `start` it while something else is being done."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: Future[T] | None = None

    def start(self) -> "Future[T]":
        if self._made is None:
            worker = ThreadPoolExecutor(1)
            self._made = worker.submit(self._make)
            worker.shutdown(wait=False)  # no more work will come
        return self._made

    def get(self) -> T:
        """Waits until it is made. An error in making it is raised here."""
        return self.start().result()

    def take(self) -> T:
        """As `get`, and forgets it, so that it does not stay in memory longer than its user."""
        value = self.get()
        self._made = None
        return value


@contextmanager
def background_writer(write: Callable[[T], None], depth: int = DEPTH) -> Iterator[Callable[[T], None]]:
    """A `write` that returns at once and does its work in another thread, in order; on leaving, all of it is done.

    An error in writing is raised by the next call, or on leaving.
    """
    waiting: Queue[T | _End] = Queue(depth)
    failure: list[BaseException] = []

    def work() -> None:
        while not isinstance(item := waiting.get(), _End):
            if not failure:  # after a failure the rest is thrown away, so that nobody waits for a full queue
                try:
                    write(item)
                except BaseException as error:
                    failure.append(error)

    def hand_over(item: T) -> None:
        if failure:
            raise failure[0]
        waiting.put(item)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield hand_over
    except BaseException:
        _drop(waiting)
        raise
    finally:
        waiting.put(_End())
        thread.join()
    if failure:
        raise failure[0]


def _drop(waiting: Queue) -> None:
    try:
        while True:
            waiting.get_nowait()
    except Empty:
        return
