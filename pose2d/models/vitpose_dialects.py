"""ViTPose's tensors under other names: mmpose 1.x's, transformers', and the mixtures of ViTPose+."""

from collections.abc import Mapping

import torch
from torch import Tensor

from pose2d.models.dialects import renamed
from pose2d.skeletons import COCO17, MPII16, WHOLEBODY133, Skeleton

# Where ViTPose+ keeps a data set: its expert in every block, and its head (None: the main one).
_EXPERT = {COCO17.name: 0, MPII16.name: 2, WHOLEBODY133.name: 5}
_HEAD = {COCO17.name: None, MPII16.name: 1, WHOLEBODY133.name: 4}


def from_mmpose(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """mmpose 1.x: `backbone.layers.i.ln1`, and no place in `pos_embed` that is added to all patches."""
    if not any(key.startswith("backbone.layers.") for key in state):
        return dict(state)
    names = renamed(
        state,
        (r"^head\.", "keypoint_head."),
        (r"^backbone\.ln1\.", "backbone.last_norm."),
        (r"^backbone\.patch_embed\.projection\.", "backbone.patch_embed.proj."),
        (r"^backbone\.layers\.(\d+)\.ln([12])\.", r"backbone.blocks.\1.norm\2."),
        (r"^backbone\.layers\.(\d+)\.attn\.", r"backbone.blocks.\1.attn."),
        (r"^backbone\.layers\.(\d+)\.ffn\.layers\.0\.0\.", r"backbone.blocks.\1.mlp.fc1."),
        (r"^backbone\.layers\.(\d+)\.ffn\.layers\.1\.", r"backbone.blocks.\1.mlp.fc2."),
    )
    places = names.get("backbone.pos_embed")
    if places is not None:
        names["backbone.pos_embed"] = torch.cat([torch.zeros_like(places[:, :1]), places], 1)
    return names


def from_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """transformers: `backbone.encoder.layer.i`, with query, key and value as three tensors."""
    if not any(key.startswith("backbone.encoder.") for key in state):
        return dict(state)
    layer, block = r"^backbone\.encoder\.layer\.(\d+)\.", r"backbone.blocks.\1."
    names = renamed(
        state,
        (r"^backbone\.embeddings\.position_embeddings$", "backbone.pos_embed"),
        (r"^backbone\.embeddings\.patch_embeddings\.projection\.", "backbone.patch_embed.proj."),
        (layer + r"attention\.output\.dense\.", block + "attn.proj."),
        (layer + r"attention\.attention\.", block + "attn."),
        (layer + r"layernorm_before\.", block + "norm1."),
        (layer + r"layernorm_after\.", block + "norm2."),
        (layer + r"mlp\.", block + "mlp."),
        (r"\.mlp\.experts\.experts\.", ".mlp.experts."),
        (r"^backbone\.layernorm\.", "backbone.last_norm."),
        (r"^head\.conv\.", "keypoint_head.final_layer."),
        (r"^head\.deconv1\.", "keypoint_head.deconv_layers.0."),
        (r"^head\.batchnorm1\.", "keypoint_head.deconv_layers.1."),
        (r"^head\.deconv2\.", "keypoint_head.deconv_layers.3."),
        (r"^head\.batchnorm2\.", "keypoint_head.deconv_layers.4."),
    )
    for key in [key for key in names if ".attn.query." in key]:
        parts = [names.pop(key.replace("query", part), None) for part in ("query", "key", "value")]
        names[key.replace("query", "qkv")] = torch.cat([part for part in parts if part is not None])
    return names


def without_experts(state: Mapping[str, Tensor], skeleton: Skeleton, channels: int) -> dict[str, Tensor]:
    """ViTPose+: the last rows of every block's second layer belong to a data set; take this one's, and its head."""
    expert, head = _EXPERT[skeleton.name], _HEAD[skeleton.name]
    names = {key: value for key, value in state.items() if ".mlp.experts." not in key}
    for key in [key for key in names if ".mlp.fc2." in key]:
        own = state.get(key.replace("fc2", f"experts.{expert}"))
        if own is not None and len(names[key]) < channels:
            names[key] = torch.cat([names[key], own])
    for key in [key for key in names if key.startswith("associate_keypoint_heads.")]:
        value = names.pop(key)
        _, index, rest = key.split(".", 2)
        if index == str(head):
            names[f"keypoint_head.{rest}"] = value[: skeleton.size] if rest.startswith("final_layer.") else value
    return names
