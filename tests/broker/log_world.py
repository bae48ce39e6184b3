"""A broker's way to its log: real store on a simulated disk, real writer, real tables, real links over a wire of bytes.

Nothing here waits: `run` moves the clock, and with it every turn of the loop. `killed` and `crashed` give the world
that the next process finds.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from fusee.broker.ack_gate import AckGate
from fusee.broker.config import BrokerConfig
from fusee.broker.delay import DelayDelivery
from fusee.broker.delay_progress import DELAY_OFFSETS, delay_document
from fusee.broker.groups import GroupTable
from fusee.broker.handlers.send_back import SendBackHandlers
from fusee.broker.handlers.staged import StagedHandlers
from fusee.broker.handlers.transaction import TransactionHandlers
from fusee.broker.handovers import Handovers
from fusee.broker.log_writer import LogWriter
from fusee.broker.offsets import OffsetTable
from fusee.broker.producers import ProducerTable
from fusee.broker.queue_locks import QueueLocks
from fusee.broker.retry import RetryRules
from fusee.broker.send_checks import SendChecks
from fusee.broker.staged_batches import StagedBatches
from fusee.broker.statistics import Statistics
from fusee.broker.topics import TopicTable
from fusee.broker.transactions import Transactions
from fusee.broker.worker import InlineWorker
from fusee.clock import ManualClock
from fusee.message.hosts import pack_host
from fusee.message.model import StoredMessage
from fusee.message.properties import encode_properties
from fusee.message.record import iterate_records
from fusee.message.record_layout import FRAME, MAGIC_BLANK
from fusee.store.config import StoreConfig
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord
from fusee.store.results import GetStatus, PutResult
from fusee.store.simulated_disk import SimulatedDisk
from fusee.transport.link import Link
from fusee.transport.router import Router
from fusee.wire.codes import LanguageCode
from fusee.wire.command import Command
from fusee.wire.fields import Header
from fusee.wire.framing import FrameDecoder, encode_frame

ROOT = Path("/store")
STORE_HOST = pack_host("10.0.0.1", 10911)
BORN_HOST = pack_host("10.0.0.9", 40000)
NAME = "broker-a"


def small_store(**settings: Any) -> StoreConfig:
    """Files so small that some messages roll each kind of them; a disk is full only when it is."""
    values: dict[str, Any] = {
        "mapped_file_size_commit_log": 16 * 1024,
        "mapped_file_size_consume_queue": 20 * 16,
        "max_hash_slot_num": 16,
        "max_index_num": 64,
        "transaction_segment_entries": 16,
        "max_message_size": 8 * 1024,
        "message_delay_level": "1s 5s 10s 30s",
        "disk_free_bytes_min": 0,
        "disk_free_bytes_enough": 0,
        "disk_space_warning_level_ratio": 100,
        "disk_space_clean_forcibly_ratio": 100,
        "disk_max_used_space_ratio": 100,
        **settings,
    }
    return StoreConfig(**values)


class Wire:
    """The byte stream under a link: keeps what was sent."""

    def __init__(self) -> None:
        self.closing = False
        self._decoder = FrameDecoder()
        self.sent: list[Command] = []

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is buffered."""

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("10.0.0.9", 40000) if name == "peername" else ("10.0.0.1", 10911)

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        self.sent += self._decoder.feed(data)

    def get_write_buffer_size(self) -> int:
        return 0


class LogWorld:
    """One process on a disk."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        clock: ManualClock | None = None,
        *,
        store_config: StoreConfig | None = None,
        seed: int = 7,
        **settings: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        self.disk = disk or SimulatedDisk(self.clock)
        self.settings = {"broker_name": NAME, "broker_cluster_name": "C", **settings}
        self.config = BrokerConfig(**self.settings)
        self.store_config = store_config or small_store()
        self.store = MessageStore(ROOT, self.store_config, files=self.disk, clock=self.clock)
        self.recovery = self.store.open()
        self.worker = InlineWorker()
        self.router = Router()
        self.lane = self.router.lane("all", 10_000)
        self.writer = LogWriter(
            store=self.store,
            gate=AckGate(waits_for_flush=False, timeout=5.0, lane=self.lane, amend=lambda frame, status: frame),
            log_worker=self.worker,
            worker=self.worker,
            clock=self.clock,
            timers=self.clock,
            soon=lambda turn: self.clock.call_later(0.0, turn),
            is_awaited=lambda topic, queue_id: False,
            on_written=lambda count, seconds: None,
            on_failure=lambda error: None,
        )
        self.writer.start()
        tables: dict[str, Any] = {
            "config": self.config,
            "folder": ROOT / "config",
            "files": self.disk,
            "clock": self.clock,
        }
        self.topics = TopicTable(**tables)
        self.groups = GroupTable(**tables)
        self.offsets = OffsetTable(**tables)
        for table in (self.topics, self.groups, self.offsets):
            table.load()
        self.producers = ProducerTable(config=self.config)
        self.locks = QueueLocks(self.clock)
        self.statistics = Statistics(self.clock, "C")
        self.document = delay_document(ROOT / "config" / DELAY_OFFSETS, self.disk)
        self.delay = DelayDelivery(
            writer=self.writer,
            document=self.document,
            config=self.config,
            clock=self.clock,
            timers=self.clock,
            worker=self.worker,
            statistics=self.statistics,
        )
        self.retry = RetryRules(groups=self.groups, topics=self.topics, locks=self.locks, statistics=self.statistics)
        self.send_back = SendBackHandlers(
            config=self.config,
            writer=self.writer,
            groups=self.groups,
            topics=self.topics,
            store_host=STORE_HOST,
            random=Random(seed),
            statistics=self.statistics,
        )
        self.transactions = Transactions(
            writer=self.writer,
            offsets=self.offsets,
            topics=self.topics,
            producers=self.producers,
            config=self.config,
            clock=self.clock,
            timers=self.clock,
            store_host=STORE_HOST,
            statistics=self.statistics,
        )
        self.transaction_handlers = TransactionHandlers(
            config=self.config, writer=self.writer, transactions=self.transactions, clock=self.clock
        )
        self.staged = StagedBatches(
            writer=self.writer,
            topics=self.topics,
            config=self.config,
            clock=self.clock,
            timers=self.clock,
            store_host=STORE_HOST,
            statistics=self.statistics,
        )
        self.staged_handlers = StagedHandlers(
            config=self.config,
            writer=self.writer,
            checks=SendChecks(config=self.config, topics=self.topics, clock=self.clock),
            staged=self.staged,
            store_host=STORE_HOST,
            handovers=Handovers(),
        )
        for handlers in (self.send_back, self.transaction_handlers, self.staged_handlers):
            self.router.add_all(handlers.routes(), self.lane)

    # The next process

    def stopped(self, **changes: Any) -> LogWorld:
        """The world after a clean stop."""
        self.staged.stop()
        self.transactions.stop()
        self.delay.stop()
        self.writer.stop()
        self.store.close()
        self.offsets.save()
        return self._next(self.disk, **changes)

    def killed(self, **changes: Any) -> LogWorld:
        """The world after the process was killed."""
        return self._next(self.disk.kill(), **changes)

    def crashed(self, seed: int, **changes: Any) -> LogWorld:
        """The world after the power failed."""
        return self._next(self.disk.crash(seed), **changes)

    def _next(self, disk: SimulatedDisk, **changes: Any) -> LogWorld:
        clock = ManualClock(self.clock.time_ms())
        disk.clock = clock
        store_config = changes.pop("store_config", self.store_config)
        return LogWorld(disk, clock, store_config=store_config, **{**self.settings, **changes})

    # What happens in it

    def run(self, seconds: float = 0.01) -> None:
        """Let so much time pass."""
        self.clock.advance(seconds)

    def put(self, record: NewRecord) -> PutResult:
        """Put a record and let it become visible."""
        result = self.writer.put(record)
        self.run()
        return result

    def link(self) -> tuple[Link, Wire]:
        """A connection, and what is sent over it."""
        link = Link(clock=self.clock, timers=self.clock, router=self.router)
        wire = Wire()
        link.connection_made(wire)
        return link, wire

    def ask(
        self, code: int, header: Header, *, oneway: bool = False, version: int = 513, body: bytes = b""
    ) -> Command | None:
        """Send a request and let it be answered; None when it is not."""
        link, wire = self.link()
        command = Command.request(code, header, oneway=oneway, body=body)
        command.opaque = 77
        command.version = version
        link.data_received(encode_frame(command))
        self.run()
        assert len(wire.sent) <= 1
        return wire.sent[0] if wire.sent else None

    def producer(self, group: str) -> tuple[Link, Wire]:
        """A producer of this group, connected."""
        link, wire = self.link()
        self.producers.register(
            group, link, client_id=f"{group}@1", language=LanguageCode.JAVA, version=513, now_ms=self.clock.time_ms()
        )
        return link, wire

    # What is in the log

    def messages(self, topic: str | None = None) -> list[StoredMessage]:
        """Every record of the log, or those of a topic."""
        return [found for found in messages_of(self.store) if topic in (None, found.topic)]

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        """What a consumer of this queue reads."""
        self.writer.make_visible()
        bodies: list[bytes] = []
        queue_offset = self.store.min_offset(topic, queue_id)
        while True:
            result = self.store.get(topic, queue_id, queue_offset, 32)
            if result.status is not GetStatus.FOUND:
                return bodies
            bodies += [message.body for part in result.slices for message in iterate_records(part)]
            queue_offset = result.next_offset


def messages_of(store: MessageStore) -> list[StoredMessage]:
    """Every record of a log."""
    found: list[StoredMessage] = []
    log = store.log
    for base, _ in log.segments():
        view = log.chunk(base, log.segment_size)
        position = 0
        while position + 8 <= len(view):
            size, magic = FRAME.unpack_from(view, position)
            if magic == MAGIC_BLANK or size == 0:
                break
            found += iterate_records(view, position, position + size)
            position += size
    return found


def message(body: bytes, topic: str = "orders", queue_id: int = 0, **properties: str) -> NewRecord:
    """A message as a producer sends it."""
    return NewRecord(
        topic,
        queue_id,
        body,
        encode_properties({"UNIQ_KEY": "ID-" + body.decode()[:40], **properties}),
        born_timestamp_ms=1_699_999_999_000,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
    )
