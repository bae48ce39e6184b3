"""Which segments go, and when the disk counts as full."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fusee.clock import ManualClock
from fusee.store.config import MIB, StoreConfig
from fusee.store.filesystem import Space
from fusee.store.retention import DiskState, Retention
from fusee.store.simulated_disk import SimulatedDisk

FOLDER = Path("/store/commitlog")
HOUR_MS = 3_600_000


class Disk(SimulatedDisk):
    """A disk that is as full as told."""

    free = 500 * MIB

    def space(self, path: Path) -> Space:
        return Space(1000 * MIB, self.free)


def segments(disk: Disk, clock: ManualClock, ages_hours: list[int]) -> list[Path]:
    """Files last written that many hours ago, oldest first."""
    now = clock.time_ms()
    disk.make_folder(FOLDER)
    paths = []
    for number, age in enumerate(ages_hours):
        clock.jump_wall(now - age * HOUR_MS - clock.time_ms())
        path = FOLDER / f"{number:020d}"
        disk.open(path, size=10).write(b"x", 0)
        paths.append(path)
    clock.jump_wall(now - clock.time_ms())
    return paths


def other_hour(clock: ManualClock) -> str:
    return f"{(time.localtime(clock.time_ms() / 1000).tm_hour + 5) % 24:02d}"


def this_hour(clock: ManualClock) -> str:
    return f"{time.localtime(clock.time_ms() / 1000).tm_hour:02d}"


def test_expired_segments_go_at_the_hour_and_not_at_another() -> None:
    clock = ManualClock()
    disk = Disk(clock)
    paths = segments(disk, clock, [100, 80, 10, 0])
    at_hour = Retention(StoreConfig(delete_when=this_hour(clock)), disk)
    assert at_hour.decide(FOLDER, paths, clock.time_ms()).expired == 2
    later = Retention(StoreConfig(delete_when=other_hour(clock)), disk)
    assert later.decide(FOLDER, paths, clock.time_ms()).expired == 0


def test_delete_by_hand_works_at_any_hour_for_some_rounds() -> None:
    clock = ManualClock()
    disk = Disk(clock)
    paths = segments(disk, clock, [100, 80, 10])
    retention = Retention(StoreConfig(delete_when=other_hour(clock)), disk)
    retention.delete_by_hand()
    assert [retention.decide(FOLDER, paths, clock.time_ms()).expired for _ in range(21)] == [2] * 20 + [0]


def test_last_segment_never_goes_and_a_round_has_a_limit() -> None:
    clock = ManualClock()
    disk = Disk(clock)
    paths = segments(disk, clock, [100] * 15)
    retention = Retention(StoreConfig(delete_when=this_hour(clock)), disk)
    assert retention.decide(FOLDER, paths, clock.time_ms()).expired == 10
    assert retention.decide(FOLDER, paths[:1], clock.time_ms()).expired == 0


@pytest.mark.parametrize(
    ("free_mib", "state", "expired"),
    [
        (500, DiskState.FINE, 0),
        (240, DiskState.EXPIRE_NOW, 1),
        (140, DiskState.FORCE, 3),
        (90, DiskState.FULL, 3),
    ],
)
def test_the_fuller_the_disk_the_sooner_segments_go(free_mib: int, state: DiskState, expired: int) -> None:
    clock = ManualClock()
    disk = Disk(clock)
    disk.free = free_mib * MIB
    paths = segments(disk, clock, [100, 10, 5, 0])
    config = StoreConfig(delete_when=other_hour(clock), disk_free_bytes_min=MIB)
    decision = Retention(config, disk).decide(FOLDER, paths, clock.time_ms())
    assert (decision.state, decision.expired) == (state, expired)


def test_free_bytes_count_beside_percentages() -> None:
    disk = Disk(ManualClock())
    disk.free = 90 * MIB
    enough = StoreConfig(disk_free_bytes_min=MIB, disk_free_bytes_enough=80 * MIB)
    assert Retention(enough, disk).disk_state(FOLDER)[0] is DiskState.FINE
    disk.free = 500 * MIB
    too_little = StoreConfig(disk_free_bytes_min=600 * MIB)
    assert Retention(too_little, disk).disk_state(FOLDER)[0] is DiskState.FULL


def test_without_leave_to_force_only_expired_segments_go() -> None:
    clock = ManualClock()
    disk = Disk(clock)
    disk.free = 90 * MIB
    paths = segments(disk, clock, [100, 10, 0])
    config = StoreConfig(clean_file_forcibly_enable=False, disk_free_bytes_min=MIB)
    assert Retention(config, disk).decide(FOLDER, paths, clock.time_ms()).expired == 1
