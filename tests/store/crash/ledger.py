"""What was put into a store and what it promised; and the check of a store that was opened again against that.

A `Ledger` drives a store and notes each put. A put counts as promised when the flushed offset has passed it, and from
then on it must be there after any crash, until it is truncated or expires. Everything that is found must have been put,
byte for byte. Consume queues and index are compared with what follows from the log, computed here by decoding it.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fusee.clock import ManualClock
from fusee.message.batch import BatchElement, join_batch
from fusee.message.hashing import tags_code
from fusee.message.properties import encode_properties
from fusee.message.record import CRC_TAIL_SIZE, body_crc, decode_record, iterate_records
from fusee.message.record_layout import FRAME, MAGIC_BLANK
from fusee.message.topics import HALF_OP_TOPIC, HALF_TOPIC
from fusee.store.batch_body import BatchBody
from fusee.store.config import StoreConfig
from fusee.store.consume_queue import BLANK_SIZE, ENTRY
from fusee.store.engine import MessageStore
from fusee.store.layout import base_offset_of
from fusee.store.new_record import NewRecord
from fusee.store.results import GetStatus, PutResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fusee.message.model import StoredMessage
    from fusee.store.recovery import RecoveryReport
    from fusee.store.simulated_disk import SimulatedDisk

    Entries = dict[tuple[str, int], list[tuple[int, int, int, int]]]
    """(queue offset, log offset, size, tags code) of the messages of each queue."""

ROOT = Path("/store")
SEGMENT_SIZE = 4096
PREPARED = 0x4
COMMIT = 0x8
ROLLBACK = 0xC


def small_config(**settings: object) -> StoreConfig:
    """Files so small that a few messages roll each kind of them; a disk is full only when it is."""
    values: dict[str, object] = {
        "mapped_file_size_commit_log": SEGMENT_SIZE,
        "mapped_file_size_consume_queue": 20 * 6,
        "max_hash_slot_num": 8,
        "max_index_num": 24,
        "transaction_segment_entries": 4,
        "open_files_max": 3,
        "disk_free_bytes_min": 0,
        "disk_free_bytes_enough": 0,
        "disk_space_warning_level_ratio": 100,
        "disk_space_clean_forcibly_ratio": 100,
        "disk_max_used_space_ratio": 100,
        **settings,
    }
    return StoreConfig(**values)  # type: ignore[arg-type]


class Put(NamedTuple):
    """One message, as it must be found."""

    log_offset: int
    end_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    properties: bytes
    sys_flag: int
    store_timestamp_ms: int


class Ledger:
    """Drives one store after the other over the same history."""

    def __init__(self, disk: SimulatedDisk, clock: ManualClock, config: StoreConfig | None = None) -> None:
        self.disk = disk
        self.clock = clock
        self.config = config or small_config()
        self.puts: dict[int, list[Put]] = defaultdict(list)
        self.promised: dict[int, Put] = {}
        self.loose_before = 0
        """What lies before this log offset may be gone: it was expired."""
        self._waiting: list[Put] = []
        self._number = 0
        self.is_open = False
        self.store = self._new_store()

    def _new_store(self) -> MessageStore:
        return MessageStore(ROOT, self.config, files=self.disk, clock=self.clock)

    # What a workload does

    def open(self) -> RecoveryReport:
        report = self.store.open()
        self.is_open = True
        return report

    def close(self) -> None:
        self.is_open = False
        self.store.close()
        self.note_promises()

    def reopen(self) -> RecoveryReport:
        """A clean stop and a new start."""
        self.close()
        self.store = self._new_store()
        return self.open()

    def ensure_open(self) -> None:
        """Open a new store when the present one never opened, or closed."""
        if not self.is_open:
            self.disk = self.disk.kill()
            self.store = self._new_store()
            self.open()
            self.note_promises()

    def put(
        self,
        topic: str = "orders",
        queue_id: int = 0,
        *,
        size: int = 40,
        tag: str = "",
        keys: str = "",
        sys_flag: int = 0,
        prepared: int = 0,
        body: bytes = b"",
    ) -> PutResult:
        self._number += 1
        if self._number % 3 == 0:
            self.clock.advance(0.001)  # some records share their store time, as in life
        body = body or self._body(size)
        properties = self._properties(tag, keys)
        result = self.store.put(
            NewRecord(topic, queue_id, body, properties, sys_flag=sys_flag, prepared_transaction_offset=prepared)
        )
        put = Put(
            result.log_offset,
            result.end_offset,
            topic,
            queue_id,
            result.queue_offset,
            body,
            properties,
            sys_flag,
            result.store_timestamp_ms,
        )
        self._note(put)
        return result

    def put_batch(self, count: int, topic: str = "orders", queue_id: int = 0, *, size: int = 40) -> PutResult:
        elements: list[BatchElement] = []
        for _ in range(count):
            self._number += 1
            elements.append(BatchElement(0, self._body(size), self._properties("batch", "")))
        self.store.noted_count_min = 1
        result = self.store.put_batch(NewRecord(topic, queue_id, b""), BatchBody(join_batch(elements)))
        ends = (*result.log_offsets[1:], result.end_offset)
        for number, element in enumerate(elements):
            self._note(
                Put(
                    result.log_offsets[number],
                    ends[number],
                    topic,
                    queue_id,
                    result.queue_offset + number,
                    element.body,
                    element.properties_bytes,
                    0,
                    result.store_timestamp_ms,
                )
            )
        return result

    def flush(self) -> None:
        self.store.flush()
        self.note_promises()

    def truncate(self, log_offset: int) -> None:
        """Promises from here on are given up before, for the truncation may reach the disk or not."""
        self.promised = {offset: put for offset, put in self.promised.items() if offset < log_offset}
        self._waiting = [put for put in self._waiting if put.log_offset < log_offset]
        self.store.truncate(log_offset)

    def expire(self) -> list[Path]:
        self.loose_before = max((base for base, _ in self.store.log.segments()), default=0)
        removed = self.store.expire()
        self.loose_before = self.store.log.min_offset
        return removed

    def note_promises(self) -> None:
        """Take the store at its word: what lies before the flushed offset survives."""
        flushed = self.store.flushed_offset
        for put in self._waiting:
            if put.end_offset <= flushed:
                self.promised[put.log_offset] = put
        self._waiting = [put for put in self._waiting if put.end_offset > flushed]

    def forget_unwritten(self) -> None:
        """After a write that failed: what it did not write has no place any more."""
        self._waiting = [put for put in self._waiting if put.end_offset <= self.store.written_offset]

    def _note(self, put: Put) -> None:
        self.puts[put.log_offset].append(put)
        self._waiting.append(put)

    def _body(self, size: int) -> bytes:
        return (b"%06d:" % self._number * (size // 7 + 1))[:size]

    def _properties(self, tag: str, keys: str) -> bytes:
        properties = {"UNIQ_KEY": f"U{self._number:06d}"}
        if tag:
            properties["TAGS"] = tag
        if keys:
            properties["KEYS"] = keys
        return encode_properties(properties)

    # What must be true

    def recover(self, disk: SimulatedDisk) -> MessageStore:
        """Open the store on the disk that a crash left, and check everything."""
        store = self.open_on(disk)
        self.check(store, disk)
        return store

    def open_on(self, disk: SimulatedDisk) -> MessageStore:
        """Open another store on this disk."""
        store = MessageStore(ROOT, self.config, files=disk, clock=self.clock)
        store.open()
        return store

    def take_over(self, disk: SimulatedDisk) -> None:
        """Go on with the disk that a crash left. What was not promised and is gone is forgotten."""
        self.store = self.recover(disk)
        self.is_open = True
        self.disk = disk
        found = {message.log_offset for message in messages_of(self.store)}
        self._waiting = [put for put in self._waiting if put.log_offset in found]
        self.promised = {offset: put for offset, put in self.promised.items() if offset in found}
        self.note_promises()

    def check(self, store: MessageStore, disk: SimulatedDisk) -> None:
        """Raise AssertionError naming what is wrong with this store."""
        found = {message.log_offset: message for message in messages_of(store)}
        self._check_found(store, found)
        self._check_promises(store, found)
        offsets = (store.dispatched_offset, store.flushed_offset, store.written_offset, store.end_offset)
        assert len(set(offsets)) == 1, f"dispatched, flushed, written, end: {offsets}"
        self._check_queues(store, disk, found)
        self._check_index(store, found)
        pending = [half.queue_offset for half in store.transactions.pending(1000)]
        assert pending == expected_pending(found), "pending transactions"

    def _check_found(self, store: MessageStore, found: dict[int, StoredMessage]) -> None:
        for log_offset, message in found.items():
            assert body_crc(message.body) == message.body_crc, f"the body at {log_offset} is torn"
            same = [put for put in self.puts.get(log_offset, ()) if self._is_same(put, message)]
            assert same, f"{message} was never put"

    def _is_same(self, put: Put, message: StoredMessage) -> bool:
        properties = message.properties_bytes
        if self.config.enabled_append_prop_crc:
            properties = properties[:-CRC_TAIL_SIZE]
        return (put.topic, put.queue_id, put.queue_offset, put.body, put.properties, put.sys_flag) == (
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.body,
            properties,
            message.sys_flag,
        )

    def _check_promises(self, store: MessageStore, found: dict[int, StoredMessage]) -> None:
        for log_offset, put in self.promised.items():
            if log_offset not in found:
                assert log_offset < self.loose_before, f"{put} was promised and is gone; log ends {store.end_offset}"
                assert log_offset < store.log.min_offset
            else:
                assert found[log_offset].body == put.body

    def _check_queues(self, store: MessageStore, disk: SimulatedDisk, found: dict[int, StoredMessage]) -> None:
        expected = expected_entries(found)
        raw = raw_entries(disk.contents(), ROOT, store.log.min_offset)
        for key in sorted({*expected, *raw}):
            entries = expected.get(key, [])
            assert raw.get(key, []) == entries, f"consume queue {key} on disk"
            got = [(message.queue_offset, message.log_offset) for message in consume(store, *key)]
            assert got == [(offset, log_offset) for offset, log_offset, _, _ in entries], f"get of {key}"
            if entries:
                offsets = [entry[0] for entry in entries]
                assert offsets == list(range(offsets[0], offsets[-1] + 1)), f"gap in {key}"

    def _check_index(self, store: MessageStore, found: dict[int, StoredMessage]) -> None:
        for key, log_offsets in expected_index(found).items():
            assert index_offsets(store, *key) == log_offsets, f"index of {key}"


def messages_of(store: MessageStore) -> Iterator[StoredMessage]:
    """Every record of the log, decoded."""
    offset = store.log.min_offset
    while offset < store.log.written_offset:
        head = store.log.slice(offset, FRAME.size)
        if head is None or FRAME.unpack(head)[1] == MAGIC_BLANK:
            offset = store.log.next_segment(offset)
            continue
        record = store.log.record_at(offset)
        assert record is not None, f"no record at {offset}"
        message = decode_record(bytes(record))
        assert message.log_offset == offset
        yield message
        offset += len(record)


def expected_entries(found: dict[int, StoredMessage]) -> Entries:
    """(queue offset, log offset, size, tags code) of each queue, as they follow from the log."""
    queues: Entries = defaultdict(list)
    for log_offset, message in sorted(found.items()):
        if message.sys_flag & 0xC not in (PREPARED, ROLLBACK):
            code = tags_code(message.tag.encode()) if message.tag else 0
            queues[message.topic, message.queue_id].append((message.queue_offset, log_offset, message.store_size, code))
    return dict(queues)


def raw_entries(contents: Mapping[str, bytes], root: Path, min_log_offset: int) -> Entries:
    """The same as it stands in the files, without what points before the log and without blanks."""
    queues: Entries = defaultdict(list)
    for path, content in sorted(contents.items()):
        parts = Path(path).relative_to(root).parts
        if len(parts) != 4 or parts[0] != "consumequeue":
            continue
        base_offset = base_offset_of(parts[3])
        assert base_offset is not None
        for position in range(0, len(content), ENTRY.size):
            log_offset, size, code = ENTRY.unpack_from(content, position)
            if 0 < size != BLANK_SIZE and log_offset >= min_log_offset:
                queue_offset = (base_offset + position) // ENTRY.size
                queues[parts[1], int(parts[2])].append((queue_offset, log_offset, size, code))
    return dict(queues)


def expected_index(found: dict[int, StoredMessage]) -> dict[tuple[str, str], list[int]]:
    """Log offsets of each (topic, key), ascending."""
    index: dict[tuple[str, str], list[int]] = defaultdict(list)
    for log_offset, message in sorted(found.items()):
        if message.sys_flag & 0xC == ROLLBACK:
            continue
        for key in (message.unique_id, *message.keys):
            if key:
                index[message.topic, key].append(log_offset)
    return dict(index)


def expected_pending(found: dict[int, StoredMessage]) -> list[int]:
    """Queue offsets of the half records that no other record decides."""
    committed = {message.prepared_transaction_offset for message in found.values() if message.sys_flag & 0xC == COMMIT}
    decided = {
        int(place)
        for message in found.values()
        if message.topic == HALF_OP_TOPIC
        for place in message.body.decode().strip(",").split(",")
    }
    return [
        message.queue_offset
        for log_offset, message in sorted(found.items())
        if message.topic == HALF_TOPIC and log_offset not in committed and message.queue_offset not in decided
    ]


def index_offsets(store: MessageStore, topic: str, key: str) -> list[int]:
    """Records that the index gives for a key, without those that only have the same hash."""
    store.dispatcher.run_index()
    log_offsets: list[int] = []
    for log_offset in store.index.query(topic, key, 64, 0, 1 << 62).log_offsets:
        record = store.record_at(log_offset)
        if record is None:
            assert log_offset < store.log.min_offset, f"the index of {key} points to {log_offset}, where no record is"
            continue
        message = decode_record(bytes(record))
        if message.topic == topic and (key in message.keys or key == message.unique_id):
            log_offsets.append(log_offset)
    return log_offsets


def consume(store: MessageStore, topic: str, queue_id: int) -> Iterator[StoredMessage]:
    """Everything in a queue, as a consumer gets it that begins at 0."""
    offset = 0
    while True:
        result = store.get(topic, queue_id, offset, 32)
        if result.status is GetStatus.FOUND:
            assert result.count == len(result.queue_offsets)
            for part in result.slices:
                yield from iterate_records(bytes(part))
        elif result.status not in (GetStatus.OFFSET_TOO_SMALL, GetStatus.MESSAGE_WAS_REMOVING):
            return
        assert result.next_offset > offset
        offset = result.next_offset
