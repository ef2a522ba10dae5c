"""Where people are: MultiPose MoveNet at any size and for any number of people, or boxes that were given."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pose2d import crops
from pose2d.base.errors import UserError
from pose2d.checkpoints import read_state
from pose2d.models import movenet_network as movenet
from pose2d.models.movenet_network import MoveNet

COCO_PERSON = 1  # category of a person in COCO's files


@dataclass(frozen=True)
class Detections:
    """People found in one image, highest score first."""

    boxes_px: np.ndarray  # [N, 4] x1, y1, x2, y2 in the image
    scores: np.ndarray  # [N] in [0, 1]

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True)
class DetectorInput:
    """An image at one size, ready for the network."""

    pixels: Tensor  # [1, 3, h, w] float32, normalised
    scale: float  # its pixels per pixel of the image
    image_wh: tuple[int, int]


@dataclass(frozen=True)
class DetectorOptions:
    """Every choice the detector leaves open. bench/coco_accuracy.py shows what they cost and give."""

    long_side: int = 512  # pixels the image's longer side is resized to, a multiple of 32
    second_long_side: int | None = None  # a second pass at another size; 256 and 512 together find most
    score_threshold: float = 0.2  # higher: fewer boxes, more of them right
    nms_iou: float = 0.6  # of two boxes that overlap more than this, the one with the higher score stays
    most_people: int = 100  # candidates at each size

    def __post_init__(self) -> None:
        for side in self.long_sides:
            if side < 32 or side % 32:
                raise UserError(f"the detector's size must be a positive multiple of 32, got {side}.")

    @property
    def long_sides(self) -> tuple[int, ...]:
        return (self.long_side,) if self.second_long_side is None else (self.long_side, self.second_long_side)


def detector_inputs(image: np.ndarray, options: DetectorOptions) -> list[DetectorInput]:
    """An RGB uint8 image [H, W, 3] at each size. NumPy only, so that another thread can prefetch it."""
    crops.check_image(image)
    height, width = image.shape[:2]
    inputs = []
    for long_side in options.long_sides:
        scale = long_side / max(height, width)
        # The image goes to the top left corner, pixel edges onto pixel edges; the sides become multiples of 32.
        shift = (scale - 1) / 2
        affine = np.array([[[scale, 0, shift], [0, scale, shift]]])
        input_w, input_h = (int(np.ceil(round(side * scale, 6) / 32)) * 32 for side in (width, height))
        pixels = movenet.normalized(crops.cut(image, affine, (input_w, input_h)).numpy())
        inputs.append(DetectorInput(torch.from_numpy(pixels), scale, (width, height)))
    return inputs


class Detector(nn.Module):
    """MultiPose MoveNet as a person detector."""

    def __init__(self, options: DetectorOptions | None = None) -> None:
        super().__init__()
        self.options = options or DetectorOptions()
        self.net = movenet.MoveNet(1.5, movenet.MULTI_HEADS)
        weights = files("pose2d") / "weights" / "movenet_multipose_fp16.npz"
        self.net.load_state_dict(movenet.adopt(read_state(Path(str(weights)))))
        self.eval().requires_grad_(False)

    def detect(self, image: np.ndarray) -> Detections:
        """People in an RGB uint8 image [H, W, 3]."""
        return self.find(detector_inputs(image, self.options))

    @torch.inference_mode()
    def find(self, inputs: Sequence[DetectorInput]) -> Detections:
        """People in one image, from its inputs at all sizes."""
        candidates = [self._candidates_in_image(one) for one in inputs]
        boxes = np.concatenate([boxes for boxes, _ in candidates])
        scores = np.concatenate([scores for _, scores in candidates])
        found = (scores >= self.options.score_threshold) & (boxes[:, 2:] > boxes[:, :2]).all(1)
        boxes, scores = boxes[found], scores[found]
        keep = non_maximum_suppression(boxes, scores, self.options.nms_iou)
        return Detections(boxes[keep], scores[keep])

    def _candidates_in_image(self, one: DetectorInput) -> tuple[np.ndarray, np.ndarray]:
        """Candidate boxes [M, 4] in the image and their scores [M]."""
        boxes, scores = self._candidates(one.pixels.to(self.net.stem.weight.device))
        width, height = one.image_wh
        return (boxes.cpu().double().numpy() / one.scale).clip(0, [width, height, width, height]), scores.cpu().numpy()

    def _candidates(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes [M, 4] in input pixels and scores [M] of the centre map's peaks."""
        trunk = self.net.trunk(image)
        centre = self.net.head("center")(trunk).sigmoid()
        peak = centre * (F.max_pool2d(centre, 5, 1, 2) == centre)
        certainty, index = peak.flatten(1).topk(min(self.options.most_people, peak[0].numel()))
        cells = movenet.cells_of(index, peak.shape[-1])
        middle = cells + self.net.head("box_offset").at(trunk, cells).flip(-1)
        half = self.net.head("box_scale").at(trunk, cells).flip(-1).clamp_min(0) / 2
        boxes = torch.cat([middle - half, middle + half], -1)[0] * movenet.STRIDE
        return boxes, self._score(certainty[0], trunk, cells, 2 * half)

    def _score(self, certainty: Tensor, trunk: Tensor, cells: Tensor, box_cells: Tensor) -> Tensor:
        """Scores [M]: the geometric mean of the centre map's height and the mean heat of the expected keypoints."""
        return (certainty * keypoint_evidence(self.net, trunk, cells, box_cells)).sqrt()


def iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of every box of a [N, 4] with every box of b [M, 4]: [N, M]."""
    first, last = np.maximum(a[:, None, :2], b[:, :2]), np.minimum(a[:, None, 2:], b[:, 2:])
    both = (last - first).clip(0).prod(-1)
    area_a, area_b = ((boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (a, b))
    return both / np.maximum(area_a[:, None] + area_b - both, 1e-12)


def non_maximum_suppression(boxes: np.ndarray, scores: np.ndarray, limit: float) -> np.ndarray:
    """Indices to keep, highest score first: a box goes when it overlaps a kept one by more than `limit`."""
    order = np.argsort(-scores, kind="stable")
    overlap = iou(boxes, boxes)
    keep: list[int] = []
    for index in order:
        if not (overlap[index, keep] > limit).any():
            keep.append(int(index))
    return np.array(keep, int)


def whole_image(image: np.ndarray) -> Detections:
    """One box around everything, for an image that is already a crop of one person."""
    height, width = image.shape[:2]
    return Detections(np.array([[0.0, 0.0, width, height]]), np.ones(1))


def read_detections(path: str | Path) -> dict[int, Detections]:
    """Person boxes by image id, from a COCO-detections json: [{image_id, category_id, bbox: [x, y, w, h], score}]."""
    try:
        entries = json.loads(Path(path).read_text())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise UserError(f"{path} is not json: {error}.") from error
    if not isinstance(entries, list):
        raise UserError(
            f"{path} must hold a list of detections (COCO's results format), not a {type(entries).__name__}."
        )
    rows: dict[int, list[tuple[list[float], float]]] = {}
    for number, entry in enumerate(entries):
        try:
            if int(entry.get("category_id", COCO_PERSON)) != COCO_PERSON:
                continue
            x, y, w, h = (float(value) for value in entry["bbox"])
            crops.check_boxes(np.array([[x, y, x + w, y + h]]))
            rows.setdefault(int(entry["image_id"]), []).append(([x, y, x + w, y + h], float(entry.get("score", 1.0))))
        except (KeyError, TypeError, ValueError, AttributeError, UserError) as error:
            raise UserError(
                f"{path}: entry {number} is no detection ({error!r}). Expected image_id, bbox [x, y, w, h] and score."
            ) from error
    found = {}
    for image, people in rows.items():
        boxes, scores = np.array([box for box, _ in people]), np.array([score for _, score in people])
        order = np.argsort(-scores, kind="stable")
        found[image] = Detections(boxes[order], scores[order])
    return found


EVIDENCE_KEYPOINTS = 8  # of 17 keypoints: half of a person may be hidden
SEARCH_STEPS = 3  # steps in each direction
SEARCH_STEP = 0.03  # of the box's diagonal, at least one cell


def keypoint_evidence(net: MoveNet, trunk: Tensor, cells: Tensor, box_cells: Tensor) -> Tensor:
    """Mean heat [M], in 0..1, of the best keypoints near where centres at cells [1, M, 2] (x, y) expect them, for
    boxes of width and height `box_cells` [1, M, 2]. A centre alone can be a table or a bush; a person has keypoints
    (bench/detector_evidence.py)."""
    heat = net.head("kpt_heatmap")(trunk).sigmoid()[0]  # [17, h, w]
    expected = cells[0, :, None] + net.head("kpt_regress").at(trunk, cells).unflatten(-1, (17, 2))[0].flip(-1)
    step = (SEARCH_STEP * box_cells[0].norm(dim=-1)).clamp_min(1)
    grid = torch.arange(-SEARCH_STEPS, SEARCH_STEPS + 1, device=trunk.device)
    around = torch.stack(torch.meshgrid(grid, grid, indexing="xy"), -1).flatten(0, 1)  # [S, 2]
    places = (expected[:, :, None] + step[:, None, None, None] * around).round().long()  # [M, 17, S, 2]
    h, w = heat.shape[1:]
    x, y = places[..., 0].clamp(0, w - 1), places[..., 1].clamp(0, h - 1)
    keypoint = torch.arange(17, device=trunk.device)[None, :, None]
    return heat[keypoint, y, x].amax(-1).topk(EVIDENCE_KEYPOINTS, dim=-1).values.mean(-1)
