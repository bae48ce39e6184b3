"""Keeps one member's share of its group's queues as members, routes and brokers come and go (Java: RebalanceImpl).

Each member for itself: it asks a broker who the members are, computes its share (`assignment`), lets go of what is no
longer its own, and takes up what is new. That is done at the start, every `interval_ms`, and soon after somebody
came or went, a route changed, or the last round did not reach its goal; never more often than once a second.

    queue:  not ours -> acquire -> owned -> release -> not ours
                 ^        | False      \\        | False
                 `--------'             `------- leaving: no longer counted, released again in each round

`acquire` and `release` are the consumer's. `acquire` gives False, or raises a FuseeError, when the queue cannot be had
yet: its lock is with another member, its offset cannot be found out. A ConfigError or StoreError, which no waiting
helps, ends the round and, if it is the first, the start. `release` gives False while messages of the queue are still
being consumed in order.

Whom to ask: every broker knows the members that are connected to it, and for two minutes also those that are gone
without a word, so brokers may disagree. All members of a group therefore ask the same one, which the name of the group
decides, and the next only when that does not answer or does not list them; Java's client asks any, and with every
round its members may divide the queues by another list. A broker that was just started may know others but not yet us,
and would have us let everything go; so every broker is greeted before such an answer is believed. When no broker
answers at all, nothing changes: we keep what we have.

Every member sees the change at its own time. Between, a queue may be with two members or with none; offsets that are
committed by whoever lets go and loaded by whoever takes up make that a matter of seeing messages twice.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fusee.client.config import MessageModel
from fusee.client.consumer.assignment import id_order, queue_order
from fusee.errors import ClientStateError, ConfigError, FuseeError, StoreError, TopicNotFoundError
from fusee.message.hashing import java_string_hash
from fusee.message.topics import is_retry_topic
from fusee.wire.bodies.route import MASTER_ID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from fusee.client.consumer.assignment import AllocateStrategy
    from fusee.client.routes import TopicRoute
    from fusee.client.session import Session
    from fusee.message.model import MessageQueue

_log = logging.getLogger(__name__)

_MIN_INTERVAL_S: Final = 1.0
_AT_ONCE_MAX: Final = 16
"""Queues that are taken up or let go side by side."""


class Rebalance:
    """Keeps the queues of one consumer in step with its group."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        model: MessageModel,
        strategy: AllocateStrategy,
        topics: Callable[[], Iterable[str]],
        acquire: Callable[[MessageQueue], Awaitable[bool]],
        release: Callable[[MessageQueue], Awaitable[bool]],
        on_changed: Callable[[str, frozenset[MessageQueue], frozenset[MessageQueue]], object] | None = None,
        is_dead: Callable[[MessageQueue], bool] | None = None,
        interval_ms: int = 20_000,
        stop_timeout_ms: int = 30_000,
    ) -> None:
        """`on_changed` is told topic, all its queues and ours; `is_dead` says that a queue must be taken up anew."""
        self._session = session
        self._group = group
        self._model = model
        self._strategy = strategy
        self._topics = topics
        self._acquire = acquire
        self._release = release
        self._on_changed = on_changed
        self._is_dead = is_dead
        self._interval = interval_ms / 1000
        self._stop_timeout = stop_timeout_ms / 1000
        self._owned: set[MessageQueue] = set()
        self._leaving: set[MessageQueue] = set()
        self._woken = asyncio.Event()
        self._turn = asyncio.Lock()
        self._places = asyncio.Semaphore(_AT_ONCE_MAX)
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def owned(self) -> frozenset[MessageQueue]:
        """The queues that are ours now."""
        return frozenset(self._owned)

    def start(self) -> None:
        """Begin; the first round is run at once."""
        if self._task is not None or self._is_stopping:
            raise ClientStateError(f"the rebalance of group {self._group!r} can be started once")
        self._session.route_listeners.append(self._route_changed)
        self._task = self._session.spawn(self._run())

    async def stop(self) -> frozenset[MessageQueue]:
        """End after the present round and let every queue go; those that would not within `stop_timeout_ms`."""
        self._is_stopping = True
        self._woken.set()
        if self._route_changed in self._session.route_listeners:
            self._session.route_listeners.remove(self._route_changed)
        if self._task is not None:
            await asyncio.wait((self._task,))
        async with self._turn:
            self._leaving |= self._owned
            self._owned.clear()
            deadline = self._session.clock.monotonic() + self._stop_timeout
            await self._let_go(self._leaving)
            while self._leaving and self._session.clock.monotonic() < deadline:
                await self._sleep(_MIN_INTERVAL_S)
                await self._let_go(self._leaving)
        return frozenset(self._leaving)

    def request(self) -> None:
        """Divide again soon: at once, or a second after the last time. Many requests are one."""
        self._woken.set()

    def _route_changed(self, topic: str) -> None:
        if topic in set(self._topics()):
            self.request()

    # The series

    async def _run(self) -> None:
        clock = self._session.clock
        while self._goes_on():
            self._woken.clear()
            is_balanced = False
            try:
                is_balanced = await self.run_once()
            except Exception:  # noqa: BLE001 - the series goes on; queues that are ours stay so
                _log.exception("dividing the queues of group %s failed and will be tried again", self._group)
            earliest = clock.monotonic() + _MIN_INTERVAL_S
            await self._until_woken(self._interval if is_balanced else _MIN_INTERVAL_S)
            if self._goes_on() and clock.monotonic() < earliest:
                await self._sleep(earliest - clock.monotonic())

    def _goes_on(self) -> bool:
        return not self._is_stopping

    async def _until_woken(self, seconds: float) -> None:
        timer = self._session.timers.call_later(seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()

    async def _sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        timer = self._session.timers.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    # One round

    async def run_once(self) -> bool:
        """Divide now; whether every queue that should be ours is, and no other."""
        async with self._turn:
            members = _Members(self._session, self._group)
            topics = list(self._topics())
            is_balanced = await self._drop_other_topics(topics)
            for topic in topics:
                if self._is_stopping:
                    return False
                is_balanced &= await self._divide(topic, members)
            return is_balanced

    async def _divide(self, topic: str, members: _Members) -> bool:
        try:
            route = await self._session.read_route(topic)
        except TopicNotFoundError:
            # It may be made at any time; the session asks for its route as long as it is subscribed.
            return True
        except FuseeError as error:
            _log.info("group %s: no route of topic %s: %s", self._group, topic, error)
            return False
        queues = sorted(route.read_queues, key=queue_order)
        share = await self._share(route, queues, members)
        if share is None:
            return False
        wanted = frozenset(share)
        changed = await self._move(topic, wanted)
        if changed and self._on_changed is not None:
            self._on_changed(topic, frozenset(queues), wanted)
        return self._is_settled(topic, wanted)

    async def _share(
        self, route: TopicRoute, queues: list[MessageQueue], members: _Members
    ) -> Iterable[MessageQueue] | None:
        """What should be ours; None when that cannot be known."""
        if self._model is MessageModel.BROADCASTING or not queues:
            return queues
        client_ids = await members.ids(route)
        if client_ids is None:
            if not is_retry_topic(route.topic):
                _log.info("group %s: no broker of topic %s tells its members", self._group, route.topic)
            return None
        try:
            return self._strategy.allocate(self._group, self._session.client_id, queues, client_ids)
        except FuseeError as error:
            _log.warning("group %s: strategy %s: %s", self._group, self._strategy.name, error)
            return None

    async def _move(self, topic: str, wanted: frozenset[MessageQueue]) -> bool:
        """Let go, then take up; whether anything came of it."""
        before = set(self._owned)
        dead = {queue for queue in self._owned & wanted if self._is_dead is not None and self._is_dead(queue)}
        if dead:
            _log.warning("group %s: no pull for long, taken up anew: %s", self._group, sorted(dead))
        self._leave({queue for queue in self._owned - wanted if queue.topic == topic} | dead)
        was_leaving = {queue for queue in self._leaving if queue.topic == topic}
        await self._let_go(was_leaving)
        is_changed = self._owned != before or not was_leaving <= self._leaving
        new = sorted(wanted - self._owned - self._leaving, key=queue_order)
        taken = await asyncio.gather(*map(self._take_up, new), return_exceptions=True)
        for outcome in taken:
            if isinstance(outcome, BaseException):
                raise outcome
        return is_changed or any(taken)

    async def _take_up(self, queue: MessageQueue) -> bool:
        async with self._places:
            if self._is_stopping:
                return False
            try:
                is_ours = await self._acquire(queue)
            except (ConfigError, StoreError):
                raise  # waiting does not help
            except FuseeError as error:
                _log.info("group %s: %s cannot be taken up yet: %s", self._group, queue, error)
                return False
            if is_ours:
                self._owned.add(queue)
            return is_ours

    def _leave(self, queues: set[MessageQueue]) -> None:
        self._leaving |= queues
        self._owned -= queues

    async def _let_go(self, queues: Iterable[MessageQueue]) -> None:
        outcomes = await asyncio.gather(*map(self._let_one_go, sorted(queues, key=queue_order)), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _let_one_go(self, queue: MessageQueue) -> None:
        async with self._places:
            if await self._release(queue):
                self._leaving.discard(queue)

    async def _drop_other_topics(self, topics: list[str]) -> bool:
        """Let go of what is subscribed no more; whether all of it is gone."""
        self._leave({queue for queue in self._owned if queue.topic not in topics})
        strange = {queue for queue in self._leaving if queue.topic not in topics}
        await self._let_go(strange)
        return not strange & self._leaving

    def _is_settled(self, topic: str, wanted: frozenset[MessageQueue]) -> bool:
        ours = {queue for queue in self._owned if queue.topic == topic}
        return ours == wanted and not any(queue.topic == topic for queue in self._leaving)


class _Members:
    """Who is in the group, asked of each broker once in a round."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._answers: dict[str, list[str] | None] = {}
        self._has_greeted = False

    async def ids(self, route: TopicRoute) -> list[str] | None:
        """The members in the order that all agree on, preferably from a broker that knows us; None without answer."""
        addresses = [
            brokers[MASTER_ID] if MASTER_ID in brokers else brokers[min(brokers)]
            for broker in sorted(route.data.broker_datas, key=lambda each: id_order(each.broker_name))
            if (brokers := broker.broker_addrs)
        ]
        if addresses:
            first = java_string_hash(self._group) % len(addresses)
            addresses = addresses[first:] + addresses[:first]
        found = await self._first_that_knows_us(addresses)
        if found is not None and self._session.client_id in found:
            return found
        if not self._has_greeted:
            self._has_greeted = True
            await self._session.heartbeat_all()
            self._answers.clear()
            found = await self._first_that_knows_us(addresses)
        return found

    async def _first_that_knows_us(self, addresses: Iterable[str]) -> list[str] | None:
        second_best: list[str] | None = None
        for address in addresses:
            if address not in self._answers:
                self._answers[address] = await self._ask(address)
            client_ids = self._answers[address]
            if client_ids is None:
                continue
            if self._session.client_id in client_ids:
                return client_ids
            second_best = second_best or client_ids
        return second_best

    async def _ask(self, address: str) -> list[str] | None:
        try:
            client_ids = await self._session.calls.consumer_ids(address, self._group)
        except FuseeError as error:
            _log.debug("group %s: broker %s does not tell the members: %s", self._group, address, error)
            return None
        return sorted(client_ids, key=id_order) or None
