"""Turn ACCAD's motion capture of one woman onto the body's 24 joints.

Data: ACCAD, The Ohio State University, Open Motion Project; CC BY 3.0.
"""

from dataclasses import replace
from pathlib import Path

from eval3dpw.captured.collars import raise_collars
from eval3dpw.captured.motion import CMU_JOINTS, Motion, load_captured
from fitting.body import Body

_ACCAD = tuple({"LowerBack": "ToSpine", "Neck1": "Neck"}.get(name, name) for name in CMU_JOINTS)


def load_accad(path: str | Path, body: Body) -> Motion:
    """Read ACCAD's woman at 30 frames a second, with collars raised, which hardly move in the
    file.
    """
    motion = load_captured(path, body, 30.0, source=_ACCAD)
    names = tuple(f"1_{name}" for name in motion.clip_name)
    return replace(motion, pose=raise_collars(motion.pose, body), clip_name=names)
