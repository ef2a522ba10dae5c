"""Does asking for keypoints make a better person detector? Centre score alone against centre and
keypoints together.

    python bench/detector_evidence.py --coco DIR      (annotations/person_keypoints_val2017.json and
images/val2017 in it)

Boxes count as found at IoU 0.5 with an annotated person; boxes on crowds count neither way. Only
some of the people in COCO's images are annotated with keypoints, so figures are for comparing, not
for quoting.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from pose2d.detect.boxes import iou
from pose2d.detect.detector import DetectorOptions
from pose2d.detect.multipose import MultiPose
from pose2d.video.images import read_image


class CentreDetector(MultiPose):
    """The published score: the height of the centre map."""

    def _score(self, certainty: Tensor, trunk: Tensor, cells: Tensor, box_cells: Tensor) -> Tensor:
        return certainty


def people(coco: Path) -> dict[Path, tuple[np.ndarray, np.ndarray]]:
    """Boxes x1, y1, x2, y2 of people and of crowds, by image."""
    data = json.loads((coco / "annotations" / "person_keypoints_val2017.json").read_text())
    results: dict[int, tuple[list[list[float]], list[list[float]]]] = {}
    for a in data["annotations"]:
        x, y, w, h = a["bbox"]
        results.setdefault(a["image_id"], ([], []))[a.get("iscrowd", 0)].append(
            [x, y, x + w, y + h]
        )
    files = {
        image["id"]: coco / "images" / "val2017" / image["file_name"] for image in data["images"]
    }
    return {
        path: (np.reshape(results[i][0], (-1, 4)), np.reshape(results[i][1], (-1, 4)))
        for i, path in files.items()
        if i in results and path.is_file()
    }


def measure(
    detector: MultiPose, truth: dict[Path, tuple[np.ndarray, np.ndarray]]
) -> tuple[float, list[float], float]:
    """AP at IoU 0.5, recall at a precision of 0.9, 0.8 and 0.7, milliseconds an image."""
    rows: list[tuple[float, bool]] = []
    seconds = 0.0
    for path, (persons, crowds) in truth.items():
        image = read_image(path)
        start = time.perf_counter()
        result = detector.detect(image)
        seconds += time.perf_counter() - start
        overlap = iou(result.boxes_px, persons)
        on_crowd = iou(result.boxes_px, crowds)
        free = np.ones(len(persons), bool)
        for i, score in enumerate(result.scores):
            hits = np.where(free, overlap[i], 0)
            if len(hits) and hits.max() >= 0.5:
                free[hits.argmax()] = False
                rows.append((score, True))
            elif not (on_crowd[i] > 0.1).any():
                rows.append((score, False))
    right = np.array([hit for _, hit in sorted(rows, key=lambda row: -row[0])])
    recall = np.cumsum(right) / sum(len(persons) for persons, _ in truth.values())
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    best = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0)
    average = float(best[np.searchsorted(recall, np.linspace(0, 1, 101))].mean())
    index = [float(recall[precision >= p].max(initial=0)) for p in (0.9, 0.8, 0.7)]
    return average, index, 1e3 * seconds / len(truth)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--coco", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[384, 512])
    arguments = parser.parse_args()
    truth = people(arguments.coco)
    table = Table(
        "size", "score", "AP50", "recall at P 0.9", "0.8", "0.7", "ms/image", "time ratio"
    )
    for size in arguments.sizes:
        base = 0.0
        for name, kind in (("centre", CentreDetector), ("centre and keypoints", MultiPose)):
            average, index, ms = measure(
                kind(DetectorOptions(long_side=size, score_threshold=0.02)), truth
            )
            base = base or ms
            table.add_row(
                str(size),
                name,
                f"{average:.3f}",
                *(f"{r:.3f}" for r in index),
                f"{ms:.0f}",
                f"{ms / base:.2f}",
            )
    Console().print(f"{len(truth)} images, {sum(len(p) for p, _ in truth.values())} people")
    Console(width=110).print(table)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    claim(main)
