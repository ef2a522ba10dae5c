"""There are no published answers to compare with here: everything is held against a slow, literal
re-computation.
"""

import math

import pytest
import torch
from torch import Tensor

import pose2d
from pose2d.models import poseur
from pose2d.models.poseur import DeformableAttention, Poseur, certainty, sample
from pose2d.models.resnet import ResNet, stage_channels
from pose2d.skeletons import Skeleton

SIZE = torch.tensor([192.0, 256.0])
THREE = Skeleton(
    "three", ("a", "b", "c"), ((0, 1),), (), (0.1, 0.1, 0.1)
)  # few, for the slow loops


def bilinear(values: Tensor, x: float, y: float) -> Tensor:
    """The value [C] of a map [C, h, w] at x, y in 0..1, cell by cell; a cell's centre is at (i +
    1/2) / w.
    """
    _, h, w = values.shape
    column = x * w - 0.5
    row = y * h - 0.5
    total = torch.zeros(values.shape[0], dtype=values.dtype)
    for i in (math.floor(column), math.floor(column) + 1):
        for j in (math.floor(row), math.floor(row) + 1):
            if 0 <= i < w and 0 <= j < h:
                total += (1 - abs(column - i)) * (1 - abs(row - j)) * values[:, j, i]
    return total


def literal_attention(
    attention: DeformableAttention, query: Tensor, reference: Tensor, maps: list[Tensor]
) -> Tensor:
    """One query, one head, one level, one point at a time."""
    heads = attention.heads
    levels = attention.levels
    points = attention.points
    channels = query.shape[2]
    out = torch.zeros_like(query)
    for n in range(query.shape[0]):
        for q in range(query.shape[1]):
            vector = query[n, q]
            offsets = attention.sampling_offsets.weight @ vector + attention.sampling_offsets.bias
            offsets = offsets.reshape(heads, levels, points, 2)
            weights = attention.attention_weights.weight @ vector + attention.attention_weights.bias
            parts = []
            for head in range(heads):
                share = torch.softmax(weights.reshape(heads, -1)[head], 0).reshape(levels, points)
                seen = torch.zeros(channels, dtype=query.dtype)
                for level, values in enumerate(maps):
                    h, w = values.shape[2:]
                    for point in range(points):
                        x = float(reference[n, q, 0] + offsets[head, level, point, 0] / w)
                        y = float(reference[n, q, 1] + offsets[head, level, point, 1] / h)
                        seen += share[level, point] * bilinear(values[n], x, y)
                rows = attention.value_proj_weight.weight[head * channels : (head + 1) * channels]
                parts.append(seen @ rows + attention.value_proj_bias.weight[head])
            out[n, q] = attention.output_proj.weight @ torch.cat(parts) + attention.output_proj.bias
    return out


@torch.inference_mode()
def test_deformable_attention_is_its_literal_recomputation():
    torch.manual_seed(0)
    attention = DeformableAttention(channels=16, heads=4, levels=3, points=2).double()
    for value in attention.parameters():
        torch.nn.init.normal_(value, std=0.5)
    maps = [torch.randn(2, 16, *size, dtype=torch.float64) for size in ((8, 6), (4, 3), (2, 2))]
    query = torch.randn(2, 5, 16, dtype=torch.float64)
    reference = torch.rand(2, 5, 2, dtype=torch.float64) * 1.4 - 0.2  # some lie outside of the maps
    expected = literal_attention(attention, query, reference, maps)
    torch.testing.assert_close(attention(query, reference, maps), expected, atol=1e-10, rtol=1e-8)


def test_the_centre_of_a_cell_has_the_cells_value():
    values = torch.arange(12.0).reshape(1, 1, 3, 4)
    place = torch.tensor([2.5 / 4, 1.5 / 3]).reshape(1, 1, 1, 1, 1, 2)
    assert sample([values], place, torch.ones(1, 1, 1, 1, 1)).item() == pytest.approx(
        values[0, 0, 1, 2].item()
    )


# The whole head, from the four maps to the last queries, as the repository writes it: queries
# first, sums spelled out.


def sine_of_map(h: int, w: int) -> Tensor:
    """The positional encoding from running sums over a mask of ones, [256, h, w]."""
    ones = torch.ones(h, w)
    y = (ones.cumsum(0) - 0.5) / (h + 1e-6) * 2 * math.pi
    x = (ones.cumsum(1) - 0.5) / (w + 1e-6) * 2 * math.pi
    code = torch.zeros(256, h, w)
    for channel in range(128):
        period = 10000 ** (2 * (channel // 2) / 128)
        wave = torch.sin if channel % 2 == 0 else torch.cos
        code[channel] = wave(y / period)
        code[128 + channel] = wave(x / period)
    return code


def sine_of_point(x: float, y: float) -> Tensor:
    waves = []
    for number in (x, y):
        for channel in range(128):
            angle = number * 2 * math.pi / 10000 ** (2 * (channel // 2) / 128)
            waves.append(math.sin(angle) if channel % 2 == 0 else math.cos(angle))
    return torch.tensor(waves)


def logit(x: Tensor) -> Tensor:
    x = x.clamp(0, 1)
    return torch.log(x.clamp(min=1e-5)) - torch.log((1 - x).clamp(min=1e-5))


def literal_self_attention(
    attn: torch.nn.MultiheadAttention, query: Tensor, place: Tensor
) -> Tensor:
    """Queries [Q, 256] of one person."""
    w_q, w_k, w_v = attn.in_proj_weight.split(256)
    b_q, b_k, b_v = attn.in_proj_bias.split(256)
    q = (query + place) @ w_q.T + b_q
    k = (query + place) @ w_k.T + b_k
    v = query @ w_v.T + b_v
    heads = []
    for head in range(8):
        part = slice(32 * head, 32 * head + 32)
        weights = torch.softmax(q[:, part] @ k[:, part].T / math.sqrt(32), -1)
        heads.append(weights @ v[:, part])
    return torch.cat(heads, 1) @ attn.out_proj.weight.T + attn.out_proj.bias


def literal_head(model: Poseur, maps: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Maps of one person [256, h, w] -> queries [K, 256], coordinates [K, 2], sigma [K, 2]."""
    head = model.keypoint_head
    transformer = head.transformer
    memory = [
        m + sine_of_map(*m.shape[1:]) + transformer.level_embeds[i].reshape(256, 1, 1)
        for i, m in enumerate(maps)
    ]
    vector = maps[-1].flatten(1).mean(1)
    guess = (
        transformer.fc_coord.linear.weight @ vector / vector.square().sum().sqrt()
        + transformer.fc_coord.linear.bias
    )
    reference = guess.reshape(-1, 2)
    codes = [
        torch.cat([sine_of_point(*p.tolist()), sine_of_point(*p.clamp(0, 1).tolist())])
        for p in reference
    ]
    query = transformer.pos_trans_norm(transformer.pos_trans(torch.stack(codes)))
    place = transformer.pos_embed.weight
    before = reference
    for i, layer in enumerate(transformer.decoder.layers):
        before = reference
        query = layer.norms[0](
            query + literal_self_attention(layer.attentions[0].attn, query, place)
        )
        looked = literal_attention(
            layer.attentions[1], (query + place)[None], reference[None], [m[None] for m in memory]
        )
        query = layer.norms[1](query + looked[0])
        hidden = torch.relu(layer.ffns[0].layers[0][0](query))
        query = layer.norms[2](query + layer.ffns[0].layers[1](hidden))
        reference = torch.sigmoid(head.fc_coord_branches[i](query) + logit(reference))
    xy = torch.sigmoid(
        head.fc_coord_branches[5](query) + logit(before)
    ) + head.fc_coord_output_branches[5](query)
    sigma = query
    for part in (
        head.fc_sigma_branches[5][0],
        head.fc_sigma_branches[5][1],
        head.fc_sigma_branches[5][2].linear,
    ):
        sigma = part(sigma)
    return query, xy, torch.sigmoid(sigma)


@pytest.fixture(scope="module")
def model() -> Poseur:
    torch.manual_seed(0)
    return pose2d.card("poseur-resnet50-256x192").build().eval().requires_grad_(False)


@torch.inference_mode()
def test_the_head_is_its_literal_recomputation(monkeypatch):
    torch.manual_seed(0)
    model = Poseur(ResNet(50), stage_channels(50), (192, 256), THREE).eval()
    torch.nn.init.normal_(model.keypoint_head.transformer.level_embeds)
    maps = [torch.randn(1, 256, h, w) for h, w in ((8, 6), (4, 3), (2, 2), (2, 1))]
    monkeypatch.setattr(model.backbone, "stages", lambda crops: maps)
    for conv in model.neck.convs:
        monkeypatch.setattr(conv, "forward", lambda x: x)
    features = model.features(torch.zeros(1, 3, 256, 192))
    prediction = model.predict(features)
    query, xy, sigma = literal_head(model, [m[0] for m in maps])
    torch.testing.assert_close(features.as_subclass(Tensor)[0], query, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(prediction.xy_px[0], xy * SIZE, atol=1e-2, rtol=1e-4)
    torch.testing.assert_close(prediction.sigma_px[0], sigma * SIZE, atol=1e-2, rtol=1e-4)
    torch.testing.assert_close(prediction.score[0], 1 - sigma.mean(1), atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_features_are_256_channels_per_keypoint_and_can_be_sliced(model):
    crops = torch.randn(2, 3, 256, 192)
    features = model.features(crops)
    assert features.shape[1:] == model.feature_shape == (17, 256)
    whole = model.predict(features)
    torch.testing.assert_close(model.predict(features[1:]).xy_px, whole.xy_px[1:])
    torch.testing.assert_close(
        model.predict(torch.cat([features, features])).xy_px[2:], whole.xy_px
    )


@torch.inference_mode()
def test_features_that_lost_their_reference_are_refused(model):
    features = torch.zeros(1, 17, 256)
    with pytest.raises(pose2d.UserError, match="round trip"):
        model.predict(features)


@torch.inference_mode()
def test_the_flip_test_trusts_the_more_certain_answer(model, monkeypatch):
    plain = (torch.full((1, 17, 2), 0.25), torch.full((1, 17, 2), 0.1))
    mirrored = (torch.full((1, 17, 2), 0.5), torch.full((1, 17, 2), 0.2))
    monkeypatch.setattr(
        model, "coordinates", lambda features: plain if features == "plain" else mirrored
    )
    p = certainty(torch.tensor([0.1, 0.1]))
    q = certainty(torch.tensor([0.2, 0.2]))
    assert p.item() == pytest.approx(0.7 * (1 - math.exp(-2)) ** 2)
    merged = model.predict_flip("plain", "mirrored")
    x = 0.25 * p**5 + (1 - 0.5) * q**5
    y = 0.25 * p**5 + 0.5 * q**5
    expected = torch.stack([x, y]) / (p**5 + q**5) * SIZE
    torch.testing.assert_close(merged.xy_px[0, 3], expected)
    assert merged.score[0, 3].item() == pytest.approx((p + q).item() / 2)


def test_the_key_names_are_the_repositorys():
    with torch.device("meta"):
        keys = {
            key: tuple(v.shape)
            for key, v in pose2d.card("poseur-resnet50-256x192").build().state_dict().items()
        }
    layer = "keypoint_head.transformer.decoder.layers.5."
    known = {
        "backbone.layer4.2.conv3.weight": (2048, 512, 1, 1),
        "neck.convs.3.conv.weight": (256, 2048, 1, 1),
        "neck.convs.0.gn.bias": (256,),
        "keypoint_head.transformer.level_embeds": (4, 256),
        "keypoint_head.transformer.fc_coord.linear.weight": (34, 256),
        "keypoint_head.transformer.fc_sigma.linear.bias": (34,),
        "keypoint_head.transformer.pos_trans.weight": (256, 512),
        "keypoint_head.transformer.pos_trans_norm.weight": (256,),
        "keypoint_head.transformer.pos_embed.weight": (17, 256),
        layer + "attentions.0.attn.in_proj_weight": (768, 256),
        layer + "attentions.0.attn.in_proj_bias": (768,),
        layer + "attentions.0.attn.out_proj.weight": (256, 256),
        layer + "attentions.1.sampling_offsets.weight": (256, 256),
        layer + "attentions.1.attention_weights.weight": (128, 256),
        layer + "attentions.1.output_proj.bias": (256,),
        layer + "attentions.1.value_proj_weight.weight": (2048, 32),
        layer + "attentions.1.value_proj_bias.weight": (8, 32),
        layer + "ffns.0.layers.0.0.weight": (1024, 256),
        layer + "ffns.0.layers.1.weight": (256, 1024),
        layer + "norms.2.weight": (256,),
        "keypoint_head.fc_coord_branches.5.4.weight": (2, 256),
        "keypoint_head.fc_coord_output_branches.0.2.weight": (256, 256),
        "keypoint_head.fc_sigma_branches.3.1.weight": (256, 256),
        "keypoint_head.fc_sigma_branches.3.2.linear.weight": (2, 256),
    }
    assert {key: keys.get(key) for key in known} == known
    # backbone, neck, transformer, each of six layers, its branches
    assert len(keys) == 318 + 12 + 10 + 6 * (22 + 18)


def test_wholebody_has_a_query_for_each_of_its_keypoints():
    with torch.device("meta"):
        model = pose2d.card("poseur-resnet50-256x192-wholebody").build()
        features = model.features(torch.empty(1, 3, 256, 192))
    assert features.shape == (1, 133, 256)


def test_places_on_a_map_are_the_same_inside_and_outside_of_inference_mode():
    poseur.map_places.cache_clear()
    with torch.inference_mode():
        first = poseur.map_places(4, 3)
    assert not first.is_inference()
    torch.testing.assert_close(first, sine_of_map(4, 3), atol=1e-5, rtol=0)
