"""How the members of a group divide the queues of a topic: the strategies of the reference, result for result.

Nobody hands out queues. Every member asks a broker who the members are, puts queues and members in the same order
(`queue_order`, `id_order`) and computes its own share with the same pure function; when all see the same lists the
shares are disjoint and leave nothing out. Therefore members of one group must use one strategy, and a mixed group of
Java and Python members needs results identical to Java's, also for one client listed twice (two connections), for
names beyond ASCII (Java sorts by UTF-16 units) and for names like `room@broker@`.

    AVG                  runs of neighbouring queues, as even as can be; the first members get one more
    AVG_BY_CIRCLE        queue n goes to member n modulo the number of members
    CONSISTENT_HASH      queues and members on a ring of MD5 hashes; few queues move when a member comes or goes
    MACHINE_ROOM         only queues of brokers named `room@name` of the given rooms
    MACHINE_ROOM_NEARBY  queues go to members in their own room; all share the queues of rooms without members
    CONFIG               the queues that were given, whoever else there may be

(Java: AllocateMessageQueueStrategy and org.apache.rocketmq.client.consumer.rebalance.)
"""

from __future__ import annotations

from bisect import bisect_left
from hashlib import md5
from typing import TYPE_CHECKING, Protocol

from fusee.errors import ConfigError
from fusee.message.topics import is_retry_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fusee.message.model import MessageQueue


class AllocateStrategy(Protocol):
    """A share of the queues for each member of a group; pure, so that every member can compute it."""

    @property
    def name(self) -> str:
        """What the reference calls it."""

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of `client_id`; none when it is not among `client_ids`.

        `queues` are all of one topic in `queue_order`, `client_ids` all members in `id_order`. Raises ConfigError
        when one of them is empty, or when the strategy was not told enough to decide.
        """


def queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """The key by which all members sort queues: topic, broker, number, names as Java compares them."""
    return id_order(queue.topic), id_order(queue.broker_name), queue.queue_id


def id_order(text: str) -> bytes:
    """The key by which Java's strings sort: UTF-16 units, which differs from code points beyond U+FFFF."""
    return text.encode("utf-16-be", "surrogatepass")


class Averagely:
    """Runs of neighbouring queues (Java: AllocateMessageQueueAveragely)."""

    name = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        index = client_ids.index(client_id)
        size, more = divmod(len(queues), len(client_ids))
        start = index * size + min(index, more)
        return list(queues[start : start + size + (index < more)])


class AveragelyByCircle:
    """Queues dealt like cards (Java: AllocateMessageQueueAveragelyByCircle)."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class ConsistentHash:
    """Members stand `virtual_nodes` times on a ring; a queue goes to the next one (Java: ...ConsistentHash)."""

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = 10) -> None:
        if virtual_nodes < 0:
            raise ConfigError(
                f"virtual_nodes is {virtual_nodes}; give how often each member stands on the ring, e.g. 10"
            )
        self.virtual_nodes = virtual_nodes

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        ring = self._ring(client_ids)
        places = sorted(ring)
        if not places:
            return []
        mine = []
        for queue in queues:
            place = bisect_left(places, _hash(_java_text(queue)))
            if ring[places[place % len(places)]] == client_id:
                mine.append(queue)
        return mine

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        ring: dict[int, str] = {}
        seen: set[str] = set()
        for client_id in client_ids:
            # A client that is listed again stands on further places, counted from those it still has.
            first = sum(1 for owner in ring.values() if owner == client_id) if client_id in seen else 0
            seen.add(client_id)
            for index in range(first, first + self.virtual_nodes):
                ring[_hash(f"{client_id}-{index}")] = client_id
        return ring


class MachineRoom:
    """Queues of brokers named `room@name`, of the given rooms only (Java: AllocateMessageQueueByMachineRoom)."""

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        self.rooms = frozenset(rooms)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        inside = [queue for queue in queues if _room_of(queue.broker_name) in self.rooms]
        index = client_ids.index(client_id)
        size, more = divmod(len(inside), len(client_ids))
        mine = inside[index * size : (index + 1) * size]
        if index < more:
            mine.append(inside[index + size * len(client_ids)])
        return mine


class MachineRoomNearby:
    """Members first serve the brokers of their own room (Java: AllocateMachineRoomNearby).

    `strategy` divides what falls to a room. `broker_room` and `client_room` say in which room a queue's broker and a
    client are; an empty answer is an error, because two members must not disagree.
    """

    def __init__(
        self,
        strategy: AllocateStrategy,
        *,
        broker_room: Callable[[MessageQueue], str],
        client_room: Callable[[str], str],
    ) -> None:
        self._strategy = strategy
        self._broker_room = broker_room
        self._client_room = client_room

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self._strategy.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        queues_by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            room = self._broker_room(queue)
            if not room:
                raise ConfigError(f"broker_room names no room for {queue}; every broker must be in one")
            queues_by_room.setdefault(room, []).append(queue)
        ids_by_room: dict[str, list[str]] = {}
        for member_id in client_ids:
            room = self._client_room(member_id)
            if not room:
                raise ConfigError(f"client_room names no room for client {member_id!r}; every member must be in one")
            ids_by_room.setdefault(room, []).append(member_id)
        own_room = self._client_room(client_id)
        mine: list[MessageQueue] = []
        if nearby := queues_by_room.pop(own_room, None):
            mine += self._strategy.allocate(group, client_id, nearby, ids_by_room[own_room])
        for room in sorted(queues_by_room, key=id_order):
            if room not in ids_by_room:
                mine += self._strategy.allocate(group, client_id, queues_by_room[room], client_ids)
        return mine


class Configured:
    """The queues that were given, in that order (Java: AllocateMessageQueueByConfig).

    Otherwise than in Java, a topic gets only its own queues, and a retry topic of which no queue was given is divided
    averagely: with the reference nobody would consume messages that were sent back.
    """

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = tuple(queues)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        topics = {queue.topic for queue in queues}
        mine = [queue for queue in self.queues if queue.topic in topics]
        if not mine and topics and all(map(is_retry_topic, topics)):
            return Averagely().allocate(group, client_id, queues, client_ids)
        return mine


_BY_NAME: dict[str, Callable[[], AllocateStrategy]] = {
    "AVG": Averagely,
    "AVG_BY_CIRCLE": AveragelyByCircle,
    "CONSISTENT_HASH": ConsistentHash,
}
_NEED_MORE = {
    "MACHINE_ROOM": 'MachineRoom(rooms=["..."])',
    "MACHINE_ROOM_NEARBY": "MachineRoomNearby(strategy, broker_room=..., client_room=...)",
    "CONFIG": "Configured(queues=[MessageQueue(...)])",
}


def strategy(name: str) -> AllocateStrategy:
    """The strategy of this name. Raises ConfigError for an unknown one, or one that needs to be told more."""
    make = _BY_NAME.get(name)
    if make is not None:
        return make()
    if name in _NEED_MORE:
        raise ConfigError(f"strategy {name} cannot decide by its name alone; pass {_NEED_MORE[name]} instead")
    raise ConfigError(f"unknown strategy {name!r}; choose one of {', '.join([*_BY_NAME, *_NEED_MORE])}")


def _is_member(group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> bool:
    if not client_id:
        raise ConfigError(f"a member of group {group!r} has no client id")
    if not queues:
        raise ConfigError(f"group {group!r} has no queues to divide")
    if not client_ids:
        raise ConfigError(f"group {group!r} has no members to divide queues among")
    return client_id in client_ids


def _hash(key: str) -> int:
    # MD5 as a scatter function: members in other languages compute the same.
    return int.from_bytes(md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4], "big")


def _java_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _room_of(broker_name: str) -> str | None:
    """The room of `room@name`; None for another form. As with Java's split, nothing at the end does not count."""
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None
