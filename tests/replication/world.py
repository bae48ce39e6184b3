"""A group of brokers in memory: a master and its slaves on a network, disks and a clock under the test's control.

The brokers are real ones. `kill` ends a process and leaves what its disk shows; `crash` ends the machine and leaves
what its disk kept; `start` starts the next process on that. `log_of` gives the bytes of a broker's log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fusee.broker import Broker, BrokerConfig
from fusee.namesrv import NameServer, NameServerConfig
from fusee.replication import Replica
from fusee.store.simulated_disk import SimulatedDisk
from fusee.transport.client import Client, ClientSettings
from fusee.wire.codes import LanguageCode, RequestCode
from fusee.wire.command import Command
from fusee.wire.fields import Header, write_fields
from tests.broker.log_world import small_store
from tests.broker.world import CLUSTER, NAME, ROOT, MemoryWorld, pull_header, send_header
from tests.client.world import Life

MASTER = "master"
SLAVE = "slave"
HOSTS = {MASTER: "10.0.0.1", SLAVE: "10.0.0.2", "other": "10.0.0.3"}
IDS = {MASTER: 0, SLAVE: 1, "other": 2}
HA_ADDRESS = "10.0.0.1:10912"
NAME_SERVER = "10.0.1.1"

T = TypeVar("T")


class GroupWorld(MemoryWorld):
    """A master and up to two slaves; each has a disk, and a process when it is started."""

    def __init__(self, *, store: dict[str, Any] | None = None, **settings: Any) -> None:
        super().__init__()
        self.store_settings = store or {}
        self.settings = settings
        self.disks = {name: SimulatedDisk(self.clock) for name in HOSTS}
        self.brokers: dict[str, Broker] = {}
        self.lives: dict[str, Life] = {}
        self._name_server: NameServer | None = None
        self._clients: list[Client] = []
        self._tasks: set[asyncio.Task[Command]] = set()

    # Life

    async def start(self, name: str = MASTER, *, store: dict[str, Any] | None = None, **changes: Any) -> Broker:
        """The next process of this broker."""
        host = HOSTS[name]
        role = {"broker_role": "SLAVE", "broker_id": IDS[name], "ha_master_address": HA_ADDRESS}
        values: dict[str, Any] = {
            "broker_name": NAME,
            "broker_cluster_name": CLUSTER,
            "bind_address": host,
            "listen_port": 10911,
            **({} if name == MASTER else role),
            **self.settings,
            **changes,
        }
        if name != MASTER:
            values |= {key: role[key] for key in ("broker_role", "broker_id")}
        self.disks[name].clock = self.clock
        life = self.lives[name] = Life(self, host)
        broker = Broker(
            BrokerConfig(**values),
            small_store(**{**self.store_settings, **(store or {})}),
            store_path=ROOT,
            network=life,
            files=self.disks[name],
            clock=self.clock,
            timers=life,
            seed=7,
        )
        self.brokers[name] = broker
        await self.within(60.0, asyncio.ensure_future(broker.start()))
        await self.settle()
        return broker

    async def start_name_server(self) -> str:
        """A name server; its address."""
        config = NameServerConfig(bind_address=NAME_SERVER, listen_port=9876, kv_config_path="")
        self._name_server = NameServer(
            config, network=self.network.host(NAME_SERVER), clock=self.clock, timers=self.clock
        )
        await self.within(5.0, asyncio.ensure_future(self._name_server.start()))
        return f"{NAME_SERVER}:9876"

    def end(self, name: str) -> Broker:
        """End the process without warning and leave the disk as it is."""
        broker = self.brokers.pop(name)
        if broker.replica is not None:
            broker.replica.stop()
        self.lives.pop(name).end()
        return broker

    def kill(self, name: str) -> None:
        """End the process; the next one finds everything it wrote."""
        self.end(name)
        self.disks[name] = self.disks[name].kill()

    def crash(self, name: str, seed: int = 0) -> None:
        """End the machine; the next one finds what was synced, and perhaps more."""
        self.end(name)
        self.disks[name] = self.disks[name].crash(seed)

    def lose_disk(self, name: str) -> None:
        """End the process, and give the next one an empty disk."""
        self.end(name)
        self.disks[name] = SimulatedDisk(self.clock)

    async def stop(self, name: str) -> None:
        broker = self.brokers.pop(name)
        await self.within(60.0, asyncio.ensure_future(broker.stop()))

    async def close(self) -> None:
        for client in self._clients:
            await self.within(5.0, asyncio.ensure_future(client.close()))
        for name in list(self.brokers):
            await self.stop(name)
        if self._name_server is not None:
            await self.within(5.0, asyncio.ensure_future(self._name_server.stop()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Programs elsewhere

    def client(self) -> Client:
        client = Client(
            network=self.network.host(f"10.0.9.{len(self._clients) + 1}"),
            clock=self.clock,
            timers=self.clock,
            settings=ClientSettings(idle_timeout=1e6, frame_timeout=1e6, request_timeout=1e5),
        )
        self._clients.append(client)
        return client

    def begin(self, name: str, code: RequestCode, header: Header | None, body: bytes = b"") -> asyncio.Task[Command]:
        """Ask a broker, without waiting for the answer."""
        if not self._clients:
            self.client()
        command = Command(
            code,
            language=LanguageCode.JAVA,
            version=513,
            ext_fields=None if header is None else write_fields(header),
            body=body,
        )
        task = asyncio.ensure_future(self._clients[0].request(f"{HOSTS[name]}:10911", command))
        self._tasks.add(task)
        return task

    def begin_send(self, body: bytes = b"hello", *, name: str = MASTER, **header: Any) -> asyncio.Task[Command]:
        return self.begin(name, RequestCode.SEND_MESSAGE_V2, send_header(**header), body)

    async def send(self, body: bytes = b"hello", *, seconds: float = 0.0, name: str = MASTER, **header: Any) -> int:
        """Send to a broker; the code of its answer."""
        answer = await self.within(seconds, self.begin_send(body, name=name, **header))
        return answer.code

    async def fill(self, count: int, size: int = 300, **header: Any) -> None:
        """Send many messages to the master."""
        for number in range(count):
            assert await self.send(b"%06d" % number * (size // 6), **header) == 0

    async def pull(self, name: str, **header: Any) -> Command:
        return await self.within(0.0, self.begin(name, RequestCode.PULL_MESSAGE, pull_header(**header)))

    # What is there

    @property
    def master(self) -> Broker:
        return self.brokers[MASTER]

    @property
    def slave(self) -> Broker:
        return self.brokers[SLAVE]

    @property
    def replica(self) -> Replica:
        replica = self.slave.replica
        assert replica is not None
        return replica

    def follows(self) -> bool:
        """Whether the slave follows the master."""
        return self.replica.is_connected

    async def until(self, true: Callable[[], bool], seconds: float = 30.0, what: str = "") -> None:
        """Let time pass until this is so."""
        end = self.clock.monotonic() + seconds
        await self.settle()
        while not true():
            assert self.clock.monotonic() < end, f"not so after {seconds} s: {what or true}"
            due = self.clock.next_due
            await self.advance((end if due is None else min(due, end)) - self.clock.monotonic())

    async def in_step(self, name: str = SLAVE, seconds: float = 30.0) -> None:
        """Let time pass until this slave has the master's log."""
        slave = self.brokers[name]

        def is_in_step() -> bool:
            return (
                slave.replica is not None
                and slave.replica.is_connected
                and log_of(slave) == log_of(self.master, slave.store.log.min_offset)
            )

        await self.until(is_in_step, seconds, "the slave has the master's log")


def log_of(broker: Broker, start: int | None = None) -> bytes:
    """The bytes of a broker's log."""
    log, pieces = broker.store.log, []
    at = log.min_offset if start is None else start
    while at < log.written_offset and (piece := log.chunk(at, 1 << 20)):
        pieces.append(bytes(piece))
        at += len(piece)
    return b"".join(pieces)


def play(scene: Callable[[GroupWorld], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a scene in a world of its own."""

    async def run() -> None:
        world = GroupWorld(**settings)
        try:
            await scene(world)
        finally:
            await world.close()

    asyncio.run(run())
