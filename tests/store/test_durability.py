"""When what is written is on disk, and what a failed sync means."""

from __future__ import annotations

import pytest

from fusee.errors import StoreFailedError
from fusee.store.commit_log import CommitLog
from fusee.store.config import FlushDiskType, StoreConfig
from fusee.store.durability import Durability
from fusee.store.simulated_disk import Outcome, SimulatedDisk
from tests.store.test_commit_log import CONFIG, new_log, put


def test_flush_covers_what_was_written_when_it_began_and_not_what_came_after() -> None:
    log = new_log()
    durability = Durability(log, CONFIG)
    put(log, 100)
    log.write()
    job = durability.begin(timestamp_ms=5)
    assert job is not None
    put(log, 100)
    log.write()
    assert durability.begin(6) is None  # one at a time: the second group waits
    job.run()
    durability.finish(job)
    assert (durability.flushed_offset, durability.flushed_timestamp_ms) == (100, 5)
    second = durability.begin(6)
    assert second is not None
    second.run()
    durability.finish(second)
    assert durability.flushed_offset == 200
    assert durability.begin(7) is None


def test_one_sync_serves_everyone_who_waits() -> None:
    log = new_log()
    durability = Durability(log, CONFIG)
    for _ in range(30):
        put(log, 100)
    log.write()
    job = durability.begin(1)
    assert job is not None
    job.run()
    durability.finish(job)
    assert durability.syncs == 1
    assert durability.flushed_offset == 3000


def test_flush_across_segments_syncs_each() -> None:
    log = new_log()
    durability = Durability(log, CONFIG)
    for _ in range(5):
        put(log, 3000)
    log.write()
    job = durability.begin(1)
    assert job is not None
    assert len(job.files) == 5
    job.run()
    durability.finish(job)
    put(log, 100)
    log.write()
    again = durability.begin(2)
    assert again is not None
    assert len(again.files) == 1


def test_what_was_not_flushed_may_be_lost_and_what_was_is_there() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    durability = Durability(log, CONFIG)
    put(log, 100)
    log.write()
    job = durability.begin(1)
    assert job is not None
    job.run()
    durability.finish(job)
    put(log, 100)
    log.write()
    survived = disk.crash(outcome=Outcome.NOTHING)
    again = CommitLog(log.folder, CONFIG, survived)
    again.open()
    view = again.segments()[0][1].view()
    assert bytes(view[:4]) == (100).to_bytes(4, "big")
    assert bytes(view[100:200]) == b"\0" * 100


def test_failed_sync_is_final() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    durability = Durability(log, CONFIG)
    put(log, 100)
    log.write()
    disk.fail_sync()
    job = durability.begin(1)
    assert job is not None
    job.run()
    with pytest.raises(StoreFailedError, match="since log offset 0 may be lost"):
        durability.finish(job)
    assert durability.flushed_offset == 0
    with pytest.raises(StoreFailedError):
        durability.begin(2)
    with pytest.raises(StoreFailedError):
        durability.check()


def test_async_flush_waits_for_pages_or_for_the_thorough_interval() -> None:
    config = StoreConfig(mapped_file_size_commit_log=1024 * 1024)
    log = new_log(config=config)
    durability = Durability(log, config)
    assert not durability.is_due(100.0)
    put(log, 1000)
    log.write()
    assert durability.is_due(100.0)  # the first thorough one
    assert not durability.is_due(100.4)
    assert not durability.is_due(101.0)  # less than four pages
    for _ in range(20):
        put(log, 1000)
    log.write()
    assert durability.is_due(101.6)
    assert not durability.is_due(101.7)
    assert durability.is_due(112.0)


def test_sync_flush_is_due_at_once() -> None:
    config = StoreConfig(mapped_file_size_commit_log=4096, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    log = new_log(config=config)
    durability = Durability(log, config)
    put(log, 100)
    assert not durability.is_due(0.0)
    log.write()
    assert durability.is_due(0.0)


def test_gathered_records_are_written_at_once_without_the_pool() -> None:
    log = new_log()
    durability = Durability(log, CONFIG)
    assert not durability.is_commit_due(0.0)
    put(log, 100)
    assert durability.is_commit_due(0.0)


def test_transient_pool_commits_by_interval_pages_and_patience() -> None:
    config = StoreConfig(
        mapped_file_size_commit_log=1024 * 1024,
        transient_store_pool_enable=True,
        commit_interval_commit_log=200,
        commit_commit_log_least_pages=4,
        commit_commit_log_thorough_interval=1_000,
    )
    log = new_log(config=config)
    durability = Durability(log, config)
    put(log, 1000)
    assert durability.is_commit_due(10.0)  # has waited longer than the thorough interval
    assert not durability.is_commit_due(10.1)
    assert not durability.is_commit_due(10.3)  # less than four pages
    for _ in range(20):
        put(log, 1000)
    assert durability.is_commit_due(10.6)
    assert log.written_offset == 0  # nothing is readable before the commit step
    log.write()
    assert log.written_offset == 21_000
    assert not durability.is_commit_due(20.0)
