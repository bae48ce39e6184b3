"""Reading the log behind the writer."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import StoreCorruptError, StoreFullError
from fusee.message.hashing import java_string_hash
from fusee.message.properties import encode_properties
from fusee.message.record import decode_record
from fusee.message.record_layout import body_crc, pack_record, record_size
from fusee.store.commit_log import CommitLog
from fusee.store.config import StoreConfig
from fusee.store.dispatch import Dispatcher, LogScanner
from fusee.store.recovery import LogWalker
from fusee.store.results import Dispatched
from tests.store.test_commit_log import HOST, new_log

CONFIG = StoreConfig(mapped_file_size_commit_log=8192)


class Notebook:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.seen: list[Dispatched] = []

    def accept(self, batch: Sequence[Dispatched]) -> None:
        self.seen += batch


def append(
    log: CommitLog,
    topic: str = "T",
    properties: dict[str, str] | None = None,
    *,
    body: bytes = b"hello",
    queue_id: int = 3,
    sys_flag: int = 0,
    store_timestamp_ms: int = 1000,
    prepared: int = 0,
) -> int:
    raw = encode_properties(properties or {})
    size = record_size(sys_flag, len(body), len(topic.encode()), len(raw))
    log_offset = log.place(size)
    log.append(
        pack_record(
            *(topic.encode(), body, raw, body_crc(body), queue_id, 0, 7, log_offset, sys_flag, 5, HOST),
            *(store_timestamp_ms, HOST, 0, prepared),
        )
    )
    return log_offset


def test_record_is_told_with_everything_that_others_derive_from_it() -> None:
    log = new_log(config=CONFIG)
    where = append(
        log,
        "orders",
        {"TAGS": "paid", "KEYS": "a b", "UNIQ_KEY": "U1", "x": "y"},
        sys_flag=8,
        prepared=55,
        store_timestamp_ms=1234,
    )
    log.write()
    notebook = Notebook()
    dispatcher = Dispatcher(LogScanner(log), [notebook])
    assert dispatcher.run() == 1
    (told,) = notebook.seen
    assert (told.topic, told.queue_id, told.queue_offset, told.log_offset) == ("orders", 3, 7, where)
    assert (told.size, told.sys_flag, told.prepared_transaction_offset) == (log.written_offset, 8, 55)
    assert told.tags_code == java_string_hash("paid")
    assert (told.unique_key, told.keys, told.store_timestamp_ms) == ("U1", ("a", "b"), 1234)
    assert dispatcher.dispatched_offset == log.written_offset
    assert dispatcher.dispatched_timestamp_ms == 1234
    assert dispatcher.run() == 0


def test_what_is_not_written_is_not_told() -> None:
    log = new_log(config=CONFIG)
    append(log)
    dispatcher = Dispatcher(LogScanner(log), [Notebook()])
    assert dispatcher.run() == 0
    log.write()
    assert dispatcher.run() == 1


def test_delayed_message_has_its_delivery_time_for_a_tags_code() -> None:
    log = new_log(config=CONFIG)
    append(log, "SCHEDULE_TOPIC_XXXX", {"DELAY": "3", "TAGS": "x"}, store_timestamp_ms=1000)
    append(log, "SCHEDULE_TOPIC_XXXX", {"DELAY": "99", "TAGS": "x"})
    log.write()
    notebook = Notebook()
    Dispatcher(LogScanner(log, {3: 10_000}.get), [notebook]).run()
    assert [told.tags_code for told in notebook.seen] == [11_000, java_string_hash("x")]


def test_inner_batch_says_how_many_offsets_it_takes() -> None:
    log = new_log(config=CONFIG)
    append(log, properties={"INNER_NUM": "5"}, sys_flag=0x80 | 0x40)
    log.write()
    notebook = Notebook()
    Dispatcher(LogScanner(log), [notebook]).run()
    assert notebook.seen[0].batch_count == 5


@given(st.lists(st.tuples(st.sampled_from(["A", "B", "long" * 40]), st.integers(0, 3000)), max_size=40))
def test_every_record_is_told_once_in_order_across_segments(messages: list[tuple[str, int]]) -> None:
    log = new_log(config=CONFIG)
    placed = []
    for number, (topic, size) in enumerate(messages):
        placed.append((append(log, topic, {"TAGS": str(number)}, body=b"x" * size), topic))
        if number % 3 == 0:
            log.write()
    log.write()
    notebook = Notebook()
    Dispatcher(LogScanner(log), [notebook]).run()
    assert [(told.log_offset, told.topic) for told in notebook.seen] == placed


def test_damage_stops_dispatch_and_names_the_place() -> None:
    log = new_log(config=CONFIG)
    first = append(log)
    second = append(log)
    log.write()
    _, file = log.segments()[0]
    file.write(b"\xff\xff", second + 4)
    notebook = Notebook()
    dispatcher = Dispatcher(LogScanner(log), [notebook])
    with pytest.raises(StoreCorruptError, match="damaged"):
        dispatcher.run()
    assert dispatcher.dispatched_offset == first


def test_records_of_the_reference_are_told_as_they_decode() -> None:
    packed = Path(__file__).parents[1] / "golden" / "store_records.log.xz"
    data = lzma.decompress(packed.read_bytes())
    log = new_log(config=StoreConfig(mapped_file_size_commit_log=262_144))
    log.append_raw(data, 0)
    log.truncate(LogWalker(log, StoreConfig()).walk(0).end_offset)
    notebook = Notebook()
    assert Dispatcher(LogScanner(log), [notebook]).run() == 337
    for told in notebook.seen:
        record = log.record_at(told.log_offset)
        assert record is not None
        message = decode_record(record)
        assert (told.topic, told.queue_id, told.queue_offset) == (message.topic, message.queue_id, message.queue_offset)
        assert told.unique_key == (message.unique_id or "")
        assert told.keys == message.keys
        assert told.store_timestamp_ms == message.store_timestamp_ms


# Few records and many go different ways; the index may stay behind


def scene(segment_size: int = 4 * 1024 * 1024) -> tuple[CommitLog, Notebook, Notebook, Dispatcher]:
    """A log, a sink that is told at once, an index, and what tells them."""
    log = new_log(config=StoreConfig(mapped_file_size_commit_log=segment_size))
    sink, index = Notebook(), Notebook()
    return log, sink, index, Dispatcher(LogScanner(log), [sink], index)


def test_few_records_are_told_at_once_and_indexed_when_asked() -> None:
    log, sink, index, dispatcher = scene()
    for number in range(3):
        append(log, properties={"KEYS": str(number)})
        log.write()
        assert dispatcher.run() == 1
    assert [told.keys for told in sink.seen] == [("0",), ("1",), ("2",)]
    assert index.seen == []
    assert (dispatcher.dispatched_offset, dispatcher.index_offset) == (log.written_offset, 0)
    dispatcher.run_index()
    assert [told.keys for told in index.seen] == [("0",), ("1",), ("2",)]
    assert dispatcher.index_offset == log.written_offset
    dispatcher.run_index()
    assert len(index.seen) == 3


def test_index_that_is_too_far_behind_follows_by_itself() -> None:
    log, sink, index, dispatcher = scene()
    while log.written_offset <= 1024 * 1024:
        assert index.seen == []
        append(log, body=b"x" * 40_000)
        log.write()
        dispatcher.run()
    assert len(index.seen) == len(sink.seen) > 20
    assert dispatcher.index_offset == dispatcher.dispatched_offset


def test_many_records_are_indexed_with_the_rest_behind_what_was_missing() -> None:
    log, sink, index, dispatcher = scene()
    append(log, properties={"KEYS": "few"})
    log.write()
    dispatcher.run()
    for number in range(100):
        append(log, properties={"KEYS": str(number)}, body=b"x" * 1000)
    log.write()
    assert dispatcher.run() == 100
    assert [told.log_offset for told in index.seen] == [told.log_offset for told in sink.seen]
    assert index.seen[0].keys == ("few",)
    assert dispatcher.index_offset == log.written_offset


def test_index_stops_at_what_is_dispatched() -> None:
    log, sink, index, dispatcher = scene()
    append(log)
    log.write()
    dispatcher.run()
    append(log)
    log.write()
    dispatcher.run_index()
    assert (len(sink.seen), len(index.seen)) == (1, 1)
    assert dispatcher.index_offset == dispatcher.dispatched_offset < log.written_offset


def test_few_records_across_a_border_of_segments_are_told_once_each() -> None:
    log, sink, index, dispatcher = scene(8192)
    for number in range(9):
        append(log, properties={"KEYS": str(number)}, body=b"x" * 1800)
        if number % 3 == 2:
            log.write()
            dispatcher.run()
    assert len(log.segments()) > 1
    dispatcher.run_index()
    for notebook in (sink, index):
        assert [told.keys for told in notebook.seen] == [(str(number),) for number in range(9)]


def test_limit_of_batches_is_kept_where_there_are_many() -> None:
    log, sink, _, dispatcher = scene(8192)
    for _ in range(60):
        append(log, body=b"x" * 1000)
    log.write()
    assert 0 < dispatcher.run(1) < 60
    before = len(sink.seen)
    assert dispatcher.run(1) > 0
    dispatcher.run()
    assert len(sink.seen) == 60 > before


def test_sink_that_fails_is_told_the_same_again() -> None:
    log, sink, _, dispatcher = scene()

    class Failing(Notebook):
        fails = True

        def accept(self, batch: Sequence[Dispatched]) -> None:
            if self.fails:
                raise StoreFullError("no space")
            super().accept(batch)

    failing = Failing()
    dispatcher = Dispatcher(LogScanner(log), [sink, failing])
    append(log)
    log.write()
    with pytest.raises(StoreFullError):
        dispatcher.run()
    assert dispatcher.dispatched_offset == 0
    failing.fails = False
    assert dispatcher.run() == 1
    assert len(failing.seen) == 1
    assert [told.log_offset for told in sink.seen] == [0, 0], "who took it already sees it twice, and ignores it"


def test_log_that_is_cut_takes_both_offsets_back() -> None:
    log, _, index, dispatcher = scene()
    append(log)
    first_end = log.end_offset
    append(log)
    append(log)
    log.write()
    dispatcher.run()
    dispatcher.run_index()
    dispatcher.cut(first_end, 0)
    assert dispatcher.dispatched_offset == dispatcher.index_offset == first_end
    dispatcher.cut(log.written_offset, 0)
    assert dispatcher.dispatched_offset == first_end
    dispatcher.start_at(log.written_offset)
    dispatcher.run_index()
    assert len(index.seen) == 3


@given(
    st.lists(
        st.tuples(st.integers(0, 3000), st.booleans(), st.booleans(), st.sampled_from(["write", "run", "index", ""])),
        max_size=60,
    )
)
def test_one_by_one_and_in_batches_tell_the_same(
    steps: list[tuple[int, bool, bool, str]],
) -> None:
    log, sink, index, dispatcher = scene(64 * 1024)
    for number, (size, is_delayed, is_half, then) in enumerate(steps):
        topic = "SCHEDULE_TOPIC_XXXX" if is_delayed else f"T{number % 3}"
        properties = {"KEYS": f"k{number} all", "TAGS": "tag", "UNIQ_KEY": f"U{number}", "DELAY": "3"}
        append(log, topic, properties, body=b"x" * size, sys_flag=4 if is_half else 0, prepared=number)
        if then:
            log.write()
        if then in ("run", "index"):
            dispatcher.run()
        if then == "index":
            dispatcher.run_index()
    log.write()
    dispatcher.run()
    dispatcher.run_index()
    together = Notebook()
    scanner = LogScanner(log)
    at = 0
    while True:
        batch, next_offset = scanner.scan(at)
        if batch is None:
            break
        together.accept(batch)
        at = next_offset
    assert sink.seen == index.seen == together.seen
    assert len(sink.seen) == len(steps)
