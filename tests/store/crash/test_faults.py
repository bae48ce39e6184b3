"""A disk that is full or broken: refused with a clear error, nothing promised is lost, and on it goes when it can."""

from __future__ import annotations

import errno
import os
from functools import cache

import pytest

from fusee.clock import ManualClock
from fusee.errors import StoreError, StoreFailedError, StoreFullError
from fusee.store.simulated_disk import PAGE_SIZE, Operation, Outcome, SimulatedDisk
from tests.store.crash.ledger import ROOT, Ledger, consume, messages_of, small_config
from tests.store.crash.workload import PARTS, run_day

LONG = bool(os.environ.get("FUSEE_LONG"))
SHARDS = 4
_TAKES_SPACE = ("write", "create", "grow", "make_folder")


def new_day(capacity: int | None = None) -> Ledger:
    clock = ManualClock()
    disk = SimulatedDisk(clock)
    if capacity is not None:
        disk.capacity = capacity
    return Ledger(disk, clock, small_config())


@cache
def whole_day() -> tuple[Operation, ...]:
    day = new_day()
    run_day(day)
    return tuple(day.disk.operations)


@cache
def steps_of(name: str) -> range:
    """The steps of the day in which the ledger's method of this name, called once, is at work."""
    day = new_day()
    real = getattr(day, name)
    bounds: list[int] = []

    def watched(*arguments: object) -> object:
        bounds.append(day.disk.steps)
        result = real(*arguments)
        bounds.append(day.disk.steps)
        return result

    setattr(day, name, watched)
    run_day(day)
    assert len(bounds) == 2
    return range(bounds[0] + 1, bounds[1] + 1)


def steps(shard: int, kinds: tuple[str, ...]) -> list[Operation]:
    every = 1 if LONG else 3
    return [operation for operation in whole_day() if operation.kind in kinds][shard :: SHARDS * every]


def run_until_error(day: Ledger) -> StoreError | None:
    try:
        run_day(day)
    except StoreError as error:
        day.forget_unwritten()
        return error
    return None


def go_on(day: Ledger) -> None:
    """Space is free again: everything works, everything promised is there, also after a crash."""
    day.ensure_open()
    day.expire()
    day.store.dispatch()
    for _ in range(2):
        day.clock.advance(10)
        for queue_id in range(3):
            day.put(queue_id=queue_id, size=900, keys="afterwards")
        day.flush()
        day.store.dispatch()
        day.check(day.store, day.disk)
        day.store.flush_derived()
    day.recover(day.disk.crash(0, Outcome.NOTHING))


@pytest.mark.parametrize("shard", range(SHARDS))
def test_full_disk_at_any_write_loses_nothing_and_works_again(shard: int) -> None:
    for operation in steps(shard, _TAKES_SPACE):
        for tear_at in (0, operation.size // 2) if operation.kind == "write" else (0,):
            day = new_day()
            day.disk.fail_at(operation.step, errno.ENOSPC, tear_at=tear_at)
            try:
                error = run_until_error(day)
                if error is None:
                    # Retention goes on without space: it is what makes some.
                    assert operation.step in steps_of("expire")
                else:
                    assert f"no space left for {operation.size}" in str(error) or operation.kind != "write"
                    assert str(operation.path) in str(error)
                if day.is_open:
                    found = {message.log_offset for message in messages_of(day.store)}
                    assert found >= {offset for offset in day.promised if offset >= day.loose_before}
                if isinstance(error, StoreFailedError):
                    # Half a truncation cannot be taken back: the store stops, and recovers when it starts again.
                    assert operation.step in steps_of("truncate")
                    day.is_open = False
                else:
                    assert error is None or isinstance(error, StoreFullError)
                go_on(day)
            except BaseException as failure:
                failure.add_note(f"no space at {operation} after {tear_at}")
                raise


@pytest.mark.parametrize("shard", range(SHARDS))
def test_failed_write_loses_nothing(shard: int) -> None:
    for operation in steps(shard, ("write", "create", "grow")):
        day = new_day()
        day.disk.fail_at(operation.step, errno.EIO, tear_at=operation.size // 3)
        try:
            error = run_until_error(day)
            assert error is not None
            assert "Input/output error" in str(error)
            if isinstance(error, StoreFailedError):
                day.is_open = False
            go_on(day)
            day.recover(day.disk.crash(operation.step))
        except BaseException as failure:
            failure.add_note(f"write failed at {operation}")
            raise


@pytest.mark.parametrize("shard", range(SHARDS))
def test_failed_sync_is_said_loudly_and_never_acknowledged(shard: int) -> None:
    for operation in steps(shard, ("sync", "sync_folder")):
        day = new_day()
        day.disk.fail_at(operation.step, errno.EIO)
        try:
            error = run_until_error(day)
            assert error is not None
            assert "Input/output error" in str(error)
            for seed in range(3):
                day.recover(day.disk.crash(seed))
            day.recover(day.disk.crash(0, Outcome.NOTHING))
        except BaseException as failure:
            failure.add_note(f"sync failed at {operation}")
            raise


def test_failed_sync_of_the_log_ends_all_puts() -> None:
    day = new_day()
    PARTS[0](day)
    flushed = day.store.flushed_offset
    day.put()
    day.disk.fail_sync(under=ROOT / "commitlog")
    with pytest.raises(StoreFailedError, match="Input/output error.*restart the broker"):
        day.flush()
    assert day.store.flushed_offset == flushed
    # The next sync would succeed, and the pages are lost all the same.
    for call in (day.put, lambda: day.put_batch(2), day.flush, day.store.flush_derived):
        with pytest.raises(StoreFailedError):
            call()
    assert day.store.flushed_offset == flushed
    assert len(list(consume(day.store, "orders", 0))) == 2
    day.store.close()
    assert day.disk.exists(ROOT / "abort"), "a failed store must not look like one that was closed well"
    day.recover(day.disk.crash(0, Outcome.NOTHING))


def test_failed_sync_of_derived_files_ends_all_puts_and_keeps_the_checkpoint() -> None:
    day = new_day()
    PARTS[0](day)
    day.disk.fail_sync(under=ROOT / "consumequeue")
    with pytest.raises(StoreFailedError):
        day.store.flush_derived()
    with pytest.raises(StoreFailedError):
        day.put()
    day.recover(day.disk.crash(0, Outcome.NOTHING))


def test_disk_that_fills_up_refuses_puts_reads_on_and_recovers_by_itself() -> None:
    day = new_day(capacity=24 * PAGE_SIZE)
    day.open()
    error: StoreFullError | None = None
    for _ in range(300):
        try:
            day.put(size=500, keys="fill")
            day.flush()
            day.store.dispatch()
            day.store.flush_derived()
        except StoreFullError as caught:
            error = caught
            day.forget_unwritten()
            break
        day.clock.advance(60)
    assert error is not None
    for part in ("no space left", "bytes", str(ROOT)):
        assert part in str(error)
    with pytest.raises(StoreFullError):
        _put_many(day)
    day.forget_unwritten()
    assert {message.log_offset for message in messages_of(day.store)} >= set(day.promised)
    assert len(list(consume(day.store, "orders", 0))) > 10
    day.recover(day.disk.crash(0, Outcome.NOTHING))

    # Segments expire, which frees space.
    day.clock.advance(100 * 3600)
    day.store.retention.delete_by_hand()
    assert day.expire()
    day.put(size=500)
    day.flush()
    day.store.dispatch()
    day.check(day.store, day.disk)
    day.recover(day.disk.crash(0, Outcome.NOTHING))


def _put_many(day: Ledger) -> None:
    for _ in range(50):
        day.put(size=500)
        day.flush()


def test_put_after_a_full_disk_takes_the_queue_offsets_of_the_void_ones() -> None:
    day = new_day()
    PARTS[0](day)
    for _ in range(3):
        day.put(queue_id=0)
    day.put_batch(2)
    day.disk.fail_write(1, code=errno.ENOSPC, tear_at=300)
    with pytest.raises(StoreFullError):
        day.store.write()
    day.forget_unwritten()
    go_on(day)
