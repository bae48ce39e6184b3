"""From request code to handler, through bounded lanes (Java: processor table and its executors).

A handler is a plain function `(command, link) -> answer` that answers at once with a Command or with encoded bytes, or
returns None to a oneway request, or returns a `Reply` that it keeps and fulfils later. A coroutine function is for
what really waits: it becomes a task. Each code belongs to a lane; a lane counts what is unfinished (kept replies
and tasks) and beyond its limit answers SYSTEM_BUSY, so nothing queues without end.

This is one of the three places that may catch everything: what a handler raises becomes a response.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from fusee.errors import FieldError, FuseeError, RemoteError
from fusee.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from fusee.transport.link import Link
    from fusee.wire.command import Command

    Answer = Command | bytes | None
    Handler = Callable[[Command, Link], "Answer | Reply | Awaitable[Answer]"]

_log = logging.getLogger(__name__)

REMARK_SIZE_MAX: Final = 1024


class Lane:
    """A share of the server for one kind of work, with a limit on what is unfinished in it."""

    __slots__ = ("in_flight", "limit", "name", "refused")

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.in_flight = 0
        self.refused = 0


class Reply:
    """The promise of a later answer to one request."""

    __slots__ = ("_lane", "_link", "request")

    def __init__(self, request: Command, link: Link) -> None:
        self.request = request
        self._link: Link | None = link
        self._lane: Lane | None = None

    @property
    def link(self) -> Link | None:
        """The connection to answer on; None when answered."""
        return self._link

    def enter(self, lane: Lane) -> None:
        """Count in this lane until answered. The router's to call."""
        if self._link is not None:
            self._lane = lane
            lane.in_flight += 1

    def send(self, answer: Command | bytes | None) -> None:
        """Answer (None: nothing to say) and leave the lane. A second call does nothing."""
        link, self._link = self._link, None
        if link is None:
            return
        if self._lane is not None:
            self._lane.in_flight -= 1
        if answer is not None and not self.request.is_oneway:
            link.send(answer)


class InTurn:
    """A handler of large requests: one in each turn of the loop, in the order in which they came.

    Between two of them answers leave and others are served. Each waits in its lane until its turn has come.
    """

    def __init__(self, handler: Callable[[Command, Link], Answer], soon: Callable[[Callable[[], object]], object]):
        """`soon` runs a function when the present turn of the loop is over."""
        self._handler = handler
        self._soon = soon
        self._waiting: deque[Reply] = deque()

    def __call__(self, command: Command, link: Link) -> Reply:
        reply = Reply(command, link)
        self._waiting.append(reply)
        if len(self._waiting) == 1:
            self._soon(self._next)
        return reply

    def _next(self) -> None:
        reply = self._waiting[0]
        assert reply.link is not None
        answer: Answer = None
        try:
            answer = self._handler(reply.request, reply.link)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises becomes a response
            answer = response_to(reply.request, reply.link, error)
        finally:
            reply.send(answer)
            self._waiting.popleft()
            if self._waiting:
                self._soon(self._next)


def response_to(command: Command, link: Link, error: Exception) -> Command:
    """The response that tells the peer of this error."""
    if isinstance(error, RemoteError):
        return command.reply(error.code, remark=str(error)[:REMARK_SIZE_MAX])
    if isinstance(error, FieldError):
        return command.reply(ResponseCode.SYSTEM_ERROR, remark=str(error)[:REMARK_SIZE_MAX])
    if not isinstance(error, FuseeError):
        _log.error("request code %d from %s failed", command.code, link.remote_address, exc_info=error)
    remark = f"{type(error).__name__}: {error}"
    return command.reply(ResponseCode.SYSTEM_ERROR, remark=remark[:REMARK_SIZE_MAX])


class Router:
    """The table of one server: request code to handler and lane."""

    def __init__(self) -> None:
        self._routes: dict[int, tuple[Handler, Lane, bool]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Answers all requests in some bytes from their text alone, where the same questions were answered before.
        self.recall: Callable[[bytes], bytes | None] | None = None
        self.lanes: dict[str, Lane] = {}

    def lane(self, name: str, limit: int) -> Lane:
        """A new lane of this router."""
        lane = self.lanes[name] = Lane(name, limit)
        return lane

    def add(self, code: int, handler: Handler, lane: Lane) -> None:
        """Serve this code by this handler."""
        self._routes[code] = (handler, lane, inspect.iscoroutinefunction(handler))

    def add_all(self, handlers: Mapping[RequestCode, Handler], lane: Lane) -> None:
        """Serve these codes in one lane."""
        for code, handler in handlers.items():
            self.add(code, handler, lane)

    @property
    def codes(self) -> frozenset[int]:
        return frozenset(self._routes)

    @property
    def in_flight(self) -> int:
        """Requests whose answer is still to come."""
        return sum(lane.in_flight for lane in self.lanes.values())

    def dispatch(self, command: Command, link: Link) -> Answer:
        """The answer to this request, or None when it is oneway or will be answered later."""
        route = self._routes.get(command.code)
        if route is None:
            return command.reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {command.code} not supported"
            )
        handler, lane, waits = route
        if lane.in_flight >= lane.limit:
            lane.refused += 1
            return command.reply(
                ResponseCode.SYSTEM_BUSY,
                remark=f"[OVERLOAD]lane {lane.name} is full: {lane.in_flight} requests unfinished, limit {lane.limit}; "
                "try again later",
            )
        try:
            if waits:
                self._start(handler, command, link, lane)
                return None
            answer: Any = handler(command, link)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises becomes a response
            return response_to(command, link, error)
        if type(answer) is Reply:
            answer.enter(lane)
            return None
        return answer  # type: ignore[no-any-return]

    def _start(self, handler: Handler, command: Command, link: Link, lane: Lane) -> None:
        reply = Reply(command, link)
        reply.enter(lane)
        task = asyncio.get_running_loop().create_task(self._serve(handler, command, link, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, handler: Any, command: Command, link: Link, reply: Reply) -> None:
        answer: Answer = None
        try:
            answer = await handler(command, link)
        except Exception as error:  # noqa: BLE001 - as in dispatch
            answer = response_to(command, link, error)
        finally:
            reply.send(answer)

    async def stop(self) -> None:
        """Cancel the tasks that still run and wait for them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
