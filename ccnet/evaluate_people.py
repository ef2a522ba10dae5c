"""Run a pose model on a split's images, in annotated boxes or in those of a detector."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from ccnet.closed_form_source import closed_form
from ccnet.coco_ap.matched_oks import matched_oks
from ccnet.coco_ap.pair_oks import pair_oks
from ccnet.data.datasets import Person, Split, by_image, load_image
from ccnet.data.people import ground_truth_from_coco
from ccnet.heads.files import About, about_of
from ccnet.heads.head import Head, flip_average
from ccnet.sources import Answers, trust_of
from pose2d.base.errors import UserError
from pose2d.detect.detector import Detector
from pose2d.estimate import estimate
from pose2d.models.base import PoseModel

BoxSource = Literal["gt", "detector", "json"]
Boxes = Callable[[Sequence[Person], np.ndarray], tuple[np.ndarray, np.ndarray]]  # -> boxes [N, 4], scores [N]


@dataclass(frozen=True)
class _Seen:
    """What the model says of one image."""

    image_id: int
    xy_px: torch.Tensor  # [N, K, 2]
    score: torch.Tensor  # [N, K]
    sigma_px: torch.Tensor  # [N, K, 2]
    calibrated: tuple[torch.Tensor, torch.Tensor] | None  # confidence, presence [N, K]
    crop_area_px2: torch.Tensor  # [N]
    box_score: np.ndarray  # [N]


def annotated_boxes(people: Sequence[Person], image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.array([person.box_px for person in people]), np.ones(len(people))


def detected_boxes(detector: Detector) -> Boxes:
    """The embedded detector's boxes."""

    def find(people: Sequence[Person], image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = detector.detect(image)
        return found.boxes_px, found.scores

    return find


def boxes_from_json(path: str | Path) -> Boxes:
    """Boxes of a COCO detection result file: `image_id`, `bbox` (x, y, width, height), `score`."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"no boxes at {path}.")
    try:
        rows = [row for row in json.loads(path.read_text()) if row.get("category_id", 1) == 1]
        found: dict[int, list[Sequence[float]]] = {}
        for row in rows:
            x, y, width, height = row["bbox"]
            if width > 0 and height > 0:
                found.setdefault(row["image_id"], []).append((x, y, x + width, y + height, row["score"]))
    except (json.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is not a COCO detection file, a list of image_id, bbox and score: {error}.") from error

    def find(people: Sequence[Person], image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        several = np.array(found.get(people[0].image_id, []), float).reshape(-1, 5)
        return several[:, :4], several[:, 4]

    return find


def evaluate_people(
    model: PoseModel,
    head: Head | None,
    split: Split,
    boxes: Boxes = annotated_boxes,
    flip_test: bool = False,
    progress: Callable[[int], None] = lambda people: None,
) -> Answers:
    """Keypoints and every source's trust in them. Only images with labelled people are looked at."""
    seen = []
    for _, people in by_image(split.people):
        image = load_image(people[0])
        found, scores = boxes(people, image)
        if len(found):
            seen.append(_see(model, head, people[0].image_id, image, found, scores, flip_test))
        progress(len(people))
    if not seen:
        raise UserError(f"no boxes in the images of {split.name}: nothing to evaluate.")
    about = about_of(head) if head is not None else None
    return _answers(split, model, about, seen, whose_is_known=boxes is annotated_boxes)


@torch.inference_mode()
def _see(
    model: PoseModel,
    head: Head | None,
    image_id: int,
    image: np.ndarray,
    boxes: np.ndarray,
    scores: np.ndarray,
    flip_test: bool,
) -> _Seen:
    people = estimate(model, image, boxes, flip_test)
    calibrated = head(people.features) if head is not None else None
    if head is not None and calibrated is not None and people.flipped_features is not None:
        calibrated = flip_average(calibrated, head(people.flipped_features), model.skeleton)
    return _Seen(image_id, people.xy_px, people.score, people.sigma_px, calibrated, people.crop_area_px2, scores)


def _answers(
    split: Split, model: PoseModel, about: About | None, seen: Sequence[_Seen], whose_is_known: bool
) -> Answers:
    xy_px = torch.cat([s.xy_px for s in seen])
    score = torch.cat([s.score for s in seen])
    image_id = np.concatenate([np.full(len(s.box_score), s.image_id) for s in seen])
    known = [s.calibrated for s in seen if s.calibrated is not None]
    calibrated = (torch.cat([c for c, _ in known]), torch.cat([p for _, p in known])) if known else None
    sigma, area = torch.cat([s.sigma_px for s in seen]), torch.cat([s.crop_area_px2 for s in seen])
    closed = closed_form(score, sigma, area, model, about)
    found = xy_px.double().numpy()
    if whose_is_known:
        keypoints = np.stack([person.keypoints for person in split.people])
        areas = np.array([person.area_px2 for person in split.people])
        oks, each = matched_oks(found, keypoints[..., :2], keypoints[..., 2] > 0, areas, model.skeleton.oks_sigma)
    else:
        oks, each = best_oks(split, model, image_id, found), np.full(score.shape, np.nan)
    return Answers(
        skeleton=model.skeleton,
        image=image_id,
        xy_px=found,
        box_score=np.concatenate([s.box_score for s in seen]),
        trust=trust_of(score, closed, calibrated, each, oks),
        oks=oks,
        keypoint_oks=each,
    )


def best_oks(split: Split, model: PoseModel, image_id: np.ndarray, xy_px: np.ndarray) -> np.ndarray:
    """OKS of each found person with the most similar one of its image, [N]; 0 where nobody is labelled."""
    truth = ground_truth_from_coco(split.dataset, model.skeleton.size)
    people: Mapping[int, np.ndarray] = {
        i: np.flatnonzero((truth.image == i) & ~truth.ignore) for i in np.unique(image_id).tolist()
    }
    pairs = [(d, g) for d, i in enumerate(image_id.tolist()) for g in people[i]]
    best = np.zeros(len(image_id))
    if pairs:
        found, person = np.array(pairs).T
        sigmas = np.asarray(model.skeleton.oks_sigma)
        oks = pair_oks(found, person, xy_px, truth.xy_px, truth.visibility > 0, truth.area_px2, truth.box_px, sigmas)
        np.maximum.at(best, found, oks)
    return best
