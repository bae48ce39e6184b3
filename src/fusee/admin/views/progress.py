"""How far groups are, and what was done to their offsets and messages."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from fusee.admin.views.servers import Failure
from fusee.admin.views.topics import moment
from fusee.message.model import MessageQueue

if TYPE_CHECKING:
    from datetime import datetime


class QueueLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is in one queue, and which client owns the queue (empty when that is not known)."""

    queue: MessageQueue
    broker_offset: int
    committed_offset: int
    pulled_offset: int
    last_consumed_ms: int = 0
    """Store time of the last message consumed."""
    owner: str = ""

    @property
    def lag(self) -> int:
        """Messages not consumed yet."""
        return self.broker_offset - self.committed_offset

    @property
    def in_flight(self) -> int:
        """Messages delivered to a consumer and not committed yet."""
        return max(self.pulled_offset - self.committed_offset, 0)

    @property
    def last_consumed_at(self) -> datetime | None:
        return moment(self.last_consumed_ms)


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is in every queue it consumes, sorted; retry topics are among them."""

    group: str
    queues: tuple[QueueLag, ...]
    consume_tps: float = 0.0
    failures: tuple[Failure, ...] = ()

    @property
    def total(self) -> int:
        return sum(queue.lag for queue in self.queues)

    @property
    def in_flight(self) -> int:
        return sum(queue.in_flight for queue in self.queues)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({queue.queue.topic for queue in self.queues}))


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line per group: members, how they consume, rate and lag (mqadmin consumerProgress)."""

    group: str
    members: int
    lowest_version: int = 0
    consume_type: str = ""
    message_model: str = ""
    consume_tps: float = 0.0
    lag: int = 0
    failures: tuple[Failure, ...] = ()


class QueueAge(msgspec.Struct, frozen=True, kw_only=True):
    """Ages of one queue for one group: `delay_ms` is the age of the next message to be consumed, 0 when none waits."""

    queue: MessageQueue
    min_store_ms: int
    max_store_ms: int
    consumed_ms: int
    delay_ms: int


class CommittedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """What a group has committed in a queue; None when it has not."""

    queue: MessageQueue
    committed_offset: int | None


class OffsetChange(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group was in a queue, and where it goes on."""

    queue: MessageQueue
    before: int | None
    """None when the group had no offset there."""
    after: int


class OffsetChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a reset did, or with `is_dry_run` would do.

    `is_told` says that brokers hand it on to the members that run; otherwise offsets were only written, and a member
    that runs overwrites them with its next commit.
    """

    group: str
    topic: str
    changes: tuple[OffsetChange, ...]
    is_told: bool
    is_dry_run: bool = False


class QueuePosition(msgspec.Struct, frozen=True, kw_only=True):
    """An offset in a queue."""

    queue: MessageQueue
    queue_offset: int


class MemberOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """How far one member of a group says it is, queue by queue, sorted."""

    client_id: str
    positions: tuple[QueuePosition, ...]


class DirectResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer that was told to consume one message fared; `result` is Java's CR_SUCCESS, CR_LATER, ..."""

    client_id: str
    result: str
    remark: str
    spent_ms: int
    is_ordered: bool

    @property
    def is_success(self) -> bool:
        return self.result in ("CR_SUCCESS", "CR_COMMIT")


class Consumption(Enum):
    """Whether a group has consumed a message (Java: TrackType)."""

    CONSUMED = "consumed"
    FILTERED = "passed over by the filter"
    WAITING = "not consumed yet"
    PULLED = "the application decides when it pulls"
    BROADCAST = "each member keeps its own offsets"
    NOT_TOLD = "not known"


class MessageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What one group did with a message."""

    group: str
    consumption: Consumption
    is_online: bool
    cause: str = ""
    """Why it is not known."""
