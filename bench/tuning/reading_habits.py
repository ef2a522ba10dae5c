"""Where do networks read the keypoints of real, dressed people, beside where the body has them?

    python bench/tuning/reading_habits.py --coco shared/data/coco --work FOLDER [--fit]

COCO's people of the 256-pixel training images who stand upright with straight legs, facing the
camera or away, are read by RTMPose-s. In the image of such a person the lengths of bones tell
proportions: they stand beside those of the open body of mean shape, and those of ten people of a
held-out set and of the man of pose2sim whose keypoints were triangulated. Cameras that look down
shorten legs in images, so the means of `fitting.body.reading.HABITS` cannot be read off these
ratios: they were chosen so that people lean less, without making the man of pose2sim, whose hips are
read where they are, much worse. One half of the people chooses, the other reports.

--fit also fits everyone alone from one image: how far trunk and legs lean to the camera. People
stand upright, so both should be near 0, facing and facing away.
"""

import argparse
import json
import sys
from pathlib import Path

import cv2
import numpy as np
import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import fitting
import pose2d
from bench.lib.claim import Console, claim
from ccnet.confidence import confidence_function
from fitting.body.reading import READINGS
from fitting.camera import Camera
from fitting.fits import FitOptions
from pose2d.crops import estimate_people
from pose2d.skeletons import HALPE26
from pose2d.types import ErrorDistribution, Keypoints

ANNOTATIONS = "person_keypoints_train2017_256_train.json"
IMAGES = "train2017_256"
MODEL = "rtmpose-s-halpe26"
LEAST_HEIGHT_PX = 60  # of a box, in the stored images
UPRIGHT = 0.96  # cosine of limbs with the image's vertical
STRAIGHT_DEG = 12.0
LEAST_SCORE = 0.4
FACING_WIDTH = 0.5  # of the torso's length: shoulders of people who face the camera or face away
LEGS = ((11, 13, 15), (12, 14, 16))
ARMS = ((5, 7, 9), (6, 8, 10))
TRIANGULATED = {  # legs / torso, thigh / shank, shoulders / torso, upper arm / forearm
    "ten people in everyday clothes, triangulated": (1.43, 0.99, 0.66, 1.16),
    "the man of pose2sim, triangulated": (1.60, 1.08, 0.70, 1.05),
}


def is_upright(points: np.ndarray) -> bool:
    """Return whether an annotated person [17, 3] shows all limbs and stands on straight legs."""
    xy = points[:, :2]
    if not (points[5:17, 2] > 0).all():
        return False
    limbs = [xy[[11, 12]].mean(0) - xy[[5, 6]].mean(0)]
    for hip, knee, ankle in LEGS:
        limbs += [xy[knee] - xy[hip], xy[ankle] - xy[knee]]
    return all(limb[1] > UPRIGHT * np.linalg.norm(limb) > 0 for limb in limbs)


def read_people(coco: Path, cache: Path) -> None:
    """Write the keypoints of upright people as RTMPose-s reads them."""
    content = json.loads((coco / "annotations" / ANNOTATIONS).read_text())
    entries = {entry["id"]: entry for entry in content["images"]}
    model = pose2d.load(MODEL)
    with_confidence = confidence_function("ccnet", MODEL, model, None)
    people = []
    sizes = []
    for person in content["annotations"]:
        entry = entries[person["image_id"]]
        x, y, width, height = person["bbox"]
        is_large = height * entry["file_height"] >= LEAST_HEIGHT_PX * entry["height"]
        if not is_large or not is_upright(np.reshape(person["keypoints"], (-1, 3))):
            continue
        image = cv2.imread(str(coco / "images" / IMAGES / entry["file_name"]))
        if image is None:
            continue
        size = (entry["width"], entry["height"])
        image = cv2.resize(image, size, interpolation=cv2.INTER_CUBIC)[:, :, ::-1]
        box = np.array([[x, y, x + width, y + height]])
        _, estimate = estimate_people(model, [np.ascontiguousarray(image)], box)
        people.append(with_confidence(estimate))
        sizes.append(size)
    keypoints = Keypoints.concat(people)
    assert keypoints.error is not None
    log_ratio = keypoints.error.log_ratio
    assert keypoints.raw is not None
    arrays = {
        "raw": keypoints.raw,
        "xy_px": keypoints.xy_px,
        "confidence": keypoints.confidence,
        "presence": keypoints.presence,
        "weight": keypoints.error.weight,
        "sigma": keypoints.error.sigma,
        **({} if log_ratio is None else {"log_ratio": log_ratio}),
    }
    np.savez(
        cache,
        size_px=np.array(sizes),
        **{name: value.numpy() for name, value in arrays.items()},  # type: ignore[arg-type]
    )


def load_people(cache: Path) -> tuple[Keypoints, np.ndarray]:
    """Return the keypoints of upright people and the sizes [N, 2] of their images."""
    with np.load(cache) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    error = ErrorDistribution(arrays["weight"], arrays["sigma"], arrays.get("log_ratio"))
    keypoints = Keypoints(
        arrays["xy_px"],
        arrays["confidence"],
        arrays["presence"],
        "ccnet",
        skeleton=HALPE26,
        error=error,
        raw=arrays["raw"],
    )
    return keypoints, arrays["size_px"].numpy()


def lengths(points: np.ndarray, pairs: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Return the mean length [N] of bones between keypoints [N, 26, 2 or 3]."""
    return np.mean([np.linalg.norm(points[:, a] - points[:, b], axis=-1) for a, b in pairs], 0)


def proportions(points: np.ndarray) -> np.ndarray:
    """Return legs / torso, thigh / shank, shoulders / torso, upper arm / forearm, [N, 4]."""
    torso = np.linalg.norm(points[:, 5:7].mean(1) - points[:, 11:13].mean(1), axis=-1)
    thigh = lengths(points, tuple(leg[:2] for leg in LEGS))
    shank = lengths(points, tuple(leg[1:] for leg in LEGS))
    upper = lengths(points, tuple(arm[:2] for arm in ARMS))
    fore = lengths(points, tuple(arm[1:] for arm in ARMS))
    shoulders = lengths(points, ((5, 6),))
    return np.stack([(thigh + shank) / torso, thigh / shank, shoulders / torso, upper / fore], 1)


def facings(keypoints: Keypoints) -> dict[str, np.ndarray]:
    """Return who [N] stands upright on straight legs as read, facing the camera or away."""
    xy = keypoints.xy_px.numpy()
    assert keypoints.raw is not None
    good = keypoints.raw.numpy()[:, 5:17].min(1) > LEAST_SCORE
    torso = xy[:, 11:13].mean(1) - xy[:, 5:7].mean(1)
    for hip, knee, ankle in LEGS:
        thigh = xy[:, knee] - xy[:, hip]
        shank = xy[:, ankle] - xy[:, knee]
        cosine = (thigh * shank).sum(1)
        cosine /= np.linalg.norm(thigh, axis=1) * np.linalg.norm(shank, axis=1)
        good &= cosine > np.cos(np.radians(STRAIGHT_DEG))
        for limb in (thigh, shank, torso):
            good &= limb[:, 1] > UPRIGHT * np.linalg.norm(limb, axis=1)
    width = (xy[:, 5, 0] - xy[:, 6, 0]) / np.linalg.norm(torso, axis=1)
    return {
        "facing the camera": good & (width > FACING_WIDTH),
        "facing away": good & (width < -FACING_WIDTH),
    }


def proportion_table(keypoints: Keypoints, body: fitting.Body) -> Table:
    """Return the proportions of people as read, and of the open body."""
    table = Table(title="proportions: median (10 % .. 90 %)")
    for column in ("people", "n", "legs / torso", "thigh / shank", "shoulders / torso", "arm"):
        table.add_column(column)
    rest = torch.zeros(1, 24, 3)
    own = proportions(body(rest).keypoints.numpy())[0]
    table.add_row("open body, keypoints", "", *(f"{value:.2f}" for value in own))
    read = proportions(body(rest, reading=torch.zeros(READINGS)).keypoints.numpy())[0]
    table.add_row("open body, as most people are read", "", *(f"{value:.2f}" for value in read))
    for name, values in TRIANGULATED.items():
        table.add_row(name, "", *(f"{value:.2f}" for value in values))
    observed = proportions(keypoints.xy_px.numpy())
    half = np.arange(len(keypoints)) % 2
    for facing, rows in facings(keypoints).items():
        for number, title in enumerate(("choose", "report")):
            part = observed[rows & (half == number)]
            low, median, high = np.percentile(part, (10, 50, 90), axis=0)
            cells = [
                f"{m:.2f} ({a:.2f} .. {b:.2f})" for a, m, b in zip(low, median, high, strict=True)
            ]
            table.add_row(f"COCO, {facing}, {title}", str(len(part)), *cells)
    return table


def lean_table(keypoints: Keypoints, sizes: np.ndarray, body: fitting.Body) -> Table:
    """Return how far people who are fitted from one image lean to the camera."""
    table = Table(title="degrees to the camera, median (10 % .. 90 %)")
    for column in ("people", "n", "trunk", "legs", "whole body", "readings"):
        table.add_column(column)
    half = np.arange(len(keypoints)) % 2
    for facing, rows in facings(keypoints).items():
        for number, title in enumerate(("choose", "report")):
            chosen = np.flatnonzero(rows & (half == number))
            cameras = [Camera.default(tuple(sizes[row].tolist())) for row in chosen]
            read = keypoints.rows(torch.from_numpy(chosen))
            fit = fitting.fit_frames(read, cameras, body, options=FitOptions(reads=True))
            joints = body.at(fit.params).joints.numpy()
            hips = joints[:, 1:3].mean(1)
            ankles = joints[:, 7:9].mean(1)
            cells = []
            for vector in (joints[:, 12] - hips, hips - ankles, joints[:, 12] - ankles):
                lean = np.degrees(np.arctan2(-vector[:, 2], -vector[:, 1]))
                low, median, high = np.percentile(lean, (10, 50, 90))
                cells.append(f"{median:.1f} ({low:.0f} .. {high:.0f})")
            reading = fit.params.reading
            means = "" if reading is None else ", ".join(f"{r:.1f}" for r in reading.mean(0))
            table.add_row(f"{facing}, {title}", str(len(chosen)), *cells, means)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--coco", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder; keypoints there are kept")
    parser.add_argument("--fit", action="store_true", help="also fit everyone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    cache = options.work / "upright.npz"
    if not cache.is_file():
        read_people(options.coco, cache)
    keypoints, sizes = load_people(cache)
    body = fitting.load_body()
    console = Console()
    console.print(proportion_table(keypoints, body))
    if options.fit:
        console.print(lean_table(keypoints, sizes, body))


if __name__ == "__main__":
    claim(main)
