"""A thread that works ahead: order, errors and leaving early."""

import threading
import time
from collections.abc import Iterator

import pytest

from pose2d.base.threads import prefetch


def test_everything_comes_in_order() -> None:
    assert list(prefetch(range(100))) == list(range(100))


def test_work_goes_on_while_the_last_item_is_used() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(50):
            made.append(number)
            yield number

    for number in prefetch(items(), depth=3):
        deadline = time.monotonic() + 5
        while len(made) < min(50, number + 2) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(made) >= min(50, number + 2)
        assert len(made) <= number + 6  # and not much farther: frames are large


def test_an_error_arrives_where_it_can_be_handled() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken video")

    reader = prefetch(items())
    assert next(reader) == 1
    with pytest.raises(ValueError, match="broken video"):
        next(reader)


def test_leaving_early_ends_the_thread_and_closes_the_source() -> None:
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            closed.set()

    before = threading.active_count()
    for number in prefetch(items()):
        if number == 3:
            break
    del number
    deadline = time.monotonic() + 5
    while (
        threading.active_count() > before or not closed.is_set()
    ) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert closed.is_set()
    assert threading.active_count() == before
