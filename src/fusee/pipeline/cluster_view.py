"""What the driver asks a cluster: which queues there are, what they hold, where a time lies; and what it tells groups.

Each question goes to all brokers at once. A broker group that is away is asked through its slave, and is otherwise left
out of the answer or raises, as the caller chooses: a stream can wait for it, a batch cannot.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeVar

from fusee.client.config import ClientConfig, name_servers_of
from fusee.client.session import Session
from fusee.errors import (
    FuseeError,
    GroupNotFoundError,
    TopicNotFoundError,
    TransportError,
    UnavailableError,
)
from fusee.pipeline.admission import Bounds
from fusee.pipeline.blocking_link import client_context
from fusee.pipeline.options import chosen_queues
from fusee.sync.portal import portal
from fusee.wire.bodies.stats import ConsumeQueueSlice, TopicStats
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.admin import GetTopicStats, QueryConsumeQueue
from fusee.wire.lenient_json import decode_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from fusee.admin import Admin
    from fusee.message.model import MessageQueue
    from fusee.pipeline.options import ReadOptions, Topics

T = TypeVar("T")

_log = logging.getLogger(__name__)

SAMPLE_COUNT: Final = 32
_SAMPLED_QUEUES_MAX: Final = 32


class ClusterView:
    """A cluster as the driver of a query sees it; blocking. It connects at the first question."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._portal = portal()
        self._connected: Session | None = None
        self._silent: set[str] = set()

    def close(self) -> None:
        """Let go of the connections. May be called again."""
        session, self._connected = self._connected, None
        if session is not None:
            self._portal.call(session.close)
            self._portal.release(session)

    def queues(self, topics: Topics, *, missing_ok: bool = False) -> tuple[MessageQueue, ...]:
        """Every queue that can be read of these topics, sorted.

        Raises TopicNotFoundError for a topic that is named and does not exist, OptionError for a queue that is
        assigned and does not, unless `missing_ok`.
        """
        return self._portal.call(self._queues, self._session, topics, missing_ok)

    def topics(self) -> tuple[str, ...]:
        """Every topic of the cluster, sorted: those of the system, of retries and of dead letters too."""
        return self._portal.call(_admin(self._session).list_topics, system=True, retry=True)

    def bounds(self, queues: Iterable[MessageQueue], *, all_needed: bool = True) -> dict[MessageQueue, Bounds]:
        """First and next offset of each queue.

        Raises what the broker group of one of them says, or that it does not answer, if `all_needed`; else its queues
        are left out, and a warning tells once that they are.
        """
        return self._portal.call(self._bounds, self._session, queues, all_needed)

    def offsets_at(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """The first offset that was stored at this time (ms) or later, of each queue; its end when there is none."""
        return self._portal.call(self._offsets_at, self._session, times)

    def record_sizes(self, starts: Mapping[MessageQueue, int]) -> dict[MessageQueue, float]:
        """The average size of records from these places on, by a sample of the queue's index."""
        return self._portal.call(self._record_sizes, self._session, starts)

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Tell the brokers how far a group is; a group that does not exist is made."""
        self._portal.call(self._commit, self._session, group, offsets)

    def mark(self, group: str, since_ms: int) -> None:
        """Let those who watch know that a stream commits to this group."""
        from fusee.admin.stream_groups import StreamMark

        mark = StreamMark(engine="spark", since_ms=since_ms)
        self._portal.call(_admin(self._session).mark_stream_group, group, mark)

    @property
    def _session(self) -> Session:
        if self._connected is None:
            self._connected = self._connect()
        return self._connected

    def _connect(self) -> Session:
        options = self._options
        tls = None
        if options.tls is not None:
            tls = client_context(
                ca_file=options.tls.ca_file,
                certificate=options.tls.certificate,
                key=options.tls.key,
                verify=options.tls.verify,
            )
        config = ClientConfig(
            name_servers=name_servers_of(options.name_servers),
            tls=tls,
            mq_client_api_timeout_ms=options.request_timeout_ms,
        )
        session = self._portal.run(Session, config)
        self._portal.deliver(lambda _: session.close(), session.start)
        self._portal.keep(session, session.close)
        return session

    # On the loop

    async def _queues(self, session: Session, topics: Topics, missing_ok: bool) -> tuple[MessageQueue, ...]:
        names = topics.names
        if topics.pattern:
            pattern = re.compile(topics.pattern)
            known = await self._once_or_again(missing_ok, _admin(session).list_topics)
            names = tuple(name for name in known if pattern.fullmatch(name))

        async def ask(topic: str) -> tuple[MessageQueue, ...]:
            try:
                await self._once_or_again(missing_ok, session.refresh_route, topic)
            except TopicNotFoundError:
                # A topic that matched the pattern may have been deleted since; one that is named should be there.
                if missing_ok or topics.pattern:
                    return ()
                raise
            route = session.cached_route(topic)
            return () if route is None else route.read_queues

        found = [queue for queues in await asyncio.gather(*map(ask, names)) for queue in queues]
        return chosen_queues(found, topics, missing_ok=missing_ok)

    async def _bounds(
        self, session: Session, queues: Iterable[MessageQueue], all_needed: bool
    ) -> dict[MessageQueue, Bounds]:
        by_place: defaultdict[tuple[str, str], set[MessageQueue]] = defaultdict(set)
        for queue in queues:
            by_place[queue.broker_name, queue.topic].add(queue)

        async def ask(broker_name: str, topic: str) -> dict[MessageQueue, Bounds]:
            wanted = by_place[broker_name, topic]
            try:
                found = await self._once_or_again(not all_needed, self._bounds_at, session, broker_name, topic, wanted)
            except (TransportError, UnavailableError, TopicNotFoundError) as error:
                if all_needed:
                    raise
                if broker_name not in self._silent:
                    self._silent.add(broker_name)
                    _log.warning("%s is not read until it answers again: %s", broker_name, error)
                return {}
            self._silent.discard(broker_name)
            return found

        answers = await asyncio.gather(*(ask(*place) for place in by_place))
        return {queue: bounds for answer in answers for queue, bounds in answer.items()}

    async def _bounds_at(
        self, session: Session, broker_name: str, topic: str, wanted: Collection[MessageQueue]
    ) -> dict[MessageQueue, Bounds]:
        """The master's word, else a slave's."""
        ids = {0, session.slave_id(broker_name) or 0}
        failure: FuseeError | None = None
        for broker_id in sorted(ids):
            place = session.read_address(broker_name, broker_id, only_this=True)
            if place is None:
                continue
            address, is_slave = place
            try:
                return await self._ask_bounds(session, address, topic, wanted, is_slave)
            except TransportError as error:
                failure = failure or error
        raise failure or UnavailableError(
            f"{broker_name} has queues of topic {topic!r}, and no broker of that name is registered now; start it",
            code=ResponseCode.SERVICE_NOT_AVAILABLE,
            topic=topic,
        )

    async def _ask_bounds(
        self, session: Session, address: str, topic: str, wanted: Collection[MessageQueue], is_slave: bool
    ) -> dict[MessageQueue, Bounds]:
        calls = session.calls
        answer = await calls.request(address, RequestCode.GET_TOPIC_STATS_INFO, GetTopicStats(topic=topic), topic=topic)
        told = {
            ref.queue_id: Bounds(state.min_offset, state.max_offset, is_slave)
            for ref, state in decode_json(answer.body, TopicStats).offset_table.items()
        }
        found: dict[MessageQueue, Bounds] = {}
        for queue in wanted:
            bounds = told.get(queue.queue_id)
            if bounds is None:  # the broker tells of queues that are written; there may be more to read
                first = await calls.min_offset(address, topic, queue.queue_id)
                bounds = Bounds(first, await calls.max_offset(address, topic, queue.queue_id), is_slave)
            found[queue] = bounds
        return found

    async def _offsets_at(self, session: Session, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        async def ask(queue: MessageQueue) -> int:
            return await session.calls.search_offset(
                self._address(session, queue), queue.topic, queue.queue_id, times[queue]
            )

        found = await asyncio.gather(*(self._again(ask, queue) for queue in times))
        return dict(zip(times, found, strict=True))

    async def _record_sizes(self, session: Session, starts: Mapping[MessageQueue, int]) -> dict[MessageQueue, float]:
        async def ask(queue: MessageQueue) -> float | None:
            header = QueryConsumeQueue(
                topic=queue.topic, queue_id=queue.queue_id, queue_offset=starts[queue], count=SAMPLE_COUNT
            )
            answer = await session.calls.request(
                self._address(session, queue), RequestCode.QUERY_CONSUME_QUEUE, header, topic=queue.topic
            )
            sizes = [entry.size for entry in decode_json(answer.body, ConsumeQueueSlice).queue_data]
            return sum(sizes) / len(sizes) if sizes else None

        some = list(starts)[:_SAMPLED_QUEUES_MAX]
        found = await asyncio.gather(*(self._again(ask, queue) for queue in some))
        return {queue: size for queue, size in zip(some, found, strict=True) if size is not None}

    async def _commit(self, session: Session, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        async def tell(queue: MessageQueue) -> None:
            address = self._address(session, queue)
            try:
                await session.calls.update_offset(address, group, queue.topic, queue.queue_id, offsets[queue])
            except GroupNotFoundError:
                await _admin(session).create_group(group, broker=address)
                await session.calls.update_offset(address, group, queue.topic, queue.queue_id, offsets[queue])

        await asyncio.gather(*map(tell, offsets))

    async def _again(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        """Await it, and once more after each failure that may pass, as often and with such waits as the options say."""
        delay_ms = self._options.retry_delay_ms
        for _ in range(self._options.retries):
            try:
                return await function(*args)
            except TopicNotFoundError:
                raise
            except FuseeError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(delay_ms / 1000)
            delay_ms *= 2
        return await function(*args)

    async def _once_or_again(self, is_once: bool, function: Callable[..., Awaitable[T]], *args: object) -> T:
        """A stream asks again soon anyway; whoever needs the answer now tries again."""
        return await function(*args) if is_once else await self._again(function, *args)

    @staticmethod
    def _address(session: Session, queue: MessageQueue) -> str:
        """Where questions about a queue go that need one broker. Raises UnavailableError."""
        place = session.read_address(queue.broker_name)
        if place is None:
            raise UnavailableError(
                f"no broker {queue.broker_name} is registered now; start it",
                code=ResponseCode.SERVICE_NOT_AVAILABLE,
                topic=queue.topic,
            )
        return place[0]


def _admin(session: Session) -> Admin:
    from fusee.admin import Admin  # takes long to load, and few queries need it

    return Admin(session)
