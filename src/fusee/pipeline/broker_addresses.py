"""Where a task finds the brokers it reads from: asked of the name servers, remembered, and asked again on trouble."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from fusee.clock import SystemClock
from fusee.errors import ConfigError, ConnectError, ProtocolError, TransportError, UnavailableError
from fusee.pipeline.blocking_link import BlockingLink, host_and_port
from fusee.wire.bodies.route import MASTER_ID, decode_route
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.headers.namesrv import GetRouteInfo

if TYPE_CHECKING:
    import ssl

REMEMBERED_S: Final = 30.0


class BrokerAddresses:
    """The addresses of broker groups, by topic."""

    def __init__(self, name_servers: str, *, timeout_ms: int, tls: ssl.SSLContext | None) -> None:
        self._name_servers = [each.strip() for each in name_servers.replace(",", ";").split(";") if each.strip()]
        if not self._name_servers:
            raise ConfigError("no name server is given; write e.g. 127.0.0.1:9876")
        for each in self._name_servers:
            host_and_port(each)
        random.shuffle(self._name_servers)
        self._timeout_ms = timeout_ms
        self._tls = tls
        self._clock = SystemClock()
        self._known: dict[str, tuple[float, dict[str, list[str]]]] = {}

    def forget(self, topic: str) -> None:
        """Ask again next time."""
        self._known.pop(topic, None)

    def of(self, topic: str, broker_name: str) -> list[str]:
        """The addresses of this group, its master first.

        Raises TopicNotFoundError when there is no such topic, UnavailableError when no broker of the group is there,
        ConnectError when no name server answers.
        """
        known = self._known.get(topic)
        now = self._clock.monotonic()
        if known is None or now - known[0] > REMEMBERED_S:
            known = now, self._ask(topic)
            self._known[topic] = known
        addresses = known[1].get(broker_name, [])
        if not addresses:
            self.forget(topic)
            raise UnavailableError(
                f"no broker of group {broker_name!r} is registered for topic {topic!r}; is it running?",
                code=ResponseCode.SERVICE_NOT_AVAILABLE,
                topic=topic,
            )
        return addresses

    def _ask(self, topic: str) -> dict[str, list[str]]:
        causes: list[str] = []
        for _ in range(len(self._name_servers)):
            address = self._name_servers[0]
            try:
                return self._ask_one(address, topic)
            except (TransportError, ProtocolError) as error:
                causes.append(f"{address}: {error}")
                self._name_servers.append(self._name_servers.pop(0))
        raise ConnectError("no name server answers; is one running, and reachable from here? " + "; ".join(causes))

    def _ask_one(self, address: str, topic: str) -> dict[str, list[str]]:
        link = BlockingLink(address, timeout_ms=self._timeout_ms, tls=self._tls)
        try:
            command, body = link.request(
                Command.request(
                    RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic=topic, accept_standard_json_only=True)
                )
            )
        finally:
            link.close()
        if command.code != ResponseCode.SUCCESS:
            raise error_for(command.code, command.remark, address, RequestCode.GET_ROUTEINFO_BY_TOPIC)
        route = decode_route(bytes(body))
        return {
            broker.broker_name: [
                where for _, where in sorted(broker.broker_addrs.items(), key=lambda each: (each[0] != MASTER_ID, each))
            ]
            for broker in route.broker_datas
        }
