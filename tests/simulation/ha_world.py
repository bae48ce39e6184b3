"""Broker groups of a master and slaves, name servers and clients in one process, and everything that befalls them.

Everything is real but the three seams: the network is in memory, disks are simulated, time is a manual clock. One seed
decides what the groups promise, what happens and when.

A node is a machine of a group: a host, a disk, and a process while it is up. A master that ends comes back as one, and
is replaced only by `promote`, as an operator would: the slave with the longest log becomes the master, and the old one
comes back as a slave, with what it had or with an empty disk. That keeps what SYNC_MASTER promised as long as the other
slaves have lost nothing since the group was whole (all slaves level), so it is done only then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from fusee.broker import Broker, BrokerConfig
from fusee.broker.worker import Worker
from fusee.client.consumer.options import ConsumeResult
from fusee.client.consumer.push import Consumer
from fusee.client.producer import Producer
from fusee.client.received import ReceivedMessage
from fusee.client.results import SendResult
from fusee.errors import DivergedError
from fusee.message.ids import decode_offset_id
from fusee.message.model import MessageQueue, StoredMessage
from fusee.message.record import iterate_records
from fusee.store.config import FlushDiskType
from fusee.store.engine import MessageStore
from fusee.store.results import GetResult
from fusee.store.simulated_disk import SimulatedDisk
from fusee.transport.link import Link
from fusee.wire.bodies.topic import TopicConfig
from tests.broker.log_world import small_store
from tests.broker.world import HeldWorker
from tests.client.world import CLUSTER, ROOT, ClusterWorld, Life
from tests.simulation.ha_witness import Change, HaWitness, Place, Promises, Stored
from tests.simulation.watched_world import WatchedWorld

TOPIC: Final = "orders"
GROUP: Final = "workers"
QUEUES: Final = 2
PATIENCE_S: Final = 300.0
TABLES_PATIENCE_S: Final = 60.0
SENDER: Final = "10.0.9.250"
READER: Final = "10.0.9.251"


@dataclass(frozen=True)
class HaPlan:
    """What kind of run."""

    seed: int
    steps: int
    strict: bool = False
    """Whether a slave that has not yet agreed with a new master may not show what that one has not."""

    @property
    def command(self) -> str:
        """What repeats it."""
        kind = " --strict" if self.strict else ""
        return f"python -m tests.simulation --ha --seed {self.seed} --steps {self.steps}{kind}"


@dataclass
class Death:
    """How the process of a node ended."""

    change: Change
    at: float
    written_offset: int
    flushed_offset: int

    @property
    def kept_offset(self) -> int:
        """How far its log has survived for sure."""
        return self.flushed_offset if self.change is Change.CRASH else self.written_offset


@dataclass
class Node:
    """One machine of a group."""

    name: str
    host: str
    group: BrokerGroup
    broker_id: int
    death: Death | None = None
    starts_at: float = 0.0
    epoch: int = 0
    """The master that it has last agreed with."""
    cut_epoch: int = 0
    """The master by which its log was last cut."""
    truncations: int = 0


@dataclass
class BrokerGroup:
    """A master and its slaves."""

    name: str
    promises: Promises
    nodes: list[Node] = field(default_factory=list)
    epoch: int = 1
    """Counts the masters whose log may be another than that of the one before."""
    is_whole: bool = False
    """Whether all slaves have been level at a time since which none of them has lost anything."""
    change: Change | None = None
    compared: dict[str, int] = field(default_factory=dict)
    """Up to where each slave's log was compared, in this epoch."""

    @property
    def master(self) -> Node:
        return next(node for node in self.nodes if node.broker_id == 0)

    @property
    def slaves(self) -> list[Node]:
        return [node for node in self.nodes if node.broker_id]


class NodeLife(Life):
    """The network and the timers of one process; connections that are being made end with it as well."""

    def __init__(self, world: ClusterWorld, host: str) -> None:
        super().__init__(world, host)
        self._connecting: set[asyncio.Future[Link]] = set()
        self._connecting_at_end: set[asyncio.Future[Link]] = set()

    async def connect(self, link_factory: Callable[[], Link], host: str, port: int) -> Link:
        connecting = asyncio.ensure_future(super().connect(link_factory, host, port))
        self._connecting.add(connecting)
        try:
            return await connecting
        except asyncio.CancelledError:
            if connecting in self._connecting_at_end:
                self._connecting_at_end.discard(connecting)
                await asyncio.get_running_loop().create_future()
            raise
        finally:
            self._connecting.discard(connecting)

    def end(self) -> None:
        super().end()
        self._connecting_at_end = set(self._connecting)
        for connecting in self._connecting_at_end:
            connecting.cancel()


class HaBroker(Broker):
    """A broker whose threads can be held, and which is watched."""

    watch: Callable[[], None]
    alone_offset = 0
    """How far the log was when no slave was there for the last time: nobody waits for slaves to have that."""

    def _make_workers(self) -> tuple[Worker, Worker]:
        self.threads = (HeldWorker(), HeldWorker())
        self._workers = list(self.threads)
        return self.threads

    def _make_tables(self) -> None:
        super()._make_tables()
        self.alone_offset = self.store.written_offset
        self.watch()

    def _slaves_progressed(self) -> None:
        if not self.gate._has_slaves:
            self.alone_offset = self.store.written_offset
        super()._slaves_progressed()


class HaWorld(WatchedWorld):
    """The world, and what is done to it."""

    node_type: type[HaBroker] = HaBroker

    def __init__(self, plan: HaPlan) -> None:
        super().__init__(brokers=0, name_servers=2, seed=plan.seed)
        self.plan = plan
        chance = self.random = random.Random(plan.seed)
        self.groups: list[BrokerGroup] = []
        self.nodes: dict[str, Node] = {}
        for number in range(chance.choice((1, 2))):
            letter = chr(97 + number)
            promises = Promises(sync_master=chance.random() < 0.6, sync_flush=chance.random() < 0.5)
            group = BrokerGroup(f"broker-{letter}", promises)
            self.groups.append(group)
            for broker_id in range(chance.choice((2, 2, 3))):
                node = Node(f"{letter}{broker_id}", f"10.0.{2 + number}.{1 + broker_id}", group, broker_id)
                group.nodes.append(node)
                self.nodes[node.name] = node
        self.broker_hosts = {node.name: node.host for node in self.nodes.values()}
        self.disks = {name: SimulatedDisk(self.clock) for name in self.nodes}
        self.witness = HaWitness(self.clock.monotonic, {group.name: group.promises for group in self.groups})
        self.truncations = 0
        self._numbers = 0
        self._names_down: dict[str, float] = {}
        self._held: dict[tuple[str, str], float] = {}
        self._slow: dict[tuple[str, str], float] = {}
        self._stuck: dict[str, float] = {}

    # Processes

    async def start_broker(self, name: str) -> Broker:
        """Start the next process of a node, in the part that it has now."""
        node = self.nodes[name]
        group = node.group
        is_master = node.broker_id == 0
        role = ("SYNC_MASTER" if group.promises.sync_master else "ASYNC_MASTER") if is_master else "SLAVE"
        life = NodeLife(self, node.host)
        flush = FlushDiskType.SYNC_FLUSH if group.promises.sync_flush else FlushDiskType.ASYNC_FLUSH
        self.disks[name].clock = self.clock
        broker = self.node_type(
            BrokerConfig(
                broker_name=group.name,
                broker_cluster_name=CLUSTER,
                broker_id=node.broker_id,
                broker_role=role,
                bind_address=node.host,
                listen_port=10911,
                namesrv_addr=self.name_server_text,
                slave_read_enable=True,
            ),
            small_store(flush_disk_type=flush),
            store_path=ROOT,
            network=life,
            files=self.disks[name],
            clock=self.clock,
            timers=life,
            seed=7,
        )
        broker.watch = lambda: self._watch(node, broker)
        self.brokers[name] = broker
        self._lives[id(broker)] = life
        await self.do(broker.start())
        node.death = None
        await self.settle()
        return broker

    async def _stop_node(self, node: Node) -> None:
        broker = self.brokers[node.name]
        self._unstick(node.name)
        for thread in broker.threads:  # type: ignore[attr-defined]
            thread.stop()
        await self.do(broker.stop())
        del self.brokers[node.name]
        self._note_death(node, broker, Change.STOP)

    def _end_node(self, node: Node, change: Change) -> None:
        broker = self.brokers.pop(node.name)
        self._stuck.pop(node.name, None)
        self._note_death(node, broker, change)
        self._end(broker)
        disk = self.disks[node.name]
        seed = self.random.getrandbits(32)
        self.disks[node.name] = disk.crash(seed) if change is Change.CRASH else disk.kill()
        if node.broker_id == 0:
            if change is Change.CRASH:
                node.group.is_whole = False
        elif change is Change.CRASH and not node.group.promises.sync_flush:
            node.group.is_whole = False

    def _note_death(self, node: Node, broker: Broker, change: Change) -> None:
        self._notice_cut(node, broker)
        node.truncations = 0
        node.death = Death(change, self.clock.monotonic(), broker.store.log.written_offset, broker.store.flushed_offset)
        if change is Change.STOP:
            node.death.flushed_offset = node.death.written_offset

    def _lose_disk(self, node: Node) -> None:
        self.disks[node.name] = SimulatedDisk(self.clock)
        node.group.is_whole = False
        if node.death is not None:
            node.death.written_offset = node.death.flushed_offset = 0

    def _notice_cut(self, node: Node, broker: Broker) -> bool:
        """Whether the log of a slave was cut since this was asked last."""
        is_cut = broker.replica is not None and broker.replica.truncations > node.truncations
        if is_cut:
            assert broker.replica is not None
            self.truncations += broker.replica.truncations - node.truncations
            node.truncations = broker.replica.truncations
            node.cut_epoch = node.group.epoch
            self.witness.happened(f"the log of {node.name} was cut; it has {broker.store.log.written_offset} bytes")
        return is_cut

    # What a broker does is watched from the moment it has read its disk

    def _watch(self, node: Node, broker: HaBroker) -> None:
        group = node.group
        if node.broker_id == 0:
            self._watch_master(node, broker)
        elif node.cut_epoch == group.epoch and (master := self.brokers.get(group.master.name)) is not None:
            # It was cut, and has started again since: what was cut must not be there again.
            size = min(broker.store.written_offset, master.store.written_offset)
            self.tell(
                self.witness.level,
                group.master.name,
                f"{node.name}, which was cut and started again,",
                log_bytes(master.store, size),
                log_bytes(broker.store, size),
            )
        self._watch_reads(node, broker)
        self._watch_commits(node, broker)

    def _watch_master(self, node: Node, broker: Broker) -> None:
        group = node.group
        if node.death is None:
            return
        change = group.change or node.death.change
        if change in (Change.CRASH, Change.PROMOTION):
            group.epoch += 1
            group.compared.clear()
            group.is_whole = False
        group.change = None
        self.tell(
            self.witness.master_starts,
            group.name,
            node.name,
            change,
            node.death.kept_offset,
            ended_at=node.death.at,
            found=self._found(group, broker.store),
            offsets={
                MessageQueue(TOPIC, group.name, queue_id): committed_offset
                for queue_id, committed_offset in broker.offsets.query_all(GROUP, TOPIC).items()
            },
        )

    def _found(self, group: BrokerGroup, store: MessageStore) -> dict[Place, Stored]:
        found: dict[Place, Stored] = {}
        for base_offset, _ in store.log.segments():
            for log_offset in store.log.record_offsets(base_offset):
                record = store.log.record_at(int(log_offset))
                assert record is not None
                for message in iterate_records(bytes(record)):
                    if message.topic == TOPIC:
                        place = Place(MessageQueue(TOPIC, group.name, message.queue_id), message.queue_offset)
                        found[place] = _stored(message)
        return found

    def _watch_reads(self, node: Node, broker: HaBroker) -> None:
        store, group = broker.store, node.group
        get = store.get

        def watched(topic: str, queue_id: int, *arguments: Any, **more: Any) -> GetResult:
            result = get(topic, queue_id, *arguments, **more)
            if topic == TOPIC and result.slices:
                queue = MessageQueue(topic, group.name, queue_id)
                for piece in result.slices:
                    for message in iterate_records(bytes(piece)):
                        self._read(node, broker, queue, message)
            return result

        store.get = watched  # type: ignore[method-assign]

    def _read(self, node: Node, broker: HaBroker, queue: MessageQueue, message: StoredMessage) -> None:
        stored = _stored(message)
        master = self.brokers.get(node.group.master.name)
        record = master.store.log.record_at(message.log_offset) if master is not None else None
        is_same = record is not None and record == broker.store.log.record_at(message.log_offset)
        if is_same or self._is_current(node, broker):
            is_early = self._is_early(node, broker, message.log_offset + message.store_size)
            self.tell(self.witness.read, node.name, queue, message.queue_offset, stored, is_early=is_early)
        else:
            if self.plan.strict and master is not None:
                self.tell(
                    self.witness.require, False, f"cut: {node.name} shows {stored} of {queue}, its master does not"
                )
            self.tell(self.witness.read_stale, node.name, queue, message.queue_offset, stored)

    def _is_current(self, node: Node, broker: Broker) -> bool:
        """Whether the log of this broker is that of the present master, as far as it can know."""
        if node.broker_id == 0:
            return True
        if broker.replica is not None and broker.replica.is_connected and node.group.master.death is None:
            node.epoch = node.group.epoch
        return node.epoch == node.group.epoch

    def _is_early(self, node: Node, broker: HaBroker, end_offset: int) -> bool:
        gate = broker.gate
        if node.broker_id or not gate._has_slaves or end_offset <= max(gate._given_up_offset, broker.alone_offset):
            return False
        return not any(self._had(slave) >= end_offset for slave in node.group.slaves)

    def _had(self, node: Node) -> int:
        """How far this node has the log, or had it when its process ended."""
        broker = self.brokers.get(node.name)
        if broker is not None and broker.recovery is not None:
            return broker.store.log.written_offset
        return node.death.written_offset if node.death is not None else 0

    def _watch_commits(self, node: Node, broker: Broker) -> None:
        offsets, group = broker.offsets, node.group
        commit = offsets.commit

        def watched(group_name: str, topic: str, queue_id: int, queue_offset: int, **more: Any) -> bool:
            is_taken = commit(group_name, topic, queue_id, queue_offset, **more)
            if group_name == GROUP and topic == TOPIC:
                note = self.witness.committed_aside if node.broker_id else self.witness.committed
                queue = MessageQueue(topic, group.name, queue_id)
                self.tell(note, queue, offsets.query(group_name, topic, queue_id))
            return is_taken

        offsets.commit = watched  # type: ignore[method-assign,assignment]

    # The run

    async def play(self) -> None:
        """All steps, and the end."""
        for host in self.name_server_hosts:
            await self.start_name_server(host)
        for group in self.groups:
            for node in group.nodes:
                await self.start_broker(node.name)
            self.brokers[group.master.name].topics.put(
                TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6)
            )
        await self.advance(1.0)
        self.producer = Producer(await self.session(SENDER, instance_name="producer"))
        await self.do(self.producer.start())
        self.consumer = Consumer(
            await self.session(READER, instance_name="consumer"),
            {TOPIC: "*"},
            group=GROUP,
            listener=self._listen,
            consume_from="first",
            missing_topic="wait",
        )
        await self.do(self.consumer.start())
        await self.send()
        await self.advance(2.0)
        for _ in range(self.plan.steps):
            await self._step()
        await self._finish()

    async def _listen(self, message: ReceivedMessage) -> ConsumeResult:
        self.witness.consume(int(message.body))
        return ConsumeResult.SUCCESS

    async def _step(self) -> None:
        acts: list[tuple[Callable[[], Coroutine[Any, Any, object]], int]] = [
            (self.send, 30), (self.wait, 10), (self.kill_node, 3), (self.crash_node, 4), (self.lose_a_slave, 2),
            (self.black_out, 1), (self.promote, 4), (self.diverge, 3), (self.part, 3), (self.slow, 2),
            (self.hold_disk, 3), (self.jump, 1), (self.roll, 1), (self.stop_a_name_server, 1),
        ]  # fmt: skip
        act = self.random.choices([act for act, _ in acts], [weight for _, weight in acts])[0]
        self.done[act.__name__.replace("_", " ")] += 1
        await act()
        await self.advance(self.random.choice((0.0, 0.001, 0.02, 0.3, 1.0)))
        await self._mend()
        self._look()
        if self.broken is not None:
            raise self.broken

    def _look(self) -> None:
        """See which slaves are level, and whether they are what they say."""
        self.tell(self.witness.check_sends)
        for group in self.groups:
            for node in group.slaves:
                broker = self.brokers.get(node.name)
                if broker is not None:
                    self._is_current(node, broker)
                    self._decide(node, broker)
                    if self._notice_cut(node, broker) and self.random.random() < 0.5:
                        # Was it cut on the disk as well?
                        self.witness.happened(f"{node.name} crashes after that")
                        self._end_node(node, Change.CRASH)
                        node.starts_at = self._until(0.0, 1.0)
            if self._lag(group) == 0:
                group.is_whole = True

    def _decide(self, node: Node, broker: Broker) -> None:
        """Empty a slave that has nothing in common with its master and waits for somebody to decide that."""
        master = self.brokers.get(node.group.master.name)
        if broker.replica is None or not isinstance(broker.replica.failure, DivergedError) or master is None:
            return
        logs = [each.store.log for each in (master, broker)]
        first = max(log.min_offset for log in logs)
        records = [log.record_at(first) for log in logs]
        self.tell(
            self.witness.require, records[0] != records[1], f"apart: {node.name} does not see what it has in common"
        )
        self.witness.happened(f"the disk of {node.name}, which has nothing in common with its master, is emptied")
        self._end_node(node, Change.KILL)
        self._lose_disk(node)
        node.starts_at = self.clock.monotonic()

    def _lag(self, group: BrokerGroup) -> int:
        """How many slaves are not level with their master; those that are, are compared."""
        master = self.brokers.get(group.master.name)
        if master is None:
            return len(group.slaves)
        end_offset = master.store.written_offset
        behind = 0
        for node in group.slaves:
            broker = self.brokers.get(node.name)
            if (
                broker is None
                or broker.replica is None
                or not broker.replica.is_connected
                or node.death is not None
                or broker.store.written_offset != end_offset
                or broker.topics.get(TOPIC) is None
            ):
                behind += 1
            elif group.compared.get(node.name) != end_offset:
                group.compared[node.name] = end_offset
                mine, other = log_bytes(master.store, end_offset), log_bytes(broker.store, end_offset)
                self.tell(self.witness.level, group.master.name, node.name, mine, other)
        return behind

    async def _mend(self, *, at_once: bool = False) -> None:
        """End what has lasted long enough."""
        now = float("inf") if at_once else self.clock.monotonic()
        for (a, b), until in list(self._held.items()):
            if until <= now:
                del self._held[a, b]
                self.network.release(a, b)
        for (a, b), until in list(self._slow.items()):
            if until <= now:
                del self._slow[a, b]
                self.network.weather(a, b).latency = 0.0
        for name, until in list(self._stuck.items()):
            if until <= now:
                self._unstick(name)
        for node in self.nodes.values():
            if node.death is not None and node.starts_at <= now:
                await self.start_broker(node.name)
        for host, until in list(self._names_down.items()):
            if until <= now:
                del self._names_down[host]
                await self.start_name_server(host)

    def _unstick(self, name: str) -> None:
        if self._stuck.pop(name, None) is not None:
            for thread in self.brokers[name].threads:  # type: ignore[attr-defined]
                thread.stop()

    async def _finish(self) -> None:
        witness = self.witness
        witness.happened("all is mended")
        await self._mend(at_once=True)
        await self.send()
        deadline = self.clock.monotonic() + PATIENCE_S
        while self.clock.monotonic() < deadline and (
            witness.sends_under_way or witness.unread or any(self._lag(group) for group in self.groups)
        ):
            await self.advance(1.0)
            self._look()
            await self._mend(at_once=True)
        for group in self.groups:
            witness.require(not self._lag(group), f"apart: a slave of {group.name} never became level: {self._states}")
        witness.check_sends()
        witness.check_end()
        # Offsets are committed every five seconds and copied every second; clients learn every thirty which broker is
        # the master now, and until then commit where they used to.
        await self.advance(12.0)
        deadline = self.clock.monotonic() + TABLES_PATIENCE_S
        while self._differences() and self.clock.monotonic() < deadline:
            await self.advance(1.0)
        witness.require(not self._differences(), f"apart: {self._differences()}")
        await self.do(self.producer.close())
        await self.do(self.consumer.close())
        await self.close()

    @property
    def _states(self) -> str:
        return ", ".join(
            f"{name} {broker.role} {broker.store.written_offset}"
            + (f" {broker.replica.state.value} {broker.replica.failure}" if broker.replica is not None else "")
            for name, broker in self.brokers.items()
        )

    def _differences(self) -> str:
        """What a slave has beside its log and its master has not; empty when there is nothing."""
        for group in self.groups:
            master = self.brokers[group.master.name]
            for node in group.slaves:
                slave = self.brokers[node.name]
                for queue_id in range(QUEUES):
                    ends = [each.store.max_offset(TOPIC, queue_id) for each in (master, slave)]
                    if ends[0] != ends[1]:
                        return f"queue {queue_id} ends at {ends} on the master and on {node.name}"
                offsets = [each.offsets.query_all(GROUP, TOPIC) for each in (master, slave)]
                if offsets[0] != offsets[1]:
                    return f"{offsets} are committed on the master and on {node.name}"
        return ""

    # What is done

    async def send(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            self._send_one()
        await self.settle()

    def _send_one(self) -> None:
        self._numbers += 1
        number, waits = self._numbers, self.random.random() < 0.9
        self.witness.sending(number)
        padding = b" " * self.random.choice((0, 10, 700))
        sending = self.producer.send(TOPIC, str(number).encode() + padding, wait_stored=waits)
        sending.add_done_callback(lambda done: self._sent(number, done, waited=waits))

    def _sent(self, number: int, sending: asyncio.Future[SendResult], *, waited: bool) -> None:
        if sending.cancelled():
            self.tell(self.witness.failed, number, "cancelled")
        elif (error := sending.exception()) is not None:
            self.tell(self.witness.failed, number, type(error).__name__)
        else:
            result = sending.result()
            log_offset = decode_offset_id(result.offset_id).log_offset
            self.tell(
                self.witness.sent, number, result.queue, result.queue_offset, log_offset, result.status, waited=waited
            )

    async def wait(self) -> None:
        await self.advance(self.random.choice((1.0, 2.0, 4.0)))

    def _some_node(self) -> Node | None:
        up = [node for node in self.nodes.values() if node.death is None]
        return self.random.choice(up) if up else None

    def _until(self, *seconds: float) -> float:
        return self.clock.monotonic() + self.random.choice(seconds)

    async def kill_node(self) -> None:
        if node := self._some_node():
            self.witness.happened(f"{node.name} is killed")
            self._end_node(node, Change.KILL)
            node.starts_at = self._until(0.0, 1.0, 6.0)

    async def crash_node(self) -> None:
        if node := self._some_node():
            self.witness.happened(f"{node.name} crashes")
            self._end_node(node, Change.CRASH)
            node.starts_at = self._until(0.0, 1.0, 6.0)

    async def lose_a_slave(self) -> None:
        """A slave ends, and the next one has an empty disk."""
        node = self._some_node()
        if node is not None and node.broker_id:
            self.witness.happened(f"the disk of {node.name} is lost")
            self._end_node(node, Change.KILL)
            self._lose_disk(node)
            node.starts_at = self._until(0.0, 3.0)

    async def black_out(self) -> None:
        """The power fails for a whole group."""
        group = self.random.choice(self.groups)
        self.witness.happened(f"no power for {group.name}")
        starts_at = self._until(0.0, 3.0)
        for node in group.nodes:
            if node.death is None:
                self._end_node(node, Change.CRASH)
                node.starts_at = starts_at

    async def promote(self) -> None:
        """The master ends, and the slave with the longest log takes its place."""
        await self._replace(self.random.choice(self.groups))

    async def diverge(self) -> None:
        """The same, after the master has gone on alone for a while."""
        group = self.random.choice(self.groups)
        master = group.master
        if not group.is_whole or master.death is not None:
            return
        self.witness.happened(f"{master.name} is parted from its slaves")
        for node in group.slaves:
            self._part_hosts(master.host, node.host, 10.0)
        await self.send()
        await self.advance(self.random.choice((0.0, 0.5, 4.0)))
        await self._replace(group)

    async def _replace(self, group: BrokerGroup) -> None:
        master = group.master
        if not group.is_whole:
            return
        way = self.random.choice(("kill", "crash", "lose"))
        if master.death is None:
            self._end_node(master, Change.CRASH if way == "crash" else Change.KILL)
        assert master.death is not None
        ends = {}
        for node in group.slaves:
            broker = self.brokers.get(node.name)
            ends[node.name] = node.death.kept_offset if node.death is not None else 0
            if broker is not None:
                # Taken down by its operator, in order or not.
                if self.random.random() < 0.5:
                    await self._stop_node(node)
                else:
                    self._end_node(node, Change.KILL)
                assert node.death is not None
                ends[node.name] = node.death.written_offset
        chosen = max(group.slaves, key=lambda node: ends[node.name])
        self.witness.happened(f"{master.name} is replaced by {chosen.name} ({way}; {ends})")
        if way == "lose":
            self._lose_disk(master)
        chosen.broker_id, master.broker_id = 0, chosen.broker_id
        group.change = Change.PROMOTION
        self.done["promotion"] += 1
        await self.start_broker(chosen.name)
        for node in group.slaves:
            node.starts_at = self._until(0.0, 2.0, 8.0)

    async def part(self) -> None:
        """Nothing passes between two machines for a while."""
        if node := self._some_node():
            others = [SENDER, READER, *self.name_server_hosts, *(each.host for each in node.group.nodes)]
            other = self.random.choice([host for host in others if host != node.host])
            self.witness.happened(f"{node.name} and {other} are parted")
            self._part_hosts(node.host, other, self.random.choice((0.5, 4.0, 25.0)))

    def _part_hosts(self, a: str, b: str, seconds: float) -> None:
        self.network.weather(a, b).held = True
        self._held[a, b] = self.clock.monotonic() + seconds

    async def slow(self) -> None:
        """It takes long between two machines of a group."""
        group = self.random.choice(self.groups)
        a, b = self.random.sample(group.nodes, 2)
        weather = self.network.weather(a.host, b.host)
        weather.latency, weather.chunk_max = self.random.choice((0.01, 0.2, 1.5)), self.random.choice((0, 100))
        self._slow[a.host, b.host] = self._until(1.0, 10.0)
        self.witness.happened(f"it takes {weather.latency} s between {a.name} and {b.name}")

    async def hold_disk(self) -> None:
        """The disk of a machine does not sync for a while."""
        if node := self._some_node():
            self.witness.happened(f"the disk of {node.name} is slow")
            # The other thread saves tables, which has no promise in seconds while the disk is slow.
            self.brokers[node.name].threads[0].is_held = True  # type: ignore[attr-defined]
            self._stuck[node.name] = self._until(0.1, 2.0, 8.0)

    async def jump(self) -> None:
        """Somebody sets the clock."""
        milliseconds = self.random.choice((-3_600_000, -1_500, 1_500, 3_600_000))
        self.witness.happened(f"the clock jumps by {milliseconds} ms")
        self.clock.jump_wall(milliseconds)

    async def roll(self) -> None:
        """Every broker of a group is started again, in order, slaves first."""
        group = self.random.choice(self.groups)
        for node in [*group.slaves, group.master]:
            if node.death is None:
                self.witness.happened(f"{node.name} is started again")
                await self._stop_node(node)
                await self.start_broker(node.name)
                await self.advance(0.5)

    async def stop_a_name_server(self) -> None:
        host = self.random.choice(self.name_server_hosts)
        if host not in self._names_down:
            self.witness.happened(f"the name server {host} stops")
            self._names_down[host] = self._until(1.0, 20.0)
            await self.do(self.name_servers.pop(host).stop())


def log_bytes(store: MessageStore, end_offset: int) -> bytes:
    """The log of a broker, from its beginning up to here."""
    pieces: list[bytes] = []
    log_offset = store.log.min_offset
    while log_offset < end_offset and (piece := bytes(store.log.chunk(log_offset, end_offset - log_offset))):
        pieces.append(piece)
        log_offset += len(piece)
    return b"".join(pieces)


def _stored(message: StoredMessage) -> Stored:
    return Stored(int(message.body), message.log_offset)
