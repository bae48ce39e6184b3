"""Body of a batch send: elements end to end, taken apart by the broker; or, kept whole, by the consumer.

An element is a small record, all integers big-endian:

    TOTALSIZE 4 | MAGICCODE 4 = 0 | BODYCRC 4 = 0 | FLAG 4 | body size 4 | BODY | properties size 2 |
    PROPERTIES

A broker stores each element as a record of its own, with consecutive queue offsets. For a topic whose queues
are of the batch kind it stores the whole body as one record instead (an *inner batch*: system flag
NEED_UNWRAP and INNER_BATCH, properties INNER_NUM and INNER_BASE); the consumer then makes single messages of
it. Each has its own flag, body and properties, the queue offset of the batch plus its place, and everything
else from the batch. The properties of the batch are not added to those of its messages: so does the Java
5.5.0 client.

Reading is strict about bounds, and there is a limit on the number of elements, because an element costs far
more memory than its 22 bytes.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812  the module's own class has a lower-case name
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.errors import MessageError
from fusee.message.compression import BODY_SIZE_MAX, decompress_message
from fusee.message.flags import SysFlag, is_inner_batch
from fusee.message.properties import PROPERTIES_SIZE_MAX, decode_properties, encode_properties
from fusee.message.record_layout import body_crc
from fusee.message.topics import is_retry_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fusee.message.model import Message, StoredMessage

BATCH_COUNT_MAX: Final = 65536
ELEMENT_SIZE_MIN: Final = 22
_HEAD: Final = Struct(">iiiii")


class BatchElement(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch, its properties as they travel."""

    flag: int
    body: bytes
    properties_bytes: bytes

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, decoded."""
        return MappingProxyType(decode_properties(self.properties_bytes))


def batch_element(message: Message) -> BatchElement:
    """The element of this message. Its topic travels in the header of the request."""
    return BatchElement(message.flag, message.body, encode_properties(message.properties))


def check_batch(messages: Sequence[Message]) -> None:
    """Raise MessageError unless these messages may travel together.

    One topic, one answer to whether to wait; no delay, no transaction, no retry topic: the broker would treat
    the whole batch like its header says and lose what a single message asks for.
    """
    if not messages:
        raise MessageError("a batch needs at least one message")
    first = messages[0]
    if is_retry_topic(first.topic):
        raise MessageError(f"messages of retry topic {first.topic!r} cannot be sent as a batch; send them singly")
    for message in messages:
        if message.topic != first.topic:
            raise MessageError(
                f"a batch has one topic, not {first.topic!r} and {message.topic!r}; send a batch for each"
            )
        if message.wait_stored != first.wait_stored:
            raise MessageError("messages of a batch must agree on wait_stored; send a batch for each")
        if message.is_delayed:
            raise MessageError("a delayed message cannot be part of a batch; send it singly")
        if message.is_transactional:
            raise MessageError("a transactional message cannot be part of a batch; send it singly")


def join_batch(elements: Iterable[BatchElement], *, count_max: int = BATCH_COUNT_MAX) -> bytes:
    """The body that carries these elements.

    Raises MessageError when there are too many or one does not fit.
    """
    parts: list[bytes] = []
    for element in elements:
        body = element.body
        properties = element.properties_bytes
        if len(parts) >= 4 * count_max:
            raise MessageError(f"a batch has at most {count_max} messages; split it")
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise MessageError(
                f"properties of batch element {len(parts) // 4} take {len(properties)} bytes, "
                f"the limit is {PROPERTIES_SIZE_MAX}"
            )
        size = ELEMENT_SIZE_MIN + len(body) + len(properties)
        try:
            head = _HEAD.pack(size, 0, 0, element.flag, len(body))
        except StructError as error:
            raise MessageError(f"a number does not fit its field of the batch element: {error}") from error
        parts += (head, body, len(properties).to_bytes(2, "big"), properties)
    return b"".join(parts)


def split_batch(body: bytes, *, count_max: int = BATCH_COUNT_MAX) -> list[BatchElement]:
    """The elements of a batch body.

    Raises MessageError, naming the position, when it is malformed or has too many.
    """
    elements: list[BatchElement] = []
    position = 0
    end = len(body)
    while position < end:
        if len(elements) == count_max:
            raise MessageError(f"batch element at {position}: a batch has at most {count_max} messages")
        if end - position < ELEMENT_SIZE_MIN:
            raise MessageError(f"batch element at {position}: only {end - position} bytes are left")
        size, _, _, flag, body_size = _HEAD.unpack_from(body, position)
        # magic and checksum are 0 from Java and ignored by it
        body_start = position + 20
        body_end = body_start + body_size
        element_end = position + size
        if not ELEMENT_SIZE_MIN <= size <= end - position or body_size < 0 or body_end + 2 > element_end:
            raise MessageError(
                f"batch element at {position}: size {size} with a body of {body_size} bytes does not fit the "
                f"{end - position} bytes left"
            )
        properties_start = body_end + 2
        properties_size = body[body_end] << 8 | body[body_end + 1]
        if properties_size > PROPERTIES_SIZE_MAX or properties_start + properties_size != element_end:
            raise MessageError(
                f"batch element at {position}: properties of {properties_size} bytes do not make size {size}"
            )
        elements.append(BatchElement(flag, body[body_start:body_end], body[properties_start:element_end]))
        position = element_end
    return elements


def unwrap_message(
    message: StoredMessage, *, count_max: int = BATCH_COUNT_MAX, size_max: int = BODY_SIZE_MAX
) -> list[StoredMessage]:
    """The single messages of an inner batch, or the message itself when it is none.

    A compressed batch is decompressed first, up to `size_max`. Raises MessageError when the body is no batch.
    """
    if not is_inner_batch(message.sys_flag):
        return [message]
    message = decompress_message(message, size_max=size_max)
    sys_flag = message.sys_flag & ~(SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH | SysFlag.COMPRESSION_MASK)
    base_offset = message.queue_offset
    return [
        msgspec.structs.replace(
            message,
            queue_offset=base_offset + place,
            body=element.body,
            properties_bytes=element.properties_bytes,
            flag=element.flag,
            sys_flag=sys_flag,
            body_crc=body_crc(element.body),
            store_size=0,
        )
        for place, element in enumerate(split_batch(message.body, count_max=count_max))
    ]
