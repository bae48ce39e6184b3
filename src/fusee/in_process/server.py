"""A name server and a broker in this process, on free ports of 127.0.0.1, in a store that goes with them.

    async with fusee.embedded(topics=["orders"]) as server:
        async with server.connect() as mq:
            await mq.send("orders", b"...")

They are the real ones, over real TCP: any client can use `server.name_server`, in this process or another. Starting
takes a few milliseconds. Stopping leaves no task, socket or file behind.

With `clock="manual"` time stands still until `await server.advance(seconds)`. Name server, broker and the connections
made by `server.connect` share that clock, so ten minutes of delay take as long as the messages that move in them:

    async with fusee.embedded(clock="manual") as server, server.connect() as mq:
        await mq.send("reminders", b"...", delay_level=14)
        await server.advance(600)

The clock starts at the present time, or at `start_at`. Clients that were made otherwise live in real time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final, Literal

from fusee.broker import Broker, BrokerConfig
from fusee.client.consumer.runners import ThreadRunner
from fusee.clock import Clock, SystemClock
from fusee.errors import ClientStateError, ConfigError
from fusee.in_process.shared_time import SharedTime
from fusee.in_process.stillness import watch
from fusee.in_process.traffic import Traffic
from fusee.in_process.volatile_files import VolatileFileSystem
from fusee.namesrv import NameServer, NameServerConfig
from fusee.store.config import StoreConfig
from fusee.store.filesystem import OsFileSystem
from fusee.transport.client import Client
from fusee.transport.link import parse_address
from fusee.transport.tcp import TcpNetwork
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.lenient_json import dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from os import PathLike
    from types import TracebackType

    from fusee.connection import Connection
    from fusee.in_process.stillness import Stillness

_HOST: Final = "127.0.0.1"
_QUEUES: Final = 4
_MIB: Final = 1024 * 1024
# Of a manual clock: what stopping may take, before it is waited for in real time.
_STOP_SECONDS: Final = 60.0

_BROKER_FIELDS: Final = {field.name for field in dataclasses.fields(BrokerConfig)}
_STORE_FIELDS: Final = {field.name for field in dataclasses.fields(StoreConfig)}
_FIXED: Final = {"bind_address", "namesrv_addr", "broker_role", "broker_id"}

_BROKER_DEFAULTS: Final[dict[str, Any]] = {
    "broker_name": "embedded",
    "fast_listen_port": 0,
    "ha_listen_port": 0,
    "enable_property_filter": True,
    "trace_topic_enable": True,
}
# Small files, and no care for how full the disk is beyond what these need.
_TEMPORARY_STORE: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": 64 * _MIB,
    "mapped_file_size_consume_queue": 20 * 10_000,
    "max_hash_slot_num": 20_000,
    "max_index_num": 80_000,
    "transaction_segment_entries": 8_192,
    "disk_free_bytes_min": 16 * _MIB,
    "disk_free_bytes_enough": 16 * _MIB,
}
# Files have the machine's time, which is not the clock's: nothing may seem to have expired.
_HOURS_OF_A_CENTURY: Final = 24 * 365 * 100


class EmbeddedServer:
    """A name server and a broker on the running event loop. Made by `embedded`; an async context manager."""

    def __init__(
        self,
        *,
        topics: Iterable[str | TopicConfig] | Mapping[str, int] = (),
        clock: Literal["system", "manual"] = "system",
        store: str | PathLike[str] | None = None,
        start_at: datetime | None = None,
        **options: Any,
    ) -> None:
        if clock not in ("system", "manual"):
            raise ConfigError(f"clock={clock!r}: write 'system' or 'manual'")
        if start_at is not None and clock == "system":
            raise ConfigError("start_at is for clock='manual': the system's clock cannot be set")
        if isinstance(topics, str):
            raise ConfigError(f"topics={topics!r}: write a list of names, or a mapping of names to numbers of queues")
        _check_options(options, clock)
        self._is_manual = clock == "manual"
        self._start_at = start_at
        self._topics = _topic_configs(topics)
        self._options = options
        self._given_store = None if store is None else Path(store)
        self._stack: AsyncExitStack | None = None
        self._time: SharedTime | None = None
        self._stillness: Stillness | None = None
        self._runners: list[ThreadRunner] = []
        self._runners_known_at = -1
        self._traffic: Traffic | None = None
        self._name_server: NameServer | None = None
        self._connections: list[Connection] = []
        self._broker: Broker | None = None
        self._port = int(options.get("listen_port", 0))
        self.store_path = self._given_store or Path()
        """Where the messages are, while it runs."""

    # Life

    async def __aenter__(self) -> EmbeddedServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> str:
        """Open the store and the doors, make the topics; the name server's address.

        Raises ConfigError for options that do not go together, StoreError when the store cannot be opened.
        """
        if self._stack is not None:
            raise ClientStateError("this embedded server is running already; make another one")
        async with AsyncExitStack() as stack:
            stack.callback(self._forget)
            self._open_store(stack)
            if self._is_manual:
                self._stop_the_clock(stack)
            time = self._time
            self._name_server = name_server = NameServer(
                NameServerConfig(bind_address=_HOST, listen_port=0, kv_config_path=""),
                network=self._traffic,
                clock=time,
                timers=time,
            )
            stack.push_async_callback(self._finish, name_server.stop)
            await name_server.start()
            stack.push_async_callback(self.stop_broker)
            await self.start_broker()
            stack.push_async_callback(self._close_connections)
            if self._topics:
                await self.create_topics(self._topics)
            self._stack = stack.pop_all()
        return self.name_server

    async def stop(self) -> None:
        """Close the connections made here, stop broker and name server, remove a temporary store."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    async def stop_broker(self) -> None:
        """Stop the broker alone: what happens to clients whose broker goes away. The store stays."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await self._finish(broker.stop)

    async def start_broker(self) -> None:
        """Start the broker again after `stop_broker`, on the same port and store."""
        if self._broker is not None:
            raise ClientStateError("the broker of this embedded server is running; stop it with stop_broker() first")
        broker = Broker(
            self._broker_config(),
            self._store_config(),
            store_path=self.store_path,
            network=self._traffic,
            files=OsFileSystem() if self._given_store is not None else VolatileFileSystem(),
            clock=self._time,
            # With timers it uses no threads: fewer of them in a test, and none that a program's end takes away.
            timers=self._time or asyncio.get_running_loop(),
        )
        _, self._port = parse_address(await broker.start())
        self._broker = broker

    def _forget(self) -> None:
        self._time = self._traffic = self._stillness = self._name_server = None
        self._runners = []

    def _open_store(self, stack: AsyncExitStack) -> None:
        if self._given_store is None:
            # Not a TemporaryDirectory: at the end of the program that would remove itself under a running broker.
            self.store_path = Path(mkdtemp(prefix="fusee-"))
            stack.callback(shutil.rmtree, self.store_path, ignore_errors=True)

    def _stop_the_clock(self, stack: AsyncExitStack) -> None:
        loop = asyncio.get_running_loop()
        self._stillness = stillness = watch(loop)
        stillness.at_work.append(self._has_listeners_at_work)
        stack.callback(stillness.at_work.remove, self._has_listeners_at_work)
        stack.callback(stillness.end)
        self._traffic = Traffic(TcpNetwork())
        start = self._start_at
        start_ms = SystemClock().time_ms() if start is None else round(start.timestamp() * 1000)
        self._time = SharedTime(loop, self._traffic, stillness, start_ms=start_ms)

    def _has_listeners_at_work(self) -> bool:
        """Whether a plain function is being called with messages, in threads that a consumer has made."""
        stillness = self._stillness
        if stillness is not None and stillness.calls != self._runners_known_at:
            # No consumer comes or goes without the loop; this is asked at every timer.
            self._runners_known_at = stillness.calls
            self._runners = [
                runner
                for connection in self._connections
                for consumer in connection._consumers
                if isinstance(runner := getattr(getattr(consumer, "_consumption", None), "_runner", None), ThreadRunner)
            ]
        return any(runner._outstanding > len(runner._settling) for runner in self._runners)

    async def _close_connections(self) -> None:
        while self._connections:
            await self._finish(self._connections.pop().close)

    async def _finish(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do this, while the time passes that it takes."""
        task: asyncio.Future[object] = asyncio.ensure_future(work())
        try:
            if self._time is not None:
                await self._time.finish(task, _STOP_SECONDS)
        finally:
            await task

    def _broker_config(self) -> BrokerConfig:
        given = {name: value for name, value in self._options.items() if name in _BROKER_FIELDS}
        return BrokerConfig(
            **{
                **_BROKER_DEFAULTS,
                **given,
                "bind_address": _HOST,
                "listen_port": self._port,
                "namesrv_addr": self.name_server,
            }
        )

    def _store_config(self) -> StoreConfig:
        values: dict[str, Any] = {} if self._given_store is not None else dict(_TEMPORARY_STORE)
        if self._is_manual:
            values["file_reserved_time"] = _HOURS_OF_A_CENTURY
        values.update((name, value) for name, value in self._options.items() if name in _STORE_FIELDS)
        return StoreConfig(**values)

    # Use

    @property
    def name_server(self) -> str:
        """`host:port` of the name server, for any client. Raises ClientStateError before the start."""
        if self._name_server is None:
            raise ClientStateError("this embedded server is not running; use it inside `async with fusee.embedded()`")
        return self._name_server.address

    @property
    def broker(self) -> Broker:
        """The broker. Raises ClientStateError while it does not run."""
        if self._broker is None:
            raise ClientStateError("the broker of this embedded server is not running")
        return self._broker

    @property
    def broker_address(self) -> str:
        """`host:port` of the broker."""
        return self.broker.address

    @property
    def clock(self) -> Clock:
        """The time of servers and clients."""
        return self._time or SystemClock()

    @property
    def now(self) -> datetime:
        """The time of servers and clients, in UTC."""
        return datetime.fromtimestamp(self.clock.time_ms() / 1000, UTC)

    def connect(self, **options: Any) -> Connection:
        """A connection to this server, which shares its clock; options as of `fusee.connect`.

        It is closed with the server at the latest.
        """
        from fusee.connection import connect  # late: servers alone need no clients

        time = self._time
        if time is None:
            connection = connect(self.name_server, **options)
        else:
            connection = connect(self.name_server, network=self._traffic, clock=time, timers=time, **options)
        self._connections.append(connection)
        return connection

    async def create_topics(self, topics: Iterable[str | TopicConfig] | Mapping[str, int]) -> None:
        """Make topics, or change them: names, TopicConfigs, or a mapping of names to numbers of queues."""
        body = {"topicConfigList": _topic_configs(topics)}
        time = self._time
        client = Client(
            network=self._traffic or TcpNetwork(),
            clock=self.clock,
            timers=time or asyncio.get_running_loop(),
        )
        request = Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=dumps_fastjson(body))
        try:
            answer = await client.request(self.broker_address, request)
        finally:
            await client.close()
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark, self.broker_address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)

    async def advance(self, seconds: float | timedelta) -> None:
        """Let time pass: every timer fires in its turn, and what it sets off comes to rest before the next.

        Other tasks of this loop take part: a consumer's listener that is called on the way has returned, or waits for
        something, before time goes on. Raises ClientStateError with the system's clock, NotSettledError when
        something runs without end.
        """
        time = self._manual_time()
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if seconds < 0:
            raise ConfigError(f"advance({seconds}): time goes forward only")
        await time.advance(seconds)

    async def settle(self) -> None:
        """Let everything happen that needs no time. Raises as `advance`."""
        await self._manual_time().settle()

    def _manual_time(self) -> SharedTime:
        if self._time is None:
            raise ClientStateError("time passes by itself here; use fusee.embedded(clock='manual') to advance it")
        return self._time


def embedded(
    *,
    topics: Iterable[str | TopicConfig] | Mapping[str, int] = (),
    clock: Literal["system", "manual"] = "system",
    store: str | PathLike[str] | None = None,
    start_at: datetime | None = None,
    **options: Any,
) -> EmbeddedServer:
    """A name server and a broker in this process, for `async with`.

    `topics` are made at the start: names, or a mapping of names to numbers of queues (4 otherwise). `clock="manual"`
    lets time stand still until `advance`; it begins at `start_at`, or now. `store` is a folder to keep the messages
    in; without it they are in a temporary one and gone at the end. Other keywords are settings of broker and store by
    RocketMQ's names in snake_case, e.g. `message_delay_level="1s 5s"`, `auto_create_topic_enable=False`.

    Raises ConfigError for a setting that is unknown or wrong.
    """
    return EmbeddedServer(topics=topics, clock=clock, store=store, start_at=start_at, **options)


def _topic_configs(topics: Iterable[str | TopicConfig] | Mapping[str, int]) -> list[TopicConfig]:
    if isinstance(topics, Mapping):
        return [_topic(name, queues) for name, queues in topics.items()]
    return [topic if isinstance(topic, TopicConfig) else _topic(topic, _QUEUES) for topic in topics]


def _topic(name: str, queues: int) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


def _check_options(options: Mapping[str, object], clock: str) -> None:
    known = _BROKER_FIELDS | _STORE_FIELDS
    for name in options:
        if name in _FIXED:
            raise ConfigError(f"{name} is not free on an embedded server: it is a master on {_HOST} with a name server")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; is it {near[0]}?" if near else ""
            raise ConfigError(f"{name} is no setting of a broker or its store{hint}")
    if clock == "manual" and options.get("tls_server_cert_path"):
        raise ConfigError("tls_server_cert_path: TLS needs clock='system'")
