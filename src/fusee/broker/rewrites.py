"""Messages put again under another name: what delay, retry and transactions do alike to properties and records.

Properties are changed in their raw form: what is not touched keeps its bytes, whatever they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.message import properties as names
from fusee.message.properties import find_property, join_properties, remove_property
from fusee.store.new_record import NewRecord

if TYPE_CHECKING:
    from fusee.message.model import StoredMessage

REAL_TOPIC: Final = names.REAL_TOPIC.encode()
REAL_QUEUE_ID: Final = names.REAL_QUEUE_ID.encode()
DELAY: Final = names.DELAY.encode()
_CRC: Final = names.CRC32.encode()
_INT32_MAX: Final = 2**31 - 1


def with_property(raw: bytes, name: bytes, value: bytes | str | int) -> bytes:
    """The properties with this one added or replaced."""
    if not isinstance(value, bytes):
        value = str(value).encode()
    return join_properties(remove_property(raw, name), b"%b\x01%b\x02" % (name, value))


def delay_level_of(raw: bytes) -> int | None:
    """The delay level that properties ask for: 0 for none, None when what stands there is no number."""
    return number_of(raw, DELAY) if find_property(raw, DELAY) is not None else 0


def number_of(raw: bytes, name: bytes) -> int | None:
    """The integer that a property holds, as Java parses one; None when there is none or it is no integer."""
    value = find_property(raw, name)
    if value is None:
        return None
    digits = value[1:] if value[:1] in (b"-", b"+") else value
    return int(value) if digits.isdigit() and len(digits) < 20 else None


def with_real_place(raw: bytes, topic: str, queue_id: int) -> bytes:
    """The properties with where the message is to go in the end."""
    return with_property(with_property(raw, REAL_TOPIC, topic), REAL_QUEUE_ID, queue_id)


def real_place(raw: bytes) -> tuple[str, int] | None:
    """(topic, queue id) where the message is to go in the end; None when its properties do not say."""
    topic = find_property(raw, REAL_TOPIC)
    queue_id = number_of(raw, REAL_QUEUE_ID)
    if topic is None or queue_id is None or not 0 <= queue_id <= _INT32_MAX:
        return None
    return topic.decode("utf-8", "replace"), queue_id


def copy_of(message: StoredMessage, topic: str, queue_id: int, properties: bytes | None = None) -> NewRecord:
    """A stored message as a new record in this queue; its checksum of the whole stays behind."""
    return NewRecord(
        topic,
        queue_id,
        message.body,
        remove_property(message.properties_bytes if properties is None else properties, _CRC),
        message.flag,
        message.sys_flag,
        message.born_timestamp_ms,
        message.born_host_bytes,
        message.store_host_bytes,
        message.reconsume_times,
    )
