"""Topics as people see them: settings, routes, how far their queues are written."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from fusee.admin.views.servers import Failure
from fusee.message.model import MessageQueue
from fusee.wire.bodies.topic import PERM_INHERIT, PERM_PRIORITY, PERM_READ, PERM_WRITE


def perm_text(perm: int) -> str:
    """A permission as the reference's tools write it: `RW-`, `R--`; a trailing X means inherited."""
    letters = ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    text = "".join(letter if perm & bit else "-" for bit, letter in letters)
    return "P" + text if perm & PERM_PRIORITY else text


def moment(timestamp_ms: int) -> datetime | None:
    """The time in UTC; None when it is not known."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC) if timestamp_ms > 0 else None


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as one broker has it configured."""

    topic: str
    broker_name: str = ""
    read_queues: int
    write_queues: int
    perm: int
    is_ordered: bool = False
    attributes: dict[str, str] = {}
    sys_flag: int = 0
    filter_type: str = "SINGLE_TAG"

    @property
    def permission(self) -> str:
        return perm_text(self.perm)

    @property
    def message_type(self) -> str:
        """NORMAL, FIFO, DELAY, TRANSACTION or MIXED."""
        return self.attributes.get("message.type", "NORMAL")


class QueueGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The queues of a topic on one broker group, as the name server tells."""

    broker_name: str
    cluster: str
    read_queues: int
    write_queues: int
    perm: int
    addresses: dict[int, str]
    """By broker id; 0 is the master."""

    @property
    def permission(self) -> str:
        return perm_text(self.perm)


class TopicRouteView(msgspec.Struct, frozen=True, kw_only=True):
    """Where a topic is served. `order_config` is the queues in use of an ordered topic, `broker:queues;...`."""

    topic: str
    groups: tuple[QueueGroup, ...]
    order_config: str | None = None

    @property
    def clusters(self) -> tuple[str, ...]:
        return tuple(sorted({group.cluster for group in self.groups}))


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """How far one queue is written: the first offset still there, and the one that comes next."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update_ms: int = 0

    @property
    def count(self) -> int:
        """Messages that can be read."""
        return max(self.max_offset - self.min_offset, 0)

    @property
    def last_update_at(self) -> datetime | None:
        return moment(self.last_update_ms)


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    """Every queue of a topic, sorted."""

    topic: str
    queues: tuple[QueueState, ...]
    put_tps: float = 0.0
    failures: tuple[Failure, ...] = ()

    @property
    def count(self) -> int:
        return sum(queue.count for queue in self.queues)


class ConsumeQueueItem(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a consume queue: where the record lies. `matches` tells what the filter of the group says."""

    queue: MessageQueue
    queue_offset: int
    log_offset: int
    size: int
    tags_code: int
    matches: bool
    text: str = ""
