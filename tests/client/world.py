"""A cluster in memory: name servers, brokers and clients, every byte and every second under the test's control.

Real name servers and brokers, on simulated disks; real sessions on hosts of their own. Time passes only in
`advance` and `within`. `kill` ends a broker without warning and `restart` starts the next process on what the disk
kept.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from fusee.broker import Broker, BrokerConfig
from fusee.client.config import ClientConfig
from fusee.client.session import Session
from fusee.clock import ManualClock, TimerHandle
from fusee.message.model import StoredMessage
from fusee.message.record import iterate_records
from fusee.namesrv import NameServer, NameServerConfig
from fusee.store.simulated_disk import SimulatedDisk
from fusee.transport.interfaces import Listening
from fusee.transport.link import Link
from fusee.wire.bodies.topic import TopicConfig
from tests.broker.log_world import small_store
from tests.broker.world import MemoryWorld

T = TypeVar("T")

CLUSTER = "C"
ROOT = Path("/store")


class Life:
    """The network and the timers of one process, which end with it."""

    def __init__(self, world: MemoryWorld, host: str) -> None:
        self._world = world
        self._network = world.network.host(host)
        self.host = host
        self.is_over = False

    async def listen(self, link_factory: Callable[[], asyncio.Protocol], host: str, port: int) -> Listening:
        return await self._network.listen(link_factory, host, port)

    async def connect(self, link_factory: Callable[[], Link], host: str, port: int) -> Link:
        if self.is_over:
            await asyncio.get_running_loop().create_future()
        return await self._network.connect(link_factory, host, port)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        def due() -> None:
            if not self.is_over:
                callback(*args)

        return self._world.clock.call_later(delay, due)

    def end(self) -> None:
        """The process is gone: nothing of it happens any more, and its peers see their connections break."""
        self._world.network.end_host(self.host)
        self.is_over = True


class ClusterWorld(MemoryWorld):
    """Name servers on 10.0.1.x:9876, brokers broker-a, broker-b, ... on 10.0.0.x:10911."""

    broker_type: type[Broker] = Broker

    def __init__(self, *, brokers: int = 1, name_servers: int = 1, seed: int = 1, **settings: Any) -> None:
        super().__init__(ManualClock())
        self.settings = settings
        self.random = random.Random(seed)
        self.name_server_hosts = [f"10.0.1.{number}" for number in range(1, name_servers + 1)]
        self.name_servers: dict[str, NameServer] = {}
        self.broker_hosts = {f"broker-{chr(97 + number)}": f"10.0.0.{number + 1}" for number in range(brokers)}
        self.disks = {name: SimulatedDisk(self.clock) for name in self.broker_hosts}
        self.brokers: dict[str, Broker] = {}
        self.sessions: list[Session] = []
        self._lives: dict[int, Life] = {}
        self._dead: list[object] = []
        self._hosts = 0

    @property
    def name_server_text(self) -> str:
        """What a client is given."""
        return ";".join(f"{host}:9876" for host in self.name_server_hosts)

    @property
    def broker(self) -> Broker:
        """The first broker."""
        return self.brokers["broker-a"]

    def address(self, name: str = "broker-a") -> str:
        """Where clients find this broker."""
        return f"{self.broker_hosts[name]}:10911"

    async def start(self) -> None:
        """Start every name server and every broker."""
        for host in self.name_server_hosts:
            await self.start_name_server(host)
        for name in self.broker_hosts:
            await self.start_broker(name)

    async def start_name_server(self, host: str) -> None:
        config = NameServerConfig(bind_address=host, listen_port=9876, kv_config_path="")
        server = NameServer(config, network=self.network.host(host), clock=self.clock, timers=self.clock)
        self.name_servers[host] = server
        await self.do(server.start())

    async def start_broker(self, name: str) -> Broker:
        """Start this broker on its disk."""
        host = self.broker_hosts[name]
        values: dict[str, Any] = {
            "broker_name": name,
            "broker_cluster_name": CLUSTER,
            "bind_address": host,
            "listen_port": 10911,
            "namesrv_addr": self.name_server_text,
            **self.settings,
        }
        life = Life(self, host)
        broker = self.broker_type(
            BrokerConfig(**values),
            small_store(),
            store_path=ROOT,
            network=life,
            files=self.disks[name],
            clock=self.clock,
            timers=life,
            seed=7,
        )
        self.brokers[name] = broker
        self._lives[id(broker)] = life
        await self.do(broker.start())
        await self.settle()
        return broker

    async def stop_broker(self, name: str) -> None:
        """An orderly stop."""
        await self.do(self.brokers.pop(name).stop())

    def kill(self, name: str) -> None:
        """End this broker's process without warning: its connections break, what its disk kept stays."""
        self._end(self.brokers.pop(name))
        self.disks[name] = self.disks[name].kill()

    def kill_session(self, session: Session) -> None:
        """End a client's process without warning. Sessions on the same host end with it."""
        self.sessions.remove(session)
        self._end(session)

    def _end(self, program: object) -> None:
        self._lives[id(program)].end()
        self._dead.append(program)  # kept, so that its id is not given to another

    def create_topic(
        self, topic: str, queues: int = 4, *, brokers: tuple[str, ...] | None = None, perm: int = 6
    ) -> None:
        """Make a topic on these brokers (all), as an operator would; `settle` before its route is asked for."""
        for name in brokers or tuple(self.brokers):
            self.brokers[name].topics.put(
                TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
            )

    def stored(self, topic: str, name: str = "broker-a") -> list[StoredMessage]:
        """Every message of a topic on a broker, queue by queue."""
        store = self.brokers[name].store
        config = self.brokers[name].topics.get(topic)
        found: list[StoredMessage] = []
        for queue_id in range(config.read_queue_nums if config else 0):
            at = store.min_offset(topic, queue_id)
            while at < store.max_offset(topic, queue_id):
                result = store.get(topic, queue_id, at, 32)
                for piece in result.slices:
                    found.extend(iterate_records(bytes(piece)))
                at = max(result.next_offset, at + 1)
        return found

    # Clients

    async def session(self, host: str = "", **options: Any) -> Session:
        """A client on a host of its own, started."""
        session = self.new_session(host, **options)
        await self.do(session.start())
        return session

    def new_session(self, host: str = "", **options: Any) -> Session:
        """The same, not started."""
        self._hosts += 1
        host = host or f"10.0.9.{self._hosts}"
        config = ClientConfig(**{"name_servers": self.name_server_text, "client_ip": host, **options})
        life = Life(self, host)
        session = Session(
            config,
            network=life,
            clock=self.clock,
            timers=life,
            chooser=random.Random(self.random.getrandbits(32)),
        )
        self.sessions.append(session)
        self._lives[id(session)] = life
        return session

    async def do(self, work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
        """The outcome of this work, which may take so much time."""
        return await self.within(seconds, asyncio.ensure_future(work))

    async def close(self) -> None:
        """Close the clients, then the servers."""
        for session in self.sessions:
            await self.do(session.close())
        for name in list(self.brokers):
            await self.stop_broker(name)
        for server in self.name_servers.values():
            await self.do(server.stop())


def play(scene: Callable[[ClusterWorld], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a scene in a cluster of its own, started before and closed after."""

    async def run() -> None:
        world = ClusterWorld(**settings)
        await world.start()
        try:
            await scene(world)
        finally:
            await world.close()

    asyncio.run(run())
