"""One contract for the files of this machine and for the simulated disk; then what only the real ones can show."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fusee.clock import ManualClock
from fusee.errors import StoreCorruptError, StoreError, StoreFullError
from fusee.store.filesystem import FileSystem, OsFileSystem, Space, store_error
from fusee.store.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(params=["os", "simulated"])
def files(request: pytest.FixtureRequest) -> FileSystem:
    return OsFileSystem() if request.param == "os" else SimulatedDisk()


@pytest.fixture
def root(files: FileSystem, tmp_path: Path) -> Path:
    files.make_folder(tmp_path)
    return tmp_path


# Files


def blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.mark.skipif(sys.platform != "linux", reason=f"{sys.platform} has no fallocate")
def test_large_writes_have_blocks_set_aside_for_those_that_follow(tmp_path: Path) -> None:
    file = OsFileSystem().open(tmp_path / "a", size=1 << 30)
    file.write(b"x" * 1000, 0)
    few = blocks(file.path)
    file.write(b"y" * 300_000, 1000)
    aside = blocks(file.path)
    assert aside > few + 60_000_000
    file.write_all([b"z" * 300_000, b"z"], 301_000)
    assert blocks(file.path) == aside
    assert bytes(file.view()[:1000]) == b"x" * 1000
    assert bytes(file.view()[601_000:602_000]) == b"z" + bytes(999)
    # what is set aside is as empty as before
    assert [end for _, end in file.written_ranges(0)][-1] < 700_000
    file.close()


def test_blocks_are_not_set_aside_behind_the_end(tmp_path: Path) -> None:
    file = OsFileSystem().open(tmp_path / "a", size=400_000)
    file.write(b"y" * 400_000, 0)
    assert (tmp_path / "a").stat().st_size == 400_000
    file.close()


def test_write_does_without_blocks_set_aside_where_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refuse(descriptor: int, start: int, size: int) -> bool:
        asked.append(start)
        return False

    monkeypatch.setattr("fusee.store.filesystem.set_blocks_aside", refuse)
    file = OsFileSystem().open(tmp_path / "a", size=2_000_000)
    for position in (0, 300_000, 600_000):
        file.write(b"y" * 300_000, position)
    assert bytes(file.view()[:900_001]) == b"y" * 900_000 + b"\0"
    assert asked == [0]
    file.close()


def test_open_with_size_makes_a_file_of_zeros(files: FileSystem, root: Path) -> None:
    file = files.open(root / "a", size=10_000)
    assert (file.path, file.size, files.size(root / "a")) == (root / "a", 10_000, 10_000)
    assert bytes(file.view()) == bytes(10_000)
    file.close()


def test_open_without_size_when_missing_names_the_file(files: FileSystem, root: Path) -> None:
    with pytest.raises(StoreError, match=f"{root / 'a'}: No such file"):
        files.open(root / "a")


def test_open_in_missing_folder_names_the_file(files: FileSystem, root: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        files.open(root / "none" / "a", size=1)


def test_open_of_a_folder_is_refused(files: FileSystem, root: Path) -> None:
    files.make_folder(root / "a")
    with pytest.raises(StoreError, match="Is a directory"):
        files.open(root / "a", size=1)


def test_open_below_a_file_is_refused(files: FileSystem, root: Path) -> None:
    files.open(root / "a", size=1).close()
    with pytest.raises(StoreError, match="Not a directory"):
        files.open(root / "a" / "b", size=1)


def test_open_again_grows_but_never_cuts(files: FileSystem, root: Path) -> None:
    file = files.open(root / "a", size=10)
    file.write(b"0123456789", 0)
    file.close()
    assert files.open(root / "a", size=4).size == 10
    grown = files.open(root / "a", size=20)
    assert (grown.size, bytes(grown.view())) == (20, b"0123456789" + bytes(10))
    same = files.open(root / "a")
    assert same.size == 20


def test_write_is_seen_by_views_and_reads_made_before(files: FileSystem, root: Path) -> None:
    file = files.open(root / "a", size=10_000)
    view = file.view()
    file.write(bytearray(b"hello"), 4_094)
    file.write(memoryview(b"-world-")[1:6], 4_099)
    assert bytes(view[4_094:4_104]) == b"helloworld"
    assert file.read(4_094, 10) == b"helloworld"
    assert file.read(9_998, 10) == bytes(2)
    assert files.read_file(root / "a")[4_094:4_104] == b"helloworld"


def test_write_of_nothing_does_nothing(files: FileSystem, root: Path) -> None:
    file = files.open(root / "a", size=4)
    file.write(b"", 4)
    assert bytes(file.view()) == bytes(4)


def test_write_behind_the_end_is_refused_whole(files: FileSystem, root: Path) -> None:
    file = files.open(root / "a", size=4)
    with pytest.raises(StoreError, match="3 bytes at 2 do not fit into 4"):
        file.write(b"abc", 2)
    assert bytes(file.view()) == bytes(4)


def test_view_is_read_only(files: FileSystem, root: Path) -> None:
    view = files.open(root / "a", size=4).view()
    with pytest.raises(TypeError):
        view[0] = 1


def test_view_of_an_empty_file_is_empty(files: FileSystem, root: Path) -> None:
    assert bytes(files.open(root / "a", size=0).view()) == b""


def test_view_outlives_close_and_removal(files: FileSystem, root: Path) -> None:
    file = files.open(root / "a", size=8192)
    file.write(b"kept", 4094)
    part = file.view()[4094:4098]
    file.close()
    files.remove(root / "a")
    assert bytes(part) == b"kept"
    assert not files.exists(root / "a")


@pytest.mark.parametrize("position", [0, 1, 4095, 4096, 5000, 19_999, 20_000])
def test_clear_from_zeroes_the_rest_and_keeps_the_size(files: FileSystem, root: Path, position: int) -> None:
    file = files.open(root / "a", size=20_000)
    file.write(b"x" * 9_000, 0)
    file.write(b"y" * 100, 19_900)
    expected = bytes(file.view())[:position] + bytes(20_000 - position)
    view = file.view()
    file.clear_from(position)
    assert bytes(view) == expected
    assert files.read_file(root / "a") == expected
    file.write(b"z", 0)
    assert view[0] == ord("z")


def test_file_after_close_refuses_everything_but_sync(files: FileSystem, root: Path) -> None:
    file = files.open(root / "a", size=4)
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [
        file.view,
        lambda: file.read(0, 1),
        lambda: file.write(b"a", 0),
        lambda: file.clear_from(0),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=str(root / "a")):
            call()


def test_sync_after_close_and_after_removal_is_no_error(files: FileSystem, root: Path) -> None:
    file = files.open(root / "a", size=4)
    file.write(b"abcd", 0)
    file.sync()
    file.close()
    file.sync()
    files.remove(root / "a")
    file.sync()


# Names


def test_names_are_sorted_and_none_without_folder(files: FileSystem, root: Path) -> None:
    for name in ("b", "a", "c"):
        files.open(root / name, size=0).close()
    files.make_folder(root / "d")
    assert files.names(root) == ["a", "b", "c", "d"]
    assert files.names(root / "none") == []


def test_names_of_a_file_is_refused(files: FileSystem, root: Path) -> None:
    files.open(root / "a", size=0).close()
    with pytest.raises(StoreError, match="Not a directory"):
        files.names(root / "a")


def test_exists_and_is_folder(files: FileSystem, root: Path) -> None:
    files.open(root / "a", size=0).close()
    files.make_folder(root / "d" / "e")
    assert [files.exists(root / name) for name in ("a", "d", "d/e", "none")] == [True, True, True, False]
    assert [files.is_folder(root / name) for name in ("a", "d", "d/e", "none")] == [False, True, True, False]


def test_make_folder_again_is_no_error(files: FileSystem, root: Path) -> None:
    files.make_folder(root / "d" / "e")
    files.make_folder(root / "d" / "e")
    assert files.names(root / "d") == ["e"]


def test_make_folder_below_a_file_is_refused(files: FileSystem, root: Path) -> None:
    files.open(root / "a", size=0).close()
    with pytest.raises(StoreError, match="Not a directory"):
        files.make_folder(root / "a" / "b")


def test_remove_of_nothing_is_no_error(files: FileSystem, root: Path) -> None:
    files.remove(root / "none")
    files.remove_folder(root / "none")


def test_remove_folder_only_when_empty(files: FileSystem, root: Path) -> None:
    files.make_folder(root / "d")
    files.open(root / "d" / "a", size=0).close()
    with pytest.raises(StoreError, match="not empty"):
        files.remove_folder(root / "d")
    files.remove(root / "d" / "a")
    files.remove_folder(root / "d")
    assert not files.exists(root / "d")


def test_remove_of_a_folder_as_a_file_is_refused(files: FileSystem, root: Path) -> None:
    files.make_folder(root / "d")
    with pytest.raises(StoreError, match="Is a directory"):
        files.remove(root / "d")
    files.open(root / "a", size=0).close()
    with pytest.raises(StoreError, match="Not a directory"):
        files.remove_folder(root / "a")


def test_rename_replaces_the_target(files: FileSystem, root: Path) -> None:
    for name, content in (("new", b"2"), ("old", b"1")):
        file = files.open(root / name, size=1)
        file.write(content, 0)
        file.close()
    files.rename(root / "new", root / "old")
    files.sync_folder(root)
    assert files.names(root) == ["old"]
    assert files.read_file(root / "old") == b"2"


def test_rename_to_another_folder(files: FileSystem, root: Path) -> None:
    files.make_folder(root / "d")
    files.open(root / "a", size=3).close()
    files.rename(root / "a", root / "d" / "b")
    assert files.names(root) == ["d"]
    assert files.size(root / "d" / "b") == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda files, path: files.size(path),
        lambda files, path: files.modified_ms(path),
        lambda files, path: files.read_file(path),
        lambda files, path: files.rename(path, path.with_name("b")),
        lambda files, path: files.sync_folder(path),
    ],
    ids=["size", "modified_ms", "read_file", "rename", "sync_folder"],
)
def test_what_is_missing_is_named(files: FileSystem, root: Path, call: Callable[[FileSystem, Path], object]) -> None:
    with pytest.raises(StoreError, match=f"{root / 'none'}: No such file"):
        call(files, root / "none")


def test_space_of_a_path_that_is_not_there_yet(files: FileSystem, root: Path) -> None:
    space = files.space(root / "later" / "deeper")
    assert 0 < space.free <= space.total
    assert 0.0 <= space.used_ratio < 1.0


def test_used_ratio_of_nothing_is_zero() -> None:
    assert Space(0, 0).used_ratio == 0.0
    assert Space(200, 50).used_ratio == 0.75


# Locks


def test_lock_is_held_once_in_a_process(files: FileSystem, root: Path) -> None:
    lock = files.lock(root / "lock")
    with pytest.raises(StoreError, match="open already"):
        files.lock(root / "lock")
    # The refused attempt must not have ended the first lock, which is what POSIX does when any descriptor closes.
    with pytest.raises(StoreError, match="open already"):
        files.lock(root / "lock")
    lock.release()
    lock.release()
    files.lock(root / "lock").release()
    assert files.read_file(root / "lock") == b"lock"


def _try_lock(path: Path, answer: object) -> None:
    try:
        OsFileSystem().lock(path)
        text = "locked"
    except StoreError as error:
        text = str(error)
    answer.put(text)  # type: ignore[attr-defined]


def test_lock_is_held_against_other_processes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()

    def ask() -> str:
        process = context.Process(target=_try_lock, args=(tmp_path / "lock", answers))
        process.start()
        process.join()
        return str(answers.get())

    lock = OsFileSystem().lock(tmp_path / "lock")
    assert "held by another process" in ask()
    lock.release()
    assert ask() == "locked"


def test_lock_in_missing_folder_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        OsFileSystem().lock(tmp_path / "none" / "lock")


# What only the real file system can show


def test_os_files_are_sparse(tmp_path: Path) -> None:
    file = OsFileSystem().open(tmp_path / "a", size=1 << 30)
    file.write(b"x", 1 << 29)
    file.sync()
    assert (tmp_path / "a").stat().st_blocks * 512 < 1 << 20
    file.clear_from(0)
    assert (tmp_path / "a").stat().st_blocks * 512 < 1 << 20
    assert file.view()[1 << 29] == 0


def test_os_clear_from_never_shows_a_shorter_file(tmp_path: Path) -> None:
    file = OsFileSystem().open(tmp_path / "a", size=1 << 22)
    file.write(b"x" * (1 << 22), 0)
    sizes: set[int] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            sizes.add((tmp_path / "a").stat().st_size)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(20):
        file.clear_from(5)
    done.set()
    watcher.join()
    assert sizes <= {1 << 22}


def test_os_modified_ms_is_the_time_of_the_last_write(tmp_path: Path) -> None:
    os.utime(OsFileSystem().open(tmp_path / "a", size=1).path, ns=(0, 1_700_000_000_123_456_789))
    assert OsFileSystem().modified_ms(tmp_path / "a") == 1_700_000_000_123


def test_os_close_keeps_the_descriptor_of_a_sync_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OsFileSystem()
    file = files.open(tmp_path / "a", size=1)
    inside, go_on = threading.Event(), threading.Event()
    synced: list[str] = []

    def slow_sync(descriptor: int) -> None:
        inside.set()
        go_on.wait(10)
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fdatasync", slow_sync)
    worker = threading.Thread(target=file.sync)
    worker.start()
    inside.wait(10)
    file.close()
    other = files.open(tmp_path / "b", size=1)  # would be given the same number
    go_on.set()
    worker.join()
    assert synced == [str(tmp_path / "a")]
    other.close()


def test_os_close_closes_the_descriptor(tmp_path: Path) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for _ in range(5):
        file = OsFileSystem().open(tmp_path / "a", size=4096)
        file.view()
        file.close()
    assert count() == before


def test_os_sync_failure_is_a_store_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    file = OsFileSystem().open(tmp_path / "a", size=1)
    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(StoreError, match=f"{tmp_path / 'a'}: Input/output error"):
        file.sync()


def test_os_write_goes_on_after_a_short_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsFileSystem().open(tmp_path / "a", size=10)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, position: real(descriptor, data[:3], position))
    file.write(b"0123456789", 0)
    assert bytes(file.view()) == b"0123456789"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_names_path_bytes_and_remedy(code: int) -> None:
    error = store_error(OSError(code, os.strerror(code)), Path("/store/commitlog/0"), 4096)
    assert isinstance(error, StoreFullError)
    assert error.retryable
    for part in ("4096 bytes", "/store/commitlog/0", "fileReservedTime"):
        assert part in str(error)


def test_another_error_has_its_reason() -> None:
    error = store_error(OSError(errno.EACCES, "Permission denied"), Path("/store"), 1)
    assert type(error) is StoreError
    assert str(error) == "/store: Permission denied"


def test_view_of_a_file_that_was_cut_raises_and_never_ends_in_sigbus(tmp_path: Path) -> None:
    """In a process of its own: SIGBUS would take this one along."""
    program = textwrap.dedent(
        """
        import os, sys
        from pathlib import Path
        from fusee.errors import StoreCorruptError
        from fusee.store.filesystem import OsFileSystem

        path = Path(sys.argv[1])
        file = OsFileSystem().open(path, size=1 << 20)
        file.view()
        os.truncate(path, 4096)
        try:
            file.view()[1 << 19]
        except StoreCorruptError as error:
            print("refused:", error)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done
    assert f"refused: {tmp_path / 'a'} was cut from 1048576 to 4096 bytes" in done.stdout


def test_cut_before_the_first_view_raises(tmp_path: Path) -> None:
    file = OsFileSystem().open(tmp_path / "a", size=8192)
    os.truncate(tmp_path / "a", 100)
    with pytest.raises(StoreCorruptError, match="from 8192 to 100 bytes"):
        file.view()


def test_simulated_modified_ms_is_the_time_of_the_last_write() -> None:
    clock = ManualClock(1_000)
    disk = SimulatedDisk(clock)
    file = disk.open(Path("/a"), size=1)
    clock.advance(5)
    assert disk.modified_ms(Path("/a")) == 1_000
    file.write(b"x", 0)
    assert disk.modified_ms(Path("/a")) == 6_000


def test_forgotten_pages_are_still_readable(tmp_path: Path) -> None:
    file = OsFileSystem().open(tmp_path / "f", size=64 * 1024)
    file.forget(0, 10)
    file.write(b"x" * 64 * 1024, 0)
    view = file.view()
    assert view[5000] == ord("x")
    file.forget(100, 1_000_000)
    assert view[5000] == ord("x")
    file.close()
