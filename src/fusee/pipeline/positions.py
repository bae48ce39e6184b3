"""Where a stream is: the offset that Spark keeps in its checkpoint, and how it moves on.

Theory of operation
-------------------
Spark writes the *end* of a micro-batch to the checkpoint before the batch runs, and takes the start from the end of the
batch before. The start of the first batch it asks for anew at each restart, and never writes down; "latest" would then
have moved, and messages between would be lost. A queue that appears later has no start in the batch before either, and
an expired one a wrong one.

So an offset here holds both ends: `to`, the place after the last message of the batch, and `start`, where the batch
begins in every queue. A batch is planned from its own end alone; what Spark says of its start is not used.

    {"version": 1, "from": {"orders": {"broker-a": {"0": 10}}}, "to": {"orders": {"broker-a": {"0": 25}}}}

`from` is null in the offset that a query begins with, which no batch ends at. Offsets are compared by Spark as text:
keys are sorted, and when nothing is new the very offset that was given is given back.

A queue that vanishes keeps its place in `to`: its broker may be restarted, and the queue goes on where it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fusee.errors import ConfigError
from fusee.message.model import MessageQueue
from fusee.pipeline.ranges import QueueRange

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1

Positions: TypeAlias = "Mapping[MessageQueue, int]"
"""The next offset to read, of each queue."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The end of a micro-batch, and where in each queue the batch begins; `start` is None before the first batch."""

    start: Positions | None
    to: Positions

    def to_json(self) -> dict[str, Any]:
        """As it stands in the checkpoint."""
        start = None if self.start is None else nested(self.start)
        return {"from": start, "to": nested(self.to), "version": VERSION}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Raises ConfigError when this is not an offset of ours, or one of a later version."""
        version = value.get("version")
        if version != VERSION:
            raise ConfigError(
                f"the checkpoint has an offset of version {version!r}, and this Fusee reads version {VERSION}: it was "
                "written by another source or a later Fusee; use that one, or a new checkpoint location"
            )
        start = value["from"]
        return cls(None if start is None else flat(start), flat(value["to"]))

    def ranges(self) -> list[QueueRange]:
        """What the batch reads, sorted by broker and queue; empty ranges are left out."""
        if self.start is None:
            return []
        return sorted(
            (
                QueueRange(queue.topic, queue.broker_name, queue.queue_id, begin, self.to[queue])
                for queue, begin in self.start.items()
                if self.to.get(queue, begin) > begin
            ),
            key=lambda each: (each.broker_name, each.topic, each.queue_id),
        )


def nested(positions: Positions) -> dict[str, dict[str, dict[str, int]]]:
    """Positions by topic, broker and queue, sorted, as they are written down."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(positions):
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = positions[queue]
    return found


def flat(written: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[MessageQueue, int]:
    """Positions as they were written down, by queue."""
    return {
        MessageQueue(topic, broker_name, int(queue_id)): queue_offset
        for topic, brokers in written.items()
        for broker_name, queues in brokers.items()
        for queue_id, queue_offset in queues.items()
    }
