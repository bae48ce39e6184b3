"""A queue of batches: entries found by the numbers of their messages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fusee.store.batch_consume_queue import BATCH_ENTRY, BATCH_ENTRY_DTYPE, BatchConsumeQueue
from fusee.store.consume_queue import Boundary
from fusee.store.file_pool import FilePool
from fusee.store.simulated_disk import Outcome, SimulatedDisk
from tests.store.queue_records import dispatched

FOLDER = Path("/store/batchconsumequeue/orders/0")
# Five entries.
SEGMENT = 230


def queue_on(disk: SimulatedDisk) -> BatchConsumeQueue:
    queue = BatchConsumeQueue("orders", 0, FOLDER, SEGMENT, FilePool(disk, 4))
    queue.open()
    return queue


def batches(queue: BatchConsumeQueue) -> list[tuple[int, int, int]]:
    """(base offset, log offset, count) of every entry, by way of `units`."""
    found = []
    queue_offset = queue.min_offset
    while queue_offset < queue.next_offset:
        for base, log_offset, _, _, count in queue.units(queue_offset, 1000):
            found.append((base, log_offset, count))
            queue_offset = base + count
    return found


def three_each(count: int, first: int = 0) -> list[tuple[int, int, int]]:
    return [(number * 3, number * 100, 3) for number in range(first, first + count)]


def fill(queue: BatchConsumeQueue, entries: list[tuple[int, int, int]]) -> None:
    queue.append([dispatched(log_offset, base, batch_count=count) for base, log_offset, count in entries])


def test_append_writes_entries_as_the_reference_does() -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk)
    queue.append([dispatched(382_524, 6, size=579, tags_code=-7, store_timestamp_ms=1_700_000_000_000, batch_count=3)])
    expected = bytes.fromhex(
        "000000000005d63c 00000243 fffffffffffffff9 0000018bcfe56800 0000000000000006 0003 ffffffff 00000000"
    )
    assert BATCH_ENTRY_DTYPE.itemsize == BATCH_ENTRY.size == 46
    assert disk.read_file(FOLDER / "00000000000000000000") == expected + bytes(SEGMENT - 46)
    assert (queue.min_offset, queue.next_offset, queue.max_log_offset) == (6, 9, 383_103)


def test_append_of_records_already_there_changes_nothing() -> None:
    queue = queue_on(SimulatedDisk())
    fill(queue, three_each(8))
    fill(queue, three_each(8))
    fill(queue, three_each(5, first=5))
    assert batches(queue) == three_each(10)


def test_append_of_a_single_message_is_a_batch_of_one() -> None:
    queue = queue_on(SimulatedDisk())
    queue.append([dispatched(0, 0), dispatched(100, 1, batch_count=4), dispatched(200, 5)])
    assert batches(queue) == [(0, 0, 1), (1, 100, 4), (5, 200, 1)]
    assert queue.next_offset == 6


@pytest.mark.parametrize("again", [0, 6, 7])
def test_append_when_a_number_is_taken_again_begins_the_rest_anew(again: int) -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk)
    fill(queue, three_each(12))
    fill(queue, [(again, 5000, 2), (again + 2, 5100, 2)])
    expected = [entry for entry in three_each(12) if entry[0] < again] + [(again, 5000, 2), (again + 2, 5100, 2)]
    for seen in (queue, queue_on(disk)):
        assert batches(seen) == expected
        assert seen.next_offset == again + 4


@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=25), data=st.data())
def test_entries_has_the_batch_with_the_message(counts: list[int], data: st.DataObject) -> None:
    queue = queue_on(SimulatedDisk())
    bases = [sum(counts[:number]) for number in range(len(counts))]
    fill(queue, [(base, number * 100, count) for number, (base, count) in enumerate(zip(bases, counts, strict=True))])
    asked = data.draw(st.integers(0, sum(counts) - 1))
    expected = bisect_right(bases, asked) - 1
    entries = queue.entries(asked, 3)
    assert entries["base_offset"].tolist() == bases[expected : min(expected + 3, expected - expected % 5 + 5)]
    assert queue.log_offset_of(asked) == expected * 100
    assert len(queue.entries(sum(counts), 1)) == 0


@given(times=st.lists(st.integers(0, 12), max_size=25), asked=st.integers(-1, 14), data=st.data())
def test_offset_by_time_is_that_of_a_list(times: list[int], asked: int, data: st.DataObject) -> None:
    times.sort()
    queue = queue_on(SimulatedDisk())
    queue.append(
        [
            dispatched(number * 100, number * 3, batch_count=3, store_timestamp_ms=time)
            for number, time in enumerate(times)
        ]
    )
    dropped = data.draw(st.integers(0, len(times)))
    queue.drop_before(dropped * 100)
    visible = times[dropped:]
    assert queue.offset_by_time(asked, Boundary.LOWER) == (dropped + bisect_left(visible, asked)) * 3
    upper = (dropped + max(bisect_right(visible, asked) - 1, 0)) * 3
    assert queue.offset_by_time(asked, Boundary.UPPER) == upper


@given(codes=st.lists(st.sampled_from([1, 2]), max_size=20), start=st.integers(0, 70))
def test_count_matching_counts_messages(codes: list[int], start: int) -> None:
    queue = queue_on(SimulatedDisk())
    queue.append(
        [dispatched(number * 100, number * 3, batch_count=3, tags_code=code) for number, code in enumerate(codes)]
    )
    messages = [code for code in codes for _ in range(3)]
    assert queue.count_matching(start, {2}) == messages[start:].count(2)


def test_recover_ends_at_an_entry_that_is_not_good() -> None:
    for bad in (
        BATCH_ENTRY.pack(700, 100, 0, 0, 21, 0, -1, 0),
        BATCH_ENTRY.pack(700, 100, 0, 0, 20, 3, -1, 0),
        BATCH_ENTRY.pack(650, 100, 0, 0, 21, 3, -1, 0),
        bytes(46),
    ):
        disk = SimulatedDisk()
        fill(queue_on(disk), three_each(9))
        disk.open(FOLDER / "00000000000000000230").write(bad, 92)
        queue = queue_on(disk)
        for file in queue.recover():
            file.sync()
        assert batches(queue) == three_each(7)
        assert disk.crash(outcome=Outcome.NOTHING).read_file(FOLDER / "00000000000000000230")[92:] == bytes(138)


class QueueAgainstList(RuleBasedStateMachine):
    """The queue against a list of (base offset, log offset, count)."""

    @initialize()
    def begin(self) -> None:
        self.disk = SimulatedDisk()
        self.queue = queue_on(self.disk)
        self.model: list[tuple[int, int, int]] = []
        self.log_end = 0
        self.log_min = 0

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=8))
    def append(self, counts: list[int]) -> None:
        base = self.queue.next_offset
        entries = []
        for count in counts:
            entries.append((base, self.log_end, count))
            base += count
            self.log_end += 100
        fill(self.queue, entries)
        self.model += entries

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(0, len(self.model)))
        cut = self.model[kept][1] if kept < len(self.model) else self.log_end
        self.queue.truncate(cut)
        self.log_end = max(cut, self.log_min)
        self.model = self.model[:kept]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        dropped = data.draw(st.integers(0, len(self.model)))
        self.log_min = self.model[dropped][1] if dropped < len(self.model) else self.log_end
        self.queue.drop_before(self.log_min)
        self.model = self.model[dropped:]

    @rule(verify=st.booleans())
    def reopen(self, verify: bool) -> None:
        next_offset = self.queue.next_offset
        self.queue = queue_on(self.disk)
        if verify:
            self.queue.recover()
        self.queue.drop_before(self.log_min)
        assert self.queue.next_offset == next_offset

    @invariant()
    def is_the_same(self) -> None:
        if hasattr(self, "model"):
            assert batches(self.queue) == self.model
            if self.model:
                assert self.queue.next_offset == self.model[-1][0] + self.model[-1][2]
                assert self.queue.min_offset == self.model[0][0]
            else:
                assert self.queue.min_offset == self.queue.next_offset


TestQueueAgainstList = QueueAgainstList.TestCase
