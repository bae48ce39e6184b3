"""What a send came to: its status, its ids, its place, and the durability that was promised.

A broker answers a stored message with one of four codes. All four mean "stored and readable"; the last three add
that a promise could not be kept within the broker's own time limit. Java calls them SendStatus, and so do we. What
even SEND_OK promises depends on how the broker is set up, and that is what `Durability` says in plain words.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from fusee.message.model import MessageQueue
from fusee.wire.codes import ResponseCode


class SendStatus(Enum):
    """How the broker answered; in every case the message is stored, and sending it again would double it."""

    SEND_OK = "SEND_OK"
    """Everything the broker is set up to promise has been done."""

    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """The broker syncs to disk before it answers, but the disk took too long: in memory, disk likely but not sure."""

    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """The broker replicates before it answers, but no replica confirmed in time."""

    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """The broker replicates before it answers, but has no replica within reach."""


STATUS_OF_CODE: Final[dict[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class Durability(Enum):
    """What a stored message survives, from the least to the most."""

    MEMORY = "memory"
    """In the broker's memory or the page cache: survives the end of the broker's process, not of its machine."""

    DISK = "disk"
    """Synced to the disk of one broker: survives a power cut of that machine, not the loss of the disk."""

    REPLICA = "replica"
    """Held by a second broker as well: survives the loss of one machine."""


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """The answer to one send.

    `message_id` is the unique id the client gave before the first try, so a message that was tried twice keeps it;
    `offset_id` says where the message lies. For a batch both are comma-joined, as every client of RocketMQ has them,
    and `message_ids` and `offset_ids` give the parts; `queue_offset` is that of the first message.
    """

    status: SendStatus
    message_id: str
    offset_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str = ""
    region_id: str = ""
    trace_on: bool = True
    durability: Durability = Durability.MEMORY
    recall_handle: str = ""
    """For a delayed message, where the broker allows it: what `producer.recall` takes it back by."""

    @property
    def topic(self) -> str:
        """The topic the message is in."""
        return self.queue.topic

    @property
    def message_ids(self) -> tuple[str, ...]:
        """The unique ids of the messages of a batch, in order; of a single message, its one id."""
        return tuple(self.message_id.split(","))

    @property
    def offset_ids(self) -> tuple[str, ...]:
        """The offset ids of the messages of a batch, in order; of a single message, its one id."""
        return tuple(self.offset_id.split(","))
