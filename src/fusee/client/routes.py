"""Where topics live: the last routes that the name servers told, and what follows from them.

Pure look-ups: asking the name servers is the session's work. A broker group is known by its name; its addresses are
those of the newest route that mentions it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.message.model import MessageQueue
from fusee.wire.bodies.route import MASTER_ID, QueueData, TopicRouteData

if TYPE_CHECKING:
    import random

PERM_READ: Final = 4
PERM_WRITE: Final = 2


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The queues of a topic as a client uses them.

    `is_assumed` says that the topic does not exist yet, and that these are the queues it will have when the first
    message makes it.
    """

    topic: str
    data: TopicRouteData
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    is_ordered: bool = False
    is_assumed: bool = False


def topic_route(topic: str, data: TopicRouteData, *, is_assumed: bool = False) -> TopicRoute:
    """The queues that this route gives the topic: written in Java's order, read in sorted order."""
    masters = {broker.broker_name for broker in data.broker_datas if MASTER_ID in broker.broker_addrs}
    ordered = _ordered_queues(topic, data.order_topic_conf)
    if ordered is not None:
        write = ordered
    else:
        write = tuple(
            MessageQueue(topic, queues.broker_name, queue_id)
            for queues in sorted(data.queue_datas, key=lambda each: each.broker_name)
            if queues.perm & PERM_WRITE and queues.broker_name in masters
            for queue_id in range(queues.write_queue_nums)
        )
    read = tuple(
        sorted(
            MessageQueue(topic, queues.broker_name, queue_id)
            for queues in data.queue_datas
            if queues.perm & PERM_READ
            for queue_id in range(queues.read_queue_nums)
        )
    )
    return TopicRoute(topic, data, write, read, is_ordered=ordered is not None, is_assumed=is_assumed)


def assumed_route(topic: str, default_topic: TopicRouteData, queue_nums: int) -> TopicRoute:
    """The route a topic will have when the first message makes it from the default topic."""
    data = TopicRouteData(
        broker_datas=default_topic.broker_datas,
        queue_datas=[
            msgspec.structs.replace(
                queues,
                read_queue_nums=min(queue_nums, queues.read_queue_nums),
                write_queue_nums=min(queue_nums, queues.read_queue_nums),
            )
            for queues in default_topic.queue_datas
        ],
    )
    return topic_route(topic, data, is_assumed=True)


class RouteTable:
    """The routes a client knows."""

    def __init__(self) -> None:
        self._routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, dict[int, str]] = {}

    def get(self, topic: str) -> TopicRoute | None:
        """The route of this topic, if one is known."""
        return self._routes.get(topic)

    def put(self, route: TopicRoute) -> bool:
        """Take this route; whether it differs from the one before."""
        for broker in route.data.broker_datas:
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
        old = self._routes.get(route.topic)
        if old is not None and old.is_assumed == route.is_assumed and _same(old.data, route.data):
            return False
        self._routes[route.topic] = route
        return True

    def remove(self, topic: str) -> None:
        """Forget this topic."""
        self._routes.pop(topic, None)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose routes are known."""
        return tuple(self._routes)

    @property
    def brokers(self) -> dict[str, dict[int, str]]:
        """Broker groups by name, with the address of each broker id."""
        return self._brokers

    def forget_brokers_without_topic(self) -> list[str]:
        """Drop broker groups that no route mentions any more; their addresses."""
        named = {broker.broker_name for route in self._routes.values() for broker in route.data.broker_datas}
        gone = [name for name in self._brokers if name not in named]
        return [address for name in gone for address in self._brokers.pop(name).values()]

    def addresses(self, *, masters_only: bool = False) -> list[str]:
        """Every broker address that is known."""
        return [
            address
            for brokers in self._brokers.values()
            for broker_id, address in brokers.items()
            if broker_id == MASTER_ID or not masters_only
        ]

    def master_address(self, broker_name: str) -> str | None:
        """Where messages for this broker group are sent."""
        brokers = self._brokers.get(broker_name)
        return brokers.get(MASTER_ID) if brokers else None

    def read_address(
        self, broker_name: str, broker_id: int = MASTER_ID, *, only_this: bool = False
    ) -> tuple[str, bool] | None:
        """Where to read from this broker group, and whether that is a slave; None when nobody is there.

        `broker_id` is the one wished for; unless `only_this`, any other will do when it is away.
        """
        brokers = self._brokers.get(broker_name)
        if not brokers:
            return None
        address = brokers.get(broker_id)
        if address is None and broker_id != MASTER_ID:
            address = brokers.get(broker_id + 1)
        if address is not None:
            return address, broker_id != MASTER_ID
        if only_this:
            return None
        other = min(brokers)
        return brokers[other], other != MASTER_ID

    def slave_id(self, broker_name: str) -> int | None:
        """The smallest broker id of a slave in this group; None when there is none."""
        return min((each for each in self._brokers.get(broker_name, ()) if each != MASTER_ID), default=None)

    def any_address(self, topic: str, chooser: random.Random) -> str | None:
        """A broker that serves this topic, the master of its group where there is one."""
        route = self._routes.get(topic)
        groups = [broker.broker_addrs for broker in route.data.broker_datas if broker.broker_addrs] if route else []
        if not groups:
            return None
        brokers = chooser.choice(groups)
        return brokers.get(MASTER_ID) or brokers[chooser.choice(sorted(brokers))]


def _ordered_queues(topic: str, conf: str | None) -> tuple[MessageQueue, ...] | None:
    """The queues of `broker-a:4;broker-b:2`; None when the topic has no such setting, or it cannot be read."""
    queues: list[MessageQueue] = []
    for item in (conf or "").split(";"):
        broker_name, separator, count = item.partition(":")
        if separator and count.isascii() and count.isdigit():
            queues += [MessageQueue(topic, broker_name, queue_id) for queue_id in range(int(count))]
    return tuple(queues) or None


def _same(a: TopicRouteData, b: TopicRouteData) -> bool:
    return (
        sorted(map(_queue_key, a.queue_datas)) == sorted(map(_queue_key, b.queue_datas))
        and {each.broker_name: each.broker_addrs for each in a.broker_datas}
        == {each.broker_name: each.broker_addrs for each in b.broker_datas}
        and a.order_topic_conf == b.order_topic_conf
    )


def _queue_key(queues: QueueData) -> tuple[str, int, int, int, int]:
    return (queues.broker_name, queues.perm, queues.read_queue_nums, queues.write_queue_nums, queues.topic_sys_flag)
