"""Where networks run: the default of every --device, and whether a device can compute."""

import torch

from pose2d.base.errors import UserError


def default_device(process: int = 0) -> str:
    """A GPU where there is one, else the processor; several processes of one machine share its GPUs."""
    return f"cuda:{process % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"


def check_device(name: str) -> None:
    """Refuse a --device that is unknown, absent, or holds no numbers (meta)."""
    try:
        if torch.zeros(1, device=name).cpu().sum() != 0:
            raise RuntimeError("it does not compute")
    except Exception as error:  # each device has errors of its own
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
        raise UserError(
            f"--device {name} cannot be used ({reason}). Use --device cpu, or install a torch for it."
        ) from error
