"""The one way into the store: gathers the puts of a turn of the loop, writes them at once, and drives what follows.

Each turn in which something was put ends with one `write`; then whoever waits for it is answered (`ack_gate`), and
the records are dispatched. Dispatch is cheap for many records at once, so it waits a little for more, unless somebody
waits for the queue (`is_awaited`) or asks (`make_visible`, which every reader calls first): a message is visible to
everyone who looks from the moment its sender was answered. Where senders wait for slaves, it is also not visible
before (`ack_gate.confirmed_offset`).

On a slave nothing is put: `append` takes the bytes of the master's log, and `on_flushed` tells how far they are on
disk.

Syncs run in a worker thread: the log by its flush policy (at once and again under SYNC_FLUSH, which is group commit;
by interval otherwise), consume queues and index every second or so, and the checkpoint after them. The next file of the
log is made there, too. The loop itself never waits for the disk, except when another file must be made.

A sync that failed is final (see `store.durability`): every put is refused then, `on_failure` is told once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from fusee.errors import StoreError, StoreFailedError
from fusee.service import Periodic
from fusee.store.config import FlushDiskType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fusee.broker.ack_gate import AckGate, PutStatus
    from fusee.broker.worker import Together, Worker
    from fusee.clock import Clock, TimerHandle, Timers
    from fusee.message.batch import BatchElement
    from fusee.store.batch_body import BatchBody
    from fusee.store.durability import FlushJob
    from fusee.store.engine import MessageStore
    from fusee.store.new_record import NewRecord
    from fusee.store.results import PutResult

_log = logging.getLogger(__name__)

# Undispatched bytes that are dispatched at once, and how long fewer may wait.
_DISPATCH_BYTES: Final = 1536 * 1024
_DISPATCH_DELAY: Final = 0.02
# After a large write so much may wait for the next one, which it is dispatched beside.
_MEANWHILE_BYTES_MAX: Final = 16 * 1024 * 1024
# When somebody waits, so many records of one turn are dispatched at once; of more, a little later, in larger groups.
_FEW_PUTS: Final = 8
_FEW_BYTES: Final = 16 * 1024
_HURRY_DELAY: Final = 0.001
_RETRY_DELAY: Final = 0.5
_LOOK_INTERVAL: Final = 0.1


class LogWriter:
    """Puts, writes, flushes and dispatches, in the order that promises need."""

    def __init__(
        self,
        *,
        store: MessageStore,
        gate: AckGate,
        log_worker: Worker,
        worker: Worker,
        clock: Clock,
        timers: Timers,
        soon: Callable[[Callable[[], object]], object],
        is_awaited: Callable[[str, int], bool],
        on_written: Callable[[int, float], object],
        on_failure: Callable[[StoreFailedError], object],
        on_flushed: Callable[[int], object] | None = None,
        together: Together | None = None,
        is_any_awaited: Callable[[], bool] | None = None,
    ) -> None:
        """`soon` runs a function at the end of this turn of the loop; `on_written(count, seconds)` hears of each write.

        `is_awaited(topic, queue_id)` says whether somebody waits for messages of this queue, `is_any_awaited()`
        whether anybody waits for anything; `on_flushed(log_offset)` hears how far the log is on disk. With `together`
        large writes are made beside the dispatch of what is written already.
        """
        self.store = store
        self._gate = gate
        self._log_worker = log_worker
        self._worker = worker
        self._clock = clock
        self._timers = timers
        self._soon = soon
        self._is_awaited = is_awaited
        self._on_written = on_written
        self._on_failure = on_failure
        self._on_flushed = on_flushed
        self._together = together
        self._has_dispatched = False
        self._is_any_awaited = is_any_awaited or (lambda: False)
        self._is_limited = gate.limits_readers
        # Whether a slave has taken bytes that are not on its disk, and its master may wait for that.
        self._is_behind_master = False
        self.refusal: StoreError | None = None
        """Why nothing may be put now; None when it may. (Beside what the store itself says.)"""
        self._scheduled = False
        self._began = 0.0
        self._puts = 0
        self._hurry = False
        self._is_hurrying = False
        self._dispatch_timer: TimerHandle | None = None
        self._is_sync = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._is_pooled = store.config.transient_store_pool_enable
        self._derived_thorough_at = clock.monotonic()
        self._derived_offset = -1
        self._has_failed = False
        self._is_preparing = False
        self._is_stopped = False
        self._jobs: list[Periodic] = [
            Periodic(timers, _LOOK_INTERVAL, self._look),
            Periodic(timers, max(store.config.flush_interval_consume_queue, 10) / 1000, self._flush_derived),
            Periodic(timers, 1.0, self._prepare),
            Periodic(timers, max(store.config.clean_resource_interval, 10) / 1000, self._expire),
        ]

    def start(self) -> None:
        self._gate.start_at(self.store.written_offset)
        if self._is_limited:
            self.store.confirm(self._gate.confirmed_offset)
        self._prepare()
        for job in self._jobs:
            job.start()

    def stop(self) -> None:
        """Write what is gathered and end the jobs; the store is closed by its owner."""
        self._is_stopped = True
        for job in self._jobs:
            job.stop()
        if self._dispatch_timer is not None:
            self._dispatch_timer.cancel()
            self._dispatch_timer = None
        if self._scheduled:
            self._turn()

    # Putting

    def put(self, record: NewRecord) -> PutResult:
        """Give a record its place; it is written when this turn of the loop ends.

        Raises MessageError for one that breaks a limit, StoreFullError, StoreBusyError, TooFewReplicasError or
        StoreFailedError.
        """
        if self.refusal is not None:
            raise self.refusal
        result = self.store.put(record)
        if not self._scheduled:
            self._schedule()
        self._puts += 1
        if not self._hurry and self._is_awaited(record.topic, record.queue_id):
            self._hurry = True
        return result

    def put_batch(
        self, record: NewRecord, batch: Sequence[BatchElement] | BatchBody, *, is_large: bool = False
    ) -> PutResult:
        """Give the messages of a batch consecutive places; all or none. Raises as `put`.

        If `is_large` it is written here and now: while its bytes are in the processor's cache that costs least, and the
        next one finds the same memory free. Its places are not told then. Raises StoreError when it cannot be written.
        """
        if self.refusal is not None:
            raise self.refusal
        result = self.store.put_batch(record, batch, tells_places=not is_large)
        if not self._scheduled:
            self._schedule()
        self._puts += len(batch)
        if not self._hurry and self._is_awaited(record.topic, record.queue_id):
            self._hurry = True
        if is_large and not self._is_pooled:
            self._write_now()
        return result

    def _write_now(self) -> None:
        try:
            self.store.write()
        except StoreError:
            # What was put before has lost its place, too, which the next put may get.
            self._gate.written(self.store.written_offset, self._clock.monotonic())
            raise

    def when_stored(self, result: PutResult, done: Callable[[PutStatus], object], *, wait: bool = True) -> None:
        """Call back when this put is as safe as the store promises; `wait` False: as soon as it is written."""
        self._gate.add(result.end_offset, wait, done)

    @property
    def has_unseen(self) -> bool:
        """Whether something was put that consume queues do not show yet, and may show."""
        return self._scheduled or self.store.dispatched_offset < self.store.confirmed_offset

    def make_visible(self) -> None:
        """Bring consume queues level with what is put and confirmed, so that a reader sees it."""
        if self._scheduled:
            self._turn()
        store = self.store
        if store.dispatched_offset < store.confirmed_offset:
            self._dispatch()

    # Replicas

    def replicated(self, log_offset: int) -> None:
        """Everything up to here is on as many slaves as are required."""
        self._gate.replicated(log_offset)
        self._confirm()

    def slaves_changed(self, has_slaves: bool) -> None:
        """Whether as many slaves as are required are in sync."""
        self._gate.slaves_changed(has_slaves)
        self._confirm()

    def append(self, data: bytes | bytearray | memoryview, log_offset: int) -> int:
        """Take what is whole of these bytes of the master's log; how many. Raises as `MessageStore.append_records`."""
        size = self.store.append_records(data, log_offset)
        if size:
            if self._is_sync:
                self._is_behind_master = True
                self._flush()
            self._hurry = self._hurry or self._is_any_awaited()
            self._dispatch_in_time(few=size <= _FEW_BYTES)
        return size

    def _confirm(self) -> None:
        """Let readers see what has become as safe as promised."""
        if self._is_limited and self._gate.confirmed_offset > self.store.confirmed_offset:
            self.store.confirm(self._gate.confirmed_offset)
            self._dispatch_in_time(few=True)

    def _schedule(self) -> None:
        self._scheduled = True
        self._began = self._clock.monotonic()
        self._soon(self._turn)

    def _turn(self) -> None:
        if not self._scheduled:
            return
        self._scheduled = False
        store = self.store
        now = self._clock.monotonic()
        puts, self._puts = self._puts, 0
        if self._is_pooled:
            # Memory is the promise of the transient pool; a timer writes it.
            self._gate.written(store.end_offset, now)
            if self._is_limited:
                store.confirm(self._gate.confirmed_offset)
            self._on_written(puts, now - self._began)
            return
        self._has_dispatched = False
        try:
            store.write(None if self._together is None else self._write_meanwhile)
        except StoreError as error:
            _log.error("records could not be written: %s", error)
        self._gate.written(store.written_offset, now)
        if self._has_dispatched:
            store.tell_arrivals()
        if self._is_limited:
            store.confirm(self._gate.confirmed_offset)
        self._on_written(puts, now - self._began)
        if self._is_sync and self._gate.waits_for_disk:
            self._flush()
        if (
            self._hurry
            or self._dispatch_timer is None
            or store.written_offset - store.dispatched_offset >= _DISPATCH_BYTES
        ):
            self._dispatch_in_time(few=puts <= _FEW_PUTS)

    def _write_meanwhile(self, write: Callable[[], None]) -> None:
        """Dispatch what is written already while another thread writes: the system is as slow as we are."""
        assert self._together is not None
        self._has_dispatched = True
        self.store.hold_arrivals()
        self._together(write, self._dispatch)

    def _dispatch_in_time(self, *, few: bool) -> None:
        """Dispatch at once, or a little later together with more."""
        store = self.store
        unseen = store.confirmed_offset - store.dispatched_offset
        if unseen >= (_MEANWHILE_BYTES_MAX if self._has_dispatched else _DISPATCH_BYTES):
            self._dispatch()
        elif unseen <= 0:
            return
        elif self._hurry:
            if few:
                self._dispatch()
            elif not self._is_hurrying:
                self._is_hurrying = True
                self._set_timer(_HURRY_DELAY)
        elif self._dispatch_timer is None:
            self._set_timer(_DISPATCH_DELAY)

    def _set_timer(self, delay: float) -> None:
        if self._dispatch_timer is not None:
            self._dispatch_timer.cancel()
        self._dispatch_timer = self._timers.call_later(delay, self._dispatch)

    def _dispatch(self) -> None:
        self._is_hurrying = False
        if self._dispatch_timer is not None:
            self._dispatch_timer.cancel()
            self._dispatch_timer = None
        store = self.store
        try:
            store.dispatch()
        except StoreError as error:
            # What is written is safe; consumers see it when there is space for consume queues again.
            _log.error("messages are stored but not visible yet: %s", error)
            self._dispatch_timer = self._timers.call_later(_RETRY_DELAY, self._dispatch)
        # What is not confirmed yet may be what somebody waits for.
        self._hurry = self._hurry and self._is_limited and store.dispatched_offset < store.written_offset

    # Flushing

    def _look(self) -> None:
        now = self._clock.monotonic()
        store = self.store
        if self._is_pooled and store.durability.is_commit_due(now):
            store.write()
            self._on_written(0, 0.0)  # nobody was answered by this, but slaves can have it now
            self._dispatch()
        if store.durability.is_due(now):
            self._flush()
        self._gate.expire(now)
        self._confirm()

    def _flush(self) -> None:
        try:
            job = self.store.begin_flush()
        except StoreFailedError as error:
            self._failed(error)
            return
        if job is not None:
            self._log_worker.run(job.run, lambda _: self._flushed(job), lambda error: self._flushed(job, error))

    def _flushed(self, job: FlushJob, error: Exception | None = None) -> None:
        _note(job, error)
        try:
            flushed_offset = self.store.finish_flush(job)
        except StoreFailedError as failure:
            self._failed(failure)
            return
        self._gate.flushed(flushed_offset)
        self._confirm()
        if self._on_flushed is not None:
            self._on_flushed(flushed_offset)
            self._is_behind_master = flushed_offset < self.store.written_offset
        if self._is_sync and (self._gate.waits_for_disk or self._is_behind_master):
            self._flush()

    def _flush_derived(self) -> None:
        store = self.store
        now = self._clock.monotonic()
        thorough = now - self._derived_thorough_at >= store.config.flush_consume_queue_thorough_interval / 1000
        if thorough:
            self._derived_thorough_at = now
        elif store.dispatched_offset == self._derived_offset:
            return
        self._derived_offset = store.dispatched_offset
        try:
            job = store.begin_flush_derived(thorough=thorough)
        except StoreError as error:
            _log.error("consume queues were not flushed: %s", error)
            return
        if job is not None:
            self._worker.run(
                job.run, lambda _: self._derived_flushed(job), lambda error: self._derived_flushed(job, error)
            )

    def _derived_flushed(self, job: FlushJob, error: Exception | None = None) -> None:
        _note(job, error)
        try:
            self.store.finish_flush_derived(job)
        except StoreFailedError as failure:
            self._failed(failure)
            return
        if not self._is_stopped:  # else closing the store saves it
            self._worker.run(self.store.checkpoint.save, _ignore, _not_saved)

    def _failed(self, error: StoreFailedError) -> None:
        self._gate.fail_all()
        if not self._has_failed:
            self._has_failed = True
            self._on_failure(error)

    def _prepare(self) -> None:
        if not self._is_preparing:
            self._is_preparing = True
            self._worker.run(self.store.prepare, self._prepared, self._not_prepared)

    def _prepared(self, _: bool) -> None:
        self._is_preparing = False

    def _not_prepared(self, error: Exception) -> None:
        self._is_preparing = False
        _log.warning("the next file of the log could not be made ahead, and will be tried again: %s", error)

    def _expire(self) -> None:
        self.store.expire()


def _ignore(_: object) -> None:
    """There is nothing to say to this."""


def _not_saved(error: Exception) -> None:
    # One that promises too little only costs time; the next one promises more.
    _log.error("the checkpoint was not saved, so a start after a crash would take longer: %s", error)


def _note(job: FlushJob, error: Exception | None) -> None:
    """A flush that ended otherwise than by success or a known error has failed as well."""
    if error is not None:
        job.error = StoreError(f"a flush ended in an unexpected way: {error!r}")
