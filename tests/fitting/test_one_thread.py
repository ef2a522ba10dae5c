"""One thread inside, as many as before outside, whichever library adds up."""

import threading
from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from pose2d.base.threads import single_thread


def _threads() -> list[int]:
    return [torch.get_num_threads(), *(library["num_threads"] for library in threadpool_info())]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_one_thread_inside_and_as_many_as_before_outside_also_in_another_thread_of_python() -> None:
    single_thread()(lambda: None)()  # loads what there is to load
    torch.set_num_threads(2)
    before = _threads()
    inside: list[list[int]] = []

    def work() -> None:
        with single_thread():
            inside.append(_threads())

    work()
    other = threading.Thread(target=work)
    other.start()
    other.join()
    assert inside == [[1] * len(before)] * 2
    assert _threads() == before
