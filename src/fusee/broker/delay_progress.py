"""How far delayed messages have been delivered: config/delayOffset.json, and the truth after a crash.

The file is Java's: for each delay level the queue offset of the first message that is not delivered. Ours has one
number more, which Java ignores: `logOffset`. Every delivered copy before that place of the log is counted in the
table, and none behind it is.

So what was delivered after the last save is found by reading the log from there on. Messages of one level are
delivered in the order of their queue, one after the other; a copy in the log is the next message of its level, or none.
Each level therefore has one candidate at a time (its *head*), and a record that is its copy moves the head on by one.
Nothing is remembered but the heads, and a message that was sent twice, with the same id, is also delivered twice.

A file that Java has written lacks `logOffset`. After a clean stop its table is exact. After an unclean one the log is
read from the oldest head on, since a copy lies behind the message that it is a copy of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from fusee.broker.documents import pretty
from fusee.broker.rewrites import DELAY, copy_of, number_of, real_place
from fusee.errors import ProtocolError
from fusee.message import properties as names
from fusee.message.properties import decode_properties
from fusee.message.record import decode_record
from fusee.message.topics import HALF_TOPIC, SCHEDULE_TOPIC
from fusee.store.consume_queue import BLANK_SIZE
from fusee.store.dispatch import LogScanner
from fusee.store.saved_document import SavedDocument
from fusee.wire.bodies.topic import DataVersion
from fusee.wire.fields import Int64
from fusee.wire.lenient_json import decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fusee.message.model import StoredMessage
    from fusee.store.engine import MessageStore
    from fusee.store.filesystem import FileSystem
    from fusee.store.new_record import NewRecord

DELAY_OFFSETS: Final = "delayOffset.json"

_MARK: Final = b"REAL_TOPIC\x01"
_SET_BY_STORE: Final = (names.CRC32, names.INNER_BASE)


class DelayOffsets(msgspec.Struct, rename="camel", kw_only=True):
    """The document (Java: DelayOffsetSerializeWrapper). Levels count from 1."""

    data_version: DataVersion = DataVersion()
    log_offset: Int64 | None = None
    offset_table: dict[int, Int64] = {}


def delay_document(path: Path, files: FileSystem) -> SavedDocument[DelayOffsets]:
    """The file at this path, written as Java writes it."""
    return SavedDocument(path, files, encode=lambda document: pretty(document, 0).encode(), decode=_decode)


def decode_delay_offsets(body: bytes) -> DelayOffsets:
    """The document as answers to slaves have it. Raises ProtocolError."""
    return decode_json(body, DelayOffsets)


def _decode(content: bytes) -> DelayOffsets:
    try:
        return decode_delay_offsets(content)
    except ProtocolError as error:
        raise ValueError(str(error)) from error


def delivered_record(message: StoredMessage) -> NewRecord | None:
    """The record by which a delayed message reaches its queue; None when it has none to reach.

    Its properties stay as they are, DELAY, REAL_TOPIC and REAL_QID with them, as Java leaves them in the log.
    """
    place = real_place(message.properties_bytes)
    if place is None or place[0] == HALF_TOPIC:
        return None
    return copy_of(message, *place)


def skip_delivered(
    store: MessageStore, positions: Mapping[int, int], log_offset: int | None, *, unclean: bool
) -> dict[int, int]:
    """The positions by level, moved behind those messages whose copy is in the log."""
    heads = {level: _Head(store, level, position) for level, position in positions.items()}
    waiting = [head.log_offset for head in heads.values() if head.message is not None]
    if waiting and (log_offset is not None or unclean):
        _walk(store, heads, max(min(waiting) if log_offset is None else log_offset, store.log.min_offset))
    return {level: head.position for level, head in heads.items()}


def _walk(store: MessageStore, heads: dict[int, _Head], log_offset: int) -> None:
    scanner = LogScanner(store.log)
    while True:
        batch, next_offset = scanner.scan(log_offset)
        if next_offset == log_offset:
            return
        log_offset = next_offset
        if batch is None:
            continue
        first = int(batch.log_offsets[0])
        size = int(batch.log_offsets[-1] + batch.sizes[-1]) - first
        if _MARK not in bytes(store.log.chunk(first, size)):
            continue
        for record in batch:
            if record.topic == SCHEDULE_TOPIC or _MARK not in record.properties:
                continue
            head = heads.get(number_of(record.properties, DELAY) or 0)
            if head is not None and real_place(record.properties) == (record.topic, record.queue_id):
                data = store.record_at(record.log_offset)
                if data is not None and head.is_copy(decode_record(data)):
                    head.move()


class _Head:
    """The first message of a level that is not known to be delivered."""

    def __init__(self, store: MessageStore, level: int, position: int) -> None:
        self._store = store
        self._level = level
        self.position = position
        self.log_offset = -1
        self.message: StoredMessage | None = None
        self._find()

    def move(self) -> None:
        self.position += 1
        self._find()

    def _find(self) -> None:
        """Take the message at the position, or the first behind it that can be delivered."""
        self.message = None
        queue = self._store.queues.get(SCHEDULE_TOPIC, self._level - 1)
        while queue is not None and self.position < queue.next_offset:
            for queue_offset, log_offset, size, _, _ in queue.units(self.position, 1):
                data = None if size == BLANK_SIZE else self._store.record_at(log_offset)
                message = None if data is None else decode_record(data)
                if message is not None and delivered_record(message) is not None:
                    self.position, self.log_offset, self.message = queue_offset, log_offset, message
                    return
            self.position += 1

    def is_copy(self, record: StoredMessage) -> bool:
        """Whether this record is the delivered copy of the message."""
        message = self.message
        expected = None if message is None else delivered_record(message)
        return (
            expected is not None
            and record.topic == expected.topic
            and record.queue_id == expected.queue_id
            and record.born_timestamp_ms == expected.born_timestamp_ms
            and record.born_host_bytes == expected.born_host
            and record.reconsume_times == expected.reconsume_times
            and record.flag == expected.flag
            and record.sys_flag == expected.sys_flag
            and record.body == expected.body
            and _same_properties(record.properties_bytes, expected.properties)
        )


def _same_properties(one: bytes, other: bytes) -> bool:
    """Whether two strings say the same, apart from what a store puts in; Java may change their order."""
    if one == other:
        return True
    first, second = decode_properties(one), decode_properties(other)
    for name in _SET_BY_STORE:
        first.pop(name, None)
        second.pop(name, None)
    return first == second
