"""Plain vision transformer as ViTPose has it: patches of 16 pixels, cut from a crop padded by two."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PATCH = 16  # pixels
EPS = 1e-6  # of every layer normalisation


class Attention(nn.Module):
    """Self-attention over all patches."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)  # [N, heads, patches, channels / heads]
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """Each patch by itself."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, 4 * channels)
        self.fc2 = nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels, EPS)
        self.attn = Attention(channels, heads)
        self.norm2 = nn.LayerNorm(channels, EPS)
        self.mlp = Mlp(channels)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    """Images -> one vector per patch. The two pixels of padding come from masked pre-training."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, channels, PATCH, PATCH, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x)


class ViT(nn.Module):
    """Key names as in ViTPose. `pos_embed` has one place more than there are patches: it is added to all of them."""

    def __init__(self, channels: int, depth: int, heads: int, input_wh: tuple[int, int]) -> None:
        super().__init__()
        patches = (input_wh[0] // PATCH) * (input_wh[1] // PATCH)
        self.pos_embed = nn.Parameter(torch.zeros(1, patches + 1, channels))
        self.patch_embed = PatchEmbed(channels)
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(depth))
        self.last_norm = nn.LayerNorm(channels, EPS)

    def forward(self, x: Tensor) -> Tensor:
        """Images [N, 3, H, W] -> one map [N, channels, H / 16, W / 16]."""
        maps = self.patch_embed(x)
        x = maps.flatten(2).transpose(1, 2) + self.pos_embed[:, 1:] + self.pos_embed[:, :1]
        for block in self.blocks:
            x = block(x)
        return self.last_norm(x).transpose(1, 2).unflatten(2, maps.shape[2:])
