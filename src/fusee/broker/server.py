"""The broker as a program: store, tables, handlers, doors and jobs put together (Java: BrokerController).

Built bottom-up: the store is opened (which recovers it), the tables are loaded, the handlers get what they need, the
doors open, the jobs begin, and only then name servers are told. Stopping is the same in reverse: name servers first,
so that clients go elsewhere; held pulls are answered; what is under way is finished; everything is saved; the store is
closed, which marks the stop as clean.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fusee.broker.ack_gate import AckGate
from fusee.broker.acting import delivered_by_slaves
from fusee.broker.config import BrokerConfig, Settings
from fusee.broker.consumers import ConsumerTable
from fusee.broker.daily_totals import decode_totals, encode_totals
from fusee.broker.delay import DelayDelivery
from fusee.broker.delay_progress import delay_document
from fusee.broker.group_watch import GroupQuestions
from fusee.broker.groups import GroupTable
from fusee.broker.handlers.admin_broker import BrokerHandlers
from fusee.broker.handlers.admin_groups import GroupHandlers
from fusee.broker.handlers.admin_topics import TopicHandlers
from fusee.broker.handlers.bulk_read import BulkReadHandlers
from fusee.broker.handlers.client import ClientHandlers
from fusee.broker.handlers.consume_stats import ConsumeStatsHandlers
from fusee.broker.handlers.handover import HandoverHandlers
from fusee.broker.handlers.offset import OffsetHandlers
from fusee.broker.handlers.peek import PeekHandlers
from fusee.broker.handlers.pull import PullHandlers
from fusee.broker.handlers.query import QueryHandlers
from fusee.broker.handlers.relay import RelayHandlers
from fusee.broker.handlers.replication import ReplicationHandlers
from fusee.broker.handlers.reply import ReplyHandlers
from fusee.broker.handlers.send import SendHandlers, amend_answer
from fusee.broker.handlers.send_back import SendBackHandlers
from fusee.broker.handlers.staged import StagedHandlers
from fusee.broker.handlers.transaction import TransactionHandlers
from fusee.broker.handovers import Handovers
from fusee.broker.holds import Holds
from fusee.broker.local_mark import LocalMark
from fusee.broker.log_writer import LogWriter
from fusee.broker.offsets import OffsetTable
from fusee.broker.producers import ProducerTable
from fusee.broker.queue_locks import QueueLocks
from fusee.broker.registration import Registration, advertised_ip, numeric_ip
from fusee.broker.retry import RetryRules
from fusee.broker.routes import PULL, SEND, add_routes, make_lanes
from fusee.broker.runtime_info import RuntimeInfo
from fusee.broker.send_checks import SendChecks
from fusee.broker.settings_update import LiveSettings
from fusee.broker.slave import Slave
from fusee.broker.staged_batches import StagedBatches
from fusee.broker.standing import Standing
from fusee.broker.statistics import Statistics
from fusee.broker.table_saves import TableSaves
from fusee.broker.topics import TopicTable
from fusee.broker.transactions import Transactions
from fusee.broker.worker import InlineWorker, SecondHand, ThreadWorker, Worker
from fusee.clock import Clock, SystemClock, Timers
from fusee.errors import StoreError, TooFewReplicasError
from fusee.message.hosts import pack_host, pack_ip
from fusee.message.ids import UniqueIds
from fusee.replication import Primary, PrimarySettings, Replica
from fusee.service import Periodic, soon_of
from fusee.store.config import FlushDiskType, StoreConfig
from fusee.store.dispatch_batch import DispatchBatch
from fusee.store.engine import MessageStore
from fusee.store.filesystem import FileSystem, OsFileSystem
from fusee.store.saved_document import SavedDocument
from fusee.transport.client import Client
from fusee.transport.link import LinkLimits, parse_address
from fusee.transport.router import Router
from fusee.transport.server import Server, ServerSettings
from fusee.transport.tcp import TcpNetwork, server_tls
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.framing import FrameLimits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fusee.errors import StoreFailedError
    from fusee.store.filesystem import Space
    from fusee.store.recovery import Progress, RecoveryReport
    from fusee.store.results import Dispatched
    from fusee.transport.interfaces import Network
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.command import Command

_log = logging.getLogger(__name__)

_EXPIRY_INTERVAL: Final = 10.0
_SAMPLE_INTERVAL: Final = 1.0
# Transfers to slaves that no sender waits for: a system call for each message would cost senders a fifth of their time.
_UNAWAITED_PACE: Final = 0.001
# How long the answer to an administrator waits for name servers; most tools give up after five seconds.
_REGISTRATION_PATIENCE: Final = 3.0

# Their answers promise a change: it is on disk, and name servers know of it, before they leave.
_PROMISING: Final = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
)


class Broker:
    """One broker."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        store_config: StoreConfig | None = None,
        *,
        store_path: Path,
        network: Network | None = None,
        files: FileSystem | None = None,
        clock: Clock | None = None,
        timers: Timers | None = None,
        seed: int | None = None,
    ) -> None:
        """`network`, `files`, `clock` and `timers` are the machine's unless given; `seed` makes chance repeatable."""
        self.config = config or BrokerConfig()
        self.store_config = store_config or StoreConfig()
        self._store_path = store_path
        self._network = network
        self._files = files or OsFileSystem()
        self._clock = clock or SystemClock()
        self._timers = timers
        self._random = random.Random(seed)
        self.store = MessageStore(
            store_path, self.store_config, files=self._files, clock=self._clock, new_guard=threading.Lock
        )
        self._servers: list[Server] = []
        self._jobs: list[Periodic] = []
        self._workers: list[Worker | SecondHand] = []
        self._second_hand: SecondHand | None = None
        self._running: list[Any] = []
        self._registration: Registration | None = None
        self._client: Client | None = None
        self.primary: Primary | None = None
        """Sends the log to slaves, on a master that has been started."""
        self.slave: Slave | None = None
        """Follows the master, on a slave that has been started."""
        self._is_stopped = False
        self.address = ""
        """`host:port` that clients are told."""
        self._ha_address = ""
        self.failure: StoreFailedError | None = None
        """Why nothing is accepted any more, after the disk has failed."""
        self.recovery: RecoveryReport | None = None
        """What opening the store had to mend."""

    @property
    def replica(self) -> Replica | None:
        """Keeps the log level with the master's, on a slave that has been started."""
        return None if self.slave is None else self.slave.replica

    @property
    def role(self) -> str:
        """ASYNC_MASTER, SYNC_MASTER or SLAVE."""
        return self.config.broker_role

    @property
    def listening(self) -> tuple[str, ...]:
        """Every `host:port` that is listened on: for all requests, then the fast one."""
        return tuple(server.address for server in self._servers)

    @property
    def clock(self) -> Clock:
        """The time it goes by."""
        return self._clock

    def space(self) -> Space:
        """The disk that messages are on. Raises StoreError."""
        return self._files.space(self.store.paths.root)

    @property
    def registered(self) -> tuple[str, ...]:
        """Name servers that know this broker."""
        return self._registration.registered if self._registration is not None else ()

    async def start(self, progress: Progress | None = None) -> str:
        """Open the store, open the doors, tell the name servers; the address clients are told.

        `progress(done, total)` is called in bytes on long recoveries. Raises ConfigError, ConnectError or StoreError.
        """
        self.recovery = self.store.open(progress)
        try:
            await self._open_doors()
        except BaseException:
            await self.stop()
            raise
        return self.address

    async def _open_doors(self) -> None:
        config = self.config
        self._make_tables()
        network = self._network or TcpNetwork(
            server_tls=server_tls(
                config.tls_server_mode,
                config.tls_server_cert_path,
                config.tls_server_key_path,
                first_byte_timeout=config.server_channel_max_idle_time_seconds,
            )
        )
        timers = self._timers or asyncio.get_running_loop()
        router, fast_router = Router(), Router()
        settings = ServerSettings(
            connections_max=config.connections_max,
            idle_timeout=config.server_channel_max_idle_time_seconds,
            drain_timeout=config.shutdown_wait_time_seconds,
            link=LinkLimits(frame=FrameLimits(frame_size_max=config.frame_size_max)),
        )
        for each in (router, fast_router):
            self._servers.append(
                Server(
                    network=network,
                    router=each,
                    clock=self._clock,
                    timers=timers,
                    settings=settings,
                    listeners=[self],
                )
            )
        # The port may be any; what is told to others needs it. Nothing is served before the routes are there.
        ip = advertised_ip(config)
        _, port = parse_address(await self._servers[0].start(config.bind_address, config.listen_port))
        self.address = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        self._client = Client(network=network, clock=self._clock, timers=timers)
        self._make_parts(router, fast_router, timers, ip, port)
        fast_port = config.fast_listen_port
        if fast_port < 0:
            fast_port = port - 2 if config.listen_port else 0
        await self._servers[1].start(config.bind_address, fast_port)
        ha_port = await self._listen_for_slaves(timers, port)
        self._ha_address = f"{config.broker_ip2 or ip}:{ha_port}"
        if config.is_master and config.enable_slave_acting_master:
            delivered = await delivered_by_slaves(
                self._questions, address=self.address, ha_address=self._ha_address, own_id=config.broker_id
            )
            self.delay.skip(delivered)
        self._start_jobs(timers)
        await self._register(timers)

    def _make_tables(self) -> None:
        config, clock, files = self.config, self._clock, self._files
        folder = self.store.paths.config
        self.topics = TopicTable(config=config, folder=folder, files=files, clock=clock)
        self.groups = GroupTable(config=config, folder=folder, files=files, clock=clock)
        self.offsets = OffsetTable(config=config, folder=folder, files=files, clock=clock)
        for table in (self.topics, self.groups, self.offsets):
            table.load()
        self._adopt_topics()
        self.consumers = ConsumerTable(config=config)
        self.producers = ProducerTable(config=config)
        self.locks = QueueLocks(clock)
        self.statistics = Statistics(
            clock,
            config.broker_cluster_name,
            is_system=self.topics.is_system,
            document=SavedDocument(folder / "dailyTotals.json", files, encode=encode_totals, decode=decode_totals),
        )
        self.statistics.load()

    def _adopt_topics(self) -> None:
        """Give a configuration to topics that have messages but lost theirs: the process died before it was saved."""
        for topic in self.store.queues.topics():
            if self.topics.get(topic) is None:
                queues = max(self.store.queues.queue_ids(topic), default=0) + 1
                _log.warning(
                    "topic %s has messages but no configuration; it is made again with %d queues", topic, queues
                )
                self.topics.put(TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues))

    def _make_parts(self, router: Router, fast_router: Router, timers: Timers, ip: str, port: int) -> None:
        config, clock, store = self.config, self._clock, self.store
        lanes = make_lanes(
            router,
            sends_max=config.send_thread_pool_queue_capacity,
            pulls_max=config.pull_thread_pool_queue_capacity,
        )
        numbers = numeric_ip(ip)
        store_host = pack_host(numbers, port)
        log_worker, worker = self._make_workers()
        self.holds = Holds(clock=clock, timers=timers, lane=lanes[PULL])
        self.gate = AckGate(
            waits_for_flush=config.is_master and self._flushes_at_once,
            timeout=store.config.sync_flush_timeout / 1000,
            lane=lanes[SEND],
            amend=amend_answer,
            waits_for_slaves=config.replicas_required > 1,
            slave_timeout=config.slave_timeout / 1000,
        )
        self.writer = writer = LogWriter(
            store=store,
            gate=self.gate,
            log_worker=log_worker,
            worker=worker,
            clock=clock,
            timers=timers,
            soon=soon_of(timers),
            is_awaited=self.holds.is_awaited,
            on_written=self._written,
            on_failure=self._store_failed,
            on_flushed=self._flushed,
            is_any_awaited=lambda: bool(self.holds),
            together=None if self._second_hand is None else self._second_hand.together,
        )
        assert self._client is not None
        self._questions = GroupQuestions(config=config, client=self._client)
        if not config.is_master:
            self.slave = Slave(
                config=config,
                writer=writer,
                network=self._network or TcpNetwork(),
                client=self._client,
                clock=clock,
                timers=timers,
                reports_flushed=self._flushes_at_once,
                on_failure=self._store_failed,
            )
        standing = Standing(config=config, is_connected=lambda: self.replica is not None and self.replica.is_connected)
        store.on_arrival(self._arrived)
        statistics, topics, groups, offsets = self.statistics, self.topics, self.groups, self.offsets
        consumers, producers, locks = self.consumers, self.producers, self.locks
        self.delay = DelayDelivery(
            writer=writer if self.slave is None else self.slave.escape,
            document=delay_document(store.paths.config / "delayOffset.json", self._files),
            config=config,
            clock=clock,
            timers=timers,
            worker=worker,
            statistics=statistics,
        )
        if self.slave is not None:
            self.slave.complete(
                topics=topics,
                groups=groups,
                offsets=offsets,
                delay=self.delay,
                holds=self.holds,
                questions=self._questions,
                adopt_topics=self._adopt_topics,
            )
        self.transactions = Transactions(
            writer=writer,
            offsets=offsets,
            topics=topics,
            producers=producers,
            config=config,
            clock=clock,
            timers=timers,
            store_host=store_host,
            statistics=statistics,
        )
        self.staged = StagedBatches(
            writer=writer,
            topics=topics,
            config=config,
            clock=clock,
            timers=timers,
            store_host=store_host,
            statistics=statistics,
        )
        self.settings = LiveSettings(
            Settings(config, self.store_config, str(self._store_path), {}, ()),
            clock=clock,
        )
        self.settings.found = {"broker_ip1": ip, "broker_ip2": config.broker_ip2 or ip, "listen_port": str(port)}
        self.settings.listeners.append(self._settings_changed)
        config = replace(config, broker_ip1=ip)
        checks = SendChecks(config=config, topics=topics, clock=clock)
        self._clients = ClientHandlers(
            config=config,
            consumers=consumers,
            producers=producers,
            locks=locks,
            topics=topics,
            groups=groups,
            clock=clock,
            timers=timers,
        )
        relay = RelayHandlers(
            config=config, consumers=consumers, topics=topics, groups=groups, offsets=offsets, writer=writer
        )
        runtime = RuntimeInfo(
            settings=self.settings,
            statistics=statistics,
            store=store,
            files=self._files,
            clock=clock,
            delay_stats=self.delay.running_stats,
            waiting_sends=lambda: (self.gate.waiting, 0),
        )
        self.bulk_reads = BulkReadHandlers(
            config=config,
            writer=writer,
            topics=topics,
            groups=groups,
            offsets=offsets,
            consumers=consumers,
            statistics=statistics,
            standing=standing,
            # what lies on a simulated disk cannot be read beside it
            local_mark=LocalMark(store.paths.local_reads) if isinstance(self._files, OsFileSystem) else None,
        )
        self._handovers = Handovers()
        handlers: list[Any] = [
            SendHandlers(
                config=config,
                writer=writer,
                gate=self.gate,
                checks=checks,
                retry=RetryRules(groups=groups, topics=topics, locks=locks, statistics=statistics),
                statistics=statistics,
                unique_ids=UniqueIds(
                    clock=clock, ip=pack_ip(numbers), pid=os.getpid(), seed=self._random.getrandbits(32)
                ),
                store_host=store_host,
                random=self._random,
                handovers=self._handovers,
                soon=soon_of(timers),
            ),
            SendBackHandlers(
                config=config,
                writer=writer,
                groups=groups,
                topics=topics,
                store_host=store_host,
                random=self._random,
                statistics=statistics,
            ),
            ReplyHandlers(
                config=config,
                checks=checks,
                producers=producers,
                writer=writer,
                statistics=statistics,
                store_host=store_host,
                clock=clock,
                random=self._random,
            ),
            TransactionHandlers(config=config, writer=writer, transactions=self.transactions, clock=clock),
            StagedHandlers(
                config=config,
                writer=writer,
                checks=checks,
                staged=self.staged,
                store_host=store_host,
                handovers=self._handovers,
            ),
            HandoverHandlers(config=config, handovers=self._handovers),
            PullHandlers(
                config=config,
                writer=writer,
                topics=topics,
                groups=groups,
                offsets=offsets,
                consumers=consumers,
                holds=self.holds,
                statistics=statistics,
                clock=clock,
                standing=standing,
            ),
            self.bulk_reads,
            PeekHandlers(
                config=config,
                writer=writer,
                topics=topics,
                groups=groups,
                offsets=offsets,
                statistics=statistics,
                random=self._random,
            ),
            OffsetHandlers(
                topics=topics,
                groups=groups,
                offsets=offsets,
                store=store,
                make_visible=writer.make_visible,
                delay_offsets=self.delay.encode,
            ),
            QueryHandlers(store=store, consumers=consumers, make_visible=writer.make_visible),
            self._clients,
            relay,
            TopicHandlers(
                config=config,
                topics=topics,
                offsets=offsets,
                consumers=consumers,
                statistics=statistics,
                store=store,
                make_visible=writer.make_visible,
                address=lambda: self.address,
            ),
            GroupHandlers(
                config=config,
                topics=topics,
                groups=groups,
                offsets=offsets,
                consumers=consumers,
                statistics=statistics,
                store=store,
                make_visible=writer.make_visible,
                push_reset=relay.reset_by_clients,
            ),
            ConsumeStatsHandlers(
                config=config,
                topics=topics,
                groups=groups,
                offsets=offsets,
                consumers=consumers,
                statistics=statistics,
                store=store,
                clock=clock,
                make_visible=writer.make_visible,
                address=lambda: self.address,
            ),
            BrokerHandlers(
                settings=self.settings,
                statistics=statistics,
                runtime=runtime,
                store=store,
                worker=worker,
                files=self._files,
                primary=lambda: self.primary,
                replica=lambda: self.replica,
            ),
            ReplicationHandlers(
                config=config,
                store=store,
                replica=self.replica,
                addresses=lambda: (self.address, self._ha_address),
                acting=self.slave.acting if self.slave is not None else None,
            ),
        ]
        # Whoever acts by a setting sees its changes.
        self._configured = [
            *handlers,
            checks,
            topics,
            groups,
            offsets,
            consumers,
            producers,
            self.delay,
            self.transactions,
            self.staged,
            self._questions,
            standing,
            *([self.slave] if self.slave is not None else []),
        ]
        for part in handlers:
            add_routes(router, fast_router, lanes, self._keeping_promises(part.routes()))
        self._saves = {
            name: TableSaves(table, name=name, worker=worker, timers=timers, saves_at_once=name != "offsets")
            for name, table in (("topics", topics), ("groups", groups), ("offsets", offsets))
        }
        topics.on_dirty = self._saves["topics"].begin
        groups.on_dirty = self._saves["groups"].begin

    def _keeping_promises(self, routes: dict[RequestCode, Handler]) -> dict[RequestCode, Handler]:
        return {
            code: self._after_saving(handler) if code in _PROMISING else handler for code, handler in routes.items()
        }

    def _after_saving(self, handler: Handler) -> Handler:
        async def answer_when_saved(command: Command, link: Link) -> Any:
            answer = handler(command, link)
            for name, save in self._saves.items():
                await save.settled()
                if save.failure is not None:
                    remark = f"{name} changed, but not saved yet: a restart now would undo it. {save.failure}"
                    return command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
            if self._registration is not None:
                await self._registration.settled(_REGISTRATION_PATIENCE)
            return answer

        return answer_when_saved

    def _make_workers(self) -> tuple[Worker, Worker]:
        if self._timers is not None:
            return InlineWorker(), InlineWorker()
        loop = asyncio.get_running_loop()
        log_worker, worker = ThreadWorker(loop, "fusee-log"), ThreadWorker(loop, "fusee-files")
        self._second_hand = SecondHand("fusee-write")
        self._workers = [log_worker, worker, self._second_hand]
        return log_worker, worker

    def _start_jobs(self, timers: Timers) -> None:
        config = self.config
        unclean = self.recovery is None or self.recovery.unclean
        self._jobs = [
            Periodic(timers, config.flush_consumer_offset_interval / 1000, self._saves["offsets"].begin),
            Periodic(timers, _EXPIRY_INTERVAL, self._clients.expire),
            Periodic(timers, _SAMPLE_INTERVAL, self.statistics.sample),
        ]
        for save in self._saves.values():
            save.begin()
        self.writer.start()
        parts: list[Any] = [self.holds, *self._jobs]
        for part in parts:
            part.start()
            self._running.append(part)
        self._running += self._saves.values()
        if config.is_master:
            self.delay.start(unclean=unclean)
            self._running.append(self.delay)
            self.transactions.start(unclean=unclean)
            self._running.append(self.transactions)
            self.staged.start()
            self._running.append(self.staged)
        if self.slave is not None:
            self.slave.start()
            self._running.append(self.slave)

    @property
    def _flushes_at_once(self) -> bool:
        return self.store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    async def _listen_for_slaves(self, timers: Timers, port: int) -> int:
        """Open the door for slaves; its port. A slave has none."""
        config = self.config
        ha_port = config.ha_listen_port
        if ha_port < 0:
            ha_port = port + 1 if config.listen_port else 0
        if config.is_master:
            # Plain always: the stream has no TLS in the reference.
            network = self._network or TcpNetwork()
            primary = Primary(
                store=self.store,
                network=network,
                clock=self._clock,
                timers=timers,
                settings=_primary_settings(config),
                on_progress=self._slaves_progressed,
            )
            _, ha_port = parse_address(await primary.start(config.bind_address, ha_port))
            self.primary = primary
            self._running.append(primary)
            self._slaves_progressed()
        return ha_port

    async def _register(self, timers: Timers) -> None:
        assert self._client is not None
        self._registration = Registration(
            config=self.config,
            topics=self.topics,
            client=self._client,
            timers=timers,
            address=self.address,
            ha_address=self._ha_address,
            on_master=self.slave.registered if self.slave is not None else None,
        )
        await self._registration.start()

    async def stop(self) -> None:
        """Leave in order: nothing that was acknowledged depends on it, but a clean stop makes the next start quick.

        Raises StoreError when something could not be saved or the log not be closed; everything is released even so.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._registration is not None:
            await self._registration.stop()
        for part in reversed(self._running):
            part.stop()
        for server in self._servers:
            await server.stop()
        if self._running:
            self._clients.stop()
            self.writer.stop()
        self._running.clear()
        for worker in self._workers:
            worker.stop()
        await asyncio.sleep(0)  # what the workers had to say is heard
        if self._client is not None:
            await self._client.close()
        try:
            self._save_tables()
        finally:
            self.store.close()

    def _save_tables(self) -> None:
        if self.failure is not None or not hasattr(self, "statistics"):
            return
        errors: list[StoreError] = []
        for table in (self.topics, self.groups, self.offsets, self.statistics):
            try:
                table.save()
            except StoreError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    # What the parts say

    def _arrived(self, batch: Sequence[Dispatched]) -> None:
        if self.slave is not None:
            self.slave.arrived(batch)
        holds = self.holds
        if not holds:
            return
        if isinstance(batch, DispatchBatch) and batch.is_plain:
            for run in batch.groups():
                holds.wake(run.topic, run.queue_id)
            return
        for topic, queue_id in dict.fromkeys((record.topic, record.queue_id) for record in batch):
            holds.wake(topic, queue_id)

    def _written(self, count: int, seconds: float) -> None:
        if self.primary is not None:
            self.primary.written()
        self.statistics.put_latency(count, seconds * 1000)

    def _flushed(self, flushed_offset: int) -> None:
        if self.replica is not None:
            self.replica.flushed(flushed_offset)

    def _slaves_progressed(self) -> None:
        """Slaves have reported, come or gone: what is promised to senders may have become true, or impossible."""
        required = self.config.replicas_required
        if required <= 1 or self.primary is None:
            return
        progress = self.primary.progress
        in_sync = 1 + len(progress.in_sync(self.store.written_offset))
        self.writer.replicated(progress.confirmed(required))
        self.writer.slaves_changed(in_sync >= required)
        self.writer.refusal = (
            None
            if in_sync >= self.config.min_in_sync_replicas
            else TooFewReplicasError(
                f"{in_sync} of the {self.config.min_in_sync_replicas} brokers are in sync that minInSyncReplicas asks "
                "for: start the slaves, or lower it"
            )
        )

    def _store_failed(self, error: StoreFailedError) -> None:
        if self.failure is None:
            self.failure = error
            _log.critical("%s", error)

    def _settings_changed(self, live: LiveSettings, changed: frozenset[str]) -> None:
        self.config = live.broker
        shown = replace(live.broker, broker_ip1=self.settings.found["broker_ip1"])
        for part in self._configured:
            part.config = shown
        self.store.reconfigure(live.store)
        self.gate.slave_timeout = live.broker.slave_timeout / 1000
        if self.primary is not None:
            self.primary.settings = _primary_settings(live.broker)
            self._slaves_progressed()
        self._jobs[0].interval = live.broker.flush_consumer_offset_interval / 1000
        if self._registration is not None:
            self._registration.config = live.broker
            if "broker_permission" in changed:
                self._registration.announce_all()

    # LinkListener: a client is gone with its connection, however it ended

    def on_connect(self, link: Link) -> None:
        """Nothing: a connection means something when its client says who it is."""

    def on_close(self, link: Link) -> None:
        self.holds.link_lost(link)
        self._clients.link_lost(link)
        self._handovers.link_lost(link)

    def on_exception(self, link: Link, error: Exception) -> None:
        """Nothing: the end of the connection follows."""

    def on_idle(self, link: Link) -> None:
        """Nothing: the end of the connection follows."""


def _primary_settings(config: BrokerConfig) -> PrimarySettings:
    return PrimarySettings(
        heartbeat_interval=config.ha_send_heartbeat_interval / 1000,
        housekeeping_interval=config.ha_housekeeping_interval / 1000,
        transfer_bytes=config.ha_transfer_batch_size,
        gap_max=config.ha_max_gap_not_in_sync,
        bytes_per_second_max=config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else None,
        pace=_UNAWAITED_PACE if config.replicas_required <= 1 else 0.0,
    )
