from __future__ import annotations

import contextlib
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import StoreCorruptError, StoreError, StoreFullError
from fusee.store.config import StoreConfig
from fusee.store.index import Index
from fusee.store.index_file import IndexFile, IndexShape, WalkBudget
from fusee.store.results import Dispatched
from fusee.store.simulated_disk import Outcome, SimulatedCrash, SimulatedDisk

SHAPE = IndexShape(7, 40)
PATH = Path("/index/20261116120000000")
START_MS = 1_700_000_000_000
ALWAYS = (0, 1 << 62)


def made(disk: SimulatedDisk, shape: IndexShape = SHAPE) -> IndexFile:
    disk.make_folder(PATH.parent)
    file = IndexFile.create(PATH, shape, disk, log_offset=100, timestamp_ms=START_MS)
    disk.sync_folder(PATH.parent)
    return file


def put(file: IndexFile, *entries: tuple[int, int, int]) -> None:
    """Entries as (hash, log offset, milliseconds after the start)."""
    columns = np.array(entries, dtype=np.int64).T
    file.append(columns[0], columns[1], columns[2] + START_MS)


def found(file: IndexFile, key_hash: int, begin_ms: int = 0, end_ms: int = 1 << 62) -> list[int]:
    return list(file.walk(key_hash, begin_ms, end_ms, WalkBudget(1000)))


def sync(file: IndexFile, *, thorough: bool = True) -> bool:
    handle = file.collect(thorough=thorough)
    if handle is not None:
        handle.sync()
    return handle is not None


def loaded(disk: SimulatedDisk, shape: IndexShape = SHAPE) -> IndexFile:
    return IndexFile.load(PATH, shape, disk)


def test_create_when_new_has_size_and_header_on_disk() -> None:
    disk = SimulatedDisk()
    made(disk)
    survived = loaded(disk.crash(outcome=Outcome.NOTHING))
    assert disk.size(PATH) == 40 + 7 * 4 + 40 * 20
    assert survived.begin_timestamp_ms == START_MS
    assert survived.begin_log_offset == 100
    assert survived.is_empty


def test_append_when_collected_has_the_bytes_of_the_reference() -> None:
    disk = SimulatedDisk()
    file = made(disk)
    put(file, (3, 100, 0), (10, 100, 0), (4, 250, 1500))
    file.collect(thorough=True)
    data = disk.read_file(PATH)
    assert data[:40] == struct.pack(">qqqqii", START_MS, START_MS + 1500, 100, 250, 2, 4)
    assert data[40:68] == struct.pack(">7i", 0, 0, 0, 2, 3, 0, 0)
    assert data[88:148] == struct.pack(">" + "iqii" * 3, 3, 100, 0, 0, 10, 100, 0, 1, 4, 250, 1, 0)
    assert data[148:] == bytes(len(data) - 148)


def test_append_when_one_batch_has_a_slot_many_times_links_each_to_the_one_before() -> None:
    file = made(SimulatedDisk())
    put(file, (3, 100, 0), (5, 101, 0), (10, 102, 0), (3, 103, 0))
    put(file, (17, 104, 0), (3, 105, 0))
    assert found(file, 3) == [105, 103, 100]
    assert found(file, 10) == [102]
    assert found(file, 17) == [104]
    assert found(file, 24) == []
    assert file.slots_used == 2
    file.check()


def test_append_when_write_fails_changes_nothing() -> None:
    disk = SimulatedDisk()
    file = made(disk)
    put(file, (3, 100, 0))
    disk.fail_write(code=28)
    with pytest.raises(StoreFullError):
        put(file, (3, 200, 0), (4, 300, 0))
    assert (file.count, file.slots_used, file.end_log_offset) == (2, 1, 100)
    put(file, (3, 200, 0))
    assert found(file, 3) == [200, 100]
    file.check()


def test_append_when_time_runs_backwards_or_too_far_is_clamped() -> None:
    file = made(SimulatedDisk())
    put(file, (3, 100, -5000), (3, 101, 2**42))
    assert file.entries(1, 3)["seconds"].tolist() == [0, 2**31 - 1]


def test_walk_when_times_are_given_finds_every_second_that_touches_them() -> None:
    file = made(SimulatedDisk())
    put(file, (3, 100, 0), (3, 101, 1999), (3, 102, 2000), (3, 103, 9000))
    assert found(file, 3, START_MS + 1999, START_MS + 2500) == [102, 101]
    assert found(file, 3, START_MS + 2001, START_MS + 8999) == [102]
    assert found(file, 3, START_MS + 9001, 1 << 62) == [103]
    assert found(file, 3, 0, START_MS - 1) == []


def test_walk_when_chain_is_longer_than_the_budget_says_so() -> None:
    file = made(SimulatedDisk())
    put(file, *((3, 100 + number, 0) for number in range(10)))
    budget = WalkBudget(4)
    assert list(file.walk(3, *ALWAYS, budget)) == [109, 108, 107, 106]
    assert budget.is_spent
    exact = WalkBudget(10)
    assert len(list(file.walk(3, *ALWAYS, exact))) == 10
    assert not exact.is_spent


def test_walk_when_chain_runs_in_a_circle_ends() -> None:
    disk = SimulatedDisk()
    file = made(disk)
    put(file, (3, 100, 0), (3, 101, 0), (3, 102, 0))
    sync(file)
    handle = disk.open(PATH)
    handle.write(struct.pack(">i", 3), SHAPE.entries_position + 20 + 16)
    assert found(loaded(disk), 3) == [102, 101, 100]


def test_collect_when_nothing_changed_gives_nothing() -> None:
    file = made(SimulatedDisk())
    assert not sync(file)
    put(file, (3, 100, 0))
    assert not file.is_settled
    assert sync(file)
    assert sync(file), "the mark is written once the entries are on disk"
    assert not sync(file)
    assert file.is_settled


def test_collect_when_nobody_synced_gives_the_file_again_and_marks_nothing() -> None:
    disk = SimulatedDisk()
    file = made(disk)
    put(file, (3, 100, 0))
    assert file.collect(thorough=True) is not None
    assert file.collect(thorough=True) is not None
    put(file, (4, 101, 0))
    assert file.collect(thorough=True) is not None
    survivor = loaded(disk.crash(outcome=Outcome.EVERYTHING))
    assert survivor.repair(0)
    assert survivor.is_empty


def test_collect_when_not_thorough_leaves_slots_and_header_in_memory() -> None:
    disk = SimulatedDisk()
    file = made(disk)
    put(file, (3, 100, 0), (4, 101, 0))
    before = disk.read_file(PATH)[:68]
    assert sync(file, thorough=False)
    assert disk.read_file(PATH)[:68] == before
    assert found(file, 3) == [100]
    assert sync(file, thorough=False)
    assert not sync(file, thorough=False)
    assert sync(file)
    assert disk.read_file(PATH)[:68] != before


def test_collect_when_slots_span_pages_writes_only_those_that_changed() -> None:
    shape = IndexShape(10_000, 100)
    disk = SimulatedDisk()
    file = made(disk, shape)
    put(file, (5, 100, 0), (1030, 101, 0), (9999, 102, 0), (5000, 103, 0))
    steps = disk.steps
    file.collect(thorough=True)
    writes = [(o.position, o.size) for o in disk.operations[steps:] if o.kind == "write"]
    assert writes == [(40, 8192), (40 + 4096 * 4, 4096), (40 + 4096 * 9, 3136), (0, 40)]
    file.release()
    again = loaded(disk, shape)
    again.check()
    assert [found(again, key_hash) for key_hash in (5, 1030, 9999, 5000)] == [[100], [101], [102], [103]]


def test_full_when_last_entry_is_taken_has_no_room_and_reads_from_the_file() -> None:
    disk = SimulatedDisk()
    file = made(disk)
    put(file, *((number, 100 + number, 0) for number in range(39)))
    assert file.is_full
    assert file.room == 0
    sync(file)
    sync(file)
    file.release()
    assert found(file, 11) == [111]
    assert loaded(disk).is_finished(0)
    file.check()


def test_load_when_size_is_not_what_settings_say_names_them() -> None:
    disk = SimulatedDisk()
    made(disk)
    with pytest.raises(StoreError, match="maxHashSlotNum=8"):
        loaded(disk, IndexShape(8, 40))


def test_repair_when_nothing_but_the_mark_survived_makes_slots_anew() -> None:
    disk = SimulatedDisk()
    file = made(disk)
    put(file, (3, 100, 0), (10, 101, 0))
    sync(file, thorough=False)
    put(file, (3, 102, 0), (3, 103, 0))
    sync(file, thorough=False)
    after = disk.crash(outcome=Outcome.NOTHING)
    survivor = loaded(after)
    assert survivor.repair(0)
    assert survivor.end_log_offset == 101
    assert found(survivor, 3) == [100]
    assert found(survivor, 10) == [101]
    survivor.check()
    again = loaded(after)
    again.check()
    assert again.is_settled


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=35),
    st.lists(st.integers(0, 3), min_size=35, max_size=35),
    st.integers(0, 1 << 30),
)
def test_repair_when_anything_survived_a_crash_is_a_prefix_that_had_been_synced(
    hashes: list[int], actions: list[int], seed: int
) -> None:
    disk = SimulatedDisk()
    file = made(disk)
    marked = handed_out = 1
    for number, (key_hash, action) in enumerate(zip(hashes, actions, strict=False)):
        put(file, (key_hash, 100 + number, number * 400))
        if action > 1:
            sync(file, thorough=action == 3)
            marked, handed_out = handed_out, file.count
    after = disk.crash(seed)
    survivor = loaded(after)
    if survivor.repair(0):
        assert survivor.count >= marked
        survivor.check()
        kept = survivor.count - 1
        assert survivor.entries(1, kept + 1)["hash"].tolist() == hashes[:kept]
        assert survivor.entries(1, kept + 1)["log_offset"].tolist() == list(range(100, 100 + kept))
        for key_hash in set(hashes):
            expected = [100 + number for number in range(kept) if hashes[number] == key_hash]
            assert found(survivor, key_hash) == expected[::-1]
        if kept:
            assert survivor.end_log_offset == 100 + kept - 1
    else:
        # Only the mark itself, torn while it was written anew, is a reason to give everything up.
        assert loaded(after)._read_mark() is None


def test_repair_when_a_file_of_the_reference_has_no_mark_keeps_what_is_older_than_the_checkpoint() -> None:
    disk = SimulatedDisk()
    file = made(disk)
    put(file, *((number, 100 + number, number * 1000) for number in range(10)))
    sync(file)
    disk.open(PATH).write(bytes(20), SHAPE.entries_position)
    reference = loaded(disk)
    assert not reference.is_finished(START_MS + 99_000)
    assert reference.repair(START_MS + 5000)
    # Of seconds 0 to 4 the last record is given up: its keys may not be all there.
    assert reference.entries(1, reference.count)["log_offset"].tolist() == [100, 101, 102, 103]
    reference.check()
    assert not made_reference().repair(0)


def made_reference() -> IndexFile:
    disk = SimulatedDisk()
    file = made(disk)
    put(file, (3, 100, 0), (4, 101, 0))
    sync(file)
    disk.open(PATH).write(bytes(20), SHAPE.entries_position)
    return loaded(disk)


def test_truncate_when_inside_forgets_entries_and_slots_behind() -> None:
    disk = SimulatedDisk()
    file = made(disk)
    put(file, (3, 100, 0), (4, 100, 0), (3, 200, 5000), (11, 300, 9000))
    sync(file)
    assert file.truncate(200)
    assert found(file, 3) == [100]
    assert found(file, 11) == []
    assert file.end_log_offset == 100
    assert file.end_timestamp_ms == START_MS + 999
    file.check()
    survivor = loaded(disk.crash(outcome=Outcome.NOTHING))
    survivor.check()
    assert survivor.count == 3
    assert not any(disk.read_file(PATH)[SHAPE.entries_position + 3 * 20 :])
    put(file, (11, 200, 6000))
    assert found(file, 11) == [200]
    file.check()


def test_truncate_when_no_entry_would_stay_says_so() -> None:
    file = made(SimulatedDisk())
    put(file, (3, 100, 0))
    assert not file.truncate(100)
    assert found(file, 3) == [100]


@given(st.integers(0, 400), st.integers(0, 1 << 30), st.integers(0, 30))
def test_truncate_when_machine_stops_inside_can_be_repaired(step: int, seed: int, tear_at: int) -> None:
    disk = SimulatedDisk()
    file = made(disk)
    put(file, *((number % 9, 100 + number, 0) for number in range(30)))
    sync(file)
    sync(file)
    before = disk.steps
    disk.stop_at(before + 1 + step % 8, tear_at=tear_at)
    with contextlib.suppress(SimulatedCrash):
        file.truncate(110)
    survivor = loaded(disk.crash(seed))
    if survivor.repair(0):
        survivor.check()
        assert survivor.count in (11, 31)
        assert survivor.entries(1, survivor.count)["log_offset"].tolist() == list(range(100, 99 + survivor.count))


@pytest.mark.parametrize(
    ("position", "data", "message"),
    [
        (36, struct.pack(">i", 41), "header"),
        (32, struct.pack(">i", 1), "at 32"),
        (40 + 3 * 4, struct.pack(">i", 1), "slot 3"),
        (SHAPE.entries_position + 40 + 4, struct.pack(">q", 5), "entry 2"),
        (SHAPE.entries_position + 60 + 16, struct.pack(">i", 0), "entry 3"),
    ],
)
def test_check_when_a_part_is_damaged_names_the_place(position: int, data: bytes, message: str) -> None:
    disk = SimulatedDisk()
    file = made(disk)
    put(file, (3, 100, 0), (4, 101, 0), (3, 102, 0))
    sync(file)
    loaded(disk).check()
    disk.open(PATH).write(data, position)
    with pytest.raises(StoreCorruptError, match=message):
        loaded(disk).check()


def test_format_page_when_its_example_is_written_is_the_same() -> None:
    disk = SimulatedDisk()
    index = Index(Path("/index"), StoreConfig(max_hash_slot_num=2, max_index_num=5), disk, disk.clock)
    index.open(unclean=False)
    index.accept(
        [
            Dispatched("orders", 0, 0, 4096, 120, 0, START_MS, 0, 0, "", ("42",), b"TAGS\x01paid\x02"),
            Dispatched("orders", 0, 1, 4216, 120, 0, START_MS + 2500, 0, 0, "", ("43",), b""),
        ]
    )
    for _ in range(2):
        for handle in index.collect_dirty():
            handle.sync()
    page = Path(__file__).parents[2] / "docs" / "formats" / "index.md"
    found = re.search(r"^```hex index\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    example = bytes.fromhex("".join(line.partition("#")[0] for line in found[1].splitlines()))
    assert disk.read_file(index.files[0].path) == example
