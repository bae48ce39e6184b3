"""Sends records to the queues of other broker groups, for a slave that acts for its master (Java: EscapeBridge).

A slave has no log to write to. So a delayed message whose time has come goes as an ordinary send to another group that
has its topic: to its queues in turn, as the name servers know them. It counts when that broker has stored it; when the
answer is lost it goes again, and may come twice.

One record is under way at a time. When one is not taken, those behind it of the same delay level are not sent either:
the level goes on from there later, in order. The outcome comes as from the log (`LogWriter.when_stored`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from fusee.broker.ack_gate import PutStatus
from fusee.broker.rewrites import DELAY, number_of
from fusee.errors import FuseeError, TopicNotFoundError
from fusee.message.properties import find_property, remove_property
from fusee.message.topics import AUTO_CREATE_TOPIC
from fusee.store.results import PutResult
from fusee.wire.bodies.route import MASTER_ID, decode_route
from fusee.wire.bodies.topic import PERM_WRITE
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.headers.namesrv import GetRouteInfo
from fusee.wire.headers.send import SendMessageV2

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.broker.config import BrokerConfig
    from fusee.broker.log_writer import LogWriter
    from fusee.clock import Clock
    from fusee.store.engine import MessageStore
    from fusee.store.new_record import NewRecord
    from fusee.transport.client import Client

_log = logging.getLogger(__name__)

_TIMEOUT: Final = 3.0
_ROUTE_AGE_MAX: Final = 30.0
_ROUTES_MAX: Final = 1_000
_TAKEN: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)
# What makes a record one that waits, or says where it was to go when it did.
_LEFT_OUT: Final = (DELAY, b"REAL_TOPIC", b"REAL_QID")
_PRODUCER_GROUP: Final = b"PGROUP"


@dataclass(frozen=True, slots=True)
class _Target:
    """A queue of another group."""

    address: str
    broker_name: str
    queue_id: int


@dataclass(slots=True)
class _Route:
    targets: list[_Target]
    found_at: float


@dataclass(slots=True, eq=False)
class _Leaving:
    record: NewRecord
    level: int
    done: Callable[[PutStatus], object] | None = None


class Escape:
    """The way out for records that this broker cannot store."""

    def __init__(self, *, writer: LogWriter, config: BrokerConfig, client: Client, clock: Clock) -> None:
        """`writer` is of the slave's own log, which is only read."""
        self.config = config
        self._writer = writer
        self._client = client
        self._clock = clock
        self._numbers = count()
        self._leaving: dict[int, _Leaving] = {}
        self._queue: deque[int] = deque()
        self._routes: dict[str, _Route] = {}
        self._turns = count()
        self._task: asyncio.Task[None] | None = None
        self.sent = 0
        """Records that others have stored."""

    # As the writer of a log

    @property
    def store(self) -> MessageStore:
        return self._writer.store

    def make_visible(self) -> None:
        self._writer.make_visible()

    def put(self, record: NewRecord) -> PutResult:
        """Let a record leave; its place in a log is unknown, so all numbers are -1 but the one to ask with."""
        number = next(self._numbers)
        self._leaving[number] = _Leaving(record, number_of(record.properties, DELAY) or 0)
        self._queue.append(number)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return PutResult(-1, number, -1, self._clock.time_ms())

    def when_stored(self, result: PutResult, done: Callable[[PutStatus], object], *, wait: bool = True) -> None:
        """Call back when another has stored this, or nobody has."""
        self._leaving[result.queue_offset].done = done

    def hold_back(self) -> None:
        """Send nothing of what is not under way yet: nobody has stored it."""
        held, self._queue = self._queue, deque()
        for number in held:
            _tell(self._leaving.pop(number), PutStatus.NOT_STORED)

    def stop(self) -> None:
        """Send nothing more; the outcome of what is under way stays unknown."""
        self._queue.clear()
        self._leaving.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    # Sending

    async def _run(self) -> None:
        # The caller has yet to say whom to tell.
        await asyncio.sleep(0)
        try:
            while self._queue:
                leaving = self._leaving.pop(self._queue.popleft())
                try:
                    await self._send(leaving.record)
                except FuseeError as error:
                    _log.warning("a message of topic %s could not leave: %s", leaving.record.topic, error)
                    self._refuse(leaving)
                else:
                    self.sent += 1
                    _tell(leaving, PutStatus.PUT_OK)
        finally:
            self._task = None

    def _refuse(self, first: _Leaving) -> None:
        refused = [number for number in self._queue if self._leaving[number].level == first.level]
        self._queue = deque(number for number in self._queue if self._leaving[number].level != first.level)
        for leaving in [first, *map(self._leaving.pop, refused)]:
            _tell(leaving, PutStatus.NOT_STORED)

    async def _send(self, record: NewRecord) -> None:
        config = self.config
        target = await self._target(record.topic)
        properties = record.properties
        group = find_property(properties, _PRODUCER_GROUP)
        for name in _LEFT_OUT:
            properties = remove_property(properties, name)
        header = SendMessageV2(
            producer_group=(
                group.decode("utf-8", "replace")
                if group
                else f"InnerProducerGroup_{config.broker_name}_{config.broker_id}"
            ),
            topic=record.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=config.default_topic_queue_nums,
            queue_id=target.queue_id,
            sys_flag=record.sys_flag,
            born_timestamp_ms=record.born_timestamp_ms,
            flag=record.flag,
            properties=properties.decode("utf-8", "replace"),
            reconsume_times=record.reconsume_times,
            unit_mode=False,
            batch=False,
            broker_name=target.broker_name,
        )
        command = Command.request(RequestCode.SEND_MESSAGE_V2, header, body=bytes(record.body))
        try:
            answer = await self._client.request(target.address, command, timeout=_TIMEOUT)
        except FuseeError:
            self._routes.pop(record.topic, None)
            raise
        if answer.code not in _TAKEN:
            self._routes.pop(record.topic, None)
            raise error_for(answer.code, answer.remark, target.address, RequestCode.SEND_MESSAGE_V2)

    async def _target(self, topic: str) -> _Target:
        route = self._routes.get(topic)
        if route is None or self._clock.monotonic() - route.found_at > _ROUTE_AGE_MAX:
            if len(self._routes) >= _ROUTES_MAX:
                self._routes.clear()
            route = self._routes[topic] = _Route(await self._find(topic), self._clock.monotonic())
        if not route.targets:
            del self._routes[topic]
            raise TopicNotFoundError(
                f"no other broker group with a master has topic {topic!r}: its messages wait for the master of "
                f"{self.config.broker_name}, or for the topic to be made elsewhere",
                code=ResponseCode.TOPIC_NOT_EXIST,
                topic=topic,
            )
        return route.targets[next(self._turns) % len(route.targets)]

    async def _find(self, topic: str) -> list[_Target]:
        failure: FuseeError | None = None
        for name_server in self.config.name_servers:
            header = GetRouteInfo(topic=topic, accept_standard_json_only=True)
            command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            try:
                answer = await self._client.request(name_server, command, timeout=_TIMEOUT)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    return []
                if answer.code != ResponseCode.SUCCESS:
                    raise error_for(answer.code, answer.remark, name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC)
                route = decode_route(answer.body)
            except FuseeError as error:
                failure = error
                continue
            masters = {
                broker.broker_name: broker.broker_addrs[MASTER_ID]
                for broker in route.broker_datas
                if MASTER_ID in broker.broker_addrs and broker.broker_name != self.config.broker_name
            }
            return [
                _Target(masters[queues.broker_name], queues.broker_name, queue_id)
                for queues in route.queue_datas
                if queues.perm & PERM_WRITE and queues.broker_name in masters
                for queue_id in range(queues.write_queue_nums)
            ]
        if failure is not None:
            raise failure
        return []


def _tell(leaving: _Leaving, status: PutStatus) -> None:
    if leaving.done is not None:
        leaving.done(status)
