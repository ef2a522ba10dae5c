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
    train: tuple[str, ...]  # empty: the split that published networks are trained on
    validation: str | None  # split to compare settings on
    test: str | None  # split to report on
    cache: Path
    occlusion_test: bool = True
    report: bool = True  # print the tables and draw their plots
    device: str | None = None  # None: a GPU where there is one
    threads: int | None = None
    jobs: int | None = None  # processes that run the network; None: this one
    ray: str | None = None  # or a Ray cluster
