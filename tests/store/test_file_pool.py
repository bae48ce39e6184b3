"""Files that are open only while used, and rows of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from fusee.errors import StoreCorruptError, StoreError, StoreFullError
from fusee.store.file_pool import FilePool, FileRow
from fusee.store.filesystem import OsFileSystem
from fusee.store.simulated_disk import Outcome, SimulatedCrash, SimulatedDisk

ROOT = Path("/store")
FOLDER = ROOT / "queues" / "topic" / "0"


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def disk_with_folder() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    return disk


def row_of(disk: SimulatedDisk, open_max: int = 8) -> FileRow:
    row = FileRow(FOLDER, 100, FilePool(disk, open_max), setting="mappedFileSizeConsumeQueue")
    row.open()
    return row


def content(row: FileRow) -> bytes:
    return b"".join(row.read(offset, 100) for offset in range(row.base_offset, row.end_offset, 100))


# The pool


def test_files_when_more_than_the_limit_are_used_keep_few_open(tmp_path: Path) -> None:
    before = descriptors()
    pool = FilePool(OsFileSystem(), 4)
    files = [pool.get(tmp_path / str(number), 16) for number in range(50)]
    for turn in range(3):
        for number, file in enumerate(files):
            file.write(bytes([number, turn]), 0)
            assert pool.open_count <= 4
    assert descriptors() - before <= 4
    assert [file.read(0, 2) for file in files] == [bytes([number, 2]) for number in range(50)]
    pool.close()
    assert descriptors() == before


def test_make_room_passes_over_a_file_that_is_in_use() -> None:
    disk = disk_with_folder()
    pool = FilePool(disk, 3)
    hot, *others = [pool.get(FOLDER / str(number), 16) for number in range(9)]
    hot.write(b"a", 0)
    for other in others:
        other.write(b"b", 0)
        hot.read(0, 1)
    assert hot.is_open


def test_open_when_file_has_vanished_raises_and_makes_no_other() -> None:
    disk = disk_with_folder()
    pool = FilePool(disk, 1)
    file = pool.get(FOLDER / "0", 16)
    file.write(b"a", 0)
    file.close()
    disk.remove(FOLDER / "0")
    with pytest.raises(StoreError, match="/store/queues/topic/0/0"):
        file.read(0, 1)
    assert not disk.exists(FOLDER / "0")


def test_collect_dirty_after_files_were_closed_has_them_all() -> None:
    disk = disk_with_folder()
    pool = FilePool(disk, 2)
    files = [pool.get(FOLDER / str(number), 16) for number in range(20)]
    for number, file in enumerate(files):
        file.write(bytes([number]), 3)
    disk.sync_folder(FOLDER)
    collected = pool.collect_dirty()
    assert len(collected) == 20
    assert pool.collect_dirty() == []
    for dirty in collected:
        dirty.sync()
    after = disk.crash(outcome=Outcome.NOTHING)
    assert [after.read_file(FOLDER / str(number))[3] for number in range(20)] == list(range(20))


def test_collect_dirty_with_least_size_leaves_little_changes_for_later() -> None:
    disk = disk_with_folder()
    pool = FilePool(disk, 2)
    little, much = pool.get(FOLDER / "0", 5000), pool.get(FOLDER / "1", 5000)
    little.write(b"a", 0)
    much.write(bytes(4096), 0)
    assert pool.collect_dirty(4096) == [much]
    assert pool.collect_dirty(0) == [little]


def test_collect_dirty_after_failed_write_has_the_file() -> None:
    disk = disk_with_folder()
    pool = FilePool(disk, 2)
    file = pool.get(FOLDER / "0", 5000)
    disk.capacity = disk.used
    with pytest.raises(StoreFullError):
        file.write(bytes(1), 0)
    assert pool.collect_dirty() == [file]


def test_sync_when_file_was_removed_has_nothing_to_do() -> None:
    disk = disk_with_folder()
    pool = FilePool(disk, 2)
    file = pool.get(FOLDER / "0", 16)
    file.write(b"a", 0)
    (collected,) = pool.collect_dirty()
    pool.remove(file)
    syncs = disk.counts["sync"]
    collected.sync()
    assert disk.counts["sync"] == syncs
    assert pool.open_count == 0


def test_sync_when_disk_fails_raises() -> None:
    disk = disk_with_folder()
    file = FilePool(disk, 2).get(FOLDER / "0", 16)
    file.write(b"a", 0)
    disk.fail_sync()
    with pytest.raises(StoreError):
        file.sync()


def test_view_stays_good_when_the_pool_closes_the_file(tmp_path: Path) -> None:
    pool = FilePool(OsFileSystem(), 1)
    first, second = pool.get(tmp_path / "0", 4096), pool.get(tmp_path / "1", 4096)
    first.write(b"abc", 0)
    view = first.view()
    first.is_used = False
    second.write(b"def", 0)
    assert not first.is_open
    assert bytes(view[:3]) == b"abc"
    pool.close()


# A row


def test_write_over_borders_makes_files_named_by_their_first_byte() -> None:
    disk = disk_with_folder()
    row = row_of(disk)
    data = bytes(range(250))
    row.write(data, 0)
    assert disk.names(FOLDER) == ["00000000000000000000", "00000000000000000100", "00000000000000000200"]
    assert content(row) == data + bytes(50)
    assert row.read(90, 40) == data[90:100]
    assert row.read(300, 10) == b""
    assert row.read(-20, 10) == b""


def test_write_into_new_row_begins_at_the_border_below() -> None:
    disk = disk_with_folder()
    row = row_of(disk)
    row.write(b"xy", 740)
    assert disk.names(FOLDER) == ["00000000000000000700"]
    assert row.base_offset == 700
    again = row_of(disk)
    assert (again.base_offset, again.end_offset) == (700, 800)
    assert again.read(740, 2) == b"xy"


def test_open_when_file_has_another_size_names_the_setting() -> None:
    disk = disk_with_folder()
    disk.open(FOLDER / "00000000000000000000", size=60).close()
    with pytest.raises(StoreError, match="has 60 bytes where 100 are configured; set mappedFileSizeConsumeQueue=60"):
        row_of(disk)


def test_open_when_name_is_no_multiple_names_the_setting() -> None:
    disk = disk_with_folder()
    disk.open(FOLDER / "00000000000000000050", size=100).close()
    with pytest.raises(StoreError, match="mappedFileSizeConsumeQueue"):
        row_of(disk)


def test_open_when_file_is_missing_in_the_middle_reports_damage() -> None:
    disk = disk_with_folder()
    row_of(disk).write(bytes(300), 0)
    disk.remove(FOLDER / "00000000000000000100")
    with pytest.raises(StoreCorruptError, match="00000000000000000200 does not follow 00000000000000000000"):
        row_of(disk)


def test_open_passes_over_other_names_and_takes_files_without_size_as_empty() -> None:
    disk = disk_with_folder()
    row_of(disk).write(b"x" * 100, 0)
    disk.open(FOLDER / "notes", size=3).close()
    disk.open(FOLDER / "00000000000000000100", size=0).close()
    row = row_of(disk)
    assert content(row) == b"x" * 100 + bytes(100)


def test_cut_clears_what_is_behind_and_removes_later_files() -> None:
    disk = disk_with_folder()
    row = row_of(disk)
    row.write(b"x" * 300, 0)
    file = row.cut(130)
    assert file is not None
    assert content(row) == b"x" * 130 + bytes(70)
    assert row.cut(100) is None
    assert disk.names(FOLDER) == ["00000000000000000000"]
    assert row.cut(0) is None
    assert disk.names(FOLDER) == []


def test_cut_to_the_start_of_a_late_row_keeps_where_it_ends() -> None:
    disk = disk_with_folder()
    row = row_of(disk)
    row.write(b"x" * 200, 400)
    row.cut(400)
    assert content(row) == bytes(100)
    assert row_of(disk).base_offset == 400


def test_remove_leaves_neither_files_nor_folder() -> None:
    disk = disk_with_folder()
    row = row_of(disk)
    row.write(b"x" * 200, 0)
    row.remove()
    assert not disk.exists(FOLDER)
    assert disk.exists(FOLDER.parent)
    row.remove()


def test_name_of_a_new_file_is_on_disk_with_its_first_sync_or_before_the_next_file() -> None:
    disk = disk_with_folder()
    row = row_of(disk)

    def syncs_of_the_folder() -> int:
        return sum(step.kind == "sync_folder" and step.path == FOLDER for step in disk.operations)

    row.write(b"x" * 10, 0)
    assert syncs_of_the_folder() == 0
    row.files[0].sync()
    row.files[0].sync()
    assert syncs_of_the_folder() == 1
    row.write(b"x" * 100, 100)
    assert syncs_of_the_folder() == 1
    row.write(b"x" * 100, 200)
    assert syncs_of_the_folder() == 2
    again = row_of(disk)
    again.files[-1].sync()
    assert syncs_of_the_folder() == 3, "whoever was here before may have been killed"


@pytest.mark.parametrize("outcome", list(Outcome))
def test_row_after_crash_at_any_step_has_no_gap(outcome: Outcome) -> None:
    def work(disk: SimulatedDisk) -> None:
        row = row_of(disk, open_max=1)
        row.write(b"x" * 500, 0)
        row.drop_first()
        row.drop_first()
        file = row.cut(330)
        if file is not None:
            file.sync()
        row.remove()

    counted = disk_with_folder()
    work(counted)
    for step in range(1, counted.steps + 1):
        disk = disk_with_folder()
        disk.stop_at(step, tear_at=step % 7)
        with suppress(SimulatedCrash):
            work(disk)
        row_of(disk.crash(seed=step, outcome=outcome))
