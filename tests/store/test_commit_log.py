"""Placing, writing and finding records, and what a failed write leaves."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import StoreBusyError, StoreError, StoreFullError
from fusee.message.record_layout import body_crc, pack_record
from fusee.store.commit_log import CommitLog
from fusee.store.config import StoreConfig
from fusee.store.filesystem import OsFileSystem
from fusee.store.recovery import LogWalker
from fusee.store.simulated_disk import SimulatedDisk

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
CONFIG = StoreConfig(mapped_file_size_commit_log=4096)
FOLDER = Path("/store/commitlog")


def record(log_offset: int, body: bytes, queue_offset: int = 0) -> bytes:
    crc = body_crc(body)
    return pack_record(b"T", body, b"", crc, 0, 0, queue_offset, log_offset, 0, 1, HOST, 2, HOST, 0, 0)


def put(log: CommitLog, size: int) -> int:
    """Append a record of exactly this size; its offset."""
    log_offset = log.place(size)
    log.append(record(log_offset, b"x" * (size - 92)))
    return log_offset


def new_log(disk: SimulatedDisk | None = None, config: StoreConfig = CONFIG) -> CommitLog:
    log = CommitLog(FOLDER, config, disk or SimulatedDisk())
    log.open()
    log.truncate(0)
    return log


def test_append_gives_consecutive_places_and_write_makes_them_readable() -> None:
    log = new_log()
    assert [put(log, 100), put(log, 200)] == [0, 100]
    assert (log.end_offset, log.written_offset, log.gathered_bytes) == (300, 0, 300)
    assert log.record_at(0) is None
    assert log.write() == 300
    first = log.record_at(0)
    assert first is not None
    assert len(first) == 100
    assert log.record_at(50) is None
    assert log.slice(100, 200) is not None
    assert log.slice(100, 201) is None


def test_append_when_segment_full_rolls_to_next_behind_a_blank() -> None:
    log = new_log()
    put(log, 4000)
    assert put(log, 200) == 4096
    log.write()
    assert [base for base, _ in log.segments()] == [0, 4096]
    blank = log.slice(4000, 8)
    assert blank is not None
    assert bytes(blank) == (96).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    assert log.record_at(4000) is None
    assert log.written_offset == 4296


@pytest.mark.parametrize("size", [4088, 4087])
def test_record_that_leaves_exactly_the_blank_fits(size: int) -> None:
    log = new_log()
    assert put(log, size) == 0
    assert put(log, 100) == 4096
    log.write()
    assert log.record_at(4096) is not None


def test_record_larger_than_a_segment_is_refused_with_the_setting() -> None:
    log = new_log()
    with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
        log.place(4089)
    assert put(log, 100) == 0


def test_failed_write_gives_the_places_back_and_clears_what_it_left() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log, 100)
    log.write()
    disk.fail_write(code=errno.ENOSPC, tear_at=150)
    put(log, 100)
    put(log, 100)
    with pytest.raises(StoreFullError, match="no space left"):
        log.write()
    assert (log.end_offset, log.written_offset) == (100, 100)
    _, file = log.segments()[0]
    assert bytes(file.view()[100:400]) == b"\0" * 300
    assert put(log, 120) == 100
    assert log.write() == 220


def test_large_parts_are_written_from_where_they_lie_and_small_ones_together() -> None:
    disk = SimulatedDisk()
    log = new_log(disk, StoreConfig(mapped_file_size_commit_log=1 << 20))
    places = {put(log, size): size for size in (100, 200, 20_000, 30_000, 300, 400, 40_000, 500)}
    log.write()
    assert {place: len(log.record_at(place) or b"") for place in places} == places
    assert log.written_offset == sum(places.values())
    assert log.gathered_bytes == 0
    assert put(log, 600) == log.written_offset


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_failed_write_of_a_part_keeps_the_parts_before_it(failing: int) -> None:
    disk = SimulatedDisk()
    log = new_log(disk, StoreConfig(mapped_file_size_commit_log=1 << 20))
    sizes = (300, 20_000, 30_000, 400)
    places = [put(log, size) for size in sizes]
    disk.fail_write(failing, code=errno.ENOSPC, tear_at=200)
    with pytest.raises(StoreFullError):
        log.write()
    assert log.end_offset == log.written_offset == places[failing - 1]
    assert [len(log.record_at(place) or b"") for place in places[: failing - 1]] == list(sizes[: failing - 1])
    (file,) = (file for _, file in log.segments())
    assert not any(file.view()[log.end_offset :])
    assert put(log, 500) == places[failing - 1]
    assert log.write() == places[failing - 1] + 500


def test_large_write_is_given_to_whoever_does_something_meanwhile() -> None:
    disk = SimulatedDisk()
    log = new_log(disk, StoreConfig(mapped_file_size_commit_log=1 << 20))
    seen: list[int] = []

    def around(write: Callable[[], None]) -> None:
        seen.append(log.written_offset)
        write()
        seen.append(log.written_offset)

    small = put(log, 300)
    assert log.write(around) == 300
    assert seen == []
    places = [put(log, size) for size in (400, 300_000, 500, 300_000, 600)]
    assert log.write(around) == log.end_offset
    assert seen == [300, 300]
    assert [len(log.record_at(place) or b"") for place in places] == [400, 300_000, 500, 300_000, 600]
    assert len(log.record_at(small) or b"") == 300


@pytest.mark.parametrize("failing", [1, 2, 3, 4, 5])
def test_large_write_that_failed_keeps_the_parts_before_it(failing: int) -> None:
    disk = SimulatedDisk()
    log = new_log(disk, StoreConfig(mapped_file_size_commit_log=1 << 20))
    sizes = (400, 300_000, 500, 300_000, 600)
    places = [put(log, size) for size in sizes]

    def around(write: Callable[[], None]) -> None:
        disk.fail_write(1, code=errno.ENOSPC, tear_at=200)
        try:
            write()
        finally:
            disk.fail_write(failing, code=errno.ENOSPC, tear_at=200)

    with pytest.raises(StoreFullError):
        log.write(around)
    assert log.end_offset == log.written_offset == places[failing - 1]
    assert [len(log.record_at(place) or b"") for place in places[: failing - 1]] == list(sizes[: failing - 1])
    (file,) = (file for _, file in log.segments())
    assert not any(file.view()[log.end_offset :])


def test_failed_write_behind_a_roll_keeps_what_the_first_segment_took() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log, 3900)
    put(log, 500)
    disk.fail_write(2, code=errno.ENOSPC)
    with pytest.raises(StoreFullError):
        log.write()
    assert log.record_at(0) is not None
    assert log.end_offset == log.written_offset == 4096
    assert put(log, 100) == 4096
    log.write()
    assert log.record_at(4096) is not None


def test_too_much_gathered_is_refused_until_written() -> None:
    config = StoreConfig(
        mapped_file_size_commit_log=4096, transient_store_pool_enable=True, transient_store_pool_size=2
    )
    log = new_log(config=config)
    for _ in range(8):
        put(log, 1000)
    with pytest.raises(StoreBusyError, match="slower than the senders"):
        put(log, 1000)
    log.write()
    put(log, 1000)


def test_raw_bytes_of_another_log_are_taken_as_they_are() -> None:
    source, target = new_log(), new_log()
    for size in (1000, 2000, 2000, 900, 3000):
        put(source, size)
    source.write()
    position = 0
    while position < source.written_offset:
        chunk = source.chunk(position, 700)
        target.append_raw(bytes(chunk), position)
        position += len(chunk)
        if not len(source.chunk(position, 700)) and position < source.written_offset:
            gap = source.next_segment(position) - position
            target.append_raw(b"\0" * gap, position)
            position += gap
    for base, file in source.segments():
        copy = dict(target.segments())[base]
        assert bytes(file.view()) == bytes(copy.view())


def test_raw_bytes_that_do_not_go_on_where_the_log_ends_are_refused() -> None:
    log = new_log()
    put(log, 100)
    log.write()
    with pytest.raises(StoreError, match="begin at 200 but this log ends at 100"):
        log.append_raw(b"x" * 10, 200)
    put(log, 100)
    with pytest.raises(StoreError, match="one writer"):
        log.append_raw(b"x" * 10, 200)


def test_empty_log_begins_where_the_first_raw_bytes_say() -> None:
    log = new_log()
    log.append_raw(b"y" * 10, 8192)
    assert (log.min_offset, log.end_offset) == (8192, 8202)


def test_prepared_segment_is_used_when_the_log_rolls() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log, 4000)
    log.write()
    assert log.prepare()
    assert not log.prepare()
    made = disk.names(FOLDER)
    put(log, 1000)
    log.write()
    assert disk.names(FOLDER) == made
    assert log.written_offset == 5096


def test_log_on_the_real_file_system_is_sparse(tmp_path: Path) -> None:
    log = CommitLog(tmp_path / "commitlog", StoreConfig(), OsFileSystem())
    log.open()
    log.truncate(0)
    put(log, 1000)
    log.write()
    path = log.segments()[0][1].path
    assert path.stat().st_size == 1024**3
    assert path.stat().st_blocks * 512 < 100_000
    log.close()


@given(st.lists(st.one_of(st.integers(92, 2000), st.just(0)), max_size=60))
def test_any_sequence_of_puts_and_writes_is_found_again(sizes: list[int]) -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    placed: dict[int, int] = {}
    for size in sizes:
        if size == 0:
            log.write()
        else:
            placed[put(log, size)] = size
    log.write()
    for log_offset, size in placed.items():
        found = log.record_at(log_offset)
        assert found is not None
        assert len(found) == size
        assert log_offset % 4096 + size + 8 <= 4096
    again = CommitLog(FOLDER, CONFIG, disk)
    again.open()
    walk = LogWalker(again, CONFIG).walk(0)
    assert walk.records == len(placed)
    if placed:
        last = max(placed)
        assert walk.end_offset == last + placed[last]
