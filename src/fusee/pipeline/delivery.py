"""What a task of Spark does to write: rows in batches to the queues of their topics, several under way, all answered.

Theory of operation
-------------------
Each broker has an *outlet*: one connection, and requests under way on it up to a number of bytes. When that is full the
oldest answer is waited for, so that rows are encoded while brokers store. `finish` waits for all. Rows are encoded
straight into the memory where their request waits for its answer (`send_memory`). It is sent when no more fit into it
(`gathered_rows`): there is one for each topic, or for each queue of a topic whose rows are ordered. Where the broker is
on this machine, that memory is the broker's, too, and the request only says where in it they lie (`handover`).

A request that fails is sent again, as often as the settings say, over a new connection when the old one broke, to
wherever the name servers know the broker then; Spark itself does not try a task again on one machine. What was under
way when a connection broke may be stored already:

    sent      it is then there twice, with the same idempotence key
    staged    the broker knows the part by its number, and keeps it once

A broker that name servers no longer know loses its rows to others, unless rows are ordered by a key or are staged.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from fusee.clock import SystemClock
from fusee.errors import FuseeError, InvalidRequestError, SendFailedError
from fusee.message.batch import ELEMENT_SIZE_MIN, split_batch
from fusee.message.record_layout import RECORD_SIZE_MIN
from fusee.message.topics import AUTO_CREATE_TOPIC
from fusee.pipeline.blocking_link import BlockingLink
from fusee.pipeline.gathered_rows import GatheredRows
from fusee.pipeline.handover import open_handover
from fusee.pipeline.refusals import Refusals
from fusee.pipeline.send_memory import Piece, SendMemory
from fusee.pipeline.spare_memory import SpareMemory
from fusee.pipeline.write_routes import WriteQueue, WriteRoutes, WriteSettings, may_try_again
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.headers.handover import SendHandedBatch
from fusee.wire.headers.send import SendMessageV2
from fusee.wire.headers.staged import StageMessages, StageMessagesResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from fusee.pipeline.row_encoding import EncodedRows

_log = logging.getLogger(__name__)

_REQUESTS_MAX: Final = 64
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
_IDLE_MAX: Final = 8
_MARK_ROOM: Final = 4096
_INT_MAX: Final = 2**31 - 1
_STORED_EXTRA_MAX: Final = 96
"""What a broker may add to a record: IPv6 addresses (24 bytes), a seal (20), the name of its cluster (before 5.2)."""


@dataclass(frozen=True, slots=True)
class Staging:
    """Under which names rows are staged, in place of being sent."""

    application: str
    batch_id: int
    transaction: str


@dataclass(slots=True, eq=False)
class _Request:
    """Messages on their way to a queue."""

    topic: str
    queue: WriteQueue
    body: memoryview
    count: int
    is_ordered: bool
    header: SendMessageV2 | StageMessages
    code: int
    piece: Piece | None = None
    """Where the body lies, unless that is memory of its own."""
    opaque: int = -1

    @property
    def size(self) -> int:
        return len(self.body)

    def send(self, line: _Line) -> None:
        """Send it over this line, or only where its body lies."""
        piece = self.piece
        if piece is None or piece.memory is not line.memory or not line.memory.is_shared:
            self.opaque = line.link.send(Command.request(self.code, self.header), self.body)
            return
        at, size = piece.start, piece.end - piece.start
        code, header = self.code, self.header
        if isinstance(header, StageMessages):
            header = msgspec.structs.replace(header, handed_at=at, handed_size=size)
        else:
            code = RequestCode.SEND_HANDED_BATCH
            header = SendHandedBatch(**msgspec.structs.asdict(header), handed_at=at, handed_size=size)
        self.opaque = line.link.send(Command.request(code, header))


@dataclass(slots=True)
class Delivered:
    """What became of a task's rows: how many, and how many parts were staged at each broker."""

    messages: int = 0
    parts: dict[str, int] = field(default_factory=dict)


class Delivery:
    """The rows of one task."""

    def __init__(self, settings: WriteSettings, *, staging: Staging | None = None, first_queue: int = 0) -> None:
        """`first_queue` is where the turn of queues begins: tasks begin at different ones."""
        self._worker = _worker(settings)
        self._settings = settings
        self._staging = staging
        self._turn = first_queue
        self._clock = SystemClock()
        self._outlets: dict[str, _Outlet] = {}
        self._gathered: dict[tuple[str, WriteQueue | None], GatheredRows] = {}
        self._topics: set[str] = set()
        self._done = Delivered()

    def write(self, topic: str, rows: EncodedRows, hashes: NDArray[np.int64] | None = None) -> None:
        """Send or stage these rows; `hashes` chooses the queue of each, else they go to the queues in turn.

        Raises TopicNotFoundError, SendFailedError, or MessageError for what a broker does not take.
        """
        self._topics.add(topic)
        if rows.delayed is not None and self._staging is None and rows.delayed.any():
            self._send_singly(topic, rows, hashes)
            prompt = np.flatnonzero(~rows.delayed)
            rows, hashes = rows.taken(prompt), None if hashes is None else hashes[prompt]
        if hashes is None:
            self._gather(topic, rows, None, 1)
            return
        queues = self._queues(topic)
        wanted = hashes % len(queues)
        order = np.argsort(wanted, kind="stable")
        sorted_rows, sorted_queues = rows.taken(order), wanted[order]
        bounds = [0, *(np.flatnonzero(np.diff(sorted_queues)) + 1).tolist(), len(order)]
        for first, end in pairwise(bounds):
            if first < end:
                queue = queues[int(sorted_queues[first])]
                self._gather(topic, sorted_rows.between(first, end), queue, len(queues))

    def finish(self) -> Delivered:
        """Send what is gathered, and wait for all answers."""
        try:
            while self._gathered:
                self._send_gathered(next(iter(self._gathered)))
            for outlet in list(self._outlets.values()):
                outlet.finish()
        finally:
            self.close()
        return self._done

    def close(self) -> None:
        """Let go of the connections; those with nothing under way are kept for the next task."""
        for outlet in self._outlets.values():
            outlet.close()
        self._outlets.clear()

    def _queues(self, topic: str) -> list[WriteQueue]:
        """The queues of a topic, asked again while the cluster is in trouble."""
        failures = 0
        while True:
            try:
                return self._worker.routes.queues(topic)
            except FuseeError as error:
                failures += 1
                if not may_try_again(error) or failures > self._settings.retries:
                    raise
                self._settings.pause(failures)

    def _gather(self, topic: str, rows: EncodedRows, queue: WriteQueue | None, queues: int) -> None:
        """Put these rows behind those that wait to be sent; whatever is full is sent.

        They are for this one of `queues`, among which the rows of their topic are divided, or for any.
        """
        key = topic, queue
        first, count = 0, len(rows)
        while first < count:
            gathered = self._gathered.get(key)
            if gathered is None:
                gathered = self._begin(key, rows.size(first, first + 1), queues)
            first = gathered.take(rows, first)
            if first < count:
                self._send_gathered(key)

    def _begin(self, key: tuple[str, WriteQueue | None], size_min: int, queues: int) -> GatheredRows:
        """Room for a request. Requests that are filled and those under way have half of the memory each.

        Whatever rows are divided among gets a share; when that is not enough, the request that was begun first goes.
        """
        settings = self._settings
        half = settings.in_flight_bytes // 2
        size = max(size_min, min(settings.batch_bytes, half // max(queues * len(self._topics), 2)))
        while self._gathered and size + sum(each.capacity for each in self._gathered.values()) > half:
            self._send_gathered(next(iter(self._gathered)))
        topic, queue = key
        target = queue or self._next_queue(topic)
        outlet = self._outlet(target.broker_name)
        outlet.make_room(size)
        piece = outlet.take(size)
        memory = memoryview(bytearray(size)) if piece is None else piece.view
        extra = RECORD_SIZE_MIN - ELEMENT_SIZE_MIN + len(topic.encode()) + _STORED_EXTRA_MAX
        gathered = self._gathered[key] = GatheredRows(target, memory, piece, extra)
        return gathered

    def _send_gathered(self, key: tuple[str, WriteQueue | None]) -> None:
        gathered = self._gathered.pop(key)
        topic, queue = key
        piece = gathered.piece
        if piece is not None:
            piece.memory.trim(piece, gathered.size)
        if self._staging is not None:
            header: SendMessageV2 | StageMessages = self._stage_header(topic, gathered.queue)
            code = RequestCode.STAGE_MESSAGES
        else:
            header = self._send_header(topic, gathered.queue, "", batch=True)
            code = RequestCode.SEND_BATCH_MESSAGE
        body, count = gathered.body, gathered.count
        self._push(_Request(topic, gathered.queue, body, count, queue is not None, header, code, piece))

    def _send_singly(self, topic: str, rows: EncodedRows, hashes: NDArray[np.int64] | None) -> None:
        """Messages that wait cannot be sent in a batch."""
        assert rows.delayed is not None
        chosen = np.flatnonzero(rows.delayed)
        delayed = rows.taken(chosen)
        for number, element in enumerate(split_batch(delayed.body(0, len(delayed)))):
            if hashes is None:
                target = self._next_queue(topic)
            else:
                queues = self._queues(topic)
                target = queues[int(hashes[chosen[number]]) % len(queues)]
            header = self._send_header(topic, target, element.properties_bytes.decode(), batch=False)
            header.flag = element.flag
            body = memoryview(element.body)
            self._push(_Request(topic, target, body, 1, hashes is not None, header, RequestCode.SEND_MESSAGE_V2))

    def _send_header(self, topic: str, queue: WriteQueue, properties: str, *, batch: bool) -> SendMessageV2:
        return SendMessageV2(
            producer_group=self._settings.producer_group,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp_ms=self._clock.time_ms(),
            flag=0,
            properties=properties,
            reconsume_times=0,
            unit_mode=False,
            batch=batch,
            broker_name=queue.broker_name,
        )

    def _stage_header(self, topic: str, queue: WriteQueue) -> StageMessages:
        assert self._staging is not None
        sequence = self._done.parts.get(queue.broker_name, 0)
        return StageMessages(
            application=self._staging.application,
            batch_id=self._staging.batch_id,
            transaction=self._staging.transaction,
            sequence=sequence,
            topic=topic,
            queue_id=queue.queue_id,
            born_timestamp_ms=self._clock.time_ms(),
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
        )

    def _next_queue(self, topic: str) -> WriteQueue:
        queues = self._queues(topic)
        self._turn += 1
        return queues[self._turn % len(queues)]

    def _outlet(self, broker_name: str) -> _Outlet:
        outlet = self._outlets.get(broker_name)
        if outlet is None:
            outlet = self._outlets[broker_name] = _Outlet(self._worker, broker_name, self._reroute)
        return outlet

    def _push(self, request: _Request) -> None:
        name = request.queue.broker_name
        outlet = self._outlet(name)
        if outlet.is_committed:
            if request.piece is not None:
                request.piece.memory.release(request.piece)
            return
        self._done.messages += request.count
        if self._staging is not None:
            self._done.parts[name] = self._done.parts.get(name, 0) + 1
        outlet.push(request)

    def _reroute(self, requests: Iterable[_Request]) -> None:
        """Bring these to other brokers: theirs is gone."""
        for request in requests:
            queue = self._next_queue(request.topic)
            assert isinstance(request.header, SendMessageV2)
            request.queue = queue
            request.header.queue_id, request.header.broker_name = queue.queue_id, queue.broker_name
            self._done.messages -= request.count
            self._push(request)


class _Outlet:
    """Requests under way to one broker, in order."""

    def __init__(self, worker: _Worker, broker_name: str, reroute: Callable[[Iterable[_Request]], None]) -> None:
        self._worker = worker
        self._settings = worker.settings
        self._broker_name = broker_name
        self._reroute = reroute
        self._line: _Line | None = None
        self._under_way: deque[_Request] = deque()
        self._size = 0
        self._failures = 0
        self.is_committed = False
        """Whether the broker said that the batch is committed: nothing need be staged any more."""

    def make_room(self, size: int) -> None:
        """Wait for answers until so many more bytes may be under way."""
        while self._under_way and (
            self._size + size > self._settings.in_flight_bytes or len(self._under_way) >= _REQUESTS_MAX
        ):
            self._settle()

    def take(self, size: int) -> Piece | None:
        """Memory for a request of this size; None when it is to have its own."""
        # What is answered is free again: memory that was used a moment ago is still in the processor's cache.
        while self._under_way and self._line is not None and self._line.link.has_answer():
            self._settle()
        try:
            line = self._open_line()
        except (FuseeError, OSError):
            return None  # which sending meets again, and deals with
        if size > line.memory.size_max:
            return None
        piece = line.memory.take(size)
        while piece is None and self._under_way:
            self._settle()
            if self._line is not line:  # it broke, and with it went its memory
                return None
            piece = line.memory.take(size)
        return piece

    def push(self, request: _Request) -> None:
        self.make_room(request.size)
        if self.is_committed:
            return
        self._under_way.append(request)
        self._size += request.size
        try:
            self._send(request)
        except (FuseeError, OSError) as error:
            self._again(error)

    def finish(self) -> None:
        while self._under_way:
            self._settle()

    def close(self) -> None:
        if self._line is not None:
            self._worker.give_back(self._line)
            self._line = None

    def _open_line(self) -> _Line:
        if self._line is None:
            self._line = self._worker.take(self._worker.routes.address(self._broker_name))
        return self._line

    def _send(self, request: _Request) -> None:
        request.send(self._open_line())

    def _settle(self) -> None:
        """Wait for the oldest answer."""
        request = self._under_way[0]
        try:
            assert self._line is not None
            answer = self._line.link.receive(request.opaque).command
        except (FuseeError, OSError) as broken:
            self._again(broken)
            return
        if answer.code in _STORED:
            self._settled(request, answer)
            return
        error = self._error(answer, request)
        if not may_try_again(error):
            raise error
        # The rest is answered too: what is refused because this one was goes again behind it, in order.
        for other in list(self._under_way)[1:]:
            try:
                answer = self._line.link.receive(other.opaque).command
            except (FuseeError, OSError) as lost:
                self._again(lost)
                return
            if answer.code in _STORED:
                self._settled(other, answer)
        self._again(error)

    def _settled(self, request: _Request, answer: Command) -> None:
        self._under_way.remove(request)
        self._size -= request.size
        if request.piece is not None:
            request.piece.memory.release(request.piece)
        self._failures = 0
        if request.code == RequestCode.STAGE_MESSAGES and answer.read(StageMessagesResponse).already_committed:
            self.is_committed = True

    def _error(self, answer: Command, request: _Request) -> FuseeError:
        address = self._worker.routes.address(self._broker_name)
        if answer.remark and "timer" in answer.remark:
            return InvalidRequestError(
                f"column deliverAt: broker {self._broker_name} at {address} keeps no exact times ({answer.remark}); "
                "use the column delayLevel, or a broker that does",
                code=answer.code,
                address=address,
                topic=request.topic,
            )
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return InvalidRequestError(
                f"broker {self._broker_name} at {address} has no staged batches, so it cannot write exactly once; "
                "write with .option('delivery', 'at-least-once')",
                code=answer.code,
                address=address,
            )
        return error_for(answer.code, answer.remark, address, request.code)

    def _again(self, error: Exception) -> None:
        """Send again what is under way, over a new connection; raise what no other try can mend."""
        while True:
            if not may_try_again(error):
                raise error
            self._failures += 1
            if self._failures > self._settings.retries:
                topics = ", ".join(sorted({request.topic for request in self._under_way}))
                raise SendFailedError(
                    f"{sum(request.count for request in self._under_way)} rows of {topics} did not reach broker "
                    f"{self._broker_name} in {self._failures} tries: {error}",
                    attempts=(error,),
                    topic=topics,
                ) from error
            _log.info("writing to %s goes on soon: %s", self._broker_name, error)
            if self._line is not None:
                self._line.link.close()
                self._line = None
            self._settings.pause(self._failures)
            try:
                self._worker.routes.forget()
                if self._is_gone():
                    requests, self._under_way, self._size = list(self._under_way), deque(), 0
                    self._reroute(requests)
                    return
                for request in self._under_way:
                    self._send(request)
            except (FuseeError, OSError) as next_error:
                error = next_error
                continue
            return

    def _is_gone(self) -> bool:
        """Whether no topic of what is under way has queues at this broker any more, but has some at others."""
        if any(request.is_ordered or request.code == RequestCode.STAGE_MESSAGES for request in self._under_way):
            return False
        topics = {request.topic for request in self._under_way}
        return all(
            queues and all(queue.broker_name != self._broker_name for queue in queues)
            for queues in map(self._worker.routes.queues, topics)
        )


@dataclass(frozen=True, slots=True)
class _Line:
    """A connection, and the memory of what is under way on it. Neither is used without the other."""

    link: BlockingLink
    memory: SendMemory


class _Worker:
    """What a process keeps between tasks of the same settings: routes and idle connections."""

    def __init__(self, settings: WriteSettings) -> None:
        self.settings = settings
        self._tls = settings.tls_context()
        self.routes = WriteRoutes(settings, self._tls)
        self._idle: dict[str, list[_Line]] = {}
        self._not_shared = Refusals()
        self._lock = threading.Lock()

    def take(self, address: str) -> _Line:
        with self._lock:
            lines = self._idle.get(address)
            if lines:
                return lines.pop()
        link = BlockingLink(address, timeout_ms=self.settings.request_timeout_ms, tls=self._tls)
        try:
            memory = self._shared(link)
        except BaseException:
            link.close()
            raise
        if memory is None:
            memory = SendMemory(SpareMemory().of(self.settings.in_flight_bytes))
        return _Line(link, memory)

    def _shared(self, link: BlockingLink) -> SendMemory | None:
        """Memory shared with the broker, if that is on this machine and willing."""
        if not self.settings.local_writes or link.address in self._not_shared:
            return None
        memory = open_handover(link, min(self.settings.in_flight_bytes + _MARK_ROOM, _INT_MAX))
        if memory is None:
            self._not_shared.add(link.address)
        return memory

    def give_back(self, line: _Line) -> None:
        with self._lock:
            lines = self._idle.setdefault(line.link.address, [])
            if line.link.is_idle and line.memory.is_free and len(lines) < _IDLE_MAX:
                lines.append(line)
                return
        line.link.close()

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            for lines in self._idle.values():
                for line in lines:
                    line.link.close()
            self._idle.clear()


_workers: dict[tuple[int, WriteSettings], _Worker] = {}
_workers_lock = threading.Lock()


def _worker(settings: WriteSettings) -> _Worker:
    # Spark's workers are forked: a connection made before a fork belongs to the parent.
    key = os.getpid(), settings
    with _workers_lock:
        worker = _workers.get(key)
        if worker is None:
            worker = _workers[key] = _Worker(settings)
            atexit.register(worker.close)
        return worker
