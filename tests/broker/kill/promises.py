"""What was sent to a broker, and what it has promised by its answers, over all its lives."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class Fate(IntEnum):
    """What the producer of a transaction wants, and when it says so."""

    COMMIT = 0
    ROLL_BACK = 1
    COMMIT_WHEN_ASKED = 2
    ROLL_BACK_WHEN_ASKED = 3

    @property
    def is_commit(self) -> bool:
        return self in (Fate.COMMIT, Fate.COMMIT_WHEN_ASKED)

    @property
    def is_told_only_when_asked(self) -> bool:
        return self in (Fate.COMMIT_WHEN_ASKED, Fate.ROLL_BACK_WHEN_ASKED)


@dataclass(frozen=True, slots=True)
class Sent:
    """One message, as it was sent."""

    producer: str
    number: int
    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    born_ms: int


@dataclass(slots=True)
class Promises:
    """Grows from round to round."""

    sent: dict[str, Sent] = field(default_factory=dict)
    """Plain messages by unique id, acknowledged or not."""

    stored: dict[str, int] = field(default_factory=dict)
    """Queue offsets of the acknowledged ones."""

    delayed: dict[str, Sent] = field(default_factory=dict)
    """Delayed messages, acknowledged or not."""

    delayed_stored: set[str] = field(default_factory=set)
    fates: dict[str, Fate] = field(default_factory=dict)
    """Transactions, whether or not their half message was acknowledged."""

    halves_stored: set[str] = field(default_factory=set)
    decided: set[str] = field(default_factory=set)
    """Transactions whose commit or roll-back was acknowledged."""

    topics: dict[str, int] = field(default_factory=dict)
    """Queues of topics whose making was acknowledged."""

    committed: dict[int, int] = field(default_factory=dict)
    """The largest offset that a consumer has tried to commit, by queue."""

    seen_saved: dict[int, int] = field(default_factory=dict)
    """Committed offsets that were seen in the file."""
