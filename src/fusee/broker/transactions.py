"""Transactions: messages stored first and delivered when their producer has decided (Java: TransactionalMessage*).

A producer sends the *half message*: it is stored under RMQ_SYS_TRANS_HALF_TOPIC, where no consumer looks. Then it
decides (code 37):

    commit      the message is put into its queue, with COMMIT in the system flag and the place of the half record;
                then an op record names the half record
    roll back   an op record alone

An op record, in RMQ_SYS_TRANS_OP_HALF_TOPIC, has the tag `d` and a body of half queue offsets, each with a comma behind
it. Offsets gather for transactionOpBatchInterval or until they fill transactionOpMsgMaxSize bytes. What is not decided
is asked about (`check_back`).

What is pending is known from the store's transaction table, which reads the same records out of the log. A commit
counts there when its message is in the log; so a decision is never lost by the gathering of op records, and they are
for Java, which knows nothing else. After a crash op records of commits that lack one are written again. An op record
that could not be written goes back to the gathered ones.

The table also tells what was decided before: the same commit twice, of a half record or of its copies, is answered as
a success and delivers once. (Java delivers each time.)
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from fusee.broker.ack_gate import PutStatus
from fusee.broker.check_back import CheckBack
from fusee.broker.delay import level_count, schedule_record
from fusee.broker.rewrites import (
    DELAY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    copy_of,
    number_of,
    real_place,
    with_property,
    with_real_place,
)
from fusee.errors import FuseeError, MessageError, StoreBusyError
from fusee.message import properties as names
from fusee.message.flags import TransactionType, with_host_families, with_transaction_type
from fusee.message.properties import find_unique_id, remove_property
from fusee.message.topics import HALF_OP_TOPIC, HALF_TOPIC, TRANSACTION_GROUP
from fusee.store.new_record import NewRecord
from fusee.store.transaction_table import TransactionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.broker.config import BrokerConfig
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.offsets import OffsetTable
    from fusee.broker.producers import ProducerTable
    from fusee.broker.statistics import Statistics
    from fusee.broker.topics import TopicTable
    from fusee.clock import Clock, TimerHandle, Timers
    from fusee.message.model import StoredMessage
    from fusee.store.results import PutResult

_log = logging.getLogger(__name__)

HALF_QUEUE: Final = 0
DECISIONS_MAX: Final = 200_000
"""Decisions that may wait for their op record; only a disk that takes nothing lets so many gather."""

_OP_PROPERTIES: Final = b"TAGS\x01d\x02WAIT\x01true\x02"
_TRANSACTION_ID: Final = names.TRANSACTION_ID.encode()
_TRANSACTION_PREPARED: Final = names.TRANSACTION_PREPARED.encode()
_REPAIRED_MAX: Final = 262_144


def half_record(record: NewRecord) -> NewRecord:
    """The half record of a transactional message."""
    properties = record.properties
    unique_id = find_unique_id(properties)
    if unique_id is not None:
        properties = with_property(properties, _TRANSACTION_ID, unique_id)
    return NewRecord(
        HALF_TOPIC,
        HALF_QUEUE,
        record.body,
        with_real_place(properties, record.topic, record.queue_id),
        record.flag,
        with_transaction_type(record.sys_flag, TransactionType.NOT),
        record.born_timestamp_ms,
        record.born_host,
        record.store_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
    )


def committed_record(half: StoredMessage, levels_max: int) -> NewRecord:
    """The record by which a committed message goes on: into its queue, or to wait there if it is delayed.

    Raises MessageError when the half message does not say where it is to go.
    """
    place = real_place(half.properties_bytes)
    if place is None:
        raise MessageError(f"the half message at log offset {half.log_offset} has no REAL_TOPIC or REAL_QID")
    properties = remove_property(remove_property(half.properties_bytes, REAL_TOPIC), REAL_QUEUE_ID)
    record = copy_of(half, *place, properties)
    record.sys_flag = with_transaction_type(record.sys_flag, TransactionType.COMMIT)
    record.prepared_transaction_offset = half.log_offset
    level = number_of(properties, DELAY) or 0
    if level > 0:
        record.properties = remove_property(record.properties, _TRANSACTION_PREPARED)
        return schedule_record(record, level, levels_max)
    return record


class Transactions:
    """Decisions of producers, on a master; asks about those that are missing."""

    def __init__(
        self,
        *,
        writer: LogWriter,
        offsets: OffsetTable,
        topics: TopicTable,
        producers: ProducerTable,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        store_host: bytes,
        statistics: Statistics | None = None,
    ) -> None:
        self._config = config
        self._writer = writer
        self._store = writer.store
        self._offsets = offsets
        self._clock = clock
        self._timers = timers
        self._store_host = store_host
        self._statistics = statistics
        self._levels_max = level_count(writer.store.config.message_delay_level)
        # Half queue offsets that wait for their op record, and those whose record is on its way.
        self._gathered: dict[int, None] = {}
        self._gathered_bytes = 0
        self._writing: dict[int, None] = {}
        self._timer: TimerHandle | None = None
        self._flush_waiters: list[Callable[[], object]] = []
        # Commits that the transaction table does not know of yet: (where they end, id), and by id.
        self._recent: deque[tuple[int, bytes]] = deque()
        self._committing: dict[bytes, PutResult] = {}
        self._is_running = False
        self._is_failing = False
        self.committed_count = 0
        """Transactions that this process has committed."""
        self.rolled_back_count = 0
        """Transactions that this process has rolled back."""
        self.check_back = CheckBack(
            writer=writer,
            decisions=self,
            offsets=offsets,
            topics=topics,
            producers=producers,
            config=config,
            clock=clock,
            timers=timers,
            statistics=statistics,
        )

    @property
    def config(self) -> BrokerConfig:
        """May be replaced while it runs."""
        return self._config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self._config = self.check_back.config = config

    # Life

    def start(self, *, unclean: bool = True) -> None:
        """Begin to ask about what is undecided; `unclean` says that the last run had no orderly end."""
        self._is_running = True
        if unclean:
            self._repair()
        self.check_back.start()

    def stop(self) -> None:
        """Ask no more, and record what was decided."""
        self._is_running = False
        self.check_back.stop()
        self.flush()
        self._writer.make_visible()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _repair(self) -> None:
        """Gather the commits whose op record did not come to be written."""
        store = self._store
        self._writer.make_visible()
        first = max(self._offsets.query(TRANSACTION_GROUP, HALF_TOPIC, HALF_QUEUE), 0)
        first = max(first, store.min_offset(HALF_TOPIC, HALF_QUEUE))
        end = min(store.max_offset(HALF_TOPIC, HALF_QUEUE), first + _REPAIRED_MAX)
        committed = []
        for queue_offset in range(first, end):
            entry = store.transactions.entry(queue_offset)
            if entry is not None and entry.state == TransactionState.COMMITTED:
                committed.append(queue_offset)
        if committed:
            recorded = self.check_back.recorded_from(first)
            for queue_offset in committed:
                if queue_offset not in recorded:
                    self._gather(queue_offset)

    # Deciding

    def commit(self, half: StoredMessage, done: Callable[[PutStatus], object]) -> None:
        """Put the message into its queue; `done` is called when it is written, or was before.

        Raises MessageError or StoreError when it cannot be put; nothing has been decided then.
        """
        if self._state_of(half) == TransactionState.COMMITTED:
            done(PutStatus.PUT_OK)
            return
        self._forget_known()
        key = _key_of(half)
        under_way = self._committing.get(key)
        if under_way is not None:
            if under_way.end_offset <= self._store.written_offset:
                done(PutStatus.PUT_OK)
            else:
                self._writer.when_stored(under_way, done, wait=False)
            return
        record = committed_record(half, self._levels_max)
        result = self._writer.put(record)
        self._committing[key] = result
        self._writer.when_stored(result, partial(self._committed, half, key, record, result, done), wait=False)

    def _committed(
        self,
        half: StoredMessage,
        key: bytes,
        record: NewRecord,
        result: PutResult,
        done: Callable[[PutStatus], object],
        status: PutStatus,
    ) -> None:
        if status.is_stored:
            self._recent.append((result.end_offset, key))
            self._decide(half)
            self.committed_count += 1
            if self._statistics is not None:
                size = result.end_offset - result.log_offset
                self._statistics.put(record.topic, record.queue_id, 1, size)
                self._statistics.transaction_finished(self._clock.time_ms() - half.born_timestamp_ms)
        else:
            del self._committing[key]
        done(status)

    def roll_back(self, half: StoredMessage) -> None:
        """Drop the message. Raises StoreBusyError when too many decisions wait for the disk."""
        if len(self._gathered) >= DECISIONS_MAX:
            raise StoreBusyError(
                f"{len(self._gathered)} decided transactions wait to be recorded; the disk takes nothing, see its space"
            )
        if self._state_of(half) != TransactionState.COMMITTED:
            self._decide(half)
            self.rolled_back_count += 1

    def settle(self, queue_offset: int) -> None:
        """Record that nobody need ask about this half record any more."""
        self._gather(queue_offset)

    def is_under_way(self, half: StoredMessage) -> bool:
        """Whether a decision about this half message is on its way into the log."""
        self._forget_known()
        return (
            half.queue_offset in self._gathered
            or half.queue_offset in self._writing
            or _key_of(half) in self._committing
        )

    def _decide(self, half: StoredMessage) -> None:
        """Gather a half record for its op record, and its last copy, which would be asked about by itself."""
        table = self._store.transactions
        queue_offset = half.queue_offset
        entry = table.entry(queue_offset)
        if entry is None or entry.state != TransactionState.DECIDED:
            self._gather(queue_offset)
        while entry is not None and entry.copy_distance:
            queue_offset += entry.copy_distance
            entry = table.entry(queue_offset)
        if queue_offset != half.queue_offset and entry is not None and entry.state != TransactionState.DECIDED:
            self._gather(queue_offset)

    def _state_of(self, half: StoredMessage) -> int:
        entry = self._store.transactions.entry(half.queue_offset)
        if entry is None or entry.log_offset != half.log_offset:
            return TransactionState.NONE
        return entry.state

    def _forget_known(self) -> None:
        """Leave to the transaction table what it has taken in."""
        dispatched_offset = self._store.dispatched_offset
        while self._recent and self._recent[0][0] <= dispatched_offset:
            self._committing.pop(self._recent.popleft()[1], None)

    # Op records

    def _gather(self, queue_offset: int) -> None:
        if queue_offset in self._gathered or queue_offset in self._writing:
            return
        self._gathered[queue_offset] = None
        self._gathered_bytes += len(str(queue_offset)) + 1
        if self._gathered_bytes > self._config.transaction_op_msg_max_size and not self._is_failing:
            self._arm(0.0)
        else:
            self._arm(self._config.transaction_op_batch_interval / 1000)

    def _arm(self, delay: float) -> None:
        if self._timer is not None:
            if delay > 0:
                return
            self._timer.cancel()
        self._timer = self._timers.call_later(delay, self._flush_due)

    def _flush_due(self) -> None:
        self._timer = None
        self.flush()

    def flush(self, then: Callable[[], object] | None = None) -> None:
        """Write op records of everything gathered; `then` is called when they, and those before, are written."""
        while self._gathered:
            part: list[int] = []
            size = 0
            for queue_offset in self._gathered:
                part.append(queue_offset)
                size += len(str(queue_offset)) + 1
                if size >= self._config.transaction_op_msg_max_size:
                    break
            try:
                result = self._writer.put(self._op_record(part))
            except FuseeError as error:
                _log.error("%d decided transactions are not recorded yet: %s", len(self._gathered), error)
                self._is_failing = True
                if self._is_running:
                    self._arm(max(self._config.transaction_op_batch_interval, 100) / 1000)
                break
            self._is_failing = False
            self._gathered_bytes -= size
            for queue_offset in part:
                del self._gathered[queue_offset]
                self._writing[queue_offset] = None
            self._writer.when_stored(result, partial(self._recorded, part, result), wait=False)
        if then is not None:
            if self._writing:
                self._flush_waiters.append(then)
            else:
                then()

    def _op_record(self, queue_offsets: list[int]) -> NewRecord:
        host = self._store_host
        return NewRecord(
            HALF_OP_TOPIC,
            HALF_QUEUE,
            b"".join(b"%d," % queue_offset for queue_offset in queue_offsets),
            _OP_PROPERTIES,
            sys_flag=with_host_families(0, host, host),
            born_timestamp_ms=self._clock.time_ms(),
            born_host=host,
            store_host=host,
        )

    def _recorded(self, part: list[int], result: PutResult, status: PutStatus) -> None:
        for queue_offset in part:
            del self._writing[queue_offset]
            if not status.is_stored:
                self._is_failing = True
                self._gather(queue_offset)
        if status.is_stored and self._statistics is not None:
            self._statistics.put(HALF_OP_TOPIC, HALF_QUEUE, 1, result.end_offset - result.log_offset)
        if not self._writing:
            waiters, self._flush_waiters = self._flush_waiters, []
            for waiter in waiters:
                waiter()


def _key_of(half: StoredMessage) -> bytes:
    """What a half message and its copies have in common."""
    unique_id = find_unique_id(half.properties_bytes)
    return unique_id if unique_id is not None else b"%d" % half.log_offset
