"""What listeners are given, and waiting for it without a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import fusee
from tests.client_suite.stage import WAIT_S, LateError


class Inbox:
    """A listener that keeps every delivery, in order, and fails those that it was told to fail."""

    def __init__(self, *, fails: Callable[[fusee.ReceivedMessage], bool] | None = None) -> None:
        self.messages: list[fusee.ReceivedMessage] = []
        self._fails = fails
        self._loop = asyncio.get_running_loop()
        self._arrival = asyncio.Event()

    async def take(self, message: fusee.ReceivedMessage) -> None:
        """As a listener of single messages."""
        self._keep([message])

    async def take_all(self, messages: Sequence[fusee.ReceivedMessage]) -> None:
        """As a listener of several messages."""
        self._keep(messages)

    def take_in_thread(self, message: fusee.ReceivedMessage) -> None:
        """As a plain function, which runs in a thread."""
        self._loop.call_soon_threadsafe(self._keep, [message])

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    def of(self, body: bytes) -> list[fusee.ReceivedMessage]:
        """The deliveries of one message."""
        return [message for message in self.messages if message.body == body]

    async def until(self, what: str, check: Callable[[], bool]) -> None:
        """Wait for an arrival after which this is so."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not check():
                    self._arrival.clear()
                    await self._arrival.wait()
        except TimeoutError:
            raise LateError(f"{what}: not within {WAIT_S:g} s; arrived: {self.bodies[-40:]}") from None

    async def holds(self, bodies: Iterable[bytes]) -> None:
        """Wait until every one of these has arrived, at least once."""
        wanted = set(bodies)
        await self.until(f"{len(wanted)} messages arrive", lambda: wanted <= set(self.bodies))

    def _keep(self, messages: Sequence[fusee.ReceivedMessage]) -> None:
        self.messages += messages
        self._arrival.set()
        if self._fails is not None and any(map(self._fails, messages)):
            raise RuntimeError("this message is to fail")


def bodies(count: int, prefix: str = "m") -> list[bytes]:
    """Bodies that differ, and are not ASCII."""
    return [f"{prefix}-{number} é 消息".encode() for number in range(count)]
