"""Delayed messages: put aside by delay level, delivered when their time has come (Java: ScheduleMessageService).

A message with the property DELAY goes to the topic SCHEDULE_TOPIC_XXXX, queue level - 1; REAL_TOPIC and REAL_QID say
where it is to go. The consume queues of that topic hold the delivery time in place of the tag. All messages of a level
wait equally long, so a queue is in order of delivery, and one position for each level says everything:

    delivered ...  stored_offset  in flight ...  next_offset  due or waiting ...  end of the queue

Delivery puts a copy of the message into its queue. Those that are due go together, a limited number in one turn of
the loop, one batch of a level after the other: the next begins when the one before is in the file. One timer is armed
for the earliest delivery time of all levels, and arrival in the topic may set it earlier.

A copy that could not be stored is tried again from there, after a while that doubles up to ten seconds.

Progress is saved every flushDelayOffsetInterval and on stop, only as far as the copies are on the disk
(`delay_progress` gives the format, and what happens after a crash: nothing is lost and nothing comes twice). A batch is
one write, so no flush ends in the midst of it.

A slave does not deliver: it keeps the master's progress (`take_over`), and delivers from there should it have to act
for its master. What the master has delivered since is found in the slave's log, as after a crash. The copies then go to
the queues of other brokers (`escape`), so that they are on no disk of ours and count when they are accepted there.

Where a delivery time is later than the level can mean (the clock was set back, a level became shorter), the message is
delivered at once, as in Java. Levels that are no longer in messageDelayLevel are delivered to their end; Java leaves
them.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from fusee.broker.delay_progress import DelayOffsets, delivered_record, skip_delivered
from fusee.broker.documents import next_version
from fusee.broker.rewrites import DELAY, with_property, with_real_place
from fusee.errors import FuseeError, StoreError
from fusee.message import properties as names
from fusee.message.properties import remove_property
from fusee.message.record import decode_record
from fusee.message.topics import SCHEDULE_TOPIC
from fusee.service import Periodic
from fusee.store.consume_queue import BLANK_SIZE, EXTENSION_ADDRESS_MAX
from fusee.store.dispatch_batch import DispatchBatch
from fusee.store.new_record import NewRecord
from fusee.wire.bodies.topic import DataVersion
from fusee.wire.lenient_json import dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fusee.broker.ack_gate import PutStatus
    from fusee.broker.config import BrokerConfig
    from fusee.broker.statistics import Statistics
    from fusee.broker.worker import Worker
    from fusee.clock import Clock, TimerHandle, Timers
    from fusee.store.engine import MessageStore
    from fusee.store.results import Dispatched, PutResult
    from fusee.store.saved_document import SavedDocument

_log = logging.getLogger(__name__)

SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"

# In one turn of the loop, so that others get theirs.
_MESSAGES_MAX: Final = 256
_BYTES_MAX: Final = 4 * 1024 * 1024
_WAIT_MAX: Final = 1.0
"""Seconds after which the wall clock is looked at again, whatever the timer was set to."""
_PAUSE_FIRST_MS: Final = 100
_PAUSE_MAX_MS: Final = 10_000
_LOG_DISTANCE_MAX: Final = 256 * 1024 * 1024
"""Bytes of the log that the next start may have to read for nothing."""
_VERSION_STEP: Final = 200
_TIMER_NAMES: Final = tuple(
    name.encode() for name in (names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS)
)


def schedule_record(record: NewRecord, level: int, levels_max: int) -> NewRecord:
    """The record that waits in place of this one; a level over the highest means the highest."""
    level = min(level, levels_max)
    properties = with_property(record.properties, DELAY, level)
    for name in _TIMER_NAMES:
        properties = remove_property(properties, name)
    return NewRecord(
        SCHEDULE_TOPIC,
        level - 1,
        record.body,
        with_real_place(properties, record.topic, record.queue_id),
        record.flag,
        record.sys_flag,
        record.born_timestamp_ms,
        record.born_host,
        record.store_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
    )


def level_count(message_delay_level: str) -> int:
    """How many levels the setting messageDelayLevel has."""
    return len(message_delay_level.split())


def _interval(config: BrokerConfig) -> float:
    return max(config.flush_delay_offset_interval, 10) / 1000


class _Level:
    """How far one level has come."""

    __slots__ = (
        "batch_end",
        "batch_start",
        "delay_ms",
        "due_ms",
        "durable_offset",
        "first_void",
        "has_failed",
        "in_flight",
        "next_offset",
        "number",
        "pause_ms",
        "retry_ms",
        "stamps",
        "stored_offset",
    )

    def __init__(self, number: int, delay_ms: int | None, queue_offset: int) -> None:
        self.number = number
        self.delay_ms = delay_ms
        self.next_offset = self.stored_offset = self.durable_offset = queue_offset
        # When to look at it again; None while there is nothing to wait for.
        self.due_ms: int | None = None
        self.pause_ms = self.retry_ms = 0
        self.has_failed = False
        self.in_flight = 0
        self.first_void: int | None = None
        self.batch_start = self.batch_end = -1
        # (queue offset behind a batch, where its copies begin and end in the log), until they are on the disk.
        self.stamps: deque[tuple[int, int, int]] = deque()

    @property
    def queue_id(self) -> int:
        return self.number - 1


class Outlet(Protocol):
    """Where copies go: the log of a master, or the queues of others."""

    @property
    def store(self) -> MessageStore:
        """Where the messages wait."""

    def make_visible(self) -> None: ...

    def put(self, record: NewRecord) -> PutResult: ...

    def when_stored(self, result: PutResult, done: Callable[[PutStatus], object], *, wait: bool = True) -> None: ...


class DelayDelivery:
    """Delivers delayed messages, on a master or a slave that acts for it."""

    def __init__(
        self,
        *,
        writer: Outlet,
        document: SavedDocument[DelayOffsets],
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        worker: Worker,
        statistics: Statistics | None = None,
    ) -> None:
        self._writer = writer
        self._store = writer.store
        self._document = document
        self._clock = clock
        self._timers = timers
        self._worker = worker
        self._statistics = statistics
        self._levels: dict[int, _Level] = {}
        self._is_running = False
        self._is_listening = False
        self._timer: TimerHandle | None = None
        self._timer_ms = 0
        self._version = DataVersion()
        self._updates = 0
        self._saved: DelayOffsets | None = None
        self._skipped: dict[int, int] = {}
        self._is_saving = False
        self._config = config
        self._saves = Periodic(timers, _interval(config), self.save)

    @property
    def config(self) -> BrokerConfig:
        """May be replaced while it runs."""
        return self._config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self._config = config
        self._saves.interval = _interval(config)

    # Life

    def start(self, *, unclean: bool = True) -> None:
        """Take up where the last run has stopped; `unclean` says that it had no orderly end.

        Raises StoreCorruptError when neither the file of progress nor its `.bak` can be read. Reads the log from the
        last save on.
        """
        saved = self.load()
        self._version = saved.data_version
        self._levels = {}
        store = self._store
        self._writer.make_visible()
        positions = dict.fromkeys(range(1, level_count(store.config.message_delay_level) + 1), 0)
        positions |= {queue_id + 1: 0 for queue_id in store.queues.queue_ids(SCHEDULE_TOPIC)}
        positions |= {level: position for level, position in saved.offset_table.items() if level > 0}
        positions |= {level: max(position, positions.get(level, 0)) for level, position in self._skipped.items()}
        self._skipped = {}
        for level, position in positions.items():
            min_offset = store.min_offset(SCHEDULE_TOPIC, level - 1)
            max_offset = store.max_offset(SCHEDULE_TOPIC, level - 1)
            positions[level] = max(min(position, max_offset), min_offset)
        positions = skip_delivered(store, positions, saved.log_offset, unclean=unclean)
        self._levels = {
            level: _Level(level, store.config.delay_ms_of(level), position) for level, position in positions.items()
        }
        self._saved = saved
        if not self._is_listening:
            store.on_arrival(self._arrived)
            self._is_listening = True
        self._is_running = True
        self._saves.start()
        for state in self._levels.values():
            self._look(state)
        self._arm()

    def stop(self) -> None:
        """Deliver nothing more, and save how far it came."""
        if not self._is_running:
            return
        self._is_running = False
        self._saves.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._writer.make_visible()
        with suppress(StoreError):
            # What cannot be synced is not counted, and found in the log at the next start.
            self._store.flush()
        snapshot = self._snapshot()
        if not self._config.is_master:
            self._saved = snapshot  # which may be needed before it is on the disk
        self._save(snapshot)

    def load(self) -> DelayOffsets:
        """Where to begin: on a slave what it was told last, which may not be in the file yet.

        Raises StoreCorruptError.
        """
        if self._saved is None or self._config.is_master:
            self._saved = self._document.load() or DelayOffsets()
        return self._saved

    # Copies of the progress

    @property
    def is_running(self) -> bool:
        """Whether this broker delivers."""
        return self._is_running

    def take_over(self, progress: DelayOffsets) -> None:
        """Be where the master is, unless this broker delivers itself: a slave's way."""
        if self._is_running or self._is_saving or progress == self.load():
            return
        self._version = progress.data_version
        self._levels.clear()
        self._saved = progress
        self._save(progress)

    def skip(self, positions: Mapping[int, int]) -> None:
        """Leave out at the next start what another has delivered: by level the first message that it has not."""
        self._skipped |= {
            level: max(position, self._skipped.get(level, 0)) for level, position in positions.items() if level > 0
        }

    # What others ask

    @property
    def offsets(self) -> dict[int, tuple[int, int]]:
        """(next to be delivered, end of the queue) by level, of the levels in use."""
        if not self._levels and self._saved is not None:
            return {
                level: (position, self._store.max_offset(SCHEDULE_TOPIC, level - 1))
                for level, position in self._saved.offset_table.items()
            }
        return {
            state.number: (state.stored_offset, self._store.max_offset(SCHEDULE_TOPIC, state.queue_id))
            for state in self._levels.values()
            if state.stored_offset or self._store.max_offset(SCHEDULE_TOPIC, state.queue_id)
        }

    def running_stats(self) -> dict[str, str]:
        """What runtime info shows: `scheduleMessageOffset_<level>` is `delivered,end`."""
        return {
            f"scheduleMessageOffset_{level}": f"{position},{end}" for level, (position, end) in self.offsets.items()
        }

    def encode(self, *, is_exact: bool = False) -> bytes:
        """The table of progress as slaves ask for it (code 45); `is_exact` with the place in the log that it is of."""
        if is_exact and self._is_running:
            return dumps_fastjson(self._snapshot())
        table = {level: position for level, (position, _) in self.offsets.items()}
        return dumps_fastjson(DelayOffsets(data_version=self._version, offset_table=table))

    # Delivery

    def _arrived(self, batch: Sequence[Dispatched]) -> None:
        if not self._is_running or (isinstance(batch, DispatchBatch) and SCHEDULE_TOPIC not in batch.topics):
            return
        for record in batch:
            if record.topic == SCHEDULE_TOPIC:
                number = record.queue_id + 1
                state = self._levels.get(number)
                if state is None:
                    delay_ms = self._store.config.delay_ms_of(number)
                    state = self._levels[number] = _Level(number, delay_ms, record.queue_offset)
                if state.due_ms is None and not state.in_flight:
                    self._look(state)
        self._arm()

    def _look(self, state: _Level) -> int | None:
        """Find out when the next message of a level is due."""
        state.due_ms = None
        queue = self._store.queues.get(SCHEDULE_TOPIC, state.queue_id)
        if queue is None:
            return None
        # What lies before has left the log, delivered or not.
        state.next_offset = max(state.next_offset, min(queue.min_offset, queue.next_offset))
        if state.next_offset < queue.next_offset:
            due_ms = now_ms = self._clock.time_ms()
            for _, log_offset, size, tags_code, _ in queue.units(state.next_offset, 1):
                if size != BLANK_SIZE:
                    due_ms = self._due(state, log_offset, tags_code, now_ms)
            state.due_ms = max(due_ms, state.retry_ms)
        return state.due_ms

    def _due(self, state: _Level, log_offset: int, tags_code: int, now_ms: int) -> int:
        if tags_code <= EXTENSION_ADDRESS_MAX:
            # Java's extension of consume queues has the time; it can be had without.
            tags_code = (self._store.store_time(log_offset) or 0) + (state.delay_ms or 0)
        if state.delay_ms is not None and tags_code > now_ms + state.delay_ms:
            return now_ms
        return tags_code

    def _arm(self) -> None:
        """Set the timer for the earliest delivery."""
        due = [state.due_ms for state in self._levels.values() if state.due_ms is not None and not state.in_flight]
        if not due or not self._is_running:
            return
        earliest_ms = min(due)
        if self._timer is not None:
            if self._timer_ms <= earliest_ms:
                return
            self._timer.cancel()
        self._timer_ms = earliest_ms
        wait = (earliest_ms - self._clock.time_ms()) / 1000
        self._timer = self._timers.call_later(min(max(wait, 0.0), _WAIT_MAX), self._tick)

    def _tick(self) -> None:
        self._timer = None
        for state in self._levels.values():
            if state.due_ms is None or state.in_flight:
                continue
            due_ms = self._look(state)
            if due_ms is not None and due_ms <= self._clock.time_ms():
                self._deliver(state)
        self._arm()

    def _deliver(self, state: _Level) -> None:
        """Put copies of what is due in a level, up to the limits of one turn."""
        store = self._store
        queue = store.queues.get(SCHEDULE_TOPIC, state.queue_id)
        if queue is None:
            return
        now_ms = self._clock.time_ms()
        state.batch_start = state.batch_end = -1
        state.has_failed = False
        size_left = _BYTES_MAX
        for queue_offset, log_offset, size, tags_code, _ in queue.units(state.next_offset, _MESSAGES_MAX):
            record = None
            if size != BLANK_SIZE:
                if size_left <= 0 or self._due(state, log_offset, tags_code, now_ms) > now_ms:
                    break
                data = store.record_at(log_offset)
                record = None if data is None else delivered_record(decode_record(data))
                if record is None:
                    _log.warning(
                        "the delayed message %d of level %d, at log offset %d, cannot be delivered: %s",
                        queue_offset,
                        state.number,
                        log_offset,
                        "its record is gone" if data is None else "REAL_TOPIC and REAL_QID do not name a queue",
                    )
            if record is not None:
                try:
                    result = self._writer.put(record)
                except FuseeError as error:
                    self._put_off(state, error)
                    break
                size_left -= size
                state.in_flight += 1
                self._writer.when_stored(result, partial(self._stored, state, queue_offset, record, result), wait=False)
            state.next_offset = queue_offset + 1
        if not state.in_flight:
            self._settle(state)

    def _stored(
        self, state: _Level, queue_offset: int, record: NewRecord, result: PutResult, status: PutStatus
    ) -> None:
        state.in_flight -= 1
        if status.is_stored:
            if state.batch_start < 0:
                state.batch_start = result.log_offset
            state.batch_end = max(state.batch_end, result.end_offset)
            if self._statistics is not None:
                size = result.end_offset - result.log_offset
                self._statistics.put(record.topic, record.queue_id, 1, size)
                self._statistics.got(SCHEDULE_GROUP, SCHEDULE_TOPIC, state.queue_id, 1, size, False)
        elif state.first_void is None or queue_offset < state.first_void:
            state.first_void = queue_offset
        if not state.in_flight:
            self._settle(state)
            self._arm()

    def _settle(self, state: _Level) -> None:
        """All of a batch are stored or void: go on behind the last one that is stored."""
        if state.first_void is not None:
            # A failed write makes void all that was put behind a place of the log, so nothing behind it is stored.
            state.next_offset = state.first_void
            state.first_void = None
            self._put_off(state, "the log could not be written")
        if not state.has_failed:
            state.pause_ms = state.retry_ms = 0
        if state.next_offset != state.stored_offset:
            state.stored_offset = state.next_offset
            state.stamps.append((state.stored_offset, state.batch_start, state.batch_end))
            self._updates += 1
            if self._updates % _VERSION_STEP == 0:
                self._version = next_version(self._version, self._clock)
        self._advance_durable(state)
        self._look(state)

    def _put_off(self, state: _Level, reason: object) -> None:
        """Try again later, and later each time."""
        if not state.pause_ms:
            _log.error("delayed messages of level %d wait, and are tried again: %s", state.number, reason)
        state.has_failed = True
        state.pause_ms = min(max(state.pause_ms * 2, _PAUSE_FIRST_MS), _PAUSE_MAX_MS)
        state.retry_ms = self._clock.time_ms() + state.pause_ms

    # Saving

    def save(self) -> None:
        """Save progress, if there is any, without waiting for the disk."""
        snapshot = self._snapshot()
        if not self._is_saving and self._has_changed(snapshot):
            self._save(snapshot)

    def _snapshot(self) -> DelayOffsets:
        """What may be told the next run: only what the disk has."""
        log_offset = self._store.flushed_offset
        table: dict[int, int] = {}
        for state in self._levels.values():
            self._advance_durable(state)
            log_offset = min([log_offset, *(start for _, start, _ in state.stamps if start >= 0)])
            if state.durable_offset or self._store.max_offset(SCHEDULE_TOPIC, state.queue_id):
                table[state.number] = state.durable_offset
        return DelayOffsets(data_version=self._version, log_offset=log_offset, offset_table=table)

    def _advance_durable(self, state: _Level) -> None:
        flushed_offset = self._store.flushed_offset
        stamps = state.stamps
        while stamps and stamps[0][2] <= flushed_offset:
            state.durable_offset = stamps.popleft()[0]

    def _has_changed(self, snapshot: DelayOffsets) -> bool:
        """Whether the file says something else; a place in the log alone is not worth a save, unless it is far."""
        saved = self._saved
        return (
            saved is None
            or saved.log_offset is None
            or snapshot.offset_table != saved.offset_table
            or (snapshot.log_offset or 0) - saved.log_offset > _LOG_DISTANCE_MAX
        )

    def _save(self, snapshot: DelayOffsets) -> None:
        self._is_saving = True
        self._worker.run(
            partial(self._document.save, snapshot), partial(self._on_saved, snapshot), self._on_save_failed
        )

    def _on_saved(self, snapshot: DelayOffsets, _: None) -> None:
        self._is_saving = False
        self._saved = snapshot

    def _on_save_failed(self, error: Exception) -> None:
        self._is_saving = False
        _log.error("%s was not saved and will be again: %s", self._document.path, error)
