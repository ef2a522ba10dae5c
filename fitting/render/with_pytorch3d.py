"""Draw the same image with PyTorch3D, for those with a build that loads; faster on a GPU.

`pip install` of a PyTorch3D wheel built for another torch or for CUDA gives its Python part only:
transforms and meshes import, the rasteriser does not. `explain_unavailable` says which of these is
the case.
"""

import numpy as np
import torch

from fitting.render.screen import Screen
from pose2d.base.errors import UserError

_GRID = 2  # samples along each side of a pixel, everywhere


def explain_unavailable() -> str | None:
    """Explain why PyTorch3D cannot draw here; None when it can."""
    try:
        import pytorch3d  # noqa: F401
    except ImportError:
        return "PyTorch3D is not installed (docs/install.md says how)"
    try:
        from pytorch3d import _C  # noqa: F401
    except ImportError as error:
        return (
            "PyTorch3D is installed, but its compiled part does not load with torch "
            f"{torch.__version__} ({error}); install a build made for this torch"
        )
    return None


def paint_by_pytorch3d(
    image: np.ndarray, screen: Screen, colors: np.ndarray, *, antialias: bool = True
) -> None:
    """Blend triangles into `image` [H, W, 3] uint8, in place; colors [V', 4] as in
    `paint.paint`.
    """
    if why := explain_unavailable():
        raise UserError(f"{why}. The renderer `numba` needs nothing of the kind.")
    from pytorch3d.renderer.mesh.rasterize_meshes import rasterize_meshes
    from pytorch3d.structures import Meshes

    device = "cuda" if torch.cuda.is_available() else "cpu"
    height, width = image.shape[:2]
    grid = _GRID if antialias else 1
    usable = np.isfinite(screen.xy_px[screen.faces]).all(axis=(1, 2))
    faces = torch.from_numpy(screen.faces[usable]).long().to(device)
    # PyTorch3D's axes: x left, y up, -1..1 along the shorter side, z in metres. It puts pixel
    # centres at half numbers.
    xy = (np.array((width, height)) - 2 * (screen.xy_px + 0.5)) / min(width, height)
    points = np.nan_to_num(np.concatenate((xy, 1 / screen.inverse_depth[:, None]), axis=1))
    vertices = torch.from_numpy(points).float().to(device)
    triangle, _, weights, _ = rasterize_meshes(
        Meshes([vertices], [faces]),
        image_size=(height * grid, width * grid),
        faces_per_pixel=1,
        perspective_correct=True,
        cull_backfaces=True,
    )
    # [H g, W g], [H g, W g, 3]
    triangle = triangle[0, ..., 0]
    weights = weights[0, ..., 0, :]
    corner_colors = torch.from_numpy(colors).to(device)[
        faces[triangle.clamp(min=0)]
    ]  # [H g, W g, 3, 4]
    color = torch.einsum("hwi,hwic->hwc", weights, corner_colors)
    drawn = color * (triangle >= 0).float()[..., None]
    over = (
        drawn.unflatten(1, (-1, grid)).unflatten(0, (-1, grid)).mean(dim=(1, 3))
    )  # of grid x grid samples, [H, W, 4]
    through = torch.from_numpy(image).to(device) * (1 - over[..., 3:])
    image[:] = (through + over[..., :3] + 0.5).clamp(0, 255).byte().cpu().numpy()
