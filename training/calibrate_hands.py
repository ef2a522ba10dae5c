"""Make pose2d/weights/hand_error.json: how far off hand keypoints are, and how probable a hand is.

    python -m training.calibrate_hands --cameras DIR --coco DIR [--check]

Error: a hand recorded by two calibrated cameras (TemugeB/handpose3d, MIT: cam0_test.mp4, c0.dat,
rot_trans_c0.dat, ..). A keypoint in one image says on which line the other camera must see it. How
far it lies from that line is the error of both, so their stated errors are chosen to make those
distances most likely. They are as they would be if the error were the same along the line; what
both cameras get wrong alike stays unseen. Hands of all sizes are made by shrinking the images;
hands that are cut, blurred or covered, by doing so to one camera's image.

Presence: people of COCO in their annotated boxes. A hand is seen where the wrist is annotated as
visible, the hand's wrist is near it, and the network finds the same hand in the mirrored image; it
is not where the wrist is not annotated, or one of the others fails. Hidden wrists are left out.
Feet that are taken for hands are added, a quarter as heavy.

Fitted on the first half of the recording and on train2017; what is printed is of the second half
and of val2017. The form of both models was chosen while looking at those too, so the figures are
not of untouched data (docs/hands.md). --check prints it for the numbers that are there.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from scipy.optimize import minimize

import pose2d
from ccnet.confidence import confidence_function
from pose2d.base.files import atomic_file
from pose2d.crops import estimate_people
from pose2d.hands import (
    HAND_CONSTANTS,
    SEEN,
    Arms,
    Look,
    arms_of,
    error_features,
    fits_arm,
    hands_in_image,
    look,
    presence_features,
    region_around,
    relative_std,
)
from pose2d.types import Detections
from pose2d.video.frames import Span, Video

SCALES = (1.0, 0.5, 0.25, 0.12)  # of the recording: hands of 300 to 30 px
DAMAGED = ("cut", "blurred", "covered")  # one camera's image at half size
PARTS = (*map(str, SCALES), *DAMAGED)
# degrees of freedom of the distribution the errors are thought to have while numbers are chosen
TAILS = 4.0
SAME, WRIST = 0.07, 0.35  # in lengths of the hand
MODEL = "rtmpose-s-halpe26"


def numbers(path: Path) -> np.ndarray:
    """The rows of numbers in a calibration file, up to a line of comment."""
    rows = []
    for line in path.read_text().split("#")[0].splitlines():
        try:
            rows.append([float(word) for word in line.split()])
        except ValueError:
            continue
    return np.array([value for row in rows for value in row])


def first_hand(rgb: np.ndarray) -> Look:
    """The hand in an image of which nothing is known."""
    places = np.stack(
        np.meshgrid(
            range(100, 720, 130), range(100, 720, 130), (200, 320), np.arange(4) * np.pi / 2
        ),
        -1,
    )
    regions = places.reshape(-1, 4).astype(np.float64)
    best = regions[[int(look([rgb] * len(regions), regions).score.argmax())]]
    for _ in range(3):
        seen = look([rgb], best)
        best = region_around(seen.xy_px)
    return seen


def damaged(
    rgb: np.ndarray, xy_px: np.ndarray, how: str, random: np.random.Generator
) -> np.ndarray:
    """An image with a hand that is cut off by the frame, blurred by motion, or covered in part."""
    low = xy_px.min(0)
    high = xy_px.max(0)
    at = (
        (low + random.uniform(0.25, 0.75, 2) * (high - low))
        .astype(int)
        .clip(2, np.array(rgb.shape[1::-1]) - 2)
    )
    if how == "cut":
        return np.ascontiguousarray(rgb[: at[1]] if random.random() < 0.5 else rgb[:, : at[0]])
    if how == "blurred":
        length = max(3, int(random.uniform(0.05, 0.3) * (high - low).max()))
        return cv2.filter2D(
            rgb, -1, np.full((1, length) if random.random() < 0.5 else (length, 1), 1 / length)
        )
    out = rgb.copy()
    half = (random.uniform(0.1, 0.3) * (high - low)).astype(int)
    corner = np.maximum(at - half, 0)
    out[corner[1] : at[1] + half[1], corner[0] : at[0] + half[0]] = random.integers(0, 256, 3)
    return out


def recording(folder: Path) -> dict[str, np.ndarray]:
    """Of every part and camera: keypoints in pixels of the recording [2, F, 21, 2], lengths [2, F]
    and features of the error [2, F, 21, 6]; NaN where no hand was found."""
    out: dict[str, np.ndarray] = {}
    random = np.random.default_rng(0)
    for camera in range(2):
        images = [frame.rgb for frame in Video(folder / f"cam{camera}_test.mp4").frames(Span())]
        for scale in SCALES:
            before: Look | None = None
            for number, image in enumerate(images):
                small = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
                if before is None:
                    if number % 10 == 0:  # nobody is in the first frames
                        found = first_hand(image)
                        before = (
                            replace(found, xy_px=found.xy_px * scale)
                            if found.score[0] > 0.5
                            else None
                        )
                    continue
                seen = look([small], region_around(before.xy_px))
                _note(out, str(scale), (camera, number, len(images)), seen, before, small, scale)
                if scale == 0.5:
                    for how in DAMAGED:
                        worse = damaged(small, seen.xy_px[0], how, random)
                        again = look([worse], region_around(before.xy_px))
                        _note(out, how, (camera, number, len(images)), again, before, worse, scale)
                before = seen if seen.score[0] > 0.3 else None
    return out


def _note(
    out: dict[str, np.ndarray],
    part: str,
    where: tuple[int, int, int],
    seen: Look,
    before: Look,
    rgb: np.ndarray,
    scale: float,
) -> None:
    camera, number, count = where
    values = {
        "xy": seen.xy_px[0] / scale,
        "size": seen.size_px[0] / scale,
        "features": error_features(seen, before.xy_px, (rgb.shape[1], rgb.shape[0]))[0],
    }
    for name, value in values.items():
        whole = out.setdefault(f"{part} {name}", np.full((2, count, *np.shape(value)), np.nan))
        if seen.score[0] > 0.1:
            whole[camera, number] = value


class Epipolar:
    """How far a pair of keypoints is from what two cameras can see."""

    def __init__(self, folder: Path) -> None:
        inside = [numbers(folder / f"c{camera}.dat") for camera in range(2)]
        outside = [numbers(folder / f"rot_trans_c{camera}.dat") for camera in range(2)]
        self.matrix = [part[:9].reshape(3, 3) for part in inside]
        self.distortion = [part[9:] for part in inside]
        turns = [part[:9].reshape(3, 3) for part in outside]
        shifts = [part[9:12] for part in outside]
        turn = turns[1] @ turns[0].T
        x, y, z = shifts[1] - turn @ shifts[0]
        self.essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ turn

    def __call__(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels [F, 21, 2] of both cameras -> the residual [F, 21], and what a pixel of each
        changes it by [2, F, 21].

        For undistorted rays p, q: r = q' E p, dr/dp = E' q, dr/dq = E p."""
        rays = []
        for camera, xy in enumerate((a, b)):
            flat = xy.reshape(-1, 1, 2).astype(np.float64)
            straight = cv2.undistortPoints(
                flat, self.matrix[camera], self.distortion[camera]
            ).reshape(xy.shape)
            rays.append(np.concatenate([straight, np.ones_like(straight[..., :1])], -1))
        lines = rays[1] @ self.essential, rays[0] @ self.essential.T
        slope = [
            np.linalg.norm(line[..., :2], axis=-1) / self.matrix[n][0, 0]
            for n, line in enumerate(lines)
        ]
        return (rays[1] * lines[1]).sum(-1), np.stack(slope)


def error_rows(data: dict[str, np.ndarray], geometry: Epipolar) -> dict[str, dict[str, np.ndarray]]:
    """Of each part, for every pair of keypoints: the residual [M], its slopes in lengths of the
    hands [M, 2], features [M, 2, 6], which frame [M]. Where one image is damaged the other is
    not."""
    rows = {}
    for part in PARTS:
        pairs = [(part, part)] if part not in DAMAGED else [(part, "0.5"), ("0.5", part)]
        made: list[dict[str, np.ndarray]] = []
        for pair in pairs:
            xy, size, features = (
                [data[f"{p} {name}"][n] for n, p in enumerate(pair)]
                for name in ("xy", "size", "features")
            )
            residual, slope = geometry(*xy)
            slope = slope * np.stack(size)[..., None]
            known = np.isfinite(residual)
            made.append(
                {
                    "residual": residual[known],
                    "slope": slope[:, known].T,
                    "frame": np.nonzero(known)[0],
                    "features": np.stack([f[known] for f in features], 1),
                }
            )
        rows[part] = {name: np.concatenate([one[name] for one in made]) for name in made[0]}
    return rows


def standardised(
    rows: dict[str, np.ndarray], error: np.ndarray, floor: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Residuals in units of their stated error, and that error [M]."""
    std = np.sqrt(((relative_std(rows["features"], error, floor) * rows["slope"]) ** 2).sum(1))
    return rows["residual"] / std, std


def fit_error(parts: list[dict[str, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """By maximum likelihood, every part counting alike; then scaled so that 95 % lie where they
    should.

    Keypoints have no numbers of their own: those of the first half, where one finger points, are
    not those of other gestures (58 % and 83 % of the second half within 1 and 2 stated errors,
    where they had)."""
    sign = np.array(
        [-1.0, 1, 1, 1, 1]
    )  # a smaller, doubtful, moving or cut hand is never more exact

    def split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.concatenate([x[:1], sign * x[2:] ** 2]), np.exp(x[1])

    def cost(x: np.ndarray) -> float:
        total = 0.02 * (x[2:] ** 4).sum()
        for part in parts:
            z, std = standardised(part, *split(x))
            total += (np.log(std) + (TAILS + 1) / 2 * np.log1p(z**2 / TAILS)).mean()
        return float(total)

    start = np.array([-3.0, -5.0, *[0.4] * 5])
    error, floor = split(minimize(cost, start, method="L-BFGS-B", options={"maxiter": 200}).x)
    z = np.abs(np.concatenate([standardised(part, error, floor)[0] for part in parts]))
    scale = np.percentile(z, 95) / 1.96
    error[0] += np.log(scale)
    return error, floor * scale


def people(coco: Path, name: str, most: int) -> Iterator[tuple[np.ndarray, Detections, np.ndarray]]:
    """Image, people with the network's keypoints, and how visible their wrists are [N, 2, 3] as
    annotated.
    """
    content = json.loads((coco / "annotations" / f"person_keypoints_{name}.json").read_text())
    by_image: dict[int, list[Any]] = {}
    for entry in content["annotations"]:
        if not entry["iscrowd"] and entry["num_keypoints"] and entry["bbox"][3] > 120:
            by_image.setdefault(entry["image_id"], []).append(entry)
    model = pose2d.load(MODEL)
    confidence = confidence_function("ccnet", MODEL, model, None)
    folder = coco / "images" / name.removesuffix("_train")
    for image in content["images"]:
        path = folder / image["file_name"]
        entries = by_image.get(image["id"], [])
        if not entries or not path.is_file() or most <= 0:
            continue
        most -= len(entries)
        rgb = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)  # type: ignore[arg-type]
        boxes = np.array([entry["bbox"] for entry in entries], np.float64)
        boxes[:, 2:] += boxes[:, :2]
        with torch.inference_mode():
            boxes, estimate = estimate_people(model, [rgb] * len(boxes), boxes)
            keypoints = confidence(estimate)
        rows = Detections.in_frame(0, 0.0, boxes, np.ones(len(boxes)))
        annotated = np.array([entry["keypoints"] for entry in entries], np.float64).reshape(
            -1, 17, 3
        )
        yield rgb, replace(rows, keypoints=keypoints), annotated[:, 9:11]


def presence_rows(coco: Path, name: str, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features [M, 6], whether a hand is seen [M], weight [M] of the places that a hand could be
    at.
    """
    features = []
    seen = []
    weight = []
    for rgb, rows, wrists in people(coco, name, most):
        arms = arms_of(rows)
        size_wh = (rgb.shape[1], rgb.shape[0])
        legs = np.asarray(rows.keypoints.xy_px, np.float64)[:, 13:17].reshape(-1, 2, 2, 2)  # type: ignore[union-attr]
        feet = replace(arms, elbow_px=legs[:, 0].reshape(-1, 2), wrist_px=legs[:, 1].reshape(-1, 2))
        visible = wrists[..., 2].ravel()
        wrist_px = wrists[..., :2].reshape(-1, 2)
        for where, heavy in ((arms, 1.0), (feet, 0.25)):
            kept = np.flatnonzero(
                where.large & (where.seen & (visible != 1) if heavy == 1 else True)
            )
            if not len(kept):
                continue
            some = where.rows(kept)
            found, mirrored = (
                hands_in_image(*given, np.full((len(some), 21, 2), np.nan))
                for given in ((rgb, some), _mirror(rgb, some))
            )
            other = mirrored.xy_px * [-1, 1] + [rgb.shape[1] - 1, 0]
            same = np.linalg.norm(other - found.xy_px, axis=-1).mean(1) < SAME * found.size_px
            near = (
                np.linalg.norm(found.xy_px[:, 0] - wrist_px[kept], axis=-1) < WRIST * found.size_px
            )
            fits = fits_arm(found, some)
            features.append(presence_features(found, some, size_wh)[fits])
            seen.append(
                (same & near & (visible[kept] == 2) & (heavy == 1))[fits].astype(np.float64)
            )
            weight.append(np.full(int(fits.sum()), heavy))
    return np.concatenate(features), np.concatenate(seen), np.concatenate(weight)


def _mirror(rgb: np.ndarray, arms: Arms) -> tuple[np.ndarray, Arms]:
    elbow, wrist = (
        part * [-1, 1] + [rgb.shape[1] - 1, 0] for part in (arms.elbow_px, arms.wrist_px)
    )
    return np.ascontiguousarray(rgb[:, ::-1]), replace(
        arms, elbow_px=elbow, wrist_px=wrist, right=~arms.right
    )


def fit_presence(features: np.ndarray, seen: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Logistic regression; a better score, a nearer wrist, the arm's own side never count against a
    hand.
    """
    sign = np.array([0, 1, -1, 0, 1, 1])

    def cost(x: np.ndarray) -> float:
        odds = features @ x
        return float(
            (weight * (np.logaddexp(0, odds) - seen * odds)).sum() + 0.1 * (x[1:] ** 2).sum()
        )

    bounds = [(0, None) if s > 0 else (None, 0) if s < 0 else (None, None) for s in sign]
    return np.asarray(minimize(cost, np.zeros(len(sign)), method="L-BFGS-B", bounds=bounds).x)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cameras", type=Path, required=True)
    parser.add_argument("--coco", type=Path, required=True)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = error_rows(recording(options.cameras), Epipolar(options.cameras))
    middle = max(int(part["frame"].max()) for part in rows.values()) // 2
    halves = [
        {
            name: {key: value[(part["frame"] > middle) == late] for key, value in part.items()}
            for name, part in rows.items()
        }
        for late in (False, True)
    ]
    if options.check:
        made = {
            name: np.array(values)
            for name, values in json.loads(HAND_CONSTANTS.read_text()).items()
        }
    else:
        error, floor = fit_error(list(halves[0].values()))
        sets = [
            presence_rows(options.coco, "train2017", 1000),
            presence_rows(options.coco, "train2017_256_train", 150),
        ]
        made = {"error": error, "floor": floor}
        made["presence"] = fit_presence(
            *(np.concatenate([part[n] for part in sets]) for n in range(3))
        )
        with atomic_file(HAND_CONSTANTS) as temporary:
            temporary.write_text(
                json.dumps(
                    {name: values.round(4).tolist() for name, values in made.items()}, indent=1
                )
                + "\n"
            )
    print(
        "the second half of the recording      within 1 std   2 std   median error, % of the hand's length"
    )
    for name, part in (
        *halves[1].items(),
        ("all", {k: np.concatenate([p[k] for p in halves[1].values()]) for k in halves[1]["cut"]}),
    ):
        z = np.abs(standardised(part, made["error"], made["floor"])[0])
        typical = np.median(np.abs(part["residual"]) / np.sqrt((part["slope"] ** 2).sum(1)))
        print(
            f"{name:>12}: {len(z):6} keypoints {(z < 1).mean():20.1%} {(z < 1.96).mean():8.1%} {typical:14.1%}"
        )
    features, seen, weight = presence_rows(options.coco, "val2017", 10_000)
    stated = 1 / (1 + np.exp(-features @ made["presence"]))
    print("arms of val2017")
    for low, high in ((0, 0.1), (0.1, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.001)):
        here = (stated >= low) & (stated < high) & (weight == 1)
        means = (
            f"{stated[here].mean():.2f} stated, {seen[here].mean():.2f} seen" if here.any() else ""
        )
        print(f"presence {low:.2f} to {high:.2f}: {here.sum():4} arms, {means}")
    feet = weight < 1
    print(f"feet taken for hands: {(stated[feet] >= SEEN).sum()} of {feet.sum()} that could be one")


if __name__ == "__main__":
    main()
