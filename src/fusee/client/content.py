"""What an application says about a message, turned into what travels: a body, a property text, a system flag.

Java writes the unique id and WAIT into the properties of every message, and so do we: consumers in other languages show
them, and trace and look-ups by id rest on the first. A body over the threshold is compressed when that makes it
smaller.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from fusee.client.payloads import encode_body
from fusee.errors import ConfigError, MessageError
from fusee.message import properties as names
from fusee.message.compression import compress, compressed_sys_flag
from fusee.message.flags import CompressionType, TransactionType
from fusee.message.model import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ASCII_CERTAIN: Final = names.PROPERTIES_SIZE_MAX // 4
_LEVEL_MAX: Final = 9
_ZSTD_LEVEL_MAX: Final = 22
_SECOND: Final = timedelta(seconds=1)


def message_of(
    topic: str,
    body: object,
    *,
    tag: str | None = None,
    key: str | None = None,
    keys: str | Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
    flag: int = 0,
    order_by: object = None,
    delay_level: int = 0,
    deliver_in: float | timedelta | None = None,
    deliver_at: datetime | None = None,
    wait_stored: bool = True,
) -> Message:
    """The message that these arguments of a send describe. Raises MessageError, PayloadError."""
    if key is not None:
        if keys:
            raise MessageError("give either key or keys, not both")
        keys = (key,)
    delay_ms: int | None = None
    if deliver_in is not None:
        seconds = deliver_in / _SECOND if isinstance(deliver_in, timedelta) else deliver_in
        delay_ms = round(seconds * 1000)
    return Message.of(
        topic,
        encode_body(body),
        tag=tag,
        keys=keys,
        properties=properties,
        flag=flag,
        delay_level=delay_level,
        delay_ms=delay_ms,
        deliver_at_ms=None if deliver_at is None else round(deliver_at.timestamp() * 1000),
        sharding_key=None if order_by is None else order_text(order_by),
        wait_stored=wait_stored,
    )


def order_text(order_by: object) -> str:
    """The key within which order is kept, as consumers see it. Raises MessageError when it is empty."""
    text = order_by if isinstance(order_by, str) else str(order_by)
    if not text:
        raise MessageError("order_by is empty; give the key whose messages belong in order, or leave it out")
    return text


def identified(message: Message, unique_id: str) -> Message:
    """The message with its unique id, unless it has one already, and with WAIT, as Java writes it."""
    properties = message.properties
    more: dict[str, str] = {}
    if names.UNIQ_KEY not in properties:
        more[names.UNIQ_KEY] = unique_id
    if names.WAIT not in properties:
        more[names.WAIT] = "true"
    return message.with_properties(more) if more else message


def property_text(message: Message) -> str:
    """The properties as they travel. Raises MessageError when one cannot."""
    return names.encode_properties(message.properties).decode()


@lru_cache(maxsize=1024)  # tags are few
def _tag_text(tag: str) -> str:
    return names.encode_properties({names.TAGS: tag}).decode()


def plain_property_text(unique_id: str, tag: str | None, key: str | None, order: str | None) -> str | None:
    """The properties of a message that has at most a tag, one key and an order key; None when one is unusual."""
    text = f"UNIQ_KEY\x01{unique_id}\x02WAIT\x01true\x02"
    if tag is not None:
        if not tag:
            return None
        text += _tag_text(tag)
    if key is not None:
        if not _is_plain(key):
            return None
        text += f"KEYS\x01{key}\x02"
    if order is not None:
        if not _is_plain(order):
            return None
        text += f"__SHARDINGKEY\x01{order}\x02"
    return text if len(text) < _ASCII_CERTAIN else None


def _is_plain(text: object) -> bool:
    return type(text) is str and text.isascii() and text.isprintable() and text != "" and " " not in text


def system_flag(message: Message) -> int:
    """The bits that the properties ask for."""
    return TransactionType.PREPARED.value if message.is_transactional else 0


class Compression:
    """When and how bodies are compressed."""

    __slots__ = ("_kind", "_level", "threshold")

    def __init__(self, *, threshold: int, level: int, kind: str) -> None:
        """Raises ConfigError for a codec that RocketMQ does not have."""
        try:
            self._kind = CompressionType[kind.upper()]
        except KeyError:
            known = ", ".join(each.name for each in CompressionType)
            raise ConfigError(f"compress_type is {kind!r}; RocketMQ knows {known}") from None
        level_max = _ZSTD_LEVEL_MAX if self._kind is CompressionType.ZSTD else _LEVEL_MAX
        if not 0 <= level <= level_max:
            raise ConfigError(f"compress_level is {level}; {self._kind.name} has 0 to {level_max}")
        self._level = level
        self.threshold = threshold

    def apply(self, body: bytes, sys_flag: int) -> tuple[bytes, int]:
        """The body as it travels and its system flag; unchanged when it is small or does not shrink."""
        if len(body) < self.threshold:
            return body, sys_flag
        packed = compress(body, self._kind, self._level)
        if len(packed) >= len(body):
            return body, sys_flag
        return packed, compressed_sys_flag(sys_flag, self._kind)
