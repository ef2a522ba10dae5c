"""Fit the stated error of hand keypoints to a hand that two calibrated cameras recorded."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
from scipy.optimize import minimize

from pose2d.hands import (
    Look,
    error_features,
    look,
    region_around,
    relative_std,
)
from pose2d.video.frames import Span
from pose2d.video.video_file import Video

SCALES = (1.0, 0.5, 0.25, 0.12)  # of the recording: hands of 300 to 30 px
DAMAGED = ("cut", "blurred", "covered")  # one camera's image at half size
PARTS = (*map(str, SCALES), *DAMAGED)
# degrees of freedom of the distribution the errors are thought to have while numbers are chosen
TAILS = 4.0


def numbers(path: Path) -> np.ndarray:
    """Read the rows of numbers in a calibration file, up to a line of comment."""
    rows = []
    for line in path.read_text().split("#")[0].splitlines():
        try:
            rows.append([float(word) for word in line.split()])
        except ValueError:
            continue
    return np.array([value for row in rows for value in row])


def first_hand(rgb: np.ndarray) -> Look:
    """Find the hand in an image of which nothing is known."""
    places = np.stack(
        np.meshgrid(
            range(100, 720, 130), range(100, 720, 130), (200, 320), np.arange(4) * np.pi / 2
        ),
        -1,
    )
    regions = places.reshape(-1, 4).astype(np.float64)
    best = regions[[int(look([rgb] * len(regions), regions).score.argmax())]]
    for _ in range(3):
        hand = look([rgb], best)
        best = region_around(hand.xy_px)
    return hand


def damaged(
    rgb: np.ndarray, xy_px: np.ndarray, damage: str, random: np.random.Generator
) -> np.ndarray:
    """Return an image with a hand that is cut off by the frame, blurred by motion, or covered in
    part.
    """
    low = xy_px.min(0)
    high = xy_px.max(0)
    corner_px = (
        (low + random.uniform(0.25, 0.75, 2) * (high - low))
        .astype(int)
        .clip(2, np.array(rgb.shape[1::-1]) - 2)
    )
    if damage == "cut":
        return np.ascontiguousarray(
            rgb[: corner_px[1]] if random.random() < 0.5 else rgb[:, : corner_px[0]]
        )
    if damage == "blurred":
        length = max(3, int(random.uniform(0.05, 0.3) * (high - low).max()))
        return cv2.filter2D(
            rgb, -1, np.full((1, length) if random.random() < 0.5 else (length, 1), 1 / length)
        )
    out = rgb.copy()
    half = (random.uniform(0.1, 0.3) * (high - low)).astype(int)
    corner = np.maximum(corner_px - half, 0)
    out[corner[1] : corner_px[1] + half[1], corner[0] : corner_px[0] + half[0]] = random.integers(
        0, 256, 3
    )
    return out


def recording(folder: Path) -> dict[str, np.ndarray]:
    """Read the hands of both cameras in all parts of the recording.

    Returns for each part keypoints in pixels of the recording [2, F, 21, 2], lengths [2, F] and
    features of the error [2, F, 21, 6]; NaN where no hand was found.
    """
    out: dict[str, np.ndarray] = {}
    random = np.random.default_rng(0)
    for camera in range(2):
        images = [frame.rgb for frame in Video(folder / f"cam{camera}_test.mp4").frames(Span())]
        for scale in SCALES:
            before: Look | None = None
            for number, image in enumerate(images):
                small = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
                if before is None:
                    if number % 10 == 0:  # the first frames are empty
                        hand = first_hand(image)
                        before = (
                            replace(hand, xy_px=hand.xy_px * scale) if hand.score[0] > 0.5 else None
                        )
                    continue
                current = look([small], region_around(before.xy_px))
                _note(out, str(scale), (camera, number, len(images)), current, before, small, scale)
                if scale == 0.5:
                    for damage in DAMAGED:
                        worse = damaged(small, current.xy_px[0], damage, random)
                        again = look([worse], region_around(before.xy_px))
                        _note(
                            out, damage, (camera, number, len(images)), again, before, worse, scale
                        )
                before = current if current.score[0] > 0.3 else None
    return out


def _note(
    out: dict[str, np.ndarray],
    part: str,
    position: tuple[int, int, int],
    hand: Look,
    before: Look,
    rgb: np.ndarray,
    scale: float,
) -> None:
    """Store one hand's keypoints, length and error features."""
    camera, number, count = position
    values = {
        "xy": hand.xy_px[0] / scale,
        "size": hand.size_px[0] / scale,
        "features": error_features(hand, before.xy_px, (rgb.shape[1], rgb.shape[0]))[0],
    }
    for name, value in values.items():
        column = out.setdefault(f"{part} {name}", np.full((2, count, *np.shape(value)), np.nan))
        if hand.score[0] > 0.1:
            column[camera, number] = value


class Epipolar:
    """Measure how far a pair of keypoints is from what two cameras can see."""

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
        """Return the residual [F, 21] of pixels [F, 21, 2] of both cameras, and its slopes [2, F,
        21].

        For undistorted rays p, q: r = q' E p, dr/dp = E' q, dr/dq = E p.
        """
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
    """Return for each part and pair of keypoints the residual [M] and what belongs to it.

    Slopes in lengths of the hands [M, 2], features [M, 2, 6], frame [M]. Where one image is damaged
    the other is not.
    """
    rows = {}
    for part in PARTS:
        pairs = [(part, part)] if part not in DAMAGED else [(part, "0.5"), ("0.5", part)]
        columns: list[dict[str, np.ndarray]] = []
        for pair in pairs:
            xy, size, features = (
                [data[f"{p} {name}"][n] for n, p in enumerate(pair)]
                for name in ("xy", "size", "features")
            )
            residual, slope = geometry(*xy)
            slope = slope * np.stack(size)[..., None]
            finite = np.isfinite(residual)
            columns.append(
                {
                    "residual": residual[finite],
                    "slope": slope[:, finite].T,
                    "frame": np.nonzero(finite)[0],
                    "features": np.stack([f[finite] for f in features], 1),
                }
            )
        rows[part] = {
            name: np.concatenate([pair_rows[name] for pair_rows in columns]) for name in columns[0]
        }
    return rows


def standardised(
    rows: dict[str, np.ndarray], error: np.ndarray, floor: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return residuals in units of their stated error, and that error [M]."""
    std = np.sqrt(((relative_std(rows["features"], error, floor) * rows["slope"]) ** 2).sum(1))
    return rows["residual"] / std, std


def fit_error(parts: list[dict[str, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Fit the error model by maximum likelihood, all parts with equal weight.

    The result is scaled so that 95 % of the errors lie where they should. Keypoints have no numbers
    of their own: those of the first half, where one finger points, are not those of other gestures
    (58 % and 83 % of the second half within 1 and 2 stated errors, where they had).
    """
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
