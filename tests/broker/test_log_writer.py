"""The way into the store: one write per turn, group commit, visibility, and what a failing disk does to promises."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fusee.broker.ack_gate import AckGate, PutStatus
from fusee.broker.log_writer import LogWriter
from fusee.clock import ManualClock
from fusee.errors import MessageError, StoreError, StoreFailedError, StoreFullError
from fusee.message.batch import BatchElement, join_batch
from fusee.store.batch_body import BatchBody
from fusee.store.config import FlushDiskType
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord
from fusee.store.results import Dispatched, GetStatus, PutResult
from fusee.store.simulated_disk import SimulatedDisk
from fusee.transport.router import Router
from tests.broker.log_world import ROOT, message, small_store
from tests.broker.world import HeldWorker

T = TypeVar("T")

OK = PutStatus.PUT_OK
LATE = PutStatus.FLUSH_DISK_TIMEOUT
VOID = PutStatus.NOT_STORED
LOG = ROOT / "commitlog"


class Desk:
    """A writer over a simulated disk; a turn of the loop ends in `turn`."""

    def __init__(
        self,
        *,
        sync: bool = False,
        log_thread: HeldWorker | None = None,
        file_thread: HeldWorker | None = None,
        together: Callable[[Callable[[], None], Callable[[], None]], None] | None = None,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        self.disk = SimulatedDisk(self.clock)
        if sync:
            settings["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
        self.store = MessageStore(ROOT, small_store(**settings), files=self.disk, clock=self.clock)
        self.store.open()
        self.log_thread = log_thread or HeldWorker()
        self.file_thread = file_thread or HeldWorker()
        self.awaited: set[tuple[str, int]] = set()
        self.written: list[tuple[int, float]] = []
        self.failures: list[StoreFailedError] = []
        self.arrived: list[Dispatched] = []
        self.store.on_arrival(self.arrived.extend)
        self.gate = AckGate(
            waits_for_flush=sync,
            timeout=self.store.config.sync_flush_timeout / 1000,
            lane=Router().lane("send", 100),
            amend=lambda frame, status: frame,
        )
        self.writer = LogWriter(
            store=self.store,
            gate=self.gate,
            log_worker=self.log_thread,
            worker=self.file_thread,
            clock=self.clock,
            timers=self.clock,
            soon=lambda turn: self.clock.call_later(0.0, turn),
            is_awaited=lambda topic, queue_id: (topic, queue_id) in self.awaited,
            on_written=lambda count, seconds: self.written.append((count, seconds)),
            on_failure=self.failures.append,
            together=together,
        )
        self.writer.start()
        self.outcomes: dict[bytes, PutStatus] = {}

    def put(self, body: bytes, *, wait: bool = True, record: NewRecord | None = None) -> PutResult:
        result = self.writer.put(record or message(body))
        self.writer.when_stored(result, lambda status: self._settle(body, status), wait=wait)
        return result

    def _settle(self, body: bytes, status: PutStatus) -> None:
        assert body not in self.outcomes
        self.outcomes[body] = status

    def turn(self) -> None:
        self.clock.advance(0.0)

    def seen(self) -> int:
        """How many messages of the usual queue a reader would find."""
        return self.store.max_offset("orders", 0)

    def log_writes(self) -> int:
        return sum(step.kind == "write" and step.path.parent == LOG for step in self.disk.operations)

    def log_syncs(self) -> int:
        return self.syncs_below(LOG)

    def syncs_below(self, path: Path) -> int:
        return sum(step.kind == "sync" and path in (step.path, step.path.parent) for step in self.disk.operations)


# Writing


def test_puts_of_a_turn_are_written_at_once_and_answered_then() -> None:
    desk = Desk()
    before = desk.log_writes()
    for body in (b"a", b"b", b"c"):
        desk.put(body)
    assert (desk.outcomes, desk.log_writes() - before, desk.gate.waiting) == ({}, 0, 3)
    desk.turn()
    assert desk.outcomes == {b"a": OK, b"b": OK, b"c": OK}
    assert desk.log_writes() - before == 1
    assert desk.written == [(3, 0.0)]
    desk.turn()
    assert desk.log_writes() - before == 1


def test_record_that_breaks_a_limit_is_refused_and_leaves_no_trace() -> None:
    desk = Desk()
    with pytest.raises(MessageError, match="maxMessageSize"):
        desk.put(b"x" * 9000)
    desk.turn()
    assert (desk.written, desk.outcomes, desk.store.written_offset) == ([], {}, 0)


def test_batch_is_written_with_the_rest_and_counted_by_its_messages() -> None:
    desk = Desk()
    record = message(b"batch")
    result = desk.writer.put_batch(record, [BatchElement(0, b"one", b""), BatchElement(0, b"two", b"")])
    desk.writer.when_stored(result, lambda status: desk._settle(b"batch", status))
    desk.put(b"single")
    desk.turn()
    assert desk.outcomes == {b"batch": OK, b"single": OK}
    assert desk.written == [(3, 0.0)]
    desk.writer.make_visible()
    assert desk.seen() == 3


def body_of(*bodies: bytes) -> BatchBody:
    return BatchBody(join_batch([BatchElement(0, body, b"KEYS\x01k\x02") for body in bodies]))


def test_large_batch_is_written_at_once_with_what_was_put_before_and_answered_at_the_end_of_the_turn() -> None:
    desk = Desk()
    desk.put(b"before")
    before = desk.log_writes()
    result = desk.writer.put_batch(message(b""), body_of(b"one", b"two"), is_large=True)
    desk.writer.when_stored(result, lambda status: desk._settle(b"batch", status))
    assert (desk.log_writes() - before, desk.store.written_offset, desk.outcomes) == (1, result.end_offset, {})
    assert (result.count, result.log_offsets) == (2, ())
    desk.turn()
    assert desk.outcomes == {b"before": OK, b"batch": OK}
    assert desk.written == [(3, 0.0)]
    desk.writer.make_visible()
    assert [record.keys for record in desk.arrived] == [(), ("k",), ("k",)]
    assert [record.log_offset for record in desk.arrived][1] == result.log_offset


def test_large_batch_that_cannot_be_written_makes_void_what_was_put_before_it_and_nothing_that_comes_later() -> None:
    desk = Desk()
    desk.put(b"kept")
    desk.turn()
    desk.put(b"lost")
    desk.disk.fail_write(under=LOG)
    with pytest.raises(StoreError):
        desk.writer.put_batch(message(b""), body_of(b"one", b"two"), is_large=True)
    assert desk.outcomes == {b"kept": OK, b"lost": VOID}
    desk.put(b"next")
    desk.turn()
    desk.writer.make_visible()
    assert desk.outcomes[b"next"] is OK
    assert [record.queue_offset for record in desk.arrived] == [0, 1]
    assert desk.seen() == 2


def test_large_batch_stays_in_the_transient_pool_like_any_other() -> None:
    desk = Desk(transient_store_pool_enable=True)
    result = desk.writer.put_batch(message(b""), body_of(b"one"), is_large=True)
    assert desk.store.written_offset < result.end_offset


def test_stop_writes_what_is_gathered() -> None:
    desk = Desk()
    desk.put(b"last")
    desk.writer.stop()
    assert desk.outcomes == {b"last": OK}
    desk.turn()
    assert desk.written == [(1, 0.0)]
    desk.writer.stop()


def test_next_segment_is_made_ahead_of_need() -> None:
    desk = Desk()
    while desk.store.written_offset < 12_000:
        desk.put(b"%08d" % len(desk.outcomes) * 100)
        desk.turn()
    desk.clock.advance(1.0)
    assert len(desk.disk.names(LOG)) == 2


# Visibility


def test_messages_nobody_waits_for_become_visible_a_little_later_together() -> None:
    desk = Desk()
    desk.put(b"a")
    desk.turn()
    assert desk.seen() == 0
    assert desk.writer.has_unseen
    desk.clock.advance(0.012)
    desk.put(b"b")
    desk.clock.advance(0.012)
    assert desk.seen() == 2
    assert [record.queue_offset for record in desk.arrived] == [0, 1]
    assert not desk.writer.has_unseen


def test_message_somebody_waits_for_is_visible_in_the_turn_of_its_write() -> None:
    desk = Desk()
    desk.awaited.add(("orders", 1))
    desk.put(b"a")
    desk.turn()
    assert desk.arrived == []
    desk.put(b"b", record=message(b"b", queue_id=1))
    desk.turn()
    assert [(record.queue_id, record.queue_offset) for record in desk.arrived] == [(0, 0), (1, 0)]


def test_batch_somebody_waits_for_is_visible_in_the_turn_of_its_write() -> None:
    desk = Desk()
    desk.awaited.add(("orders", 0))
    desk.writer.put_batch(message(b"batch"), [BatchElement(0, b"one", b""), BatchElement(0, b"two", b"")])
    desk.turn()
    assert len(desk.arrived) == 2


def test_much_that_is_written_is_visible_at_once() -> None:
    desk = Desk(mapped_file_size_commit_log=4 * 1024 * 1024)
    while desk.store.written_offset < 1_500_000:
        desk.put(b"%08d" % len(desk.outcomes) * 1000)
        desk.turn()
    assert desk.seen() == 0
    while desk.store.written_offset < 1_600_000:
        desk.put(b"%08d" % len(desk.outcomes) * 1000)
        desk.turn()
    assert desk.seen() > 60


def test_reader_that_asks_sees_what_was_put_even_before_the_turn_ends() -> None:
    desk = Desk()
    desk.put(b"a")
    assert desk.writer.has_unseen
    desk.writer.make_visible()
    assert desk.outcomes == {b"a": OK}
    assert (desk.seen(), desk.written) == (1, [(1, 0.0)])
    desk.turn()
    assert desk.written == [(1, 0.0)]
    found = desk.store.get("orders", 0, 0, 32)
    assert found.status is GetStatus.FOUND


# Flushing


def test_sync_flush_answers_after_the_flush_alone() -> None:
    desk = Desk(sync=True)
    desk.log_thread.is_held = True
    desk.put(b"a")
    desk.turn()
    assert desk.outcomes == {}
    assert desk.log_thread.release() == 1
    assert desk.outcomes == {b"a": OK}
    assert desk.store.flushed_offset == desk.store.written_offset


def test_sync_flush_covers_what_came_meanwhile_with_one_more_sync() -> None:
    desk = Desk(sync=True)
    desk.log_thread.is_held = True
    desk.put(b"a")
    desk.turn()
    for body in (b"b", b"c", b"d"):
        desk.put(body)
        desk.turn()
    before = desk.log_syncs()
    assert desk.log_thread.release() == 1
    assert desk.outcomes == {b"a": OK}
    assert desk.log_thread.release() == 1
    assert desk.outcomes == dict.fromkeys((b"a", b"b", b"c", b"d"), OK)
    assert desk.log_syncs() - before == 2
    assert desk.log_thread.release() == 0


def test_sync_flush_does_not_hold_up_a_message_that_does_not_wait() -> None:
    desk = Desk(sync=True)
    desk.log_thread.is_held = True
    desk.put(b"a", wait=False)
    desk.put(b"b")
    desk.turn()
    assert desk.outcomes == {b"a": OK}


def test_disk_that_does_not_answer_is_told_after_the_time_of_the_setting() -> None:
    desk = Desk(sync=True, sync_flush_timeout=5000)
    desk.log_thread.is_held = True
    desk.put(b"a")
    desk.turn()
    desk.clock.advance(3.0)
    desk.put(b"b")
    desk.turn()
    desk.clock.advance(1.9)
    assert desk.outcomes == {}
    desk.clock.advance(0.2)
    assert desk.outcomes == {b"a": LATE}
    desk.log_thread.release()
    desk.log_thread.release()
    assert desk.outcomes == {b"a": LATE, b"b": OK}


def test_async_flush_comes_by_interval_and_only_for_enough_pages() -> None:
    desk = Desk(
        flush_interval_commit_log=500, flush_commit_log_least_pages=4, flush_commit_log_thorough_interval=10_000
    )
    desk.clock.advance(10.0)
    desk.put(b"a")
    desk.clock.advance(1.0)
    desk.put(b"b")
    desk.clock.advance(0.9)
    flushed_offset = desk.store.flushed_offset
    assert flushed_offset < desk.store.written_offset
    for number in range(5):
        desk.put(b"%d" % number * 4000)
    desk.clock.advance(1.1)
    assert desk.store.flushed_offset == desk.store.written_offset
    desk.put(b"c")
    desk.clock.advance(10.5)
    assert desk.store.flushed_offset == desk.store.written_offset


def test_consume_queues_are_flushed_beside_the_loop_and_only_when_something_came() -> None:
    desk = Desk()
    desk.file_thread.is_held = True
    desk.put(b"a")
    desk.clock.advance(1.1)
    assert len(desk.file_thread.waiting) == 2, "a flush, and the next file of the log"
    desk.clock.advance(5.0)
    assert len(desk.file_thread.waiting) == 2, "one of each at a time"
    desk.file_thread.release()
    assert desk.store.checkpoint.queues_timestamp_ms > 0
    assert desk.syncs_below(ROOT / "checkpoint") == 0, "that waits for the disk, too"
    desk.file_thread.release()
    assert desk.syncs_below(ROOT / "checkpoint") == 2
    desk.clock.advance(5.0)
    assert len(desk.file_thread.waiting) == 1, "a look at the next file only"
    desk.clock.advance(60.0)
    assert len(desk.file_thread.waiting) == 2, "now and then the whole index"


def test_checkpoint_is_left_to_the_closing_store_when_a_flush_ends_after_the_stop() -> None:
    desk = Desk()
    desk.file_thread.is_held = True
    desk.put(b"a")
    desk.clock.advance(1.1)
    desk.writer.stop()
    desk.file_thread.release()
    assert desk.file_thread.waiting == [], "nobody is there to do it any more"
    desk.store.close()
    assert desk.syncs_below(ROOT / "checkpoint") > 0


def test_next_file_of_the_log_is_made_beside_the_loop() -> None:
    desk = Desk()
    desk.file_thread.is_held = True
    desk.put(b"a")
    desk.clock.advance(1.1)
    assert len(desk.disk.names(LOG)) == 1
    desk.file_thread.release()
    assert len(desk.disk.names(LOG)) == 2


def test_next_file_of_the_log_that_cannot_be_made_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.put(b"a")
    desk.turn()
    desk.disk.fail_sync(under=LOG)
    desk.clock.advance(1.0)
    assert "could not be made ahead" in caplog.text
    assert desk.failures == []
    desk.clock.advance(1.0)
    assert len(desk.disk.names(LOG)) == 2


def test_checkpoint_that_cannot_be_saved_is_told_and_the_store_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.put(b"a")
    desk.turn()
    desk.disk.fail_sync(under=ROOT / "checkpoint")
    desk.clock.advance(1.1)
    assert "the checkpoint was not saved" in caplog.text
    desk.put(b"b")
    desk.clock.advance(1.1)
    assert desk.outcomes == {b"a": OK, b"b": OK}
    assert desk.failures == []
    assert desk.syncs_below(ROOT / "checkpoint") >= 2


def test_transient_pool_promises_memory_and_writes_by_interval() -> None:
    desk = Desk(transient_store_pool_enable=True, commit_interval_commit_log=200)
    desk.put(b"a")
    desk.turn()
    assert desk.outcomes == {b"a": OK}
    assert desk.store.written_offset == 0
    desk.clock.advance(0.5)
    assert desk.store.written_offset == desk.store.end_offset
    assert desk.seen() == 1


# A disk that fails


def test_write_that_fails_makes_the_puts_of_the_turn_void_and_their_places_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    kept = desk.put(b"kept")
    desk.turn()
    desk.disk.fail_write(under=LOG)
    lost = [desk.put(body) for body in (b"x", b"y")]
    desk.turn()
    assert desk.outcomes == {b"kept": OK, b"x": VOID, b"y": VOID}
    assert "could not be written" in caplog.text
    again = desk.put(b"again")
    desk.turn()
    assert desk.outcomes[b"again"] is OK
    assert (again.queue_offset, again.log_offset) == (lost[0].queue_offset, kept.end_offset)
    desk.writer.make_visible()
    assert desk.seen() == 2


def test_full_disk_refuses_and_takes_again_when_there_is_space() -> None:
    desk = Desk(clean_resource_interval=10_000)
    desk.put(b"kept")
    desk.turn()
    desk.writer.make_visible()
    desk.disk.capacity = desk.disk.used
    filled = 0
    while True:
        try:
            desk.put(b"%04d" % filled * 500)
        except StoreFullError:
            break
        desk.turn()
        filled += 1
        assert filled < 20
    assert VOID in desk.outcomes.values()
    assert desk.store.get("orders", 0, 0, 32).status is GetStatus.FOUND
    desk.disk.capacity *= 10
    desk.clock.advance(10.1)
    desk.put(b"again")
    desk.turn()
    assert desk.outcomes[b"again"] is OK


def test_messages_that_find_no_space_in_consume_queues_become_visible_when_there_is() -> None:
    desk = Desk()
    desk.put(b"a")
    desk.turn()
    desk.disk.fail_write(under=ROOT / "consumequeue")
    desk.writer.make_visible()
    assert desk.outcomes == {b"a": OK}
    assert (desk.seen(), desk.writer.has_unseen) == (0, True)
    desk.clock.advance(0.6)
    assert (desk.seen(), desk.writer.has_unseen) == (1, False)


@pytest.mark.parametrize("sync", [False, True])
def test_sync_that_fails_is_final_and_told_once(sync: bool) -> None:
    desk = Desk(sync=sync)
    desk.put(b"kept")
    desk.clock.advance(20.0)
    desk.disk.fail_sync(under=LOG)
    desk.put(b"a")
    desk.clock.advance(20.0)
    assert desk.outcomes == {b"kept": OK, b"a": LATE if sync else OK}
    with pytest.raises(StoreFailedError, match="Check the disk, then restart"):
        desk.put(b"b")
    desk.clock.advance(20.0)
    assert len(desk.failures) == 1


def test_failed_consume_queues_stop_the_store_as_well() -> None:
    desk = Desk()
    desk.put(b"a")
    desk.clock.advance(0.1)
    desk.disk.fail_sync(under=ROOT / "consumequeue")
    desk.clock.advance(2.0)
    assert len(desk.failures) == 1
    with pytest.raises(StoreFailedError):
        desk.put(b"b")


class BrokenWorker(HeldWorker):
    """A thread whose jobs end in a way that nobody thought of."""

    def run(self, job: Callable[[], T], done: Callable[[T], object], failed: Callable[[Exception], object]) -> None:
        failed(ZeroDivisionError())


@pytest.mark.parametrize("which", ["log_thread", "file_thread"])
def test_flush_that_ends_in_an_unexpected_way_stops_the_store(which: str) -> None:
    threads: dict[str, Any] = {which: BrokenWorker()}
    desk = Desk(sync=True, **threads)
    desk.put(b"a")
    desk.clock.advance(2.0)
    assert desk.outcomes == {b"a": LATE if which == "log_thread" else OK}
    assert "unexpected" in str(desk.failures[0])
    with pytest.raises(StoreFailedError):
        desk.put(b"b")


# Beside each other

LARGE: dict[str, Any] = {"mapped_file_size_commit_log": 4 << 20, "max_message_size": 1 << 20}


class Both:
    """Writes after what is done meanwhile, and notes what was seen then."""

    def __init__(self) -> None:
        self.desk: Desk | None = None
        self.seen: list[tuple[int, int]] = []

    def __call__(self, job: Callable[[], None], meanwhile: Callable[[], None]) -> None:
        meanwhile()
        if self.desk is not None:
            self.seen.append((self.desk.seen(), len(self.desk.arrived)))
        job()


def test_what_is_written_is_dispatched_while_the_next_is_written_and_told_when_that_is_done() -> None:
    both = Both()
    desk = both.desk = Desk(together=both, **LARGE)
    for number in range(3):
        desk.put(b"%d" % number * 600_000)
        desk.turn()
        assert len(desk.outcomes) == number + 1
    assert both.seen == [(0, 0), (1, 0), (2, 1)]
    assert len(desk.arrived) == 2
    desk.put(b"small")
    desk.turn()
    assert len(both.seen) == 3
    desk.clock.advance(0.05)
    assert (desk.seen(), len(desk.arrived)) == (4, 4)


def test_who_hears_of_an_arrival_may_put() -> None:
    desk = Desk(together=Both(), **LARGE)
    answers: list[bytes] = []

    def answer(batch: Any) -> None:
        if len(answers) < 3:
            answers.append(b"answer %d" % len(answers))
            desk.put(answers[-1])

    desk.store.on_arrival(answer)
    for number in range(4):
        desk.put(b"%d" % number * 600_000)
        desk.turn()
    desk.clock.advance(0.1)
    assert len(answers) == 3
    assert all(desk.outcomes[body] is OK for body in answers)
    assert len(desk.outcomes) == 7
    assert desk.seen() == len(desk.arrived) == 7


def test_large_write_that_fails_voids_its_puts_only() -> None:
    class FullDisk(Both):
        def __call__(self, job: Callable[[], None], meanwhile: Callable[[], None]) -> None:
            super().__call__(job, meanwhile)
            desk.disk.fail_write(1, code=errno.ENOSPC, under=LOG)
            raise StoreFullError("no space")

    desk = Desk(together=FullDisk(), **LARGE)
    desk.put(b"a")
    desk.turn()
    desk.put(b"b" * 600_000)
    desk.turn()
    assert list(desk.outcomes.values()) == [OK, VOID]
    assert desk.store.written_offset == desk.store.end_offset
    desk.clock.advance(0.1)
    assert desk.seen() == len(desk.arrived) == 1
