"""Read a crop's pixels and keypoints, and state the body with its depth and contacts.

The stem and the first three stages are those of the embedded RTMPose-s, frozen, which the 2D pass
computes anyway. The last stage is the network's own and starts from RTMPose-s. A small decoder
with one query per joint reads its map and a token of each keypoint: the lifter's numbers of it
(place, stated error, CLIFF's box information) and the frozen features at its place.
"""

import copy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fitting.body.kinematics import JOINT_COUNT
from fitting.body.rotations import matrix_to_rot6d, rot6d_to_matrix
from fitting.init.lifter_inputs import FEATURES, PER_KEYPOINT
from fitting.init.lifter_network import INITIAL_LOG_STD, SHAPE, LifterOutput
from pose2d.models.rtmpose import RTMPose
from pose2d.skeletons import HALPE26
from training.motion.surface_points import CONTACTS

WIDTH = 192
HEADS = 6
LAYERS = 3
DEPTH_BINS = 40
FARTHEST_DEPTH_M = 1.0  # of a joint from the pelvis along the line of sight
EARLY_STAGES = ("stem", "stage1", "stage2", "stage3")
EARLY_CHANNELS = 256
LATE_CHANNELS = 512
MAP_CELLS = 48  # of the last stage's map: 8 by 6
_UPRIGHT = (1.0, -1.0, -1.0)  # y up, z to us -> y down, z away


class ImageLifterOutput(NamedTuple):
    """The network's statement about B people, in the camera that is turned towards each."""

    body: LifterOutput  # each with a time axis of one frame
    depth_logits: Tensor  # [B, 24, DEPTH_BINS] of joints from the pelvis along the line of sight
    contact_logits: Tensor  # [B, 12] in the order of `surface_points.CONTACTS`

    def depth_m(self) -> Tensor:
        """Return the mean [B, 24] of the stated distributions of depth."""
        return self.depth_logits.softmax(-1) @ depth_bins_m()


def depth_bins_m() -> Tensor:
    """Return the middle [DEPTH_BINS] of each bin of depth."""
    half_bin = FARTHEST_DEPTH_M / DEPTH_BINS
    return torch.linspace(-FARTHEST_DEPTH_M + half_bin, FARTHEST_DEPTH_M - half_bin, DEPTH_BINS)


class DecoderLayer(nn.Module):
    """Attention among joints, from joints to what the crop shows, and a feed-forward step."""

    def __init__(self) -> None:
        super().__init__()
        self.own_norm = nn.LayerNorm(WIDTH)
        self.own_attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.cross_norm = nn.LayerNorm(WIDTH)
        self.cross_attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.step_norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, queries: Tensor, memory: Tensor) -> Tensor:
        own = self.own_norm(queries)
        queries = queries + self.own_attention(own, own, own, need_weights=False)[0]
        normed = self.cross_norm(queries)
        queries = queries + self.cross_attention(normed, memory, memory, need_weights=False)[0]
        return queries + self.down(F.gelu(self.up(self.step_norm(queries))))


class ImageLifter(nn.Module):
    """Crops and keypoints -> bodies, depths and contacts."""

    mean_pose: Tensor  # [24, 6] added to the output

    def __init__(self, model: RTMPose) -> None:
        """model: RTMPose-s; its early stages are shared, its last stage is copied."""
        super().__init__()
        # In a tuple, so that the frozen stages are neither trained nor stored with this network.
        self._frozen = (tuple(getattr(model.backbone, name) for name in EARLY_STAGES),)
        self.last_stage = copy.deepcopy(model.backbone.get_submodule("stage4"))
        for parameter in self.last_stage.parameters():
            parameter.requires_grad_(True)
        self.from_map = nn.Linear(LATE_CHANNELS, WIDTH)
        self.map_place = nn.Parameter(0.02 * torch.randn(MAP_CELLS, WIDTH))
        place_features = FEATURES - PER_KEYPOINT * HALPE26.size
        self.from_keypoint = nn.Linear(PER_KEYPOINT + place_features, WIDTH)
        self.from_pixels = nn.Linear(EARLY_CHANNELS, WIDTH)
        self.keypoint_name = nn.Parameter(0.02 * torch.randn(HALPE26.size, WIDTH))
        self.queries = nn.Parameter(0.02 * torch.randn(JOINT_COUNT + 1, WIDTH))
        self.query_place = nn.Linear(place_features, WIDTH)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))
        self.output_norm = nn.LayerNorm(WIDTH)
        self.to_rotation = _small_linear(6)
        self.to_depth = _small_linear(DEPTH_BINS)
        self.to_body = _small_linear(SHAPE + 3)
        self.to_contacts = _small_linear(len(CONTACTS))
        self.to_rotation_std = _small_linear(1)
        self.to_distance_std = _small_linear(1)
        upright = torch.eye(3).repeat(JOINT_COUNT, 1, 1)
        upright[0] = torch.diag(torch.tensor(_UPRIGHT))
        self.register_buffer("mean_pose", matrix_to_rot6d(upright))

    @torch.no_grad()
    def early_features(self, crops: Tensor) -> Tensor:
        """Return the frozen map [B, 256, H/16, W/16] of normalised crops [B, 3, H, W]."""
        maps = crops.contiguous(memory_format=torch.channels_last)
        for stage in self._frozen[0]:
            maps = stage(maps)
        return maps

    def forward(self, early: Tensor, features: Tensor, points: Tensor) -> ImageLifterOutput:
        """Return the bodies of B people.

        early: `early_features`. features [B, FEATURES]: what the lifter reads. points [B, 26, 2]:
        keypoints in the crop, from -1 to 1 along each axis.
        """
        memory = self._memory(early, features, points)
        place = features[:, PER_KEYPOINT * HALPE26.size :]
        queries = self.queries + self.query_place(place)[:, None]
        for layer in self.layers:
            queries = layer(queries, memory)
        tokens = self.output_norm(queries).float()
        joints = tokens[:, :JOINT_COUNT]
        person = tokens[:, JOINT_COUNT]
        rotation = rot6d_to_matrix(self.mean_pose + self.to_rotation(joints).float())
        shape, offset, size = self.to_body(person).float().split((SHAPE, 2, 1), -1)
        # Stated deviations learn from the errors without changing what makes them.
        joint_std = self.to_rotation_std(joints.detach()).float().squeeze(-1) + INITIAL_LOG_STD
        distance_std = self.to_distance_std(person.detach()).float() + INITIAL_LOG_STD
        body = LifterOutput(
            rotation[:, None],
            shape[:, None],
            offset[:, None],
            size,
            joint_std[:, None],
            distance_std,
        )
        return ImageLifterOutput(
            body, self.to_depth(joints).float(), self.to_contacts(person).float()
        )

    def _memory(self, early: Tensor, features: Tensor, points: Tensor) -> Tensor:
        """Return what the joints attend to: cells of the map, and keypoints, [B, 48 + 26, WIDTH]."""
        late = self.last_stage(early)
        cells = self.from_map(late.flatten(2).mT) + self.map_place
        count = PER_KEYPOINT * HALPE26.size
        keypoints = features[:, :count].unflatten(-1, (HALPE26.size, PER_KEYPOINT))
        place = features[:, None, count:].expand(-1, HALPE26.size, -1)
        tokens = self.from_keypoint(torch.cat((keypoints, place), -1)) + self.keypoint_name
        pixels = F.grid_sample(
            early.float(), points[:, :, None], padding_mode="border", align_corners=False
        )
        tokens = tokens + self.from_pixels(pixels.squeeze(-1).mT)
        return torch.cat((cells, tokens), 1)


def _small_linear(outputs: int) -> nn.Linear:
    """Return a layer whose first outputs are nearly zero."""
    layer = nn.Linear(WIDTH, outputs)
    nn.init.normal_(layer.weight, std=0.002)
    nn.init.zeros_(layer.bias)
    return layer
