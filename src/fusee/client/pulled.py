"""The body of a pull answer as messages, at the price of one walk over its records.

Every length is checked before a message is made, so that what is handed out can be read without fear; nothing else is
decoded. Records with IPv4 hosts and a topic of the usual length, which is nearly all, take the short way. A walk in
plain Python is the fastest form for every size: a record's place is only known from the one before it, and making the
object is most of the work, neither of which arrays can do.

Bytes that are no record raise RecordError, and then no message of the answer is handed out: the caller still stands at
the offset it asked for, so nothing is lost. (Java's decoder leaves out the rest of the answer without a word.)
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from fusee.client.received import ReceivedMessage
from fusee.message.batch import unwrap_message
from fusee.message.flags import is_inner_batch
from fusee.message.model import MessageQueue
from fusee.message.properties import find_tag
from fusee.message.record import decode_record
from fusee.message.record_layout import MAGIC_V1, PROPERTIES_SIZE_MAX, RECORD_SIZE_MIN, TOPIC_SIZE_MAX_V1, record_bounds

if TYPE_CHECKING:
    from fusee.filter.subscription import Subscription

# total size, magic, queue id, queue offset, system flag, body size of a record whose hosts are IPv4
_HEAD: Final = Struct(">iI4xi4xq8xi44xi").unpack_from
_HEAD_SIZE: Final = 88
# address families and inner batches: what makes a record more than the short way can read
_UNUSUAL: Final = 0xF0


def decode_pulled(
    body: bytes, broker_name: str, topic: str, subscription: Subscription | None = None
) -> list[ReceivedMessage]:
    """The messages in the body of a pull from this topic, in order.

    Brokers choose by hashes of tags; with a subscription, messages whose tag only has the same hash are left out. The
    messages of an inner batch come one by one. Raises RecordError when bytes are not records, MessageError when an
    inner batch cannot be taken apart.
    """
    messages: list[ReceivedMessage] = []
    add = messages.append
    position, end = 0, len(body)
    last_start = end - RECORD_SIZE_MIN
    known_id = -1
    queue = MessageQueue(topic, broker_name, 0)
    while position < end:
        if position <= last_start:
            total, magic, queue_id, queue_offset, sys_flag, body_size = _HEAD(body, position)
            if queue_id != known_id:
                queue = MessageQueue(topic, broker_name, queue_id)
                known_id = queue_id
            body_start = position + _HEAD_SIZE
            body_end = body_start + body_size
            record_end = position + total
            if (
                magic == MAGIC_V1
                and not sys_flag & _UNUSUAL
                and body_size >= 0
                and body_end + 3 <= record_end <= end
                and (topic_size := body[body_end]) <= TOPIC_SIZE_MAX_V1
                and (properties_start := body_end + 3 + topic_size) <= record_end
                and (properties_size := body[properties_start - 2] << 8 | body[properties_start - 1])
                <= PROPERTIES_SIZE_MAX
                and properties_start + properties_size == record_end
            ):
                add(
                    ReceivedMessage(
                        queue, queue_offset, body, position, body_start, body_end, properties_start, record_end
                    )
                )
                position = record_end
                continue
        body_start, body_end, _, properties_start, record_end = record_bounds(body, position, end)
        _, _, queue_id, queue_offset, sys_flag, _ = _HEAD(body, position)
        if is_inner_batch(sys_flag):
            batch = unwrap_message(decode_record(body, position, record_end))
            messages.extend(ReceivedMessage.of(message, broker_name, is_from_batch=True) for message in batch)
        else:
            queue = MessageQueue(topic, broker_name, queue_id)
            known_id = queue_id
            add(
                ReceivedMessage(queue, queue_offset, body, position, body_start, body_end, properties_start, record_end)
            )
        position = record_end
    if subscription is not None and subscription.tags:
        return wanted(messages, subscription)
    return messages


def wanted(messages: list[ReceivedMessage], subscription: Subscription) -> list[ReceivedMessage]:
    """The messages whose tag the subscription names."""
    tags = {tag.encode() for tag in subscription.tags}
    return [message for message in messages if find_tag(message.properties_bytes) in tags]
