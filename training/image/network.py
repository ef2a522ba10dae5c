"""Read a crop's pixels besides its keypoints, and state the body with its depth and contacts.

The stem and the first three stages are those of the embedded RTMPose-s, frozen, which the 2D pass
computes anyway. The last stage is the network's own and starts from RTMPose-s. A small decoder
with one query per joint reads its map and a token of each keypoint: the lifter's numbers of it
(place, stated error, CLIFF's box information) and the frozen features at its place.

The network corrects the lifter's answer for the single frame, so before training it is as good as
the lifter, and all that it learns is what pixels add.
"""

import copy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fitting.body import Body
from fitting.body.kinematics import JOINT_COUNT, JOINT_NAMES
from fitting.body.rotations import matrix_to_rot6d, rot6d_to_matrix
from fitting.init.lifter_inputs import FEATURES, PER_KEYPOINT
from fitting.init.lifter_network import SHAPE, LifterOutput, load_lifter
from pose2d.models.rtmpose import RTMPose
from pose2d.skeletons import HALPE26
from training.examples.lifter_examples import place_bodies
from training.motion.surface_points import CONTACTS

WIDTH = 192
HEADS = 6
LAYERS = 2
EARLY_STAGES = ("stem", "stage1", "stage2", "stage3")
EARLY_CHANNELS = 256
LATE_CHANNELS = 512
MAP_CELLS = 48  # of the last stage's map: 8 by 6
# Bones of which the network states how far they point at the camera, from start to end.
BONES = tuple(
    (JOINT_NAMES.index(start), JOINT_NAMES.index(end))
    for start, end in (
        *((f"{side}_hip", f"{side}_knee") for side in ("left", "right")),
        *((f"{side}_knee", f"{side}_ankle") for side in ("left", "right")),
        *((f"{side}_shoulder", f"{side}_elbow") for side in ("left", "right")),
        *((f"{side}_elbow", f"{side}_wrist") for side in ("left", "right")),
        ("right_hip", "left_hip"),
        ("right_shoulder", "left_shoulder"),
        ("pelvis", "neck"),
        ("neck", "head"),
    )
)
LIMBS = slice(8)  # of BONES
BONE_STARTS = [start for start, _ in BONES]
BONE_ENDS = [end for _, end in BONES]
# Each bone's mixture begins with the lifter's slope, its mirror image in depth, and level.
SLOPES = 3
FIRST_WEIGHTS = (2.0, 0.0, 0.0)  # log
FIRST_LOG_STD = -1.2
# Factor on corrections of the lifter's answer, so that first steps do not spoil it.
CORRECTION_SCALE = 0.1
SLOPE_LOG_STD_RANGE = (-3.0, 0.5)
_BASE_OF_PERSON = SHAPE + 4


class BoneSlopes(NamedTuple):
    """Stated distributions of slopes: a bone's depth over its length, -1 (at the camera) .. 1."""

    log_weight: Tensor  # [B, bones, SLOPES] normalised
    mean: Tensor  # [B, bones, SLOPES]
    std: Tensor  # [B, bones, SLOPES]

    def expected(self) -> Tensor:
        """Return the mean [B, bones] of each distribution."""
        return (self.log_weight.exp() * self.mean).sum(-1)

    def log_likelihood(self, slope: Tensor) -> Tensor:
        """Return the log density of true slopes [B, bones]."""
        away = (slope[..., None] - self.mean) / self.std
        density = (
            -0.5 * away.square() - self.std.log() - 0.5 * torch.log(torch.tensor(2 * torch.pi))
        )
        return (self.log_weight + density).logsumexp(-1)


class ImageLifterOutput(NamedTuple):
    """The network's statement about B people, in the camera that is turned towards each."""

    body: LifterOutput  # each with a time axis of one frame
    slopes: BoneSlopes  # of BONES
    contact_logits: Tensor  # [B, 12] in the order of `surface_points.CONTACTS`
    base: LifterOutput  # the lifter's answer, which `body` corrects

    def rows(self, part: slice) -> "ImageLifterOutput":
        """Return some of the people."""
        return ImageLifterOutput(
            LifterOutput(*(value[part] for value in self.body)),
            BoneSlopes(*(value[part] for value in self.slopes)),
            self.contact_logits[part],
            LifterOutput(*(value[part] for value in self.base)),
        )


def bone_slopes(joints_m: Tensor) -> Tensor:
    """Return the slopes [..., bones] of joints [..., 24, 3] in the turned camera."""
    bone = joints_m[..., BONE_ENDS, :] - joints_m[..., BONE_STARTS, :]
    return bone[..., 2] / bone.norm(dim=-1).clamp(min=1e-6)


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
    """Crops and keypoints -> bodies, slopes of bones and contacts."""

    def __init__(self, model: RTMPose, body: Body) -> None:
        """model: RTMPose-s; its early stages are shared, its last stage is copied."""
        super().__init__()
        # In a tuple, so that frozen networks are neither trained nor stored with this one.
        stages = [getattr(model.backbone, name) for name in EARLY_STAGES]
        self._frozen = (stages, load_lifter(), body)
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
        self.from_base_joint = nn.Linear(7, WIDTH)
        self.from_base_person = nn.Linear(_BASE_OF_PERSON, WIDTH)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))
        self.output_norm = nn.LayerNorm(WIDTH)
        self.to_rotation = _small_linear(WIDTH, 6)
        self.bone_hidden = nn.Linear(2 * WIDTH + 1, WIDTH)
        self.bone_name = nn.Parameter(torch.zeros(len(BONES), WIDTH))
        self.to_slopes = _small_linear(WIDTH, 3 * SLOPES)
        self.to_body = _small_linear(WIDTH, SHAPE + 3)
        self.to_contacts = _small_linear(WIDTH, len(CONTACTS))
        self.to_rotation_std = _small_linear(WIDTH, 1)
        self.to_distance_std = _small_linear(WIDTH, 1)

    @torch.no_grad()
    def early_features(self, crops: Tensor) -> Tensor:
        """Return the frozen map [B, 256, H/16, W/16] of normalised crops [B, 3, H, W]."""
        maps = crops.contiguous(memory_format=torch.channels_last)
        for stage in self._frozen[0]:
            maps = stage(maps)
        return maps

    @torch.no_grad()
    def lifter_answer(self, features: Tensor) -> tuple[LifterOutput, Tensor]:
        """Return the lifter's bodies for single frames [B, FEATURES], and their slopes."""
        _, lifter, body = self._frozen
        alone = torch.ones(len(features), 1, 1, dtype=torch.bool)
        answer = lifter(features[:, None], torch.zeros(len(features), 1), alone)
        joints = place_bodies(body, answer.rotation, answer.shape).joints[:, 0]
        return answer, bone_slopes(joints)

    def forward(self, early: Tensor, features: Tensor, points: Tensor) -> ImageLifterOutput:
        """Return the bodies of B people.

        early: `early_features`. features [B, FEATURES]: what the lifter reads. points [B, 26, 2]:
        keypoints in the crop, from -1 to 1 along each axis.
        """
        base, base_slopes = self.lifter_answer(features)
        six = matrix_to_rot6d(base.rotation[:, 0])
        of_joints = torch.cat((six, base.log_rotation_std[:, 0, :, None]), -1)
        of_person = torch.cat(
            (base.shape[:, 0], base.offset[:, 0], base.log_size, base.log_depth_std), -1
        )
        memory = self._memory(early, features, points)
        place = features[:, PER_KEYPOINT * HALPE26.size :]
        known = torch.cat(
            (self.from_base_joint(of_joints), self.from_base_person(of_person)[:, None]), 1
        )
        queries = self.queries + known + self.query_place(place)[:, None]
        for layer in self.layers:
            queries = layer(queries, memory)
        tokens = self.output_norm(queries).float()
        joints = tokens[:, :JOINT_COUNT]
        person = tokens[:, JOINT_COUNT]
        corrections = CORRECTION_SCALE * self.to_body(person).float()
        shape, offset, size = corrections.split((SHAPE, 2, 1), -1)
        # Stated deviations learn from the errors without changing what makes them.
        joint_std = self.to_rotation_std(joints.detach()).float().squeeze(-1)
        distance_std = self.to_distance_std(person.detach()).float()
        body = LifterOutput(
            rot6d_to_matrix(six + CORRECTION_SCALE * self.to_rotation(joints).float())[:, None],
            base.shape + shape[:, None],
            base.offset + offset[:, None],
            base.log_size + size,
            base.log_rotation_std + joint_std[:, None],
            base.log_depth_std + distance_std,
        )
        return ImageLifterOutput(
            body, self._slopes(joints, base_slopes), self.to_contacts(person).float(), base
        )

    def _slopes(self, joints: Tensor, base_slopes: Tensor) -> BoneSlopes:
        """Return the distribution of each bone from the tokens of its ends [B, 24, WIDTH]."""
        ends = torch.cat((joints[:, BONE_STARTS], joints[:, BONE_ENDS], base_slopes[..., None]), -1)
        hidden = F.gelu(self.bone_hidden(ends) + self.bone_name)
        weight, mean, log_std = self.to_slopes(hidden).float().chunk(3, -1)
        start = torch.stack((base_slopes, -base_slopes, torch.zeros_like(base_slopes)), -1)
        log_std = (FIRST_LOG_STD + log_std).clamp(*SLOPE_LOG_STD_RANGE)
        return BoneSlopes(
            (weight + weight.new_tensor(FIRST_WEIGHTS)).log_softmax(-1), start + mean, log_std.exp()
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


def _small_linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a layer whose first outputs are nearly zero."""
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=2e-3)
    nn.init.zeros_(layer.bias)
    return layer
