"""What `fitmesh train-ccnet` is asked for."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrainCcnetRequest:
    """Which data, which model, which folders."""

    data: Path
    model: str
    checkpoint: Path | None
    out: Path
    train: tuple[str, ...]
    validation: str | None  # split to compare settings on
    test: str | None  # split to report on
    cache: Path
    device: str | None = None
    threads: int | None = None
    jobs: int | None = None  # processes that run the network; None: this one
    ray: str | None = None  # or a Ray cluster
