"""One contract, two stores: what holds for the file store holds for the memory store, number by number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fusee.clock import ManualClock
from fusee.errors import MessageError
from fusee.message.batch import BatchElement
from fusee.message.hashing import java_string_hash
from fusee.message.properties import encode_properties
from fusee.message.record import decode_record, iterate_records
from fusee.store.config import StoreConfig
from fusee.store.engine import MessageStore
from fusee.store.memory import MemoryStore
from fusee.store.new_record import NewRecord
from fusee.store.results import GetResult, GetStatus
from fusee.store.simulated_disk import SimulatedDisk

CONFIG = StoreConfig(
    mapped_file_size_commit_log=8192,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=50,
    max_index_num=100,
    max_message_size=4096,
    disk_free_bytes_min=0,
    transaction_segment_entries=16,
)
Store = MessageStore | MemoryStore


@pytest.fixture(params=["file", "simulated", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    clock = ManualClock()
    if request.param == "memory":
        yield MemoryStore(CONFIG, clock=clock)
        return
    files = SimulatedDisk(clock) if request.param == "simulated" else None
    opened = MessageStore(tmp_path / "store", CONFIG, clock=clock, files=files)
    opened.open()
    yield opened
    opened.close()


def record(
    topic: str = "T", queue_id: int = 0, body: bytes = b"body", sys_flag: int = 0, **properties: str
) -> NewRecord:
    return NewRecord(topic, queue_id, body, encode_properties(properties), sys_flag=sys_flag, born_timestamp_ms=7)


def settle(store: Store) -> None:
    store.write()
    store.dispatch()


def bodies(result: GetResult) -> list[bytes]:
    return [message.body for piece in result.slices for message in iterate_records(piece)]


def test_put_gives_consecutive_places_per_queue(store: Store) -> None:
    first = store.put(record(queue_id=0))
    second = store.put(record(queue_id=1))
    third = store.put(record(queue_id=0))
    assert [first.queue_offset, second.queue_offset, third.queue_offset] == [0, 0, 1]
    assert second.log_offset == first.end_offset
    assert third.log_offset == second.end_offset


def test_what_is_put_is_got_back_whole(store: Store) -> None:
    result = store.put(record("orders", 2, b"hello", TAGS="paid", KEYS="k1 k2", UNIQ_KEY="U"))
    settle(store)
    raw = store.record_at(result.log_offset)
    assert raw is not None
    message = decode_record(raw)
    assert (message.topic, message.queue_id, message.body, message.tag) == ("orders", 2, b"hello", "paid")
    assert (message.queue_offset, message.log_offset) == (0, result.log_offset)
    assert message.keys == ("k1", "k2")
    assert message.store_timestamp_ms == result.store_timestamp_ms


def test_nothing_is_visible_before_it_is_written_and_dispatched(store: Store) -> None:
    result = store.put(record())
    assert store.record_at(result.log_offset) is None
    store.write()
    assert store.record_at(result.log_offset) is not None
    assert store.get("T", 0, 0, 10).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    store.dispatch()
    assert bodies(store.get("T", 0, 0, 10)) == [b"body"]


def test_offsets_follow_each_other(store: Store) -> None:
    end = store.put(record()).end_offset
    assert (store.end_offset, store.written_offset, store.flushed_offset, store.dispatched_offset) == (end, 0, 0, 0)
    store.write()
    assert (store.written_offset, store.flushed_offset) == (end, 0)
    store.flush()
    assert store.flushed_offset == end
    store.dispatch()
    assert store.dispatched_offset == end


def test_batch_is_consecutive_and_each_message_is_found(store: Store) -> None:
    store.put(record())
    elements = [BatchElement(number, b"%d" % number, encode_properties({"TAGS": "t"})) for number in range(5)]
    result = store.put_batch(record(), elements)
    settle(store)
    assert (result.queue_offset, result.count, len(result.log_offsets)) == (1, 5, 5)
    got = store.get("T", 0, 1, 10)
    assert bodies(got) == [b"0", b"1", b"2", b"3", b"4"]
    flags = [message.flag for piece in got.slices for message in iterate_records(piece)]
    assert flags == [0, 1, 2, 3, 4]


def test_batch_is_never_split_over_segments(store: Store) -> None:
    store.put(record(body=b"x" * 4000))
    store.put(record(body=b"x" * 2000))
    result = store.put_batch(record(), [BatchElement(0, b"y" * 1500, b"")] * 2)
    assert result.log_offset == 8192
    assert result.log_offsets[0] // 8192 == result.log_offsets[1] // 8192


@pytest.mark.parametrize(
    ("queue_offset", "status", "next_offset"),
    [
        (0, GetStatus.FOUND, 3),
        (2, GetStatus.FOUND, 3),
        (3, GetStatus.OFFSET_OVERFLOW_ONE, 3),
        (9, GetStatus.OFFSET_OVERFLOW_BADLY, 3),
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
    ],
)
def test_get_at_any_offset_says_where_to_go_on(
    store: Store, queue_offset: int, status: GetStatus, next_offset: int
) -> None:
    for _ in range(3):
        store.put(record())
    settle(store)
    result = store.get("T", 0, queue_offset, 10)
    assert (result.status, result.next_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == (0, 3)


def test_get_of_unknown_queue(store: Store) -> None:
    assert store.get("none", 0, 5, 10).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert (store.min_offset("none", 0), store.max_offset("none", 0)) == (0, 0)


def test_get_obeys_count_and_byte_limits(store: Store) -> None:
    for number in range(40):
        store.put(record(body=b"%03d" % number))
    settle(store)
    result = store.get("T", 0, 0, 7)
    assert (result.count, result.next_offset, list(result.queue_offsets)) == (7, 7, list(range(7)))
    size = result.size // 7
    limited = store.get("T", 0, 0, 30, max_bytes=size * 3 + 1)
    assert limited.count == 3
    assert store.get("T", 0, 0, 30, max_bytes=1).count == 1
    assert store.get("T", 0, 0, 1000).count == 32


def test_get_by_tag_moves_past_what_does_not_match(store: Store) -> None:
    for number in range(12):
        store.put(record(body=b"%d" % number, TAGS="even" if number % 2 == 0 else "odd"))
    settle(store)
    odd = frozenset({java_string_hash("odd")})
    result = store.get("T", 0, 0, 3, tags_codes=odd)
    assert bodies(result) == [b"1", b"3", b"5"]
    assert list(result.queue_offsets) == [1, 3, 5]
    none = store.get("T", 0, 0, 3, tags_codes=frozenset({java_string_hash("none")}))
    assert (none.status, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 12)


def test_get_by_predicate(store: Store) -> None:
    for number in range(6):
        store.put(record(body=b"%d" % number, n=str(number)))
    settle(store)
    result = store.get("T", 0, 0, 10, predicate=lambda raw: b"n\x013" in raw or b"n\x015" in raw)
    assert bodies(result) == [b"3", b"5"]


def test_half_messages_take_no_queue_offset(store: Store) -> None:
    store.put(record())
    prepared = store.put(record(sys_flag=0x4))
    committed = store.put(record(sys_flag=0x8))
    settle(store)
    assert (prepared.queue_offset, committed.queue_offset) == (0, 1)
    assert store.max_offset("T", 0) == 2


@pytest.mark.parametrize(
    ("body_size", "properties_size"), [(4097, 0), (10, 40_000)], ids=["body too large", "properties too large"]
)
def test_message_over_a_limit_is_refused_and_changes_nothing(
    store: Store, body_size: int, properties_size: int
) -> None:
    bad = NewRecord("T", 0, b"x" * body_size, b"k\x01" + b"v" * properties_size + b"\x02")
    with pytest.raises(MessageError):
        store.put(bad)
    with pytest.raises(MessageError):
        store.put_batch(record(), [BatchElement(0, bad.body, bad.properties)])
    with pytest.raises(MessageError, match="without messages"):
        store.put_batch(record(), [])
    result = store.put(record())
    assert (result.log_offset, result.queue_offset) == (0, 0)


def test_truncate_forgets_what_is_behind(store: Store) -> None:
    first = store.put(record(body=b"kept"))
    second = store.put(record(body=b"cut"))
    settle(store)
    store.truncate(second.log_offset)
    assert store.max_offset("T", 0) == 1
    assert store.record_at(second.log_offset) is None
    again = store.put(record(body=b"new"))
    settle(store)
    assert (again.log_offset, again.queue_offset) == (first.end_offset, 1)
    assert bodies(store.get("T", 0, 0, 10)) == [b"kept", b"new"]


def test_time_never_goes_back_in_the_log(store: Store) -> None:
    times = []
    for jump in (0, 50, -100_000, 10):
        store._clock.jump_wall(jump)  # type: ignore[attr-defined]
        times.append(store.put(record()).store_timestamp_ms)
    assert times == sorted(times)
