"""Files in a row as one address space, on the real file system and on the simulated disk."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import StoreCorruptError, StoreError, StoreFullError
from fusee.store.filesystem import FileSystem, OsFileSystem, Space
from fusee.store.layout import segment_name
from fusee.store.segment_log import SegmentLog
from fusee.store.simulated_disk import Outcome, SimulatedCrash, SimulatedDisk

SIZE = 8192


@pytest.fixture(params=["os", "simulated"])
def files(request: pytest.FixtureRequest) -> FileSystem:
    return OsFileSystem() if request.param == "os" else SimulatedDisk()


@pytest.fixture
def folder(files: FileSystem, tmp_path: Path) -> Path:
    files.make_folder(tmp_path)
    return tmp_path / "log"


def opened(files: FileSystem, folder: Path, size: int = SIZE) -> SegmentLog:
    log = SegmentLog(folder, size, files, setting="mappedFileSizeCommitLog")
    log.open()
    return log


def filled(files: FileSystem, folder: Path, count: int) -> SegmentLog:
    """Segments full of their number, from 1."""
    log = opened(files, folder)
    for number in range(1, count + 1):
        log.end_offset = log.at_end().base_offset
        log.write(bytes([number]) * SIZE, log.end_offset)
        log.end_offset += SIZE
    return log


def names(count: int, first: int = 0) -> list[str]:
    return [segment_name(number * SIZE) for number in range(first, first + count)]


# Opening


def test_open_without_folder_is_an_empty_log_and_makes_nothing(files: FileSystem, folder: Path) -> None:
    log = opened(files, folder)
    assert (log.segments, log.min_offset, log.end_offset) == ([], 0, 0)
    assert log.locate(0) is None
    assert log.slice(0, 1) is None
    assert not files.exists(folder)


def test_open_takes_up_what_was_written(files: FileSystem, folder: Path) -> None:
    filled(files, folder, 3).close()
    log = opened(files, folder)
    assert [segment.base_offset for segment in log.segments] == [0, SIZE, 2 * SIZE]
    assert (log.min_offset, log.end_offset) == (0, 3 * SIZE)
    assert bytes(log.slice(SIZE, 4) or b"") == b"\2\2\2\2"


def test_open_ignores_what_is_no_segment(files: FileSystem, folder: Path) -> None:
    filled(files, folder, 1).close()
    for name in ("lost+found", "123", segment_name(0) + ".bak"):
        files.open(folder / name, size=3).close()
    assert len(opened(files, folder).segments) == 1


def test_open_when_last_file_is_empty_removes_it(files: FileSystem, folder: Path) -> None:
    filled(files, folder, 2).close()
    files.open(folder / segment_name(2 * SIZE), size=0).close()
    log = opened(files, folder)
    assert log.end_offset == 2 * SIZE
    assert files.names(folder) == names(2)


def test_open_when_only_file_is_empty_is_an_empty_log(files: FileSystem, folder: Path) -> None:
    files.make_folder(folder)
    files.open(folder / segment_name(0), size=0).close()
    log = opened(files, folder)
    assert (log.segments, log.end_offset, files.names(folder)) == ([], 0, [])


def test_open_when_last_file_is_short_fills_it_with_zeros(files: FileSystem, folder: Path) -> None:
    filled(files, folder, 1).close()
    short = files.open(folder / segment_name(SIZE), size=100)
    short.write(b"x" * 100, 0)
    short.close()
    log = opened(files, folder)
    assert log.end_offset == 2 * SIZE
    assert bytes(log.slice(SIZE, SIZE) or b"") == b"x" * 100 + bytes(SIZE - 100)


@pytest.mark.parametrize("size", [0, 100, SIZE - 1])
def test_open_when_a_middle_file_is_short_names_it(files: FileSystem, folder: Path, size: int) -> None:
    files.make_folder(folder)
    for base, length in ((0, SIZE), (SIZE, size), (2 * SIZE, SIZE)):
        files.open(folder / segment_name(base), size=length).close()
    with pytest.raises(StoreError, match=f"{segment_name(SIZE)} has {size} bytes where {SIZE} are configured"):
        opened(files, folder)


def test_open_when_files_have_another_size_names_the_setting(files: FileSystem, folder: Path) -> None:
    filled(files, folder, 2).close()
    with pytest.raises(StoreError, match=f"set mappedFileSizeCommitLog={SIZE}\\?"):
        opened(files, folder, 2 * SIZE)
    with pytest.raises(StoreError, match=f"set mappedFileSizeCommitLog={SIZE}\\?"):
        opened(files, folder, SIZE // 2)


def test_open_when_last_file_is_too_long_names_it(files: FileSystem, folder: Path) -> None:
    files.make_folder(folder)
    files.open(folder / segment_name(0), size=SIZE + 1).close()
    with pytest.raises(StoreError, match=f"has {SIZE + 1} bytes"):
        opened(files, folder)


def test_open_when_a_middle_file_is_missing_names_both_sides(files: FileSystem, folder: Path) -> None:
    filled(files, folder, 3).close()
    files.remove(folder / segment_name(SIZE))
    with pytest.raises(StoreCorruptError, match=f"{segment_name(2 * SIZE)} does not follow .*{segment_name(0)}"):
        opened(files, folder)


def test_open_when_a_name_is_no_multiple_names_it(files: FileSystem, folder: Path) -> None:
    files.make_folder(folder)
    files.open(folder / segment_name(100), size=SIZE).close()
    with pytest.raises(StoreCorruptError, match=f"{segment_name(100)}: the name is no multiple of {SIZE}"):
        opened(files, folder)


def test_open_that_fails_leaves_no_file_open(tmp_path: Path) -> None:
    files = OsFileSystem()
    folder = tmp_path / "log"
    filled(files, folder, 3).close()
    (folder / segment_name(SIZE)).unlink()
    before = len(list(Path("/proc/self/fd").iterdir()))
    log = SegmentLog(folder, SIZE, files)
    with pytest.raises(StoreCorruptError):
        log.open()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert log.segments == []


# Growing


def test_at_end_when_segment_full_rolls_to_next(files: FileSystem, folder: Path) -> None:
    log = opened(files, folder)
    first = log.at_end()
    log.end_offset = SIZE - 1
    assert log.at_end() is first
    log.end_offset = SIZE
    second = log.at_end()
    assert (second.base_offset, second.end_offset) == (SIZE, 2 * SIZE)
    assert files.names(folder) == names(2)


def test_at_end_of_an_empty_log_begins_at_the_border_below(files: FileSystem, folder: Path) -> None:
    log = opened(files, folder)
    log.end_offset = 5 * SIZE + 17
    assert log.at_end().base_offset == 5 * SIZE
    assert log.min_offset == 5 * SIZE
    log.close()
    assert opened(files, folder).min_offset == 5 * SIZE


@pytest.mark.parametrize("end_offset", [0, 4 * SIZE])
def test_at_end_never_makes_a_gap(files: FileSystem, folder: Path, end_offset: int) -> None:
    log = opened(files, folder)
    log.end_offset = 2 * SIZE
    log.at_end()
    log.end_offset = end_offset
    with pytest.raises(StoreError, match=f"no segment at {end_offset} can be made"):
        log.at_end()
    assert files.names(folder) == names(1, 2)


def test_prepare_makes_the_next_segment_once(files: FileSystem, folder: Path) -> None:
    log = opened(files, folder)
    assert not log.prepare()
    log.at_end()
    assert log.prepare()
    assert not log.prepare()
    assert files.names(folder) == names(2)
    assert len(log.segments) == 1
    assert log.slice(SIZE, 1) is None


def test_at_end_takes_the_prepared_segment(folder: Path) -> None:
    disk = SimulatedDisk()
    disk.make_folder(folder.parent)
    log = opened(disk, folder)
    log.at_end()
    log.prepare()
    steps = disk.steps
    log.end_offset = SIZE
    assert log.at_end().base_offset == SIZE
    assert disk.steps == steps
    assert log.prepare()


def test_segment_that_is_wanted_while_it_is_being_prepared_is_made_once(folder: Path) -> None:
    class SlowToSync(OsFileSystem):
        def sync_folder(self, folder: Path) -> None:
            if threading.current_thread() is not threading.main_thread():
                is_making.set()
                assert goes_on.wait(10)
            super().sync_folder(folder)

    is_making, goes_on = threading.Event(), threading.Event()
    log = SegmentLog(folder, SIZE, SlowToSync(), new_guard=threading.Lock)
    log.at_end()
    beside = threading.Thread(target=log.prepare)
    beside.start()
    assert is_making.wait(10)
    threading.Timer(0.01, goes_on.set).start()
    log.end_offset = SIZE
    segment = log.at_end()
    beside.join()
    assert [each.base_offset for each in log.segments] == [0, SIZE]
    assert segment is log.segments[-1]
    log.close()
    assert not log.prepare(), "of a log that is closed"


def _asked_for_blocks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Where blocks are wanted, and how many bytes of them; each wish is granted."""
    asked: list[tuple[int, int]] = []

    def grant(descriptor: int, start: int, size: int) -> bool:
        asked.append((start, size))
        return True

    monkeypatch.setattr("fusee.store.filesystem.set_blocks_aside", grant)
    return asked


@pytest.mark.parametrize(("used", "is_asked"), [(SIZE // 4 - 1, False), (SIZE // 4, True)])
def test_prepare_sets_blocks_aside_when_the_last_segment_is_being_filled(
    folder: Path, monkeypatch: pytest.MonkeyPatch, used: int, is_asked: bool
) -> None:
    asked = _asked_for_blocks(monkeypatch)
    log = opened(OsFileSystem(), folder)
    log.at_end()
    log.end_offset = used
    log.prepare()
    log.prepare()
    assert asked == ([(0, SIZE)] if is_asked else [])
    log.close()


def test_prepare_sets_no_blocks_aside_on_a_disk_with_little_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(OsFileSystem):
        def space(self, path: Path) -> Space:
            return Space(100 * SIZE, 7 * SIZE)

    asked = _asked_for_blocks(monkeypatch)
    log = opened(Small(), folder)
    log.at_end()
    log.end_offset = SIZE
    assert log.prepare()
    assert asked == []
    log.close()


def test_prepared_segment_is_taken_up_by_the_next_open(files: FileSystem, folder: Path) -> None:
    log = filled(files, folder, 1)
    log.prepare()
    log.close()
    again = opened(files, folder)
    assert again.end_offset == 2 * SIZE
    again.truncate(SIZE)
    assert files.names(folder) == names(1)


# Finding


@given(first=st.integers(0, 3), count=st.integers(1, 4), offset=st.integers(-SIZE, 8 * SIZE))
def test_locate_finds_the_segment_that_covers_an_offset(first: int, count: int, offset: int) -> None:
    disk = SimulatedDisk()
    log = opened(disk, Path("/log"), SIZE)
    log.end_offset = first * SIZE
    for _ in range(count):
        log.at_end()
        log.end_offset += SIZE
    found = log.locate(offset)
    if first * SIZE <= offset < (first + count) * SIZE:
        assert found is not None
        assert found.base_offset <= offset < found.end_offset
    else:
        assert found is None


def test_slice_never_crosses_a_border(files: FileSystem, folder: Path) -> None:
    log = filled(files, folder, 2)
    assert log.slice(SIZE - 2, 3) is None
    assert bytes(log.slice(SIZE - 2, 2) or b"") == b"\1\1"
    assert bytes(log.slice(SIZE, 2) or b"") == b"\2\2"


@pytest.mark.parametrize("offset", [-1, SIZE - 1, 2 * SIZE])
def test_write_outside_or_across_segments_is_refused(files: FileSystem, folder: Path, offset: int) -> None:
    log = filled(files, folder, 2)
    with pytest.raises(StoreError, match=f"no segment holds \\[{offset}, {offset + 2}\\)"):
        log.write(b"xx", offset)


# Truncating


@pytest.mark.parametrize("end_offset", [0, 1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, 3 * SIZE - 1, 3 * SIZE])
def test_truncate_clears_everything_behind(files: FileSystem, folder: Path, end_offset: int) -> None:
    log = filled(files, folder, 3)
    before = b"".join(bytes([number]) * SIZE for number in (1, 2, 3))
    log.truncate(end_offset)
    assert log.end_offset == end_offset
    kept = max(-(-end_offset // SIZE), 1)
    assert files.names(folder) == names(kept)
    log.close()
    again = opened(files, folder)
    content = b"".join(bytes(segment.file.view()) for segment in again.segments)
    assert content == before[:end_offset] + bytes(kept * SIZE - end_offset)


def test_truncate_then_append_shows_no_stale_bytes(files: FileSystem, folder: Path) -> None:
    log = filled(files, folder, 3)
    log.truncate(SIZE + 10)
    log.write(b"new", SIZE + 10)
    log.end_offset = 2 * SIZE
    log.at_end()
    assert bytes(log.slice(SIZE + 8, 8) or b"") == b"\2\2new\0\0\0"
    assert bytes(log.slice(2 * SIZE, SIZE) or b"") == bytes(SIZE)


def test_truncate_removes_the_prepared_segment(files: FileSystem, folder: Path) -> None:
    log = filled(files, folder, 2)
    log.prepare()
    log.truncate(SIZE + 1)
    assert files.names(folder) == names(2)
    log.end_offset = 2 * SIZE
    assert log.at_end().base_offset == 2 * SIZE


@pytest.mark.parametrize("end_offset", [2 * SIZE, 2 * SIZE + 5, 3 * SIZE])
def test_truncate_of_everything_keeps_an_empty_segment_that_tells_the_end(
    files: FileSystem, folder: Path, end_offset: int
) -> None:
    log = opened(files, folder)
    log.end_offset = 3 * SIZE
    log.at_end()
    log.write(b"x", 3 * SIZE)
    log.truncate(end_offset)
    base = end_offset - end_offset % SIZE
    assert (log.end_offset, files.names(folder)) == (end_offset, [segment_name(base)])
    log.close()
    again = opened(files, folder)
    assert again.min_offset == base
    assert bytes(again.slice(base, SIZE) or b"") == bytes(SIZE)
    assert log.at_end().base_offset == base


def test_truncate_of_an_empty_log_sets_the_end(files: FileSystem, folder: Path) -> None:
    log = opened(files, folder)
    log.truncate(0)
    assert log.end_offset == 0
    assert not files.exists(folder)


# Dropping the head


@pytest.mark.parametrize(
    ("offset", "dropped"), [(0, 0), (SIZE - 1, 0), (SIZE, 1), (2 * SIZE + 1, 2), (3 * SIZE, 2), (99 * SIZE, 2)]
)
def test_drop_head_removes_whole_segments_but_never_the_last(
    files: FileSystem, folder: Path, offset: int, dropped: int
) -> None:
    log = filled(files, folder, 3)
    assert log.drop_head(offset) == [folder / name for name in names(dropped)]
    assert files.names(folder) == names(3 - dropped, dropped)
    assert (log.min_offset, log.end_offset) == (dropped * SIZE, 3 * SIZE)
    assert bytes(log.slice(2 * SIZE, 2) or b"") == b"\3\3"
    assert (log.slice(0, 1) is None) == (dropped > 0)


def test_drop_head_of_an_empty_log_drops_nothing(files: FileSystem, folder: Path) -> None:
    assert opened(files, folder).drop_head(SIZE) == []


def test_slices_stay_valid_after_drop_head_truncate_and_close(files: FileSystem, folder: Path) -> None:
    log = filled(files, folder, 3)
    first, last = log.slice(10, 5), log.slice(2 * SIZE, 5)
    assert first is not None
    assert last is not None
    log.drop_head(SIZE)
    log.truncate(2 * SIZE)
    log.close()
    assert (bytes(first), bytes(last)) == (b"\1" * 5, b"\3" * 5)


def test_close_twice_is_no_error(files: FileSystem, folder: Path) -> None:
    log = filled(files, folder, 1)
    log.prepare()
    log.close()
    log.close()


# Damage while open


@pytest.mark.parametrize("victim", [0, 1])
def test_file_cut_while_open_gives_an_error_and_never_sigbus(tmp_path: Path, victim: int) -> None:
    program = textwrap.dedent(
        f"""
        import os, sys
        from pathlib import Path
        from fusee.errors import StoreCorruptError
        from fusee.store.filesystem import OsFileSystem
        from fusee.store.segment_log import SegmentLog

        log = SegmentLog(Path(sys.argv[1]), 65536, OsFileSystem())
        log.open()
        for base in (0, 65536):
            log.end_offset = base
            log.at_end()
            log.write(b"x" * 65536, base)
        log.slice(0, 1), log.slice(65536, 1)
        os.truncate(log.segments[{victim}].file.path, 10)
        try:
            bytes(log.slice({victim} * 65536 + 60000, 100))
        except StoreCorruptError as error:
            print("refused:", error)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "log")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done
    assert "was cut from 65536 to 10 bytes" in done.stdout


def test_cut_before_open_of_the_last_file_reads_zeros_and_of_another_is_an_error(tmp_path: Path) -> None:
    files = OsFileSystem()
    filled(files, tmp_path / "log", 2).close()
    os.truncate(tmp_path / "log" / segment_name(SIZE), 10)
    log = opened(files, tmp_path / "log")
    assert bytes(log.slice(SIZE, SIZE) or b"") == b"\2" * 10 + bytes(SIZE - 10)
    log.close()
    os.truncate(tmp_path / "log" / segment_name(0), 10)
    with pytest.raises(StoreError, match=f"has 10 bytes where {SIZE} are configured"):
        opened(files, tmp_path / "log")


# Crashes: a log opens whenever the machine stops, and keeps what was synced


def _script(disk: SimulatedDisk) -> dict[int, int]:
    """Grow, roll, prepare, truncate, drop; gives what was synced as {segment base: number it is full of}."""
    synced: dict[int, int] = {}
    log = opened(disk, Path("/store/log"))
    try:
        for number in range(1, 6):
            log.end_offset = log.at_end().base_offset
            base = log.end_offset
            log.write(bytes([number]) * SIZE, base)
            log.end_offset = base + SIZE
            if number != 3:
                log.segments[-1].file.sync()
                synced[base] = number
            log.prepare()
        synced.pop(4 * SIZE)
        synced.pop(3 * SIZE)
        log.truncate(2 * SIZE + 100)
        synced.pop(0)
        log.drop_head(SIZE)
        synced.pop(SIZE)
        log.drop_head(2 * SIZE)
    except SimulatedCrash:
        pass
    return synced


def _crash_points() -> int:
    disk = SimulatedDisk()
    _script(disk)
    return disk.steps


@pytest.mark.parametrize("tear_at", [0, 1, 5000])
def test_log_opens_after_a_crash_at_any_step(tear_at: int) -> None:
    for step in range(1, _crash_points() + 1):
        disk = SimulatedDisk()
        disk.stop_at(step, tear_at=tear_at)
        synced = _script(disk)
        for seed, outcome in enumerate((*Outcome, Outcome.SCATTERED, Outcome.SCATTERED, Outcome.SCATTERED)):
            after = disk.crash(seed, outcome)
            where = f"step {disk.operations[-1]}, seed {seed}, {outcome}"
            try:
                log = opened(after, Path("/store/log"))
            except StoreError as error:
                pytest.fail(f"{where}: {error}")
            for base, number in synced.items():
                part = log.slice(base, SIZE)
                # What comes before a synced segment may be lost, and truncation may be on its way: then it is zeros.
                assert part is not None, where
                assert bytes(part) in (bytes([number]) * SIZE, _partly_cleared(part, number)), where
            log.end_offset = log.segments[-1].end_offset if log.segments else 0
            log.at_end()


def _partly_cleared(part: memoryview, number: int) -> bytes:
    """The same bytes if each is the number or zero, which a truncation in progress leaves."""
    content = bytes(part)
    return content if set(content) <= {number, 0} else b""


def test_truncate_is_durable_when_it_returns() -> None:
    for outcome in Outcome:
        disk = SimulatedDisk()
        log = filled(disk, Path("/log"), 3)
        for segment in log.segments:
            segment.file.sync()
        log.truncate(SIZE + 10)
        after = opened(disk.crash(1, outcome), Path("/log"))
        assert after.end_offset == 2 * SIZE
        assert bytes(after.slice(SIZE, SIZE) or b"") == b"\2" * 10 + bytes(SIZE - 10)


def test_full_disk_while_rolling_leaves_the_log_as_it_was() -> None:
    disk = SimulatedDisk()
    log = filled(disk, Path("/log"), 1)
    disk.fail_at(disk.steps + 1, 28)
    with pytest.raises(StoreFullError):
        log.at_end()
    assert len(log.segments) == 1
    assert log.at_end().base_offset == SIZE
