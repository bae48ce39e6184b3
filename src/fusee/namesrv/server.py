"""The name server as a program: tables, handlers, door and expiry put together (Java: NamesrvController)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fusee.clock import Clock, SystemClock, Timers
from fusee.errors import TransportError
from fusee.namesrv.config import NameServerConfig
from fusee.namesrv.handlers import Handlers
from fusee.namesrv.kv_table import KvTable
from fusee.namesrv.route_table import RouteTable
from fusee.namesrv.saved_file import SavedFile
from fusee.service import Periodic
from fusee.transport.client import Client
from fusee.transport.router import Router
from fusee.transport.server import Server, ServerSettings
from fusee.transport.tcp import TcpNetwork, server_tls
from fusee.wire.codes import RequestCode

if TYPE_CHECKING:
    from fusee.transport.interfaces import Network
    from fusee.transport.link import Link
    from fusee.wire.command import Command

_log = logging.getLogger(__name__)

# Every handler answers at once, so these count only what is being answered; they are the reference's queue sizes.
_ROUTE_LANE_LIMIT: Final = 50_000
_DEFAULT_LANE_LIMIT: Final = 10_000
_EXPIRY_FIRST_AFTER: Final = 5.0
_NOTIFY_TIMEOUT: Final = 0.3


class NameServer:
    """One name server. Knows of no other one; what it knows of brokers they tell it again within seconds."""

    def __init__(
        self,
        config: NameServerConfig | None = None,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        timers: Timers | None = None,
    ) -> None:
        self.config = config or NameServerConfig()
        self._network = network
        self._clock = clock or SystemClock()
        self._timers = timers
        self.route_table = RouteTable(limits=self.config.route_limits)
        self.kv_table = KvTable(
            limits=self.config.kv_limits,
            file=SavedFile(self.config.kv_config_path) if self.config.kv_config_path else None,
        )
        self._server: Server | None = None
        self._client: Client | None = None
        self._expiry: Periodic | None = None
        self._notifications: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """`host:port` of the open door."""
        if self._server is None:
            raise RuntimeError("the name server has not been started")
        return self._server.address

    async def start(self) -> str:
        """Load the saved tables, open the door; its address. Raises ConfigError or ConnectError."""
        config = self.config
        timers = self._timers or asyncio.get_running_loop()
        network = self._network or TcpNetwork(
            server_tls=server_tls(
                config.tls_server_mode,
                config.tls_server_cert_path,
                config.tls_server_key_path,
                first_byte_timeout=config.server_channel_max_idle_time_seconds,
            )
        )
        self.kv_table.load()
        self._client = Client(network=network, clock=self._clock, timers=timers)
        self.handlers = Handlers(
            route_table=self.route_table,
            kv_table=self.kv_table,
            config=config,
            clock=self._clock,
            send_oneway=self._send_oneway,
            on_config=self._config_changed,
        )
        router = Router()
        router.recall = self.handlers.recall.answers
        routes = self.handlers.routes()
        routes_lane = router.lane("route", _ROUTE_LANE_LIMIT)
        default_lane = router.lane("default", _DEFAULT_LANE_LIMIT)
        for code, handler in routes.items():
            router.add(code, handler, routes_lane if code is RequestCode.GET_ROUTEINFO_BY_TOPIC else default_lane)
        self._server = Server(
            network=network,
            router=router,
            clock=self._clock,
            timers=timers,
            settings=ServerSettings(
                connections_max=config.connections_max,
                idle_timeout=config.server_channel_max_idle_time_seconds,
                drain_timeout=config.shutdown_wait_time_seconds,
            ),
            listeners=[self],
        )
        self._expiry = Periodic(
            timers,
            config.scan_not_active_broker_interval / 1000,
            self.handlers.expire_brokers,
            first_after=_EXPIRY_FIRST_AFTER,
        )
        address = await self._server.start(config.bind_address, config.listen_port)
        self._expiry.start()
        return address

    async def stop(self) -> None:
        """Close the door and every connection; what is under way is finished first."""
        if self._expiry is not None:
            self._expiry.stop()
        if self._server is not None:
            await self._server.stop()
        for task in self._notifications:
            task.cancel()
        await asyncio.gather(*self._notifications, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def _config_changed(self, config: NameServerConfig) -> None:
        self.config = config
        if self._expiry is not None:
            self._expiry.interval = config.scan_not_active_broker_interval / 1000

    def _send_oneway(self, address: str, command: Command) -> None:
        client = self._client
        if client is None:
            return

        async def send() -> None:
            try:
                await client.oneway(address, command, timeout=_NOTIFY_TIMEOUT)
            except TransportError as error:
                _log.warning("broker %s was not told of a change: %s", address, error)

        task = asyncio.get_running_loop().create_task(send())
        self._notifications.add(task)
        task.add_done_callback(self._notifications.discard)

    # LinkListener: a broker is gone with its connection, however it ended

    def on_connect(self, link: Link) -> None:
        """Nothing: a connection means something when a broker registers on it."""

    def on_close(self, link: Link) -> None:
        self.handlers.link_lost(link)

    def on_exception(self, link: Link, error: Exception) -> None:
        self.handlers.link_lost(link)

    def on_idle(self, link: Link) -> None:
        self.handlers.link_lost(link)
