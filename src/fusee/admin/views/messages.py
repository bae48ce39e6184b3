"""Messages that wait, that died, and what became of one."""

from __future__ import annotations

from enum import Enum

import msgspec

from fusee.admin.views.progress import MessageStatus
from fusee.admin.views.servers import Failure
from fusee.client.received import ReceivedMessage
from fusee.message.model import MessageQueue


class PendingTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A half message whose producer has not decided, as far as its broker has written down."""

    message: ReceivedMessage
    """The half message: its newest copy, when the producer was asked before."""
    topic: str
    """Where the message will go."""
    producer_group: str
    transaction_id: str
    check_times: int
    """How often the producer was asked."""


class PendingTransactions(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions without a decision, oldest first."""

    transactions: tuple[PendingTransaction, ...]
    is_all: bool = True
    """False when there were more than were asked for."""
    failures: tuple[Failure, ...] = ()


class WaitingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A delayed message that waits."""

    message: ReceivedMessage
    topic: str
    """Where the message will go."""
    due_ms: int
    level: int = 0
    """0 for one with a delivery time of its own."""


class DelayLevel(msgspec.Struct, frozen=True, kw_only=True):
    """What waits in one delay level of one broker. `next_due_ms` is None when nothing waits."""

    broker_name: str
    level: int
    delay_ms: int
    waiting: int
    next_due_ms: int | None = None


class DelayView(msgspec.Struct, frozen=True, kw_only=True):
    """What waits in every delay level, and by topic what waits for delivery times of its own (`timed`)."""

    levels: tuple[DelayLevel, ...]
    timed: dict[str, int] = {}
    failures: tuple[Failure, ...] = ()

    @property
    def waiting(self) -> int:
        return sum(level.waiting for level in self.levels) + sum(self.timed.values())


class DeadLetterQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of one group in numbers."""

    group: str
    count: int
    last_ms: int = 0
    failures: tuple[Failure, ...] = ()


class DeadLetterCause(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that have something in common: `values` says what, by name."""

    values: dict[str, str]
    count: int
    first_ms: int
    last_ms: int
    sample: ReceivedMessage


class ReplayOutcome(Enum):
    """What came of giving one dead letter again."""

    REPLAYED = "replayed"
    WOULD_REPLAY = "would be replayed"
    LOOPED = "replayed too often already"
    REFUSED = "refused by the broker"


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """One dead letter that was given again, or not."""

    queue: MessageQueue
    queue_offset: int
    message_id: str
    outcome: ReplayOutcome
    offset_id: str = ""
    """Of the new message."""
    cause: str = ""
    """Why it was refused."""


class ReplayState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a replay is, which its tables follow: kept by its caller, and given again, it lets a replay go on."""

    group: str
    next_offsets: dict[str, int] = {}
    """By `broker/queue` of the dead letters' topic."""
    counts: dict[str, int] = {}
    """By outcome."""


class LifeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a message, or will (`at_ms` in the future). `source` says who tells it."""

    at_ms: int
    what: str
    where: str = ""
    group: str = ""
    details: str = ""
    source: str = "store"


class MessageLife(msgspec.Struct, frozen=True, kw_only=True):
    """A message, what happened to it in order of time, and what each group of its topic did with it."""

    message: ReceivedMessage
    events: tuple[LifeEvent, ...]
    groups: tuple[MessageStatus, ...]
    is_traced: bool = False
    failures: tuple[Failure, ...] = ()
