"""A batch as it was packed says what the log says of it, and spares reading it there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import StoreError
from fusee.message.batch import BatchElement, join_batch
from fusee.store.batch_body import BatchBody
from fusee.store.commit_log import CommitLog
from fusee.store.config import StoreConfig
from fusee.store.dispatch import Dispatcher, LogScanner
from fusee.store.dispatch_batch import DispatchBatch
from fusee.store.new_batch import Packed, prepare_batch
from fusee.store.new_record import NewRecord
from fusee.store.packed_batch import PackedBatch, note_batch, note_prefixes
from fusee.store.results import Dispatched
from tests.store.test_commit_log import HOST, new_log
from tests.store.test_dispatch_batch import PIECES

CONFIG = StoreConfig(mapped_file_size_commit_log=64 * 1024)
TIME_MS = 5_000


class Notebook:
    """A sink that keeps what it was told, and how."""

    def __init__(self) -> None:
        self.seen: list[Dispatched] = []
        self.noted = 0

    def accept(self, batch: Sequence[Dispatched]) -> None:
        self.noted += isinstance(batch, PackedBatch)
        self.seen += batch


class Desk:
    """A log, and a dispatcher that is told of batches."""

    def __init__(self, **settings: Any) -> None:
        self.log: CommitLog = new_log(config=CONFIG if not settings else StoreConfig(**settings))
        self.notebook = Notebook()
        self.dispatcher = Dispatcher(LogScanner(self.log), [self.notebook])
        self.queue_offset = 0

    def pack(self, elements: Sequence[BatchElement], topic: str = "orders", sys_flag: int = 0) -> tuple[Packed, int]:
        record = self._record(topic, sys_flag)
        size, pack = prepare_batch(
            record,
            BatchBody(join_batch(elements)),
            bytes([len(topic)]) + topic.encode(),
            seals=False,
            body_size_max=100_000,
            checked=lambda body, properties: body + properties + 91 + len(topic),
            key_prefixes=note_prefixes(record),
        )
        log_offset = self.log.place(size)
        packed = pack(self.queue_offset, log_offset, TIME_MS)
        self.log.append(packed.data)
        return packed, log_offset

    def put(self, elements: Sequence[BatchElement], topic: str = "orders", sys_flag: int = 0) -> PackedBatch | None:
        packed, log_offset = self.pack(elements, topic, sys_flag)
        record = self._record(topic, sys_flag)
        note = note_batch(self.log, packed, record, self.queue_offset, log_offset, TIME_MS, lambda level: None)
        self.queue_offset += len(elements)
        return note

    def put_and_note(self, elements: Sequence[BatchElement]) -> None:
        note = self.put(elements)
        assert note is not None
        self.dispatcher.note(note)

    def _record(self, topic: str, sys_flag: int) -> NewRecord:
        return NewRecord(topic, 2, b"", b"", 0, sys_flag, 7, HOST, HOST)

    def as_read(self) -> list[Dispatched]:
        """Everything in the log, by another reader."""
        other = Notebook()
        Dispatcher(LogScanner(self.log), [other]).run()
        return other.seen


def elements_of(count: int, size: int = 10) -> list[BatchElement]:
    return [BatchElement(0, b"x" * size, b"KEYS\x01k%d\x02TAGS\x01t\x02" % number) for number in range(count)]


@given(st.lists(st.tuples(st.binary(max_size=30), PIECES), min_size=1, max_size=20))
def test_it_says_what_the_log_says(made: list[tuple[bytes, list[str]]]) -> None:
    desk = Desk()
    desk.queue_offset = 100
    elements = [BatchElement(0, body, "\x02".join(pieces).encode()) for body, pieces in made]
    note = desk.put(elements)
    desk.log.write()
    read, _ = LogScanner(desk.log).scan(0)
    assert read is not None
    if note is None:
        assert not read.is_plain
        return
    assert note.is_plain
    assert read.is_plain
    assert (note.first_log_offset, note.end_offset) == (0, desk.log.written_offset)
    assert same(note) == same(read)
    assert note.objects == read.objects == list(note)
    for topics, mask, flag in (({"orders"}, 0xC, 8), ({"other"}, 0xC, 8), ({"other"}, 0xC, 0)):
        assert note.concerns(topics, mask, flag) == read.concerns(topics, mask, flag)


def same(batch: DispatchBatch) -> list[Any]:
    """Whatever is asked of a batch, as something that can be compared."""
    arrays = (batch.log_offsets, batch.sizes, batch.store_timestamps_ms, batch.tags_codes, batch.topic_ids)
    runs = [(*run[:4], run.rows.tolist(), run.entries.tobytes()) for run in batch.groups()]
    keys = [array.tolist() for array in batch.index_keys()]
    ends = (len(batch), batch.last_log_offset, batch.last_timestamp_ms, batch.topics)
    return [*(array.tolist() for array in arrays), runs, keys, ends]


@pytest.mark.parametrize(
    ("topic", "sys_flag", "properties"),
    [("SCHEDULE_TOPIC_XXXX", 0, b""), ("orders", 4, b""), ("orders", 0x80, b""), ("orders", 0, "é".encode())],
)
def test_what_arrays_do_not_tell_is_left_to_the_log(topic: str, sys_flag: int, properties: bytes) -> None:
    assert Desk().put([BatchElement(0, b"x", properties)], topic, sys_flag) is None


def test_batch_without_keys_is_left_to_the_log() -> None:
    desk = Desk()
    packed, log_offset = desk.pack(elements_of(2))
    without = packed._replace(keys=None)
    record = NewRecord("orders", 2, b"")
    assert note_batch(desk.log, without, record, 0, log_offset, TIME_MS, lambda level: None) is None


def test_noted_batches_are_told_without_reading_and_not_before_they_are_written() -> None:
    desk = Desk()
    desk.put_and_note(elements_of(3))
    assert desk.dispatcher.run() == 0
    desk.log.write()
    desk.put_and_note(elements_of(2))
    assert desk.dispatcher.run() == 3
    desk.log.write()
    assert desk.dispatcher.run() == 2
    assert desk.dispatcher.run() == 0
    assert desk.notebook.noted == 2
    assert desk.notebook.seen == desk.as_read()


def test_noted_batch_is_not_told_before_it_may_be_seen() -> None:
    desk = Desk()
    desk.put_and_note(elements_of(3))
    desk.log.write()
    end = desk.log.written_offset
    assert desk.dispatcher.run(end_offset=end - 1) == 2  # whole records, from the log
    assert desk.dispatcher.run(end_offset=end) == 1
    assert desk.notebook.seen == desk.as_read()


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 4), st.integers(0, 4000)), max_size=30))
def test_noted_and_unnoted_are_told_in_order_across_segments(steps: list[tuple[bool, bool, int, int]]) -> None:
    desk = Desk(mapped_file_size_commit_log=20_000)
    for is_noted, is_written, count, size in steps:
        if is_noted:
            desk.put_and_note(elements_of(count, size))
        else:
            desk.put(elements_of(count, size))
        if is_written:
            desk.log.write()
            desk.dispatcher.run()
    desk.log.write()
    desk.dispatcher.run()
    assert desk.notebook.seen == desk.as_read()
    assert len(desk.notebook.seen) == desk.queue_offset


def test_notes_have_a_limit_and_the_log_tells_the_rest() -> None:
    desk = Desk()
    for _ in range(70):
        desk.put_and_note(elements_of(1))
    desk.log.write()
    assert desk.dispatcher.run() == 70
    assert desk.notebook.noted == 64
    assert desk.notebook.seen == desk.as_read()


def test_note_of_what_was_not_written_is_forgotten() -> None:
    desk = Desk()
    desk.put_and_note(elements_of(2))
    desk.log.write()
    kept = desk.log.written_offset
    desk.put_and_note(elements_of(3))
    desk.dispatcher.forget_notes(kept)
    assert desk.dispatcher.run() == 2
    assert desk.notebook.noted == 1


def test_batch_that_a_sink_refused_comes_again_from_the_log() -> None:
    class Refusing(Notebook):
        is_full = True

        def accept(self, batch: Sequence[Dispatched]) -> None:
            if self.is_full:
                raise StoreError("no space")
            super().accept(batch)

    desk = Desk()
    sink = Refusing()
    desk.dispatcher = Dispatcher(LogScanner(desk.log), [sink])
    desk.put_and_note(elements_of(3))
    desk.put_and_note(elements_of(2))
    desk.log.write()
    with pytest.raises(StoreError):
        desk.dispatcher.run()
    sink.is_full = False
    assert desk.dispatcher.run() == 5
    assert sink.seen == desk.as_read()
