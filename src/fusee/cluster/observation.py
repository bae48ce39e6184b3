"""What the nodes of a cluster say about themselves and each other, asked of all at once.

Each node is asked at its own address, so that a cluster without any name server can be looked at too. A node whose
process is gone or paused is not asked: it would only cost the time-out.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from fusee.admin.cluster import broker_state
from fusee.admin.views import BrokerAddress, BrokerState
from fusee.clock import SystemClock
from fusee.cluster.processes import ProcessState
from fusee.errors import FuseeError
from fusee.transport.client import Client, ClientSettings
from fusee.transport.tcp import TcpNetwork
from fusee.wire.bodies.kv import decode_kv_table
from fusee.wire.bodies.replication import HaRuntimeInfo
from fusee.wire.bodies.route import decode_cluster_info
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.lenient_json import decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from fusee.cluster.plan import Node
    from fusee.cluster.state_file import ClusterState

TIMEOUT: Final = 2.0
_REST: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One node: what /proc says of it, and what it said."""

    node: Node
    process: ProcessState
    failure: str = ""
    """Why it did not answer, though it runs."""
    brokers: Mapping[str, str] | None = None
    """Of a name server: the brokers that it knows, by `group/id`, and their addresses."""
    state: BrokerState | None = None
    """Of a broker: its numbers."""
    replication: HaRuntimeInfo | None = None
    """Of a broker: how replication is there."""

    @property
    def is_running(self) -> bool:
        return self.process is ProcessState.RUNNING

    @property
    def answers(self) -> bool:
        return self.is_running and not self.failure

    def knows(self, broker: Node) -> bool:
        """Whether this name server leads clients to that broker."""
        return (self.brokers or {}).get(f"{broker.group}/{broker.broker_id}") == broker.address


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All nodes at about the same moment."""

    seen: tuple[Seen, ...]
    time_ms: int

    @property
    def name_servers(self) -> tuple[Seen, ...]:
        return tuple(each for each in self.seen if not each.node.is_broker)

    @property
    def brokers(self) -> tuple[Seen, ...]:
        return tuple(each for each in self.seen if each.node.is_broker)

    def group(self, name: str) -> tuple[Seen, ...]:
        """The brokers of one group, its master first."""
        return tuple(each for each in self.brokers if each.node.group == name)


class Observer:
    """Asks nodes; one for many looks keeps its connections. Use it as `async with`."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._client = Client(
            network=TcpNetwork(),
            clock=self._clock,
            timers=asyncio.get_running_loop(),
            # A node that is coming up is asked again soon.
            settings=ClientSettings(
                connect_timeout=TIMEOUT, request_timeout=TIMEOUT, backoff_first=_REST, backoff_max=_REST
            ),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def look(self, state: ClusterState) -> Observation:
        """Ask every node that runs."""
        seen = await asyncio.gather(*(self.see(node) for node in state.nodes))
        return Observation(seen=tuple(seen), time_ms=self._clock.time_ms())

    async def see(self, node: Node) -> Seen:
        """Ask one node."""
        process = ProcessState.GONE if node.process is None else node.process.state
        if process is not ProcessState.RUNNING:
            return Seen(node=node, process=process)
        try:
            if node.is_broker:
                return Seen(
                    node=node,
                    process=process,
                    state=await self._state(node),
                    replication=await self._replication(node),
                )
            return Seen(node=node, process=process, brokers=await self._brokers(node))
        except FuseeError as error:
            return Seen(node=node, process=process, failure=str(error))

    async def _brokers(self, node: Node) -> dict[str, str]:
        answer = await self._ask(node, RequestCode.GET_BROKER_CLUSTER_INFO)
        groups = decode_cluster_info(answer.body).broker_addr_table
        return {
            f"{name}/{broker_id}": address
            for name, group in groups.items()
            for broker_id, address in group.broker_addrs.items()
        }

    async def _state(self, node: Node) -> BrokerState:
        answer = await self._ask(node, RequestCode.GET_BROKER_RUNTIME_INFO)
        place = BrokerAddress(broker_name=node.group, broker_id=node.broker_id, address=node.address)
        return broker_state(place, dict(decode_kv_table(answer.body).table))

    async def _replication(self, node: Node) -> HaRuntimeInfo:
        return decode_json((await self._ask(node, RequestCode.GET_BROKER_HA_STATUS)).body, HaRuntimeInfo)

    async def _ask(self, node: Node, code: RequestCode) -> Command:
        answer = await self._client.request(node.address, Command.request(code))
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark, node.address, code)
        return answer
