"""Asking producers about transactions that they have not decided (Java: TransactionalMessageCheckService).

Every transactionCheckInterval there is a round over what is pending, oldest first:

    given up    asked transactionCheckMax times, or older than the log is kept: a copy goes to the topic
                TRANS_CHECK_MAX_TIME_TOPIC, where an administrator finds it and may have it asked about again (code 323)
    put off     its producer wants to be left in peace for a while (CHECK_IMMUNITY_TIME_IN_SECONDS), which is not over:
                it is put again at the end of the half queue, naming in TRAN_PREPARED_QUEUE_OFFSET the one decided on
    too young   born less than transactionTimeOut ago: the round ends here, all that follow are younger
    asked       it is put again at the end of the half queue with one more check counted, and when that is written, code
                39 goes to one producer of its group, which answers with code 37

Putting again keeps the half queue moving: behind a round nothing is pending before the place that it ended at. That
place is committed for the group CID_RMQ_SYS_TRANS, as is the first op record that says something about what comes
behind it, so that a Java broker on this store would go on right there. (Java also counts a check when it puts off, and
so gives up after a long immunity without ever having asked.)

A round runs in steps of limited size, each beginning when all puts of the one before are written. When one is not, the
round ends, and the next begins with the same transaction.
"""

from __future__ import annotations

import logging
from collections import deque
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from fusee.broker.retry import READ_WRITE
from fusee.broker.rewrites import copy_of, number_of, real_place, with_property
from fusee.errors import FuseeError
from fusee.message import properties as names
from fusee.message.ids import encode_offset_id
from fusee.message.properties import find_property
from fusee.message.record import decode_record, encode_record, iterate_records
from fusee.message.topics import CHECK_MAX_TIME_TOPIC, HALF_OP_TOPIC, HALF_TOPIC, TRANSACTION_GROUP
from fusee.service import Periodic
from fusee.store.results import GetStatus
from fusee.store.transaction_table import TransactionState
from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from fusee.wire.headers.transaction import CheckTransactionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fusee.broker.ack_gate import PutStatus
    from fusee.broker.config import BrokerConfig
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.offsets import OffsetTable
    from fusee.broker.producers import ProducerTable
    from fusee.broker.statistics import Statistics
    from fusee.broker.topics import TopicTable
    from fusee.clock import Clock, Timers
    from fusee.message.model import StoredMessage
    from fusee.store.new_record import NewRecord
    from fusee.store.results import PutResult
    from fusee.store.transaction_table import PendingTransaction

_log = logging.getLogger(__name__)

_HALF_QUEUE: Final = 0
_ROUND_MAX: Final = 10_000
_STEP_MAX: Final = 256
_OP_READS_MAX: Final = 1_000
_CHECK_TIMES: Final = names.TRANSACTION_CHECK_TIMES.encode()
_IMMUNITY: Final = names.CHECK_IMMUNITY_TIME_IN_SECONDS.encode()
_PREPARED_QUEUE_OFFSET: Final = names.TRANSACTION_PREPARED_QUEUE_OFFSET.encode()
_WAIT: Final = names.WAIT.encode()
_PRODUCER_GROUP: Final = names.PRODUCER_GROUP.encode()


class Verdict(Enum):
    """What a round does about one half message."""

    GIVE_UP = "give up"
    PUT_OFF = "put off"
    TOO_YOUNG = "too young"
    ASK = "ask"


class Decisions(Protocol):
    """What is decided and on its way into the log."""

    def flush(self, then: Callable[[], object] | None = None) -> None: ...

    def is_under_way(self, half: StoredMessage) -> bool: ...

    def settle(self, queue_offset: int) -> None: ...


def immunity_ms(half: StoredMessage, timeout_ms: int) -> int | None:
    """How long after its birth its producer wants not to be asked about this one; None when it does not say."""
    value = find_property(half.properties_bytes, _IMMUNITY)
    if value is None:
        return None
    seconds = number_of(half.properties_bytes, _IMMUNITY)
    return timeout_ms if seconds is None or seconds == -1 else seconds * 1000


def judge(half: StoredMessage, now_ms: int, *, timeout_ms: int, checks_max: int, kept_ms: int) -> Verdict:
    """What to do about a half message at this time."""
    age_ms = now_ms - half.born_timestamp_ms
    checks = number_of(half.properties_bytes, _CHECK_TIMES)
    if (checks is not None and checks >= checks_max) or age_ms > kept_ms:
        return Verdict.GIVE_UP
    immune_ms = immunity_ms(half, timeout_ms)
    if immune_ms is not None:
        return Verdict.PUT_OFF if age_ms <= immune_ms else Verdict.ASK
    # A clock that is ahead of ours would keep a transaction waiting for ever, so it is asked about at once.
    return Verdict.TOO_YOUNG if 0 <= age_ms <= timeout_ms else Verdict.ASK


def _interval(config: BrokerConfig) -> float:
    return max(config.transaction_check_interval, 10) / 1000


class CheckBack:
    """Rounds over the pending transactions, on a master."""

    def __init__(
        self,
        *,
        writer: LogWriter,
        decisions: Decisions,
        offsets: OffsetTable,
        topics: TopicTable,
        producers: ProducerTable,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        statistics: Statistics | None = None,
    ) -> None:
        self._config = config
        self._writer = writer
        self._store = writer.store
        self._decisions = decisions
        self._offsets = offsets
        self._topics = topics
        self._producers = producers
        self._clock = clock
        self._timers = timers
        self._statistics = statistics
        self._rounds = Periodic(timers, _interval(config), self.begin)
        self._is_running = False
        # Of the round under way.
        self._is_under_way = False
        self._started_ms = 0
        self._left: deque[PendingTransaction] = deque()
        self._has_more = False
        self._has_put = False
        self._is_ending = False
        self._in_flight = 0

    @property
    def config(self) -> BrokerConfig:
        """May be replaced while it runs."""
        return self._config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self._config = config
        self._rounds.interval = _interval(config)

    def start(self) -> None:
        self._is_running = True
        self._rounds.start()

    def stop(self) -> None:
        """Begin no round any more; one that is under way ends."""
        self._is_running = False
        self._is_ending = True
        self._rounds.stop()

    # A round

    def begin(self) -> None:
        """Begin a round, unless one is under way."""
        if self._is_under_way or not self._is_running:
            return
        self._is_under_way = True
        self._is_ending = False
        self._started_ms = self._clock.time_ms()
        # First what is decided already, so that nothing before the end of the round stays undecided.
        self._decisions.flush(partial(self._soon, self._fetch))

    def _soon(self, step: Callable[[], None]) -> None:
        self._timers.call_later(0.0, step)

    def _fetch(self) -> None:
        """See what is pending; what this round has put again is not among it."""
        self._writer.make_visible()
        self._left = deque(self._store.transactions.pending(_ROUND_MAX, self._started_ms))
        self._has_more = len(self._left) == _ROUND_MAX
        self._has_put = False
        self._step()

    def _step(self) -> None:
        while self._left and not self._is_ending and self._in_flight < _STEP_MAX:
            self._take(self._left.popleft())
        if not self._in_flight:
            self._next()

    def _next(self) -> None:
        """All that was put is written, or void: go on or end."""
        if not self._is_ending and self._left:
            self._soon(self._step)
        elif not self._is_ending and self._has_more and self._has_put:
            self._soon(self._fetch)
        else:
            self._end()

    def _end(self) -> None:
        self._left.clear()
        self._is_under_way = False
        if self._is_running:
            self._commit_offsets()

    def _take(self, pending: PendingTransaction) -> None:
        """Do what is to be done about one transaction."""
        entry = self._store.transactions.entry(pending.queue_offset)
        data = self._store.record_at(pending.log_offset)
        if entry is None or entry.state != TransactionState.PREPARED or data is None:
            return
        half = decode_record(data)
        verdict = judge(
            half,
            self._clock.time_ms(),
            timeout_ms=self._config.transaction_time_out,
            checks_max=self._config.transaction_check_max,
            kept_ms=self._store.config.file_reserved_time * 3_600_000,
        )
        if verdict is Verdict.TOO_YOUNG or self._decisions.is_under_way(half):
            self._is_ending = True
            return
        try:
            if verdict is Verdict.GIVE_UP:
                self._give_up(half)
            else:
                self._put_again(half, verdict)
        except FuseeError as error:
            _log.error("transactions are not asked about now: %s", error)
            self._is_ending = True

    def _give_up(self, half: StoredMessage) -> None:
        self._topics.create_for_send_back(CHECK_MAX_TIME_TOPIC, 1, READ_WRITE)
        _log.warning(
            "the half message %d (id %s) was asked about too often or is too old; it is kept in %s",
            half.queue_offset,
            half.message_id,
            CHECK_MAX_TIME_TOPIC,
        )
        self._put(half, copy_of(half, CHECK_MAX_TIME_TOPIC, 0), None)

    def _put_again(self, half: StoredMessage, verdict: Verdict) -> None:
        properties = half.properties_bytes
        checks = number_of(properties, _CHECK_TIMES) or 0
        if verdict is Verdict.ASK:
            properties = with_property(properties, _CHECK_TIMES, checks + 1)
            record = copy_of(half, HALF_TOPIC, _HALF_QUEUE, properties)
            self._put(half, record, partial(self._ask, half, record))
            return
        properties = with_property(properties, _CHECK_TIMES, checks)
        properties = with_property(properties, _WAIT, b"false")
        if find_property(properties, _PREPARED_QUEUE_OFFSET) is None:
            properties = with_property(properties, _PREPARED_QUEUE_OFFSET, half.queue_offset)
        self._put(half, copy_of(half, HALF_TOPIC, _HALF_QUEUE, properties), None)

    def _put(self, half: StoredMessage, record: NewRecord, then: Callable[[PutResult], None] | None) -> None:
        result = self._writer.put(record)
        self._in_flight += 1
        self._has_put = True
        self._writer.when_stored(result, partial(self._written, half, record, result, then), wait=False)

    def _written(
        self,
        half: StoredMessage,
        record: NewRecord,
        result: PutResult,
        then: Callable[[PutResult], None] | None,
        status: PutStatus,
    ) -> None:
        self._in_flight -= 1
        if status.is_stored:
            if self._statistics is not None:
                self._statistics.put(record.topic, record.queue_id, 1, result.end_offset - result.log_offset)
            if half.unique_id is None:
                # By its id the transaction table knows of which one this is a copy; without, an op record must say it.
                self._decisions.settle(half.queue_offset)
            if then is not None:
                then(result)
        else:
            self._is_ending = True
        if not self._in_flight:
            self._soon(self._next)

    def _ask(self, half: StoredMessage, record: NewRecord, result: PutResult) -> None:
        """Push the question to a producer. One that cannot be reached is asked again with the next round."""
        group = (find_property(record.properties, _PRODUCER_GROUP) or b"").decode("utf-8", "replace")
        place = real_place(record.properties)
        link = self._producers.pick(group)
        if link is None or place is None:
            _log.debug("no producer of group %s is there to be asked about %s", group, half.message_id)
            return
        header = CheckTransactionState(
            topic=HALF_TOPIC,
            half_queue_offset=result.queue_offset,
            log_offset=result.log_offset,
            msg_id=half.unique_id,
            transaction_id=half.unique_id,
            offset_msg_id=encode_offset_id(record.store_host, result.log_offset),
            broker_name=self._config.broker_name,
        )
        message = msgspec.structs.replace(
            half,
            topic=place[0],
            queue_id=place[1],
            queue_offset=result.queue_offset,
            log_offset=result.log_offset,
            properties_bytes=with_property(record.properties, _WAIT, b"false"),
            version=1,
        )
        try:
            command = Command.request(RequestCode.CHECK_TRANSACTION_STATE, header, body=encode_record(message))
            link.send_oneway(command)
        except FuseeError as error:
            _log.debug("%s was not asked about %s: %s", link.remote_address, half.message_id, error)

    # Consumer offsets, for Java

    def _commit_offsets(self) -> None:
        """Commit how far the half queue is done with, and the op queue as far as it speaks of that."""
        self._writer.make_visible()
        store = self._store
        pending = store.transactions.pending(1)
        half_offset = pending[0].queue_offset if pending else store.max_offset(HALF_TOPIC, _HALF_QUEUE)
        if half_offset > self._committed(HALF_TOPIC):
            self._offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, _HALF_QUEUE, half_offset)
        op_offset = committed = self._committed(HALF_OP_TOPIC)
        for queue_offset, half_offsets in self._op_records(committed):
            if any(named >= half_offset for named in half_offsets):
                break
            op_offset = queue_offset + 1
        if op_offset > committed:
            self._offsets.commit(TRANSACTION_GROUP, HALF_OP_TOPIC, _HALF_QUEUE, op_offset)

    def _committed(self, topic: str) -> int:
        committed = self._offsets.query(TRANSACTION_GROUP, topic, _HALF_QUEUE)
        return max(committed, self._store.min_offset(topic, _HALF_QUEUE))

    def recorded_from(self, half_offset: int) -> set[int]:
        """Half queue offsets from here on that op records name."""
        recorded: set[int] = set()
        for _, half_offsets in self._op_records(self._committed(HALF_OP_TOPIC)):
            recorded.update(named for named in half_offsets if named >= half_offset)
        return recorded

    def _op_records(self, op_offset: int) -> Iterator[tuple[int, list[int]]]:
        """(queue offset, half queue offsets) of op records from here on, a limited number of them."""
        for _ in range(_OP_READS_MAX):
            found = self._store.get(HALF_OP_TOPIC, _HALF_QUEUE, op_offset, 32)
            if found.status is not GetStatus.FOUND:
                return
            for part in found.slices:
                for message in iterate_records(part):
                    offsets = [int(text) for text in message.body.split(b",") if text.isdigit()]
                    yield message.queue_offset, offsets
            op_offset = found.next_offset

    # What was given up

    def given_up(self, limit: int) -> list[StoredMessage]:
        """The last transactions that were given up, oldest first."""
        end = self._store.max_offset(CHECK_MAX_TIME_TOPIC, 0)
        queue_offset = max(end - limit, self._store.min_offset(CHECK_MAX_TIME_TOPIC, 0))
        messages: list[StoredMessage] = []
        while queue_offset < end:
            found = self._store.get(CHECK_MAX_TIME_TOPIC, 0, queue_offset, 32)
            for part in found.slices:
                messages += iterate_records(part)
            if found.next_offset <= queue_offset:
                break
            queue_offset = found.next_offset
        return messages
