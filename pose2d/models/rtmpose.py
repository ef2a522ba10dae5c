"""RTMPose (Jiang et al. 2023): CSPNeXt and a gated attention unit over keypoints.

For every keypoint the head predicts how likely each half pixel of x and of y is (SimCC, Li et al.
2022)."""

from collections.abc import Mapping
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pose2d.models.base import PoseModel, named_layers
from pose2d.models.cards import ModelCard
from pose2d.models.checkpoints import rename_tensors
from pose2d.models.convolutions import CSPNeXt, OnnxNetwork, fold_batch_norms, onnx_convolutions
from pose2d.models.trunk import FeaturesWithTrunk
from pose2d.skeletons import COCO17, HALPE26, Skeleton
from pose2d.types import Prediction

# Channels per keypoint of the attention unit
TOKEN = 256
QUERY = 128
VALUE = 512
BINS = 2  # per pixel
TOKENS = slice(4)  # layers of the head that make the tokens
STRIDE = 32  # crop pixels per cell of the backbone's map
TEMPERATURE = 10.0  # the training loss compares softmax(TEMPERATURE * output) with the target's
# The target is a Gaussian of height 1 over bins, this wide per axis (x, y) for a crop width of 192
# or 288.
TARGET_SIGMA_BINS = {192: (4.9, 5.66), 288: (6.0, 6.93)}
NORM_EPSILON = 1e-5  # of the batch norms in OpenMMLab's checkpoints, and of `ScaleNorm`

# Half widths of the windows in which a peak's place and its spread are read, in sigmas of the
# target. Chosen by AP and by how well s = E[OKS] follows OKS on the holdout
# (bench/coco_accuracy.py): places are flat from 4 to 7, and a spread read over fewer than 10 says
# little of how wrong a keypoint is.
MEAN_RADIUS = 5.0
SPREAD_RADIUS = 13.0
LEAST_SIGMA_BINS = 0.5


class ScaleNorm(nn.Module):
    """Scales x / max(|x| / sqrt(n), eps) by one learned number."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = size**-0.5
        self.g = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=2, keepdim=True) * self.scale
        return x / norm.clamp(min=NORM_EPSILON) * self.g


class GatedAttention(nn.Module):
    """Gated attention unit (Hua et al. 2022) over keypoint tokens [N, K, 256], with a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.ln = ScaleNorm(TOKEN)
        self.uv = nn.Linear(TOKEN, 2 * VALUE + QUERY, bias=False)
        self.gamma = nn.Parameter(torch.ones(2, QUERY))
        self.beta = nn.Parameter(torch.zeros(2, QUERY))
        self.o = nn.Linear(VALUE, TOKEN, bias=False)
        self.res_scale = nn.ParameterDict({"scale": torch.ones(TOKEN)})

    def forward(self, tokens: Tensor) -> Tensor:
        gate, value, base = F.silu(self.uv(self.ln(tokens))).split([VALUE, VALUE, QUERY], 2)
        query, key = (base[:, :, None] * self.gamma + self.beta).unbind(2)
        attention = F.relu(query @ key.transpose(1, 2) / QUERY**0.5).square()
        return tokens * self.res_scale["scale"] + self.o(gate * (attention @ value))


class RTMPose(PoseModel):
    """RTMPose; takes RGB.

    Features are the keypoint tokens after the attention unit, and carry the backbone's map. The raw
    confidence is the smaller of the two axes' highest outputs, clipped to [0, 1], as in OpenMMLab.
    """

    def __init__(
        self, depth: float, width: float, input_wh: tuple[int, int], skeleton: Skeleton
    ) -> None:
        super().__init__()
        self.input_wh = input_wh
        self.skeleton = skeleton
        self.feature_shape = (skeleton.size, TOKEN)
        self.backbone = CSPNeXt(depth, width)
        cells = input_wh[0] * input_wh[1] // STRIDE**2
        # The backbone's map [N, C, h, w] -> (TOKENS) tokens [N, K, 256] -> a score for every half
        # pixel of each axis
        self.head = named_layers(
            final_layer=nn.Conv2d(self.backbone.channels, skeleton.size, 7, padding=3),
            flat=nn.Flatten(2),
            mlp=nn.Sequential(ScaleNorm(cells), nn.Linear(cells, TOKEN, bias=False)),
            gau=GatedAttention(),
            cls_x=nn.Linear(TOKEN, BINS * input_wh[0], bias=False),
            cls_y=nn.Linear(TOKEN, BINS * input_wh[1], bias=False),
        )
        self._onnx: OnnxNetwork | None = None

    def use_graph(self, graph: str) -> None:
        predict_only = ("head.cls_x.", "head.cls_y.")
        state = self.state_dict().items()
        weights = {key: value for key, value in state if not key.startswith(predict_only)}
        self._onnx = OnnxNetwork(graph, weights)

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        is_for_onnx = crops.device.type == "cpu" and not crops.requires_grad
        if self._onnx is not None and len(crops) and is_for_onnx:
            return FeaturesWithTrunk.join(*self._onnx(crops))
        maps = self.backbone(crops)
        return FeaturesWithTrunk.join(self.head[TOKENS](maps), maps)

    def simcc(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs per half pixel, x [N, K, 2 W] and y [N, K, 2 H], of features."""
        tokens = self.plain(features)
        return self.head.cls_x(tokens), self.head.cls_y(tokens)

    def predict(self, features: Tensor) -> Prediction:
        return self._decode(*self.simcc(features))

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        """Decode the mean of both outputs; pixel x mirrors to W - 1 - x, so bin b to 2 W - 2 - b."""
        order = self.skeleton.flip_order
        x, y = self.simcc(features)
        x_mirrored, y_mirrored = (axis[:, order] for axis in self.simcc(mirrored))
        back = torch.cat([x_mirrored.flip(-1)[..., 1:], x_mirrored[..., :1]], -1)
        return self._decode((x + back) / 2, (y + y_mirrored) / 2)

    def _decode(self, x: Tensor, y: Tensor) -> Prediction:
        target_x, target_y = TARGET_SIGMA_BINS[self.input_wh[0]]
        axes = [decode_axis(x, target_x), decode_axis(y, target_y)]
        place, height, sigma = (torch.stack(parts, -1) for parts in zip(*axes, strict=True))
        score = height.amin(-1).clamp(0, 1)
        return Prediction(xy_px=place / BINS, score=score, sigma_px=sigma / BINS)

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if any(key.startswith("Conv.") for key in state):
            return self._convert_onnx(state)
        folded = fold_batch_norms(rename_tensors(state), NORM_EPSILON)
        # A position bias that the published configurations switch off
        folded.pop("head.gau.w", None)
        return folded

    def _convert_onnx(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Convert an ONNX export, whose weights have no names but the order of this module."""
        names = [name for name, layer in self.named_modules() if isinstance(layer, nn.Conv2d)]
        converted = onnx_convolutions(state, names)
        linear = ("head.mlp.1", "head.gau.uv", "head.gau.o", "head.cls_x", "head.cls_y")
        products = [(key, value) for key, value in state.items() if key.startswith("MatMul.")]
        for count, (key, value) in enumerate(products):
            converted[f"{linear[count]}.weight" if count < len(linear) else key] = value.mT
        factors = [value for key, value in state.items() if key.startswith("Mul.")]
        sums = [value for key, value in state.items() if key.startswith("Add.")]
        values = [value for value in factors if value.shape == (1,)][:2]
        values += [value.flatten(0, -2) for value in factors if value.shape[-2:] == (2, QUERY)][:1]
        values += [value for value in factors if value.shape == (TOKEN,)][:1]
        values += [value for value in sums if value.shape == (2, QUERY)][:1]
        vectors = (
            "head.mlp.0.g",
            "head.gau.ln.g",
            "head.gau.gamma",
            "head.gau.res_scale.scale",
            "head.gau.beta",
        )
        if len(values) == len(vectors):
            converted |= dict(zip(vectors, values, strict=True))
        return converted


def decode_axis(outputs: Tensor, target_sigma: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return place, height and sigma [N, K] of the peaks of one axis's outputs [N, K, bins].

    Place and sigma are in bins. The training loss makes p = softmax(10 * outputs) the distribution
    of the keypoint, widened by the target's own softmax. The place is the mean of p around the
    highest bin; sigma is the root of the second moment of p about that place, less the target's.
    Far bins are left out, since their small p adds up."""
    height, index = outputs.max(-1)
    p = (TEMPERATURE * (outputs - height[..., None])).exp()
    step = torch.arange(outputs.shape[-1], device=outputs.device) - index[..., None]  # [N, K, bins]
    near = p * (step.abs() <= MEAN_RADIUS * target_sigma)
    place = index.to(outputs.dtype) + (near * step).sum(-1) / near.sum(-1)
    around = p * (step.abs() <= SPREAD_RADIUS * target_sigma)
    moment = (around * (step - (place - index)[..., None]).square()).sum(-1) / around.sum(-1)
    sigma = (moment - _target_moment(target_sigma)).clamp(min=LEAST_SIGMA_BINS**2).sqrt()
    return place, height, sigma


@cache
def _target_moment(target_sigma: float) -> float:
    """Return the second moment, in bins^2, of a target's softmax within `decode_axis`'s window."""
    radius = int(SPREAD_RADIUS * target_sigma)
    step = torch.arange(-radius, radius + 1).double()
    p = torch.softmax(TEMPERATURE * torch.exp(-0.5 * (step / target_sigma).square()), 0)
    return float((p * step.square()).sum())


# Published sizes: CSPNeXt's depth and width, and its parameters with batch norms folded.
_SIZES = {
    "t": (0.167, 0.375, 2_344_836),
    "s": (0.33, 0.5, 4_372_592),
    "m": (0.67, 0.75, 12_267_816),
    "l": (1.0, 1.0, 26_119_392),
    "x": (1.33, 1.25, 47_540_120),
}
_VARIANTS = (*((size, (192, 256)) for size in "tsml"), *((size, (288, 384)) for size in "mlx"))


def _card(skeleton: Skeleton, size: str, input_wh: tuple[int, int]) -> ModelCard:
    """Return the card of a size; only the larger crop, 384x288, is part of the name."""
    depth, width, parameters = _SIZES[size]
    name = f"rtmpose-{size}-{skeleton.name}" + ("" if input_wh[1] == 256 else "-384x288")
    maps = (49 * int(1024 * width) + 1) * skeleton.size
    tokens = 1 + input_wh[0] * input_wh[1] // STRIDE**2 * TOKEN
    attention = 1 + TOKEN * (2 * VALUE + QUERY) + 4 * QUERY + VALUE * TOKEN + TOKEN
    head = maps + tokens + attention + TOKEN * BINS * sum(input_wh)
    build = partial(RTMPose, depth, width, input_wh, skeleton)
    licence = "Apache-2.0; training data partly for research"
    files: tuple[str, ...] = ()
    if name == "rtmpose-s-halpe26":
        files = ("rtmpose_s_halpe26_fp16.npz", "rtmpose_s_halpe26.onnx")
    return ModelCard(
        name, build, skeleton, input_wh, parameters + head, licence, "open-mmlab/mmpose", *files
    )


CARDS = [_card(skeleton, size, wh) for skeleton in (HALPE26, COCO17) for size, wh in _VARIANTS]
