"""Object storage as `bench/scale.py` needs it: a folder behind fsspec, some of whose calls fail."""

import random
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

PROTOCOL = "failing"


class FailingStore(LocalFileSystem):  # type: ignore[misc]
    """failing:///tmp/bucket is the folder /tmp/bucket."""

    protocol = PROTOCOL
    share = 0.05  # of calls that fail
    calls = failures = 0
    _random = random.Random(0)

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(super()._strip_protocol(str(path).removeprefix(f"{PROTOCOL}://")))

    def unstrip_protocol(self, name: str) -> str:
        return f"{PROTOCOL}://{self._strip_protocol(name)}"

    @classmethod
    def _maybe_fail(cls) -> None:
        cls.calls += 1
        if cls._random.random() < cls.share:
            cls.failures += 1
            raise ConnectionResetError("the store hung up")

    def get_file(self, *arguments: Any, **options: Any) -> Any:
        self._maybe_fail()
        return super().get_file(*arguments, **options)

    def put_file(self, *arguments: Any, **options: Any) -> Any:
        self._maybe_fail()
        return super().put_file(*arguments, **options)

    def cat_file(self, *arguments: Any, **options: Any) -> Any:
        self._maybe_fail()
        return super().cat_file(*arguments, **options)

    def pipe_file(self, *arguments: Any, **options: Any) -> Any:
        self._maybe_fail()
        return super().pipe_file(*arguments, **options)

    def rm_file(self, *arguments: Any, **options: Any) -> Any:
        self._maybe_fail()
        return super().rm_file(*arguments, **options)

    def ls(self, *arguments: Any, **options: Any) -> Any:
        self._maybe_fail()
        return super().ls(*arguments, **options)


def register() -> None:
    fsspec.register_implementation(PROTOCOL, FailingStore, clobber=True)
