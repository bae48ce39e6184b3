r"""Message properties: their reserved names and the text form `name \x01 value \x02 ...` that carries them.

Theory of operation
-------------------
Properties are a flat map of text to text. On the wire and on disk they are one UTF-8 string: each entry is
the name, the byte 0x01, the value, the byte 0x02. Both bytes can stand in neither names nor values, so the
string needs no escapes and an entry always starts at the beginning or right after a 0x02.

* Writers end every entry with 0x02. Readers accept a missing last one (4.x clients leave it out).
* An entry without 0x01, with an empty name or with an empty value does not exist for a reader (Java's decoder
  skips all three). A value may contain further 0x01 bytes when read; we never write one.
* Of entries with the same name the last one that exists wins. Order has no other meaning.
* The encoded string is at most 32767 bytes: its length is a signed 16-bit field of the record.
* Malformed UTF-8 reads as U+FFFD instead of failing: a broker must be able to hand out what it has stored.
  Whoever passes a message on passes the raw bytes, so nothing is altered on the way.

Because entries cannot hide inside values, one property can be found in the raw bytes without decoding the
rest (`find_property`); the hot paths of store and broker live on this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "
PROPERTIES_SIZE_MAX: Final = 32767

# Set by producers.
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
UNIQ_KEY: Final = "UNIQ_KEY"
PRODUCER_GROUP: Final = "PGROUP"
SHARDING_KEY: Final = "__SHARDINGKEY"
LITE_TOPIC: Final = "__LITE_TOPIC"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
INSTANCE_ID: Final = "INSTANCE_ID"
BUYER_ID: Final = "BUYER_ID"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"

# Delay at any time (timer wheel).
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_ROLL_LABEL: Final = "TIMER_ROLL_LABEL"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"

# Transactions.
TRANSACTION_PREPARED: Final = "TRAN_MSG"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_OFFSET: Final = "TRANS_OFFSET"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"

# Retry, dead letters and where a rewritten message came from.
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

# Set by the broker on arrival.
CLUSTER: Final = "CLUSTER"
MSG_REGION: Final = "MSG_REGION"
TRACE_SWITCH: Final = "TRACE_ON"
DUP_INFO: Final = "DUP_INFO"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
CRC32: Final = "__CRC32#"

# Batches, multi dispatch, forwarding.
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT: Final = "REDIRECT"

# Request and reply.
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
MESSAGE_TYPE: Final = "MSG_TYPE"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"

# Put on messages by the consuming side; POP receipts.
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
CONSUME_START_TIMESTAMP: Final = "CONSUME_START_TIME"
POP_CK: Final = "POP_CK"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"

# Kept for the sake of messages made by long gone releases.
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"

# In the memory of a client only; never stored.
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."
TRANSIENT_TOPIC_SYS_FLAG: Final = "__RMQ.TRANSIENT.TOPIC_SYS_FLAG"
TRANSIENT_GROUP_SYS_FLAG: Final = "__RMQ.TRANSIENT.GROUP_SYS_FLAG"

# The names that an application may not use for its own properties: exactly the set Java 5.5.0 refuses.
RESERVED_NAMES: Final = frozenset(
    {
        ARRIVE_TIME, BORN_HOST, BORN_TIMESTAMP, BUYER_ID, CLUSTER, CONSUME_START_TIMESTAMP, CORRECTION_FLAG,
        CORRELATION_ID, CRC32, DELAY, DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, DUP_INFO, EXTEND_UNIQ_INFO,
        FIRST_POP_TIME, INNER_MULTI_QUEUE_OFFSET, INSTANCE_ID, KEYS, LITE_TOPIC, MAX_OFFSET,
        MAX_RECONSUME_TIMES, MESSAGE_TYPE, MIN_OFFSET, MQ2_FLAG, MSG_REGION, ORIGIN_GROUP, ORIGIN_MESSAGE_ID,
        POP_CK, POP_CK_OFFSET, PRIORITY, PRODUCER_GROUP, PUSH_REPLY_TIME, REAL_QUEUE_ID, REAL_TOPIC,
        RECONSUME_TIME, REPLY_TO_CLIENT, RETRY_TOPIC, TAGS, TIMER_DELAY_LEVEL, TIMER_DELAY_MS,
        TIMER_DELAY_SEC, TIMER_DELIVER_MS, TIMER_DEL_UNIQKEY, TIMER_DEQUEUE_MS, TIMER_ENQUEUE_MS,
        TIMER_OUT_MS, TIMER_ROLL_TIMES, TRACE_SWITCH, TRANSACTION_PREPARED, TRANSACTION_PREPARED_QUEUE_OFFSET,
        TRANSFER_FLAG, TTL, UNIQ_KEY, WAIT,
    }
)  # fmt: skip


def check_property(name: object, value: object) -> None:
    """Raise MessageError naming what is wrong with one property: type, emptiness, a separator inside."""
    if not isinstance(name, str) or not isinstance(value, str):
        raise MessageError(
            f"property {name!r} has the value {value!r}: names and values are text; convert them with str()"
        )
    if not name:
        raise MessageError(f"a property with the value {value!r} has an empty name")
    if not value:
        raise MessageError(f"property {name!r} has an empty value, which no reader would see; leave the property out")
    for text, part in ((name, "name"), (value, "value")):
        for separator in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR):
            if separator in text:
                raise MessageError(
                    f"the {part} of property {name!r} contains {separator!r}, which separates properties; "
                    "encode it, for example as base64"
                )


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The property string of this map, each entry ended by 0x02.

    Raises MessageError when an entry cannot be carried or the string is longer than 32767 bytes.
    """
    parts: list[str] = []
    for name, value in properties.items():
        if not name or not value:
            check_property(name, value)
        parts += (name, "\x01", value, "\x02")
    encoded: bytes | None = None
    try:
        encoded = "".join(parts).encode()
    except TypeError:
        pass  # something is not text; the check below says what
    except UnicodeEncodeError as error:
        raise MessageError(f"a property contains a lone surrogate, which is no text: {error}") from error
    # Counting beats looking at every name and value: a clean string has as many separators as entries.
    count = len(properties)
    if encoded is None or encoded.count(b"\x01") != count or encoded.count(b"\x02") != count:
        for name, value in properties.items():
            check_property(name, value)
        raise MessageError("properties changed while they were encoded")
    if len(encoded) > PROPERTIES_SIZE_MAX:
        name, value = max(properties.items(), key=lambda item: len(item[0]) + len(item[1]))
        raise MessageError(
            f"properties take {len(encoded)} bytes, the limit is {PROPERTIES_SIZE_MAX}; the largest is "
            f"{name!r} with {len(value)} characters; move large values into the body"
        )
    return encoded


def decode_properties(raw: bytes) -> dict[str, str]:
    """The properties in this string. Never fails: what is not an entry is skipped, as Java does."""
    properties: dict[str, str] = {}
    for entry in raw.decode("utf-8", "replace").split("\x02"):
        name, _, value = entry.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def find_property(raw: bytes, name: bytes) -> bytes | None:
    """The raw value of one property, or None: what decoding everything and looking it up would give."""
    return _find(raw, b"\x02" + name + b"\x01")


def find_tag(raw: bytes) -> bytes | None:
    """The raw TAGS value, or None."""
    return _find(raw, b"\x02TAGS\x01")


def find_unique_id(raw: bytes) -> bytes | None:
    """The raw UNIQ_KEY value, or None."""
    return _find(raw, b"\x02UNIQ_KEY\x01")


def find_keys(raw: bytes) -> bytes | None:
    """The raw KEYS value (keys separated by spaces), or None."""
    return _find(raw, b"\x02KEYS\x01")


def _find(raw: bytes, needle: bytes) -> bytes | None:
    search_end = len(raw)
    while True:
        # From the right: of several entries the last one counts, unless its value is empty.
        found = raw.rfind(needle, 0, search_end)
        if found >= 0:
            start = found + len(needle)
        elif raw.startswith(needle[1:]):
            start = len(needle) - 1
        else:
            return None
        end = raw.find(b"\x02", start)
        value = raw[start:] if end < 0 else raw[start:end]
        if value:
            return value
        if found < 0:
            return None
        search_end = found


def remove_property(raw: bytes, name: bytes) -> bytes:
    """The property string without any entry of this name; the same object when there is none."""
    start = name + b"\x01"
    if start not in raw:
        return raw
    return b"\x02".join([entry for entry in raw.split(b"\x02") if not entry.startswith(start)])


def join_properties(raw: bytes, more: bytes) -> bytes:
    """Two property strings as one; where both have a name, `more` wins.

    Adds the 0x02 a 4.x client left out.
    """
    if not raw or raw.endswith(b"\x02"):
        return raw + more
    return raw + b"\x02" + more
