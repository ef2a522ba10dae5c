"""Do colours at keypoints tell people apart, and is the stated log-likelihood ratio what it says?

    python bench/tuning/appearance.py --videos DIR --coco DIR [--cache people.npz] [--store]

Same person: two detections of one track in a video, any time apart; and people of COCO seen again
with other light, compression and keypoints. Two people: of one video, of one image. --store stores
the fitted model that pose2d/tracking/appearance.py reads. Printed figures are of videos and images
that the model was not fitted on.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from rich.table import Table
from scipy.linalg import eigh
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pose2d
from bench.lib.claim import Console, claim
from pose2d.crops import estimate
from pose2d.detect.detector import DetectorOptions, load_detector
from pose2d.skeletons import COCO17
from pose2d.tracking import appearance
from pose2d.tracking.appearance import PARTS, SIZE, describe
from pose2d.tracking.tracker import Tracker
from pose2d.types import AREA_OF_BOX, Appearance, Detections
from pose2d.video.frames import Span
from pose2d.video.video_file import Video

WEIGHTS = Path(appearance.__file__).parents[1] / "weights" / "appearance.npz"
EVERY = {
    "one_by_one": 8,
    "park_two_people": 4,
    "desk_classroom": 3,
    "upper_body_sign": 6,
    "worker_back": 4,
}


@dataclass(frozen=True)
class Pairs:
    """M pairs of appearances."""

    a: Appearance
    b: Appearance
    same: np.ndarray  # [M] bool
    group: np.ndarray  # [M] video or image they are from
    weight: np.ndarray  # [M] so that every group counts alike


def people_of_videos(videos: Path, cache: Path | None) -> dict[str, np.ndarray]:
    """Small frames, tracks and keypoints of every video."""
    if cache and cache.is_file():
        return dict(np.load(cache))
    torch.set_num_threads(1)
    detector = load_detector("multipose", DetectorOptions(score_threshold=0.2))
    network = pose2d.load("movenet-lightning")
    out: dict[str, np.ndarray] = {}
    for path in sorted(videos.iterdir()):
        video = Video(path)
        zoom = min(1.0, 640 / max(video.info.width_px, video.info.height_px))
        wh = round(video.info.width_px * zoom), round(video.info.height_px * zoom)
        tracker = Tracker(wh)
        frames = {}
        owned = []
        for frame in video.frames(Span(every=EVERY.get(path.stem, 1))):
            frames[frame.index] = small = cv2.resize(frame.rgb, wh, interpolation=cv2.INTER_AREA)
            boxes = detector.detect(small)
            time_s = float(frame.time_s)
            observed = Detections.in_frame(frame.index, time_s, boxes.boxes_px, boxes.scores)
            owned += [
                (frame.index, n, box)
                for n, box in zip(
                    tracker.update(time_s, observed).tolist(), boxes.boxes_px, strict=False
                )
            ]
        names = tracker.confirmed()
        rows = sorted(
            ((f, names[n], box) for f, n, box in owned if n in names),
            key=lambda row: (row[1], row[0]),
        )
        poses = [estimate(network, frames[f], box[None]) for f, _, box in rows]
        out |= {
            f"{path.stem}_frames": np.array(sorted(frames)),
            f"{path.stem}_rgb": np.stack([frames[f] for f in sorted(frames)]),
            f"{path.stem}_row": np.array([(f, identity) for f, identity, _ in rows]),
            f"{path.stem}_box": np.array([box for _, _, box in rows]),
            f"{path.stem}_time": np.array(sorted(frames)) / float(video.info.rate),
            f"{path.stem}_xy": np.array([pose.xy_px[0].numpy() for pose in poses]),
            f"{path.stem}_score": np.array([pose.score[0].numpy() for pose in poses]),
        }
    if cache:
        np.savez(cache, **out)  # type: ignore[arg-type]
    return out


def video_pairs(
    people: dict[str, np.ndarray], random: np.random.Generator, most: int = 1500
) -> list[Pairs]:
    results = []
    for name in sorted(key[: -len("_row")] for key in people if key.endswith("_row")):
        row, xy, score = (people[f"{name}_{kind}"] for kind in ("row", "xy", "score"))
        rgb = dict(zip(people[f"{name}_frames"].tolist(), people[f"{name}_rgb"], strict=True))
        observed = Appearance.concat(
            [describe(rgb[int(f)], xy[i : i + 1], score[i : i + 1]) for i, (f, _) in enumerate(row)]
        )
        i, j = np.triu_indices(len(row), 1)
        same = row[i, 1] == row[j, 1]
        chosen = np.concatenate(
            [random.permutation(np.flatnonzero(same == kind))[:most] for kind in (True, False)]
        )
        i = i[chosen]
        j = j[chosen]
        same = same[chosen]
        weight = np.where(same, 1 / max(same.sum(), 1), 1 / max((~same).sum(), 1)) * len(
            np.unique(row[:, 1])
        )
        results.append(
            Pairs(observed.rows(i), observed.rows(j), same, np.full(len(i), name), weight)
        )
    return results


def relit(rgb: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The image in slightly other light, exposure and compression."""
    gain = np.exp(random.normal(0, 0.12) + random.normal(0, 0.03, 3))
    toned = 255 * (rgb / 255) ** np.exp(random.normal(0, 0.1)) * gain
    code = cv2.imencode(
        ".jpg", toned.clip(0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 50]
    )[1]
    return cv2.imdecode(code, cv2.IMREAD_COLOR)


def coco_pairs(data: Path, random: np.random.Generator, most_images: int = 1500) -> Pairs:
    """People of one image with at least eight keypoints, each against the others and against itself
    seen again.
    """
    entries = json.loads(
        (data / "annotations" / "person_keypoints_train2017_256_train.json").read_text()
    )
    size = {
        image["id"]: (image["file_name"], image["width"], image["height"])
        for image in entries["images"]
    }
    by_image: dict[int, list[dict]] = {}
    for person in entries["annotations"]:
        if person["num_keypoints"] >= 8 and not person.get("iscrowd") and person["bbox"][3] > 60:
            by_image.setdefault(person["image_id"], []).append(person)
    a = []
    b = []
    same = []
    group = []
    chosen = random.permutation([image for image, people in by_image.items() if len(people) >= 2])[
        :most_images
    ]
    for image in chosen.tolist():
        name, width, height = size[image]
        stored = cv2.imread(str(data / "images" / "train2017_256" / name))[:, :, ::-1]
        rgb = cv2.resize(np.ascontiguousarray(stored), (width, height))
        people = by_image[image][:4]
        keypoints = np.array([person["keypoints"] for person in people], float).reshape(-1, 17, 3)
        confidence = np.choose(keypoints[:, :, 2].astype(int), [0.0, 0.3, 0.9])
        area = np.array([AREA_OF_BOX * p["bbox"][2] * p["bbox"][3] for p in people])
        l_px = np.sqrt(area[:, None] * COCO17.oks_variance)
        moved = keypoints[:, :, :2] + 0.4 * l_px[..., None] * random.normal(
            size=keypoints[:, :, :2].shape
        )
        first = describe(rgb, keypoints[:, :, :2], confidence)
        again = describe(relit(rgb, random), moved, confidence)
        for i in range(len(people)):
            for j in range(i, len(people)):
                a.append(first.rows([i]))
                b.append(again.rows([j]))
                same.append(i == j)
                group.append(image)
    kinds = np.array(same)
    weight = np.where(kinds, 1 / kinds.sum(), 1 / (~kinds).sum()) * 10
    return Pairs(
        Appearance.concat(a), Appearance.concat(b), kinds, np.array([str(g) for g in group]), weight
    )


def fit(pairs: list[Pairs]) -> dict[str, np.ndarray]:
    """Covariances of the differences, diagonal together, and each part's scale by logistic
    regression.
    """
    basis, within, total = (
        np.zeros((len(PARTS), SIZE, *remaining)) for remaining in ((SIZE,), (), ())
    )
    for part in range(len(PARTS)):
        cov = []
        for same in (True, False):
            d = np.concatenate([(p.a.colours - p.b.colours)[p.same == same, part] for p in pairs])
            w = np.concatenate(
                [
                    (p.weight * np.minimum(p.a.weight, p.b.weight)[:, part])[p.same == same]
                    for p in pairs
                ]
            )
            # Of Student's t, by reweighting: outliers count less.
            c = np.eye(SIZE) * 100
            for _ in range(30):
                distance2 = np.einsum("ni,ij,nj->n", d, np.linalg.inv(c), d)
                u = w * (appearance.FREEDOM + SIZE) / (appearance.FREEDOM + distance2)
                c = np.einsum("n,ni,nj->ij", u, d, d) / w.sum() + np.eye(
                    SIZE
                )  # 1 level^2: the grain of a colour
            cov.append(c)
        values, vectors = eigh(cov[1], cov[0])
        basis[part] = vectors
        within[part] = 1.0
        total[part] = values
    model = {"basis": basis, "within": within, "total": total, "scale": np.ones(len(PARTS))}
    parts = np.concatenate([ratio_of_parts(model, p) for p in pairs])
    same = np.concatenate([p.same for p in pairs])
    weight = np.concatenate([p.weight for p in pairs])
    weight = np.where(same, weight / weight[same].sum(), weight / weight[~same].sum())
    sign = np.where(same, -1.0, 1.0)

    def loss(log_scale: np.ndarray) -> float:
        ratio = parts @ np.exp(log_scale)
        return float(
            (weight * np.logaddexp(0, sign * ratio)).sum() + 1e-3 * ((log_scale + 1) ** 2).sum()
        )

    model["scale"] = np.exp(minimize(loss, np.full(len(PARTS), -1.0), method="Nelder-Mead").x)
    return model


def ratio_of_parts(model: dict[str, np.ndarray], pairs: Pairs) -> np.ndarray:
    """Log-likelihood ratio of every part, weighted by how surely it was seen, [M, P]."""
    d = np.einsum("npi,pij->npj", pairs.a.colours - pairs.b.colours, model["basis"])
    ratio = appearance._log_student_t(d, model["within"]) - appearance._log_student_t(
        d, model["total"]
    )
    return np.minimum(pairs.a.weight, pairs.b.weight) * ratio


def figures(ratio: np.ndarray, pairs: Pairs) -> tuple[float, float, float, float, float]:
    """Area under the curve, log loss in bits at even odds, medians of both kinds, and the share of
    same-person pairs called different (ratio below -3)."""
    weight = np.where(pairs.same, pairs.weight / pairs.weight[pairs.same].sum(), 0)
    weight = weight + np.where(
        pairs.same, 0, pairs.weight / max(pairs.weight[~pairs.same].sum(), 1e-9)
    )
    a = ratio[pairs.same]
    b = ratio[~pairs.same]
    area = float(np.searchsorted(np.sort(b), a).mean() / max(len(b), 1)) if len(b) else float("nan")
    loss = float(
        (weight * np.logaddexp(0, np.where(pairs.same, -1, 1) * ratio)).sum()
        / weight.sum()
        / np.log(2)
    )
    return (
        area,
        loss,
        float(np.median(a)),
        float(np.median(b)) if len(b) else float("nan"),
        float((a < -3).mean()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=Path, required=True)
    parser.add_argument("--coco", type=Path, required=True)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--store", action="store_true")
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    videos = video_pairs(people_of_videos(arguments.videos, arguments.cache), random)
    images = coco_pairs(arguments.coco, random)
    half = np.array([hash(int(g)) % 2 == 0 for g in images.group])
    halves = [
        Pairs(
            images.a[rows],
            images.b[rows],
            images.same[rows],
            images.group[rows],
            images.weight[rows],
        )
        for rows in (np.flatnonzero(half), np.flatnonzero(~half))
    ]
    table = Table(
        "held out",
        "pairs",
        "same",
        "AUC",
        "log loss (bits)",
        "same: median",
        "two: median",
        "same < -3",
    )
    for left_out_set in [*videos, halves[1]]:
        model = fit([p for p in [*videos, halves[0]] if p is not left_out_set])
        ratio = ratio_of_parts(model, left_out_set) @ model["scale"]
        name = "COCO, other half" if left_out_set is halves[1] else str(left_out_set.group[0])
        area, loss, *remaining = figures(ratio, left_out_set)
        row = f"{area:.3f}", f"{loss:.3f}", *(f"{x:.2f}" for x in remaining)
        table.add_row(name, str(len(ratio)), str(int(left_out_set.same.sum())), *row)
    Console(width=130).print(table)
    model = fit([*videos, *halves])
    print("scale", dict(zip(PARTS, model["scale"].round(3).tolist(), strict=True)))
    if arguments.store:
        np.savez(WEIGHTS, **{name: value.astype(np.float32) for name, value in model.items()})  # type: ignore[arg-type]
        print(f"wrote {WEIGHTS}")


if __name__ == "__main__":
    claim(main)
