"""Events of identities: a table in tracks.npz and fit.npz."""

from dataclasses import dataclass
from typing import Literal

from pose2d.base.columns import column
from pose2d.base.table import Table


@dataclass(frozen=True)
class Event(Table):
    """A doubt about an identity that the user should check."""

    PREFIX = "event_"
    time_s: float = column((), "d", "when", unit="s", finite=True)
    identity: int = column((), "i", "whose")
    kind: Literal["swap", "lost"] = column((), "U", "swap (likely exchanged with somebody) or lost")
    text: str = column((), "U", "a plain sentence")
