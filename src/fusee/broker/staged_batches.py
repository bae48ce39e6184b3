"""Staged batches: messages that become visible together, once, when their application commits (an extension of ours).

A writer that works in numbered batches, as a Spark query does, *stages* the messages of a batch: they are in the log,
where no consumer looks. Then it *commits* the batch. From then on they are published, whatever happens; every consumer
reads them as ordinary messages. A batch that is committed again, because its writer did not hear of the first commit,
changes nothing and is answered as committed before.

    stage    one part: a record under rmq_sys_FUSEE_STAGED. A part that comes again is known by its number
    commit   one record under rmq_sys_FUSEE_STAGED_OP is the decision: batch, and which parts it has. It moves the
             fence of the application. Copies of the messages follow in the log (`staged_publish`), then a record that
             says so. The answer comes when all that is as safe as a send is promised to be
    drop     forget what an attempt has staged; what nobody commits is forgotten after stagedTimeOut

Every state follows from the log (`staged_state`), which slaves have too: after a crash what was decided is published to
its end, and what was not decided is still staged. The commit stands before its messages in the log, so no part of the
log, as a crash or a slave may have it, shows a message without the decision. Fences must outlive old segments: a
checkpoint with all of them is put again in each new segment.

With several brokers the decision is made by one of them; its commit names what the others have (`others`). Who commits
again learns it (`decision`), and brings it to the others: so they publish what was decided, not what was staged later.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.broker.ack_gate import PutStatus
from fusee.broker.staged_publish import Publication, Publisher, count_published
from fusee.broker.staged_records import (
    CHECKPOINT_TAG_CODE,
    FENCE_SIZE,
    STAGED_QUEUE,
    Checkpoint,
    Commit,
    Done,
    Drop,
    Fence,
    Op,
    Part,
    op_of,
    op_record,
    part_of,
)
from fusee.broker.staged_state import StagedState
from fusee.errors import FuseeError, RemoteError, StoreError, SystemBusyError
from fusee.message.record import decode_record
from fusee.message.topics import STAGED_OP_TOPIC, STAGED_TOPIC
from fusee.service import Periodic
from fusee.store.consume_queue import BLANK_SIZE
from fusee.store.dispatch_batch import read_dispatched
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fusee.broker.config import BrokerConfig
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.statistics import Statistics
    from fusee.broker.topics import TopicTable
    from fusee.clock import Clock, Timers
    from fusee.store.new_record import NewRecord
    from fusee.store.results import PutResult
    from fusee.wire.bodies.staged import StagedPart, StagedParts

_log = logging.getLogger(__name__)

_LOOK_INTERVAL: Final = 1.0
_OPS_MAX: Final = 1_000
_PARTS_MAX: Final = 4_096
"""What the next start may have to read beside the last checkpoint."""
_SCAN_COUNT: Final = 4_096


class StagedBatches:
    """What is staged on a master, and what is committed."""

    def __init__(
        self,
        *,
        writer: LogWriter,
        topics: TopicTable,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        store_host: bytes,
        statistics: Statistics | None = None,
    ) -> None:
        self.config = config
        self._writer = writer
        self._store = writer.store
        self._topics = topics
        self._clock = clock
        self._store_host = store_host
        self.state = StagedState()
        """Replaced at each start."""
        self._deciding: dict[str, Publication] = {}
        self._is_running = False
        self._publisher = Publisher(
            writer=writer,
            timers=timers,
            store_host=store_host,
            on_published=self._published,
            statistics=statistics,
        )
        # Commits whose record of being done is on its way, by log offset.
        self._closing: dict[int, Publication] = {}
        self._next_op_offset = 0
        self._next_part_offset = 0
        self._checkpoint_offset = -1
        self._ops = self._parts = 0
        self._job = Periodic(timers, _LOOK_INTERVAL, self._look)

    # Life

    def start(self) -> None:
        """Take up what the log says, and publish what was decided."""
        self.state = StagedState()
        self._deciding.clear()
        self._closing.clear()
        self._writer.make_visible()
        unfinished = self._replay()
        if unfinished:
            offsets = [part for publication in unfinished for part in publication.commit.parts]
            published = count_published(self._store, offsets, unfinished[0].commit_offset)
            for publication in unfinished:
                publication.published = published
            _log.warning("%d committed batches were not published to their end, and are now", len(unfinished))
        self._is_running = True
        self._expire()
        self._publisher.start(unfinished)
        self._job.start()

    def stop(self) -> None:
        """Take nothing more, and leave a checkpoint."""
        if not self._is_running:
            return
        self._is_running = False
        self._job.stop()
        self._publisher.stop()
        if self._ops or self._parts:
            self._put_checkpoint()
        self._writer.make_visible()

    def _replay(self) -> list[Publication]:
        """Read the two topics from the last checkpoint on; what is decided and not done."""
        store, state = self._store, self.state
        found = self._last_checkpoint()
        op_offset, part_offset = (0, 0) if found is None else (found[1].op_offset, found[1].staged_offset)
        if found is not None:
            self._checkpoint_offset = found[0]
            for fence in found[1].fences:
                state.committed(fence)
        events: list[tuple[int, Part | tuple[int, int, Op]]] = []
        for log_offset, queue_offset, data in self._records(STAGED_OP_TOPIC, op_offset):
            message = decode_record(data)
            events.append((log_offset, (queue_offset, message.store_timestamp_ms, op_of(message))))
        for log_offset, _, data in self._records(STAGED_TOPIC, part_offset):
            events.append((log_offset, part_of(read_dispatched(data, 0, len(data), log_offset, lambda level: None))))
        events.sort(key=lambda event: event[0])
        unfinished: dict[int, Publication] = {}
        last_op_offset = op_offset
        for log_offset, event in events:
            if isinstance(event, Part):
                state.staged(event, last_op_offset)
                continue
            queue_offset, time_ms, op = event
            last_op_offset = queue_offset + 1
            if isinstance(op, Commit):
                unfinished[log_offset] = Publication(op, log_offset, queue_offset)
                state.committed(_fence(op, log_offset, time_ms))
            elif isinstance(op, Done):
                unfinished.pop(op.commit_offset, None)
            elif isinstance(op, Drop):
                state.dropped(op.application, op.transactions)
        self._next_op_offset = store.max_offset(STAGED_OP_TOPIC, STAGED_QUEUE)
        self._next_part_offset = store.max_offset(STAGED_TOPIC, STAGED_QUEUE)
        self._ops = self._parts = len(events)
        return list(unfinished.values())

    def _last_checkpoint(self) -> tuple[int, Checkpoint] | None:
        """(log offset, checkpoint) of the last one that is still in the log."""
        queue = self._store.queues.get(STAGED_OP_TOPIC, STAGED_QUEUE)
        if queue is None:
            return None
        end = queue.next_offset
        while end > queue.min_offset:
            start = max(end - _SCAN_COUNT, queue.min_offset)
            units = [unit for unit in self._units(STAGED_OP_TOPIC, start, end) if unit[3] == CHECKPOINT_TAG_CODE]
            for _, log_offset, _, _ in reversed(units):
                data = self._store.record_at(log_offset)
                op = None if data is None else op_of(decode_record(data))
                if isinstance(op, Checkpoint):
                    return log_offset, op
            end = start
        return None

    def _units(self, topic: str, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """(queue offset, log offset, size, tags code) of the entries of a queue."""
        queue = self._store.queues.get(topic, STAGED_QUEUE)
        while queue is not None and start < end:
            next_offset = start
            for queue_offset, log_offset, size, tags_code, _ in queue.units(start, end - start):
                next_offset = queue_offset + 1
                if size != BLANK_SIZE:
                    yield queue_offset, log_offset, size, tags_code
            if next_offset == start:
                return
            start = next_offset

    def _records(self, topic: str, queue_offset: int) -> Iterator[tuple[int, int, memoryview]]:
        """(log offset, queue offset, record) of a queue from here on, as far as they are in the log."""
        store = self._store
        start = max(queue_offset, store.min_offset(topic, STAGED_QUEUE))
        for found_offset, log_offset, _, _ in self._units(topic, start, store.max_offset(topic, STAGED_QUEUE)):
            data = store.record_at(log_offset)
            if data is not None:
                yield log_offset, found_offset, data

    # Staging

    def expected_sequence(self, application: str, transaction: str) -> int:
        """The number of the next part of a transaction."""
        found = self.state.get(application)
        staged = None if found is None else found.transactions.get(transaction)
        return 0 if staged is None else len(staged.parts)

    def stage(self, record: NewRecord, part: Part, done: Callable[[PutStatus], object]) -> None:
        """Put a part; `done` is called when it is written. `record` is its record, `part` what that says.

        Raises RemoteError for what the limits do not allow, StoreError when nothing can be put. A part that is there
        already is not put again.
        """
        application = part.application
        expected = self.expected_sequence(application, part.transaction)
        if part.sequence < expected:
            done(PutStatus.PUT_OK)
            return
        deciding = self._deciding.get(application)
        if deciding is not None and part.batch_id <= deciding.commit.batch_id:
            raise SystemBusyError(
                f"batch {deciding.commit.batch_id} of {application} is being committed; try again",
                code=ResponseCode.SYSTEM_BUSY,
            )
        if part.sequence > expected:
            raise RemoteError(
                f"part {part.sequence} of transaction {part.transaction} came before part {expected}: stage again from "
                f"{expected} on, or everything when the transaction was forgotten (stagedTimeOut)",
                code=ResponseCode.ILLEGAL_OPERATION,
            )
        self._check_limits(part)
        self._make_topics()
        if self._store.end_offset == 0:
            # Ordinary messages have 0 where a published one has the log offset of its part.
            self._put_checkpoint()
        result = self._writer.put(record)
        self._next_part_offset = result.queue_offset + 1
        part = msgspec.structs.replace(
            part,
            log_offset=result.log_offset,
            queue_offset=result.queue_offset,
            size=result.end_offset - result.log_offset,
            time_ms=result.store_timestamp_ms,
        )
        self.state.staged(part, self._next_op_offset)
        self._parts += 1
        # The commit, which stands behind in the log, is what promises more than this.
        self._writer.when_stored(result, partial(self._staged, part, done), wait=False)

    def _staged(self, part: Part, done: Callable[[PutStatus], object], status: PutStatus) -> None:
        if not status.is_stored:
            self.state.unstaged(part)
        done(status)

    def _check_limits(self, part: Part) -> None:
        config, state = self.config, self.state
        application = state.get(part.application)
        if application is None:
            self._check_room(part.application)
        elif part.transaction not in application.transactions and (
            len(application.transactions) >= config.staged_transactions_max
        ):
            raise _over(
                f"{part.application} has {len(application.transactions)} staged transactions", "stagedTransactionsMax"
            )
        elif application.parts >= config.staged_parts_max:
            raise _over(f"{part.application} has {application.parts} staged parts", "stagedPartsMax")
        if state.staged_bytes >= config.staged_bytes_max:
            raise _over(f"{state.staged_bytes} bytes are staged and not committed", "stagedBytesMax")

    def _check_room(self, application: str) -> None:
        """Whether one more application can be remembered."""
        state = self.state
        size = state.checkpoint_size + FENCE_SIZE + len(application.encode())
        if len(state) >= self.config.staged_applications_max:
            raise _over(f"{len(state)} applications are known", "stagedApplicationsMax")
        if size > self._store.config.max_message_size:
            raise _over(f"the names of {len(state)} applications fill a record", "maxMessageSize")

    def _make_topics(self) -> None:
        for topic in (STAGED_TOPIC, STAGED_OP_TOPIC):
            if self._topics.get(topic) is None:
                self._topics.put(TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1))

    # Deciding

    def commit(
        self,
        application: str,
        batch_id: int,
        parts: StagedParts,
        done: Callable[[PutStatus, bool, int], object],
        *,
        one_shot: bool = False,
    ) -> None:
        """Publish these transactions; `done(status, whether it was committed before, messages)` when it is safe.

        Raises RemoteError when something of them is missing, StoreError when nothing can be put; nothing is decided
        then.
        """
        deciding = self._deciding.get(application)
        if deciding is not None:
            if deciding.commit.batch_id != batch_id:
                raise SystemBusyError(
                    f"batch {deciding.commit.batch_id} of {application} is being committed; try again",
                    code=ResponseCode.SYSTEM_BUSY,
                )
            deciding.waiters.append(lambda status: done(status, True, 0))
            return
        if batch_id <= self.state.last_batch_id(application):
            self._commit_again(application, parts, done)
            return
        chosen = self._chosen(application, batch_id, parts.transactions)
        if self.state.get(application) is None:
            self._check_room(application)
        self._make_topics()
        op = Commit(
            application,
            batch_id,
            parts.transactions,
            [part.log_offset for part in chosen],
            parts.others,
            one_shot,
        )
        result = self._put_op(op)
        messages = sum(part.count for part in chosen)
        publication = Publication(op, result.log_offset, result.queue_offset)
        publication.waiters.append(lambda status: done(status, False, messages))
        self._deciding[application] = publication
        self._writer.when_stored(result, partial(self._decided, publication, result), wait=False)

    def _chosen(self, application: str, batch_id: int, wanted: Sequence[StagedPart]) -> list[Part]:
        """The parts of these transactions, in order. Raises RemoteError when one is not there whole."""
        found = self.state.get(application)
        chosen: list[Part] = []
        names = {each.transaction for each in wanted}
        if len(names) < len(wanted):
            raise RemoteError("a transaction is named twice", code=ResponseCode.INVALID_PARAMETER)
        for each in wanted:
            transaction = None if found is None else found.transactions.get(each.transaction)
            if transaction is None or transaction.batch_id != batch_id or len(transaction.parts) != each.parts:
                known = 0 if transaction is None else len(transaction.parts)
                raise RemoteError(
                    f"{known} of the {each.parts} parts of transaction {each.transaction} of {application}, batch "
                    f"{batch_id}, are staged here: stage the batch again",
                    code=ResponseCode.ILLEGAL_OPERATION,
                )
            chosen += transaction.parts
        for part in chosen:
            if part.log_offset < self._store.log.min_offset:
                raise RemoteError(
                    f"messages that {application} staged have left the log with an old segment: stage the batch again",
                    code=ResponseCode.ILLEGAL_OPERATION,
                )
            if self._topics.get(part.topic) is None:
                raise RemoteError(
                    f"topic {part.topic}, for which messages are staged, is no more: make it again",
                    code=ResponseCode.TOPIC_NOT_EXIST,
                )
        return chosen

    def _decided(self, publication: Publication, result: PutResult, status: PutStatus) -> None:
        commit = publication.commit
        del self._deciding[commit.application]
        if not status.is_stored:
            _tell(publication, status)
            return
        self.state.committed(_fence(commit, publication.commit_offset, result.store_timestamp_ms))
        self._publisher.add(publication)

    def _commit_again(
        self, application: str, parts: StagedParts, done: Callable[[PutStatus, bool, int], object]
    ) -> None:
        """Answer when the commit of before is as safe as it was promised."""
        dropped = [each.transaction for each in parts.transactions]
        self.state.dropped(application, dropped)
        under_way = [
            publication
            for publication in (*self._publisher.unfinished(), *self._closing.values())
            if publication.commit.application == application
        ]
        if under_way:
            under_way[-1].waiters.append(lambda status: done(status, True, 0))
            return
        found = self.state.get(application)
        fence = None if found is None else found.fence
        # Behind everything of the commit in the log: when this is safe, so is that.
        result = self._put_op(Done(-1 if fence is None else fence.commit_offset))
        self._writer.when_stored(result, lambda status: done(status, True, 0))

    def _published(self, publication: Publication) -> None:
        """All messages of a commit are in the file: say so in the log, and answer when it is safe."""
        offset = publication.commit_offset
        self._closing[offset] = publication
        try:
            result = self._put_op(Done(offset))
        except FuseeError as error:
            # Whoever waits asks again; the next start finds that everything is published.
            _log.warning("a published batch is not recorded as done: %s", error)
            self._closed(publication, PutStatus.NOT_STORED)
            return
        self._writer.when_stored(result, partial(self._closed, publication))

    def _closed(self, publication: Publication, status: PutStatus) -> None:
        self._closing.pop(publication.commit_offset, None)
        _tell(publication, status)

    def decision(self, application: str) -> Commit | None:
        """The last commit of an application; None when there is none, or it has left the log."""
        found = self.state.get(application)
        if found is None or found.fence is None:
            return None
        data = self._store.record_at(found.fence.commit_offset)
        op = None if data is None else op_of(decode_record(data))
        return op if isinstance(op, Commit) else None

    def drop(self, application: str, transactions: Sequence[str], done: Callable[[PutStatus, int], object]) -> None:
        """Forget these, for good; `done(status, how many there were)` when that is written. Raises StoreError."""
        deciding = self._deciding.get(application)
        taken = {each.transaction for each in deciding.commit.transactions} if deciding is not None else set()
        found = self.state.get(application)
        known = [
            name
            for name in dict.fromkeys(transactions)
            if found is not None and name in found.transactions and name not in taken
        ]
        if not known:
            done(PutStatus.PUT_OK, 0)
            return
        result = self._put_op(Drop(application, known))
        count = self.state.dropped(application, known)
        self._writer.when_stored(result, lambda status: done(status, count), wait=False)

    # The log

    def _put_op(self, op: Op) -> PutResult:
        result = self._writer.put(op_record(op, host=self._store_host, now_ms=self._clock.time_ms()))
        self._next_op_offset = result.queue_offset + 1
        self._ops += 1
        return result

    def _look(self) -> None:
        self._expire()
        if not len(self.state):
            return
        segments = self._store.log.segments()
        is_behind = bool(segments) and segments[-1][0] > self._checkpoint_offset
        if is_behind or self._ops >= _OPS_MAX or self._parts >= _PARTS_MAX:
            self._put_checkpoint()

    def _expire(self) -> None:
        gone = self.state.expired(
            self._clock.time_ms(),
            timeout_ms=self.config.staged_time_out,
            reserved_ms=self.config.staged_reserved_time,
        )
        for application, transaction in gone:
            _log.warning("%s staged %s and did not commit it in time: it is forgotten", application, transaction)

    def _put_checkpoint(self) -> None:
        """Let the next start begin here."""
        staged = list(self.state.transactions())
        unfinished = [*self._publisher.unfinished(), *self._closing.values(), *self._deciding.values()]
        op = Checkpoint(
            staged_offset=min([self._next_part_offset, *(each.parts[0].queue_offset for each in staged)]),
            op_offset=min(
                [
                    self._next_op_offset,
                    *(each.op_offset for each in staged),
                    *(publication.op_offset for publication in unfinished),
                ]
            ),
            fences=self.state.fences(),
        )
        try:
            self._make_topics()
            result = self._put_op(op)
        except StoreError as error:
            _log.warning("the checkpoint of staged batches waits: %s", error)
            return
        self._ops = self._parts = 0
        self._checkpoint_offset = result.log_offset


def _fence(commit: Commit, commit_offset: int, time_ms: int) -> Fence:
    return Fence(commit.application, commit.batch_id, commit_offset, time_ms, commit.one_shot)


def _tell(publication: Publication, status: PutStatus) -> None:
    waiters, publication.waiters = publication.waiters, []
    for waiter in waiters:
        waiter(status)


def _over(what: str, setting: str) -> SystemBusyError:
    return SystemBusyError(
        f"{what}, the limit of {setting}: commit or drop some, or raise it", code=ResponseCode.SYSTEM_BUSY
    )
