"""What a broker of this process is asked, and answers that tests hold back or refuse."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fusee.broker import Broker
from fusee.wire.codes import ResponseCode
from fusee.wire.fields import Header

if TYPE_CHECKING:
    from fusee.sync import EmbeddedServer
    from fusee.wire.codes import RequestCode
    from fusee.wire.command import Command

H = TypeVar("H", bound=Header)


class Requests(Generic[H]):
    """The requests of one code, in the order in which the broker got them; it answers as ever unless told otherwise."""

    def __init__(self, broker: EmbeddedServer | Broker, code: RequestCode, header: type[H]) -> None:
        self.headers: list[H] = []
        self.times: list[float] = []
        """When each came, in seconds."""
        self.refused = 0
        """So many of the next ones are told that the broker is busy."""
        self.unanswered = 0
        """So many of the next ones get no answer, and have no effect."""
        self.hold_until = 0
        """None is served before so many have come."""
        self._come = asyncio.Condition()
        self._header = header
        router = (broker if isinstance(broker, Broker) else broker._target.broker)._servers[0]._router
        self._handler, lane, self._waits = router._routes[code]
        router.add(code, self._serve, lane)

    async def _serve(self, command: Command, link: Any) -> Any:
        self.headers.append(command.read(self._header))
        self.times.append(time.monotonic())
        if self.refused:
            self.refused -= 1
            return command.reply(ResponseCode.SYSTEM_BUSY, remark="refused by a test")
        if self.unanswered:
            self.unanswered -= 1
            return None
        async with self._come:
            self._come.notify_all()
            await self._come.wait_for(lambda: len(self.headers) >= self.hold_until)
        answer: Any = self._handler(command, link)
        return await answer if self._waits else answer
