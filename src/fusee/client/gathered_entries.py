"""Messages that were gathered to travel together: their common body, and a result for each.

The compiled form is `gathered_entries.pyx`, a twin of this module written for C: it copies each message once, to its
place in the body.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from fusee.client.results import SendResult
from fusee.message.batch import ELEMENT_SIZE_MIN

if TYPE_CHECKING:
    import asyncio

    from fusee.client.called_back import CalledBack

Entry: TypeAlias = "tuple[asyncio.Future[SendResult] | CalledBack, str, int, bytes, str]"
"""A gathered message: who waits for its result, its unique id, flag, body and properties."""

_HEAD: Final = Struct(">iiiii")


def without_cancelled(entries: list[Entry]) -> list[Entry]:
    """Those whose senders still wait; the list itself when all do."""
    for entry in entries:
        if entry[0].cancelled():
            return [entry for entry in entries if not entry[0].cancelled()]
    return entries


def join_entries(entries: list[Entry]) -> bytes:
    """The body of a batch of these (`fusee.message.batch` gives its form)."""
    parts: list[bytes] = []
    body_size = properties_size = last_flag = -1
    head = tail = b""
    for _, _, flag, body, text in entries:
        properties = text.encode()
        # Most messages are as long as the one before.
        if len(body) != body_size or len(properties) != properties_size or flag != last_flag:
            body_size, properties_size, last_flag = len(body), len(properties), flag
            head = _HEAD.pack(ELEMENT_SIZE_MIN + body_size + properties_size, 0, 0, flag, body_size)
            tail = properties_size.to_bytes(2, "big")
        parts += (head, body, tail, properties)
    return b"".join(parts)


def deliver_each(entries: list[Entry], result: SendResult) -> None:
    """Give every sender who still waits his part of the result of all; the whole of it when it has no parts."""
    offset_ids = result.offset_id.split(",")
    if len(offset_ids) != len(entries):
        for entry in entries:
            if not entry[0].done():
                entry[0].set_result(result)
        return
    status, queue, durability = result.status, result.queue, result.durability
    transaction_id, region_id, trace_on = result.transaction_id, result.region_id, result.trace_on
    queue_offset = result.queue_offset
    for entry, offset_id in zip(entries, offset_ids, strict=True):
        future = entry[0]
        if not future.done():
            future.set_result(
                SendResult(
                    status, entry[1], offset_id, queue, queue_offset, transaction_id, region_id, trace_on, durability
                )
            )
        queue_offset += 1
