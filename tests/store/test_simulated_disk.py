"""The faulty twin itself: it loses, tears, reorders, fills up and fails; and what is right on it stays right."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.clock import ManualClock
from fusee.errors import StoreError, StoreFullError
from fusee.store.simulated_disk import PAGE_SIZE, SECTOR_SIZE, Outcome, SimulatedCrash, SimulatedDisk

A, B, FOLDER = Path("/a"), Path("/b"), Path("/d")
SEEDS = range(200)


def disk_with(path: Path = A, size: int = 4 * PAGE_SIZE) -> SimulatedDisk:
    """A disk with one durable file of zeros."""
    disk = SimulatedDisk()
    disk.open(path, size=size).sync()
    disk.sync_folder(path.parent)
    return disk


# What survives


@given(seed=st.integers(0, 1 << 32), outcome=st.sampled_from(Outcome))
def test_what_was_synced_is_there_after_any_crash(seed: int, outcome: Outcome) -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    file = disk.open(FOLDER / "a", size=10_000)
    file.write(b"x" * 10_000, 0)
    file.sync()
    disk.sync_folder(FOLDER)
    file.write(b"y" * 100, 5_000)
    after = disk.crash(seed, outcome).read_file(FOLDER / "a")
    assert after[:5_000] == b"x" * 5_000
    assert after[5_100:] == b"x" * 4_900
    assert set(after[5_000:5_100]) <= set(b"xy")


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.NOTHING, {"/a": b"old"}),
        (Outcome.EVERYTHING, {"/a": b"new", "/b": b"bbb"}),
        (Outcome.NAMES, {"/a": b"old", "/b": b""}),
        (Outcome.CONTENTS, {"/a": b"new"}),
    ],
)
def test_outcomes_by_name(outcome: Outcome, expected: dict[str, bytes]) -> None:
    disk = disk_with(size=3)
    old = disk.open(A)
    old.write(b"old", 0)
    old.sync()
    old.write(b"new", 0)
    disk.open(B, size=3).write(b"bbb", 0)
    assert disk.crash(0, outcome).contents() == expected


def test_pending_write_can_be_lost_kept_and_torn_at_any_byte() -> None:
    disk = disk_with()
    disk.open(A).write(b"x" * 20, 500)
    lengths = set()
    for seed in range(2_000):
        content = disk.crash(seed, Outcome.SCATTERED).read_file(A)
        kept = content.count(b"x")
        if content[500 : 500 + kept] == b"x" * kept:
            lengths.add(kept)
    assert lengths == set(range(21))


def test_pending_writes_can_be_reordered() -> None:
    disk = disk_with()
    file = disk.open(A)
    file.write(b"1" * SECTOR_SIZE, 0)
    file.write(b"2" * SECTOR_SIZE, SECTOR_SIZE)
    file.write(b"3" * SECTOR_SIZE, 2 * PAGE_SIZE)
    seen = set()
    for seed in SEEDS:
        content = disk.crash(seed, Outcome.SCATTERED).read_file(A)
        seen.add((content[:1], content[SECTOR_SIZE : SECTOR_SIZE + 1], content[2 * PAGE_SIZE : 2 * PAGE_SIZE + 1]))
    zero = b"\0"
    assert (zero, b"2", zero) in seen
    assert (zero, b"2", b"3") in seen
    assert (b"1", zero, b"3") in seen


def test_a_moment_keeps_the_order_of_writes_across_files() -> None:
    disk = disk_with(A)
    disk.open(B, size=SECTOR_SIZE).sync()
    disk.sync_folder(Path("/"))
    disk.open(A).write(b"1" * 100, 0)
    disk.open(B).write(b"2" * 100, 0)
    seen = set()
    for seed in SEEDS:
        after = disk.crash(seed, Outcome.MOMENT)
        first, second = after.read_file(A)[:100].count(b"1"), after.read_file(B)[:100].count(b"2")
        assert second == 0 or first == 100
        seen.add((first > 0, second > 0))
    assert seen == {(False, False), (True, False), (True, True)}


def test_overwritten_sector_can_have_any_of_its_versions() -> None:
    disk = disk_with()
    file = disk.open(A)
    for value in (b"1", b"2", b"3"):
        file.write(value, 0)
    assert {disk.crash(seed, Outcome.SCATTERED).read_file(A)[:1] for seed in SEEDS} == {b"\0", b"1", b"2", b"3"}


def test_synced_file_without_synced_name_can_be_lost() -> None:
    disk = SimulatedDisk()
    file = disk.open(A, size=3)
    file.write(b"abc", 0)
    file.sync()
    assert {disk.crash(seed).exists(A) for seed in SEEDS} == {True, False}
    assert not disk.crash(0, Outcome.NOTHING).exists(A)
    disk.sync_folder(Path("/"))
    assert {disk.crash(seed).read_file(A) for seed in SEEDS} == {b"abc"}


def test_synced_name_of_an_unsynced_file_can_be_empty() -> None:
    disk = SimulatedDisk()
    disk.open(A, size=100)
    disk.sync_folder(Path("/"))
    assert {disk.crash(seed).size(A) for seed in SEEDS} == {0, 100}


def test_grown_size_is_pending_until_sync() -> None:
    disk = disk_with(size=10)
    file = disk.open(A, size=20)
    file.write(b"x", 15)
    assert {disk.crash(seed).size(A) for seed in SEEDS} == {10, 20}
    file.sync()
    assert {disk.crash(seed).size(A) for seed in SEEDS} == {20}


def test_removed_name_can_come_back() -> None:
    disk = disk_with()
    disk.remove(A)
    assert {disk.crash(seed).exists(A) for seed in SEEDS} == {True, False}
    disk.sync_folder(Path("/"))
    assert {disk.crash(seed).exists(A) for seed in SEEDS} == {False}


def test_two_removals_can_be_reordered() -> None:
    disk = disk_with(A)
    disk.open(B, size=1)
    disk.sync_folder(Path("/"))
    disk.remove(A)
    disk.remove(B)
    seen = {tuple(disk.crash(seed, Outcome.SCATTERED).names(Path("/"))) for seed in SEEDS}
    assert seen == {(), ("a",), ("b",), ("a", "b")}


def test_rename_is_whole_or_not_at_all() -> None:
    disk = disk_with(A, 1)
    disk.open(A).write(b"1", 0)
    disk.open(A).sync()
    new = disk.open(B, size=1)
    new.write(b"2", 0)
    new.sync()
    disk.sync_folder(Path("/"))
    disk.rename(B, A)
    seen = {tuple(sorted(disk.crash(seed).contents().items())) for seed in SEEDS}
    assert seen == {(("/a", b"1"), ("/b", b"2")), (("/a", b"2"),)}


def test_rename_between_folders_is_whole_or_not_at_all() -> None:
    disk = disk_with(A)
    disk.make_folder(FOLDER)
    disk.rename(A, FOLDER / "a")
    assert {tuple(disk.crash(seed).contents()) for seed in SEEDS} == {("/a",), ("/d/a",)}
    disk.sync_folder(FOLDER)
    assert {tuple(disk.crash(seed).contents()) for seed in SEEDS} == {("/d/a",)}


def test_clear_is_pending_until_sync() -> None:
    disk = disk_with()
    file = disk.open(A)
    file.write(b"x" * 2 * PAGE_SIZE, 0)
    file.sync()
    file.clear_from(100)
    counts = {disk.crash(seed).read_file(A).count(b"x") for seed in SEEDS}
    assert {100, 2 * PAGE_SIZE} < counts
    file.sync()
    assert {disk.crash(seed).read_file(A).count(b"x") for seed in SEEDS} == {100}


def test_folder_whose_name_is_lost_takes_everything_along() -> None:
    disk = SimulatedDisk()
    disk.stop_at(1, tear_at=1)
    with pytest.raises(SimulatedCrash):
        disk.make_folder(FOLDER / "e")
    assert {disk.crash(seed).exists(FOLDER) for seed in SEEDS} == {True, False}


def test_crash_twice_loses_nothing_that_survived_the_first() -> None:
    disk = disk_with()
    disk.open(A).write(b"x" * 1000, 0)
    once = disk.crash(7)
    assert all(once.crash(seed).contents() == once.contents() for seed in range(20))


@given(seed=st.integers(0, 1 << 32))
def test_same_seed_gives_the_same_disk(seed: int) -> None:
    disk = disk_with()
    file = disk.open(A)
    for number in range(20):
        file.write(bytes([number]) * 700, number * 700)
    assert disk.crash(seed).contents() == disk.crash(seed).contents()


def test_crash_leaves_the_disk_before_it_alone() -> None:
    disk = disk_with()
    file = disk.open(A)
    file.write(b"abc", 0)
    after = disk.crash(0, Outcome.EVERYTHING)
    after.open(A).write(b"xyz", 0)
    assert bytes(file.view()[:3]) == b"abc"


def test_kill_keeps_everything_and_syncs_nothing() -> None:
    disk = disk_with()
    disk.make_folder(FOLDER)
    disk.open(A).write(b"abc", 0)
    disk.open(B, size=5).write(b"later", 0)
    disk.rename(B, FOLDER / "b")
    lock = disk.lock(Path("/lock"))
    after = disk.kill()
    assert after.contents() == disk.contents()
    assert after.used == disk.used
    assert after.crash(0, Outcome.NOTHING).contents() == {"/a": bytes(4 * PAGE_SIZE)}
    after.lock(Path("/lock"))
    after.sync_folder(FOLDER)
    assert tuple(after.crash(0, Outcome.NOTHING).contents()) == ("/a", "/d/b")
    lock.release()


# Steps


def test_every_change_is_a_step_and_reads_are_none() -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    file = disk.open(FOLDER / "a", size=100)
    file.write(b"x" * 10, 5)
    file.sync()
    disk.sync_folder(FOLDER)
    file.clear_from(7)
    disk.rename(FOLDER / "a", B)
    disk.remove(B)
    disk.remove_folder(FOLDER)
    assert disk.history.splitlines() == [
        "1 make_folder /d",
        "2 sync_folder /",
        "3 create /d/a [0, 0)",
        "4 grow /d/a [0, 100)",
        "5 write /d/a [5, 15)",
        "6 sync /d/a",
        "7 sync_folder /d",
        "8 clear /d/a [7, 100)",
        "9 rename /d/a -> /b",
        "10 remove /b",
        "11 remove_folder /d",
    ]
    assert disk.counts["sync"] == 1
    file.view()
    file.read(0, 3)
    disk.names(FOLDER)
    disk.open(B, size=None) if disk.exists(B) else None
    assert disk.steps == 11


@pytest.mark.parametrize("tear_at", [0, 1, 6, 99])
def test_stop_tears_a_write_and_everything_after_it_stops_too(tear_at: int) -> None:
    disk = disk_with()
    file = disk.open(A)
    disk.stop_at(disk.steps + 2, tear_at=tear_at)
    file.write(b"first", 0)
    with pytest.raises(SimulatedCrash, match="write /a"):
        file.write(b"second", 100)
    for call in (
        lambda: file.write(b"more", 0),
        file.sync,
        lambda: file.clear_from(0),
        lambda: disk.remove(A),
        lambda: disk.sync_folder(Path("/")),
        lambda: disk.make_folder(FOLDER),
        lambda: disk.rename(A, B),
        lambda: disk.open(B, size=1),
    ):
        with pytest.raises(SimulatedCrash):
            call()
    content = disk.crash(0, Outcome.EVERYTHING).read_file(A)
    assert content[:5] == b"first"
    assert content[100:106] == b"second"[:tear_at] + bytes(6 - min(tear_at, 6))


@pytest.mark.parametrize(("tear_at", "takes_place"), [(0, False), (1, True)])
def test_stop_in_another_step_lets_it_take_place_or_not(tear_at: int, takes_place: bool) -> None:
    disk = disk_with()
    disk.stop_at(disk.steps + 1, tear_at=tear_at)
    with pytest.raises(SimulatedCrash):
        disk.remove(A)
    assert disk.exists(A) is not takes_place

    disk = disk_with()
    file = disk.open(A)
    file.write(b"x", 0)
    disk.stop_at(disk.steps + 1, tear_at=tear_at)
    with pytest.raises(SimulatedCrash):
        file.sync()
    assert disk.crash(0, Outcome.NOTHING).read_file(A)[:1] == (b"x" if takes_place else b"\0")


def test_simulated_crash_is_not_swallowed_as_an_exception() -> None:
    assert not issubclass(SimulatedCrash, Exception)


# Faults


def test_full_disk_takes_what_fits_and_says_so() -> None:
    disk = SimulatedDisk(capacity=2 * PAGE_SIZE)
    file = disk.open(A, size=1 << 20)
    with pytest.raises(StoreFullError, match="no space left for 10000 bytes in /a"):
        file.write(b"x" * 10_000, 100)
    assert bytes(file.view()).count(b"x") == 2 * PAGE_SIZE - 100
    assert disk.space(A) == (2 * PAGE_SIZE, 0, 0)
    file.write(b"y" * PAGE_SIZE, 0)
    with pytest.raises(StoreFullError):
        file.write(b"z", 1 << 19)
    disk.capacity += PAGE_SIZE
    file.write(b"z", 1 << 19)


def test_removing_a_file_frees_its_space_when_it_is_closed_as_well() -> None:
    disk = SimulatedDisk(capacity=PAGE_SIZE)
    file = disk.open(A, size=PAGE_SIZE)
    file.write(b"x", 0)
    other = disk.open(B, size=PAGE_SIZE)
    disk.remove(A)
    with pytest.raises(StoreFullError):
        other.write(b"y", 0)
    file.close()
    other.write(b"y", 0)
    assert disk.used == PAGE_SIZE


def test_replacing_a_file_by_rename_frees_its_space() -> None:
    disk = SimulatedDisk()
    for path in (A, B):
        file = disk.open(path, size=1)
        file.write(b"x", 0)
        file.close()
    disk.rename(A, B)
    assert disk.used == PAGE_SIZE


def test_failed_sync_loses_the_writes_though_the_next_one_succeeds() -> None:
    disk = disk_with()
    file = disk.open(A)
    file.write(b"lost", 0)
    disk.fail_sync()
    with pytest.raises(StoreError, match="/a: Input/output error"):
        file.sync()
    assert bytes(file.view()[:4]) == b"lost"
    file.write(b"kept", 4)
    file.sync()
    assert {disk.crash(seed).read_file(A)[:8] for seed in SEEDS} == {b"\0\0\0\0kept"}


def test_fail_sync_counts_only_under_its_folder() -> None:
    disk = disk_with()
    disk.make_folder(FOLDER)
    inside, outside = disk.open(FOLDER / "a", size=1), disk.open(A)
    disk.fail_sync(2, under=FOLDER)
    inside.sync()
    outside.sync()
    with pytest.raises(StoreError):
        inside.sync()
    inside.sync()


def test_failed_write_applies_a_part_once() -> None:
    disk = disk_with()
    file = disk.open(A)
    disk.fail_write(2, tear_at=3)
    file.write(b"12345", 0)
    with pytest.raises(StoreError, match="Input/output error"):
        file.write(b"abcde", 0)
    assert bytes(file.view()[:5]) == b"abc45"
    file.write(b"fghij", 0)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_any_step_can_fail(code: int) -> None:
    disk = disk_with()
    kind = StoreFullError if code == errno.ENOSPC else StoreError
    for call in (
        lambda: disk.open(B, size=1),
        lambda: disk.remove(A),
        lambda: disk.rename(A, B),
        lambda: disk.make_folder(FOLDER),
        lambda: disk.sync_folder(Path("/")),
        lambda: disk.open(A).write(b"x", 0),
    ):
        disk.fail_at(disk.steps + 1, code)
        with pytest.raises(kind):
            call()
    assert disk.names(Path("/")) == ["a"]


def test_large_files_cost_memory_only_where_written() -> None:
    disk = SimulatedDisk()
    file = disk.open(A, size=1 << 30)
    file.write(b"x", 1 << 29)
    file.sync()
    file.clear_from(0)
    assert disk.counts["clear"] == 1
    assert disk.used == PAGE_SIZE
    assert file.view()[1 << 29] == 0


def test_clock_is_shared_with_the_disk_after_a_crash() -> None:
    clock = ManualClock(1_000)
    disk = SimulatedDisk(clock)
    disk.open(A, size=1)
    clock.advance(1)
    after = disk.crash(0, Outcome.EVERYTHING)
    assert after.clock is clock
    assert after.modified_ms(A) == 1_000


# It catches what it is for: planted bugs


def _replace(disk: SimulatedDisk, content: bytes, *, forget: str = "") -> None:
    """Replace a small file: temporary file, sync, rename, sync of the folder; with one step forgotten."""
    new = A.with_suffix(".tmp")
    if forget != "temporary":
        disk.remove(new)
        file = disk.open(new, size=len(content))
    else:
        file = disk.open(A, size=len(content))
    file.write(content, 0)
    if forget != "sync":
        file.sync()
    file.close()
    if forget != "temporary":
        disk.rename(new, A)
    if forget != "sync_folder":
        disk.sync_folder(Path("/"))


def _failures_of_replace(forget: str) -> set[str]:
    """What goes wrong when a replacement is cut at every step and by many crashes."""
    failures: set[str] = set()
    for step in range(1, 20):
        for seed in range(60):
            disk = SimulatedDisk()
            _replace(disk, b"1" * 2000)
            disk.stop_at(disk.steps + step, tear_at=seed * 37)
            returned = False
            try:
                _replace(disk, b"2" * 2000, forget=forget)
                returned = True
            except SimulatedCrash:
                pass
            after = disk.crash(seed)
            content = after.read_file(A) if after.exists(A) else b""
            if content not in (b"1" * 2000, b"2" * 2000):
                failures.add("torn")
            elif returned and content != b"2" * 2000:
                failures.add("lost")
    return failures


@pytest.mark.parametrize(
    ("forget", "failures"),
    [("", set()), ("sync", {"torn"}), ("sync_folder", {"lost"}), ("temporary", {"torn"})],
)
def test_writer_that_forgets_a_step_is_caught(forget: str, failures: set[str]) -> None:
    assert _failures_of_replace(forget) >= failures
    assert bool(_failures_of_replace(forget)) == bool(failures)


def test_appender_that_acknowledges_before_sync_is_caught() -> None:
    def lost(*, sync_first: bool) -> bool:
        for seed in range(30):
            disk = disk_with()
            file = disk.open(A)
            acknowledged = 0
            disk.stop_at(disk.steps + 1 + seed)
            try:
                for number in range(20):
                    file.write(b"x" * 10, number * 10)
                    if sync_first:
                        file.sync()
                    acknowledged = (number + 1) * 10
            except SimulatedCrash:
                pass
            if disk.crash(seed).read_file(A)[:acknowledged] != b"x" * acknowledged:
                return True
        return False

    assert lost(sync_first=False)
    assert not lost(sync_first=True)
