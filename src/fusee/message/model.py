"""The values everything else is about: Message, StoredMessage and MessageQueue, frozen and cheap to make.

`Message` is what an application hands to a producer. `StoredMessage` is what a record holds, on disk and in a
pull answer alike; it keeps hosts and properties as the bytes they are, because most readers pass them on or
look at one tag, and decodes them when asked. `MessageQueue` names one queue of a topic on one broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from fusee.errors import MessageError
from fusee.message import properties as names
from fusee.message.hosts import host_text
from fusee.message.ids import encode_offset_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class MessageQueue(msgspec.Struct, frozen=True, order=True, gc=False):
    """One queue of a topic on one broker.

    Sorts by topic, broker, number, as every client must for rebalancing.
    """

    topic: str
    broker_name: str
    queue_id: int


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message to be sent: `Message.of(...)` makes one from what an application has in hand.

    The constructor takes the properties as they will travel, reserved names included, and checks nothing;
    encoding does. Clients and brokers use it, and `with_properties`, to add their own.
    """

    topic: str
    body: bytes
    properties: Mapping[str, str] = _NO_PROPERTIES
    flag: int = 0

    @classmethod
    def of(
        cls,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        delay_level: int = 0,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        sharding_key: str | None = None,
        wait_stored: bool = True,
    ) -> Message:
        """A message as an application describes it.

        `keys` is one key or several; a text with spaces is several. `flag` is an integer of the application's
        own. At most one of `delay_level` (1 to 18 on a default broker), `delay_ms` and `deliver_at_ms` (wall
        clock) puts the delivery off. `sharding_key` orders messages of equal key. With `wait_stored` False
        the broker answers before the message is flushed and replicated.

        Raises MessageError when a property has a reserved name or cannot be carried, or when delays
        contradict.
        """
        merged: dict[str, str] = {}
        if properties:
            for name, value in properties.items():
                if name in names.RESERVED_NAMES:
                    raise MessageError(
                        f"property name {name!r} is reserved for the system; choose another, or use the "
                        "argument of Message.of that stands for it"
                    )
                names.check_property(name, value)
            merged.update(properties)
        if tag:
            names.check_property(names.TAGS, tag)
            merged[names.TAGS] = tag
        if joined := _join_keys(keys):
            names.check_property(names.KEYS, joined)
            merged[names.KEYS] = joined
        if (delay_level != 0) + (delay_ms is not None) + (deliver_at_ms is not None) > 1:
            raise MessageError("give only one of delay_level, delay_ms and deliver_at_ms: a message is delivered once")
        for argument, number, name in (
            ("delay_level", delay_level or None, names.DELAY),
            ("delay_ms", delay_ms, names.TIMER_DELAY_MS),
            ("deliver_at_ms", deliver_at_ms, names.TIMER_DELIVER_MS),
        ):
            if number is not None:
                if number < 0:
                    raise MessageError(f"{argument} is {number}; it cannot be negative")
                merged[name] = str(number)
        if sharding_key:
            names.check_property(names.SHARDING_KEY, sharding_key)
            merged[names.SHARDING_KEY] = sharding_key
        if not wait_stored:
            merged[names.WAIT] = "false"
        return cls(topic, body, MappingProxyType(merged), flag)

    def with_properties(self, more: Mapping[str, str]) -> Message:
        """This message with properties added or replaced, reserved ones too."""
        return Message(self.topic, self.body, MappingProxyType({**self.properties, **more}), self.flag)

    @property
    def tag(self) -> str | None:
        """The tag, or None."""
        return self.properties.get(names.TAGS) or None

    @property
    def keys(self) -> tuple[str, ...]:
        """The index keys."""
        return _split_keys(self.properties.get(names.KEYS, ""))

    @property
    def delay_level(self) -> int:
        """The delay level, 0 when there is none."""
        return _number(self.properties, names.DELAY, 0)

    @property
    def unique_id(self) -> str | None:
        """The unique id the producer gave, or None before it did."""
        return self.properties.get(names.UNIQ_KEY)

    @property
    def sharding_key(self) -> str | None:
        """The key within which order is kept, or None."""
        return self.properties.get(names.SHARDING_KEY)

    @property
    def wait_stored(self) -> bool:
        """Whether the answer waits for flush and replicas."""
        return _truth(self.properties.get(names.WAIT), default=True)

    @property
    def is_delayed(self) -> bool:
        """Whether the message asks for a delivery later, in any of the ways."""
        properties = self.properties
        return (
            self.delay_level > 0
            or names.TIMER_DELAY_MS in properties
            or names.TIMER_DELAY_SEC in properties
            or names.TIMER_DELIVER_MS in properties
        )

    @property
    def is_transactional(self) -> bool:
        """Whether this is the half message of a transaction."""
        return _truth(self.properties.get(names.TRANSACTION_PREPARED), default=False)

    def __reduce__(self) -> tuple[Callable[..., Message], tuple[Any, ...]]:
        # a mapping proxy cannot be pickled
        return Message, (self.topic, self.body, dict(self.properties), self.flag)


class StoredMessage(msgspec.Struct, frozen=True, dict=True):
    """One stored record, field by field; `fusee.message.record` gives the layout.

    `body` is as stored, compressed if `sys_flag` says so (`compression.decompress_message`). `store_size` is
    the length of the record it was read from, 0 if it was not read from one. `dict=True` is where decoded
    properties are remembered; it takes part in no comparison.
    """

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    body: bytes
    properties_bytes: bytes
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host_bytes: bytes
    store_timestamp_ms: int
    store_host_bytes: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    version: int = 1
    store_size: int = 0

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """All properties, decoded once."""
        return MappingProxyType(names.decode_properties(self.properties_bytes))

    @property
    def tag(self) -> str | None:
        """The tag, or None."""
        return _text(names.find_tag(self.properties_bytes))

    @property
    def keys(self) -> tuple[str, ...]:
        """The index keys."""
        return _split_keys(_text(names.find_keys(self.properties_bytes)) or "")

    @property
    def unique_id(self) -> str | None:
        """The unique id its producer gave, or None."""
        return _text(names.find_unique_id(self.properties_bytes))

    @property
    def offset_id(self) -> str:
        """The id that says where the message lies."""
        return encode_offset_id(self.store_host_bytes, self.log_offset)

    @property
    def message_id(self) -> str:
        """What consumers see as the id: the unique id, or the offset id where the producer gave none."""
        return self.unique_id or self.offset_id

    @property
    def born_host(self) -> str:
        """`ip:port` of the producer's connection."""
        return host_text(self.born_host_bytes)

    @property
    def store_host(self) -> str:
        """`ip:port` of the broker that stored the message."""
        return host_text(self.store_host_bytes)

    @property
    def delay_level(self) -> int:
        """The delay level, 0 when there is none."""
        return _number(self.properties, names.DELAY, 0)

    @property
    def wait_stored(self) -> bool:
        """Whether the producer waits for flush and replicas."""
        return _truth(self.properties.get(names.WAIT), default=True)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")


def _split_keys(joined: str) -> tuple[str, ...]:
    return tuple(key for key in joined.split(names.KEY_SEPARATOR) if key)


def _join_keys(keys: str | Iterable[str]) -> str:
    if isinstance(keys, str):
        return names.KEY_SEPARATOR.join(_split_keys(keys))
    several = list(keys)
    for key in several:
        if not key or names.KEY_SEPARATOR in key:
            raise MessageError(
                f"key {key!r} is empty or contains a space, which separates keys; look-ups would not find it"
            )
    return names.KEY_SEPARATOR.join(several)


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    value = properties.get(name)
    if value is None:
        return default
    try:
        return int(value)
    except ValueError as error:
        raise MessageError(f"property {name!r} is {value!r}, which is no number") from error


def _truth(value: str | None, *, default: bool) -> bool:
    # Boolean.parseBoolean: everything that is not "true" in some case is false
    return default if value is None else value.lower() == "true"
