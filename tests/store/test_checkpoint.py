"""Times from which recovery goes back."""

from __future__ import annotations

from pathlib import Path

from fusee.store.checkpoint import Checkpoint
from fusee.store.simulated_disk import Outcome, SimulatedDisk

PATH = Path("/store/checkpoint")


def saved(disk: SimulatedDisk) -> Checkpoint:
    disk.make_folder(PATH.parent)
    checkpoint = Checkpoint(PATH, disk)
    checkpoint.log_timestamp_ms = 10_000
    checkpoint.queues_timestamp_ms = 9_000
    checkpoint.index_timestamp_ms = 5_000
    checkpoint.confirmed_offset = 77
    assert checkpoint.save()
    return checkpoint


def test_what_was_saved_survives_a_crash() -> None:
    disk = SimulatedDisk()
    saved(disk)
    again = Checkpoint(PATH, disk.crash(outcome=Outcome.NOTHING))
    again.load()
    assert (again.log_timestamp_ms, again.queues_timestamp_ms, again.confirmed_offset) == (10_000, 9_000, 77)


def test_file_has_the_layout_of_the_reference() -> None:
    disk = SimulatedDisk()
    saved(disk)
    data = disk.read_file(PATH)
    assert len(data) == 4096
    assert [int.from_bytes(data[at : at + 8], "big") for at in (0, 8, 16, 24, 32)] == [10_000, 9_000, 5_000, 0, 77]


def test_recovery_time_is_the_earliest_less_a_margin() -> None:
    checkpoint = saved(SimulatedDisk())
    assert checkpoint.recovery_timestamp_ms(index_too=False) == 6_000
    assert checkpoint.recovery_timestamp_ms(index_too=True) == 2_000
    assert Checkpoint(PATH, SimulatedDisk()).recovery_timestamp_ms(index_too=True) == 0


def test_unchanged_checkpoint_is_not_written_again() -> None:
    checkpoint = saved(SimulatedDisk())
    assert not checkpoint.save()
    checkpoint.log_timestamp_ms += 1
    assert checkpoint.save()


def test_missing_or_short_file_promises_nothing() -> None:
    disk = SimulatedDisk()
    disk.make_folder(PATH.parent)
    checkpoint = Checkpoint(PATH, disk)
    checkpoint.load()
    assert checkpoint.log_timestamp_ms == 0
    disk.open(PATH, size=10)
    checkpoint.load()
    assert checkpoint.log_timestamp_ms == 0
