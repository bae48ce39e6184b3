"""A get against a plain reading of the reference's loop, and every way it can end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fusee.errors import StoreCorruptError
from fusee.message.hashing import tags_code
from fusee.message.record import decode_record, iterate_records
from fusee.message.record_layout import body_crc, pack_record
from fusee.store.config import StoreConfig
from fusee.store.filesystem import OsFileSystem
from fusee.store.layout import StorePaths
from fusee.store.queue_table import QueueTable
from fusee.store.reader import read_messages
from fusee.store.results import GetResult, GetStatus
from fusee.store.segment_log import SegmentLog
from fusee.store.simulated_disk import SimulatedDisk
from tests.golden import store as golden
from tests.store.queue_records import dispatched, records_of

ROOT = Path("/store")
LOG_SEGMENT = 1000
CONFIG = StoreConfig(mapped_file_size_consume_queue=20 * 16, mapper_file_size_batch_consume_queue=46 * 16)
FULL_CONFIG = StoreConfig()


class Entry(NamedTuple):
    """What the model knows of a record."""

    queue_offset: int
    log_offset: int
    size: int
    tags_code: int
    messages: int


class Store:
    """A log and one queue in it; each record is filled with its number."""

    def __init__(self, config: StoreConfig, sizes_codes_distances: list[tuple[int, int, int]], batch: int = 0) -> None:
        disk = SimulatedDisk()
        self.config = config
        self.log = SegmentLog(ROOT / "commitlog", LOG_SEGMENT, disk)
        self.queues = QueueTable(StorePaths(ROOT), config, disk)
        self.entries: list[Entry] = []
        position = 0
        queue_offset = 0
        for number, (size, code, distance) in enumerate(sizes_codes_distances):
            position += distance
            if position % LOG_SEGMENT + size > LOG_SEGMENT:
                position += LOG_SEGMENT - position % LOG_SEGMENT
            self.log.end_offset = position
            self.log.at_end()
            self.log.write(bytes([number % 256]) * size, position)
            count = batch or 1
            self.entries.append(Entry(queue_offset, position, size, code, count))
            self.queues.accept(
                [dispatched(position, queue_offset, size=size, tags_code=code, batch_count=batch, store_timestamp_ms=1)]
            )
            queue_offset += count
            position += size
        self.log.end_offset = position

    def get(
        self,
        queue_offset: int,
        max_count: int,
        max_bytes: int | None = None,
        codes: frozenset[int] | None = None,
        predicate: Callable[[bytes], bool] | None = None,
        memory_size: int = 1 << 40,
        correct_offset: bool = True,
    ) -> GetResult:
        return read_messages(
            self.log,
            self.queues,
            self.config,
            "orders",
            0,
            queue_offset,
            max_count,
            max_bytes,
            tags_codes=codes,
            predicate=predicate,
            memory_size=memory_size,
            correct_offset=correct_offset,
        )


def model(
    store: Store, queue_offset: int, max_count: int, max_bytes: int, codes: frozenset[int] | None, memory_size: int
) -> tuple[GetStatus, int, list[Entry], bool]:
    """The loop of DefaultMessageStore.getMessage over a list: status, next offset, records found, from disk."""
    config, log = store.config, store.log
    is_batch = store.entries[0].messages > 1
    entry_size, per_file = (46, 16) if is_batch else (20, 16)
    limit = min(max(max_bytes, 100), 64 * 1024 * 1024)
    looked_at = max(config.max_filter_message_size, max_count * entry_size)
    status, next_offset, last = GetStatus.NO_MATCHED_MESSAGE, queue_offset, 0
    found: list[Entry] = []
    start = max(n for n, entry in enumerate(store.entries) if entry.queue_offset <= queue_offset)
    for entry in store.entries[start : start - start % per_file + per_file]:
        total = sum(one.size for one in found)
        messages = sum(one.messages for one in found)
        in_memory = log.end_offset - entry.log_offset <= memory_size
        if (entry.queue_offset - queue_offset) * entry_size >= looked_at:
            break
        if found:
            bytes_max = (
                config.max_transfer_bytes_on_message_in_memory
                if in_memory
                else config.max_transfer_bytes_on_message_in_disk
            )
            count_max = (
                config.max_transfer_count_on_message_in_memory
                if in_memory
                else config.max_transfer_count_on_message_in_disk
            )
            if messages + entry.messages > max_count or total + entry.size > limit:
                break
            if total + entry.size > bytes_max or messages > count_max - 1:
                break
        last = entry.log_offset
        next_offset = entry.queue_offset + entry.messages
        if codes is not None and entry.tags_code not in codes:
            if not found:
                status = GetStatus.NO_MATCHED_MESSAGE
            continue
        if entry.log_offset < log.min_offset:
            if not found:
                status = GetStatus.MESSAGE_WAS_REMOVING
            continue
        found.append(entry)
        status = GetStatus.FOUND
    return status, next_offset, found, log.end_offset - last > memory_size


def check(result: GetResult, expected: tuple[GetStatus, int, list[Entry], bool], store: Store) -> None:
    status, next_offset, found, from_disk = expected
    assert (result.status, result.next_offset, result.from_disk) == (status, next_offset, from_disk)
    assert list(result.queue_offsets) == [entry.queue_offset for entry in found]
    assert result.count == sum(entry.messages for entry in found)
    assert result.size == sum(entry.size for entry in found) == sum(len(part) for part in result.slices)
    numbers = [store.entries.index(entry) for entry in found]
    data = b"".join(bytes([number % 256]) * store.entries[number].size for number in numbers)
    assert b"".join(result.slices) == data
    runs = sum(
        number == 0 or found[number - 1].log_offset + found[number - 1].size != entry.log_offset
        for number, entry in enumerate(found)
    )
    # Adjacent records are one slice, unless a border of the log lies between them.
    borders = sum(
        before.log_offset // LOG_SEGMENT != after.log_offset // LOG_SEGMENT for before, after in pairwise(found)
    )
    assert runs <= len(result.slices) <= runs + borders


record_shapes = st.lists(
    st.tuples(st.integers(91, 300), st.sampled_from([1, 2, 3]), st.sampled_from([0, 0, 0, 40])), min_size=1, max_size=40
)
configs = st.builds(
    StoreConfig,
    mapped_file_size_consume_queue=st.just(320),
    mapper_file_size_batch_consume_queue=st.just(736),
    max_transfer_bytes_on_message_in_memory=st.integers(100, 4000),
    max_transfer_count_on_message_in_memory=st.integers(1, 40),
    max_transfer_bytes_on_message_in_disk=st.integers(100, 1000),
    max_transfer_count_on_message_in_disk=st.integers(1, 8),
    max_filter_message_size=st.sampled_from([1, 20, 100, 200, 16_000]),
)


@settings(max_examples=300)
@given(
    shapes=record_shapes,
    config=configs,
    codes=st.none() | st.frozensets(st.sampled_from([1, 2, 3, 4])),
    max_count=st.integers(0, 40),
    max_bytes=st.integers(0, 5000),
    memory_size=st.sampled_from([0, 500, 2000, 1 << 40]),
    batch=st.sampled_from([0, 0, 3]),
    data=st.data(),
)
def test_get_is_that_of_the_reference(
    shapes: list[tuple[int, int, int]],
    config: StoreConfig,
    codes: frozenset[int] | None,
    max_count: int,
    max_bytes: int,
    memory_size: int,
    batch: int,
    data: st.DataObject,
) -> None:
    store = Store(config, shapes, batch)
    last = store.entries[-1]
    queue_offset = data.draw(st.integers(0, last.queue_offset + last.messages - 1))
    # The log may lose its head before the queues hear of it.
    store.log.drop_head(data.draw(st.integers(0, store.log.end_offset)))
    result = store.get(queue_offset, max_count, max_bytes, codes, memory_size=memory_size)
    check(result, model(store, queue_offset, max_count, max_bytes, codes, memory_size), store)


@given(shapes=record_shapes, codes=st.none() | st.frozensets(st.sampled_from([1, 2])), max_count=st.integers(1, 12))
@example(shapes=[(100, 1, 0)] * 40, codes=None, max_count=5)
def test_gets_one_after_the_other_give_every_message_once(
    shapes: list[tuple[int, int, int]], codes: frozenset[int] | None, max_count: int
) -> None:
    store = Store(replace(CONFIG, max_filter_message_size=100), shapes)
    got: list[int] = []
    queue_offset = 0
    while queue_offset < len(shapes):
        result = store.get(queue_offset, max_count, codes=codes)
        assert result.next_offset > queue_offset
        got += result.queue_offsets
        queue_offset = result.next_offset
    assert got == [entry.queue_offset for entry in store.entries if codes is None or entry.tags_code in codes]


# Every status


def adjacent(count: int, size: int = 100) -> Store:
    return Store(CONFIG, [(size, number % 3, 0) for number in range(count)])


def test_get_of_adjacent_messages_is_one_slice() -> None:
    store = adjacent(10)
    result = store.get(2, 5)
    assert result == GetResult(
        GetStatus.FOUND, 7, 0, 10, result.slices, count=5, size=500, queue_offsets=range(2, 7), from_disk=False
    )
    assert len(result.slices) == 1


def test_get_from_unknown_queue_is_no_matched_logic_queue() -> None:
    store = adjacent(3)
    for correct_offset, next_offset in ((True, 0), (False, 7)):
        result = read_messages(store.log, store.queues, CONFIG, "other", 0, 7, 32, correct_offset=correct_offset)
        assert result == GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, next_offset, 0, 0)


def test_get_from_queue_cut_to_nothing_is_no_message_in_queue() -> None:
    store = adjacent(3)
    store.queues.truncate(0)
    assert store.get(2, 32) == GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    assert store.get(2, 32, correct_offset=False).next_offset == 2


def test_get_below_the_first_message_is_offset_too_small() -> None:
    store = adjacent(30)
    store.log.drop_head(1000)
    store.queues.drop_before(1000)
    assert store.get(4, 32) == GetResult(GetStatus.OFFSET_TOO_SMALL, 10, 10, 30)
    assert store.get(-1, 32).status is GetStatus.OFFSET_TOO_SMALL
    assert store.get(4, 32, correct_offset=False).next_offset == 4


def test_get_at_the_end_is_offset_overflow_one() -> None:
    assert adjacent(3).get(3, 32) == GetResult(GetStatus.OFFSET_OVERFLOW_ONE, 3, 0, 3)


def test_get_behind_the_end_is_offset_overflow_badly() -> None:
    store = adjacent(3)
    assert store.get(4, 32) == GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, 3, 0, 3)
    assert store.get(4, 32, correct_offset=False) == GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, 4, 0, 3)


def test_get_of_tags_that_nobody_has_is_no_matched_message() -> None:
    result = adjacent(12).get(1, 32, codes=frozenset([99]))
    assert (result.status, result.next_offset, result.count, list(result.slices)) == (
        GetStatus.NO_MATCHED_MESSAGE, 12, 0, [],
    )  # fmt: skip


def test_get_of_records_that_are_gone_is_message_was_removing() -> None:
    store = adjacent(15)
    store.log.drop_head(1000)
    result = store.get(2, 32)
    assert (result.status, list(result.queue_offsets), result.next_offset) == (
        GetStatus.FOUND, [10, 11, 12, 13, 14], 15,
    )  # fmt: skip
    store = adjacent(40)
    store.log.drop_head(2000)
    result = store.get(2, 32)
    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 16)


def test_get_when_the_file_of_the_queue_has_gone_is_offset_found_null() -> None:
    store = adjacent(20)
    queue = store.queues.get("orders", 0)
    assert queue is not None
    # No file goes without its queue knowing; only a queue that is wrong about itself comes here.
    queue.next_offset = 40
    result = store.get(35, 32)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 48)
    assert store.get(35, 32, correct_offset=False).next_offset == 35


def test_get_when_first_message_is_over_the_limit_gives_it_alone() -> None:
    store = adjacent(5, size=300)
    result = store.get(1, 32, max_bytes=10)
    assert (result.count, result.size, result.next_offset) == (1, 300, 2)


def test_get_far_behind_the_end_has_the_limits_of_the_disk_and_says_so() -> None:
    store = adjacent(40)
    result = store.get(0, 32, memory_size=1000)
    assert (result.count, result.next_offset, result.from_disk) == (8, 8, True)
    near = store.get(32, 32, memory_size=1000)
    assert (near.count, near.from_disk) == (8, False)


def test_get_with_large_counts_configured_goes_beyond_the_short_ways() -> None:
    config = replace(
        FULL_CONFIG, max_transfer_count_on_message_in_memory=500, max_transfer_bytes_on_message_in_memory=1 << 20
    )
    store = Store(config, [(91, number % 2, 0) for number in range(300)])
    result = store.get(10, 200)
    assert (result.count, result.next_offset) == (200, 210)
    only = store.get(10, 20_000, codes=frozenset([1]))
    assert (only.count, only.next_offset) == (145, 300)


def test_get_by_tag_takes_codes_by_their_lower_32_bits() -> None:
    store = Store(CONFIG, [(100, code, 0) for code in (5, (7 << 32) + 5, -2_147_483_649, 6, -5)])
    result = store.get(0, 32, codes=frozenset([5]))
    assert list(result.queue_offsets) == [0, 1, 2]
    assert result.next_offset == 5
    slow = store.get(0, 32, codes=frozenset([5]), memory_size=250)
    assert list(slow.queue_offsets) == [0, 1, 2]


def test_get_passes_over_missing_messages() -> None:
    store = adjacent(3)
    store.queues.accept([dispatched(300, 6)])
    store.log.write(bytes(100), 300)
    store.log.end_offset = 400
    first = store.get(0, 32)
    assert (first.status, first.count, first.next_offset) == (GetStatus.FOUND, 3, 3)
    second = store.get(3, 32)
    assert (list(second.queue_offsets), second.next_offset) == ([6], 7)
    assert list(store.get(3, 32, codes=frozenset([0])).queue_offsets) == [6]


# By properties


def with_properties(numbers: int) -> Store:
    store = adjacent(1)
    position = 100
    for number in range(1, numbers):
        body = b"x" * 10
        record = pack_record(
            b"orders", body, b"n\x01%d\x02" % number, body_crc(body), 0, 0, number, position, 0, 1, bytes(8), 2,
            bytes(8), 0, 0,
        )  # fmt: skip
        store.log.write(record, position)
        store.queues.accept([dispatched(position, number, size=len(record))])
        position += len(record)
        store.log.end_offset = position
    return store


def test_get_by_predicate_reads_the_properties_of_each_record() -> None:
    store = with_properties(8)
    result = store.get(1, 32, predicate=lambda raw: int(raw[2:-1]) in (2, 3, 5))
    assert list(result.queue_offsets) == [2, 3, 5]
    assert [decode_record(part).queue_offset for part in result.slices] == [2, 5]
    assert [message.queue_offset for part in result.slices for message in iterate_records(part)] == [2, 3, 5]
    assert result.next_offset == 8
    none = store.get(1, 32, predicate=lambda raw: False)
    assert (none.status, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 8)


def test_get_by_predicate_of_what_is_no_record_reports_damage() -> None:
    with pytest.raises(StoreCorruptError, match="log offset 0, where no record is"):
        with_properties(3).get(0, 32, predicate=lambda raw: True)


# What the reference wrote


def test_golden_store_gives_every_message_of_every_queue(tmp_path: Path) -> None:
    root = golden.unpack("clean", tmp_path)
    files = OsFileSystem()
    log = SegmentLog(root / "commitlog", golden.CONFIG.mapped_file_size_commit_log, files)
    log.open()
    log.end_offset = 884_931
    queues = QueueTable(StorePaths(root), golden.CONFIG, files)
    queues.open()
    for line in golden.lines("clean", "queue"):
        got: list[list[int]] = []
        queue_offset = 0
        while queue_offset < line["maxOffset"]:
            result = read_messages(log, queues, golden.CONFIG, line["topic"], line["queueId"], queue_offset, 32)
            assert result.status is GetStatus.FOUND
            messages = [message for part in result.slices for message in iterate_records(part)]
            assert [message.queue_offset for message in messages] == list(result.queue_offsets)
            got += [[message.queue_offset, message.log_offset, message.store_size] for message in messages]
            queue_offset = result.next_offset
        assert got == line["messages"]
    tagged = read_messages(
        log, queues, golden.CONFIG, "StoreNormal", 0, 0, 32, tags_codes=frozenset([tags_code(b"Tag0")])
    )
    expected = [
        record.queue_offset
        for record in records_of(root)
        if (record.topic, record.queue_id, record.tags_code) == ("StoreNormal", 0, tags_code(b"Tag0"))
    ]
    assert list(tagged.queue_offsets) == [offset for offset in expected if offset < tagged.next_offset]
    assert tagged.count > 0
    log.close()
    queues.close()
