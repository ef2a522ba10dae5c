"""The people of the qualitative figure."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PersonPanel:
    """One person of the qualitative figure."""

    crop: np.ndarray  # [H, W, 3] RGB
    xy_px: np.ndarray  # [K, 2] in the crop
    confidence: Mapping[str, np.ndarray]  # name -> [K], the true OKS among them
    person: Mapping[str, float]  # name -> confidence in the person
