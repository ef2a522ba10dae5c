"""3DPW: its files, and the errors of bodies in millimetres."""

from eval3dpw.bodies import Bodies, BodySet, body_set
from eval3dpw.scoring import PROTOCOLS, PerFrame, Protocol, Report, evaluate
from eval3dpw.sequences import Sequence, TruthTrack, camera_params, read_sequence, read_spin_npz

__all__ = [
    "PROTOCOLS",
    "Bodies",
    "BodySet",
    "PerFrame",
    "Protocol",
    "Report",
    "Sequence",
    "TruthTrack",
    "body_set",
    "camera_params",
    "evaluate",
    "read_sequence",
    "read_spin_npz",
]
