"""One queue: entries by number, found again after any kind of stop."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fusee.errors import StoreCorruptError, StoreFullError
from fusee.message.hashing import tags_code
from fusee.store.batch_consume_queue import BATCH_ENTRY
from fusee.store.consume_queue import BLANK_SIZE, ENTRY, Boundary, ConsumeQueue, matches_tags
from fusee.store.file_pool import FilePool
from fusee.store.filesystem import File, OsFileSystem
from fusee.store.simulated_disk import Outcome, SimulatedCrash, SimulatedDisk
from tests.store.queue_records import consecutive, dispatched

FOLDER = Path("/store/consumequeue/orders/0")
# Eight entries.
SEGMENT = 160


def queue_on(disk: SimulatedDisk, segment_size: int = SEGMENT) -> ConsumeQueue:
    queue = ConsumeQueue("orders", 0, FOLDER, segment_size, FilePool(disk, 4))
    queue.open()
    return queue


def all_entries(queue: ConsumeQueue) -> list[tuple[int, int, int, int]]:
    """(queue offset, log offset, size, tags code) of every message, by way of `entries`."""
    found = []
    queue_offset = queue.min_offset
    while queue_offset < queue.next_offset:
        entries = queue.entries(queue_offset, 1000)
        assert len(entries)
        for entry in entries.tolist():
            found.append((queue_offset, *entry))
            queue_offset += 1
    return found


def bytes_of(disk: SimulatedDisk) -> bytes:
    return b"".join(disk.read_file(FOLDER / name) for name in disk.names(FOLDER))


# Appending


def test_append_writes_entries_as_the_reference_does() -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk)
    queue.append([dispatched(4096, 0, size=120, tags_code=tags_code(b"paid")), dispatched(4216, 1, tags_code=-2)])
    expected = bytes.fromhex(
        "0000000000001000 00000078 00000000003462cc"  # tag "paid"
        "0000000000001078 00000064 fffffffffffffffe"
    )
    assert bytes_of(disk) == expected + bytes(SEGMENT - 40)
    assert (queue.min_offset, queue.next_offset, queue.max_log_offset) == (0, 2, 4316)


def test_append_when_segment_full_rolls_to_next() -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk)
    queue.append(consecutive(0, 20))
    assert disk.names(FOLDER) == ["00000000000000000000", "00000000000000000160", "00000000000000000320"]
    assert all_entries(queue) == [(number, number * 100, 100, 0) for number in range(20)]


def test_append_of_many_records_writes_once_per_file() -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk)
    queue.append(consecutive(0, 3))
    writes = disk.counts["write"]
    queue.append(consecutive(3, 10))
    assert disk.counts["write"] == writes + 2


def test_append_of_records_already_there_changes_nothing() -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk)
    queue.append(consecutive(0, 10))
    writes = disk.counts["write"]
    queue.append(consecutive(0, 10))
    queue.append(consecutive(4, 3))
    assert disk.counts["write"] == writes
    queue.append(consecutive(6, 6))
    assert all_entries(queue) == [(number, number * 100, 100, 0) for number in range(12)]


def test_append_to_new_queue_late_in_a_segment_fills_with_blanks() -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk)
    queue.append(consecutive(10, 3))
    assert disk.names(FOLDER) == ["00000000000000000160"]
    assert bytes_of(disk)[:60] == ENTRY.pack(0, BLANK_SIZE, 0) * 2 + ENTRY.pack(1000, 100, 0)
    for seen in (queue, queue_on(disk)):
        assert (seen.min_offset, seen.next_offset, seen.max_log_offset) == (10, 13, 1300)
        assert len(seen.entries(9, 1)) == 0


def test_append_behind_a_gap_keeps_the_numbers_right() -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk)
    queue.append(consecutive(0, 3))
    queue.append(consecutive(13, 2))
    for seen in (queue, queue_on(disk)):
        assert (seen.min_offset, seen.next_offset) == (0, 15)
        assert seen.log_offset_of(2) == 200
        assert seen.log_offset_of(13) == 1300
        assert seen.entries(5, 1)["size"][0] == BLANK_SIZE
        assert seen.count_matching(0, {0}) == 5
        assert seen.recover() is not None
        assert seen.next_offset == 15
        seen.drop_before(1300)
        assert seen.min_offset == 13


def test_append_behind_an_enormous_gap_reports_damage_and_the_remedy() -> None:
    queue = queue_on(SimulatedDisk(), segment_size=20_000)
    queue.append(consecutive(0, 3))
    with pytest.raises(StoreCorruptError, match="3000001 messages are missing.*Remove /store/consumequeue"):
        queue.append([dispatched(400, 3_000_004)])
    assert queue.next_offset == 3


def test_append_when_a_number_is_taken_again_begins_the_rest_anew() -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk)
    queue.append(consecutive(0, 20))
    queue.append(consecutive(0, 3, start=5000))
    assert all_entries(queue) == [(number, 5000 + number * 100, 100, 0) for number in range(3)]
    queue.append(consecutive(2, 3, start=9000))
    expected = [(0, 5000, 100, 0), (1, 5100, 100, 0), (2, 9000, 100, 0), (3, 9100, 100, 0), (4, 9200, 100, 0)]
    assert all_entries(queue) == expected
    assert all_entries(queue_on(disk)) == expected


def test_append_when_a_dropped_number_is_taken_again_begins_a_new_row() -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk)
    queue.append(consecutive(0, 20))
    queue.drop_before(1700)
    queue.append(consecutive(1, 2, start=7000))
    assert all_entries(queue) == [(1, 7000, 100, 0), (2, 7100, 100, 0)]
    assert disk.names(FOLDER) == ["00000000000000000000"]


def test_append_when_disk_is_full_can_be_done_again() -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk, segment_size=8_000)
    queue.append(consecutive(0, 150))
    disk.capacity = disk.used
    with pytest.raises(StoreFullError):
        queue.append(consecutive(150, 200))
    assert queue.next_offset == 150
    disk.capacity += 1_000_000
    queue.append(consecutive(150, 200))
    assert all_entries(queue) == [(number, number * 100, 100, 0) for number in range(350)]


# The document


def example_of(name: str) -> bytes:
    document = (Path(__file__).parents[2] / "docs" / "formats" / "consume_queue.md").read_text()
    (block,) = re.findall(rf"```hex {name}\n(.*?)```", document, re.DOTALL)
    return bytes.fromhex("".join(line.partition("#")[0] for line in block.splitlines()))


def test_examples_of_the_document_are_what_is_written() -> None:
    disk = SimulatedDisk()
    queue_on(disk).append([dispatched(4096, 0, size=120, tags_code=tags_code(b"paid")), dispatched(4216, 1)])
    assert bytes_of(disk)[:40] == example_of("entries")
    assert ENTRY.pack(0, BLANK_SIZE, 0) == example_of("blank")
    assert BATCH_ENTRY.pack(382_524, 579, 0, 1_700_000_000_000, 6, 3, -1, 0) == example_of("batch")


@pytest.mark.parametrize(("asked", "lower", "upper"), [(0, 0, 0), (1, 0, 2), (2, 3, 2), (3, 3, 4), (4, 5, 4)])
def test_offset_by_time_is_as_the_document_says(asked: int, lower: int, upper: int) -> None:
    document = (Path(__file__).parents[2] / "docs" / "formats" / "consume_queue.md").read_text()
    assert f"| {asked} | {lower} | {upper} |" in document
    queue = queue_on(SimulatedDisk())
    queue.append(consecutive(0, 5))
    times = [1, 1, 1, 3, 3]
    assert queue.offset_by_time(asked, Boundary.LOWER, lambda log_offset: times[log_offset // 100]) == lower
    assert queue.offset_by_time(asked, Boundary.UPPER, lambda log_offset: times[log_offset // 100]) == upper


# Opening


@given(count=st.integers(0, 70), first=st.integers(0, 30), dropped=st.integers(0, 90))
def test_open_finds_the_end_and_the_beginning(count: int, first: int, dropped: int) -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk)
    queue.append(consecutive(first, count))
    queue.drop_before(dropped * 100)
    again = queue_on(disk)
    again.drop_before(dropped * 100)
    assert (again.min_offset, again.next_offset) == (queue.min_offset, queue.next_offset)
    assert again.max_log_offset == queue.max_log_offset
    assert all_entries(again) == all_entries(queue)
    assert again.next_offset == (first + count if count else 0)
    assert again.min_offset == (min(max(first, dropped), first + count) if count else 0)


class CountedReads:
    """A file that counts what is read from it."""

    total = 0

    def __init__(self, file: File) -> None:
        self._file = file
        self.path = file.path
        self.size = file.size
        self.write = file.write
        self.view = file.view
        self.written_ranges = file.written_ranges
        self.write_all = file.write_all
        self.forget = file.forget
        self.clear_from = file.clear_from
        self.set_blocks_aside = file.set_blocks_aside
        self.sync = file.sync
        self.close = file.close

    def read(self, position: int, size: int) -> bytes:
        CountedReads.total += size
        return self._file.read(position, size)


class CountingFileSystem(OsFileSystem):
    def open(self, path: Path, *, size: int | None = None) -> File:
        return CountedReads(super().open(path, size=size))


def test_open_of_a_file_of_full_size_reads_little_of_it(tmp_path: Path) -> None:
    pool = FilePool(CountingFileSystem(), 2)
    queue = ConsumeQueue("orders", 0, tmp_path / "orders" / "0", 6_000_000, pool)
    queue.open()
    queue.append(consecutive(0, 123_457))
    CountedReads.total = 0
    again = ConsumeQueue("orders", 0, tmp_path / "orders" / "0", 6_000_000, pool)
    again.open()
    assert (again.min_offset, again.next_offset) == (0, 123_457)
    assert 0 < CountedReads.total < 1_000
    pool.close()


def test_open_when_a_later_file_is_empty_ends_before_it() -> None:
    disk = SimulatedDisk()
    queue_on(disk).append(consecutive(0, 8))
    disk.open(FOLDER / "00000000000000000160", size=SEGMENT).close()
    queue = queue_on(disk)
    assert queue.next_offset == 8
    queue.append(consecutive(8, 2))
    assert len(all_entries(queue)) == 10


# Recovery


def test_recover_ends_at_a_hole_and_clears_what_is_behind() -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk)
    queue.append(consecutive(0, 14))
    file = disk.open(FOLDER / "00000000000000000160")
    file.write(bytes(20), 40)
    again = queue_on(disk)
    for synced in again.recover():
        synced.sync()
    assert again.next_offset == 10
    assert bytes_of(disk)[200:] == bytes(120)


@pytest.mark.parametrize(
    "bad",
    [
        ENTRY.pack(-1, 100, 0),
        ENTRY.pack(1000, 0, 0),
        ENTRY.pack(1000, -5, 0),
        ENTRY.pack(850, 100, 0),
    ],
    ids=["negative log offset", "no size", "negative size", "out of log order"],
)
def test_recover_ends_at_an_entry_that_is_not_good(bad: bytes) -> None:
    disk = SimulatedDisk()
    queue_on(disk).append(consecutive(0, 14))
    disk.open(FOLDER / "00000000000000000160").write(bad, 40)
    queue = queue_on(disk)
    queue.recover()
    assert queue.next_offset == 10


def test_recover_looks_at_the_last_three_files_and_at_what_was_not_synced() -> None:
    disk = SimulatedDisk()
    queue_on(disk).append(consecutive(0, 46))
    disk.open(FOLDER / "00000000000000000160").write(bytes(20), 40)
    queue = queue_on(disk)
    queue.recover(synced_offset=2500)
    assert queue.next_offset == 46
    disk.open(FOLDER / "00000000000000000480").write(bytes(20), 40)
    queue = queue_on(disk)
    queue.recover(synced_offset=10_000)
    assert queue.next_offset == 26
    queue.recover(synced_offset=500)
    assert queue.next_offset == 10
    assert disk.names(FOLDER) == ["00000000000000000000", "00000000000000000160"]


@given(seed=st.integers(0, 10_000), synced=st.integers(0, 40), more=st.integers(0, 40))
def test_recover_after_power_failure_keeps_what_was_synced(seed: int, synced: int, more: int) -> None:
    disk = SimulatedDisk()
    pool = FilePool(disk, 2)
    queue = ConsumeQueue("orders", 0, FOLDER, SEGMENT, pool)
    queue.open()
    queue.append(consecutive(0, synced))
    for file in pool.collect_dirty():
        file.sync()
    queue.append(consecutive(synced, more))
    after = disk.crash(seed)
    again = queue_on(after)
    for cut in again.recover():
        cut.sync()
    assert synced <= again.next_offset <= synced + more
    # What is not behind the checkpoint is cut and told again, and then everything is as if nothing had happened.
    again.truncate(synced * 100)
    again.append(consecutive(0, synced + more))
    assert all_entries(again) == [(number, number * 100, 100, 0) for number in range(synced + more)]
    assert all_entries(queue_on(after)) == all_entries(again)


# Searching by time


@given(
    times=st.lists(st.integers(0, 12), max_size=40), asked=st.integers(-1, 14), first=st.integers(0, 20), data=st.data()
)
def test_offset_by_time_is_that_of_a_list(times: list[int], asked: int, first: int, data: st.DataObject) -> None:
    times.sort()
    queue = queue_on(SimulatedDisk())
    queue.append(consecutive(first, len(times)))
    dropped = data.draw(st.integers(0, len(times)))
    queue.drop_before((first + dropped) * 100)
    visible = times[dropped:]
    low = queue.min_offset

    def store_time_of(log_offset: int) -> int | None:
        return times[log_offset // 100 - first] if log_offset >= (first + dropped) * 100 else None

    expected_lower = low + bisect_left(visible, asked)
    expected_upper = low + max(bisect_right(visible, asked) - 1, 0)
    assert queue.offset_by_time(asked, Boundary.LOWER, store_time_of) == expected_lower
    assert queue.offset_by_time(asked, Boundary.UPPER, store_time_of) == expected_upper


# Tags


def test_matches_tags_goes_by_the_lower_32_bits() -> None:
    codes = np.array([5, -3, (1 << 32) + 5, -2_147_483_649, 7], np.int64)
    assert matches_tags(codes, {5}).tolist() == [True, False, True, True, False]
    many = {*range(100, 130), -3}
    assert matches_tags(codes, many).tolist() == [False, True, False, True, False]
    assert matches_tags(codes, set()).tolist() == [False, False, False, True, False]


@given(
    codes=st.lists(st.sampled_from([1, 2, -3, 4]), max_size=40),
    start=st.integers(0, 45),
    wanted=st.sets(st.sampled_from([1, 2, -3])),
)
def test_count_matching_is_that_of_a_list(codes: list[int], start: int, wanted: set[int]) -> None:
    queue = queue_on(SimulatedDisk())
    queue.append([dispatched(number * 100, number, tags_code=code) for number, code in enumerate(codes)])
    assert queue.count_matching(start, wanted) == sum(code in wanted for code in codes[start:])


# Truncation and retention


def test_truncate_is_on_disk_when_it_returns() -> None:
    disk = SimulatedDisk()
    pool = FilePool(disk, 2)
    queue = ConsumeQueue("orders", 0, FOLDER, SEGMENT, pool)
    queue.open()
    queue.append(consecutive(0, 20))
    for file in pool.collect_dirty():
        file.sync()
    queue.truncate(1000)
    assert queue_on(disk.crash(outcome=Outcome.NOTHING)).next_offset == 10


def test_truncate_inside_a_record_forgets_that_record() -> None:
    queue = queue_on(SimulatedDisk())
    queue.append(consecutive(0, 5))
    queue.truncate(350)
    assert (queue.next_offset, queue.max_log_offset) == (3, 300)


def test_truncate_of_everything_behind_dropped_files_keeps_the_numbers() -> None:
    disk = SimulatedDisk()
    queue = queue_on(disk)
    queue.append(consecutive(0, 20))
    queue.drop_before(1700)
    queue.truncate(0)
    for seen in (queue, queue_on(disk)):
        assert (seen.min_offset, seen.next_offset, seen.max_log_offset) == (16, 16, 0)


def test_truncate_at_any_step_of_a_crash_leaves_a_queue_that_opens() -> None:
    def work(disk: SimulatedDisk) -> None:
        queue = queue_on(disk)
        queue.append(consecutive(0, 30))
        queue.truncate(1100)
        queue.append(consecutive(11, 3, start=1100))

    counted = SimulatedDisk()
    work(counted)
    for step in range(1, counted.steps + 1):
        disk = SimulatedDisk()
        disk.stop_at(step, tear_at=step % 40)
        with pytest.raises(SimulatedCrash):
            work(disk)
        for seed in range(6):
            queue = queue_on(disk.crash(seed))
            queue.recover()
            for number, log_offset, _, _ in all_entries(queue):
                assert log_offset == number * 100


class QueueAgainstList(RuleBasedStateMachine):
    """The queue against a list of (queue offset, log offset, size, tags code)."""

    @initialize(first=st.integers(0, 20))
    def begin(self, first: int) -> None:
        self.disk = SimulatedDisk()
        self.queue = queue_on(self.disk)
        self.first = first
        self.model: list[tuple[int, int, int, int]] = []
        self.next_offset = 0
        self.log_end = first * 10
        self.log_min = 0

    @rule(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12), distance=st.integers(0, 9))
    def append(self, sizes: list[int], distance: int) -> None:
        number = self.next_offset or self.first
        records = []
        for size in sizes:
            log_offset = self.log_end + distance
            self.log_end = log_offset + size
            records.append(dispatched(log_offset, number, size=size, tags_code=number % 3))
            self.model.append((number, log_offset, size, number % 3))
            number += 1
        self.next_offset = number
        self.queue.append(records)

    @rule(count=st.integers(1, 10))
    def append_again(self, count: int) -> None:
        self.queue.append([dispatched(entry[1], entry[0], size=entry[2]) for entry in self.model[-count:]])

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(0, len(self.model)))
        cut = self.model[kept][1] if kept < len(self.model) else self.log_end
        self.queue.truncate(cut)
        self.log_end = min(self.log_end, max(cut, self.log_min))
        # As long as anything of it is left, a queue remembers where it was.
        if kept < len(self.model):
            self.next_offset = self.queue.next_offset
            assert self.next_offset in (self.model[kept][0], 0)
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
        self.queue = queue_on(self.disk)
        if verify:
            for file in self.queue.recover():
                file.sync()
        self.queue.drop_before(self.log_min)

    @invariant()
    def is_the_same(self) -> None:
        if not hasattr(self, "model"):
            return
        assert all_entries(self.queue) == self.model
        assert self.queue.next_offset == self.next_offset
        if self.model:
            assert self.queue.min_offset == self.model[0][0]
            assert self.queue.max_log_offset == self.model[-1][1] + self.model[-1][2]
        else:
            assert self.queue.min_offset == self.queue.next_offset


TestQueueAgainstList = QueueAgainstList.TestCase
