"""One run: a cluster of real processes, producers and consumers that never rest, and faults one after the other.

Producers send one message after the other: one to any queue, one by key. Two groups consume: `workers`, two members in
order, and `readers`, one member without order, which goes on at slaves when a master is away. A poller asks masters
for committed offsets. After each fault the run waits until its groups take and deliver messages again. At the end all
queues are read from their first message, and logs of masters and slaves are compared byte for byte.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import fusee
from fusee.client.broker_calls import BrokerCalls, PullStatus
from fusee.client.received import ReceivedMessage
from fusee.client.results import SendStatus
from fusee.clock import SystemClock
from fusee.cluster import LocalCluster
from fusee.connection import Connection
from fusee.errors import FuseeError
from fusee.message.model import MessageQueue
from fusee.transport.client import Client, ClientSettings
from fusee.transport.tcp import TcpNetwork
from tests.faults.history import EVERYTHING, Event, History
from tests.faults.machine import Machine
from tests.faults.menu import FAULTS, Stage, draw
from tests.faults.namespace import Namespace
from tests.faults.wires import Wire, WiredNetwork

TOPIC: Final = "orders"
QUEUES: Final = 2
GROUPS: Final = ("workers", "readers")
SEND_INTERVAL_S: Final = 0.01
POLL_INTERVAL_S: Final = 0.5
MEND_WITHIN_S: Final = 120.0
DELIVER_WITHIN_S: Final = 180.0
KEYS: Final = 6
LOG_FILE_SIZE: Final = 8 * 1024 * 1024
"""Small enough that a long run fills several."""


@dataclass(frozen=True)
class Plan:
    """What kind of run. `sync`: SYNC_MASTER and asynchronous flush; `flush`: ASYNC_MASTER and SYNC_FLUSH."""

    seed: int
    faults: int
    mode: str = "sync"
    name_servers: int = 2
    lasts_s: tuple[float, float] = (1.0, 3.0)
    names: tuple[str, ...] = ()
    """These faults, and none that are drawn."""
    in_namespace: bool = False
    """Whether it is played in a network of its own."""

    @property
    def command(self) -> str:
        """What repeats it."""
        only = f" --only {','.join(self.names)}" if self.names else ""
        network = " --namespace" if self.in_namespace else ""
        return f"python -m tests.faults --seed {self.seed} --faults {self.faults} --mode {self.mode}{only}{network}"


@dataclass
class Outcome:
    """What came of it."""

    plan: Plan
    history: History
    seconds: float = 0.0
    polls: int = 0
    send_errors: Counter[str] = field(default_factory=Counter)
    last_errors: deque[str] = field(default_factory=lambda: deque(maxlen=30))
    violations: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        history = self.history
        return (
            f"{len(history.events)} events in {self.seconds:.0f} s; {history.attempted_count} messages sent, "
            f"{history.acknowledged_count} acknowledged ({history.replicated_count} as replicated), "
            f"{history.stored_count} stored, {history.deliveries} deliveries to {len(GROUPS)} groups, "
            f"{sum(history.duplicates.values())} duplicates, {self.polls} looks at committed offsets, "
            f"{sum(history.set_back.values())} of them set back by a death; {history.excused} lost that were not "
            f"promised; {len(self.violations)} promises broken"
        )


class Run:
    """A plan being carried out."""

    def __init__(self, plan: Plan, cluster: LocalCluster, machine: Machine) -> None:
        self.plan = plan
        self.cluster = cluster
        self.machine = machine
        self.namespace = Namespace()
        began_at = time.monotonic()
        self.history = History(lambda: time.monotonic() - began_at)
        self.outcome = Outcome(plan, self.history)
        self.network = WiredNetwork()
        self._client_wires: dict[str, Wire] = {}
        self._replication_wires: dict[str, Wire] = {}

    async def play(self) -> Outcome:
        """All of it."""
        async with AsyncExitStack() as stack:
            await self._lay_wires(stack)
            async with asyncio.timeout(60):
                mq = await stack.enter_async_context(self._connect("producers"))
                await mq.admin.create_topic(TOPIC, queues=QUEUES)
            beginning = self.history.began("members join", [EVERYTHING])
            consuming = await stack.enter_async_context(self._connect("consumers"))
            for group, ordered in (("workers", True), ("workers", True), ("readers", False)):
                await stack.enter_async_context(
                    consuming.consumer(
                        TOPIC,
                        group=group,
                        ordered=ordered,
                        consume_from="first",
                        listener=self._listener(group, ordered),
                    )
                )
            stop = asyncio.Event()
            sending = [
                asyncio.create_task(self._send(mq, "any", stop)),
                asyncio.create_task(self._send(mq, "keyed", stop)),
            ]
            polling = asyncio.create_task(self._poll(stop))
            try:
                await self._mended(beginning)
                self.history.ended(beginning)
                await self._faults()
                stop.set()
                await asyncio.gather(*sending, polling)
            finally:
                stop.set()
                for task in (*sending, polling):
                    task.cancel()
                await asyncio.gather(*sending, polling, return_exceptions=True)
            await self._finish(mq)
        self.outcome.seconds = self.history.now()
        self.outcome.violations = self.history.violations
        return self.outcome

    # The stage

    async def _lay_wires(self, stack: AsyncExitStack) -> None:
        for node in self.cluster.nodes.values():
            wire = self._client_wires[node.name] = await _opened(stack, Wire(node.host, node.port))
            self.network.wires[node.address] = wire
            if node.is_master:
                self._replication_wires[node.group] = await _opened(stack, Wire(node.host, node.ha_port))
        for node in self.cluster.nodes.values():
            if node.is_broker and not node.is_master:
                host, port = self._replication_wires[node.group].address
                await asyncio.to_thread(self.cluster.stop_node, node.name)
                with self.cluster.config_path(node.name).open("a") as config:
                    config.write(f"haMasterAddress={host}:{port}\n")
                await asyncio.to_thread(self.cluster.start_node, node.name)
        await asyncio.to_thread(self.cluster.wait_ready, 90.0)

    @asynccontextmanager
    async def _connect(self, name: str) -> AsyncIterator[Connection]:
        async with fusee.connect(
            self.cluster.name_servers,
            instance_name=name,
            network=self.network,
            poll_name_server_interval_ms=3_000,
            heartbeat_broker_interval_ms=5_000,
            persist_consumer_offset_interval_ms=1_000,
        ) as mq:
            yield mq

    # The play

    async def _faults(self) -> None:
        plan, chooser = self.plan, random.Random(self.plan.seed + 1)
        names = plan.names or draw(
            plan.faults,
            plan.seed,
            has_machine=self.machine.is_there,
            has_namespace=self.namespace.is_there,
            is_replicated=plan.mode == "sync",
        )
        stage = Stage(
            cluster=self.cluster,
            history=self.history,
            machine=self.machine,
            namespace=self.namespace,
            client_wires=self._client_wires,
            replication_wires=self._replication_wires,
            random=chooser,
            lasts_s=plan.lasts_s,
        )
        for name in names:
            await FAULTS[name](stage)
            await self._mended(self.history.events[-1])
            if self.history.violations:
                return

    async def _mended(self, event: Event) -> None:
        """Wait until the brokers that were touched, and the others, take and deliver messages again."""
        began_at = self.history.now()
        promised = self.history.last_replicated_at if self.plan.mode == "sync" else self.history.last_acknowledged_at
        brokers = {node.group for node in self.cluster.nodes.values() if node.is_master}
        while True:
            waiting = [name for name in sorted(brokers) if promised.get(name, -1.0) < began_at] + [
                f"readers of {name}"
                for name in sorted(brokers)
                if self.history.last_handed_at.get(("readers", name), -1.0) < began_at
            ]
            if not waiting:
                break
            if self.history.now() - began_at > MEND_WITHIN_S:
                self.history.violations.append(f"stuck: {', '.join(waiting)} did not go on after {event.what}")
                break
            await asyncio.sleep(0.05)
        event.mended_after = self.history.now() - began_at

    async def _send(self, mq: Connection, name: str, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            message = f"{name}:{number}"
            self.history.sending(message)
            order_by = f"key-{number % KEYS}" if name == "keyed" else None
            try:
                result = await mq.send(TOPIC, message.encode(), order_by=order_by)
            except FuseeError as error:
                self.outcome.send_errors[type(error).__name__] += 1
                self.outcome.last_errors.append(f"{self.history.now():.1f} s: {message}: {error}")
                self.history.failed(message)
            else:
                is_replicated = self.plan.mode == "sync" and result.status is SendStatus.SEND_OK
                self.history.acknowledged(message, result.queue, result.queue_offset, is_replicated=is_replicated)
            await asyncio.sleep(SEND_INTERVAL_S)

    def _listener(self, group: str, ordered: bool) -> _Listener:
        return _Listener(self.history, group, ordered)

    async def _poll(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        settings = ClientSettings(connect_timeout=2.0, request_timeout=2.0)
        client = Client(network=TcpNetwork(), clock=SystemClock(), timers=loop, settings=settings)
        calls = BrokerCalls(client, timeout_ms=2_000)
        masters = [node for node in self.cluster.nodes.values() if node.is_master]
        try:
            while not stop.is_set():
                for node in masters:
                    for group in GROUPS:
                        for queue_id in range(QUEUES):
                            try:
                                found = await calls.query_offset(node.address, group, TOPIC, queue_id)
                            except FuseeError:
                                break
                            if found is not None:
                                self.history.committed(group, MessageQueue(TOPIC, node.group, queue_id), found)
                                self.outcome.polls += 1
                await asyncio.sleep(POLL_INTERVAL_S)
        finally:
            await client.close()

    # The end

    async def _finish(self, mq: Connection) -> None:
        deadline = time.monotonic() + DELIVER_WITHIN_S
        auditor = mq.pull_consumer(group="auditor")
        async with auditor:
            queues = await auditor.queues(TOPIC)
            for queue in sorted(queues):
                queue_offset = 0
                while True:
                    try:
                        found = await auditor.pull(queue, queue_offset, 32)
                    except FuseeError:
                        if time.monotonic() > deadline:
                            raise
                        await asyncio.sleep(0.2)
                        continue
                    if found.status is PullStatus.OFFSET_ILLEGAL and found.next_offset != queue_offset:
                        self.history.violations.append(f"lost: {queue} is to be read from {found.next_offset} on")
                        queue_offset = found.next_offset
                        continue
                    for message in found.messages:
                        if message.queue_offset != queue_offset:
                            self.history.violations.append(
                                f"lost: {queue} has nothing from {queue_offset} to {message.queue_offset}"
                            )
                        self.history.audited(queue, message.queue_offset, message.body.decode())
                        queue_offset = message.queue_offset + 1
                    if not found.messages and queue_offset >= found.max_offset:
                        break
        while self.history.undelivered(GROUPS) and not self.history.violations:
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.1)
        self.history.check_end(GROUPS)
        await asyncio.to_thread(self.cluster.wait_level, 90.0)
        self.history.violations.extend(await asyncio.to_thread(unequal_logs, self.cluster))


class _Listener:
    """Tells the history what a member was given."""

    def __init__(self, history: History, group: str, ordered: bool) -> None:
        self._history = history
        self._group = group
        self._ordered = ordered

    async def __call__(self, message: ReceivedMessage) -> None:
        self._history.handed(
            self._group, message.queue, message.queue_offset, message.body.decode(), ordered=self._ordered
        )


async def _opened(stack: AsyncExitStack, wire: Wire) -> Wire:
    await wire.open()
    stack.push_async_callback(wire.close)
    return wire


def unequal_logs(cluster: LocalCluster) -> list[str]:
    """Where the log of a slave differs from that of its master, as far as both go."""
    ends = {node.name: node.log_end_offset or 0 for node in cluster.status().nodes if node.kind == "broker"}
    found: list[str] = []
    for slave in (node for node in cluster.nodes.values() if node.is_broker and not node.is_master):
        end = min(ends[slave.name], ends[slave.group])
        theirs, ours = (_log_bytes(cluster.store_path(name), end) for name in (slave.group, slave.name))
        if theirs != ours:
            place = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), -1)
            found.append(f"moved: the logs of {slave.group} and {slave.name} differ at {place} of {end}")
    return found


def _log_bytes(store: Path, end: int) -> bytes:
    data = bytearray()
    for path in sorted((store / "commitlog").glob("[0-9]*")):
        start = int(path.name)
        if start < end:
            with path.open("rb") as file:
                data += file.read(end - start)
    return bytes(data)


def play(plan: Plan) -> Outcome:
    """Carry out a plan, on a cluster of its own that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="fusee-faults-") as folder, Machine(Path(folder) / "machine") as machine:
        cluster = LocalCluster(
            Path(folder) / "cluster",
            groups=2,
            replicas=2,
            name_servers=plan.name_servers,
            role="sync" if plan.mode == "sync" else "async",
            flush="async" if plan.mode == "sync" else "sync",
            settings={"mappedFileSizeCommitLog": str(LOG_FILE_SIZE)},
        )
        is_good = False
        namespace = Namespace()
        if namespace.is_there:
            namespace.prepare()
        try:
            cluster.start(timeout=90.0)
            outcome = asyncio.run(Run(plan, cluster, machine).play())
            is_good = not outcome.violations
            return outcome
        finally:
            cluster.stop(grace=10.0)
            if not is_good:
                _keep_logs(cluster)


def _keep_logs(cluster: LocalCluster) -> None:
    """What the nodes printed stays when something went wrong."""
    kept = Path(tempfile.mkdtemp(prefix="faults-logs-"))
    for name in cluster.nodes:
        shutil.copy(cluster.log_path(name), kept / f"{name}.log")
    sys.stderr.write(f"what the nodes printed is in {kept}\n")
