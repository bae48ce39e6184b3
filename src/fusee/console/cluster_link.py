"""The console's way to a cluster: connected when first asked, each question bounded in time and asked once at a time.

Pages ask the same things again and again, and several people may look at once. An answer serves for a moment
(`fresh_seconds`), and whoever asks while a question is on its way waits for the same answer. A question that fails is
remembered just as long, so a broker that is away costs one time-out and not one per line of a page.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fusee.clock import Clock, SystemClock
from fusee.console.known import Known, known
from fusee.errors import FuseeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from fusee.admin import Admin
    from fusee.connection import Connection

_log = logging.getLogger(__name__)

T = TypeVar("T")

ANSWER_SECONDS: Final = 8.0
_KEPT_MAX: Final = 2_000


class ClusterLink:
    """One cluster, by its name servers."""

    def __init__(self, name_servers: str, *, clock: Clock | None = None, **options: Any) -> None:
        """`options` are those of `fusee.connect`."""
        self.name_servers = name_servers
        self.clock = clock or SystemClock()
        self._options = options
        self._connection: Connection | None = None
        self._connecting: asyncio.Lock | None = None
        self._kept: OrderedDict[Hashable, tuple[float, Known[Any]]] = OrderedDict()
        self._asking: dict[Hashable, asyncio.Task[Known[Any]]] = {}

    async def connection(self) -> Connection:
        """The connection, made now if there is none. Raises ConnectError."""
        from fusee.connection import connect

        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._connection is None:
                self._connection = await connect(self.name_servers, **self._options)
            return self._connection

    async def admin(self) -> Admin:
        """Operations on the cluster. Raises ConnectError."""
        return (await self.connection()).admin

    async def close(self) -> None:
        """Close the connection; questions on their way are given up."""
        for task in list(self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def ask(
        self, key: Hashable, question: Callable[[Admin], Awaitable[T]], *, fresh_seconds: float = 1.0
    ) -> Known[T]:
        """The answer, at most so old; or why there is none. `key` tells questions apart."""
        now = self.clock.monotonic()
        kept = self._kept.get(key)
        if kept is not None and now - kept[0] < fresh_seconds:
            return kept[1]
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._answer(key, question))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(task)

    def forget(self) -> None:
        """Ask anew: something was changed."""
        self._kept.clear()

    async def _answer(self, key: Hashable, question: Callable[[Admin], Awaitable[T]]) -> Known[T]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = known(await question(await self.admin()))
        except TimeoutError:
            answer = Known(cause=f"no answer within {ANSWER_SECONDS:g} seconds")
        except FuseeError as error:
            answer = Known(cause=str(error) or type(error).__name__)
        self._kept[key] = (self.clock.monotonic(), answer)
        self._kept.move_to_end(key)
        while len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
        return answer
