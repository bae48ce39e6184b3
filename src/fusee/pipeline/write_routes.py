"""Where a writer finds queues to write to: asked of the name servers, remembered, asked again on trouble."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fusee.clock import SystemClock
from fusee.errors import ConfigError, ConnectError, FuseeError, ProtocolError, TopicNotFoundError, TransportError
from fusee.pipeline.blocking_link import Answer, BlockingLink, client_context, host_and_port
from fusee.wire.bodies.route import MASTER_ID, decode_cluster_info, decode_route
from fusee.wire.bodies.topic import PERM_WRITE
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.headers.admin import CreateTopic
from fusee.wire.headers.namesrv import GetRouteInfo

if TYPE_CHECKING:
    import ssl

STORED_BYTES_MAX: Final = 4 * 1024 * 1024 - 64 * 1024
"""What a broker stores of one request, unless maxMessageSize says otherwise."""

REQUEST_BYTES: Final = 2 * 1024 * 1024
"""Of messages in one request: what a broker has at hand, then, stays in the processor's cache."""

IN_FLIGHT_BYTES: Final = 64 * 1024 * 1024
"""Many requests: a task goes on while others of its requests wait for a processor."""

_REMEMBERED_S: Final = 30.0
_ROUTE_TRIES: Final = 50
_ROUTE_WAIT_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How a writer reaches the brokers. Pickles.

    A try that failed is made again up to `retries` times in a row, after `retry_delay_ms`, then twice that, and so on.
    A topic that is not there is made with `create_queues` queues on each broker; 0 makes none.
    """

    name_servers: str
    producer_group: str = "fusee-spark"
    batch_bytes: int = REQUEST_BYTES
    in_flight_bytes: int = IN_FLIGHT_BYTES
    local_writes: bool = True
    request_timeout_ms: int = 30_000
    commit_timeout_ms: int = 120_000
    retries: int = 12
    retry_delay_ms: int = 100
    create_queues: int = 0
    tls: bool = False
    tls_ca_file: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_verify: bool = True

    def tls_context(self) -> ssl.SSLContext | None:
        """Raises ConfigError when a file is missing or wrong."""
        if not self.tls:
            return None
        return client_context(
            ca_file=self.tls_ca_file, certificate=self.tls_certificate, key=self.tls_key, verify=self.tls_verify
        )

    def pause(self, failures: int) -> None:
        """Wait before the next try, after so many that failed."""
        threading.Event().wait(min(self.retry_delay_ms * 2 ** (failures - 1), 5_000) / 1000)


@dataclass(frozen=True, slots=True, order=True)
class WriteQueue:
    """A queue that may be written to."""

    broker_name: str
    queue_id: int


class WriteRoutes:
    """Queues by topic, and masters by name."""

    def __init__(self, settings: WriteSettings, tls: ssl.SSLContext | None) -> None:
        self._settings = settings
        self._tls = tls
        servers = settings.name_servers.replace(",", ";").split(";")
        self._name_servers = [each.strip() for each in servers if each.strip()]
        if not self._name_servers:
            raise ConfigError("no name server is given; write e.g. 127.0.0.1:9876")
        for each in self._name_servers:
            host_and_port(each)
        random.shuffle(self._name_servers)
        self._clock = SystemClock()
        self._known: dict[str, tuple[float, list[WriteQueue]]] = {}
        self._masters: dict[str, str] = {}

    def forget(self) -> None:
        """Ask again next time."""
        self._known.clear()
        self._masters.clear()

    def queues(self, topic: str) -> list[WriteQueue]:
        """The queues of a topic that may be written to, sorted; made when missing, if the settings say so.

        Raises TopicNotFoundError when it is not there, ConnectError when no name server answers.
        """
        known = self._known.get(topic)
        now = self._clock.monotonic()
        if known is None or now - known[0] > _REMEMBERED_S or not known[1]:
            queues = self._ask(topic)
            if not queues and self._settings.create_queues:
                self._create(topic)
                for _ in range(_ROUTE_TRIES):
                    queues = self._ask(topic)
                    if queues:
                        break
                    threading.Event().wait(_ROUTE_WAIT_S)
            if not queues:
                raise TopicNotFoundError(
                    f"topic {topic!r} has no queue that may be written to: make it, or let the sink do so with "
                    ".option('createTopics', 'true'); or its broker is away",
                    code=ResponseCode.TOPIC_NOT_EXIST,
                    topic=topic,
                )
            known = self._known[topic] = now, queues
        return known[1]

    def address(self, broker_name: str) -> str:
        """The master of this broker group. Raises ConnectError when there is none, or no name server answers."""
        if broker_name not in self._masters:
            self.masters()
        address = self._masters.get(broker_name)
        if address is None:
            raise ConnectError(f"name servers know no master of broker {broker_name!r}: is it running?")
        return address

    def masters(self) -> dict[str, str]:
        """All masters by the names of their groups, asked now."""
        info = decode_cluster_info(bytes(self._request(Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)).body))
        self._masters = {
            name: broker.broker_addrs[MASTER_ID]
            for name, broker in info.broker_addr_table.items()
            if MASTER_ID in broker.broker_addrs
        }
        return dict(self._masters)

    def _ask(self, topic: str) -> list[WriteQueue]:
        header = GetRouteInfo(topic=topic, accept_standard_json_only=True)
        answer = self._request(Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header), missing_ok=True)
        if answer.command.code == ResponseCode.TOPIC_NOT_EXIST:
            return []
        route = decode_route(bytes(answer.body))
        masters = {
            broker.broker_name: broker.broker_addrs[MASTER_ID]
            for broker in route.broker_datas
            if MASTER_ID in broker.broker_addrs
        }
        self._masters |= masters
        return sorted(
            WriteQueue(queues.broker_name, queue_id)
            for queues in route.queue_datas
            if queues.perm & PERM_WRITE and queues.broker_name in masters
            for queue_id in range(queues.write_queue_nums)
        )

    def _create(self, topic: str) -> None:
        header = CreateTopic(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=self._settings.create_queues,
            write_queue_nums=self._settings.create_queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        for address in self.masters().values():
            link = BlockingLink(address, timeout_ms=self._settings.request_timeout_ms, tls=self._tls)
            try:
                answer = link.request(Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).command
            finally:
                link.close()
            if answer.code != ResponseCode.SUCCESS:
                raise error_for(answer.code, answer.remark, address, RequestCode.UPDATE_AND_CREATE_TOPIC)

    def _request(self, command: Command, *, missing_ok: bool = False) -> Answer:
        causes: list[str] = []
        for _ in range(len(self._name_servers)):
            address = self._name_servers[0]
            try:
                link = BlockingLink(address, timeout_ms=self._settings.request_timeout_ms, tls=self._tls)
                try:
                    answer = link.request(command)
                finally:
                    link.close()
            except (TransportError, ProtocolError) as error:
                causes.append(f"{address}: {error}")
                self._name_servers.append(self._name_servers.pop(0))
                continue
            code = answer.command.code
            if code == ResponseCode.SUCCESS or (missing_ok and code == ResponseCode.TOPIC_NOT_EXIST):
                return answer
            raise error_for(code, answer.command.remark, address, command.code)
        raise ConnectError("no name server answers; is one running, and reachable from here? " + "; ".join(causes))


def may_try_again(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    return isinstance(error, (OSError, ProtocolError)) or (isinstance(error, FuseeError) and error.retryable)
