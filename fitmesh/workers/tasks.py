"""What a worker is given and what comes back, wherever it runs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

RETRIES = 2  # of a task whose worker was killed; a third worker would most likely die of it too
Tell = Callable[[Any], None]
# A function of a module, by whose name workers find it: task -> result, both small. On the way it may `tell` news.
Work = Callable[[Any, Tell], Any]


@dataclass(frozen=True)
class Ended:
    """A task that needs no more work."""

    number: int  # of the task
    result: Any  # None: there is none
    lost: str = ""  # why there is none


class Workers(Protocol):
    """Somebody who does tasks."""

    def each(self, work: Work, tasks: Sequence[Any], news: Callable[[int, Any], None]) -> Iterator[Ended]:
        """Every task exactly once, in the order they end. A worker that dies takes nothing but its task with it, and
        that is tried RETRIES times more.

        news: called with a task's number and whatever `work` told.
        """
        ...


class Here:
    """This process, one task after another. A task that kills its process ends everything."""

    def each(self, work: Work, tasks: Sequence[Any], news: Callable[[int, Any], None]) -> Iterator[Ended]:
        for number, task in enumerate(tasks):

            def tell(what: Any, number: int = number) -> None:
                news(number, what)

            yield Ended(number, work(task, tell))
