"""Pulls that found nothing and wait: woken by arrival in their queue or by their deadline (PullRequestHoldService).

A hold is a request kept with a way to try it again. `wake` tries every hold of a queue: one that finds something is
answered and leaves; one whose filter wanted nothing of what came stays, and goes on from where it has looked. At its
deadline a hold is answered with whatever the last try says. Holds of a closed connection leave with it.

(The reference looks at deadlines every five seconds, so a pull of three seconds may be held for eight; here the
deadline is kept to a tenth of a second.)
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final

from fusee.service import Periodic

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.clock import Clock, Timers
    from fusee.transport.link import Link
    from fusee.transport.router import Lane

_LOOK_INTERVAL: Final = 0.1

HOLDS_PER_LINK_MAX: Final = 20_000
"""Pulls that one connection may have held; more are answered at once, so that none takes the share of all."""


class Hold:
    """One pull that waits. `attempt(last)` tries it again: True when it was answered; with `last` it always is."""

    __slots__ = ("attempt", "deadline", "is_over", "key", "link")

    def __init__(self, key: tuple[str, int], link: Link, deadline: float, attempt: Callable[[bool], bool]) -> None:
        self.key = key
        self.link = link
        self.deadline = deadline
        self.attempt = attempt
        self.is_over = False


class Holds:
    """All holds of a broker, by queue."""

    def __init__(self, *, clock: Clock, timers: Timers, lane: Lane) -> None:
        self._clock = clock
        self._lane = lane
        # In the order they came; a dict, because each leaves by itself and there may be very many.
        self._by_queue: dict[tuple[str, int], dict[Hold, None]] = {}
        self._by_link: dict[Link, set[Hold]] = {}
        self._deadlines: list[tuple[float, int, Hold]] = []
        self._sequence = count()
        self._look = Periodic(timers, _LOOK_INTERVAL, self.expire)
        self._is_stopped = False

    def __len__(self) -> int:
        return sum(map(len, self._by_queue.values()))

    def start(self) -> None:
        self._look.start()

    def stop(self) -> None:
        """Answer every hold with what there is, and from now on at once."""
        self._is_stopped = True
        self._look.stop()
        for holds in list(self._by_queue.values()):
            for hold in list(holds):
                self._end(hold)
                hold.attempt(True)

    def is_awaited(self, topic: str, queue_id: int) -> bool:
        """Whether somebody waits for messages of this queue."""
        return (topic, queue_id) in self._by_queue

    def add(self, topic: str, queue_id: int, link: Link, seconds: float, attempt: Callable[[bool], bool]) -> None:
        """Keep a pull for so long."""
        if self._is_stopped or len(self._by_link.get(link, ())) >= HOLDS_PER_LINK_MAX:
            attempt(True)
            return
        key = (topic, queue_id)
        hold = Hold(key, link, self._clock.monotonic() + seconds, attempt)
        self._lane.in_flight += 1
        self._by_queue.setdefault(key, {})[hold] = None
        self._by_link.setdefault(link, set()).add(hold)
        heapq.heappush(self._deadlines, (hold.deadline, next(self._sequence), hold))

    def wake(self, topic: str, queue_id: int) -> None:
        """Something has arrived in this queue."""
        holds = self._by_queue.get((topic, queue_id))
        if holds:
            for hold in list(holds):
                if not hold.is_over and hold.attempt(False):
                    self._end(hold)

    def wake_all(self) -> None:
        """Something has changed for every queue."""
        for topic, queue_id in list(self._by_queue):
            self.wake(topic, queue_id)

    def expire(self) -> None:
        """Answer the holds whose time is over."""
        now = self._clock.monotonic()
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now or deadlines[0][2].is_over):
            hold = heapq.heappop(deadlines)[2]
            if not hold.is_over:
                self._end(hold)
                hold.attempt(True)

    def link_lost(self, link: Link) -> None:
        """The connection is gone, and nobody is left to answer."""
        for hold in self._by_link.pop(link, ()):
            self._end(hold)

    def _end(self, hold: Hold) -> None:
        if hold.is_over:
            return
        hold.is_over = True
        self._lane.in_flight -= 1
        holds = self._by_queue[hold.key]
        del holds[hold]
        if not holds:
            del self._by_queue[hold.key]
        of_link = self._by_link.get(hold.link)
        if of_link is not None:
            of_link.discard(hold)
            if not of_link:
                del self._by_link[hold.link]
        # Ended holds stay in the heap until their time; when most are ended it is made anew.
        if len(self._deadlines) > 64 and len(self._deadlines) > 4 * (self._lane.in_flight + 16):
            self._deadlines = [entry for entry in self._deadlines if not entry[2].is_over]
            heapq.heapify(self._deadlines)
