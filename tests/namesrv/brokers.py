"""Brokers and connections for tests of the name server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.clock import ManualClock
from fusee.namesrv.config import NameServerConfig
from fusee.namesrv.handlers import Handlers
from fusee.namesrv.kv_table import KvTable
from fusee.namesrv.route_table import Registration, RouteTable
from fusee.wire.bodies.topic import DataVersion, TopicConfig, TopicConfigTable, TopicQueueMappingInfo
from fusee.wire.command import Command
from fusee.wire.framing import FrameDecoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fusee.namesrv.saved_file import FileSystem
    from fusee.wire.codes import RequestCode

CLUSTER = "c"
TOPICS = ("t1", "t2")


class FakeLink:
    """A connection that counts how often it was closed."""

    def __init__(self, remote_address: str = "127.0.0.1:50000") -> None:
        self.remote_address = remote_address
        self.closings = 0

    def close(self) -> None:
        self.closings += 1


def topics(
    names: Iterable[str] = TOPICS,
    *,
    counter: int = 0,
    state_version: int = 0,
    perm: int = 6,
    queues: int = 4,
    flags: int = 0,
    mappings: Mapping[str, TopicQueueMappingInfo] | None = None,
) -> TopicConfigTable:
    return TopicConfigTable(
        data_version=DataVersion(counter=counter, state_version=state_version, timestamp=1),
        topic_config_table={
            name: TopicConfig(
                topic_name=name,
                perm=perm,
                read_queue_nums=queues,
                write_queue_nums=queues,
                topic_sys_flag=flags,
            )
            for name in names
        },
        topic_queue_mapping_info_map=dict(mappings or {}),
    )


def broker(
    name: str = "a",
    broker_id: int = 0,
    *,
    address: str | None = None,
    cluster: str = CLUSTER,
    table: TopicConfigTable | None = None,
    channel: object = None,
    filter_servers: list[str] | None = None,
    zone: str | None = None,
    timeout_ms: int | None = None,
    acting_master: bool | None = False,
) -> Registration:
    address = f"{name}:{broker_id}" if address is None else address
    return Registration(
        cluster=cluster,
        address=address,
        broker_name=name,
        broker_id=broker_id,
        ha_address=f"ha-{address}",
        channel=address if channel is None else channel,
        topics=topics() if table is None else table,
        filter_servers=filter_servers,
        zone=zone,
        timeout_ms=timeout_ms,
        acting_master=acting_master,
    )


class NameServerDesk:
    """Handlers over fresh tables, a manual clock, and a record of what was sent to brokers."""

    def __init__(
        self,
        config: NameServerConfig | None = None,
        *,
        kv_table: KvTable | None = None,
        file_system: FileSystem | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.routes = RouteTable()
        self.kv = kv_table if kv_table is not None else KvTable()
        self.sent: list[tuple[str, Command]] = []
        self.configs: list[NameServerConfig] = []
        self.handlers = Handlers(
            route_table=self.routes,
            kv_table=self.kv,
            config=config if config is not None else NameServerConfig(),
            clock=self.clock,
            send_oneway=lambda address, command: self.sent.append((address, command)),
            on_config=self.configs.append,
            file_system=file_system,
        )
        self.link = FakeLink()

    def register(self, registration: Registration) -> None:
        self.routes.register(registration, self.clock.time_ms())

    def ask(
        self,
        code: RequestCode,
        fields: Mapping[str, str] | None = None,
        *,
        body: bytes = b"",
        version: int = 513,
        link: FakeLink | None = None,
    ) -> Command:
        request = Command(code, opaque=7, version=version, ext_fields=dict(fields or {}), body=body)
        return self.answer(request, link)

    def answer(self, request: Command, link: FakeLink | None = None) -> Command:
        answer = self.handlers.routes()[request.code](request, link or self.link)  # type: ignore[index]
        assert answer is not None
        if isinstance(answer, bytes):
            (answer,) = FrameDecoder().feed(answer)
        assert answer.is_response
        assert answer.opaque == request.opaque
        return answer
