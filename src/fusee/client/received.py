"""A message as a consumer sees it: built in a fraction of a microsecond, and decoded only where it is looked at.

A pull answer is one piece of bytes with many records in it. A `ReceivedMessage` remembers where its record lies and
reads a field when it is asked for; body and properties are remembered once read. It therefore keeps the bytes of the
whole answer alive (at most what one pull may bring, 256 KiB by default): whoever keeps few messages of many for long
keeps `message.body`, or the self-contained `message.stored()`.

A message that is tried again was stored anew in its group's retry topic. `topic` is then the topic it was sent to, as
in Java's client; `queue` is always the queue it was pulled from.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.errors import MessageError
from fusee.message import properties as names
from fusee.message.compression import decompress
from fusee.message.flags import SysFlag, compression_type
from fusee.message.hosts import host_text
from fusee.message.ids import encode_offset_id
from fusee.message.model import MessageQueue
from fusee.message.record import decode_record, encode_record
from fusee.message.record_layout import record_bounds
from fusee.message.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.message.model import StoredMessage

DECOMPRESSED_SIZE_MAX: Final = 64 * 1024 * 1024
"""What a compressed body may become. Brokers take 4 MiB by default, and a producer measures before it compresses."""

_INT: Final = Struct(">i").unpack_from
_LONG: Final = Struct(">q").unpack_from
_V4: Final = 8
_V6: Final = 20

_remember = msgspec.structs.force_setattr


class ReceivedMessage(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One message, read from the bytes of the answer that brought it.

    Made by `decode_pulled` and `ReceivedMessage.of`. Two are equal only if they are the same object. Safe to hand to
    threads; pickling takes the message's own record along and nothing else.
    """

    queue: MessageQueue
    queue_offset: int
    _data: bytes
    _position: int
    _body_start: int
    _body_end: int
    _properties_start: int
    _end: int
    _body: bytes | None = None
    _properties: Mapping[str, str] | None = None
    _topic: str | None = None
    _reconsume_times: int = -1
    is_from_batch: bool = False
    """Whether the broker keeps it inside the record of a batch, which `log_offset` then is the place of."""

    @classmethod
    def of(cls, message: StoredMessage, broker_name: str, *, is_from_batch: bool = False) -> ReceivedMessage:
        """The message that this record holds, read from a broker of this name."""
        data = encode_record(message)
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        body_start, body_end, _, properties_start, end = record_bounds(data, 0, len(data))
        received = cls(queue, message.queue_offset, data, 0, body_start, body_end, properties_start, end)
        if is_from_batch:
            _remember(received, "is_from_batch", True)
        return received

    @property
    def topic(self) -> str:
        """The topic the message was sent to."""
        topic = self._topic
        if topic is None:
            data, body_end = self._data, self._body_end
            # version 2 has a topic length of two bytes; its magic ends in AB, that of version 1 in A7
            start = body_end + (1 if data[self._position + 7] == 0xA7 else 2)
            topic = str(data[start : self._properties_start - 2], "utf-8", "replace")
            if topic.startswith(RETRY_PREFIX):
                topic = self._property(b"RETRY_TOPIC") or topic
            _remember(self, "_topic", topic)
        return topic

    @property
    def broker_name(self) -> str:
        """The broker group the message was pulled from."""
        return self.queue.broker_name

    @property
    def queue_id(self) -> int:
        """The number of the queue the message was pulled from."""
        return self.queue.queue_id

    @property
    def body(self) -> bytes:
        """The body as its producer gave it, decompressed if it was compressed on the way.

        Raises MessageError when the compressed form is damaged or grows over 64 MiB.
        """
        body = self._body
        if body is None:
            data = self._data
            body = data[self._body_start : self._body_end]
            if data[self._position + 39] & 1:  # SysFlag.COMPRESSED, in the last byte of the system flag
                body = decompress(body, compression_type(self.sys_flag), size_max=DECOMPRESSED_SIZE_MAX)
            _remember(self, "_body", body)
        return body

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, those of the system included."""
        properties = self._properties
        if properties is None:
            properties = MappingProxyType(names.decode_properties(self.properties_bytes))
            _remember(self, "_properties", properties)
        return properties

    @property
    def properties_bytes(self) -> bytes:
        """The properties as they travel."""
        return self._data[self._properties_start : self._end]

    @property
    def tag(self) -> str | None:
        """The tag, or None."""
        return self._property(b"TAGS")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which the message can be looked up."""
        joined = self._property(b"KEYS")
        return tuple(key for key in joined.split(names.KEY_SEPARATOR) if key) if joined else ()

    @property
    def message_id(self) -> str:
        """The unique id its producer gave; the offset id where it gave none. Stays the same when tried again."""
        return self._property(b"UNIQ_KEY") or self.offset_id

    @property
    def offset_id(self) -> str:
        """The id that says where the message lies."""
        return encode_offset_id(self._store_host_bytes, self.log_offset)

    @property
    def transaction_id(self) -> str | None:
        """The id of the transaction that sent the message, or None."""
        if (self._property(b"TRAN_MSG") or "").lower() != "true":
            return None
        return self._property(b"__transactionId__") or self._property(b"UNIQ_KEY")

    @property
    def reconsume_times(self) -> int:
        """How often the group has failed to consume the message so far."""
        times = self._reconsume_times
        if times < 0:
            times = _INT(self._data, self._body_start - 16)[0]
            _remember(self, "_reconsume_times", times)
        return times

    @property
    def delay_level(self) -> int:
        """The delay level it was sent with, 0 for none."""
        text = self._property(b"DELAY")
        try:
            return int(text) if text else 0
        except ValueError as error:
            raise MessageError(f"property 'DELAY' is {text!r}, which is no number") from error

    @property
    def sharding_key(self) -> str | None:
        """The key that orders it among others, or None."""
        return self._property(b"__SHARDINGKEY")

    @property
    def log_offset(self) -> int:
        """Where the record begins in the log of its broker."""
        return int(_LONG(self._data, self._position + 28)[0])

    @property
    def flag(self) -> int:
        """The number that the application gave."""
        return int(_INT(self._data, self._position + 16)[0])

    @property
    def sys_flag(self) -> int:
        """The system flag as stored; its bits are in `fusee.message.flags.SysFlag`."""
        return int(_INT(self._data, self._position + 36)[0])

    @property
    def born_timestamp_ms(self) -> int:
        """When the producer made it, by the producer's clock."""
        return int(_LONG(self._data, self._position + 40)[0])

    @property
    def born_at(self) -> datetime:
        """When the producer made it, by the producer's clock, in UTC."""
        return _time(self.born_timestamp_ms)

    @property
    def store_timestamp_ms(self) -> int:
        """When the broker stored it, by the broker's clock."""
        return int(_LONG(self._data, self._store_timestamp_position)[0])

    @property
    def stored_at(self) -> datetime:
        """When the broker stored it, by the broker's clock, in UTC."""
        return _time(self.store_timestamp_ms)

    @property
    def born_host(self) -> str:
        """`ip:port` of the producer's connection."""
        return host_text(self._data[self._position + 48 : self._store_timestamp_position])

    @property
    def store_host(self) -> str:
        """`ip:port` of the broker that stored it."""
        return host_text(self._store_host_bytes)

    @property
    def prepared_transaction_offset(self) -> int:
        """Where the half message of its transaction lies, 0 for none."""
        return int(_LONG(self._data, self._body_start - 12)[0])

    @property
    def store_size(self) -> int:
        """The length of its record in bytes."""
        return self._end - self._position

    def stored(self) -> StoredMessage:
        """The record as a self-contained value: its body as stored, compressed if it was."""
        return decode_record(self._data, self._position, self._end)

    @property
    def _store_timestamp_position(self) -> int:
        position = self._position
        return position + (68 if self._data[position + 39] & SysFlag.BORN_HOST_V6 else 56)

    @property
    def _store_host_bytes(self) -> bytes:
        start = self._store_timestamp_position + 8
        size = _V6 if self._data[self._position + 39] & SysFlag.STORE_HOST_V6 else _V4
        return self._data[start : start + size]

    def _property(self, name: bytes) -> str | None:
        properties = self._properties
        if properties is not None:
            return properties.get(name.decode()) or None
        raw = names.find_property(self._data[self._properties_start : self._end], name)
        return None if raw is None else raw.decode("utf-8", "replace")

    def __repr__(self) -> str:
        return (
            f"<ReceivedMessage {self.message_id} of {self.topic}, queue {self.queue_id} on {self.broker_name}, "
            f"offset {self.queue_offset}>"
        )

    def __reduce__(self) -> tuple[Callable[..., ReceivedMessage], tuple[object, ...]]:
        return _revive, (self.stored(), self.queue, self.queue_offset, self.reconsume_times, self.is_from_batch)


def count_failure(message: ReceivedMessage) -> None:
    """Note that the message was tried here without success and will be tried here again."""
    _remember(message, "_reconsume_times", message.reconsume_times + 1)


def _revive(
    message: StoredMessage, queue: MessageQueue, queue_offset: int, reconsume_times: int, is_from_batch: bool
) -> ReceivedMessage:
    received = ReceivedMessage.of(message, queue.broker_name, is_from_batch=is_from_batch)
    _remember(received, "queue", queue)
    _remember(received, "queue_offset", queue_offset)
    _remember(received, "_reconsume_times", reconsume_times)
    return received


def _time(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
