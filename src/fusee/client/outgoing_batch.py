"""Several messages in one request: given together by the application, or gathered by the producer.

All of them go to one queue, where they get consecutive offsets, and are stored together or not at all. The request
has properties of its own, among them a unique id; a broker looks at them only for topics whose queues are of the batch
kind.
"""

from __future__ import annotations

import asyncio
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from fusee.client.gathered_entries import deliver_each, join_entries
from fusee.client.outgoing import Outgoing
from fusee.client.results import SendResult
from fusee.message.batch import batch_element, join_batch
from fusee.message.properties import decode_properties
from fusee.wire.hot_decode import SendAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fusee.client.gathered_entries import Entry
    from fusee.client.outlet import Lane
    from fusee.client.results import SendStatus
    from fusee.message.model import Message
    from fusee.wire.command import Command

_KEYS_SIZE_MAX: Final = 8192


class OutgoingBatch(Outgoing):
    """The send of a batch that the application put together; its result names them all."""

    unique_ids: Sequence[str] = ()
    is_plain = False

    @classmethod
    def of(cls, messages: Sequence[Message], unique_id: str, *, loop: asyncio.AbstractEventLoop) -> OutgoingBatch:
        """A batch of messages that have their unique ids. Raises MessageError when it cannot be encoded."""
        batch = cls(loop=loop)
        batch.unique_ids = [message.unique_id or "" for message in messages]
        batch.unique_id = unique_id
        batch.wait_stored = messages[0].wait_stored
        batch.properties = batch_properties(unique_id, wait_stored=batch.wait_stored)
        batch.body = join_batch(map(batch_element, messages))
        return batch

    def property_map(self) -> Mapping[str, str]:
        """The properties of the batch as a whole."""
        return MappingProxyType(decode_properties(self.properties.encode()))

    def let_travel(self, added: Mapping[str, str]) -> None:
        """Nothing: the properties of a batch are not those of its messages."""

    def head(self, lane: Lane, opaque: int, born_timestamp_ms: int) -> bytes:
        return lane.batches.head(opaque, 0, born_timestamp_ms, 0, self.properties, len(self.body))

    def result_of(self, response: Command, status: SendStatus) -> SendResult:
        result = super().result_of(response, status)
        if response.read(SendAnswer).batch_uniq_id:
            return result  # kept whole, as one record with the id of the batch
        return SendResult(
            result.status,
            ",".join(self.unique_ids),
            result.offset_id,
            result.queue,
            result.queue_offset,
            result.transaction_id,
            result.region_id,
            result.trace_on,
            result.durability,
        )


def batch_properties(
    unique_id: str, *, wait_stored: bool = True, tag: str | None = None, keys: Iterable[str] = ()
) -> str:
    """The properties of a batch as a whole. Of very many keys none is told: each message has its own."""
    text = f"UNIQ_KEY\x01{unique_id}\x02WAIT\x01{'true' if wait_stored else 'false'}\x02"
    if tag:
        text += f"TAGS\x01{tag}\x02"
    joined = " ".join(keys)
    if joined and len(joined) <= _KEYS_SIZE_MAX:
        text += f"KEYS\x01{joined}\x02"
    return text


class GatheredBatch(OutgoingBatch):
    """The send of a batch that was gathered; everyone who gave a message gets a result of his own."""

    entries: list[Entry]
    over: Callable[[int], object]
    """Told the size of the body when all is over."""

    @classmethod
    def joined(cls, entries: list[Entry], *, loop: asyncio.AbstractEventLoop) -> GatheredBatch:
        """A batch of these."""
        batch = cls(loop=loop)
        batch.entries = entries
        batch.unique_ids = [entry[1] for entry in entries]
        batch.body = join_entries(entries)
        return batch

    def deliver(self, result: SendResult) -> None:
        deliver_each(self.entries, result)
        self.set_result(result)
        self.over(len(self.body))

    def refuse(self, error: type | BaseException) -> None:
        for entry in self.entries:
            if not entry[0].done():
                entry[0].set_exception(copy(error))  # each is raised on its own, with a trace of its own
        asyncio.Future.cancel(self)  # nobody waits for the batch as such
        self.over(len(self.body))
