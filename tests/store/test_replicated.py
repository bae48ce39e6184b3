"""Bytes of another log: only whole records, in their right places."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusee.clock import ManualClock
from fusee.errors import StoreCorruptError, StoreError
from fusee.store.engine import MessageStore
from fusee.store.replicated import RECORD_SIZE_MAX, whole_records
from fusee.store.simulated_disk import SimulatedDisk
from tests.broker.log_world import message, messages_of, small_store

ROOT = Path("/store")


def new_store(disk: SimulatedDisk | None = None, **settings: object) -> MessageStore:
    clock = ManualClock()
    disk = disk or SimulatedDisk(clock)
    disk.clock = clock
    store = MessageStore(ROOT, small_store(**settings), files=disk, clock=clock)
    store.open()
    return store


def master(sizes: list[int]) -> MessageStore:
    store = new_store()
    for number, size in enumerate(sizes):
        store.put(message((f"{number:06d}" * (size // 6 + 1)).encode(), "orders", number % 3))
    store.write()
    return store


def bytes_of(store: MessageStore) -> bytes:
    log, pieces, at = store.log, [], store.log.min_offset
    while at < log.written_offset:
        pieces.append(bytes(log.chunk(at, 1 << 20)))
        at += len(pieces[-1])
    return b"".join(pieces)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=30), st.data())
def test_log_taken_in_any_pieces_is_the_masters(sizes: list[int], data: st.DataObject) -> None:
    source, copy = master(sizes), new_store()
    stream, waiting, position = bytes_of(source), b"", 0
    found = messages_of(source)
    borders = {0, *(each.log_offset for each in found), *(each.log_offset + each.store_size for each in found)}
    borders |= set(range(0, source.written_offset, source.log.segment_size))
    while position < len(stream):
        size = data.draw(st.integers(1, 20_000))
        waiting += stream[position : position + size]
        position += size
        taken = copy.append_records(waiting, copy.written_offset)
        waiting = waiting[taken:]
        assert copy.written_offset in borders
        copy.dispatch()
    assert not waiting
    assert bytes_of(copy) == stream
    assert copy.last_record_offset == messages_of(source)[-1].log_offset
    source.dispatch()
    for queue_id in range(3):
        assert copy.max_offset("orders", queue_id) == source.max_offset("orders", queue_id)
    copy.close()


@pytest.mark.parametrize("count", [3, 60])
def test_record_that_belongs_elsewhere_is_refused(count: int) -> None:
    stream = bytes_of(master([100] * count))
    with pytest.raises(StoreCorruptError, match="belongs at 0"):
        whole_records(stream, 1 << 20, 1 << 30)


@pytest.mark.parametrize("count", [3, 60])
@pytest.mark.parametrize("position", [4, 84, 87])
def test_record_that_cannot_be_read_is_refused(count: int, position: int) -> None:
    stream = bytearray(bytes_of(master([100] * count)))
    stream[position] ^= 0x55
    copy = new_store()
    with pytest.raises(StoreCorruptError):
        copy.append_records(stream, 0)
    assert copy.written_offset == 0


@pytest.mark.parametrize(("here", "count"), [(8 * 1024, 8), (8 * 1024, 100), (24 * 1024, 100), (32 * 1024, 40)])
def test_log_of_other_segments_is_refused(here: int, count: int) -> None:
    source = master([900 if count < 20 else 100] * count + [900] * 20)
    copy = new_store(mapped_file_size_commit_log=here)
    with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
        copy.append_records(bytes_of(source), 0)
    assert copy.written_offset == 0


@pytest.mark.parametrize("head", [b"\0" * 8, b"\xff\xff\xff\xff\xda\xa3\x20\xa7", b"\x7f\xff\xff\xff\xda\xa3\x20\xa7"])
def test_size_that_cannot_be_is_not_waited_for(head: bytes) -> None:
    with pytest.raises(StoreCorruptError):
        whole_records(head, 0, 1 << 20)


def test_few_bytes_are_waited_for() -> None:
    assert whole_records(b"", 0, 1 << 20).size == 0
    assert whole_records(b"\0\0\1", 0, 1 << 20).size == 0
    stream = bytes_of(master([100]))
    assert whole_records(stream[:-1], 0, 1 << 20) == (0, None, 0)


def test_empty_store_begins_at_any_segment_and_only_there() -> None:
    source = master([1000] * 60)
    segment = source.log.segment_size
    stream = bytes_of(source)
    copy = new_store()
    assert copy.append_records(stream[2 * segment :], 2 * segment) == len(stream) - 2 * segment
    assert (copy.log.min_offset, copy.written_offset) == (2 * segment, source.written_offset)
    copy.dispatch()
    source.dispatch()
    assert copy.max_offset("orders", 0) == source.max_offset("orders", 0)
    assert copy.min_offset("orders", 0) > 0
    with pytest.raises(StoreError, match="goes on|ends at"):
        copy.append_records(stream, 0)
    with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
        new_store().append_records(stream[:100], 100)


def test_flush_of_replicated_records_moves_the_checkpoint() -> None:
    source, copy = master([100] * 10), new_store()
    copy.append_records(bytes_of(source), 0)
    copy.dispatch()
    copy.flush()
    copy.flush_derived()
    assert copy.checkpoint.log_timestamp_ms == messages_of(source)[-1].store_timestamp_ms
    assert copy.flushed_offset == source.written_offset


def test_replica_that_takes_puts_later_goes_on_with_the_queue_offsets_of_its_master() -> None:
    source, copy = master([100] * 10), new_store()
    copy.append_records(bytes_of(source), 0)
    assert copy.put(message(b"own", "orders", 0)).queue_offset == 4


# Confirmed


def test_nothing_is_visible_beyond_what_is_confirmed() -> None:
    store = master([100] * 30)
    ends = [*[found.log_offset for found in messages_of(store)][1:], store.written_offset]
    store.confirm(0)
    assert store.confirmed_offset == 0
    assert store.dispatch() == 0
    for number, end in enumerate(ends):
        store.confirm(end - 1)
        store.dispatch()
        assert sum(store.max_offset("orders", queue_id) for queue_id in range(3)) == number
        store.confirm(end)
        assert store.dispatch() == 1
    assert store.confirmed_offset == store.written_offset
    store.confirm(None)
    assert store.confirmed_offset == store.written_offset


def test_confirming_across_segments_and_many_records_shows_each_once() -> None:
    store = master([700] * 120)
    ends = [*[found.log_offset for found in messages_of(store)][1:], store.written_offset]
    segment = store.log.segment_size
    for limit in sorted({*range(0, store.written_offset, 3 * 1024), segment, segment + 4, store.written_offset}):
        store.confirm(limit)
        store.dispatch()
        visible = sum(store.max_offset("orders", queue_id) for queue_id in range(3))
        assert visible == sum(end <= limit for end in ends)


def test_queue_offsets_go_on_behind_what_is_not_confirmed() -> None:
    store = master([100] * 6)
    store.confirm(0)
    assert store.put(message(b"next", "orders", 0)).queue_offset == 2
    store.write()
    store.close()
    again = new_store(store._files)  # type: ignore[arg-type]
    assert again.max_offset("orders", 0) == 3


def test_topic_that_is_deleted_does_not_come_back_by_what_was_not_confirmed() -> None:
    store = master([100] * 6)
    store.confirm(0)
    store.delete_topic("orders")
    store.confirm(None)
    store.dispatch()
    assert store.queues.get("orders", 0) is None


def test_record_that_claims_more_than_any_message_has_is_not_waited_for() -> None:
    size = RECORD_SIZE_MAX + 1
    with pytest.raises(StoreCorruptError, match=f"{size} bytes, more than any message has"):
        whole_records(size.to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + b"x" * 92, 0, 1 << 30)
