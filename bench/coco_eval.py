"""Claim: the ten COCO keypoint numbers come at least ten times faster than by pycocotools, and are
the same numbers.

A problem of the size of val2017 (5,000 images, 11,000 people, 100,000 detections) is made up, and
every evaluator gets it twice: as parsed JSON (annotations and a list of results), and already in
its own data structures. Each runs in a process of its own, forked from the same parent, so that its
peak memory can be told. Ratios are of processor time, which other work on the machine hardly
disturbs; wall time stands beside it, and on a busy machine means little.

    python bench/coco_eval.py [--images 5000 --people 11000 --detections 100000 --repeats 3]
"""

import argparse
import contextlib
import io
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from bench.lib.memory import Peak, alone
from ccnet.coco_ap.average_precision import evaluate, evaluate_coco
from ccnet.coco_ap.matching import detections_from_coco, ground_truth_from_coco
from pose2d.skeletons import COCO17

Problem = tuple[dict[str, Any], list[dict[str, Any]]]
# the ten numbers; from parsed JSON, seconds of processor and of the clock; evaluation alone,
# seconds of processor
Answer = tuple[np.ndarray, float, float, float]
Measured = tuple[np.ndarray, float, float, float, float]  # and peak memory in MB above the parent's


def made_up(images: int, people: int, detections: int, seed: int = 0) -> Problem:
    """Half of the images hold people, few hold many; five detections near each person, the rest
    false.
    """
    rng = np.random.default_rng(seed)
    populated = rng.choice(images, images // 2, replace=False)
    popularity = rng.gamma(0.7, size=len(populated))
    place = populated[rng.choice(len(populated), people, p=popularity / popularity.sum())]
    size = np.exp(rng.uniform(np.log(20), np.log(350), people))
    corner = rng.uniform(0, 500, (people, 2))
    body = np.clip(rng.normal(0.5, 0.2, (people, 17, 2)), 0, 1) * [0.5, 1.0]
    xy = np.round(corner[:, None] + body * size[:, None, None])
    visibility = rng.choice([0, 1, 2], (people, 17), p=[0.35, 0.1, 0.55])
    visibility[rng.random(people) < 0.4] = 0  # COCO labels no keypoint of many people
    annotations = [
        {
            "id": i + 1,
            "image_id": int(place[i]),
            "category_id": 1,
            "iscrowd": int(i % 100 == 0),
            "keypoints": np.column_stack([xy[i], visibility[i]]).ravel().tolist(),
            "num_keypoints": int(np.count_nonzero(visibility[i])),
            "area": float(0.27 * size[i] ** 2),
            "bbox": [*corner[i].tolist(), 0.5 * float(size[i]), float(size[i])],
        }
        for i in range(people)
    ]
    near = min(detections // 2, 5 * people)
    whom = rng.integers(0, people, near)
    spread = np.exp(rng.uniform(np.log(0.01), np.log(0.3), near)) * size[whom]
    result = xy[whom] + rng.normal(0, 1, (near, 17, 2)) * spread[:, None, None]
    ghosts = rng.uniform(0, 600, (detections - near, 1, 2)) + rng.normal(
        0, 40, (detections - near, 17, 2)
    )
    image = np.concatenate([place[whom], rng.integers(0, images, detections - near)])
    score = np.concatenate(
        [np.exp(-spread / size[whom] * 8), rng.random(detections - near) * 0.5]
    ).round(3)
    points = np.concatenate(
        [np.concatenate([result, ghosts]), np.ones((detections, 17, 1))], -1
    ).reshape(-1, 51)
    results = [
        {"image_id": int(i), "category_id": 1, "keypoints": p.tolist(), "score": float(s)}
        for i, p, s in zip(image, points, score, strict=True)
    ]
    dataset = {
        "info": {},
        "images": [{"id": i} for i in range(images)],
        "annotations": annotations,
        "categories": [{"id": 1, "name": "person"}],
    }
    return dataset, results


def by_fitmesh(problem: Problem) -> Answer:
    dataset, results = problem
    start = time.process_time()
    clock = time.perf_counter()
    stats = evaluate_coco(dataset, results).stats
    full = time.process_time() - start
    wall = time.perf_counter() - clock
    truth = ground_truth_from_coco(dataset)
    result = detections_from_coco(results, truth)
    start = time.process_time()
    evaluate(truth, result)
    return stats, full, wall, time.process_time() - start


def by_pycocotools(problem: Problem) -> Answer:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    return _by_coco_api(problem, COCO, COCOeval)


def by_faster_coco_eval(problem: Problem) -> Answer:
    from faster_coco_eval import COCO, COCOeval_faster

    return _by_coco_api(problem, COCO, COCOeval_faster)


def _by_coco_api(problem: Problem, coco: Any, evaluator: Any) -> Answer:
    dataset, results = (
        problem  # they write into what they are given, but a forked process has its own
    )
    with contextlib.redirect_stdout(io.StringIO()):
        start = time.process_time()
        clock = time.perf_counter()
        truth = coco()
        truth.dataset = dataset
        truth.createIndex()
        evaluation = evaluator(truth, truth.loadRes(results), iouType="keypoints")
        evaluation.params.kpt_oks_sigmas = np.asarray(COCO17.oks_sigma)
        prepared = time.process_time()
        evaluation.evaluate()
        evaluation.accumulate()
        done = time.process_time()
        wall = time.perf_counter() - clock
        evaluation.summarize()
    return np.asarray(evaluation.stats[:10], float), done - start, wall, done - prepared


CONTENDERS: dict[str, Callable[[Problem], Answer]] = {
    "pycocotools": by_pycocotools,
    "faster-coco-eval": by_faster_coco_eval,
    "fitmesh": by_fitmesh,
}


def _task(name: str, problem: Problem) -> Measured | str:
    peak = Peak()
    try:
        return *CONTENDERS[name](problem), peak.mb()
    except ImportError as error:
        return str(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5_000)
    parser.add_argument("--people", type=int, default=11_000)
    parser.add_argument("--detections", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    problem = made_up(arguments.images, arguments.people, arguments.detections)
    runs: dict[str, list[Any]] = {name: [] for name in CONTENDERS}
    for _ in range(
        arguments.repeats
    ):  # in turns, so that a busy moment of the machine hits everyone
        for name in CONTENDERS:
            runs[name].append(alone("fork", _task, name, problem))

    title = f"{arguments.images:,} images, {arguments.people:,} people, {arguments.detections:,} detections"
    table = Table(title=f"{title}; median of {arguments.repeats}")
    table.add_column("evaluator")
    for column in (
        "from JSON, CPU s",
        "ratio",
        "wall s",
        "evaluation only, CPU s",
        "ratio",
        "peak memory, MB",
        "AP",
        "largest difference",
    ):
        table.add_column(column, justify="right")
    reference = runs["pycocotools"]
    base_whole, base_only = (statistics.median(run[i] for run in reference) for i in (1, 3))
    for name, measured in runs.items():
        if isinstance(measured[0], str):
            table.add_row(name, "absent", *[""] * 7)
            continue
        full, wall, only, peak = (
            statistics.median(run[i] for run in measured) for i in (1, 2, 3, 4)
        )
        difference = abs(measured[0][0] - reference[0][0]).max()
        table.add_row(
            name,
            f"{full:.2f}",
            f"{base_whole / full:.1f}x",
            f"{wall:.2f}",
            f"{only:.2f}",
            f"{base_only / only:.1f}x",
            f"{peak:.0f}",
            f"{measured[0][0][0]:.6f}",
            f"{difference:.1e}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    claim(main)
