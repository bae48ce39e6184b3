"""Bugs that were published for the reference's store, each with its number there, and that we do not have."""

from __future__ import annotations

import pytest

from fusee.clock import ManualClock
from fusee.errors import StoreCorruptError
from fusee.store.checkpoint import Checkpoint
from fusee.store.engine import MessageStore
from fusee.store.layout import segment_name
from fusee.store.simulated_disk import Outcome, SimulatedCrash, SimulatedDisk
from tests.store.crash.ledger import (
    COMMIT,
    ROOT,
    SEGMENT_SIZE,
    Ledger,
    consume,
    index_offsets,
    messages_of,
    raw_entries,
    small_config,
)
from tests.store.crash.workload import run_day

LOG = ROOT / "commitlog"


def new_day(**settings: object) -> Ledger:
    clock = ManualClock()
    return Ledger(SimulatedDisk(clock), clock, small_config(**settings))


def damage(disk: SimulatedDisk, log_offset: int) -> None:
    """Turn over the bits of one byte of the log."""
    base = log_offset - log_offset % SEGMENT_SIZE
    file = disk.open(LOG / segment_name(base))
    file.write(bytes([file.view()[log_offset - base] ^ 0xFF]), log_offset - base)
    file.sync()
    file.close()


# Recovery


def test_issue_405_flushed_but_never_dispatched_is_consumed_after_a_power_failure() -> None:
    day = new_day()
    day.open()
    for number in range(100):
        day.put(keys=f"k{number}")
        if number == 60:
            day.store.dispatch()
            day.store.flush_derived()
    day.flush()
    store = day.recover(day.disk.crash(0, Outcome.NOTHING))
    assert len(list(consume(store, "orders", 0))) == 100
    assert index_offsets(store, "orders", "k99")


def test_issue_467_damaged_tail_is_cut_and_its_queue_offset_given_again() -> None:
    day = new_day()
    day.open()
    for _ in range(5):
        day.put()
    day.flush()
    day.store.dispatch()
    day.store.flush_derived()
    last = day.put()
    day.store.write()
    day.store.dispatch()
    disk = day.disk.crash(0, Outcome.EVERYTHING)
    damage(disk, last.end_offset - 20 - 40)
    store = MessageStore(ROOT, day.config, files=disk, clock=day.clock)
    report = store.open()
    assert report.end_offset == last.log_offset
    assert report.cut_bytes > 0
    assert f"log offset {last.log_offset}" in report.cut_reason
    assert [message.queue_offset for message in consume(store, "orders", 0)] == [0, 1, 2, 3, 4]
    day.store = store
    day.disk = disk
    assert day.put().queue_offset == 5
    day.flush()
    store.dispatch()
    day.check(store, disk)


def test_issue_467_messages_not_dispatched_at_an_unclean_stop_are_dispatched_before_new_ones() -> None:
    day = new_day()
    day.open()
    for _ in range(5):
        day.put()
    day.store.write()
    day.store.dispatch()
    day.put()  # written and never dispatched, as the reference's slave had it
    day.flush()
    day.take_over(day.disk.kill())
    assert day.put().queue_offset == 6
    day.flush()
    day.store.dispatch()
    day.check(day.store, day.disk)


@pytest.mark.parametrize("checkpoint", [True, False])
def test_issue_1434_end_of_a_segment_not_dispatched_when_the_next_one_begins(checkpoint: bool) -> None:
    day = new_day()
    day.open()
    day.put(size=1500)
    day.put(size=1500)
    day.flush()
    day.store.dispatch()
    day.store.flush_derived()
    day.clock.advance(10)
    last = day.put(size=500, keys="last of its segment")
    first = day.put(size=1500, keys="first of the next")
    assert last.log_offset < SEGMENT_SIZE <= first.log_offset
    day.flush()
    if checkpoint:
        day.clock.advance(10)
        day.store.flush_derived()  # the log's time moves on, that of the queues does not
    store = day.recover(day.disk.crash(0, Outcome.NOTHING))
    assert len(list(consume(store, "orders", 0))) == 4
    assert index_offsets(store, "orders", "last") == [last.log_offset]


def test_issue_7355_queue_that_lost_its_end_in_a_crash_is_built_again() -> None:
    """The pages of one queue were written back before the machine stopped, those of the other were not."""
    day = new_day()
    day.open()
    for number in range(40):
        day.put(queue_id=number % 2, keys=f"k{number}")
        if number == 10:
            day.flush()
            day.store.dispatch()
            day.store.flush_derived()
            day.clock.advance(10)
    day.flush()
    day.store.dispatch()
    folder = ROOT / "consumequeue/orders/1"
    for name in day.disk.names(folder):
        day.disk.open(folder / name).sync()
    day.disk.sync_folder(folder)
    disk = day.disk.crash(0, Outcome.NOTHING)
    lost, kept = (len(raw_entries(disk.contents(), ROOT, 0)["orders", queue_id]) for queue_id in (0, 1))
    assert lost < kept == 20
    day.take_over(disk)
    assert day.put(queue_id=0).queue_offset == 20
    day.flush()
    day.store.dispatch()
    day.check(day.store, disk)


@pytest.mark.parametrize("clean", [True, False])
def test_issue_7355_consume_queues_that_were_removed_by_hand_are_built_again(clean: bool) -> None:
    """The way out that the thread found: delete all consume queues."""
    day = new_day()
    day.open()
    for number in range(30):
        day.put(queue_id=number % 2, size=300, keys=f"k{number}")
    day.flush()
    day.store.dispatch()
    day.store.flush_derived()
    if clean:
        day.close()
    disk = day.disk.kill()
    for queue_id in ("0", "1"):
        folder = ROOT / "consumequeue/orders" / queue_id
        for name in disk.names(folder):
            disk.remove(folder / name)
        disk.remove_folder(folder)
    day.take_over(disk)
    assert day.put(queue_id=0).queue_offset == 15
    day.flush()
    day.store.dispatch()
    day.check(day.store, disk)


def test_damage_in_the_middle_is_reported_with_file_and_offset_and_never_cut_in_silence() -> None:
    """What the reference does here, cut and go on, loses everything behind without a word."""
    day = new_day()
    day.open()
    offsets = [day.put(size=300).log_offset for _ in range(5)]
    day.flush()
    day.clock.advance(10)
    day.put()
    day.flush()
    day.store.dispatch()
    day.store.flush_derived()
    for disk in (day.disk.kill(), _closed(day).kill()):
        damage(disk, offsets[2] + 100)
        for _ in range(2):  # a second attempt says the same: the first has changed nothing
            store = MessageStore(ROOT, day.config, files=disk, clock=day.clock)
            with pytest.raises(StoreCorruptError, match=f"{segment_name(0)} .*log offset {offsets[2]}"):
                store.open()
        repaired = MessageStore(ROOT, day.config, files=disk, clock=day.clock)
        report = repaired.open(repair=True)
        assert report.end_offset == offsets[2]
        assert len(list(messages_of(repaired))) == 2


def _closed(day: Ledger) -> SimulatedDisk:
    day.close()
    return day.disk


# Checkpoint


def test_issue_678_checkpoint_covers_only_what_was_synced() -> None:
    """At every moment of a day, what a checkpoint on the disk promises is on the disk as well."""
    day = new_day()
    run_day(day)
    saves = [operation.step for operation in day.disk.operations if operation.path.name.startswith("checkpoint")]
    assert len(saves) > 5
    for step in saves[::2]:
        for tear_at in (0, 1):
            cut = new_day()
            cut.disk.stop_at(step, tear_at=tear_at)
            with pytest.raises(SimulatedCrash):
                run_day(cut)
            disk = cut.disk.crash(0, Outcome.NOTHING)
            checkpoint = Checkpoint(ROOT / "checkpoint", disk)
            checkpoint.load()
            _check_promise(cut, disk, checkpoint)


def _check_promise(day: Ledger, disk: SimulatedDisk, checkpoint: Checkpoint) -> None:
    entries = {log_offset for queue in raw_entries(disk.contents(), ROOT, 0).values() for _, log_offset, _, _ in queue}
    for log_offset, put in day.promised.items():
        if log_offset < day.loose_before:
            continue
        if put.store_timestamp_ms < checkpoint.log_timestamp_ms:
            base = log_offset - log_offset % SEGMENT_SIZE
            content = disk.read_file(LOG / segment_name(base))
            assert put.body in content[log_offset - base : put.end_offset - base]
        if put.store_timestamp_ms < checkpoint.queues_timestamp_ms and put.sys_flag in (0, COMMIT):
            assert log_offset in entries


# Index


def test_issue_8007_first_unique_key_is_found_after_a_kill() -> None:
    """The reference deletes the last index file after an unclean stop, and enters again only the end of the log."""
    day = new_day()
    day.open()
    first = day.put(keys="first")
    for _ in range(15):
        day.put(size=800)
        day.flush()
        day.store.dispatch()
        day.store.flush_derived()
        day.clock.advance(30)
    day.put(keys="last")
    day.store.write()
    day.store.dispatch()
    for disk in (day.disk.kill(), day.disk.crash(0, Outcome.NOTHING)):
        store = day.recover(disk)
        assert index_offsets(store, "orders", "U000001") == [first.log_offset]
        assert index_offsets(store, "orders", "first") == [first.log_offset]


def test_issue_3868_index_file_that_began_before_the_checkpoint_and_ended_behind_it_keeps_its_keys() -> None:
    day = new_day(max_index_num=1000)
    day.open()
    for number in range(40):
        day.put(keys=f"key{number}", size=300)
        day.clock.advance(1)
        if number == 20:
            day.flush()
            day.store.dispatch()
            day.store.flush_derived()
            day.clock.advance(60)
    day.flush()
    day.store.dispatch()
    for seed in range(30):
        store = day.recover(day.disk.crash(seed))
        for number in range(40):
            assert len(index_offsets(store, "orders", f"key{number}")) == 1


# Metadata files


def test_issue_3401_checkpoint_torn_at_any_byte_is_never_later_than_what_was_saved() -> None:
    """Written in place, a torn time can be later than the old and the new one: 0x01FF of 0x00FF and 0x0100."""
    before, after = 0x18B_FFFF_FFFF, 0x18C_0000_0000
    for step in range(1, 20):
        for seed in range(60):
            disk = SimulatedDisk()
            disk.make_folder(ROOT)
            _save(disk, before)
            disk.stop_at(disk.steps + step, tear_at=seed)
            try:
                _save(disk, after)
                saved = True
            except SimulatedCrash:
                saved = False
            checkpoint = Checkpoint(ROOT / "checkpoint", disk.crash(seed))
            checkpoint.load()
            times = (checkpoint.log_timestamp_ms, checkpoint.queues_timestamp_ms, checkpoint.index_timestamp_ms)
            assert set(times) <= {before, after}
            assert not saved or times == (after,) * 3


def _save(disk: SimulatedDisk, time_ms: int) -> None:
    checkpoint = Checkpoint(ROOT / "checkpoint", disk)
    checkpoint.load()
    checkpoint.log_timestamp_ms = checkpoint.queues_timestamp_ms = checkpoint.index_timestamp_ms = time_ms
    checkpoint.save()
