"""Sessions shared by the connections of one event loop, so that a process has one connection to each broker.

Connections with the same settings share a session, its default producer and its trace. The first to come starts them,
the last to go closes them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fusee.client.producer import Producer
from fusee.client.request_reply import Requester
from fusee.client.session import Session
from fusee.client.trace import ConsumeTraceHook, EndTransactionTraceHook, SendTraceHook, TraceDispatcher, trace_group

if TYPE_CHECKING:
    import random

    from fusee.client.config import ClientConfig
    from fusee.client.hooks import ConsumeHook, EndTransactionHook, SendHook
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

    async def start(self) -> None:
        await self.session.start()
        if self.trace is not None:
            await self.trace.start()
        await self.producer.start()

    async def close(self) -> None:
        await self.requester.close()
        await self.producer.close()
        if self.trace is not None:
            await self.trace.close()
        await self.session.close()


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
    try:
        await asyncio.shield(shared.starting)
    except BaseException:
        shared.users -= 1
        if shared.users == 0 or (shared.starting.done() and not shared.starting.cancelled()):
            if here.get(key) is shared:
                del here[key]
            if not shared.starting.done():
                shared.starting.cancel()
                await asyncio.gather(shared.starting, return_exceptions=True)
            if shared.users == 0:
                await shared.session.close()
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
