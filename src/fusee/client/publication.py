"""What a producer knows of one topic: its queues as lanes, whose turn it is, and who waits for the route.

(Java: TopicPublishInfo.) Queues take turns, starting anywhere. A send that is tried again avoids the broker that
failed; with latency faults on, brokers that were slow or failed lately are passed over while others are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.client.outgoing import WaitingRoom
from fusee.errors import MessageError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from fusee.client.latency import LatencyFaults
    from fusee.client.outlet import Lane
    from fusee.client.routes import TopicRoute
    from fusee.clock import Clock, Timers
    from fusee.message.model import MessageQueue

_OTHER_LANES_MAX: Final = 4096


class Publication:
    """One topic of a producer."""

    __slots__ = ("_at", "_by_queue", "_new_lane", "asked_at", "asking", "lanes", "queues", "topic", "waiting")

    def __init__(
        self, topic: str, new_lane: Callable[[MessageQueue], Lane], *, start: int, clock: Clock, timers: Timers
    ) -> None:
        """`start` is where the turns begin, best a random number."""
        self.topic = topic
        self.lanes: tuple[Lane, ...] = ()
        self.queues: tuple[MessageQueue, ...] = ()
        self.waiting = WaitingRoom(f"the route of topic {topic!r}", clock=clock, timers=timers)
        self.asking: asyncio.Task[None] | None = None
        self.asked_at = float("-inf")
        self._new_lane = new_lane
        self._by_queue: dict[MessageQueue, Lane] = {}
        self._at = start

    def adopt(self, route: TopicRoute) -> None:
        """Use the queues of this route from now on; a route without any leaves the old ones."""
        if route.write_queues and route.write_queues != self.queues:
            self.queues = route.write_queues
            self.lanes = tuple(map(self._new_lane, self.queues))
            self._by_queue = dict(zip(self.queues, self.lanes, strict=True))

    def close(self) -> None:
        """Nobody will send here any more."""
        self.waiting.close()

    def next_lane(self) -> Lane:
        """The lane whose turn it is."""
        lanes = self.lanes
        at = self._at = (self._at + 1) % len(lanes)
        return lanes[at]

    def open_lane(self, avoid: str) -> Lane | None:
        """The next lane whose way is open, of another broker than this one; None when there is none."""
        for _ in range(len(self.lanes)):
            lane = self.next_lane()
            if lane.broker_name != avoid and lane.outlet.is_open:
                return lane
        return None

    def lane_avoiding(self, broker_name: str, faults: LatencyFaults | None, now: float) -> Lane:
        """The next lane of another broker than this one, and of one without faults if there is any."""
        if faults is not None:
            for is_good in (lambda name: faults.is_available(name, now), faults.is_reachable):
                for _ in range(len(self.lanes)):
                    lane = self.next_lane()
                    if lane.broker_name != broker_name and is_good(lane.broker_name):
                        return lane
            return self.next_lane()
        for _ in range(len(self.lanes)):
            lane = self.next_lane()
            if lane.broker_name != broker_name:
                return lane
        return self.next_lane()

    def lane_of(self, queue: MessageQueue) -> Lane:
        """The lane of this queue, even if the route does not have it now. Raises MessageError for another topic."""
        lane = self._by_queue.get(queue)
        if lane is None:
            if queue.topic != self.topic:
                raise MessageError(
                    f"a message for topic {self.topic!r} cannot go to a queue of topic {queue.topic!r}; take one of "
                    "`await producer.queues(topic)`"
                )
            if len(self._by_queue) >= len(self.lanes) + _OTHER_LANES_MAX:
                self._by_queue = dict(zip(self.queues, self.lanes, strict=True))
            lane = self._by_queue[queue] = self._new_lane(queue)
        return lane
