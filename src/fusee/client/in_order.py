"""Order among the sends of one key: each begins when the one before it is over.

A broker may work on several requests of one connection at once (the Java one does), and a try that failed may be
repeated after later ones have succeeded. So requests that are under way together have no order, whatever queue they go
to; those of one key are sent one after the other. When a send fails for good, the next one follows all the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fusee.client.outgoing import Outgoing, WaitingRoom

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from fusee.clock import Clock, Timers


class InOrder:
    """Who waits for whom, by topic and key."""

    __slots__ = ("_begin", "_clock", "_ended", "_lines", "_loop", "_timers", "waiting")

    def __init__(
        self, begin: Callable[[Outgoing], None], ended: Callable[[], object], *, clock: Clock, timers: Timers
    ) -> None:
        """`begin` starts a send whose turn it is; `ended` hears when nobody is left of a key."""
        self._begin = begin
        self._ended = ended
        self._clock = clock
        self._timers = timers
        self._loop = asyncio.get_running_loop()
        # A key is here while a send of it is under way; its waiting room only when somebody waits.
        self._lines: dict[Hashable, WaitingRoom | None] = {}
        self.waiting = 0
        """How many wait for their turn."""

    def __contains__(self, name: Hashable) -> bool:
        return name in self._lines

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, out: Outgoing, name: Hashable) -> None:
        """Begin this now, or after those of the same name."""
        if name not in self._lines:
            self._lines[name] = None
            out.order = name
            self._begin(out)
            return
        room = self._lines[name]
        if room is None:
            room = self._lines[name] = WaitingRoom(
                "the sends of the same order key before it", clock=self._clock, timers=self._timers
            )
        out.is_admitted = False
        out.is_in_line = True
        self.waiting += 1
        room.add(out)

    def left(self, out: Outgoing) -> None:
        """This one waits no longer."""
        out.is_in_line = False
        self.waiting -= 1

    def finished(self, out: Outgoing) -> None:
        """Whoever waits behind this one is next."""
        name, out.order = out.order, None
        if self._lines[name] is None:
            del self._lines[name]
        else:
            # In the next turn of the loop: a long line of failures must not become a deep recursion.
            self._loop.call_soon(self._next, name)

    def _next(self, name: Hashable) -> None:
        room = self._lines[name]
        assert room is not None
        out = room.take()
        if out is None:
            del self._lines[name]
            self._ended()
            return
        self.left(out)
        out.order = name
        self._begin(out)
