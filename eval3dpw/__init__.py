"""3DPW: reading it, and judging meshes in millimetres."""

from eval3dpw.bodies import Bodies, BodySet, body_set
from eval3dpw.evaluate import PerFrame, Report, evaluate
from eval3dpw.protocols import PROTOCOLS, Protocol
from eval3dpw.sequences import Sequence, read_sequence
from eval3dpw.spin_npz import read_spin_npz
from eval3dpw.tracks import TruthTrack, camera_params, tracks_of

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
    "tracks_of",
]
