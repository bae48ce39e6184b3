"""The faults: what each does to a cluster, for how long, and how it is mended.

Each is a coroutine that begins, lasts and mends; it tells the history what it touches. Whom it hits and how long it
lasts is drawn from the seed; what happens in between depends on the machine, so a seed repeats the faults and not the
history.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.faults.history import EVERYTHING, Event, History

if TYPE_CHECKING:
    from fusee.cluster import LocalCluster
    from tests.faults.machine import Machine
    from tests.faults.namespace import Namespace
    from tests.faults.wires import Wire


@dataclass
class Stage:
    """What faults play on."""

    cluster: LocalCluster
    history: History
    machine: Machine
    namespace: Namespace
    client_wires: dict[str, Wire]
    """From clients to the node of this name."""
    replication_wires: dict[str, Wire]
    """From the slaves of this group to their master."""
    random: random.Random
    lasts_s: tuple[float, float] = (1.0, 3.0)

    @property
    def masters(self) -> list[str]:
        return [node.name for node in self.cluster.nodes.values() if node.is_master]

    @property
    def slaves(self) -> list[str]:
        return [node.name for node in self.cluster.nodes.values() if node.is_broker and not node.is_master]

    @property
    def name_servers(self) -> list[str]:
        return [node.name for node in self.cluster.nodes.values() if not node.is_broker]

    def group_of(self, name: str) -> str:
        return self.cluster.node(name).group or "name servers"

    def pid(self, name: str) -> int:
        process = self.cluster.node(name).process
        assert process is not None
        return process.pid

    async def last(self) -> None:
        """Let it be so for a while."""
        await asyncio.sleep(self.random.uniform(*self.lasts_s))

    @asynccontextmanager
    async def event(
        self, what: str, *touches: str, forgets: bool = False, loses_disk: bool = False
    ) -> AsyncIterator[Event]:
        """From the beginning of a fault to its end."""
        event = self.history.began(what, touches, forgets=forgets, loses_disk=loses_disk)
        yield event
        self.history.ended(event)

    async def kill(self, name: str) -> None:
        await asyncio.to_thread(self.cluster.kill, name)

    async def start(self, name: str) -> None:
        await asyncio.to_thread(self.cluster.start_node, name)

    async def settle(self) -> None:
        """Wait until all nodes have found each other."""
        await asyncio.to_thread(self.cluster.wait_ready, 60.0)


async def _kill(stage: Stage, name: str) -> None:
    async with stage.event(f"kill -9 {name}", stage.group_of(name), forgets=True):
        await stage.kill(name)
        await stage.last()
        await stage.start(name)
        await stage.settle()


async def _pause(stage: Stage, name: str) -> None:
    async with stage.event(f"pause {name}", stage.group_of(name)):
        await asyncio.to_thread(stage.cluster.pause, name)
        await stage.last()
        await asyncio.to_thread(stage.cluster.resume, name)
        await stage.settle()


async def kill_master(stage: Stage) -> None:
    await _kill(stage, stage.random.choice(stage.masters))


async def kill_slave(stage: Stage) -> None:
    await _kill(stage, stage.random.choice(stage.slaves))


async def kill_name_server(stage: Stage) -> None:
    await _kill(stage, stage.random.choice(stage.name_servers))


async def pause_master(stage: Stage) -> None:
    await _pause(stage, stage.random.choice(stage.masters))


async def pause_slave(stage: Stage) -> None:
    await _pause(stage, stage.random.choice(stage.slaves))


async def pause_name_server(stage: Stage) -> None:
    await _pause(stage, stage.random.choice(stage.name_servers))


async def part_clients(stage: Stage) -> None:
    """Clients and one master are parted: what is sent arrives late."""
    name = stage.random.choice(stage.masters)
    async with stage.event(f"partition: clients | {name}", stage.group_of(name)):
        stage.client_wires[name].hold()
        await stage.last()
        stage.client_wires[name].mend()


async def cut_clients(stage: Stage) -> None:
    """Clients and one master are parted: connections break, and what was under way is gone."""
    name = stage.random.choice(stage.masters)
    async with stage.event(f"connections cut: clients | {name}", stage.group_of(name)):
        await stage.client_wires[name].cut()
        await stage.last()
        stage.client_wires[name].mend()


async def part_slave(stage: Stage) -> None:
    """A slave hears no more from its master, nor the master from it."""
    group = stage.random.choice(sorted(stage.replication_wires))
    async with stage.event(f"partition: master | slave of {group}", group):
        stage.replication_wires[group].hold()
        await stage.last()
        stage.replication_wires[group].mend()
        await stage.settle()


async def cut_slave(stage: Stage) -> None:
    """The connection between a slave and its master breaks and cannot be made."""
    group = stage.random.choice(sorted(stage.replication_wires))
    async with stage.event(f"connections cut: master | slave of {group}", group):
        await stage.replication_wires[group].cut()
        await stage.last()
        stage.replication_wires[group].mend()
        await stage.settle()


async def _isolate(stage: Stage, name: str, *ports: int) -> None:
    """Nobody reaches a node; what it begins itself goes on."""
    async with stage.event(f"partition: everybody | {name}", stage.group_of(name)):
        await asyncio.to_thread(stage.namespace.part, (*stage.cluster.node(name).ports, *ports))
        await stage.last()
        await asyncio.to_thread(stage.namespace.mend)
        await stage.settle()


async def isolate_master(stage: Stage) -> None:
    await _isolate(stage, stage.random.choice(stage.masters))


async def isolate_slave(stage: Stage) -> None:
    """Its master's port for the log too, which is where it gets everything from."""
    name = stage.random.choice(stage.slaves)
    await _isolate(stage, name, stage.cluster.node(stage.group_of(name)).ha_port)


async def isolate_name_server(stage: Stage) -> None:
    await _isolate(stage, stage.random.choice(stage.name_servers))


async def slow_link(stage: Stage) -> None:
    """All that nodes and clients say to each other shares a thin line."""
    megabits = stage.random.choice((2, 8, 30))
    async with stage.event(f"slow network: {megabits} Mbit/s for all", EVERYTHING):
        await asyncio.to_thread(stage.namespace.slow, megabits)
        await stage.last()
        await asyncio.to_thread(stage.namespace.hurry)
        await stage.settle()


async def slow_network(stage: Stage) -> None:
    """Everything on the wires of one group is late."""
    name = stage.random.choice(stage.masters)
    group = stage.group_of(name)
    delay_s = stage.random.choice((0.02, 0.1, 0.4))
    async with stage.event(f"slow network: {delay_s * 1000:.0f} ms to {name}", group):
        wires = (stage.client_wires[name], stage.replication_wires[group])
        for wire in wires:
            wire.delay_s = delay_s
        await stage.last()
        for wire in wires:
            wire.mend()


async def slow_disk(stage: Stage) -> None:
    """Each sync of one broker takes long."""
    name = stage.random.choice(stage.masters + stage.slaves)
    seconds = stage.random.choice((0.05, 0.3, 1.0))
    async with stage.event(f"slow disk: {seconds * 1000:.0f} ms per sync at {name}", stage.group_of(name)):
        stage.machine.set_sync_time(stage.pid(name), seconds)
        await stage.last()
        stage.machine.set_sync_time(stage.pid(name), 0)


async def clock_jump(stage: Stage) -> None:
    """The wall clock of one node is set wrong, and later right again."""
    name = stage.random.choice(stage.masters + stage.slaves + stage.name_servers)
    seconds = stage.random.choice((-600, -30, 30, 600))
    async with stage.event(f"clock of {name} jumps by {seconds:+d} s", stage.group_of(name)):
        stage.machine.set_clock(stage.pid(name), seconds)
        await stage.last()
        stage.machine.set_clock(stage.pid(name), 0)
        await stage.settle()


async def rolling_restart(stage: Stage) -> None:
    """Every broker of a group, or every name server, is stopped in order and started, one after the other."""
    group = stage.random.choice([*map(stage.group_of, stage.masters), "name servers"])
    names = [name for name in stage.cluster.nodes if stage.group_of(name) == group]
    stage.random.shuffle(names)
    async with stage.event(f"rolling restart of {', '.join(names)}", group):
        for name in names:
            await asyncio.to_thread(stage.cluster.restart, name, timeout=60.0)


async def lose_slave_disk(stage: Stage) -> None:
    """A slave dies, and comes back with an empty disk."""
    name = stage.random.choice(stage.slaves)
    async with stage.event(f"{name} loses its disk", stage.group_of(name)):
        await stage.kill(name)
        await asyncio.to_thread(stage.cluster.erase, name)
        await stage.last()
        await stage.start(name)
        await stage.settle()
        await asyncio.to_thread(stage.cluster.wait_level, 60.0)


async def lose_master_disk(stage: Stage) -> None:
    """A master dies with its disk; it comes back with a copy of what its slave has, as operators are told to do."""
    name = stage.random.choice(stage.masters)
    cluster, slave = stage.cluster, f"{name}-s1"
    async with stage.event(f"{name} loses its disk", stage.group_of(name), forgets=True, loses_disk=True):
        await stage.kill(name)
        await asyncio.to_thread(cluster.erase, name)
        await stage.last()
        await asyncio.to_thread(cluster.stop_node, slave)
        await asyncio.to_thread(_copy, cluster.store_path(slave), cluster.store_path(name))
        await stage.start(name)
        await stage.start(slave)
        await stage.settle()


def _copy(store: Path, to: Path) -> None:
    """The files of a broker are mostly holes, which cp leaves out."""
    subprocess.run(["cp", "--recursive", "--sparse=always", str(store), str(to)], check=True)
    for name in ("lock", "abort"):
        (to / name).unlink(missing_ok=True)


async def kill_all_name_servers(stage: Stage) -> None:
    """Nobody can be asked for the way; whoever knows it goes on."""
    async with stage.event("kill -9 of all name servers", "name servers"):
        for name in stage.name_servers:
            await stage.kill(name)
        await stage.last()
        for name in stage.name_servers:
            await stage.start(name)
        await stage.settle()


async def kill_all_brokers(stage: Stage) -> None:
    """The power fails everywhere but at the name servers."""
    names = stage.masters + stage.slaves
    async with stage.event("kill -9 of all brokers", EVERYTHING, forgets=True):
        for name in names:
            await stage.kill(name)
        await stage.last()
        for name in names:
            await stage.start(name)
        await stage.settle()


Fault = Callable[[Stage], Awaitable[None]]

FAULTS: Final[dict[str, Fault]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        kill_master, kill_slave, kill_name_server, pause_master, pause_slave, pause_name_server, part_clients,
        cut_clients, part_slave, cut_slave, slow_network, slow_disk, clock_jump, rolling_restart, lose_slave_disk,
        lose_master_disk, kill_all_name_servers, kill_all_brokers, isolate_master, isolate_slave, isolate_name_server,
        slow_link,
    )
}  # fmt: skip
NEED_MACHINE: Final = frozenset({"slow-disk", "clock-jump"})
NEED_REPLICATION: Final = frozenset({"lose-master-disk"})
NEED_NAMESPACE: Final = frozenset({"isolate-master", "isolate-slave", "isolate-name-server", "slow-link"})


def draw(
    count: int, seed: int, *, has_machine: bool = False, has_namespace: bool = False, is_replicated: bool = False
) -> list[str]:
    """The faults of a run: every kind that is possible as often as any other, in an order that the seed decides."""
    impossible: set[str] = set()
    for is_there, needed in (
        (has_machine, NEED_MACHINE),
        (has_namespace, NEED_NAMESPACE),
        (is_replicated, NEED_REPLICATION),
    ):
        impossible |= set() if is_there else needed
    names = [name for name in FAULTS if name not in impossible]
    chooser = random.Random(seed)
    drawn: list[str] = []
    while len(drawn) < count:
        chooser.shuffle(names)
        drawn += names
    return drawn[:count]
