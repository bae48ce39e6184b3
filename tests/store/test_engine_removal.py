"""Removing consume queues from a store that works: numbers begin anew, nothing that was put later is lost."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fusee.clock import ManualClock
from fusee.message.record import iterate_records
from fusee.store.config import StoreConfig
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord
from fusee.store.simulated_disk import Outcome, SimulatedDisk

ROOT = Path("/store")
CONFIG = StoreConfig(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=20 * 4,
    max_hash_slot_num=50,
    max_index_num=100,
    max_message_size=1024,
    disk_free_bytes_min=0,
    file_reserved_time=1,
    transaction_segment_entries=16,
)


def opened(disk: SimulatedDisk, clock: ManualClock) -> MessageStore:
    store = MessageStore(ROOT, CONFIG, files=disk, clock=clock)
    store.open()
    return store


def put(store: MessageStore, topic: str, count: int = 1, *, queue_id: int = 0, body: bytes = b"body") -> list[int]:
    return [store.put(NewRecord(topic, queue_id, body)).queue_offset for _ in range(count)]


def settle(store: MessageStore) -> None:
    store.write()
    store.dispatch()


def bodies(store: MessageStore, topic: str, queue_offset: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while queue_offset < store.max_offset(topic, 0):  # a get ends with a file
        result = store.get(topic, 0, queue_offset, 100)
        found += [message.body for piece in result.slices for message in iterate_records(piece)]
        assert result.next_offset > queue_offset
        queue_offset = result.next_offset
    return found


def expire_all_but_last_segment(store: MessageStore, clock: ManualClock) -> None:
    store.flush_derived()
    clock.advance(2 * 3600)
    store.retention.delete_by_hand()
    assert store.expire()


def test_delete_topic_begins_at_zero_again_and_leaves_others_alone() -> None:
    clock = ManualClock()
    disk = SimulatedDisk(clock)
    store = opened(disk, clock)
    put(store, "a", 9)
    put(store, "b", 2)
    settle(store)
    assert store.delete_topic("a")
    assert not store.delete_topic("a")
    assert not disk.exists(ROOT / "consumequeue" / "a")
    assert (store.min_offset("a", 0), store.max_offset("a", 0), store.max_offset("b", 0)) == (0, 0, 2)
    assert put(store, "a", 2, body=b"new") == [0, 1]
    assert put(store, "b") == [2]
    settle(store)
    assert bodies(store, "a") == [b"new", b"new"]
    store.close()


def test_delete_topic_takes_what_is_written_but_not_dispatched() -> None:
    clock = ManualClock()
    store = opened(SimulatedDisk(clock), clock)
    put(store, "a", 3)
    store.write()
    assert store.delete_topic("a")
    store.dispatch()
    assert store.max_offset("a", 0) == 0
    store.close()


def test_delete_topic_with_records_not_written_keeps_their_numbers() -> None:
    clock = ManualClock()
    store = opened(SimulatedDisk(clock), clock)
    put(store, "a", 3)
    settle(store)
    assert put(store, "a", body=b"late") == [3]
    assert store.delete_topic("a")
    assert put(store, "a", body=b"later") == [4]
    settle(store)
    assert (store.min_offset("a", 0), store.max_offset("a", 0)) == (3, 5)
    assert bodies(store, "a", 3) == [b"late", b"later"]
    store.close()


def test_delete_topic_while_a_flush_of_its_files_runs_does_no_harm() -> None:
    clock = ManualClock()
    store = opened(SimulatedDisk(clock), clock)
    put(store, "a", 9)
    settle(store)
    job = store.begin_flush_derived()
    assert job is not None
    store.delete_topic("a")
    job.run()
    store.finish_flush_derived(job)
    put(store, "a", body=b"new")
    settle(store)
    assert bodies(store, "a") == [b"new"]
    store.close()


@given(first=st.integers(0, 12), flushed=st.booleans(), second=st.integers(0, 6), outcome=st.sampled_from(Outcome))
def test_delete_topic_then_crash_keeps_the_second_life(
    first: int, flushed: bool, second: int, outcome: Outcome
) -> None:
    """Whatever recovery tells again of the first life, messages of the second that were flushed are there."""
    clock = ManualClock()
    disk = SimulatedDisk(clock)
    store = opened(disk, clock)
    put(store, "a", first)
    put(store, "b", 3)
    settle(store)
    if flushed:
        store.flush()
        store.flush_derived()
    store.delete_topic("a")
    numbers = put(store, "a", second, body=b"new")
    assert numbers == list(range(second))
    settle(store)
    store.flush()
    after = opened(disk.crash(outcome=outcome), clock)
    assert after.max_offset("b", 0) == 3
    if second:
        assert bodies(after, "a") == [b"new"] * second
        assert put(after, "a") == [second]
    after.close()


def test_delete_unused_topics_keeps_those_named_and_the_systems_own() -> None:
    clock = ManualClock()
    store = opened(SimulatedDisk(clock), clock)
    for topic in ("a", "b", "rmq_sys_c", "SCHEDULE_TOPIC_XXXX"):
        put(store, topic, 2)
    settle(store)
    assert store.delete_unused_topics({"b"}) == ["a"]
    assert store.queues.topics() == ["SCHEDULE_TOPIC_XXXX", "b", "rmq_sys_c"]
    assert put(store, "a") == [0]
    assert put(store, "b") == [2]
    store.close()


def test_delete_expired_queues_removes_those_of_unknown_topics_and_keeps_numbers_of_known_ones() -> None:
    clock = ManualClock()
    disk = SimulatedDisk(clock)
    store = opened(disk, clock)
    put(store, "known", 9)
    put(store, "gone", 9)
    settle(store)
    put(store, "filler", 12, body=bytes(900))
    settle(store)
    expire_all_but_last_segment(store, clock)
    assert store.delete_expired_queues({"known", "filler"}) == [("gone", 0)]
    assert store.queues.topics() == ["filler", "known"]
    assert (store.min_offset("known", 0), store.max_offset("known", 0)) == (9, 9)
    assert len(disk.names(ROOT / "consumequeue" / "known" / "0")) == 1
    assert put(store, "known") == [9]
    assert put(store, "gone") == [0]
    store.close()


def test_delete_expired_queues_when_nothing_expired_removes_nothing() -> None:
    clock = ManualClock()
    store = opened(SimulatedDisk(clock), clock)
    put(store, "a", 2)
    settle(store)
    assert store.delete_expired_queues(set()) == []
    assert store.max_offset("a", 0) == 2
    store.close()
