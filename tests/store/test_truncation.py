"""Cutting a log of which everything was on disk: done, or to be done again, wherever the machine stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusee.clock import ManualClock
from fusee.errors import StoreFailedError
from fusee.store.engine import MessageStore
from fusee.store.simulated_disk import Outcome, SimulatedCrash, SimulatedDisk
from fusee.store.truncation import Truncation
from tests.broker.log_world import message, messages_of, small_store
from tests.store.test_replicated import bytes_of

ROOT = Path("/store")
MARK = ROOT / "truncation"


def opened(disk: SimulatedDisk) -> MessageStore:
    clock = ManualClock(1_700_000_100_000)
    disk.clock = clock
    store = MessageStore(ROOT, small_store(), files=disk, clock=clock)
    store.open()
    return store


def flushed_store(disk: SimulatedDisk, count: int = 44, salt: str = "") -> MessageStore:
    """A store with everything on disk, in several segments."""
    store = opened(disk)
    grow(store, count, salt)
    return store


def grow(store: MessageStore, count: int, salt: str) -> None:
    for number in range(count):
        store.put(message((f"{salt}{number:05d}" * 120).encode(), "orders", number % 2, KEYS=f"k{number}"))
        store._clock.advance(0.5)  # type: ignore[attr-defined]
    store.write()
    store.dispatch()
    store.flush()
    store.flush_derived()


def borders(store: MessageStore) -> list[int]:
    return [found.log_offset for found in messages_of(store)]


@pytest.fixture(scope="module")
def cuts() -> list[int]:
    """Places to cut at: early, in the middle of a segment, at a border of segments, late."""
    store = flushed_store(SimulatedDisk(ManualClock()))
    places = borders(store)
    segment = store.log.segment_size
    assert len(store.log.segments()) > 2
    return [places[1], places[len(places) // 2], segment, places[-1]]


@pytest.mark.parametrize("which", range(4))
def test_cut_is_whole_or_done_again_whenever_the_machine_stops(which: int, cuts: list[int]) -> None:
    cut = cuts[which]
    disk = SimulatedDisk(ManualClock())
    store = flushed_store(disk)
    whole = bytes_of(store)
    before = disk.steps
    store.truncate(cut)
    steps = disk.steps - before
    assert steps > 8
    seen = set()
    for step in range(1, steps + 1):
        for seed in range(2):
            disk = SimulatedDisk(ManualClock())
            store = flushed_store(disk)
            disk.stop_at(before + step, tear_at=(step % 2, 7)[seed])
            with pytest.raises(SimulatedCrash):
                store.truncate(cut)
            outcome = list(Outcome)[(step + seed) % len(Outcome)]
            again = opened(disk.crash(step * 10 + seed, outcome))
            end = again.written_offset
            assert end in (cut, len(whole)), f"step {step}, seed {seed}: {disk.operations[-1]}"
            assert bytes_of(again) == whole[:end]
            seen.add(end)
            # It goes on with other records, and they are found after another crash.
            grow(again, 3, "new")
            final = opened(again._files.crash(seed, Outcome.NOTHING))  # type: ignore[attr-defined]
            assert bytes_of(final)[:end] == whole[:end]
            assert len(messages_of(final)) == sum(place < end for place in borders_of(whole, final)) + 3
            assert final.max_offset("orders", 0) + final.max_offset("orders", 1) == len(messages_of(final))
    assert seen == {cut, len(whole)}


def borders_of(whole: bytes, store: MessageStore) -> list[int]:
    disk = SimulatedDisk(ManualClock())
    other = opened(disk)
    other.append_records(whole, 0)
    return borders(other)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_cut_that_returned_is_durable(outcome: Outcome, cuts: list[int]) -> None:
    for cut in cuts:
        disk = SimulatedDisk(ManualClock())
        store = flushed_store(disk)
        whole = bytes_of(store)
        store.truncate(cut)
        assert store.written_offset == store.flushed_offset == store.dispatched_offset == cut
        assert not disk.exists(MARK)
        again = opened(disk.crash(3, outcome))
        assert bytes_of(again) == whole[:cut]
        again.close()


def test_records_that_follow_a_cut_with_earlier_times_are_recovered(cuts: list[int]) -> None:
    disk = SimulatedDisk(ManualClock())
    store = flushed_store(disk)
    cut = cuts[1]
    last_ms = store.store_time(store.log.last_record_before(cut) or 0) or 0
    store.truncate(cut)
    assert store.checkpoint.log_timestamp_ms == last_ms
    assert store.checkpoint.queues_timestamp_ms <= last_ms
    # A master that was set back: what it writes now is older than what was cut, and is torn by the next crash.
    other = flushed_store(SimulatedDisk(ManualClock()))
    other.truncate(cut)
    other._clock.jump_wall(-200_000_000)  # type: ignore[attr-defined]
    other._last_timestamp_ms = last_ms
    grow(other, 10, "late")
    store.append_records(bytes_of(other)[cut:], cut)
    for seed in range(8):
        again = opened(disk.crash(seed))
        assert cut <= again.written_offset <= other.written_offset
        assert bytes_of(again) == bytes_of(other)[: again.written_offset]


def test_flush_that_runs_while_the_log_is_cut_covers_no_more(cuts: list[int]) -> None:
    store = flushed_store(SimulatedDisk(ManualClock()))
    end = store.written_offset
    for number in range(3):
        store.put(message(b"%d" % number * 100))
    store.write()
    store.dispatch()
    job, derived = store.begin_flush(), store.begin_flush_derived()
    assert job is not None
    assert derived is not None
    store.truncate(end)
    store.truncate(cuts[1])
    for each in (job, derived):
        each.run()
    assert store.finish_flush(job) == cuts[1]
    store.finish_flush_derived(derived)
    assert store._derived_flushed_offset == cuts[1]


def test_disk_that_fails_during_a_cut_ends_the_store_and_the_next_start_finishes_it(cuts: list[int]) -> None:
    disk = SimulatedDisk(ManualClock())
    store = flushed_store(disk)
    whole = bytes_of(store)
    disk.fail_sync(under=ROOT / "consumequeue")
    with pytest.raises(StoreFailedError):
        store.truncate(cuts[1])
    with pytest.raises(StoreFailedError):
        store.append_records(b"", cuts[1])
    again = opened(disk.crash(1, Outcome.NOTHING))
    assert bytes_of(again) == whole[: cuts[1]]
    assert not again._files.exists(MARK)


@pytest.mark.parametrize("restart", [4, 5])
def test_new_beginning_leaves_old_or_new_whenever_the_machine_stops(restart: int) -> None:
    disk = SimulatedDisk(ManualClock())
    store = flushed_store(disk)
    whole, segment = bytes_of(store), store.log.segment_size
    place = (len(store.log.segments()) + restart) * segment
    before = disk.steps
    store.restart_at(place)
    assert (store.log.min_offset, store.written_offset, store.flushed_offset) == (place, place, place)
    assert store.max_offset("orders", 0) == 0
    steps = disk.steps - before
    for step in range(1, steps + 1):
        disk = SimulatedDisk(ManualClock())
        store = flushed_store(disk)
        disk.stop_at(before + step, tear_at=step % 3)
        with pytest.raises(SimulatedCrash):
            store.restart_at(place)
        again = opened(disk.crash(step))
        if again.log.min_offset == place:
            assert again.written_offset == place
        else:
            assert whole.startswith(bytes_of(again))
            assert again.max_offset("orders", 0) + again.max_offset("orders", 1) == len(messages_of(again))
        again.restart_at(place)
        assert (again.log.min_offset, again.written_offset) == (place, place)


def test_mark_that_is_torn_means_nothing() -> None:
    disk = SimulatedDisk(ManualClock())
    disk.make_folder(ROOT)
    mark = Truncation(MARK, disk)
    assert mark.pending() is None
    mark.begin(12_345)
    assert mark.pending() == 12_345
    file = disk.open(MARK, size=12)
    file.write(b"\xff", 5)
    assert mark.pending() is None
    mark.finish()
    assert not disk.exists(MARK)
    mark.finish()
    file = disk.open(MARK, size=5)
    assert mark.pending() is None
