"""The axes of marker files: y up as OpenSim has it, z up, or those of the calibration."""

import numpy as np

from fitmesh.exports import AS_RIG, Z_UP
from fitmesh.result import Result
from fitting.rig.calibration import read_rig
from pose2d.base.errors import OptionError

RIG_FILE = "rig.toml"
_OPTION = "--trc-axes"
_Z_UP_FROM_Y_UP = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


def rotation_from_y_up(result: Result, axes: str) -> np.ndarray:
    """Return the rotation [3, 3] from the scene's axes, y up, to the wanted ones.

    z-up keeps the cyclic order: (x, y, z) becomes (z, x, y), which is the calibration's own order
    where its z axis is up. as-rig needs the rig.toml of several cameras.
    """
    if axes == Z_UP:
        return _Z_UP_FROM_Y_UP
    if axes != AS_RIG:
        return np.eye(3)
    if not result.views or not (result.folder / RIG_FILE).is_file():
        raise OptionError(
            f"{_OPTION} {AS_RIG} needs several cameras with a calibration; {result.folder} has no "
            f"{RIG_FILE}. Choose y-up or z-up.",
            option=_OPTION,
        )
    names = [view.name for view in result.views]
    sizes = [(int(view.size_px[0]), int(view.size_px[1])) for view in result.views]
    rig = read_rig(result.folder / RIG_FILE, names, sizes)
    world_from_camera = result.world_from_camera[0, :3, :3].astype(np.float64)
    rotation = rig.cameras[0].rotation.T @ world_from_camera.T
    # float32 leaves errors of 1e-7; the way back is a permutation of the axes where they are the
    # calibration's own.
    rounded = rotation.round()
    return rounded if np.allclose(rotation, rounded, atol=1e-5) else rotation
