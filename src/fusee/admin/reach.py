"""How administration reaches servers: which brokers there are, how one is named, how each is asked.

A broker is named as people name it: by its group's name (`broker-a`, the master is meant), by its address
(`10.0.0.1:10911`), or not at all, which means every master of the cluster, or of all clusters. Topology and routes
are asked for each time: an operator wants what is true now, not what was cached.

Name servers do not talk to each other. A question goes to any of them; a change goes to each, so that none is left
with the old state.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar

from fusee.admin.fan_out import ask_all
from fusee.admin.views import BrokerAddress
from fusee.errors import ConfigError, NotFoundError
from fusee.message.model import MessageQueue
from fusee.wire.bodies.route import TopicRouteData, decode_cluster_info, decode_route
from fusee.wire.bodies.topic import PERM_READ, PERM_WRITE
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.headers.namesrv import GetRouteInfo
from fusee.wire.lenient_json import decode_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fusee.admin.fan_out import FanOut
    from fusee.client.session import Session
    from fusee.wire.bodies.queue_ref import QueueRef
    from fusee.wire.bodies.route import BrokerData, ClusterInfo
    from fusee.wire.fields import Header

T = TypeVar("T")

TIMEOUT_MS: Final = 5_000
RELAY_TIMEOUT_MS: Final = 12_000
"""For what a broker asks a client in turn, for which it waits up to ten seconds."""

ORDER_CONFIG_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


def to_ms(when: datetime | int) -> int:
    """Milliseconds of the wall clock. A datetime without a zone is local time."""
    return round(when.timestamp() * 1000) if isinstance(when, datetime) else when


def parse_perm(perm: int | str) -> int:
    """A permission as a number: 6, `"6"`, `"rw"`, `"r"`, `"w"`. Raises ConfigError."""
    if isinstance(perm, int) or perm.isdigit():
        number = int(perm)
        if 0 <= number <= (PERM_READ | PERM_WRITE | 1):
            return number
    elif perm and not set(perm.lower()) - set("rw-"):
        return (PERM_READ if "r" in perm.lower() else 0) | (PERM_WRITE if "w" in perm.lower() else 0)
    raise ConfigError(f"{perm!r} is no permission; give 'rw', 'r', 'w', or 6, 4, 2")


def queue_of(ref: QueueRef) -> MessageQueue:
    """A queue as bodies spell it, as everybody else does."""
    return MessageQueue(ref.topic, ref.broker_name, ref.queue_id)


class Reach:
    """What every part of `Admin` stands on."""

    def __init__(self, session: Session, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self._session = session
        self._timeout_ms = timeout_ms

    # Which brokers

    async def _topology(self) -> ClusterInfo:
        """All clusters and brokers that the name server knows."""
        answer = await self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return decode_cluster_info(answer.body)

    async def brokers(
        self, *, cluster: str | None = None, broker: str | None = None, slaves: bool = False
    ) -> tuple[BrokerAddress, ...]:
        """The masters meant by a cluster's name, a broker's name or address, or nothing; with `slaves`, them too.

        A group that has no master is left out, unless slaves are wanted. Raises NotFoundError naming what there is.
        """
        if broker is not None and ":" in broker and cluster is None:
            return (await self._by_address(broker),)
        info = await self._topology()
        known = all_brokers(info)
        if cluster is not None and cluster not in info.cluster_addr_table:
            raise _unknown("cluster", cluster, sorted(info.cluster_addr_table))
        found = [
            each
            for each in known
            if (cluster is None or each.cluster == cluster)
            and (broker is None or broker in (each.broker_name, each.address))
            and (slaves or each.is_master or each.address == broker)
        ]
        if not found:
            if broker is not None:
                raise _unknown("broker", broker, sorted({each.broker_name for each in known}))
            raise NotFoundError(
                "the name server knows no broker; is one running, and does it register at this name server?",
                code=ResponseCode.BROKER_NOT_EXIST,
                address=self._session.name_servers.current,
            )
        return tuple(found)

    async def _one_broker(self, broker: str) -> BrokerAddress:
        """The broker of this name (its master) or address."""
        return (await self.brokers(broker=broker))[0]

    async def _by_address(self, address: str) -> BrokerAddress:
        """A broker by address, which need not be known to the name server: it may be a container, or cut off."""
        for each in all_brokers(await self._topology()):
            if each.address == address:
                return each
        return BrokerAddress(address=address)

    async def _route(self, topic: str) -> TopicRouteData:
        """The route of a topic as the name server has it now. Raises TopicNotFoundError."""
        header = GetRouteInfo(topic=topic, accept_standard_json_only=True)
        answer = await self._ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, topic=topic)
        return decode_route(answer.body)

    async def _brokers_of(self, topic: str) -> tuple[BrokerAddress, ...]:
        """One broker of each group that serves a topic: the master if there is one. Raises TopicNotFoundError."""
        return readable_brokers((await self._route(topic)).broker_datas)

    # Asking

    async def _ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
        timeout_ms: int | None = None,
        accept: Collection[int] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """The answer of a broker, of a code in `accept`. Raises what it said, or why it could not be asked."""
        self._session.check_running()
        return await self._session.calls.request(
            address, code, header, body=body, timeout_ms=timeout_ms or self._timeout_ms, accept=accept
        )

    async def _ask_json(
        self,
        address: str,
        code: RequestCode,
        body_type: type[T],
        header: Header | None = None,
        *,
        body: bytes = b"",
        timeout_ms: int | None = None,
    ) -> T:
        """The body of a broker's answer."""
        answer = await self._ask(address, code, header, body=body, timeout_ms=timeout_ms)
        return decode_json(answer.body, body_type)

    async def _ask_brokers(
        self,
        brokers: Iterable[BrokerAddress],
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
        timeout_ms: int | None = None,
    ) -> FanOut[Command]:
        """The same request to each."""
        return await ask_all(
            brokers, lambda broker: self._ask(broker.address, code, header, body=body, timeout_ms=timeout_ms)
        )

    async def _ask_brokers_json(
        self,
        brokers: Iterable[BrokerAddress],
        code: RequestCode,
        body_type: type[T],
        header: Header | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> FanOut[T]:
        """The same request to each, answered by a body."""
        return await ask_all(
            brokers, lambda broker: self._ask_json(broker.address, code, body_type, header, timeout_ms=timeout_ms)
        )

    async def _ask_name_server(self, code: RequestCode, header: Header | None = None, *, topic: str = "") -> Command:
        """The answer of whichever name server answers."""
        self._session.check_running()
        name_servers = self._session.name_servers
        answer = await name_servers.request(Command.request(code, header), self._timeout_ms / 1000)
        if answer.code != ResponseCode.SUCCESS:
            error = error_for(answer.code, answer.remark, name_servers.current, code)
            error.topic = topic
            raise error
        return answer

    async def _ask_name_servers(
        self, code: RequestCode, header: Header | None = None, *, body: bytes = b""
    ) -> FanOut[Command]:
        """The same request to every name server."""
        servers = [BrokerAddress(address=address) for address in self._session.name_servers.addresses]

        async def ask(server: BrokerAddress) -> Command:
            return await self._ask(server.address, code, header, body=body)

        return await ask_all(servers, ask)

    async def _pause(self, seconds: float) -> None:
        """Wait on the session's clock."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._session.timers.call_later(seconds, _settle, done)
        try:
            await done
        finally:
            timer.cancel()


def readable_brokers(groups: Iterable[BrokerData]) -> tuple[BrokerAddress, ...]:
    """One broker of each group: the master, or any other while it is away."""
    found: list[BrokerAddress] = []
    for group in sorted(groups, key=lambda each: each.broker_name):
        if group.broker_addrs:
            broker_id = min(group.broker_addrs)
            found.append(_address(group, broker_id))
    return tuple(found)


def all_brokers(info: ClusterInfo) -> list[BrokerAddress]:
    """Every broker, in the order of names and ids."""
    return sorted(
        (_address(group, broker_id) for group in info.broker_addr_table.values() for broker_id in group.broker_addrs),
        key=lambda each: (each.cluster, each.broker_name, each.broker_id),
    )


def _address(group: BrokerData, broker_id: int) -> BrokerAddress:
    return BrokerAddress(
        cluster=group.cluster,
        broker_name=group.broker_name,
        broker_id=broker_id,
        address=group.broker_addrs[broker_id],
    )


def _unknown(kind: str, name: str, known: list[str]) -> NotFoundError:
    there = ", ".join(known) or "none"
    return NotFoundError(
        f"the name server knows no {kind} {name!r}; there is {there}", code=ResponseCode.BROKER_NOT_EXIST
    )


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
