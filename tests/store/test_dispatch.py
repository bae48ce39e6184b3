"""Reading the log behind the writer."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import StoreCorruptError
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
