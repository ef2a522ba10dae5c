"""Hide one keypoint more and more, and watch confidence and OKS: an honest confidence falls with the OKS."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

# crops -> xy_px [N, K, 2] crop pixels, and the confidence [N, K] of every source by its name
Predict = Callable[[np.ndarray], tuple[np.ndarray, Mapping[str, np.ndarray]]]


@dataclass(frozen=True)
class OcclusionCurve:
    """What becomes of one keypoint behind patches of growing size; means over all crops."""

    size: np.ndarray  # [S] side of the patch as a share of the person's size
    confidence: np.ndarray  # [S]
    oks: np.ndarray  # [S] what the confidence should be: the true OKS
    samples: int  # crops in every mean


def blur_patch(
    image: np.ndarray, centre_px: Sequence[float] | np.ndarray, side_px: float, softness: float = 0.5
) -> np.ndarray:
    """The image [H, W, 3] uint8 with a square patch around `centre_px` (x, y) blurred beyond recognition.

    The blur's sigma is `softness` times the side, so a larger patch also shows less; image outside is untouched.
    """
    height, width = image.shape[:2]
    x, y = centre_px
    left, right = (int(np.clip(round(x + sign * side_px / 2), 0, width)) for sign in (-1, 1))
    top, bottom = (int(np.clip(round(y + sign * side_px / 2), 0, height)) for sign in (-1, 1))
    hidden = image.copy()
    if right <= left or bottom <= top:
        return hidden
    sigma = softness * side_px
    reach = int(np.ceil(3 * sigma))
    y0, x0 = max(0, top - reach), max(0, left - reach)
    around = image[y0 : min(height, bottom + reach), x0 : min(width, right + reach)]
    blurred = cv2.GaussianBlur(around, (0, 0), sigma, borderType=cv2.BORDER_REPLICATE)
    hidden[top:bottom, left:right] = blurred[top - y0 : bottom - y0, left - x0 : right - x0]
    return hidden


def occlusion_curves(
    crops: Sequence[np.ndarray],  # [H, W, 3] uint8 each
    truth_xy_px: np.ndarray,  # [N, 2] where the keypoint truly is, crop pixels
    l2_px2: np.ndarray,  # [N] its OKS falloff in crop pixels^2
    person_size_px: np.ndarray,  # [N] square root of the person's area in the crop
    keypoint: int,
    predict: Predict,
    sizes: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0),
) -> dict[str, OcclusionCurve]:
    """Each source's mean confidence in one keypoint over crops, and its mean OKS, for each patch size.

    A patch's side is a share of the person's size.
    """
    confidence: dict[str, list[float]] = {}
    oks = []
    for size in sizes:
        hidden = [
            blur_patch(crop, at, size * side) if size > 0 else crop
            for crop, at, side in zip(crops, truth_xy_px, person_size_px, strict=True)
        ]
        xy_px, trust = predict(np.stack(hidden))
        d2 = ((xy_px[:, keypoint] - truth_xy_px) ** 2).sum(-1)
        oks.append(float(np.exp(-d2 / (2 * l2_px2)).mean()))
        for name, values in trust.items():
            confidence.setdefault(name, []).append(float(values[:, keypoint].mean()))
    return {
        name: OcclusionCurve(np.asarray(sizes, float), np.array(means), np.array(oks), len(crops))
        for name, means in confidence.items()
    }
