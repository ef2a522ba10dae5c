"""One network under other names: the official repositories', mmpose's 0.x and 1.x, transformers'."""

import re
from collections.abc import Mapping

from torch import Tensor

# What mmpose keeps beside the weights: its image normalisation, the grid of its soft-argmax.
_BYSTANDERS = re.compile(r"^data_preprocessor\.|\.linspace_[xy]$")


def is_mmpose(state: Mapping[str, Tensor]) -> bool:
    """mmpose puts every network under `backbone.` and `head.` (0.x: `keypoint_head.`)."""
    return any(key.startswith(("head.", "keypoint_head.")) for key in state) and any(
        key.startswith("backbone.") for key in state
    )


def renamed(state: Mapping[str, Tensor], *rules: tuple[str, str]) -> dict[str, Tensor]:
    """The same tensors, every rule (pattern, replacement) applied to their names; bystanders are left out."""
    names = {key: key for key in state if not _BYSTANDERS.search(key)}
    for pattern, replacement in rules:
        names = {key: re.sub(pattern, replacement, name) for key, name in names.items()}
    return {name: state[key] for key, name in names.items()}
