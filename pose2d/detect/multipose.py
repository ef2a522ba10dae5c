"""MultiPose MoveNet as a person detector, at any size and for any number of people."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pose2d import crops
from pose2d.base.embedded import check_embedded
from pose2d.detect.detector import DetectorOptions, PersonDetector
from pose2d.models import movenet
from pose2d.models.checkpoints import WEIGHTS, read_state
from pose2d.models.movenet import MoveNet

EVIDENCE_KEYPOINTS = 8  # of 17 keypoints: half of a person may be hidden
SEARCH_STEPS = 3  # steps in each direction
SEARCH_STEP = 0.03  # of the box's diagonal, at least one cell


class MultiPose(PersonDetector):
    """MultiPose MoveNet as a person detector."""

    defaults = DetectorOptions()
    licence = "Apache-2.0"

    def __init__(self, options: DetectorOptions | None = None) -> None:
        super().__init__(options)
        self.net = movenet.MoveNet(1.5, movenet.MULTI_HEADS)
        self.net.load_state_dict(
            movenet.convert(read_state(check_embedded(WEIGHTS / "movenet_multipose_fp16.npz")))
        )
        self.eval().requires_grad_(False)

    @staticmethod
    def prepare(image: np.ndarray, long_side: int) -> tuple[np.ndarray, float]:
        """Return the image in the top left corner of an input whose sides are multiples of 32,
        pixel edges on pixel edges, and its scale.
        """
        height, width = image.shape[:2]
        scale = long_side / max(height, width)
        shift = (scale - 1) / 2
        affine = np.array([[[scale, 0, shift], [0, scale, shift]]])
        input_w, input_h = (
            int(np.ceil(round(side * scale, 6) / 32)) * 32 for side in (width, height)
        )
        return crops.cut(image, affine, (input_w, input_h)).numpy(), scale

    def candidates(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes [M, 4] in input pixels and scores [M] of the centre map's peaks."""
        trunk = self.net.trunk(movenet.normalize(pixels))
        centre = self.net.head("center")(trunk).sigmoid()
        peak = centre * (F.max_pool2d(centre, 5, 1, 2) == centre)
        certainty, index = peak.flatten(1).topk(min(self.options.most_people, peak[0].numel()))
        cells = movenet.cells_of(index, peak.shape[-1])
        middle = cells + self.net.head("box_offset").at(trunk, cells).flip(-1)
        half = self.net.head("box_scale").at(trunk, cells).flip(-1).clamp_min(0) / 2
        boxes = torch.cat([middle - half, middle + half], -1)[0] * movenet.STRIDE
        return boxes, self._score(certainty[0], trunk, cells, 2 * half)

    def _score(self, certainty: Tensor, trunk: Tensor, cells: Tensor, box_cells: Tensor) -> Tensor:
        """Return scores [M]: the geometric mean of the centre map's peaks and the mean heat of the
        expected keypoints.
        """
        return (certainty * keypoint_evidence(self.net, trunk, cells, box_cells)).sqrt()


def keypoint_evidence(net: MoveNet, trunk: Tensor, cells: Tensor, box_cells: Tensor) -> Tensor:
    """Return the mean heat [M], in 0..1, of the best keypoints near where centres at cells [1, M,
    2] (x, y) expect them, for boxes of width and height `box_cells` [1, M, 2].

    A centre alone can be a table or a bush; a person has keypoints (bench/detector_evidence.py)."""
    heat = net.head("kpt_heatmap")(trunk).sigmoid()[0]  # [17, h, w]
    offset = net.head("kpt_regress").at(trunk, cells).unflatten(-1, (17, 2))[0].flip(-1)
    expected = cells[0, :, None] + offset  # [M, 17, 2]
    step = (SEARCH_STEP * box_cells[0].norm(dim=-1)).clamp_min(1)
    grid = torch.arange(-SEARCH_STEPS, SEARCH_STEPS + 1, device=trunk.device)
    around = torch.stack(torch.meshgrid(grid, grid, indexing="xy"), -1).flatten(0, 1)  # [S, 2]
    # [M, 17, S, 2]
    places = (expected[:, :, None] + step[:, None, None, None] * around).round().long()
    h, w = heat.shape[1:]
    x = places[..., 0].clamp(0, w - 1)
    y = places[..., 1].clamp(0, h - 1)
    keypoint = torch.arange(17, device=trunk.device)[None, :, None]
    return heat[keypoint, y, x].amax(-1).topk(EVIDENCE_KEYPOINTS, dim=-1).values.mean(-1)
