"""A store is cut at every write and every sync, by every kind of crash; what was promised is there, nothing is torn.

The short form takes a few crashes for each step, the long one (FUSEE_LONG=1) many. A failure names step, outcome and
seed, which give the same crash again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import pytest

from fusee.clock import ManualClock
from fusee.store.layout import segment_name
from fusee.store.simulated_disk import SECTOR_SIZE, Operation, Outcome, SimulatedCrash, SimulatedDisk
from tests.store.crash.ledger import ROOT, Ledger, messages_of, small_config
from tests.store.crash.workload import run_day

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG = ROOT / "commitlog"
LONG = bool(os.environ.get("FUSEE_LONG"))
SHARDS = 6
SCATTERED_SEEDS = 40 if LONG else 2


def new_day(*, sealed: bool = False) -> Ledger:
    """`sealed`: each record with a checksum of its whole, which is not the default."""
    clock = ManualClock()
    config = small_config(enabled_append_prop_crc=sealed, force_verify_prop_crc=sealed)
    return Ledger(SimulatedDisk(clock), clock, config)


def cut_day(step: int, tear_at: int, *, sealed: bool = False) -> Ledger:
    """The day up to this step, and so much of it."""
    day = new_day(sealed=sealed)
    day.disk.stop_at(step, tear_at=tear_at)
    with pytest.raises(SimulatedCrash):
        run_day(day)
    return day


@cache
def whole_day() -> tuple[Operation, ...]:
    day = new_day()
    run_day(day)
    return tuple(day.disk.operations)


def cuts_of(shard: int, every: int = 1) -> Iterator[tuple[Operation, int]]:
    """Steps of this shard, and how much of each takes place before the crash."""
    for operation in whole_day()[shard :: SHARDS * every]:
        tears: tuple[int, ...] = (0, 1)
        if operation.kind in ("write", "clear"):
            tears = (0, 1, operation.size // 2, operation.size - 1, operation.size)
        for tear_at in tears if LONG else (tears[operation.step % len(tears)],):
            yield operation, tear_at


def aftermaths(step: int) -> list[tuple[int, Outcome]]:
    """Seeds and outcomes of the crashes to try at a step."""
    certain = [(step, outcome) for outcome in Outcome if outcome is not Outcome.SCATTERED]
    if not LONG:
        certain = [certain[step % len(certain)]]
    return certain + [(step * 1000 + seed, Outcome.SCATTERED) for seed in range(SCATTERED_SEEDS)]


def test_day_without_crash_keeps_everything_and_uses_every_kind_of_step() -> None:
    day = new_day()
    run_day(day)
    store = day.recover(day.disk.crash(0, Outcome.NOTHING))
    assert store.log.min_offset > 0
    assert len([offset for offset in day.promised if offset >= store.log.min_offset]) > 5
    assert {operation.kind for operation in whole_day()} >= {
        "create", "grow", "write", "clear", "sync", "make_folder", "remove", "sync_folder",
    }  # fmt: skip
    below = [operation.path.relative_to(ROOT).parts for operation in whole_day() if operation.path.is_relative_to(ROOT)]
    assert {parts[0] for parts in below if parts} >= {
        "commitlog", "consumequeue", "index", "transaction", "checkpoint", "abort",
    }  # fmt: skip


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_store_cut_at_every_step_keeps_its_promises(shard: int, sealed: bool) -> None:
    for operation, tear_at in cuts_of(shard, 3 if sealed and not LONG else 1):
        day = cut_day(operation.step, tear_at, sealed=sealed)
        for seed, outcome in aftermaths(operation.step):
            with named(f"cut at {operation} after {tear_at}, {outcome.name}, seed {seed}"):
                day.recover(day.disk.crash(seed, outcome))


@pytest.mark.parametrize("shard", range(SHARDS))
def test_process_killed_at_every_step_then_machine_stopped(shard: int) -> None:
    """What the next process has found and says is flushed is on disk, though the first one had not synced it."""
    for operation, tear_at in cuts_of(shard, 1 if LONG else 3):
        day = cut_day(operation.step, tear_at)
        with named(f"killed at {operation} after {tear_at}"):
            disk = day.disk.kill()
            store = day.recover(disk)
            found = {message.log_offset: message.body for message in messages_of(store)}
            again = day.recover(disk.crash(operation.step, Outcome.NOTHING))
            assert {message.log_offset: message.body for message in messages_of(again)} == found


def test_everything_that_recovery_found_is_on_disk_however_many_segments_it_walked() -> None:
    day = new_day()
    day.open()
    for _ in range(20):
        day.put(size=900)
    day.store.write()
    assert len(day.store.log.segments()) > 4
    disk = day.disk.kill()
    flushed = day.open_on(disk).flushed_offset
    assert day.open_on(disk.crash(0, Outcome.NOTHING)).end_offset == flushed == day.store.written_offset


@pytest.mark.parametrize("shard", range(SHARDS))
def test_recovery_cut_at_every_step_is_recovered_again(shard: int) -> None:
    for operation, tear_at in cuts_of(shard, 1 if LONG else 40):
        day = cut_day(operation.step, tear_at)
        seed = operation.step
        whole = day.disk.crash(seed, Outcome.SCATTERED)
        day.open_on(whole)
        for step in range(1, whole.steps + 1):
            disk = day.disk.crash(seed, Outcome.SCATTERED)
            disk.stop_at(step, tear_at=step * 7 % 50)
            with named(f"cut at {operation} after {tear_at}, seed {seed}; recovery cut at step {step}"):
                with pytest.raises(SimulatedCrash):
                    day.open_on(disk)
                day.recover(disk.crash(step, Outcome.SCATTERED))


def test_index_files_that_recovery_gives_up_leave_no_gap_whenever_it_is_cut() -> None:
    """The mark of an older file is torn. Were that file removed before the newer ones, its keys would be lost."""
    cuts = 0
    for step in range(1, 12):
        day = new_day()
        day.open()
        for number in range(30):
            day.put(keys=f"key{number}")
            if number in (5, 15):
                day.flush()
                day.store.dispatch()
                day.store.flush_derived()
                day.clock.advance(10)
        day.flush()
        day.store.dispatch()
        day.disk.stop_at(day.disk.steps + step, tear_at=10)
        with suppress(SimulatedCrash):
            day.store.flush_derived()
        whole = day.disk.crash(0, Outcome.EVERYTHING)
        day.open_on(whole)
        for removal in [operation.step for operation in whole.operations if operation.kind == "remove"]:
            for seed in range(8):
                cuts += 1
                disk = day.disk.crash(0, Outcome.EVERYTHING)
                disk.stop_at(removal, tear_at=1)
                with pytest.raises(SimulatedCrash):
                    day.open_on(disk)
                with named(f"flush cut at its step {step}, recovery at {removal}, seed {seed}"):
                    day.recover(disk.crash(seed, Outcome.SCATTERED))
    assert cuts


def test_record_with_a_hole_in_its_text_is_torn() -> None:
    """The checksum covers the body only. Whatever sector of topic or properties did not arrive, the record is cut."""
    for start in range(SECTOR_SIZE - 60, SECTOR_SIZE, 3):
        day = new_day()
        day.open()
        day.put(size=start - 200)
        result = day.put("a-topic-of-some-length", keys="some keys of " + "some length " * 50)
        day.store.write()
        text_start = result.log_offset + 88 + 40 + 1
        for border in range(-(-text_start // SECTOR_SIZE) * SECTOR_SIZE, result.end_offset, SECTOR_SIZE):
            for hole in (
                (max(border - 7, text_start), border),
                (border - 1, border),
                (border, min(border + SECTOR_SIZE, result.end_offset)),
                (max(border, result.end_offset - 5), result.end_offset),
            ):
                disk = day.disk.kill()
                log = disk.open(LOG / segment_name(0))
                log.write(bytes(hole[1] - hole[0]), hole[0])
                with named(f"hole at {hole} of record {result}"):
                    day.recover(disk)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_recovered_store_goes_on_working(shard: int) -> None:
    for operation, tear_at in cuts_of(shard, 1 if LONG else 4):
        day = cut_day(operation.step, tear_at)
        with named(f"cut at {operation} after {tear_at}, seed {operation.step}"):
            disk = day.disk.crash(operation.step)
            day.take_over(disk)
            for queue_id in (0, 1, 2, 0):
                day.put(queue_id=queue_id, keys="afterwards")
            day.put_batch(3)
            day.store.write()
            day.store.dispatch()
            day.flush()
            day.check(day.store, disk)
            day.recover(disk.crash(operation.step, Outcome.SCATTERED))


class named:  # noqa: N801  reads as a statement
    """Adds to an error where it happened."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self._where)
