"""Announces a broker to its name servers, and takes it back on stop (Java: BrokerOuterAPI).

Every name server is told by itself: one that is down or slow does not hold up the others, and is tried again sooner
than the usual period. A whole registration goes out at start, periodically, and after a failure; a change of topics
is told at once, by the changed topics alone. What is told while a registration runs is gathered for the next one.

With enableSlaveActingMaster name servers also get a sign of life every second, and take a broker for gone that is
silent for ten: a slave acts for it then.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import zlib
from typing import TYPE_CHECKING, Final

from fusee.errors import ConfigError, FuseeError, RemoteError
from fusee.service import Periodic
from fusee.transport.link import parse_address
from fusee.wire.bodies.kv import decode_kv_table
from fusee.wire.bodies.topic import (
    PERM_READ,
    PERM_WRITE,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    encode_register_body,
)
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.headers.namesrv import BrokerHeartbeat, RegisterBroker, RegisterBrokerResponse, UnregisterBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fusee.broker.config import BrokerConfig
    from fusee.broker.topics import TopicTable
    from fusee.clock import TimerHandle, Timers
    from fusee.transport.client import Client

_log = logging.getLogger(__name__)

_RETRY_DELAY: Final = 1.0
_RETRY_DELAY_MAX: Final = 30.0
_UNREGISTER_TIMEOUT: Final = 3.0
_ANY_ADDRESSES: Final = ("", "0.0.0.0", "::")


def advertised_ip(config: BrokerConfig) -> str:
    """The address to tell others: the configured one, the one listened on, or the one a route outwards would use.

    The route is looked up towards the first name server, whose neighbours the clients are.
    """
    if config.broker_ip1:
        return config.broker_ip1
    if config.bind_address not in _ANY_ADDRESSES:
        return config.bind_address
    targets = [parse_address(address) for address in config.name_servers[:1]] + [("192.0.2.1", 9)]
    for host, port in targets:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)  # of a datagram socket: no packet is sent
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


def numeric_ip(ip: str) -> str:
    """The address that records carry: names are resolved, to IPv4 where there is one. Raises ConfigError."""
    try:
        found = socket.getaddrinfo(ip, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"brokerIP1={ip}: the name cannot be resolved ({error}); write an address") from error
    found.sort(key=lambda entry: entry[0] is not socket.AF_INET)
    return str(found[0][4][0])


class Registration:
    """One broker's word to its name servers."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        topics: TopicTable,
        client: Client,
        timers: Timers,
        address: str,
        ha_address: str,
        on_master: Callable[[RegisterBrokerResponse], object] | None = None,
    ) -> None:
        """`address` and `ha_address` are told; `on_master` hears what a name server says of this broker's master."""
        self._config = config
        self._topics = topics
        self._client = client
        self._timers = timers
        self._address = address
        self._ha_address = ha_address
        self._on_master = on_master
        self._servers = {name_server: _Server(self, name_server) for name_server in config.name_servers}
        self._periodic = Periodic(timers, _period(config), self.announce_all)
        self._beats: Periodic | None = None
        if config.enable_slave_acting_master:
            self._beats = Periodic(timers, config.broker_heartbeat_interval / 1000, self._beat)
        topics.listeners.append(self.announce)

    @property
    def config(self) -> BrokerConfig:
        """May be replaced while it runs."""
        return self._config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self._config = config
        self._periodic.interval = _period(config)

    async def start(self) -> None:
        """Tell every name server; comes back when each has answered or failed once."""
        self._periodic.start()
        self.announce_all()
        await self.settled()
        if self._beats is not None:
            self._beats.start()

    async def stop(self) -> None:
        """Take the broker back from every name server that answers in time."""
        self._periodic.stop()
        if self._beats is not None:
            self._beats.stop()
        for server in self._servers.values():
            server.stop()
        header = UnregisterBroker(
            broker_name=self.config.broker_name,
            broker_address=self._address,
            cluster_name=self.config.broker_cluster_name,
            broker_id=self.config.broker_id,
        )
        answers = await asyncio.gather(
            *(
                self._client.request(
                    name_server, Command.request(RequestCode.UNREGISTER_BROKER, header), timeout=_UNREGISTER_TIMEOUT
                )
                for name_server in self._servers
            ),
            return_exceptions=True,
        )
        for name_server, answer in zip(self._servers, answers, strict=True):
            if isinstance(answer, BaseException):
                _log.warning("name server %s was not told that this broker stops: %s", name_server, answer)

    def announce_all(self) -> None:
        """Tell everything to everyone."""
        for server in self._servers.values():
            server.announce(None)

    def announce(self, topics: Sequence[TopicConfig]) -> None:
        """Tell everyone that these topics have changed."""
        for server in self._servers.values():
            server.announce(topics)

    def _beat(self) -> None:
        """Let name servers see that this broker lives. One that is not connected learns it by the next registration."""
        header = BrokerHeartbeat(
            cluster_name=self.config.broker_cluster_name,
            broker_address=self._address,
            broker_name=self.config.broker_name,
        )
        for name_server in self._servers:
            link = self._client.open_link(name_server)
            if link is not None and not link.is_write_paused:
                link.send_oneway(Command.request(RequestCode.BROKER_HEARTBEAT, header, oneway=True))

    async def settled(self, patience: float | None = None) -> None:
        """Wait until everything that was to be told has been tried once, or for so many seconds."""
        tasks = [server.task for server in self._servers.values() if server.task is not None]
        if not tasks:
            return
        enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = None if patience is None else self._timers.call_later(patience, _set, enough)
        everyone = asyncio.gather(*(asyncio.wait((task,)) for task in tasks))
        try:
            await asyncio.wait((enough, everyone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()
            everyone.cancel()

    @property
    def registered(self) -> tuple[str, ...]:
        """The name servers that know this broker now."""
        return tuple(name for name, server in self._servers.items() if server.is_registered)

    def request(self, topics: Mapping[str, TopicConfig]) -> Command:
        """The request that tells of these topics."""
        config = self.config
        allowed = config.broker_permission & (PERM_READ | PERM_WRITE)
        if allowed != PERM_READ | PERM_WRITE:
            topics = {name: _with_perm(topic, topic.perm & config.broker_permission) for name, topic in topics.items()}
        body = encode_register_body(
            RegisterBrokerBody(
                filter_server_list=[],
                topic_config_serialize_wrapper=TopicConfigTable(
                    data_version=self._topics.version, topic_config_table=dict(topics)
                ),
            )
        )
        header = RegisterBroker(
            broker_name=config.broker_name,
            broker_address=self._address,
            cluster_name=config.broker_cluster_name,
            ha_server_address=self._ha_address,
            broker_id=config.broker_id,
            heartbeat_timeout_ms=(
                config.broker_not_active_timeout_millis if config.enable_slave_acting_master else None
            ),
            enable_acting_master=config.enable_slave_acting_master,
            compressed=False,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        return Command.request(RequestCode.REGISTER_BROKER, header, body=body)

    async def tell(self, name_server: str, topics: Sequence[TopicConfig] | None) -> None:
        """Register once, wholly or with these topics alone. Raises FuseeError when that fails."""
        table = self._topics.all() if topics is None else {topic.topic_name: topic for topic in topics}
        timeout = self.config.register_broker_timeout_mills / 1000
        answer = await self._client.request(name_server, self.request(table), timeout=timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark, name_server, RequestCode.REGISTER_BROKER)
        if answer.body:
            self._topics.apply_order_topics(decode_kv_table(answer.body).table)
        if self._on_master is not None:
            self._on_master(answer.read(RegisterBrokerResponse))


def _period(config: BrokerConfig) -> float:
    return min(max(config.register_name_server_period, 10_000), 60_000) / 1000


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Server:
    """What one name server knows and is yet to be told."""

    def __init__(self, registration: Registration, name_server: str) -> None:
        self._registration = registration
        self._name_server = name_server
        self._wholly = False
        self._changed: dict[str, TopicConfig] = {}
        self._failures = 0
        self._retry: TimerHandle | None = None
        self._stopped = False
        self.is_registered = False
        self.task: asyncio.Task[None] | None = None

    def announce(self, topics: Sequence[TopicConfig] | None) -> None:
        if self._stopped:
            return
        if topics is None:
            self._wholly = True
        else:
            self._changed.update((topic.topic_name, topic) for topic in topics)
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        try:
            while self._wholly or self._changed:
                # A first word that names one topic only is refused: whoever does not know us is told everything.
                wholly = self._wholly or not self.is_registered
                changed = list(self._changed.values())
                self._wholly = False
                self._changed = {}
                try:
                    await self._registration.tell(self._name_server, None if wholly else changed)
                except FuseeError as error:
                    self._failed(error)
                    return
                if not self.is_registered:
                    _log.info("registered with name server %s", self._name_server)
                self.is_registered = True
                self._failures = 0
        finally:
            self.task = None

    def _failed(self, error: FuseeError) -> None:
        self.is_registered = False
        self._wholly = True
        if self._failures == 0 or isinstance(error, RemoteError):
            _log.warning("registration with name server %s failed: %s", self._name_server, error)
        delay = min(_RETRY_DELAY * 2**self._failures, _RETRY_DELAY_MAX)
        self._failures = min(self._failures + 1, 10)
        # One at a time: each period and each changed topic may fail as well.
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._registration._timers.call_later(delay, self.announce, None)


def _with_perm(topic: TopicConfig, perm: int) -> TopicConfig:
    return TopicConfig(
        attributes=topic.attributes,
        order=topic.order,
        perm=perm,
        read_queue_nums=topic.read_queue_nums,
        topic_filter_type=topic.topic_filter_type,
        topic_name=topic.topic_name,
        topic_sys_flag=topic.topic_sys_flag,
        write_queue_nums=topic.write_queue_nums,
    )
