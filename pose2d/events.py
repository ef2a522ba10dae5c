"""What happened to identities: one line of text each in tracks.npz and fit.npz."""

from dataclasses import dataclass
from typing import Literal, cast

EventKind = Literal["swap", "lost", "merged", "split"]


@dataclass(frozen=True)
class Event:
    """Something about who is who that a person should look at."""

    time_s: float
    identity: int
    kind: EventKind  # swap: likely exchanged with somebody; merged: two were one; split: one was two
    text: str  # a plain sentence

    def line(self) -> str:
        return f"{self.time_s:.3f}|{self.identity}|{self.kind}|{self.text}"

    @staticmethod
    def from_line(line: str) -> "Event":
        time_s, identity, kind, text = line.split("|", 3)
        return Event(float(time_s), int(identity), cast(EventKind, kind), text)
