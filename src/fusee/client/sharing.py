"""Sessions shared by the connections of one event loop, so that a process has one connection to each broker.

Connections with the same settings share a session, its default producer, its trace, and the groups that transactions
have joined: a session has each group once. The first to come starts them, the last to go closes them.

A consumer group, too, a session has once. Further members get a session of their own; whether one is further is known
here, because any of the connections may have made the first.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from fusee.client.config import DEFAULT_INSTANCE, ServiceState
from fusee.client.producer import Producer
from fusee.client.request_reply import Requester
from fusee.client.session import Session
from fusee.client.trace import ConsumeTraceHook, EndTransactionTraceHook, SendTraceHook, TraceDispatcher, trace_group
from fusee.client.transaction import TransactionProducer
from fusee.errors import ConfigError

if TYPE_CHECKING:
    import random

    from fusee.client.config import ClientConfig
    from fusee.client.consumer.pull import PullConsumer
    from fusee.client.consumer.push import Consumer
    from fusee.client.hooks import ConsumeHook, EndTransactionHook, SendHook
    from fusee.client.transaction import Check
    from fusee.clock import Clock, Timers
    from fusee.transport.interfaces import Network


class Seams:
    """What stands between a client and the world; None is the real thing."""

    __slots__ = ("chooser", "clock", "network", "timers")

    def __init__(
        self,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        timers: Timers | None = None,
        chooser: random.Random | None = None,
    ) -> None:
        self.network = network
        self.clock = clock
        self.timers = timers
        self.chooser = chooser

    def session(self, config: ClientConfig, *, is_private: bool = False) -> Session:
        """A session in this world."""
        return Session(
            config,
            network=self.network,
            clock=self.clock,
            timers=self.timers,
            chooser=self.chooser,
            is_private=is_private,
        )

    @property
    def key(self) -> tuple[int, ...]:
        """Equal for equal worlds, while they live."""
        return tuple(id(each) for each in (self.network, self.clock, self.timers, self.chooser) if each is not None)


class Shared:
    """A session, what everyone on it shares, and how many use it."""

    def __init__(self, config: ClientConfig, seams: Seams, trace_topic: str) -> None:
        self.seams = seams
        self.session = seams.session(config)
        self.send_hooks: tuple[SendHook, ...] = ()
        self.consume_hooks: tuple[ConsumeHook, ...] = ()
        self.transaction_hooks: tuple[EndTransactionHook, ...] = ()
        self.trace: TraceDispatcher | None = None
        if trace_topic:
            tracer = Producer(self.session, group=trace_group("FUSEE", "PRODUCE"))
            self.trace = TraceDispatcher(self.session, tracer, trace_topic=trace_topic)
            self.send_hooks = (SendTraceHook(self.trace),)
            self.consume_hooks = (ConsumeTraceHook(self.trace),)
            self.transaction_hooks = (EndTransactionTraceHook(self.trace),)
        self.producer = Producer(self.session, hooks=self.send_hooks)
        self.requester = Requester(self.producer)
        self.users = 0
        self.starting: asyncio.Task[None] | None = None
        self._config = config
        self._members: WeakSet[Consumer | PullConsumer] = WeakSet()
        self._further: WeakValueDictionary[int, Session] = WeakValueDictionary()
        self._transactions: dict[str, tuple[Check, asyncio.Task[TransactionProducer]]] = {}

    async def start(self) -> None:
        await self.session.start()
        if self.trace is not None:
            await self.trace.start()
        await self.producer.start()

    async def close(self) -> None:
        """Close everything; what one of them raises does not keep the others open."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.session.close)
            if self.trace is not None:
                stack.push_async_callback(self.trace.close)
            stack.push_async_callback(self.producer.close)
            for _, starting in self._transactions.values():
                stack.push_async_callback(_close_started, starting)
            stack.push_async_callback(self.requester.close)

    # Members of consumer groups

    def session_for(self, group: str) -> Session:
        """The shared session, or a new one when it has, or will have, a member of this group already."""
        is_taken = self.session.has_consumer(group) or any(
            each.group == group and each.state is ServiceState.CREATE_JUST for each in self._members
        )
        if not is_taken:
            return self.session
        config = self._config
        if config.instance_name == DEFAULT_INSTANCE:
            return self.seams.session(config, is_private=True)
        # The first number that nobody has: two members of one client id would both take its queues, and one that
        # comes back finds the offsets that a broadcast group keeps under its name.
        number = next(number for number in count(2) if _is_over(self._further.get(number)))
        config = replace(config, instance_name=f"{config.instance_name}-{number}")
        session = self._further[number] = self.seams.session(config, is_private=True)
        return session

    def add_member(self, consumer: Consumer | PullConsumer, session: Session) -> None:
        """This consumer was made with a session that `session_for` gave."""
        if session is self.session:
            self._members.add(consumer)

    # Groups of transactions

    async def transaction_producer(self, group: str, check: Check) -> TransactionProducer:
        """The member of a producer group by which transactions are made, started by the first that asks for it."""
        known = self._transactions.get(group)
        if known is None:
            task = asyncio.get_running_loop().create_task(self._started(group, check))
            known = self._transactions[group] = (check, task)
        elif known[0] != check:
            raise ConfigError(
                f"group {group!r} has another check already, and a broker asks a group; give this transaction a group "
                "of its own, or pass the same function"
            )
        try:
            return await asyncio.shield(known[1])
        except BaseException:
            if known[1].done() and not _has_succeeded(known[1]) and self._transactions.get(group) is known:
                del self._transactions[group]
            raise

    async def _started(self, group: str, check: Check) -> TransactionProducer:
        producer = TransactionProducer(
            Producer(self.session, group=group, hooks=self.send_hooks), check=check, hooks=self.transaction_hooks
        )
        await producer.start()
        return producer


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[Any, ...], Shared]] = WeakKeyDictionary()


async def acquire(config: ClientConfig, seams: Seams, trace_topic: str) -> Shared:
    """The shared session of these settings on this loop, started. Raises what Session.start raises."""
    here = _shared.setdefault(asyncio.get_running_loop(), {})
    key = (config, seams.key, trace_topic)
    shared = here.get(key)
    if shared is None:
        shared = here[key] = Shared(config, seams, trace_topic)
    if shared.starting is None:
        shared.starting = asyncio.get_running_loop().create_task(shared.start())
    shared.users += 1
    starting = shared.starting
    try:
        await asyncio.shield(starting)
    except BaseException:
        shared.users -= 1
        if here.get(key) is shared and (shared.users == 0 or (starting.done() and not _has_succeeded(starting))):
            del here[key]
        if shared.users == 0:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await shared.close()
        raise
    return shared


async def release(shared: Shared) -> None:
    """Leave; the last one closes."""
    shared.users -= 1
    if shared.users:
        return
    here = _shared.get(asyncio.get_running_loop(), {})
    for key in [key for key, each in here.items() if each is shared]:
        del here[key]
    await shared.close()


def _is_over(session: Session | None) -> bool:
    return session is None or session.state in (ServiceState.SHUTDOWN_ALREADY, ServiceState.START_FAILED)


def _has_succeeded(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _close_started(starting: asyncio.Task[TransactionProducer]) -> None:
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    if _has_succeeded(starting):
        await starting.result().close()
