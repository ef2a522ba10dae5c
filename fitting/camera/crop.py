"""From the camera of a crop network to the person's translation in the full frame.

SPIN and CLIFF answer (s, tx, ty): shift the body by (tx, ty) metres, scale it by s, look at the
square from -1 to 1. With a crop of side b pixels around (cx, cy) and a camera of focal length f and
centre (ox, oy)

    tz = 2 f / (b s)        tx_full = tx + (cx - ox) tz / f        ty_full = ty + (cy - oy) tz / f

is the translation of the body in the frame (CLIFF). SPIN's own translation is the same formula for
a camera that sees nothing but the crop: focal 5000, 224 x 224 (`SPIN_CROP`), with the crop around
its centre.
"""

import torch
from torch import Tensor

from fitting.camera.pinhole import Camera

SPIN_CROP = Camera.from_focal(5000.0, (224, 224))

_EPSILON = 1e-9  # both systems add it to b s


def crop_to_full(
    crop_camera: Tensor, box_center_px: Tensor, box_side_px: Tensor, camera: Camera
) -> Tensor:
    """Return the translation [..., 3] in metres, for (s, tx, ty) [..., 3] and a crop's centre [...,
    2] and side [...] in frame px.
    """
    scale = crop_camera[..., 0]
    shift = crop_camera[..., 1:]
    depth = (2 * camera.mean_focal_px / (box_side_px * scale + _EPSILON))[..., None]
    # How far the crop's centre lies off the optical axis, metres per metre of depth.
    center = box_center_px.new_tensor(camera.center_px)
    focal = box_center_px.new_tensor(camera.focal_px)
    return torch.cat((shift + (box_center_px - center) / focal * depth, depth), dim=-1)


def cliff_box_info(box_center_px: Tensor, box_side_px: Tensor, camera: Camera) -> Tensor:
    """Return where the crop lies in the frame, [..., 3], scaled to about unit variance as CLIFF's
    network expects.
    """
    focal = camera.mean_focal_px
    center = 2.8 * (box_center_px - box_center_px.new_tensor(camera.center_px)) / focal
    side = (box_side_px - 0.24 * focal) / (0.06 * focal)
    return torch.cat((center, side[..., None]), dim=-1)
