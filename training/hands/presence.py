"""Fit how probable it is that a hand is seen, to annotated wrists of COCO."""

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
from pose2d.crops import estimate_people
from pose2d.hands import (
    Arms,
    arms_of,
    fits_arm,
    hands_in_image,
    presence_features,
)
from pose2d.types import Detections

SAME, WRIST = 0.07, 0.35  # in lengths of the hand
MODEL = "rtmpose-s-halpe26"


def people(coco: Path, name: str, most: int) -> Iterator[tuple[np.ndarray, Detections, np.ndarray]]:
    """Yield images, people with the network's keypoints, and their annotated wrists [N, 2, 3]."""
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
    """Return features [M, 6], whether it is a hand [M] and weight [M] of places where a hand could
    be.
    """
    features = []
    is_hand = []
    weight = []
    for rgb, rows, wrists in people(coco, name, most):
        arms = arms_of(rows)
        size_wh = (rgb.shape[1], rgb.shape[0])
        legs = np.asarray(rows.keypoints.xy_px, np.float64)[:, 13:17].reshape(-1, 2, 2, 2)  # type: ignore[union-attr]
        feet = replace(arms, elbow_px=legs[:, 0].reshape(-1, 2), wrist_px=legs[:, 1].reshape(-1, 2))
        visible = wrists[..., 2].ravel()
        wrist_px = wrists[..., :2].reshape(-1, 2)
        for limbs, heavy in ((arms, 1.0), (feet, 0.25)):
            rows_used = np.flatnonzero(
                limbs.large & (limbs.seen & (visible != 1) if heavy == 1 else True)
            )
            if not len(rows_used):
                continue
            candidates = limbs.rows(rows_used)
            hands, mirrored = (
                hands_in_image(*view, np.full((len(candidates), 21, 2), np.nan))
                for view in ((rgb, candidates), _mirror(rgb, candidates))
            )
            mirrored_px = mirrored.xy_px * [-1, 1] + [rgb.shape[1] - 1, 0]
            same = np.linalg.norm(mirrored_px - hands.xy_px, axis=-1).mean(1) < SAME * hands.size_px
            near = (
                np.linalg.norm(hands.xy_px[:, 0] - wrist_px[rows_used], axis=-1)
                < WRIST * hands.size_px
            )
            fits = fits_arm(hands, candidates)
            features.append(presence_features(hands, candidates, size_wh)[fits])
            is_hand.append(
                (same & near & (visible[rows_used] == 2) & (heavy == 1))[fits].astype(np.float64)
            )
            weight.append(np.full(int(fits.sum()), heavy))
    return np.concatenate(features), np.concatenate(is_hand), np.concatenate(weight)


def _mirror(rgb: np.ndarray, arms: Arms) -> tuple[np.ndarray, Arms]:
    elbow, wrist = (
        part * [-1, 1] + [rgb.shape[1] - 1, 0] for part in (arms.elbow_px, arms.wrist_px)
    )
    return np.ascontiguousarray(rgb[:, ::-1]), replace(
        arms, elbow_px=elbow, wrist_px=wrist, right=~arms.right
    )


def fit_presence(features: np.ndarray, is_hand: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Fit a logistic regression with fixed signs.

    A better score, a nearer wrist and the arm's own side never count against a hand.
    """
    sign = np.array([0, 1, -1, 0, 1, 1])

    def cost(x: np.ndarray) -> float:
        odds = features @ x
        return float(
            (weight * (np.logaddexp(0, odds) - is_hand * odds)).sum() + 0.1 * (x[1:] ** 2).sum()
        )

    bounds = [(0, None) if s > 0 else (None, 0) if s < 0 else (None, None) for s in sign]
    return np.asarray(minimize(cost, np.zeros(len(sign)), method="L-BFGS-B", bounds=bounds).x)
